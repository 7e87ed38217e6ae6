//! iBOT, MSN and KoLeo on a GPU beside the same in double precision on the CPU, and within the memory that was planned for
//! them. Runs where `DINO_VMF_TEST_GPU` is set (`tools/gpu-test`), and is skipped elsewhere.

mod common;
mod gpu_device;
mod gpu_training;

use common::{dino_options, learner_options};
use gpu_device::gpu;
use gpu_training::{
    Allowed, BFLOAT16, DROP_PATH, LOCALS, SIDES, SINGLE, STREAMS, follows, gpu_in_bfloat16, head, learner, train,
    train_by, vit,
};
use ssl::learner::{Learner, LearnerOptions};
use ssl::mask::MaskOptions;
use ssl::memory::{MemoryNeed, plan_and_reserve};
use ssl::method::MethodSpec;
use ssl::method::dino::DinoOptions;
use ssl::method::ibot::IbotOptions;
use ssl::method::msn::MsnOptions;
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::{Sight, ViewGroup, ViewPlan};
use tensor::{CudaPrecision, Device, ParamId};
use train::curve::Curve;

const GRID: usize = SIDES.0 / 16;

fn dino(prototypes: Prototypes, centering: Centering, koleo_weight: f64) -> DinoOptions {
    let views = (SIDES.0, SIDES.1, LOCALS);
    DinoOptions { koleo_weight, ..dino_options((prototypes, centering), head(false), views) }
}

/// Three quarters of the views are masked, so that patches count.
fn ibot(class: DinoOptions, shape: MaskShape, own_prototypes: Option<usize>) -> IbotOptions {
    IbotOptions {
        class,
        grid: (GRID, GRID),
        own_prototypes,
        patch_temperature: Curve::Constant(0.07),
        patch_temperature_from: 0,
        masks: MaskOptions { shape, masked_views: 0.75, ratio: Interval { low: 0.2, high: 0.6 }, first_epoch: 0 },
        seed: 3,
        class_weight: 1.0,
        patch_weight: 1.0,
    }
}

fn msn(prototypes: Prototypes, sinkhorn: bool, batch_norm: bool, koleo_weight: f64) -> MsnOptions {
    let global = ViewGroup { size: (SIDES.0, SIDES.0), sights: vec![Sight::Teacher, Sight::Student] };
    let focal = ViewGroup { size: (SIDES.1, SIDES.1), sights: vec![Sight::Student; LOCALS] };
    MsnOptions {
        views: ViewPlan::new(vec![global, focal], 3),
        head: head(batch_norm),
        prototypes,
        temperature: 0.1,
        sharpening: 0.25,
        sinkhorn,
        me_max_weight: 1.0,
        koleo_weight,
        lengths: Default::default(),
        patches: GRID * GRID,
        patch_drop: 0.3,
        seed: 3,
    }
}

/// A method in one of its modes.
struct Mode {
    name: &'static str,
    method: Box<dyn MethodSpec>,
    /// Whether prototypes come in pairs.
    in_pairs: bool,
}

fn modes() -> Vec<Mode> {
    use Centering::{Logit, Probability};
    use Prototypes::{L2, None as Free, Vmf};
    let (block, random) = (MaskShape::Block, MaskShape::Random);
    let mode = |name, method| Mode { name, method, in_pairs: false };
    let koleo = |name, method| Mode { name, method, in_pairs: true };
    vec![
        mode("iBOT", Box::new(ibot(dino(Free, Logit, 0.0), block, None))),
        mode("iBOT-vMF", Box::new(ibot(dino(Vmf, Probability, 0.0), block, None))),
        mode("iBOT-vMF with two heads", Box::new(ibot(dino(Vmf, Probability, 0.0), random, Some(200)))),
        mode("MSN", Box::new(msn(L2, true, true, 0.0))),
        mode("MSN without Sinkhorn and batch norm", Box::new(msn(L2, false, false, 0.0))),
        mode("MSN-vMF", Box::new(msn(Vmf, true, false, 0.0))),
        koleo("DINO-vMF with KoLeo", Box::new(dino(Vmf, Probability, 0.5))),
        koleo("iBOT-vMF with two heads and KoLeo", Box::new(ibot(dino(Vmf, Probability, 0.5), block, Some(200)))),
        koleo("MSN with KoLeo", Box::new(msn(L2, true, false, 0.5))),
    ]
}

