//! Six training steps of iBOT and iBOT-vMF against an independent implementation in PyTorch: masks, both losses, both
//! centres, separate and shared prototypes, clipping, freezing, AdamW and moving average.
//!
//! `tools/oracle/ibot_trajectory.py` made the numbers. Each mode of the file says how far its numbers move where the weights
//! do by 1e-13, which a comparison cannot be finer than.

mod common;
mod gpu_device;

use common::toy::{BATCH, Batch, HEAD, STEPS, STEPS_PER_EPOCH, VIT, values, weight};
use common::{dino_options, f64_device, learner_options, norm};
use gpu_device::gpu;
use model::{Layout, ParamSpec};
use serde_json::Value;
use ssl::health::{Finding, Moment};
use ssl::learner::{Learner, StepInput};
use ssl::mask::{MaskOptions, Masks};
use ssl::method::dino::DinoOptions;
use ssl::method::ibot::{Ibot, IbotOptions};
use ssl::method::{Method, Networks, StepPart};
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::ViewPlan;
use tensor::{CpuOptions, CudaPrecision, Device, ParamId, ParamSet, Precision};
use train::curve::Curve;
use train::optimizer::Treatment;
use train::reduce::Reduce;
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::step::StepReport;
use train::{Position, StepError};

const PATCHES: usize = 16;

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/ibot_trajectory.json")).unwrap()
}

/// iBOT with masks in closed form.
#[derive(Debug)]
struct WithMasks(Ibot);

/// Those of the global views of an iteration.
fn masks(it: u64) -> Masks {
    let is_masked = |view: usize, image: usize, patch: usize| {
        let n = (2 * view + image) as f64;
        (0.7 * patch as f64 + 0.1 + 1.3 * n + 0.9 * it as f64).sin() > 0.2
    };
    let of_view = |view: usize, image: usize| {
        let is_empty = it.is_multiple_of(2) && (view, image) == (1, 1);
        (0..PATCHES).filter(|&patch| !is_empty && is_masked(view, image, patch)).collect()
    };
    Masks { of_views: (0..2).flat_map(|view| (0..BATCH).map(move |image| of_view(view, image))).collect() }
}

impl Method for WithMasks {
    fn views(&self) -> &ViewPlan {
        self.0.views()
    }
    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        self.0.treatment(id, spec)
    }
    fn start_step(&mut self) {
        self.0.start_step();
    }
    fn add_gradient(
        &mut self,
        n: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        self.0.add_gradient_masked(n, part, &masks(part.at.step), reduce, gradient)
    }
    fn is_frozen(&self, at: Position) -> bool {
        self.0.is_frozen(at)
    }
    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.0.end_step(loss, reduce)
    }
    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        self.0.vitals(student, moment, record)
    }
    fn schedules(&self, at: Position, record: Record) -> Record {
        self.0.schedules(at, record)
    }
    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.0.save(state);
    }
    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.0.restore(saved)
    }
}

fn learner(device: &Device, mode: &str) -> Learner<WithMasks> {
    let switches = match mode.split_once('_').unwrap().0 {
        "vmf" => (Prototypes::Vmf, Centering::Probability),
        "l2" => (Prototypes::L2, Centering::Logit),
        _ => (Prototypes::None, Centering::Logit),
    };
    let options = IbotOptions {
        class: DinoOptions {
            teacher_temperature: Curve::Ramp { from: 0.04, to: 0.07, points: 2 },
            ..dino_options(switches, HEAD, (32, 16, 2))
        },
        grid: (4, 4),
        own_prototypes: mode.ends_with("separate").then_some(20),
        patch_temperature: Curve::Ramp { from: 0.05, to: 0.08, points: 2 },
        patch_temperature_from: 0,
        masks: MaskOptions {
            shape: MaskShape::Block,
            masked_views: 1.0,
            ratio: Interval { low: 0.1, high: 0.5 },
            first_epoch: 0,
        },
        seed: 0,
        class_weight: 1.0,
        patch_weight: 0.7,
    };
    let build = |layout: &mut Layout, vit: &model::VitConfig, device: &Device| {
        Ibot::new(layout, vit, device, options).map(|ibot| Box::new(WithMasks(ibot)))
    };
    let mut learner = Learner::new(device, &learner_options(VIT, 0.05, 0), build).unwrap();
    let names: Vec<String> = learner.layout().specs().iter().map(|spec| spec.name.clone()).collect();
    for (q, name) in names.iter().enumerate() {
        let length = |k: f64| match name.as_str() {
            "head.last_layer.weight_g" => 1.0 + 0.3 * (0.5 * k).sin(),
            _ => 1.0 + 0.3 * (0.5 * k).cos(),
        };
        let value = |i: usize| match name.ends_with("weight_g") && switches.0 == Prototypes::Vmf {
            true => length(i as f64),
            false => weight(name, q, i),
        };
        let values: Vec<f64> = (0..learner.student.tensors()[q].len()).map(value).collect();
        learner.student.tensors_mut()[q].copy_from_f64(&values);
        learner.teacher.tensors_mut()[q].copy_from_f64(&values);
    }
    learner
}

