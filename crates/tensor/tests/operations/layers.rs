//! The layers of a transformer block and of a head.

use tensor::ops::{Affine, BatchStatistics, BatchSums, GeluSaved, Norm};
use tensor::{Device, Rows, Tensor, ops};

use crate::{Operation, Outputs, exact, normal, stream, values};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "linear", tolerance: 2e-6, run: linear },
        Operation { name: "linear of one row and one output", tolerance: 2e-6, run: thin_linear },
        Operation { name: "mlp", tolerance: 2e-6, run: mlp },
        Operation { name: "residual branch", tolerance: 1e-6, run: residual },
        Operation { name: "residual and norm", tolerance: 2e-6, run: residual_norm },
        Operation { name: "rows made ready together", tolerance: 1e-6, run: prepared_rows },
        Operation { name: "layer norm", tolerance: 1e-6, run: layer_norm },
        Operation { name: "layer norm of other widths", tolerance: 1e-6, run: other_layer_norm },
        Operation { name: "batch norm", tolerance: 2e-6, run: batch_norm },
        Operation { name: "batch norm in parts", tolerance: 2e-6, run: batch_norm_in_parts },
        Operation { name: "gelu", tolerance: 5e-7, run: gelu },
        Operation { name: "gelu's derivative", tolerance: 2e-6, run: gelu_backward },
        Operation { name: "l2 normalize", tolerance: 5e-7, run: l2_normalize },
        Operation { name: "attention", tolerance: 2e-6, run: attention },
        Operation { name: "attention of other shapes", tolerance: 2e-6, run: other_attention },
        Operation { name: "attention with large scores", tolerance: 1e-5, run: sharp_attention },
        Operation { name: "class attention", tolerance: 1e-6, run: class_attention },
        Operation { name: "scaled rows", tolerance: 1e-6, run: scale_rows },
    ]
}

/// Segments as a batch of crops has them: 31 of three lengths, 1500 rows in all.
pub(crate) fn segments() -> Rows {
    Rows::all((0..30).map(|i| if i < 6 { 101 } else { 37 }).chain([6]))
}

/// The same with some left out, as drop path does.
pub(crate) fn kept() -> Rows {
    let flags: Vec<bool> = (0..segments().segments()).map(|i| i % 4 != 1).collect();
    segments().keep(&flags)
}

/// A weight whose products keep the size of their input; scaled by a power of two, so that it stays exact.
pub(crate) fn weight(d: &Device, seed: u64, outputs: usize, inputs: usize) -> Tensor {
    let scale = 1.0 / (inputs as f64).sqrt().log2().round().exp2();
    let values: Vec<f64> = values(seed, &[outputs, inputs]).iter().map(|w| w * scale).collect();
    d.exact_from_f64(&[outputs, inputs], &values)
}

fn linear(d: &Device) -> Outputs {
    let (x, w, b) = (normal(d, 1, &[1500, 192]), weight(d, 2, 576, 192), exact(d, 3, &[576]));
    let all = Affine::new(&w, &b);
    let part = all.clone().part(192..576);
    let (y, y_part) = (ops::linear(&x, &all), ops::linear(&x, &part));
    let (dx, dx_part) = (ops::linear_backward_input(&y, &all), ops::linear_backward_input(&y_part, &part));
    let (mut dw, mut db) = (d.zeros_exact(&[576, 192]), d.zeros_exact(&[576]));
    ops::linear_backward_weight(&x, &y, 0..576, &mut dw, &mut db);
    ops::linear_backward_weight(&x, &y_part, 192..576, &mut dw, &mut db);
    vec![
        ("y", y.to_f64()),
        ("part of y", y_part.to_f64()),
        ("dx", dx.to_f64()),
        ("dx of a part", dx_part.to_f64()),
        ("dw", dw.to_f64()),
        ("db", db.to_f64()),
    ]
}

