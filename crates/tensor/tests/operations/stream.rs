//! What is computed on the residual stream from end to end: a single-precision stream keeps single precision here, whatever
//! the type of activations.

use random::{Key, Purpose};
use tensor::ops::{Affine, Embeddings, Grid, Interpolation, Norm, TokenLayout};
use tensor::{Device, Rows, Tensor, ops};

use crate::layers::{kept, segments, weight};
use crate::{Operation, Outputs, exact, normal};

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        Operation { name: "tokens of the stream", tolerance: 1e-6, run: tokens },
        Operation { name: "rows of the stream", tolerance: 1e-6, run: rows },
        Operation { name: "a layer added to all of the stream", tolerance: 2e-6, run: residual_of_all },
        Operation { name: "layer norm's gradient of the stream", tolerance: 1e-6, run: layer_norm_gradient },
        Operation { name: "column sums of a branch's gradient", tolerance: 2e-6, run: branch_sums },
    ]
}

/// Standard normal values with all the digits of single precision, so that rounding on the way shows.
fn fine_values(seed: u64, shape: &[usize]) -> Vec<f64> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    (0..shape.iter().product()).map(|_| f64::from(stream.normal() as f32)).collect()
}

fn fine(d: &Device, seed: u64, shape: &[usize]) -> Tensor {
    d.residual_from_f64(shape, &fine_values(seed, shape))
}

fn tokens(d: &Device) -> Outputs {
    let grid = |size| Grid::new(size, (14, 14), Interpolation::Dino);
    let layout = TokenLayout::new(vec![(3, grid((14, 14))), (5, grid((6, 6)))]);
    let rows = layout.rows();
    let mut outputs = Vec::new();
    for dim in [48, 44] {
        let patches = normal(d, 1, &[rows.count() - rows.segments(), dim]);
        let class = d.exact_from_f64(&[1, 1, dim], &fine_values(2, &[dim]));
        let position = d.exact_from_f64(&[1, 197, dim], &fine_values(3, &[197, dim]));
        let learnt = Embeddings { class: &class, registers: None, position: &position };
        let x = ops::assemble_tokens(&layout, &patches, &learnt);
        let dx = fine(d, 4, &[rows.count(), dim]);
        let (mut d_class, mut d_position) = (d.zeros_exact(&[1, 1, dim]), d.zeros_exact(&[1, 197, dim]));
        let mut gradients = Embeddings { class: &mut d_class, registers: None, position: &mut d_position };
        ops::assemble_tokens_backward(&layout, &dx, &mut gradients);
        outputs.extend([("x", x.to_f64()), ("d_class", d_class.to_f64()), ("d_position", d_position.to_f64())]);
    }
    outputs
}

/// As the class tokens leave the stream and their gradients come back to it.
fn rows(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for (rows, dim) in [(kept(), 96), (segments().first_of_each(), 192), (kept(), 30)] {
        let mut x = fine(d, 1, &[rows.source_rows(), dim]);
        let gathered = ops::gather(&x, &rows, 0.8);
        ops::scatter_add(&gathered, &rows, 0.3, &mut x);
        outputs.extend([("gathered", gathered.to_f64()), ("scattered", x.to_f64())]);
    }
    outputs
}

/// No branch is skipped and none scaled: the matrix product adds to the stream itself.
fn residual_of_all(d: &Device) -> Outputs {
    let (stream, x) = (fine(d, 1, &[1500, 96]), normal(d, 2, &[1500, 64]));
    let (w, b) = (weight(d, 3, 96, 64), exact(d, 4, &[96]));
    let out = ops::linear_residual(&stream, &Rows::all([1500]), 1.0, &x, &Affine::new(&w, &b));
    vec![("out", out.to_f64())]
}

fn layer_norm_gradient(d: &Device) -> Outputs {
    let mut outputs = Vec::new();
    for dim in [36, 30, 192, 384, 768, 1024, 1028] {
        let rows = kept();
        let (x, w, b) = (fine(d, 1, &[1500, dim]), exact(d, 2, &[dim]), exact(d, 3, &[dim]));
        let (_, statistics) = ops::layer_norm(&x, &Norm { rows: &rows, weight: &w, bias: &b, epsilon: 1e-6 });
        let dy = normal(d, 4, &[rows.count(), dim]);
        let (mut dx, mut dw, mut db) = (fine(d, 5, &[1500, dim]), d.zeros_exact(&[dim]), d.zeros_exact(&[dim]));
        ops::layer_norm_backward(&x, &rows, &statistics, &w, &dy, &mut dx, &mut dw, &mut db);
        outputs.extend([("dx", dx.to_f64()), ("dw", dw.to_f64()), ("db", db.to_f64())]);
    }
    outputs
}

/// The gradient of a bias is summed before the gradient of the branch is rounded.
fn branch_sums(d: &Device) -> Outputs {
    let rows = kept();
    let dx = fine(d, 1, &[1500, 96]);
    let d_branch = ops::branch_gradient(&dx, &rows, 0.8);
    let (mut dw, mut db) = (d.zeros_exact(&[96, 8]), d.zeros_exact(&[96]));
    ops::linear_backward_weight(&normal(d, 2, &[rows.count(), 8]), &d_branch, 0..96, &mut dw, &mut db);
    vec![("db", db.to_f64())]
}
