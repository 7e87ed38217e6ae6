//! The fast forward pass against the same network written out in plain loops.
//!
//! The fast one packs crops of different sizes, leaves skipped branches out, and serves only class tokens in its last
//! block. The plain one does none of that: one image at a time, all tokens in all blocks, branches multiplied by zero.

mod common;

use common::{
    Crops, Network, TINY, block_rate, drop_path_keys, mixed_drop_path, normal, random_weights, taken_branches,
    tiny_head,
};
use model::{Alone, ConfigError, DropPath, Layout, Readout, Tokens, Vit, VitConfig, VitInput};
use tensor::ops::{PixelData, Pixels};
use tensor::{ParamSet, Precision};

type Matrix = Vec<Vec<f64>>;

/// A network's weights by name.
struct Plain<'a> {
    layout: &'a Layout,
    weights: &'a ParamSet,
    config: VitConfig,
}

/// What each block multiplies its two branches by.
type Factors = Vec<(f64, f64)>;

impl Plain<'_> {
    fn get(&self, name: &str) -> Vec<f64> {
        self.weights[self.layout.find(name).unwrap_or_else(|| panic!("no {name}"))].to_f64()
    }

    fn linear(&self, name: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let output = |row: &Vec<f64>| {
            let rows = weight.chunks(row.len()).zip(&bias);
            rows.map(|(w, b)| w.iter().zip(row).map(|(w, x)| w * x).sum::<f64>() + b).collect()
        };
        x.iter().map(output).collect()
    }

    fn layer_norm(&self, name: &str, x: &Matrix) -> Matrix {
        let (weight, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let normed = |row: &Vec<f64>| {
            let (mean, variance) = moments(row);
            let scaled = row.iter().map(|x| (x - mean) / (variance + 1e-6).sqrt());
            scaled.zip(weight.iter().zip(&bias)).map(|(x, (w, b))| x * w + b).collect()
        };
        x.iter().map(normed).collect()
    }

    fn attention(&self, name: &str, x: &Matrix) -> Matrix {
        let (dim, heads) = (self.config.dim, self.config.heads);
        let width = dim / heads;
        let qkv = self.linear(&format!("{name}.qkv"), x);
        let mut out = vec![vec![0.0; dim]; x.len()];
        for head in 0..heads {
            let part = |row: &Vec<f64>, which: usize| {
                let start = which * dim + head * width;
                row[start..start + width].to_vec()
            };
            for (i, row) in qkv.iter().enumerate() {
                let q = part(row, 0);
                let scores = qkv.iter().map(|other| dot(&q, &part(other, 1)) / (width as f64).sqrt());
                let exps: Vec<f64> = scores.map(f64::exp).collect();
                let total: f64 = exps.iter().sum();
                for (e, other) in exps.iter().zip(&qkv) {
                    for (j, v) in part(other, 2).into_iter().enumerate() {
                        out[i][head * width + j] += e / total * v;
                    }
                }
            }
        }
        self.linear(&format!("{name}.proj"), &out)
    }

    fn mlp(&self, name: &str, x: &Matrix) -> Matrix {
        self.linear(&format!("{name}.fc2"), &gelu(self.linear(&format!("{name}.fc1"), x)))
    }

    /// Patches as rows, channel by channel; trailing pixels are dropped.
    fn patches(&self, image: &[f64], height: usize, width: usize) -> Matrix {
        let (channels, patch) = (self.config.channels, self.config.patch);
        let mut rows = Vec::new();
        for y in 0..height / patch {
            for x in 0..width / patch {
                let mut row = Vec::new();
                for c in 0..channels {
                    for dy in 0..patch {
                        let start = (c * height + y * patch + dy) * width + x * patch;
                        row.extend_from_slice(&image[start..start + patch]);
                    }
                }
                rows.push(row);
            }
        }
        rows
    }

    /// DINO's bicubic interpolation, point by point.
    fn positions(&self, grid: (usize, usize)) -> Matrix {
        let learnt: Matrix = self.get("backbone.pos_embed").chunks(self.config.dim).map(<[f64]>::to_vec).collect();
        let from = self.config.grid();
        if grid == from {
            return learnt;
        }
        let mut rows = vec![learnt[0].clone()];
        let source = |i: usize, n: usize, from: usize| (i as f64 + 0.5) * from as f64 / (n as f64 + 0.1) - 0.5;
        for y in 0..grid.0 {
            for x in 0..grid.1 {
                let (sy, sx) = (source(y, grid.0, from.0), source(x, grid.1, from.1));
                let mut row = vec![0.0; self.config.dim];
                for ty in sy.floor() as i64 - 1..=sy.floor() as i64 + 2 {
                    for tx in sx.floor() as i64 - 1..=sx.floor() as i64 + 2 {
                        let weight = cubic(ty as f64 - sy) * cubic(tx as f64 - sx);
                        let ty = ty.clamp(0, from.0 as i64 - 1) as usize;
                        let tx = tx.clamp(0, from.1 as i64 - 1) as usize;
                        add_scaled(&mut row, &learnt[1 + ty * from.1 + tx], weight);
                    }
                }
                rows.push(row);
            }
        }
        rows
    }

    /// The class token after the last block and the norm.
    fn feature(&self, image: &[f64], height: usize, width: usize, factors: &Factors) -> Vec<f64> {
        let layers = self.layers(image, height, width, factors);
        self.layer_norm("backbone.norm", layers.last().expect("a block"))[0].clone()
    }

    /// All tokens after each block.
    fn layers(&self, image: &[f64], height: usize, width: usize, factors: &Factors) -> Vec<Matrix> {
        let patch = self.config.patch;
        let mut x = vec![self.get("backbone.cls_token")];
        x.extend(self.linear("backbone.patch_embed.proj", &self.patches(image, height, width)));
        for (row, position) in x.iter_mut().zip(self.positions((height / patch, width / patch))) {
            add_scaled(row, &position, 1.0);
        }
        let mut layers = Vec::new();
        for (i, &(attention, mlp)) in factors.iter().enumerate() {
            let name = format!("backbone.blocks.{i}");
            let branch = self.attention(&format!("{name}.attn"), &self.layer_norm(&format!("{name}.norm1"), &x));
            x.iter_mut().zip(&branch).for_each(|(x, b)| add_scaled(x, b, attention));
            let branch = self.mlp(&format!("{name}.mlp"), &self.layer_norm(&format!("{name}.norm2"), &x));
            x.iter_mut().zip(&branch).for_each(|(x, b)| add_scaled(x, b, mlp));
            layers.push(x.clone());
        }
        layers
    }

    /// Logits of a head with batch norm.
    fn normed_head(&self, features: &Matrix) -> Matrix {
        let mut x = features.clone();
        for i in [0, 3] {
            x = self.linear(&format!("head.mlp.{i}"), &x);
            let name = format!("head.mlp.{}", i + 1);
            let (weight, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
            for j in 0..weight.len() {
                let (mean, variance) = moments(&x.iter().map(|row| row[j]).collect::<Vec<_>>());
                for row in &mut x {
                    row[j] = (row[j] - mean) / (variance + 1e-5).sqrt() * weight[j] + bias[j];
                }
            }
            x = gelu(x);
        }
        let (g, v) = (self.get("head.last_layer.weight_g"), self.get("head.last_layer.weight_v"));
        let logits = |x: &Vec<f64>| {
            let y: Vec<f64> = x.iter().map(|a| a / dot(x, x).sqrt()).collect();
            v.chunks(y.len()).zip(&g).map(|(v, g)| g * dot(v, &y) / dot(v, v).sqrt()).collect()
        };
        self.linear("head.mlp.6", &x).iter().map(logits).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(a: &mut [f64], b: &[f64], factor: f64) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += factor * b);
}

/// Mean and biased variance.
fn moments(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n)
}

