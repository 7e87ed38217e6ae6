//! y = x W^T + b, with W [outputs, inputs], and what follows it in the same pass over y.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::{Cpu, ELEMENTS_PER_TASK, ROWS_PER_TASK, Real, gelu, one_task_each, reduce, split_mut, vector};
use simd::simd;

simd! {
    fn add_bias<T: Real>(y: &mut [T], bias: &[T]) {
        for row in y.chunks_exact_mut(bias.len()) {
            vector::add(row, bias);
        }
    }
}

/// `y = x W^T` and, where there is one, `+ b`.
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: &[T], weight: &[T], bias: Option<&[T]>, inputs: usize, y: &mut [T]) {
    let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    cpu.install(|| {
        multiply(x, weight, rows, inputs, outputs, y);
        if let Some(bias) = bias {
            y.par_chunks_mut(ROWS_PER_TASK * outputs).for_each(|rows| add_bias(rows, bias));
        }
    });
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
    let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    cpu.install(|| {
        multiply(x, weight, rows, inputs, outputs, pre);
        let task = ROWS_PER_TASK * outputs;
        pre.par_chunks_mut(task)
            .zip(activated.par_chunks_mut(task))
            .for_each(|(pre, activated)| gelu::bias_gelu(pre, bias, activated));
    });
}

/// `y = gelu(x W^T + b)`, without the pre-activations.
pub(crate) fn forward_gelu_only<T: Real>(cpu: &Cpu, x: &[T], weight: &[T], bias: &[T], inputs: usize, y: &mut [T]) {
    let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    cpu.install(|| {
        multiply(x, weight, rows, inputs, outputs, y);
        y.par_chunks_mut(ROWS_PER_TASK * outputs).for_each(|rows| gelu::bias_gelu_in_place(rows, bias));
    });
}

fn multiply<T: Real>(x: &[T], weight: &[T], rows: usize, inputs: usize, outputs: usize, y: &mut [T]) {
    let w = Matrix::new(weight, outputs, inputs, inputs).transposed();
    gemm(
        MatrixMut::new(y, rows, outputs, outputs),
        false,
        T::ONE,
        Matrix::new(x, rows, inputs, inputs),
        w,
        Threads::All,
    );
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
    let outputs = weight.len() / inputs;
    let rows = dy.len() / outputs;
    cpu.install(|| {
        let (dy, w) = (Matrix::new(dy, rows, outputs, outputs), Matrix::new(weight, outputs, inputs, inputs));
        gemm(MatrixMut::new(dx, rows, inputs, inputs), false, T::ONE, dy, w, Threads::All);
        if let Some(pre) = through_gelu {
            let task = ROWS_PER_TASK * inputs;
            dx.par_chunks_mut(task)
                .zip(pre.par_chunks(task))
                .for_each(|(dx, pre)| gelu::multiply_by_derivative(dx, pre));
        }
    });
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
            let x = Matrix::new(&x[from * inputs..to * inputs], to - from, inputs, inputs);
            let accumulate = part == 0 || from > first(part);
            gemm(MatrixMut::new(out, outputs, inputs, inputs), accumulate, T::ONE, dy, x, threads);
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
    use crate::cpu::testing::{assert_close, noise, wide};
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

    #[test]
    fn weight_gradients_are_the_same_in_one_part_and_in_several() {
        for (rows, parts) in [(0, 1), (3, 1), (1300, 1), (4101, 2), (6500, 2), (8200, 4)] {
            assert_eq!(parts_of(rows), parts);
            sums_match_the_plain_loop_and_do_not_depend_on_threads::<f64>(rows, 1e-11);
            sums_match_the_plain_loop_and_do_not_depend_on_threads::<f32>(rows, 2e-4);
        }
    }
}
