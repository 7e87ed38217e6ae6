//! Six training steps of MSN, with Sinkhorn and without, and of MSN-vMF against an independent implementation in PyTorch:
//! patches left out, targets, me-max, clipping by the global norm, prototypes that are neither averaged nor decayed.
//!
//! `tools/oracle/msn_trajectory.py` made the numbers. Each mode of the file says how far its numbers move where the weights
//! do by 1e-13, which a comparison cannot be finer than.

mod common;
mod gpu_device;

use common::toy::{BATCH, Batch, HEAD, STEPS, STEPS_PER_EPOCH, VIT, values, weight};
use common::{f64_device, learner_options, norm};
use gpu_device::gpu;
use model::{HeadConfig, Layout, ParamSpec, VitConfig};
use serde_json::Value;
use ssl::health::{Finding, Moment};
use ssl::learner::{Learner, StepInput};
use ssl::method::msn::{Msn, MsnOptions};
use ssl::method::{Method, Networks, StepPart};
use ssl::recipe::Prototypes;
use ssl::view_plan::{Sight, ViewGroup, ViewPlan};
use tensor::{CpuOptions, CudaPrecision, Device, ParamId, ParamSet, Precision};
use train::optimizer::Treatment;
use train::reduce::Reduce;
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::step::StepReport;
use train::{Position, StepError};

const PATCHES: usize = 16;
const PROTOTYPES: usize = 10;

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/msn_trajectory.json")).unwrap()
}

/// MSN with patches left out by a closed form. Keeps the norm of the prototypes' gradient.
#[derive(Debug)]
struct WithKept {
    msn: Msn,
    prototype_gradient: f64,
}

/// The patches that the random anchor of each image keeps in an iteration.
fn kept(it: u64) -> Vec<Vec<usize>> {
    let is_kept =
        |image: usize, patch: usize| (1.1 * patch as f64 + 0.4 + 1.7 * image as f64 + 0.8 * it as f64).sin() > -0.3;
    (0..BATCH).map(|image| (0..PATCHES).filter(|&patch| is_kept(image, patch)).collect()).collect()
}

impl Method for WithKept {
    fn views(&self) -> &ViewPlan {
        self.msn.views()
    }
    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        self.msn.treatment(id, spec)
    }
    fn start_step(&mut self) {
        self.msn.start_step();
    }
    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let loss = self.msn.add_gradient_kept(networks, part, &kept(part.at.step), reduce, gradient)?;
        let prototypes = self.msn.prototypes();
        // Of unit length the lengths have a gradient that nobody asks for.
        let lengths = if self.trains_lengths() { gradient[prototypes.magnitude()].to_f64() } else { vec![] };
        self.prototype_gradient = norm(gradient[prototypes.direction()].to_f64().into_iter().chain(lengths));
        Ok(loss)
    }
    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.msn.end_step(loss, reduce)
    }
    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        self.msn.vitals(student, moment, record)
    }
    fn schedules(&self, at: Position, record: Record) -> Record {
        self.msn.schedules(at, record)
    }
    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.msn.save(state);
    }
    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.msn.restore(saved)
    }
}

impl WithKept {
    fn trains_lengths(&self) -> bool {
        let spec = ParamSpec { name: String::new(), shape: vec![1, 1], init: model::Init::Constant(0.0) };
        self.msn.treatment(self.msn.prototypes().magnitude(), &spec).trained
    }
}

fn options(mode: &str) -> MsnOptions {
    let global = ViewGroup { size: (32, 32), sights: vec![Sight::Teacher, Sight::Student] };
    let focal = ViewGroup { size: (16, 16), sights: vec![Sight::Student; 2] };
    MsnOptions {
        views: ViewPlan::new(vec![global, focal], 3),
        head: HeadConfig { prototypes: PROTOTYPES, ..HEAD },
        prototypes: if mode == "vmf" { Prototypes::Vmf } else { Prototypes::L2 },
        temperature: 0.1,
        sharpening: 0.25,
        sinkhorn: mode == "sinkhorn",
        me_max_weight: 1.0,
        koleo_weight: 0.0,
        lengths: Default::default(),
        patches: 16,
        patch_drop: 0.15,
        seed: 0,
    }
}

