//! Prototypes, their softmax, and the cross-entropy between student and teacher. Logits and targets are f32.

use super::gemm::{Matrix, Product};
use super::linear::add_column_sums;
use super::{Cuda, CudaBuffer, REDUCTION_BLOCKS, THREADS, arguments};
use crate::tensor::{DType, Tensor};

/// The fewest and the most threads of a block that takes a row of K columns, and how many columns one thread should have at
/// least: with fewer, blocks take longer to meet at their sums than to read.
const ROW_THREADS: (usize, usize) = (128, 1024);
const COLUMNS_OF_THREAD: usize = 32;

/// About the fewest rows that a column's log-sum takes at a time.
const LEAST_ROWS_OF_PART: usize = 8;

/// w_k = g_k v_k / |v_k| for matrix products, and 1 / |v_k|.
fn normalized(cuda: &Cuda, magnitude: &Tensor, direction: &Tensor, inverse: u64) -> CudaBuffer {
    let (count, dim) = (direction.rows(), direction.columns());
    let w = cuda.allocate(count * dim, cuda.dtype());
    let (g, v) = (magnitude.cuda_address(), direction.cuda_address());
    let arguments = arguments![g, v, count as i64, dim as i32, w.address(), inverse];
    cuda.launch_rows(("prototypes", "normalized_prototypes"), count, &arguments);
    w
}

pub(crate) fn logits(
    cuda: &Cuda,
    y: &Tensor,
    magnitude: &Tensor,
    direction: &Tensor,
    raw: &mut Tensor,
    inverse_norms: &mut Tensor,
) {
    let (count, dim) = (direction.rows(), direction.columns());
    let w = normalized(cuda, magnitude, direction, inverse_norms.cuda_address_mut());
    let w = Matrix::new(w.address(), count, dim);
    let to = Product::to(raw.cuda_address_mut(), DType::F32);
    cuda.product(Matrix::of(y), w.transposed(), to);
}

pub(crate) fn logits_backward(
    cuda: &Cuda,
    y: &Tensor,
    magnitude: &Tensor,
    direction: &Tensor,
    (d_logits, scale): (&Tensor, f64),
    inverse_norms: &mut Tensor,
    [dy, d_magnitude, d_direction]: [&mut Tensor; 3],
) {
    let (rows, count, dim) = (y.rows(), direction.rows(), direction.columns());
    let d = Matrix::new(cuda.for_product(d_logits), rows, count);
    let w = normalized(cuda, magnitude, direction, inverse_norms.cuda_address_mut());
    let to = Product { factor: scale as f32, ..Product::to(dy.cuda_address_mut(), dy.dtype()) };
    cuda.product(d, Matrix::new(w.address(), count, dim), to);
    drop(w);
    let dw = cuda.allocate(count * dim, DType::F32);
    let to = Product { factor: scale as f32, ..Product::to(dw.address(), DType::F32) };
    cuda.product(d.transposed(), Matrix::of(y), to);
    let arguments = arguments![
        dw.address(),
        direction.cuda_address(),
        magnitude.cuda_address(),
        inverse_norms.cuda_address(),
        count as i64,
        dim as i32,
        d_magnitude.cuda_address_mut(),
        d_direction.cuda_address_mut(),
    ];
    cuda.launch_rows(("prototypes", "through_weight_norm"), count, &arguments);
}

pub(crate) fn vmf_log_normalizer(
    cuda: &Cuda,
    magnitude: &Tensor,
    tau: f64,
    nu: f64,
    value: &mut Tensor,
    slope: &mut Tensor,
) {
    let count = magnitude.len();
    let arguments =
        arguments![magnitude.cuda_address(), tau, nu, count as i64, value.cuda_address_mut(), slope.cuda_address_mut()];
    cuda.launch_flat(("elementwise", "vmf_log_normalizer"), count, &arguments);
}

/// A block for each row.
fn over_rows(x: &Tensor) -> ((u32, u32, u32), (u32, u32)) {
    let threads = (x.columns() / COLUMNS_OF_THREAD).next_multiple_of(32).clamp(ROW_THREADS.0, ROW_THREADS.1);
    ((x.rows() as u32, 1, 1), (threads as u32, 1))
}