fn step(learner: &mut Learner<WithMasks>, it: u64) -> StepReport {
    let batch = Batch::new(it);
    let input = StepInput { groups: &batch.pixels(), keys: &[0; BATCH], drop_path: None };
    learner.step(&input, Position { step: it, epoch: it / STEPS_PER_EPOCH }, &values(it)).unwrap()
}

/// Norm of all weights, of the teacher's without its mask token, which it has no use for.
fn norm_of(learner: &Learner<WithMasks>, weights: &ParamSet, with_mask_token: bool) -> f64 {
    let named = learner.layout().specs().iter().zip(weights.iter());
    norm(named.filter(|(spec, _)| with_mask_token || spec.name != "mask_token").flat_map(|(_, t)| t.to_f64()))
}

/// Runs all steps of a mode in double precision against the file.
fn follow(mode: &str) {
    let file = fixture();
    let expected = &file["modes"][mode];
    let mut learner = learner(&f64_device(), mode);
    // What rounding may do to a well-conditioned number, and what a perturbation of 1e-13 does to these.
    let near = |what: String, got: f64, want: &Value, moved: &Value| {
        let (want, moved) = (want.as_f64().unwrap(), moved.as_f64().unwrap());
        let off = (got - want).abs() / want.abs();
        assert!(off < 1e-10 + moved, "{mode}, {what}: {got} is not {want} ({off:e})");
    };
    for it in 0..STEPS {
        let report = step(&mut learner, it);
        let (want, moved) = (&expected["steps"][it as usize], &expected["moved"][it as usize]);
        let (class_loss, patch_loss) = learner.method.0.losses();
        let (class_centre, patch_centre) = learner.method.0.centers();
        for (key, got) in [
            ("loss", report.loss),
            ("class_loss", class_loss),
            ("patch_loss", patch_loss),
            ("masked", masks(it).count() as f64),
            ("gradient_norm", report.gradient.norm),
            ("clipped", report.gradient.clipped as f64),
            ("student_norm", norm_of(&learner, &learner.student, true)),
            ("teacher_norm", norm_of(&learner, &learner.teacher, false)),
            ("class_centre_norm", norm(class_centre.to_f64())),
            ("patch_centre_norm", norm(patch_centre.to_f64())),
        ] {
            // The reference does not count frozen tensors, whose gradient is clipped and then dropped.
            if key != "clipped" || it >= STEPS_PER_EPOCH {
                near(format!("{key} {it}"), got, &want[key], moved);
            }
        }
    }
    let (class_centre, patch_centre) = learner.method.0.centers();
    let parameter = |name: &str| learner.student[learner.layout().find(name).unwrap()].to_f64();
    for (key, got) in [
        ("class_centre", class_centre.to_f64()),
        ("patch_centre", patch_centre.to_f64()),
        ("mask_token", parameter("mask_token")),
        ("weight_g", parameter("head.last_layer.weight_g")),
    ] {
        for i in 0..5 {
            near(format!("{key}[{i}]"), got[i], &expected[key][i], &expected["moved"][STEPS as usize]);
        }
    }
}

#[test]
fn ibot_follows_the_reference() {
    follow("none_logit_shared");
}

#[test]
fn ibot_with_unit_prototypes_follows_the_reference() {
    follow("l2_logit_shared");
}

#[test]
fn ibot_vmf_follows_the_reference() {
    follow("vmf_probability_shared");
}

#[test]
fn ibot_vmf_with_prototypes_of_patches_follows_the_reference() {
    follow("vmf_probability_separate");
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
