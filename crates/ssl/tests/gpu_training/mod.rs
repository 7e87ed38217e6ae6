//! Training on a GPU beside the same in double precision on the CPU, whatever the method.
#![allow(dead_code, reason = "each test binary uses its own part")]

use model::{Arch, DropPath, HeadConfig, Init, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::method::MethodSpec;
use ssl::view_plan::{ViewPlan, ViewShape, Viewer};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, CudaOptions, Device, ParamId, Precision, ResidualPrecision};
use train::Position;
use train::optimizer::StepValues;

use crate::gpu_device::gpu_with;

/// Images of a step beside the CPU. With half as many, batch norm over the views of so few images made so much of the
/// rounding that the norm of a gradient was off by chance.
pub const BATCH: usize = 12;
pub const LOCALS: usize = 3;
pub const DROP_PATH: f64 = 0.1;
/// Sides of global and local views.
pub const SIDES: (usize, usize) = (64, 32);

pub fn cpu() -> Device {
    Device::cpu(CpuOptions { threads: None, precision: Precision::F64 }).unwrap()
}

/// With bfloat16 activations and a residual stream of this type.
pub fn gpu_in_bfloat16(residual: ResidualPrecision) -> Option<Device> {
    gpu_with(CudaOptions { residual, ..CudaOptions::default() })
}

pub const STREAMS: [ResidualPrecision; 2] = [ResidualPrecision::Bf16, ResidualPrecision::F32];

/// Patches of 16 pixels.
pub fn vit() -> VitConfig {
    VitConfig::new(Arch::Tiny, 16, (SIDES.0, SIDES.0), 3).unwrap()
}

pub fn head(batch_norm: bool) -> HeadConfig {
    HeadConfig { inputs: vit().dim, hidden: 128, bottleneck: 64, prototypes: 300, layers: 3, batch_norm }
}

/// A learner with the weights that the tolerances below were found with, whatever a network begins with elsewhere.
pub fn learner(device: &Device, options: &LearnerOptions, method: &dyn MethodSpec) -> Learner {
    let mut learner = Learner::new(device, options, |layout, vit, device| method.build(layout, vit, device)).unwrap();
    for (i, spec) in learner.layout().specs().to_vec().iter().enumerate() {
        let mut stream = Key::new(5, Purpose::Init).sample(i as u64).stream();
        let mut draw = || match spec.init {
            Init::Constant(value) => value,
            Init::Normal { deviation } => deviation * stream.normal(),
            Init::Uniform { bound } => stream.uniform_in(-bound, bound),
        };
        let values: Vec<f64> = (0..spec.shape.iter().product()).map(|_| draw()).collect();
        learner.student[ParamId(i)].copy_from_f64(&values);
        learner.teacher[ParamId(i)].copy_from_f64(&values);
    }
    learner
}

/// Some views of a batch of images of random boxes, so that there is something to learn.
fn images(seed: u64, batch: usize, views: usize, side: usize) -> Vec<u8> {
    let mut pixels = vec![0; views * batch * side * side * 3];
    for (i, image) in pixels.chunks_mut(side * side * 3).enumerate() {
        let mut stream = Key::new(seed, Purpose::Bench).sample((i % batch) as u64).stream();
        let mut draw = |below: usize| (stream.uniform() * below as f64) as usize;
        for _ in 0..6 {
            let (x, y, w, h) = (draw(side), draw(side), 4 + draw(side / 2), 4 + draw(side / 2));
            let color = [draw(256) as u8, draw(256) as u8, draw(256) as u8];
            for row in y..(y + h).min(side) {
                for column in x..(x + w).min(side) {
                    image[(row * side + column) * 3..][..3].copy_from_slice(&color);
                }
            }
        }
        // Views of one image are alike, not the same.
        image.iter_mut().for_each(|p| *p = p.wrapping_add((i / batch) as u8));
    }
    pixels
}

/// The views of a step, group by group.
pub fn views_of(plan: &ViewPlan, step: usize, batch: usize) -> Vec<Vec<u8>> {
    plan.shapes(batch).iter().map(|shape| images(step as u64, batch, shape.count / batch, shape.height)).collect()
}

/// The losses and gradient norms of some steps.
pub fn train(learner: &mut Learner, steps: usize, lr: f64) -> Vec<(f64, f64)> {
    train_by(learner, steps, lr, BATCH)
}

