//! y = x W^T + b, with W [outputs, inputs], and what follows it in the same pass over y.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::panels::{Panels, ROWS, SQUARE, transpose};
use super::{Cpu, ELEMENTS_PER_TASK, Real, gelu, one_task_each, reduce, split_mut};
use simd::simd;

/// Rows from which on the other factor of a product is cut into panels: below, cutting it would cost too much of the
/// product.
const MANY_ROWS: usize = 384;

simd! {
    fn add_bias<T: Real>(product: &[T], bias: &[T], y: &mut [T]) {
        for (y, product) in y.chunks_exact_mut(bias.len()).zip(product.chunks_exact(bias.len())) {
            for ((y, &product), &bias) in y.iter_mut().zip(product).zip(bias) {
                *y = product + bias;
            }
        }
    }
}

/// `y = x W^T` and, where there is one, `+ b`.
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: &[T], weight: &[T], bias: Option<&[T]>, inputs: usize, y: &mut [T]) {
    let w = transposed(weight, inputs);
    match bias {
        Some(bias) => multiply_then(cpu, x, w, blocks_mut(y, bias.len()), |product, y| add_bias(product, bias, y)),
        None => multiply(cpu, x, w, y),
    }
}

/// `pre = x W^T + b` and `activated = gelu(pre)`.
pub(crate) fn forward_gelu<T: Real>(
    cpu: &Cpu,
    x: &[T],
    weight: &[T],
    bias: &[T],
    inputs: usize,
    pre: &mut [T],
    activated: &mut [T],
) {
    let outputs = blocks_mut(pre, bias.len()).zip(blocks_mut(activated, bias.len()));
    multiply_then(cpu, x, transposed(weight, inputs), outputs, |product, (pre, activated)| {
        gelu::bias_gelu(product, bias, pre, activated);
    });
}

/// `y = gelu(x W^T + b)`, without the pre-activations.
pub(crate) fn forward_gelu_only<T: Real>(cpu: &Cpu, x: &[T], weight: &[T], bias: &[T], inputs: usize, y: &mut [T]) {
    multiply_then(cpu, x, transposed(weight, inputs), blocks_mut(y, bias.len()), |product, y| {
        gelu::bias_gelu_only(product, bias, y);
    });
}

/// `dx = dy W`, times gelu'(pre) where the input was gelu(pre).
pub(crate) fn backward_input<T: Real>(
    cpu: &Cpu,
    weight: &[T],
    dy: &[T],
    inputs: usize,
    through_gelu: Option<&[T]>,
    dx: &mut [T],
) {
    let w = Matrix::new(weight, weight.len() / inputs, inputs, inputs);
    match through_gelu {
        Some(pre) => {
            let outputs = blocks_mut(dx, inputs).zip(pre.par_chunks(ROWS * inputs));
            multiply_then(cpu, dy, w, outputs, |product, (dx, pre)| gelu::times_derivative(product, pre, dx));
        }
        None => multiply(cpu, dy, w, dx),
    }
}

fn transposed<T: Real>(weight: &[T], inputs: usize) -> Matrix<'_, T> {
    Matrix::new(weight, weight.len() / inputs, inputs, inputs).transposed()
}

fn blocks_mut<T: Real>(y: &mut [T], columns: usize) -> rayon::slice::ChunksMut<'_, T> {
    y.par_chunks_mut(ROWS * columns)
}

/// `y = x b`.
fn multiply<T: Real>(cpu: &Cpu, x: &[T], b: Matrix<'_, T>, y: &mut [T]) {
    cpu.install(|| {
        if x.len() < MANY_ROWS * b.rows {
            return multiply_few(cpu, x, b, y);
        }
        let panels = Panels::new(cpu, b);
        let blocks = x.par_chunks(ROWS * b.rows).zip(blocks_mut(y, b.columns));
        one_task_each(blocks).for_each(|(_, (x, y))| panels.multiply(x, y));
    });
}

/// Hands the rows of `x b`, [`ROWS`] at a time, to `finish`, with the outputs of those rows.
fn multiply_then<T: Real, O: Send>(
    cpu: &Cpu,
    x: &[T],
    b: Matrix<'_, T>,
    outputs: impl IndexedParallelIterator<Item = O>,
    finish: impl Fn(&[T], O) + Sync,
) {
    cpu.install(|| {
        if x.len() < MANY_ROWS * b.rows {
            let mut product = cpu.allocate(x.len() / b.rows * b.columns);
            multiply_few(cpu, x, b, product.as_mut_slice());
            let blocks = product.as_slice().par_chunks(ROWS * b.columns);
            return blocks.zip(outputs).for_each(|(product, out)| finish(product, out));
        }
        let panels = Panels::new(cpu, b);
        let blocks = x.par_chunks(ROWS * b.rows).zip(outputs);
        one_task_each(blocks).for_each_init(
            || cpu.allocate(ROWS * b.columns),
            |product, (_, (x, out))| {
                let product = &mut product.as_mut_slice()[..x.len() / b.rows * b.columns];
                panels.multiply(x, product);
                finish(product, out);
            },
        );
    });
}

