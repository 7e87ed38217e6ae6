//! Prototypes, their softmax, the centre, and the loss.

use tensor::{Device, Tensor, ops};

use crate::{Operation, Outputs, exact, normal, values};

const ROWS: usize = 300;
const PROTOTYPES: usize = 3000;
const DIM: usize = 64;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "prototypes", tolerance: 3e-6, run: prototypes },
        Operation { name: "log-normaliser", tolerance: 2e-7, run: log_normaliser },
        Operation { name: "teacher", tolerance: 4e-6, run: teacher },
        Operation { name: "log mean", tolerance: 4e-6, run: log_mean },
        Operation { name: "largest beside", tolerance: 0.0, run: largest_beside },
        Operation { name: "softmax gradient", tolerance: 4e-6, run: softmax_gradient },
        Operation { name: "cross-entropy", tolerance: 2e-6, run: cross_entropy },
    ]
}

/// Embeddings on the sphere, magnitudes around one, directions.
fn head(d: &Device) -> (Tensor, Tensor, Tensor) {
    let (y, _) = ops::l2_normalize(&normal(d, 1, &[ROWS, DIM]), 1e-12);
    let magnitudes: Vec<f64> = values(2, &[PROTOTYPES]).iter().map(|n| 1.0 + 0.25 * n).collect();
    (y, d.exact_from_f64(&[PROTOTYPES, 1], &magnitudes), exact(d, 3, &[PROTOTYPES, DIM]))
}

fn prototypes(d: &Device) -> Outputs {
    let (y, g, v) = head(d);
    let mut logits = ops::prototype_logits(&y, &g, &v);
    let raw = logits.raw.to_f64();
    logits.raw.copy_from(&exact(d, 4, &[ROWS, PROTOTYPES]));
    let (mut dg, mut dv) = (d.zeros_exact(&[PROTOTYPES, 1]), d.zeros_exact(&[PROTOTYPES, DIM]));
    let dy = ops::prototype_logits_backward(&y, &g, &v, logits, &mut dg, &mut dv);
    vec![("raw", raw), ("dy", dy.to_f64()), ("dg", dg.to_f64()), ("dv", dv.to_f64())]
}

fn log_normaliser(d: &Device) -> Outputs {
    let normalizer = vmf::LogNormalizer::<f64>::new(DIM).unwrap();
    let (value, slope) = ops::vmf_log_normalizer(&head(d).1, 0.04, &normalizer);
    vec![("value", value.to_f64()), ("slope", slope.to_f64())]
}

fn teacher(d: &Device) -> Outputs {
    let (y, g, v) = head(d);
    let (scale, normalizer) = (1.0 / 0.04, vmf::LogNormalizer::<f64>::new(DIM).unwrap());
    let (shift, _) = ops::vmf_log_normalizer(&g, 0.04, &normalizer);
    let raw = ops::prototype_logits(&y, &g, &v).raw;
    let probabilities = ops::softmax(&raw, scale, &shift);
    let (entropies, best): (Vec<f64>, Vec<usize>) = ops::row_summaries(&probabilities).into_iter().unzip();
    let p = probabilities.to_f64();
    let largest = best.iter().enumerate().map(|(r, k)| p[r * PROTOTYPES + k]).collect();
    let centre = ops::log_mean_softmax(&raw, scale, &shift);
    let uneven = normal(d, 7, &[999, 37]);
    let mut moved = exact(d, 5, &[PROTOTYPES]);
    ops::move_towards(&mut moved, &centre, 0.9, Some(-9.0));
    vec![
        ("probabilities", p),
        ("entropies", entropies),
        ("largest", largest),
        ("log mean", centre.to_f64()),
        ("column mean", ops::column_mean(&raw, scale, &shift).to_f64()),
        ("column sums", ops::column_sums(&raw).to_f64()),
        ("row means", ops::row_means(&y, ROWS / 4).to_f64()),
        ("row means, odd columns", ops::row_means(&uneven, 3).to_f64()),
        ("centre", moved.to_f64()),
        ("shift less centre", ops::add_scaled(&shift, -25.0, &moved).to_f64()),
    ]
}

/// Of many rows and of few, over columns that four at a time do not divide and that they do; and of two parts.
fn log_mean(d: &Device) -> Outputs {
    let of = |seed: u64, rows: usize, columns: usize| {
        ops::log_mean_softmax(&exact(d, seed, &[rows, columns]), 20.0, &exact(d, 2, &[columns]))
    };
    let mut joined = of(1, 5, 37);
    ops::log_mean_with(&mut joined, 0.25, &of(3, 15, 37));
    vec![
        ("tall", of(1, 5003, 68).to_f64()),
        ("uneven", of(1, 1001, 37).to_f64()),
        ("one row", of(1, 1, 2048).to_f64()),
        ("of two parts", joined.to_f64()),
    ]
}

fn largest_beside(d: &Device) -> Outputs {
    let of = |rows: usize, columns: usize, first: usize| {
        let found = ops::largest_beside(&exact(d, 1, &[rows, columns]), first);
        // One more, so that there is a largest to compare by.
        found.into_iter().map(|column| 1.0 + column as f64).collect()
    };
    vec![("wide", of(40, PROTOTYPES, 7)), ("narrow", of(7, 7, 0)), ("two", of(2, 2, 0))]
}

fn softmax_gradient(d: &Device) -> Outputs {
    let of = |rows: usize, columns: usize| {
        let (raw, shift) = (exact(d, 1, &[rows, columns]), exact(d, 2, &[columns]));
        ops::softmax_gradient(&raw, 3.0, &shift, &exact(d, 3, &[columns]), 0.125).to_f64()
    };
    vec![("wide", of(40, PROTOTYPES)), ("narrow", of(7, 37))]
}

fn cross_entropy(d: &Device) -> Outputs {
    let (y, g, v) = head(d);
    let (scale, normalizer) = (1.0 / 0.1, vmf::LogNormalizer::<f64>::new(DIM).unwrap());
    let (shift, slope) = ops::vmf_log_normalizer(&g, 0.1, &normalizer);
    let targets = ops::softmax(&exact(d, 6, &[40, PROTOTYPES]), 3.0, &d.zeros_exact(&[PROTOTYPES]));
    // Rows of global crops meet one target, rows of local crops two.
    let targets_of: Vec<Vec<usize>> =
        (0..ROWS).map(|r| if r < 40 { vec![39 - r] } else { vec![r % 20, 20 + r % 20] }).collect();
    let weights: Vec<f64> = (0..ROWS).map(|r| (1 + r % 3) as f64 / 560.0).collect();
    let mut logits = ops::prototype_logits(&y, &g, &v);
    let losses = ops::cross_entropy(&mut logits.raw, scale, &shift, &targets, &targets_of, &weights);
    logits.hold_gradient_of_scaled(scale);
    let gradient = logits.raw.to_f64();
    let (mut dg, mut dv) = (d.zeros_exact(&[PROTOTYPES, 1]), d.zeros_exact(&[PROTOTYPES, DIM]));
    ops::add_shift_gradient(&logits.raw, &slope, &mut dg);
    let through_shift = dg.to_f64();
    let dy = ops::prototype_logits_backward(&y, &g, &v, logits, &mut dg, &mut dv).to_f64();
    vec![
        ("losses", losses),
        ("gradient", gradient),
        ("dg through the shift", through_shift),
        ("dy", dy),
        ("dg", dg.to_f64()),
        ("dv", dv.to_f64()),
    ]
}