fn thin_linear(d: &Device) -> Outputs {
    let (x, w, b) = (normal(d, 1, &[1, 2048]), weight(d, 2, 700, 2048), exact(d, 3, &[700]));
    let y = ops::linear(&x, &Affine::new(&w, &b));
    let dx = ops::linear_backward_input(&y, &Affine::new(&w, &b));
    let (tall, w1, b1) = (normal(d, 4, &[1500, 400]), weight(d, 5, 1, 400), exact(d, 6, &[1]));
    let y1 = ops::linear(&tall, &Affine::new(&w1, &b1));
    let (mut dw1, mut db1) = (d.zeros_exact(&[1, 400]), d.zeros_exact(&[1]));
    ops::linear_backward_weight(&tall, &y1, 0..1, &mut dw1, &mut db1);
    vec![
        ("y of one row", y.to_f64()),
        ("dx of one row", dx.to_f64()),
        ("y of one output", y1.to_f64()),
        ("dw of one output", dw1.to_f64()),
        ("db of one output", db1.to_f64()),
    ]
}

fn mlp(d: &Device) -> Outputs {
    let (x, w1, b1) = (normal(d, 1, &[1500, 96]), weight(d, 2, 384, 96), exact(d, 3, &[384]));
    let (w2, b2, dy) = (weight(d, 4, 96, 384), exact(d, 5, &[96]), normal(d, 6, &[1500, 96]));
    let (hidden, mut saved) = ops::linear_gelu(&x, &Affine::new(&w1, &b1));
    let hidden_only = ops::linear_gelu_only(&x, &Affine::new(&w1, &b1));
    let y = ops::linear(&hidden, &Affine::new(&w2, &b2));
    let hidden_values = hidden.to_f64();
    saved.keep(hidden);
    let (d_pre, again) = ops::linear_backward_through_gelu(&dy, &Affine::new(&w2, &b2), saved);
    let (mut dw, mut db) = (d.zeros_exact(&[384, 96]), d.zeros_exact(&[384]));
    ops::linear_backward_weight(&x, &d_pre, 0..384, &mut dw, &mut db);
    vec![
        ("hidden", hidden_values),
        ("hidden again", again.to_f64()),
        ("hidden only", hidden_only.to_f64()),
        ("y", y.to_f64()),
        ("d_pre", d_pre.to_f64()),
        ("dw", dw.to_f64()),
        ("db", db.to_f64()),
    ]
}

fn residual(d: &Device) -> Outputs {
    let rows = kept();
    let (stream, x) = (stream(d, 1, &[1500, 96]), normal(d, 2, &[rows.count(), 64]));
    let (w, b) = (weight(d, 3, 96, 64), exact(d, 4, &[96]));
    let y = ops::linear_residual(&stream, &rows, 1.25, &x, &Affine::new(&w, &b));
    let gathered = ops::gather(&y, &rows, 0.8);
    let mut scattered = stream.duplicate();
    ops::scatter_add(&gathered, &rows, 0.3, &mut scattered);
    // Activations have their own kernels where the stream is of another type.
    let mut activations = normal(d, 5, &[1500, 96]);
    let compact = ops::gather(&activations, &rows, 0.8);
    ops::scatter_add(&compact, &rows, 0.3, &mut activations);
    vec![
        ("y", y.to_f64()),
        ("gathered", gathered.to_f64()),
        ("scattered", scattered.to_f64()),
        ("gathered activations", compact.to_f64()),
        ("scattered activations", activations.to_f64()),
    ]
}

