//! y = x W^T + b, with W [outputs, inputs], and what follows it in the same pass over y.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::simd::simd;
use super::{Cpu, ROWS_PER_TASK, Real, gelu, one_task_each, reduce, vector};

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

/// The rows of dW = dy^T x are cut into parts that are multiplied beside each other: two threads on one product would
/// both have to rearrange all of x. The number of parts follows from that of rows alone, and so does every bit.
const ROWS_PER_PART: usize = 2048;
const MOST_PARTS: usize = 4;
/// Rows of a part that are multiplied, and then summed for the bias, while they are still in the cache.
const ROWS_PER_BLOCK: usize = 512;

/// `dW += dy^T x` and `db += column sums of dy`.
pub(crate) fn backward_weight<T: Real>(
    cpu: &Cpu,
    x: &[T],
    dy: &[T],
    inputs: usize,
    outputs: usize,
    d_weight: &mut [T],
    d_bias: Option<&mut [T]>,
) {
    let rows = x.len() / inputs;
    // Every part but the first is summed in memory of its own.
    let parts = (rows / ROWS_PER_PART).clamp(1, MOST_PARTS);
    let mut sums = cpu.allocate((parts - 1) * d_weight.len());
    let sums = sums.as_mut_slice();
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
            reduce::add_rows(block, &mut bias_sum);
        }
        bias_sum
    };
    let bias_sums: Vec<Vec<T>> = cpu.install(|| {
        let mut targets = vec![&mut *d_weight];
        targets.extend(sums.chunks_exact_mut(outputs * inputs));
        let bias_sums = one_task_each(targets).map(|(part, out)| add_part(part, out)).collect();
        for sum in sums.chunks_exact(outputs * inputs) {
            let task = ROWS_PER_TASK * inputs;
            d_weight.par_chunks_mut(task).zip(sum.par_chunks(task)).for_each(|(dw, sum)| reduce::add_rows(sum, dw));
        }
        bias_sums
    });
    if let Some(d_bias) = d_bias {
        for sum in &bias_sums {
            reduce::add_rows(sum, d_bias);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_close, noise};
    use crate::device::CpuOptions;

    #[test]
    fn gradients_summed_in_parts_match_the_plain_loop_and_do_not_depend_on_threads() {
        let (inputs, outputs) = (24, 18);
        // One part, one part of several blocks, two parts, as many as there may be.
        for rows in [3, 1300, 2 * ROWS_PER_PART + 5, (MOST_PARTS + 1) * ROWS_PER_PART] {
            let (x, dy) = (noise::<f64>(1, rows * inputs), noise::<f64>(2, rows * outputs));
            let before = (noise::<f64>(3, outputs * inputs), noise::<f64>(4, outputs));
            let (mut dw, mut db) = before.clone();
            for (x, dy) in x.chunks(inputs).zip(dy.chunks(outputs)) {
                for (o, &dy) in dy.iter().enumerate() {
                    db[o] += dy;
                    x.iter().enumerate().for_each(|(i, &x)| dw[o * inputs + i] += dy * x);
                }
            }
            let results = [1, 2, 3].map(|threads| {
                let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
                let (mut dw, mut db) = before.clone();
                backward_weight(&cpu, &x, &dy, inputs, outputs, &mut dw, Some(&mut db));
                (dw, db)
            });
            assert!(results.iter().all(|r| r == &results[0]), "{rows} rows");
            assert_close(&results[0].0, &dw, 1e-11);
            assert_close(&results[0].1, &db, 1e-11);
        }
    }
}
