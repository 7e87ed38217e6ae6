//! y = x W^T + b, with W [outputs, inputs], and what follows it in the same pass over y.

use super::gemm::Matrix;
use super::product::{product, product_beside};
use super::simd::simd;
use super::{Cpu, Real, gelu, reduce, vector};

simd! {
    fn add_bias<T: Real>(y: &mut [T], bias: &[T]) {
        for row in y.chunks_exact_mut(bias.len()) {
            vector::add(row, bias);
        }
    }
}

/// `y = x W^T` and, where there is one, `+ b`.
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: &[T], weight: &[T], bias: Option<&[T]>, inputs: usize, y: &mut [T]) {
    let (x, w) = (matrix(x, inputs), matrix(weight, inputs).transposed());
    product(cpu, y, false, x, w, |_, rows| {
        if let Some(bias) = bias {
            add_bias(rows, bias);
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
    let (x, w) = (matrix(x, inputs), matrix(weight, inputs).transposed());
    product_beside(cpu, pre, activated, x, w, |pre, activated| gelu::bias_gelu(pre, bias, activated));
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
    product(cpu, dx, false, matrix(dy, outputs), matrix(weight, inputs), |first, dx| {
        if let Some(pre) = through_gelu {
            gelu::multiply_by_derivative(dx, &pre[first * inputs..][..dx.len()]);
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
    product(cpu, d_weight, true, matrix(dy, outputs).transposed(), matrix(x, inputs), |_, _| ());
    if let Some(d_bias) = d_bias {
        reduce::add_column_sums(cpu, dy, outputs, d_bias);
    }
}

/// A slice as rows without gaps.
fn matrix<T: Real>(data: &[T], columns: usize) -> Matrix<'_, T> {
    Matrix::new(data, data.len() / columns, columns, columns)
}