/// Rows of several kinds that are made ready together, some of them twice.
fn prepared_rows(d: &Device) -> Outputs {
    let (all, few) = (segments(), segments().keep(&(0..31).map(|i| i % 7 == 3).collect::<Vec<_>>()));
    let prepared = [kept(), all.clone(), few.clone(), few.first_of_each(), all.keep(&[false; 31]), Rows::one_each(9)];
    d.prepare_rows(&[&prepared[0], &prepared[1], &prepared[1], &few, &prepared[3], &prepared[4], &prepared[5]]);
    d.prepare_rows(&[]);
    let mut outputs = Vec::new();
    for rows in &prepared {
        let x = stream(d, 1, &[rows.source_rows(), 24]);
        let gathered = ops::gather(&x, rows, 0.8);
        let branch = normal(d, 2, &[rows.count(), 24]);
        let (w, b) = (weight(d, 3, 24, 24), exact(d, 4, &[24]));
        let added = ops::linear_residual(&x, rows, 1.5, &branch, &Affine::new(&w, &b));
        outputs.push(("added", added.to_f64()));
        if rows.count() > 0 {
            outputs.push(("gathered", gathered.to_f64()));
        }
    }
    outputs
}

/// A branch and the norm after it, with the rows of each the whole or a part of the stream.
fn residual_norm(d: &Device) -> Outputs {
    let last = segments().keep(&(0..segments().segments()).map(|i| i % 5 != 0).collect::<Vec<_>>());
    let nothing = segments().keep(&[false; 31]);
    let mut outputs = Vec::new();
    for (taken, scale, normed, dim) in [
        (kept(), 1.25, &last, 96),
        (kept(), 1.25, &segments(), 384),
        (segments(), 1.0, &last, 96),
        (segments(), 1.25, &last, 768),
        (nothing, 1.25, &last, 96),
        // Widths that no kernel for both takes.
        (kept(), 1.25, &last, 30),
        (kept(), 1.25, &last, 1028),
    ] {
        let (stream, x) = (stream(d, 1, &[1500, dim]), normal(d, 2, &[taken.count(), 64]));
        let (w, b) = (weight(d, 3, dim, 64), exact(d, 4, &[dim]));
        let (weight, bias) = (exact(d, 5, &[dim]), exact(d, 6, &[dim]));
        let norm = Norm { rows: normed, weight: &weight, bias: &bias, epsilon: 1e-6 };
        let (out, y, statistics) = ops::linear_residual_norm(&stream, &taken, scale, &x, &Affine::new(&w, &b), &norm);
        let dy = normal(d, 7, &[normed.count(), dim]);
        let (mut dx, mut dw, mut db) = (stream.zeros_like(), d.zeros_exact(&[dim]), d.zeros_exact(&[dim]));
        ops::layer_norm_backward(&out, normed, &statistics, &weight, &dy, &mut dx, &mut dw, &mut db);
        outputs.extend([("out", out.to_f64()), ("y", y.to_f64()), ("dx", dx.to_f64()), ("dw", dw.to_f64())]);
    }
    outputs
}

fn layer_norm(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for (rows, names) in
        [(segments(), ["y", "dx", "dw", "db"]), (kept(), ["y of kept", "dx of kept", "dw of kept", "db of kept"])]
    {
        outputs.extend(layer_norm_of(d, &rows, 192, names));
    }
    outputs
}

/// A narrow row, one that no vector fits, and the widths of larger networks.
fn other_layer_norm(d: &Device) -> Outputs {
    let width = |dim| layer_norm_of(d, &kept(), dim, ["y", "dx", "dw", "db"]);
    [36, 30, 384, 768, 1024, 1028].into_iter().flat_map(width).collect()
}

