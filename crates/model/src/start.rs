//! How a network begins.
//!
//! The attention of trained vision transformers has a common look (Trockman and Kolter, "Mimetic Initialization of
//! Self-Attention Layers", 2023): a token attends to tokens like itself, and what attention adds to a token is near the
//! negative of what it has gathered. [`Start::Mimetic`] begins there: keys are the queries, and the output projection is the
//! negative transpose of the values, so that W_q^T W_k and W_proj W_v are multiples of the identity with noise around it.
//! Positions begin as sines and cosines, alike where they are near. Such a network tells images apart before its first step.
//! On few images it learns much faster, and where random weights often lead to a collapse it has not been seen to.

use tensor::{Device, ParamId, ParamSet};

use crate::layout::Layout;
use crate::vit::Vit;

/// How the weights of a backbone begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Every weight by itself, as published recipes have it.
    #[default]
    Random,
    /// Attention and positions as those of trained networks look.
    Mimetic,
}

/// Factor of the identity in W_q^T W_k.
const AGREEMENT: f64 = 0.35;
/// Factor of the negative identity in W_proj W_v.
const OPPOSITION: f64 = 0.4;
/// Amplitude of the positions' sines.
const AMPLITUDE: f64 = 0.3;
/// Longest wavelength of the positions' sines, in patches over 2 pi.
const LONGEST_WAVE: f64 = 10_000.0;

impl Start {
    /// Both.
    pub const ALL: [Start; 2] = [Start::Random, Start::Mimetic];

    /// Their names in recipes, in the same order.
    pub const NAMES: [&'static str; 2] = ["random", "mimetic"];

    /// The name in recipes.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The start of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|start| start.name() == name)
    }
}

impl Vit {
    /// Initial weights of this network and of what else is in its layout: a function of the seed and the parameters' names.
    pub fn initial(&self, layout: &Layout, start: Start, device: &Device, seed: u64) -> ParamSet {
        let mut weights = layout.initial(device, seed);
        if start == Start::Mimetic {
            self.attentions().for_each(|(qkv, proj)| mimic_attention(&mut weights, qkv, proj));
            let position = self.position();
            let mut values = weights[position].to_f64();
            add_waves(&mut values, self.config().grid(), self.config().dim);
            weights[position].copy_from_f64(&values);
        }
        weights
    }
}

/// Makes keys of the queries and the output projection of the values. They keep the directions that were drawn for them.
fn mimic_attention(weights: &mut ParamSet, qkv: ParamId, proj: ParamId) {
    let mut values = weights[qkv].to_f64();
    let dim = weights[qkv].shape()[1];
    let square = dim * dim;
    let (queries, rest) = values.split_at_mut(square);
    let (keys, values_rows) = rest.split_at_mut(square);
    // A matrix with entries of variance f / dim has f times the identity as its mean square.
    scale_to(queries, AGREEMENT / dim as f64);
    keys.copy_from_slice(queries);
    scale_to(values_rows, OPPOSITION / dim as f64);
    let projection: Vec<f64> = (0..square).map(|i| -values_rows[(i % dim) * dim + i / dim]).collect();
    weights[proj].copy_from_f64(&projection);
    weights[qkv].copy_from_f64(&values);
}

/// Scales values to a mean square.
fn scale_to(values: &mut [f64], mean_square: f64) {
    let now = values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64;
    let factor = (mean_square / now).sqrt();
    values.iter_mut().for_each(|x| *x *= factor);
}