fn cubic(distance: f64) -> f64 {
    let (a, t) = (-0.75, distance.abs());
    match t {
        t if t <= 1.0 => (a + 2.0) * t.powi(3) - (a + 3.0) * t.powi(2) + 1.0,
        t if t < 2.0 => a * t.powi(3) - 5.0 * a * t.powi(2) + 8.0 * a * t - 4.0 * a,
        _ => 0.0,
    }
}

fn gelu(mut x: Matrix) -> Matrix {
    x.iter_mut().flatten().for_each(|x| *x = 0.5 * *x * (1.0 + erf(*x / std::f64::consts::SQRT_2)));
    x
}

/// Maclaurin series; its alternating terms cost two digits at the arguments that occur here.
fn erf(x: f64) -> f64 {
    assert!(x.abs() < 4.0, "{x} is too large for the series");
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

/// Features of images one by one; `factors` gives those of each image, in order.
fn plain_features(plain: &Plain<'_>, groups: &[Pixels<'_>], factors: impl Fn(usize) -> Factors) -> Matrix {
    let mut features = Vec::new();
    for group in groups {
        let PixelData::Values(values) = group.data else { panic!("these tests use values") };
        for image in values.chunks(group.channels * group.height * group.width) {
            features.push(plain.feature(image, group.height, group.width, &factors(features.len())));
        }
    }
    features
}