fn layer_norm_of(d: &Device, rows: &Rows, dim: usize, names: [&'static str; 4]) -> Outputs {
    let (x, w, b) = (stream(d, 1, &[1500, dim]), exact(d, 2, &[dim]), exact(d, 3, &[dim]));
    let dy = normal(d, 4, &[rows.count(), dim]);
    let (y, statistics) = ops::layer_norm(&x, &Norm { rows, weight: &w, bias: &b, epsilon: 1e-6 });
    let (mut dx, mut dw, mut db) = (stream(d, 5, &[1500, dim]), d.zeros_exact(&[dim]), d.zeros_exact(&[dim]));
    ops::layer_norm_backward(&x, rows, &statistics, &w, &dy, &mut dx, &mut dw, &mut db);
    names.into_iter().zip([y, dx, dw, db].map(|t| t.to_f64())).collect()
}

fn batch_norm(d: &Device) -> Outputs {
    let (x, w, b) = (normal(d, 1, &[1500, 130]), exact(d, 2, &[130]), exact(d, 3, &[130]));
    let dy = normal(d, 4, &[1500, 130]);
    let (y, statistics) = ops::batch_norm(&x, &w, &b, 1e-5);
    let (mut dw, mut db) = (d.zeros_exact(&[130]), d.zeros_exact(&[130]));
    let dx = ops::batch_norm_backward(&x, &statistics, &w, 1e-5, &dy, &mut dw, &mut db);
    vec![
        ("y", y.to_f64()),
        ("mean", statistics.mean.to_f64()),
        ("variance", statistics.variance.to_f64()),
        ("dx", dx.to_f64()),
        ("dw", dw.to_f64()),
        ("db", db.to_f64()),
    ]
}

fn batch_norm_in_parts(d: &Device) -> Outputs {
    let (x, w, b) = (normal(d, 1, &[700, 130]), exact(d, 2, &[130]), exact(d, 3, &[130]));
    let dy = normal(d, 4, &[700, 130]);
    // Of more rows than are at hand: others than theirs.
    let positive: Vec<f64> = exact(d, 5, &[130]).to_f64().iter().map(|v| 1.0 + v * v).collect();
    let statistics = BatchStatistics { mean: exact(d, 6, &[130]), variance: d.exact_from_f64(&[130], &positive) };
    let y = ops::batch_norm_with(&x, &statistics, &w, &b, 1e-5);
    let sums = ops::batch_norm_sums(&x, &statistics, 1e-5, &dy);
    let means = BatchSums { of_dy: exact(d, 7, &[130]), of_dy_hat: exact(d, 8, &[130]) };
    let dx = ops::batch_norm_input_gradient(&x, &statistics, &w, 1e-5, &dy, &means);
    vec![
        ("y", y.to_f64()),
        ("sum of dy", sums.of_dy.to_f64()),
        ("sum of dy hat", sums.of_dy_hat.to_f64()),
        ("dx", dx.to_f64()),
    ]
}

fn gelu(d: &Device) -> Outputs {
    [130, 96].map(|dim| ("y", ops::gelu(&normal(d, 1, &[1500, dim])).to_f64())).into()
}

/// Of pre-activations that were made apart, with and without a width that vectors fit.
fn gelu_backward(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for dim in [130, 96] {
        let (w, b, dy) = (weight(d, 2, 40, dim), exact(d, 3, &[40]), normal(d, 4, &[1500, 40]));
        let saved = GeluSaved::new(normal(d, 1, &[1500, dim]));
        let (d_pre, activated) = ops::linear_backward_through_gelu(&dy, &Affine::new(&w, &b), saved);
        outputs.extend([("d_pre", d_pre.to_f64()), ("activated", activated.to_f64())]);
    }
    outputs
}

fn l2_normalize(d: &Device) -> Outputs {
    let (x, dy) = (normal(d, 1, &[1500, 100]), normal(d, 2, &[1500, 100]));
    let (y, norms) = ops::l2_normalize(&x, 1e-12);
    let dx = ops::l2_normalize_backward(&y, &norms, 1e-12, &dy);
    vec![("y", y.to_f64()), ("norms", norms.to_f64()), ("dx", dx.to_f64())]
}

fn attention(d: &Device) -> Outputs {
    attention_of(d, Rows::all([50, 37, 197, 1, 37, 197]), 3, 192, 1.0)
}

/// Scores of a few hundred, which a softmax survives only if it follows the largest of a row.
fn sharp_attention(d: &Device) -> Outputs {
    attention_of(d, Rows::all([37, 197, 300]), 1, 64, 32.0)
}

/// Lengths around the edges of a kernel's tiles, lengths that have kernels of their own, and a head that is not 64 wide.
fn other_attention(d: &Device) -> Outputs {
    let edges = Rows::all([1, 2, 15, 16, 17, 31, 48, 49, 63, 64, 65, 128, 208, 209, 224, 225, 256]);
    let mut outputs = attention_of(d, edges, 1, 64, 1.0);
    let mut add = |names: [&'static str; 3], more: Outputs| {
        outputs.extend(names.into_iter().zip(more).map(|(name, (_, values))| (name, values)));
    };
    add(["out of long", "d_qkv of long", "bias of long"], attention_of(d, Rows::all([64, 257, 785]), 1, 64, 1.0));
    add(["out of narrow", "d_qkv of narrow", "bias of narrow"], attention_of(d, Rows::all([5, 37, 70]), 4, 48, 1.0));
    outputs
}

/// With queries multiplied by a power of two.
fn attention_of(d: &Device, rows: Rows, heads: usize, dim: usize, sharper: f64) -> Outputs {
    let mut qkv = values(1, &[rows.count(), 3 * dim]);
    qkv.chunks_mut(3 * dim).for_each(|row| row[..dim].iter_mut().for_each(|q| *q *= sharper));
    let (qkv, d_out) = (d.from_f64(&[rows.count(), 3 * dim], &qkv), normal(d, 2, &[rows.count(), dim]));
    let attended = ops::attention(&qkv, &rows, heads);
    let d_qkv = ops::attention_backward(&qkv, &rows, heads, &attended, &d_out);
    // A layer before it, for the gradient of its bias: a kernel may have summed the rows already.
    let (mut weight, mut bias) = (d.zeros_exact(&[3 * dim, 8]), d.zeros_exact(&[3 * dim]));
    ops::linear_backward_weight(&normal(d, 3, &[rows.count(), 8]), &d_qkv, 0..3 * dim, &mut weight, &mut bias);
    // Its size is that of what was added up: of the gradients of keys nothing remains but their rounding.
    let d_qkv = d_qkv.to_f64();
    let mut magnitudes = vec![0.0; 3 * dim];
    d_qkv.chunks(3 * dim).for_each(|row| magnitudes.iter_mut().zip(row).for_each(|(m, d)| *m += d.abs()));
    let bias = bias.to_f64().iter().zip(&magnitudes).map(|(b, m)| b / m).collect();
    vec![("out", attended.out.to_f64()), ("d_qkv", d_qkv), ("bias", bias)]
}

fn class_attention(d: &Device) -> Outputs {
    let (rows, heads, dim) = (Rows::all([50, 37, 197, 1, 37, 197]), 3, 192);
    let (q, kv) = (normal(d, 1, &[rows.segments(), dim]), normal(d, 2, &[rows.count(), 2 * dim]));
    let d_out = normal(d, 3, &[rows.segments(), dim]);
    let attended = ops::class_attention(&q, &kv, &rows, heads);
    let (dq, dkv) = ops::class_attention_backward(&q, &kv, &rows, heads, &attended, &d_out);
    vec![("out", attended.out.to_f64()), ("dq", dq.to_f64()), ("dkv", dkv.to_f64())]
}

fn scale_rows(d: &Device) -> Outputs {
    [&[96, 384][..], &[96], &[7, 5]].into_iter().flat_map(|shape| scale_rows_of(d, shape)).collect()
}

fn scale_rows_of(d: &Device, shape: &[usize]) -> Outputs {
    let (x, factors, dy) = (exact(d, 1, shape), exact(d, 2, &[shape[0]]), exact(d, 3, shape));
    let (mut dx, mut d_factors) = (exact(d, 4, shape), exact(d, 5, &[shape[0]]));
    let y = ops::scale_rows(&x, &factors);
    ops::scale_rows_backward(&x, &factors, &dy, &mut dx, &mut d_factors);
    vec![("y", y.to_f64()), ("dx", dx.to_f64()), ("d_factors", d_factors.to_f64())]
}