pub fn train_by(learner: &mut Learner, steps: usize, lr: f64, batch: usize) -> Vec<(f64, f64)> {
    (0..steps)
        .map(|step| {
            let views = views_of(learner.views(), step, batch);
            let data = |pixels| PixelData::Bytes { pixels, mean: &[0.5; 3], deviation: &[0.25; 3] };
            one_step(learner, step, lr, batch, views.iter().map(|pixels| data(pixels)).collect())
        })
        .collect()
}

/// Loss and gradient norm of a step on groups of views.
pub fn one_step(learner: &mut Learner, step: usize, lr: f64, batch: usize, groups: Vec<PixelData<'_>>) -> (f64, f64) {
    let shapes = learner.views().shapes(batch);
    let group = |(ViewShape { count, height, width, channels }, data)| Pixels { count, height, width, channels, data };
    let views: Vec<Pixels<'_>> = shapes.into_iter().zip(groups).map(group).collect();
    let rows = learner.views().seen_by(Viewer::Student).len() * batch;
    let keys = (0..rows).map(|s| Key::new(0, Purpose::DropPath).epoch(step as u64).sample(s as u64));
    let drop_path = DropPath::draw(DROP_PATH, learner.vit().config().depth, keys);
    let values = StepValues { lr, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
    let keys: Vec<u64> = (0..batch as u64).collect();
    let input = StepInput { groups: &views, keys: &keys, drop_path: Some(&drop_path) };
    let report = learner.step(&input, Position { step: step as u64, epoch: 1 + step as u64 }, &values).unwrap();
    (report.loss, report.gradient.norm)
}

/// How far a run may be from the same in double precision: losses and norms of gradients relative to their size, mean
/// gradients of single tensors relative to their norm.
pub struct Allowed {
    pub first_loss: f64,
    pub first_norm: f64,
    pub first_gradients: f64,
    /// After the first update, which divides a gradient by its own size: where it is nearly zero, noise takes a whole step.
    pub later_loss: f64,
    pub later_norm: f64,
}

pub const SINGLE: Allowed =
    Allowed { first_loss: 1e-6, first_norm: 1e-5, first_gradients: 1e-4, later_loss: 1e-4, later_norm: 2e-3 };

/// Batch norm over the sixty rows of this batch makes rounding several times larger, in single precision too.
pub const BFLOAT16: Allowed =
    Allowed { first_loss: 2e-3, first_norm: 3e-2, first_gradients: 0.3, later_loss: 2e-2, later_norm: 0.1 };

/// The first gradient of every parameter and the losses of a few steps.
#[track_caller]
pub fn follows(device: &Device, mode: &str, new: impl Fn(&Device) -> Learner, allowed: &Allowed) {
    let (mut ours, mut reference) = (new(device), new(&cpu()));
    let check = |step: usize, got: &[(f64, f64)], want: &[(f64, f64)], loss_off: f64, norm_off: f64| {
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let (loss, norm) = ((got.0 - want.0).abs() / want.0, (got.1 - want.1).abs() / want.1);
            println!("{mode}, step {}: loss off by {loss:.1e}, gradient norm by {norm:.1e}", step + i);
            assert!(loss < loss_off && norm < norm_off, "{mode}, step {}: {got:?} is not {want:?}", step + i);
        }
    };
    let (got, want) = (train(&mut ours, 1, 1e-4), train(&mut reference, 1, 1e-4));
    check(0, &got, &want, allowed.first_loss, allowed.first_norm);
    // Some gradients are zero by a symmetry, and what is left of them is rounding: of the norm of all of them a
    // thousandth counts as nothing.
    let least = (1e-3 * want[0].1 * 0.1).powi(2);
    let mut worst = 0.0f64;
    for (i, spec) in ours.layout().specs().iter().enumerate() {
        let id = ParamId(i);
        let (got, want) =
            (ours.optimizer().first_moment()[id].to_f64(), reference.optimizer().first_moment()[id].to_f64());
        let difference: f64 = got.iter().zip(&want).map(|(g, w)| (g - w).powi(2)).sum();
        let size: f64 = want.iter().map(|w| w * w).sum();
        let off = (difference / size.max(least)).sqrt();
        worst = worst.max(off);
        assert!(off < allowed.first_gradients, "{mode}: the gradient of {} is off by {off:.1e}", spec.name);
    }
    println!("{mode}: gradients off by at most {worst:.1e}");
    let (got, want) = (train(&mut ours, 3, 1e-4), train(&mut reference, 3, 1e-4));
    check(1, &got, &want, allowed.later_loss, allowed.later_norm);
}