/// `y = x b` for few rows. A weight that is read across its rows would have to be rearranged, all of it for a few
/// products; of y^T = b^T x^T only x is.
fn multiply_few<T: Real>(cpu: &Cpu, x: &[T], b: Matrix<'_, T>, y: &mut [T]) {
    let rows = x.len() / b.rows;
    let x = Matrix::new(x, rows, b.rows, b.rows);
    if b.column_stride == 1 || rows > b.columns {
        return gemm(MatrixMut::new(y, rows, b.columns, b.columns), false, T::ONE, x, b, Threads::All);
    }
    let mut product = cpu.allocate(y.len());
    let transposed = MatrixMut::new(product.as_mut_slice(), b.columns, rows, rows);
    gemm(transposed, false, T::ONE, b.transposed(), x.transposed(), Threads::All);
    let (product, lines) = (product.as_slice(), y.par_chunks_mut(SQUARE * b.columns));
    one_task_each(lines).for_each(|(i, y)| transpose(&product[i * SQUARE..], rows, y.len() / b.columns, b.columns, y));
}

/// Parts that the rows of dW = dy^T x are cut into, to be multiplied beside each other: two threads on one product would
/// both have to rearrange all of x. A function of the number of rows alone, as every bit of the result is then; a power
/// of two, so that threads get equal shares.
fn parts_of(rows: usize) -> usize {
    match rows / 2048 {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// Rows of a part that are multiplied, and then summed for the bias while the last level of cache still holds them.
const ROWS_PER_BLOCK: usize = 512;

/// Columns of x that are multiplied at a time. The `gemm` crate rearranges dy for more than two of its tiles; for fewer it
/// reads dy where it lies, which is faster even over several rounds.
const COLUMNS_PER_STRIP: usize = 128;

/// `dW += dy^T x` and `db += column sums of dy`.
pub(crate) fn backward_weight<T: Real>(
    cpu: &Cpu,
    x: &[T],
    dy: &[T],
    inputs: usize,
    outputs: usize,
    d_weight: &mut [T],
    d_bias: &mut [T],
) {
    assert_eq!((d_weight.len(), d_bias.len()), (outputs * inputs, outputs), "gradients of a linear layer");
    let rows = x.len() / inputs;
    let parts = parts_of(rows);
    let threads = Threads::AtMost(cpu.threads().div_ceil(parts));
    let first = |part: usize| part * rows / parts;
    let add_part = |part: usize, out: &mut [T]| {
        let mut bias_sum = vec![T::ZERO; outputs];
        for from in (first(part)..first(part + 1)).step_by(ROWS_PER_BLOCK) {
            let to = (from + ROWS_PER_BLOCK).min(first(part + 1));
            let block = &dy[from * outputs..to * outputs];
            let dy = Matrix::new(block, to - from, outputs, outputs).transposed();
            let accumulate = part == 0 || from > first(part);
            for column in (0..inputs).step_by(COLUMNS_PER_STRIP) {
                let width = COLUMNS_PER_STRIP.min(inputs - column);
                let x = Matrix::new(&x[from * inputs + column..], to - from, width, inputs);
                let out = MatrixMut::new(&mut out[column..], outputs, width, inputs);
                gemm(out, accumulate, T::ONE, dy, x, threads);
            }
            // A sum of its own for each block keeps sums in single precision short.
            let mut block_sum = vec![T::ZERO; outputs];
            reduce::add_rows(block, &mut block_sum);
            reduce::add_rows(&block_sum, &mut bias_sum);
        }
        bias_sum
    };
    // Every part but the first is summed in memory of its own.
    let mut rest = cpu.allocate((parts - 1) * d_weight.len());
    let mut targets = vec![&mut *d_weight];
    targets.extend(split_mut(rest.as_mut_slice(), (1..parts).map(|_| outputs * inputs)));
    let bias_sums: Vec<Vec<T>> =
        cpu.install(|| one_task_each(targets).map(|(part, out)| add_part(part, out)).collect());
    for part in 1..parts {
        let sum = &rest.as_slice()[(part - 1) * d_weight.len()..part * d_weight.len()];
        let pieces = d_weight.par_chunks_mut(ELEMENTS_PER_TASK).zip(sum.par_chunks(ELEMENTS_PER_TASK));
        cpu.install(|| pieces.for_each(|(dw, sum)| reduce::add_rows(sum, dw)));
    }
    for sum in &bias_sums {
        reduce::add_rows(sum, d_bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_close, assert_follows, noise, unwritten, wide};
    use crate::device::CpuOptions;

    fn sums_match_the_plain_loop_and_do_not_depend_on_threads<T: Real>(rows: usize, tolerance: f64) {
        // Large enough for a block's product to use several threads.
        let (inputs, outputs) = (40, 48);
        let (x, dy) = (noise::<T>(1, rows * inputs), noise::<T>(2, rows * outputs));
        let before = (noise::<T>(3, outputs * inputs), noise::<T>(4, outputs));
        let (mut dw, mut db) = (wide(&before.0), wide(&before.1));
        for (x, dy) in wide(&x).chunks(inputs).zip(wide(&dy).chunks(outputs)) {
            for (o, &dy) in dy.iter().enumerate() {
                db[o] += dy;
                x.iter().enumerate().for_each(|(i, &x)| dw[o * inputs + i] += dy * x);
            }
        }
        let results = [1, 2, 3, 8].map(|threads| {
            let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
            let (mut dw, mut db) = before.clone();
            backward_weight(&cpu, &x, &dy, inputs, outputs, &mut dw, &mut db);
            (wide(&dw), wide(&db))
        });
        assert!(results.iter().all(|r| r == &results[0]), "{rows} rows");
        assert_close(&results[0].0, &dw, tolerance);
        assert_close(&results[0].1, &db, tolerance);
    }

    /// Every product of the layer on some threads: outputs of `forward` with and without a bias, of both forms with GELU,
    /// gradients of the input with and without one.
    fn products<T: Real>(threads: usize, rows: usize, inputs: usize, outputs: usize) -> [Vec<T>; 7] {
        let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
        let (x, w, b) = (noise(1, rows * inputs), noise(2, outputs * inputs), noise::<T>(3, outputs));
        let (dy, before) = (noise(4, rows * outputs), noise(5, rows * inputs));
        let output = || unwritten::<T>(rows * outputs);
        let (mut bare, mut with_bias, mut pre, mut activated, mut only) =
            (output(), output(), output(), output(), output());
        forward(&cpu, &x, &w, None, inputs, &mut bare);
        forward(&cpu, &x, &w, Some(&b), inputs, &mut with_bias);
        forward_gelu(&cpu, &x, &w, &b, inputs, &mut pre, &mut activated);
        forward_gelu_only(&cpu, &x, &w, &b, inputs, &mut only);
        let (mut dx, mut through_gelu) = (unwritten(rows * inputs), unwritten(rows * inputs));
        backward_input(&cpu, &w, &dy, inputs, None, &mut dx);
        backward_input(&cpu, &w, &dy, inputs, Some(&before), &mut through_gelu);
        [bare, with_bias, pre, activated, only, dx, through_gelu]
    }

    /// The same, one number at a time: the oracle.
    fn products_plain<T: Real>(rows: usize, inputs: usize, outputs: usize) -> [Vec<f64>; 7] {
        let (x, w) = (wide(&noise::<T>(1, rows * inputs)), wide(&noise::<T>(2, outputs * inputs)));
        let (b, dy) = (wide(&noise::<T>(3, outputs)), wide(&noise::<T>(4, rows * outputs)));
        let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        let bare: Vec<f64> = x.chunks(inputs).flat_map(|x| w.chunks(inputs).map(move |w| dot(x, w))).collect();
        let pre: Vec<f64> = bare.iter().enumerate().map(|(i, y)| y + b[i % outputs]).collect();
        let mut activated = vec![0.0; pre.len()];
        gelu::gelu(&pre, &mut activated);
        let column = |i: usize| w.chunks(inputs).map(move |w| w[i]);
        let along = |dy: &[f64], i: usize| dy.iter().zip(column(i)).map(|(dy, w)| dy * w).sum::<f64>();
        let dx: Vec<f64> =
            dy.chunks(outputs).flat_map(|dy| (0..inputs).map(|i| along(dy, i)).collect::<Vec<_>>()).collect();
        let mut through_gelu = unwritten(rows * inputs);
        gelu::times_derivative(&dx, &wide(&noise::<T>(5, rows * inputs)), &mut through_gelu);
        [bare, pre.clone(), pre, activated.clone(), activated, dx, through_gelu]
    }

    fn products_match_the_plain_loop_and_do_not_depend_on_threads<T: Real>(rows: usize, tolerance: f64) {
        for (inputs, outputs) in [(70, 130), (530, 20)] {
            let one = products::<T>(1, rows, inputs, outputs);
            for threads in [2, 3, 4, 8] {
                assert!(products::<T>(threads, rows, inputs, outputs) == one, "{rows} rows, {threads} threads");
            }
            for (fast, plain) in one.iter().zip(&products_plain::<T>(rows, inputs, outputs)) {
                assert_follows(fast, plain, tolerance);
            }
        }
    }

    #[test]
    fn products_of_few_rows_and_of_many_match_the_plain_loop() {
        for rows in [1, 50, MANY_ROWS, MANY_ROWS + 49] {
            products_match_the_plain_loop_and_do_not_depend_on_threads::<f64>(rows, 1e-12);
            products_match_the_plain_loop_and_do_not_depend_on_threads::<f32>(rows, 1e-4);
        }
    }

    #[test]
    fn weight_gradients_are_the_same_in_one_part_and_in_several() {
        for (rows, parts) in [(0, 1), (3, 1), (1300, 1), (4101, 2), (6500, 2), (8200, 4)] {
            assert_eq!(parts_of(rows), parts);
            sums_match_the_plain_loop_and_do_not_depend_on_threads::<f64>(rows, 1e-11);
            sums_match_the_plain_loop_and_do_not_depend_on_threads::<f32>(rows, 2e-4);
        }
    }
}