fn all_branches(_: usize) -> Factors {
    vec![(1.0, 1.0); TINY.depth]
}

#[track_caller]
fn assert_close(got: &[f64], want: &Matrix) {
    let want: Vec<f64> = want.iter().flatten().copied().collect();
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert!((got - want).abs() < 1e-11, "value {i}: {got} is not {want}");
    }
}

#[test]
fn features_of_packed_crops_are_those_of_plain_loops() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 2);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    let crops = Crops::new(8);
    let want = plain_features(&plain, &crops.pixels(), all_branches);
    let features = network.vit.features(&weights, &network.device, &crops.pixels()).unwrap();
    assert_close(&features.to_f64(), &want);
    let (features, _) =
        network.vit.forward(&weights, &network.device, &VitInput::images(&crops.pixels()), Tokens::Class).unwrap();
    assert_close(&features.to_f64(), &want);
}

/// The rows that a readout of the last layers gives, layer by layer.
fn plain_readout(plain: &Plain<'_>, groups: &[Pixels<'_>], readout: &Readout) -> Vec<Matrix> {
    let mut read = vec![Vec::new(); readout.layers];
    for group in groups {
        let PixelData::Values(values) = group.data else { panic!("these tests use values") };
        for image in values.chunks(group.channels * group.height * group.width) {
            let layers = plain.layers(image, group.height, group.width, &all_branches(0));
            for (rows, x) in read.iter_mut().zip(&layers[TINY.depth - readout.layers..]) {
                let x = if readout.norm { plain.layer_norm("backbone.norm", x) } else { x.clone() };
                let tokens = if readout.tokens == Tokens::Class { 1 } else { x.len() };
                rows.extend_from_slice(&x[..tokens]);
            }
        }
    }
    read
}

#[test]
fn every_readout_of_the_last_layers_is_that_of_plain_loops() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 2);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    let crops = Crops::new(8);
    for tokens in [Tokens::Class, Tokens::All] {
        for layers in 1..=TINY.depth {
            for norm in [false, true] {
                let readout = Readout { tokens, layers, norm };
                let read = network.vit.read(&weights, &network.device, &crops.pixels(), &readout).unwrap();
                assert_eq!(read.len(), layers);
                for (got, want) in read.iter().zip(plain_readout(&plain, &crops.pixels(), &readout)) {
                    assert_close(&got.to_f64(), &want);
                }
            }
        }
        let input = crops.pixels();
        let (features, _) = network.vit.forward(&weights, &network.device, &VitInput::images(&input), tokens).unwrap();
        let readout = Readout { tokens, ..Readout::default() };
        assert_close(&features.to_f64(), &plain_readout(&plain, &input, &readout)[0]);
    }
    let too_many = Readout { layers: TINY.depth + 1, ..Readout::default() };
    let error = network.vit.read(&weights, &network.device, &crops.pixels(), &too_many).unwrap_err();
    assert_eq!(error, ConfigError::Layers { asked: 4, depth: 3 });
}

#[test]
fn skipped_branches_are_left_out_and_the_others_scaled() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 3);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    let crops = Crops::new(9);
    let rate = 0.7;
    let (drop_path, seed) = mixed_drop_path(rate);
    let taken = taken_branches(rate, seed);
    let factors = |image: usize| {
        let factor = |i: usize, taken: bool| if taken { 1.0 / (1.0 - block_rate(rate, i)) } else { 0.0 };
        (0..TINY.depth).map(|i| (factor(i, taken[i][image].0), factor(i, taken[i][image].1))).collect()
    };
    let want = plain_features(&plain, &crops.pixels(), factors);
    let images = crops.pixels();
    let input = VitInput { drop_path: Some(&drop_path), ..VitInput::images(&images) };
    let (features, _) = network.vit.forward(&weights, &network.device, &input, Tokens::Class).unwrap();
    assert_close(&features.to_f64(), &want);
}