/// The kernel that takes four columns at a time where that can be, and how many it takes.
fn by_width(columns: usize, by_4: &'static str, by_1: &'static str) -> (&'static str, usize) {
    if columns.is_multiple_of(4) { (by_4, 4) } else { (by_1, 1) }
}

pub(crate) fn softmax(cuda: &Cuda, raw: &Tensor, scale: f64, shift: &Tensor, out: &mut Tensor) {
    let arguments = arguments![
        raw.cuda_address(),
        scale as f32,
        shift.cuda_address(),
        raw.columns() as i32,
        out.cuda_address_mut(),
    ];
    let (grid, block) = over_rows(raw);
    let (kernel, _) = by_width(raw.columns(), "softmax_by_4", "softmax_by_1");
    cuda.launch(("softmax", kernel), grid, block, 0, &arguments);
}

pub(crate) fn softmax_gradient(
    cuda: &Cuda,
    raw: &Tensor,
    scale: f64,
    shift: &Tensor,
    slope: &Tensor,
    weight: f64,
    out: &mut Tensor,
) {
    let arguments = arguments![
        raw.cuda_address(),
        scale as f32,
        shift.cuda_address(),
        slope.cuda_address(),
        weight as f32,
        raw.columns() as i32,
        out.cuda_address_mut(),
    ];
    let (grid, block) = over_rows(raw);
    cuda.launch(("softmax", "softmax_gradient"), grid, block, 0, &arguments);
}

pub(crate) fn log_mean_softmax(cuda: &Cuda, raw: &Tensor, scale: f64, shift: &Tensor, out: &mut Tensor) {
    let (rows, columns) = (raw.rows(), raw.columns());
    let lse = cuda.allocate(rows, DType::F32);
    let (x, shift) = (raw.cuda_address(), shift.cuda_address());
    let (grid, block) = over_rows(raw);
    let arguments = arguments![x, scale as f32, shift, columns as i32, lse.address()];
    let (kernel, _) = by_width(columns, "row_log_sum_exp_by_4", "row_log_sum_exp_by_1");
    cuda.launch(("softmax", kernel), grid, block, 0, &arguments);
    let (kernel, width) = by_width(columns, "columns_log_sum_exp_by_4", "columns_log_sum_exp_by_1");
    let tiles = columns.div_ceil(THREADS as usize * width);
    // As many parts as fill an H200, of at least a few rows each.
    let parts = (2 * REDUCTION_BLOCKS / tiles.max(1)).clamp(1, rows.div_ceil(LEAST_ROWS_OF_PART).max(1));
    let per_part = rows.div_ceil(parts).max(1);
    let parts = rows.div_ceil(per_part);
    let partial = cuda.allocate(parts * 2 * columns, DType::F32);
    let arguments = arguments![
        x,
        scale as f32,
        shift,
        lse.address(),
        rows as i64,
        columns as i32,
        per_part as i32,
        partial.address(),
    ];
    cuda.launch(("softmax", kernel), (tiles as u32, parts as u32, 1), (THREADS, 1), 0, &arguments);
    let arguments = arguments![partial.address(), parts as i32, rows as i64, columns as i32, out.cuda_address_mut()];
    cuda.launch(("softmax", "log_mean_of_parts"), (columns.div_ceil(32) as u32, 1, 1), (32, 32), 0, &arguments);
}

pub(crate) fn log_mean_with(cuda: &Cuda, value: &mut Tensor, share: f64, other: &Tensor) {
    let count = value.len();
    let arguments = arguments![value.cuda_address_mut(), share as f32, other.cuda_address(), count as i64];
    cuda.launch_flat(("softmax", "log_mean_with"), count, &arguments);
}

/// Entropy of each row, and the column of its largest.
pub(crate) fn row_summaries(cuda: &Cuda, probabilities: &Tensor) -> Vec<(f64, usize)> {
    let rows = probabilities.rows();
    // Side by side, for one copy to the host.
    let both = cuda.allocate(2 * rows, DType::F32);
    let best = both.address() + 4 * rows as u64;
    let arguments = arguments![probabilities.cuda_address(), probabilities.columns() as i32, both.address(), best];
    let (grid, block) = over_rows(probabilities);
    cuda.launch(("softmax", "row_summaries"), grid, block, 0, &arguments);
    let words: Vec<u32> = cuda.download(both.address(), 2 * rows);
    let (entropy, best) = words.split_at(rows);
    entropy.iter().zip(best).map(|(&e, &b)| (f64::from(f32::from_bits(e)), b as usize)).collect()
}