/// Adds sines and cosines of a patch's column and row to its position, from short waves to long ones. The class token, which
/// has no place, stays as it is.
fn add_waves(positions: &mut [f64], (rows, columns): (usize, usize), dim: usize) {
    let waves = dim / 4;
    for (patch, position) in positions[dim..].chunks_exact_mut(dim).enumerate().take(rows * columns) {
        let (row, column) = ((patch / columns) as f64, (patch % columns) as f64);
        for wave in 0..waves {
            let frequency = LONGEST_WAVE.powf(-(wave as f64) / waves as f64);
            let angles = [column * frequency, row * frequency];
            for (axis, angle) in angles.into_iter().enumerate() {
                position[2 * axis * waves + wave] += AMPLITUDE * angle.sin();
                position[(2 * axis + 1) * waves + wave] += AMPLITUDE * angle.cos();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arch, VitConfig};

    fn network() -> (Layout, Vit, Device) {
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (24, 40), 3).unwrap());
        (layout, vit, Device::cpu(Default::default()).unwrap())
    }

    /// Mean of the diagonal of A^T B and root mean square of what is beside it; matrices by rows.
    fn product(a: &[f64], b: &[f64], dim: usize) -> (f64, f64) {
        let (mut diagonal, mut beside) = (0.0, 0.0);
        for (i, j) in (0..dim * dim).map(|n| (n / dim, n % dim)) {
            let value: f64 = (0..dim).map(|row| a[row * dim + i] * b[row * dim + j]).sum();
            if i == j { diagonal += value } else { beside += value * value }
        }
        (diagonal / dim as f64, (beside / (dim * (dim - 1)) as f64).sqrt())
    }

    #[test]
    fn queries_agree_with_keys_and_the_projection_opposes_the_values() {
        let (layout, vit, device) = network();
        let weights = vit.initial(&layout, Start::Mimetic, &device, 3);
        let of = |name: &str| weights[layout.find(name).unwrap()].to_f64();
        let (qkv, proj) = (of("blocks.1.attn.qkv.weight"), of("blocks.1.attn.proj.weight"));
        let (dim, square) = (64, 64 * 64);
        let (agreement, noise) = product(&qkv[..square], &qkv[square..2 * square], dim);
        assert!((agreement - 0.35).abs() < 1e-6 && noise < agreement / 4.0, "{agreement} {noise}");
        // W_proj W_v = (W_proj^T)^T W_v.
        let transposed: Vec<f64> = (0..square).map(|i| proj[(i % dim) * dim + i / dim]).collect();
        let (opposition, noise) = product(&transposed, &qkv[2 * square..], dim);
        assert!((opposition + 0.4).abs() < 1e-6 && noise < 0.1, "{opposition} {noise}");
    }

    #[test]
    fn near_positions_begin_alike() {
        let (layout, vit, device) = network();
        let weights = vit.initial(&layout, Start::Mimetic, &device, 3);
        let positions = weights[layout.find("pos_embed").unwrap()].to_f64();
        let cosine = |(row, column): (usize, usize), (other_row, other_column): (usize, usize)| {
            let at = |row, column| &positions[(1 + row * 5 + column) * 64..][..64];
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
            let (a, b) = (at(row, column), at(other_row, other_column));
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        };
        assert!(cosine((0, 0), (0, 1)) > cosine((0, 0), (0, 4)) + 0.05);
        assert!(cosine((0, 0), (1, 0)) > cosine((0, 0), (2, 0)) + 0.02);
        assert!(cosine((1, 2), (1, 3)) > 0.8);
    }

    #[test]
    fn all_else_begins_as_it_would() {
        let (layout, vit, device) = network();
        let (random, mimetic) = (Start::Random, Start::Mimetic);
        let weights = [random, mimetic].map(|start| vit.initial(&layout, start, &device, 3));
        assert_eq!(weights[0][ParamId(0)].to_f64(), layout.initial(&device, 3)[ParamId(0)].to_f64());
        for (i, spec) in layout.specs().iter().enumerate() {
            let changed = weights[0][ParamId(i)].to_f64() != weights[1][ParamId(i)].to_f64();
            let expected = ["qkv.weight", "attn.proj.weight", "pos_embed"].iter().any(|end| spec.name.ends_with(end));
            assert_eq!(changed, expected, "{}", spec.name);
        }
    }
}
