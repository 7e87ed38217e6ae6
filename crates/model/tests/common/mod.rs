//! What the tests of networks share: a device, random weights, and a network small enough for exhaustive checks.
#![allow(dead_code, reason = "each test binary uses its own part")]

use model::{DropPath, Extras, Head, HeadConfig, Layout, Vit, VitConfig};
use random::{Key, Purpose};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, ParamId, ParamSet, Precision};

/// A device on the host. The number of threads changes no bit; networks this small are quickest on one.
pub fn device(precision: Precision, threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
}

/// Standard normal values.
pub fn normal(seed: u64, count: usize) -> Vec<f64> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    (0..count).map(|_| stream.normal()).collect()
}

/// Weights with which every part of a network matters: variance 1 / inputs for matrices, near one for norms.
pub fn random_weights(layout: &Layout, device: &Device, seed: u64) -> ParamSet {
    let mut weights = layout.zeros(device);
    for (i, spec) in layout.specs().iter().enumerate() {
        let inputs: usize = spec.shape[1..].iter().product();
        let values =
            normal(1000 * seed + i as u64, weights[ParamId(i)].len()).into_iter().map(|x| match &spec.shape[..] {
                [_] if spec.name.ends_with("weight") => 1.0 + 0.2 * x,
                [_] => 0.3 * x,
                [_, 1] => 1.0 + 0.5 * x,
                [1, ..] => 0.5 * x,
                _ => x / (inputs as f64).sqrt(),
            });
        weights[ParamId(i)].copy_from_f64(&values.collect::<Vec<_>>());
    }
    weights
}

/// Three blocks: one that drop path never skips, one that serves all tokens and one that serves class tokens alone.
pub const TINY: VitConfig =
    VitConfig { dim: 8, depth: 3, heads: 2, mlp_dim: 16, patch: 4, image: (8, 8), channels: 3, extras: Extras::NONE };

/// A head for it.
pub fn tiny_head(layers: usize, batch_norm: bool) -> HeadConfig {
    HeadConfig { inputs: TINY.dim, hidden: 6, bottleneck: 4, prototypes: 5, layers, batch_norm }
}

/// A backbone and a head in one layout.
pub struct Network {
    pub device: Device,
    pub layout: Layout,
    pub vit: Vit,
    pub head: Head,
}

impl Network {
    pub fn new(head: HeadConfig) -> Self {
        Self::with_extras(head, Extras::NONE)
    }

    pub fn with_extras(head: HeadConfig, extras: Extras) -> Self {
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "backbone.", VitConfig { extras, ..TINY });
        let head = Head::new(&mut layout, "head.", &head);
        Self { device: device(Precision::F64, 1), layout, vit, head }
    }
}

/// Three images of the learnt size and two of another, whose positions are interpolated.
pub struct Crops {
    learnt: Vec<f64>,
    other: Vec<f64>,
}

impl Crops {
    /// Sizes of the two groups: their number, rows and columns.
    pub const SIZES: [(usize, usize, usize); 2] = [(3, 8, 8), (2, 12, 8)];
    /// Images in both groups.
    pub const COUNT: usize = 5;
    /// Their class and patch tokens.
    pub const TOKENS: usize = 3 * (1 + 4) + 2 * (1 + 6);

    pub fn new(seed: u64) -> Self {
        let values = |g: usize| {
            let (count, height, width) = Self::SIZES[g];
            normal(seed + g as u64, count * 3 * height * width)
        };
        Self { learnt: values(0), other: values(1) }
    }

    pub fn pixels(&self) -> [Pixels<'_>; 2] {
        let group = |g: usize, values| {
            let (count, height, width) = Self::SIZES[g];
            Pixels { count, height, width, channels: 3, data: PixelData::Values(values) }
        };
        [group(0, &self.learnt), group(1, &self.other)]
    }
}

/// The keys that drop path is drawn with, one for each image.
pub fn drop_path_keys(seed: u64) -> impl Iterator<Item = Key> {
    (0..Crops::COUNT).map(move |i| Key::new(seed, Purpose::DropPath).sample(i as u64))
}

/// Which branches [`DropPath::draw`] takes with those keys: [block][image] = (attention, MLP).
pub fn taken_branches(rate: f64, seed: u64) -> Vec<Vec<(bool, bool)>> {
    let mut taken = vec![Vec::new(); TINY.depth];
    for key in drop_path_keys(seed) {
        let mut stream = key.stream();
        for (i, block) in taken.iter_mut().enumerate() {
            let mut kept = || stream.uniform() >= block_rate(rate, i);
            let attention = kept();
            block.push((attention, kept()));
        }
    }
    taken
}

/// How often block `i` is skipped.
pub fn block_rate(rate: f64, i: usize) -> f64 {
    f64::from((rate * i as f64 / (TINY.depth - 1) as f64) as f32)
}

/// A drop path in which each branch of the last two blocks is taken by some images and skipped by others.
pub fn mixed_drop_path(rate: f64) -> (DropPath, u64) {
    let mixed = |flags: &[bool]| flags.contains(&true) && flags.contains(&false);
    let is_mixed = |seed: &u64| {
        let taken = taken_branches(rate, *seed);
        taken[1..].iter().all(|block| {
            let (attention, mlp): (Vec<bool>, Vec<bool>) = block.iter().copied().unzip();
            mixed(&attention) && mixed(&mlp)
        })
    };
    let seed = (0..1000).find(is_mixed).expect("a draw with both outcomes in every branch");
    (DropPath::draw(rate, TINY.depth, drop_path_keys(seed)), seed)
}