fn learner(device: &Device, mode: &str) -> Learner<WithKept> {
    let build = |layout: &mut Layout, _: &VitConfig, device: &Device| {
        Msn::new(layout, device, options(mode)).map(|msn| Box::new(WithKept { msn, prototype_gradient: 0.0 }))
    };
    let mut learner = Learner::new(device, &learner_options(VIT, 0.05, 0), build).unwrap();
    let names: Vec<String> = learner.layout().specs().iter().map(|spec| spec.name.clone()).collect();
    for (q, name) in names.iter().enumerate() {
        // The reference has no lengths but for vMF: they take no number there.
        let number = if name == "prototypes.weight_v" && mode != "vmf" { q - 1 } else { q };
        let value = |i: usize| match (name.as_str(), mode) {
            ("prototypes.weight_g", "vmf") => 1.0 + 0.3 * (0.5 * i as f64).sin(),
            _ => weight(name, number, i),
        };
        let values: Vec<f64> = (0..learner.student.tensors()[q].len()).map(value).collect();
        learner.student.tensors_mut()[q].copy_from_f64(&values);
        learner.teacher.tensors_mut()[q].copy_from_f64(&values);
    }
    learner
}

fn step(learner: &mut Learner<WithKept>, it: u64) -> StepReport {
    let batch = Batch::new(it);
    let input = StepInput { groups: &batch.pixels(), keys: &[0; BATCH], drop_path: None };
    learner.step(&input, Position { step: it, epoch: it / STEPS_PER_EPOCH }, &values(it)).unwrap()
}

/// Norm of all weights whose name is none of these.
fn norm_without(learner: &Learner<WithKept>, weights: &ParamSet, without: &[&str]) -> f64 {
    let named = learner.layout().specs().iter().zip(weights.iter());
    norm(named.filter(|(spec, _)| !without.contains(&spec.name.as_str())).flat_map(|(_, t)| t.to_f64()))
}

/// Runs all steps of a mode in double precision against the file.
fn follow(mode: &str) {
    let file = fixture();
    let expected = &file["modes"][mode];
    let mut learner = learner(&f64_device(), mode);
    let near = |what: String, got: f64, want: &Value, moved: &Value| {
        let (want, moved) = (want.as_f64().unwrap(), moved.as_f64().unwrap());
        let off = (got - want).abs() / want.abs();
        assert!(off < 1e-10 + moved, "{mode}, {what}: {got} is not {want} ({off:e})");
    };
    let lengths = if mode == "vmf" { &[][..] } else { &["prototypes.weight_g"] };
    for it in 0..STEPS {
        let report = step(&mut learner, it);
        let (want, moved) = (&expected["steps"][it as usize], &expected["moved"][it as usize]);
        let (cross_entropy, me_max) = learner.method.msn.losses();
        let both = (report.gradient.norm.powi(2) - learner.method.prototype_gradient.powi(2)).sqrt();
        let prototypes = ["prototypes.weight_g", "prototypes.weight_v"];
        for (key, got) in [
            ("loss", report.loss),
            ("cross_entropy", cross_entropy),
            ("me_max", me_max),
            ("kept", kept(it).iter().map(Vec::len).sum::<usize>() as f64),
            ("gradient_norm", both),
            ("prototype_gradient_norm", learner.method.prototype_gradient),
            ("student_norm", norm_without(&learner, &learner.student, lengths)),
            ("teacher_norm", norm_without(&learner, &learner.teacher, &prototypes)),
        ] {
            near(format!("{key} {it}"), got, &want[key], moved);
        }
    }
    let parameter = |name: &str| learner.student[learner.layout().find(name).unwrap()].to_f64();
    for i in 0..5 {
        let moved = &expected["moved"][STEPS as usize];
        near(format!("prototypes[{i}]"), parameter("prototypes.weight_v")[i], &expected["prototypes"][i], moved);
        if mode == "vmf" {
            near(format!("g[{i}]"), parameter("prototypes.weight_g")[i], &expected["weight_g"][i], moved);
        }
    }
}

#[test]
fn msn_follows_the_reference() {
    follow("sinkhorn");
}

#[test]
fn msn_without_sinkhorn_follows_the_reference() {
    follow("plain");
}

#[test]
fn msn_vmf_follows_the_reference() {
    follow("vmf");
}

#[track_caller]
fn follows_in_single_precision(device: &Device) {
    for (mode, expected) in fixture()["modes"].as_object().unwrap() {
        let mut learner = learner(device, mode);
        for it in 0..STEPS {
            let (got, want) = (step(&mut learner, it).loss, expected["steps"][it as usize]["loss"].as_f64().unwrap());
            let off = (got - want).abs() / want;
            println!("{mode}, step {it}: loss off by {off:.1e}");
            assert!(off < 1e-3, "{mode}, step {it}: {got} is not {want}");
        }
    }
}

#[test]
fn single_precision_follows_the_reference() {
    follows_in_single_precision(&Device::cpu(CpuOptions { threads: None, precision: Precision::F32 }).unwrap());
}

#[test]
fn a_gpu_follows_the_reference() {
    if let Some(device) = gpu(CudaPrecision::F32) {
        follows_in_single_precision(&device);
    }
}
