//! y = x W^T + b, with W [outputs, inputs], and what follows it in the same pass over y.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::simd::simd;
use super::{Cpu, ROWS_PER_TASK, Real, gelu, reduce, vector};

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
    cpu.install(|| {
        let dy = Matrix::new(dy, rows, outputs, outputs).transposed();
        let x = Matrix::new(x, rows, inputs, inputs);
        gemm(MatrixMut::new(d_weight, outputs, inputs, inputs), true, T::ONE, dy, x, Threads::All);
    });
    if let Some(d_bias) = d_bias {
        reduce::add_column_sums(cpu, dy, outputs, d_bias);
    }
}