fn options() -> LearnerOptions {
    learner_options(vit(), 3.0, 5)
}

impl Mode {
    fn learner(&self, device: &Device) -> Learner {
        let mut learner = learner(device, &options(), &*self.method);
        if self.in_pairs {
            pair_up(&mut learner);
        }
        learner
    }
}

/// Puts every second prototype near the one before it. KoLeo asks for the nearest other prototype, and among random ones some
/// are so nearly as near as the nearest that rounding decides.
fn pair_up(learner: &mut Learner) {
    for (i, spec) in learner.layout().specs().to_vec().iter().enumerate() {
        if !spec.name.ends_with("weight_v") {
            continue;
        }
        let (id, dim) = (ParamId(i), spec.shape[1]);
        let mut values = learner.student[id].to_f64();
        for pair in values.chunks_exact_mut(2 * dim) {
            let (first, second) = pair.split_at_mut(dim);
            second.iter_mut().zip(first).for_each(|(second, first)| *second = *first + 0.3 * *second);
        }
        learner.student[id].copy_from_f64(&values);
        learner.teacher[id].copy_from_f64(&values);
    }
}

#[track_caller]
fn all_follow(device: &Device, allowed: &Allowed) {
    for mode in modes() {
        follows(device, mode.name, |device| mode.learner(device), allowed);
    }
}

#[test]
fn a_gpu_in_single_precision_trains_every_method_as_the_cpu_does() {
    if let Some(device) = gpu(CudaPrecision::F32) {
        all_follow(&device, &SINGLE);
    }
}

#[test]
fn a_gpu_in_bfloat16_trains_every_method_as_the_cpu_does() {
    for device in STREAMS.into_iter().filter_map(gpu_in_bfloat16) {
        println!("{}", device.describe());
        // MSN's targets are of a lower temperature than DINO's, and rounding counts for more in its loss.
        all_follow(&device, &Allowed { first_loss: 2.0 * BFLOAT16.first_loss, ..BFLOAT16 });
    }
}

#[test]
fn a_gpu_trains_every_method_to_the_same_bits_twice() {
    for device in STREAMS.into_iter().filter_map(gpu_in_bfloat16) {
        for mode in modes() {
            let run = || train(&mut mode.learner(&device), 5, 5e-4);
            assert_eq!(run(), run(), "{}", mode.name);
        }
    }
}

/// Masks are drawn anew in every step of this one, and the plan is for the largest there can be.
#[test]
fn a_gpu_takes_no_more_memory_for_a_method_than_was_planned() {
    // So that what a handle holds besides, for matrix products, is little beside a step.
    const MANY: usize = 128;
    let class = dino(Prototypes::Vmf, Centering::Probability, 0.0);
    let methods: [(&str, Box<dyn MethodSpec>); 3] = [
        ("iBOT", Box::new(ibot(class.clone(), MaskShape::Block, None))),
        ("iBOT, patches with prototypes of their own", Box::new(ibot(class, MaskShape::Random, Some(2000)))),
        ("MSN", Box::new(msn(Prototypes::L2, true, true, 0.1))),
    ];
    for (name, method) in methods {
        for accumulate in [1, 2] {
            let Some(device) = gpu(CudaPrecision::Bf16) else { return };
            let options = LearnerOptions { accumulate, ..options() };
            let (method, drop_path) = (&*method, DROP_PATH);
            let need = MemoryNeed { options: &options, method, batch: MANY, drop_path, evaluated: None };
            let plan = plan_and_reserve(&device, &need).unwrap().unwrap();
            let before = device.memory().peak_bytes;
            train_by(&mut learner(&device, &options, method), 8, 5e-4, MANY);
            let after = device.memory().peak_bytes;
            println!("{name} in {accumulate} parts: {} planned, {before} taken, {after} after some steps", plan.total);
            assert_eq!(after, before, "{name} in {accumulate} parts");
        }
    }
}
