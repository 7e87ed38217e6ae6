//! Every method on a small network and made-up images, for tests of steps in parts and of several processes.

use std::ops::Range;
use std::sync::Arc;

use model::{DropPath, Extras, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::lengths::{KappaPrior, LengthOptions};
use ssl::mask::MaskOptions;
use ssl::method::MethodSpec;
use ssl::method::dino::DinoOptions;
use ssl::method::ibot::IbotOptions;
use ssl::method::msn::MsnOptions;
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::{Sight, ViewGroup, ViewPlan};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, Precision};
use train::curve::Curve;
use train::optimizer::StepValues;
use train::{Position, StepError};

use super::{dino_options, learner_options};

/// Images of a step.
pub const BATCH: usize = 6;
const LOCALS: usize = 3;
const GLOBAL: usize = 32;
const LOCAL: usize = 16;

/// A head, with batch norm or without.
fn head(batch_norm: bool) -> HeadConfig {
    HeadConfig { inputs: 16, hidden: 24, bottleneck: 16, prototypes: 20, layers: 3, batch_norm }
}

/// Every method in several modes, with KoLeo of this weight on the prototypes.
pub fn methods(batch_norm: bool, koleo_weight: f64) -> Vec<Arc<dyn MethodSpec>> {
    let class = |mode| {
        let mut class: DinoOptions = dino_options(mode, head(batch_norm), (GLOBAL, LOCAL, LOCALS));
        class.target.center_momentum = 0.5;
        class.koleo_weight = koleo_weight;
        class
    };
    let plain = class((Prototypes::None, Centering::Logit));
    // Where KoLeo is on, so is everything else that may be asked of prototypes.
    let lengths = match koleo_weight > 0.0 {
        true => {
            let prior = Some(KappaPrior { mode: 25.0, weight: 0.3, temperature: 0.1 });
            LengthOptions { start: 1.5, lr_factor: 3.0, in_log: true, prior }
        }
        false => LengthOptions::default(),
    };
    let vmf = DinoOptions { lengths, ..class((Prototypes::Vmf, Centering::Probability)) };
    let ibot = |class: &DinoOptions, own_prototypes| IbotOptions {
        class: class.clone(),
        grid: (4, 4),
        own_prototypes,
        patch_temperature: Curve::Constant(0.05),
        patch_temperature_from: 0,
        masks: MaskOptions {
            shape: MaskShape::Block,
            masked_views: 0.7,
            ratio: Interval { low: 0.2, high: 0.5 },
            first_epoch: 0,
        },
        seed: 5,
        class_weight: 1.0,
        patch_weight: 0.8,
    };
    let global = ViewGroup { size: (GLOBAL, GLOBAL), sights: vec![Sight::Teacher, Sight::Student] };
    let focal = ViewGroup { size: (LOCAL, LOCAL), sights: vec![Sight::Student; LOCALS] };
    let msn = |prototypes, sinkhorn| MsnOptions {
        views: ViewPlan::new(vec![global.clone(), focal.clone()], 3),
        head: head(batch_norm),
        prototypes,
        temperature: 0.1,
        sharpening: 0.25,
        sinkhorn,
        me_max_weight: 1.0,
        koleo_weight,
        lengths: if prototypes == Prototypes::Vmf { lengths } else { LengthOptions::default() },
        patches: 16,
        patch_drop: 0.3,
        seed: 5,
    };
    vec![
        Arc::new(plain.clone()),
        Arc::new(class((Prototypes::Vmf, Centering::Logit))),
        Arc::new(vmf.clone()),
        Arc::new(ibot(&plain, None)),
        Arc::new(ibot(&vmf, Some(12))),
        Arc::new(msn(Prototypes::L2, true)),
        Arc::new(msn(Prototypes::Vmf, false)),
    ]
}

/// A small network that a method trains.
pub fn learner(method: &dyn MethodSpec, accumulate: usize, precision: Precision) -> Learner {
    learner_of(method, precision, |options| options.accumulate = accumulate)
}

