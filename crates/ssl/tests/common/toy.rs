//! The toy problem of the reference trajectories: weights, images and schedules are closed forms, so no file is needed.

use model::{Extras, HeadConfig, VitConfig};
use tensor::ops::{PixelData, Pixels};
use train::curve::cosine;
use train::optimizer::StepValues;

pub const BATCH: usize = 2;
pub const STEPS_PER_EPOCH: u64 = 2;
pub const STEPS: u64 = 3 * STEPS_PER_EPOCH;

pub const VIT: VitConfig = VitConfig {
    dim: 32,
    depth: 2,
    heads: 2,
    mlp_dim: 128,
    patch: 8,
    image: (32, 32),
    channels: 3,
    extras: Extras::NONE,
};
pub const HEAD: HeadConfig =
    HeadConfig { inputs: 32, hidden: 48, bottleneck: 16, prototypes: 24, layers: 3, batch_norm: false };

/// Value `i` of parameter `q`.
pub fn weight(name: &str, q: usize, i: usize) -> f64 {
    let a = (0.9 * q as f64 + 0.37 * i as f64).sin();
    if name.ends_with("weight_g") {
        1.0
    } else if name.ends_with("bias") {
        0.02 * a
    } else if name.contains("norm") {
        1.0 + 0.05 * a
    } else {
        0.2 * a
    }
}

/// The images of one view, channel by channel.
pub fn view(it: u64, view: usize) -> Vec<f64> {
    let side = if view < 2 { 32 } else { 16 };
    let (it, v) = (it as f64, view as f64);
    let value = |i: f64| (0.3 * it + 0.7 * v + 0.11 * i).sin() + 0.5 * (0.05 * i * (v + 1.0)).cos();
    (0..BATCH * 3 * side * side).map(|i| value(i as f64)).collect()
}

/// Two global and two local views, view by view.
pub struct Batch {
    globals: Vec<f64>,
    locals: Vec<f64>,
}

impl Batch {
    pub fn new(it: u64) -> Self {
        Self { globals: [view(it, 0), view(it, 1)].concat(), locals: [view(it, 2), view(it, 3)].concat() }
    }

    pub fn pixels(&self) -> [Pixels<'_>; 2] {
        [images(2 * BATCH, 32, &self.globals), images(2 * BATCH, 16, &self.locals)]
    }
}

pub fn images(count: usize, side: usize, values: &[f64]) -> Pixels<'_> {
    Pixels { count, height: side, width: side, channels: 3, data: PixelData::Values(values) }
}

pub fn values(it: u64) -> StepValues {
    StepValues {
        lr: cosine(0.01, 1e-4, STEPS, STEPS_PER_EPOCH).at(it),
        weight_decay: cosine(0.04, 0.4, STEPS, 0).at(it),
        momentum: cosine(0.9, 1.0, STEPS, 0).at(it),
        frozen: it / STEPS_PER_EPOCH < 1,
        waiting_lr: 1.0,
    }
}
