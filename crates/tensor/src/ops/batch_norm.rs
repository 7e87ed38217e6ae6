//! Batch normalisation, and its parts for rows of which other processes have the rest.

use crate::cpu::{batch_norm as cpu, on_device};
use crate::cuda::norm as gpu;
use crate::tensor::Tensor;

/// Column means and biased variances of a batch.
#[derive(Debug)]
pub struct BatchStatistics {
    /// Mean of each column.
    pub mean: Tensor,
    /// Biased variance of each column.
    pub variance: Tensor,
}

/// Of each column: what is summed up over rows for the derivative, or the means of it.
#[derive(Debug)]
pub struct BatchSums {
    /// Of dy.
    pub of_dy: Tensor,
    /// Of dy times the normalised input.
    pub of_dy_hat: Tensor,
}

/// Batch normalisation with the statistics of the rows at hand.
pub fn batch_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f64) -> (Tensor, BatchStatistics) {
    assert_eq!(x.columns(), weight.len(), "columns of a batch norm");
    let device = x.device();
    let mut y = device.empty(x.shape());
    let (mut mean, mut variance) = (device.empty_exact(&[weight.len()]), device.empty_exact(&[weight.len()]));
    on_device!(x, T => cpu::forward(
        x.device().as_cpu(), T::slice(x), T::slice(weight), T::slice(bias), epsilon,
        T::slice_mut(&mut y), T::slice_mut(&mut mean), T::slice_mut(&mut variance),
    ), cuda => gpu::batch_forward(cuda, x, weight, bias, epsilon, [&mut y, &mut mean, &mut variance]));
    (y, BatchStatistics { mean, variance })
}

/// The gradient of the input of [`batch_norm`]; adds those of weight and bias.
pub fn batch_norm_backward(
    x: &Tensor,
    statistics: &BatchStatistics,
    weight: &Tensor,
    epsilon: f64,
    dy: &Tensor,
    d_weight: &mut Tensor,
    d_bias: &mut Tensor,
) -> Tensor {
    let mut dx = x.device().empty(x.shape());
    on_device!(x, T => cpu::backward(
        x.device().as_cpu(), T::slice(x), T::slice(&statistics.mean), T::slice(&statistics.variance), T::slice(weight),
        epsilon, T::slice(dy), T::slice_mut(&mut dx), T::slice_mut(d_weight), T::slice_mut(d_bias),
    ), cuda => {
        let inputs = [x, &statistics.mean, &statistics.variance, weight, dy];
        gpu::batch_backward(cuda, inputs, epsilon, [&mut dx, d_weight, d_bias]);
    });
    dx
}

/// Batch normalisation with given statistics: those of more rows than are at hand.
pub fn batch_norm_with(
    x: &Tensor,
    statistics: &BatchStatistics,
    weight: &Tensor,
    bias: &Tensor,
    epsilon: f64,
) -> Tensor {
    assert_eq!(x.columns(), weight.len(), "columns of a batch norm");
    let mut y = x.device().empty(x.shape());
    let BatchStatistics { mean, variance } = statistics;
    on_device!(x, T => cpu::apply(
        x.device().as_cpu(), T::slice(x), T::slice(mean), T::slice(variance), T::slice(weight), T::slice(bias), epsilon,
        T::slice_mut(&mut y),
    ), cuda => gpu::batch_apply(cuda, [x, mean, variance, weight, bias], epsilon, &mut y));
    y
}

/// What the rows at hand contribute to the derivative of [`batch_norm_with`]: the sums are also the gradients of bias and weight.
pub fn batch_norm_sums(x: &Tensor, statistics: &BatchStatistics, epsilon: f64, dy: &Tensor) -> BatchSums {
    let BatchStatistics { mean, variance } = statistics;
    let device = x.device();
    let mut sums =
        BatchSums { of_dy: device.zeros_exact(&[x.columns()]), of_dy_hat: device.zeros_exact(&[x.columns()]) };
    let BatchSums { of_dy, of_dy_hat } = &mut sums;
    on_device!(x, T => cpu::sums(
        x.device().as_cpu(), T::slice(x), T::slice(mean), T::slice(variance), epsilon, T::slice(dy),
        T::slice_mut(of_dy), T::slice_mut(of_dy_hat),
    ), cuda => gpu::batch_sums(cuda, [x, mean, variance, dy], epsilon, [of_dy, of_dy_hat]));
    sums
}

/// The gradient of the input of [`batch_norm_with`], from the means over all rows of what [`batch_norm_sums`] sums up.
pub fn batch_norm_input_gradient(
    x: &Tensor,
    statistics: &BatchStatistics,
    weight: &Tensor,
    epsilon: f64,
    dy: &Tensor,
    means: &BatchSums,
) -> Tensor {
    let mut dx = x.device().empty(x.shape());
    let BatchStatistics { mean, variance } = statistics;
    on_device!(x, T => cpu::input_gradient(
        T::slice(x), T::slice(mean), T::slice(variance), T::slice(weight), epsilon, T::slice(dy),
        T::slice(&means.of_dy), T::slice(&means.of_dy_hat), T::slice_mut(&mut dx),
    ), cuda => {
        let inputs = [x, mean, variance, weight, dy, &means.of_dy, &means.of_dy_hat];
        gpu::batch_input_gradient(cuda, inputs, epsilon, &mut dx);
    });
    dx
}