/// The same with other options.
pub fn learner_of(method: &dyn MethodSpec, precision: Precision, change: impl Fn(&mut LearnerOptions)) -> Learner {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision }).unwrap();
    let vit = VitConfig {
        dim: 16,
        depth: 3,
        heads: 2,
        mlp_dim: 32,
        patch: 8,
        image: (GLOBAL, GLOBAL),
        channels: 3,
        extras: Extras::NONE,
    };
    let mut options = learner_options(vit, 3.0, 3);
    change(&mut options);
    Learner::new(&device, &options, |layout, vit, device| method.build(layout, vit, device)).unwrap()
}

/// The losses of a training, and at its end all weights.
#[derive(Debug, PartialEq)]
pub struct Course {
    pub losses: Vec<f64>,
    pub weights: Vec<f64>,
}

/// Trains on these of the images of each step. An image that is not finite ends it.
pub fn train(mut learner: Learner, images: Range<usize>, steps: u64, lr: impl Fn(u64) -> f64) -> Course {
    let mut losses = Vec::new();
    for step in 0..steps {
        losses.push(take_step(&mut learner, images.clone(), step, lr(step), None).unwrap());
    }
    Course { losses, weights: weights(&learner) }
}

/// All weights, the student's and then the teacher's.
pub fn weights(learner: &Learner) -> Vec<f64> {
    learner.student.iter().chain(learner.teacher.iter()).flat_map(|t| t.to_f64()).collect()
}

/// One step on these of its images, of which the given one is broken; its loss.
pub fn take_step(
    learner: &mut Learner,
    images: Range<usize>,
    step: u64,
    lr: f64,
    broken: Option<usize>,
) -> Result<f64, StepError> {
    take_step_of(learner, images, step, usual(lr), broken)
}

/// The values of a step in which everything learns.
pub fn usual(lr: f64) -> StepValues {
    StepValues { lr, weight_decay: 0.1, momentum: 0.9, frozen: false, waiting_lr: 1.0 }
}

/// The same with these values.
pub fn take_step_of(
    learner: &mut Learner,
    images: Range<usize>,
    step: u64,
    values: StepValues,
    broken: Option<usize>,
) -> Result<f64, StepError> {
    let (from, to) = (images.start, images.end);
    let key = |view: usize, image: usize| Key::new(step, Purpose::Bench).sample(image as u64).view(view as u32);
    let image = |view: usize, image: usize, side: usize| -> Vec<f64> {
        let mut stream = key(view, image).stream();
        let value = |x: f64| if broken == Some(image) { f64::NAN } else { x };
        (0..3 * side * side).map(|_| value(stream.normal())).collect()
    };
    let group = |views: std::ops::Range<usize>, side: usize| -> Vec<f64> {
        views.flat_map(|view| (from..to).flat_map(move |b| image(view, b, side))).collect()
    };
    let (globals, locals) = (group(0..2, GLOBAL), group(2..2 + LOCALS, LOCAL));
    let pixels = |views: usize, side: usize, values| {
        let count = views * (to - from);
        Pixels { count, height: side, width: side, channels: 3, data: PixelData::Values(values) }
    };
    let groups = [pixels(2, GLOBAL, &globals), pixels(LOCALS, LOCAL, &locals)];
    let keys: Vec<u64> = (from as u64..to as u64).collect();
    let rows = learner.views().student_keys(Key::new(step, Purpose::DropPath), &keys);
    let drop_path = DropPath::draw(0.4, 3, rows);
    let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
    Ok(learner.step(&input, Position { step, epoch: 0 }, &values)?.loss)
}

/// That two trainings were the same up to the order of sums, no weight farther apart than `most`.
#[track_caller]
pub fn assert_same(what: &str, got: &Course, want: &Course, most: f64) {
    let off = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (losses, weights) = (off(&got.losses, &want.losses), off(&got.weights, &want.weights));
    assert!(losses < 1e-9 && weights < most, "{what}: {losses:e}, {weights:e}");
}