/// The column of the largest element of each row beside column `first + r`.
pub(crate) fn largest_beside(cuda: &Cuda, x: &Tensor, first: usize) -> Vec<usize> {
    let rows = x.rows();
    let best = cuda.allocate(rows, DType::F32);
    let arguments = arguments![x.cuda_address(), first as i64, x.columns() as i32, best.address()];
    let (grid, block) = over_rows(x);
    cuda.launch(("softmax", "largest_beside"), grid, block, 0, &arguments);
    cuda.download::<u32>(best.address(), rows).into_iter().map(|column| column as usize).collect()
}

pub(crate) fn cross_entropy(
    cuda: &Cuda,
    raw: &Tensor,
    scale: f64,
    shift: &Tensor,
    targets: &Tensor,
    targets_of: &[Vec<usize>],
    weights: &[f64],
    d_logits: &mut Tensor,
) -> Vec<f64> {
    let rows = raw.rows();
    // Three words a row, for one copy to the device: its two targets, and the bits of its weight.
    let terms: Vec<i32> = targets_of
        .iter()
        .zip(weights)
        .flat_map(|(of, &weight)| {
            assert!(of.len() <= 2, "a student row meets one or two teacher rows");
            let [first, second] = [of.first(), of.get(1)].map(|t| t.map_or(-1, |&t| t as i32));
            [first, second, (weight as f32).to_bits() as i32]
        })
        .collect();
    let terms = cuda.uploaded(&terms);
    let losses = cuda.allocate(rows, DType::F32);
    let columns = raw.columns();
    let (kernel, width) = by_width(columns, "cross_entropy_by_4", "cross_entropy_by_1");
    let held = columns.min(cuda.most_shared() / DType::F32.size()) / width * width;
    let arguments = arguments![
        raw.cuda_address(),
        scale as f32,
        shift.cuda_address(),
        targets.cuda_address(),
        terms.address(),
        columns as i32,
        held as i32,
        d_logits.cuda_address_mut(),
        losses.address(),
    ];
    let (grid, block) = over_rows(raw);
    cuda.launch(("softmax", kernel), grid, block, held * DType::F32.size(), &arguments);
    cuda.download::<f32>(losses.address(), rows).into_iter().map(f64::from).collect()
}

/// Adds the sums over rows of x to a vector.
pub(crate) fn column_sums(cuda: &Cuda, x: &Tensor, out: &mut Tensor) {
    add_column_sums(cuda, x, out.cuda_address_mut());
}

/// out = factor (sums over rows of x) + shift; out is zero beforehand.
pub(crate) fn column_mean(cuda: &Cuda, x: &Tensor, factor: f64, shift: &Tensor, out: &mut Tensor) {
    add_column_sums(cuda, x, out.cuda_address_mut());
    let arguments = arguments![out.cuda_address_mut(), factor as f32, shift.cuda_address(), out.len() as i64];
    cuda.launch_flat(("elementwise", "scale_and_shift"), out.len(), &arguments);
}

pub(crate) fn move_towards(cuda: &Cuda, value: &mut Tensor, target: &Tensor, momentum: f64, floor: Option<f64>) {
    let count = value.len();
    let arguments = arguments![
        value.cuda_address_mut(),
        target.cuda_address(),
        momentum as f32,
        (1.0 - momentum) as f32,
        floor.map_or(f32::NEG_INFINITY, |f| f as f32),
        count as i64,
    ];
    cuda.launch_flat(("elementwise", "move_towards"), count, &arguments);
}

pub(crate) fn add_scaled(cuda: &Cuda, a: &Tensor, factor: f64, b: &Tensor, out: &mut Tensor) {
    let arguments =
        arguments![a.cuda_address(), factor as f32, b.cuda_address(), a.len() as i64, out.cuda_address_mut()];
    cuda.launch_flat(("elementwise", "add_scaled"), a.len(), &arguments);
}

/// out += a b, element by element.
pub(crate) fn add_products(cuda: &Cuda, a: &Tensor, b: &Tensor, out: &mut Tensor) {
    let arguments = arguments![a.cuda_address(), b.cuda_address(), a.len() as i64, out.cuda_address_mut()];
    cuda.launch_flat(("elementwise", "add_products"), a.len(), &arguments);
}