#[test]
fn a_batch_in_which_every_image_skips_a_block_passes_through_it_forward_and_backward() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 4);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    let crops = Crops::new(10);
    // The last block is skipped with a probability that rounds to one.
    let drop_path = DropPath::draw(1.0 - 1e-7, TINY.depth, drop_path_keys(0));
    let taken = taken_branches(1.0 - 1e-7, 0);
    assert!(taken[2].iter().all(|t| *t == (false, false)));
    let factors = |image: usize| {
        let factor = |i: usize, taken: bool| if taken { 1.0 / (1.0 - block_rate(1.0 - 1e-7, i)) } else { 0.0 };
        (0..TINY.depth).map(|i| (factor(i, taken[i][image].0), factor(i, taken[i][image].1))).collect()
    };
    let want = plain_features(&plain, &crops.pixels(), factors);
    let images = crops.pixels();
    let input = VitInput { drop_path: Some(&drop_path), ..VitInput::images(&images) };
    let (features, saved) = network.vit.forward(&weights, &network.device, &input, Tokens::Class).unwrap();
    assert_close(&features.to_f64(), &want);

    let mut grads = weights.zeros_like();
    network.vit.backward(&weights, saved, &features, &mut grads);
    for (spec, gradient) in network.layout.specs().iter().zip(grads.iter()) {
        let gradient = gradient.to_f64();
        assert!(gradient.iter().all(|g| g.is_finite()), "{}", spec.name);
        let unused = spec.name.starts_with("backbone.blocks.2") || spec.name.starts_with("head");
        assert_eq!(gradient.iter().all(|&g| g == 0.0), unused, "{}", spec.name);
    }
}

#[test]
fn images_of_any_size_are_cut_and_positioned_as_in_plain_loops() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 5);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    // One patch; a single row of patches; trailing rows and columns that make no patch; more patches than were learnt.
    for (height, width) in [(4, 4), (4, 20), (11, 9), (24, 16)] {
        let values = normal(11, 2 * 3 * height * width);
        let images = [Pixels { count: 2, height, width, channels: 3, data: PixelData::Values(&values) }];
        let want = plain_features(&plain, &images, all_branches);
        assert_close(&network.vit.features(&weights, &network.device, &images).unwrap().to_f64(), &want);
    }
}

#[test]
fn a_network_for_oblong_images_of_one_channel_is_that_of_plain_loops() {
    let config = VitConfig { image: (8, 12), channels: 1, ..TINY };
    let device = common::device(Precision::F64, 1);
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "backbone.", config.clone());
    let weights = random_weights(&layout, &device, 6);
    let plain = Plain { layout: &layout, weights: &weights, config };
    for (height, width) in [(8, 12), (12, 8)] {
        let values = normal(12, 2 * height * width);
        let images = [Pixels { count: 2, height, width, channels: 1, data: PixelData::Values(&values) }];
        let want = plain_features(&plain, &images, all_branches);
        assert_close(&vit.features(&weights, &device, &images).unwrap().to_f64(), &want);
    }
}

#[test]
fn bytes_are_normalised_and_reordered() {
    let network = Network::new(tiny_head(3, false));
    let weights = random_weights(&network.layout, &network.device, 7);
    let (mean, deviation) = ([0.5f32, 0.25, 0.125], [0.25f32, 0.5, 0.125]);
    let pixels: Vec<u8> = (0..8 * 8 * 3).map(|i| (i * 37 % 256) as u8).collect();
    let value = |i: usize| {
        let (channel, place) = (i / 64, i % 64);
        (f64::from(pixels[3 * place + channel]) / 255.0 - f64::from(mean[channel])) / f64::from(deviation[channel])
    };
    let values: Vec<f64> = (0..3 * 64).map(value).collect();
    let features = |data| {
        let images = [Pixels { count: 1, height: 8, width: 8, channels: 3, data }];
        network.vit.features(&weights, &network.device, &images).unwrap().to_f64()
    };
    let bytes = features(PixelData::Bytes { pixels: &pixels, mean: &mean, deviation: &deviation });
    for (bytes, values) in bytes.iter().zip(features(PixelData::Values(&values))) {
        assert!((bytes - values).abs() < 1e-5, "{bytes} {values}");
    }
}

#[test]
fn a_head_with_batch_norm_is_that_of_plain_loops() {
    let network = Network::new(tiny_head(3, true));
    let weights = random_weights(&network.layout, &network.device, 8);
    let plain = Plain { layout: &network.layout, weights: &weights, config: TINY };
    let features = normal(13, Crops::COUNT * TINY.dim);
    let rows: Matrix = features.chunks(TINY.dim).map(<[f64]>::to_vec).collect();
    let x = network.device.from_f64(&[Crops::COUNT, TINY.dim], &features);
    let (_, logits) = network.head.forward(&weights, x, &mut Alone).unwrap();
    assert_close(&logits.raw.to_f64(), &plain.normed_head(&rows));
}
