//! Every derivative against finite differences, in double precision.
//!
//! The loss is a random projection of an operation's output, so an error anywhere in a gradient shows. Gradients of
//! parameters start from [`HELD`] instead of zero: they must be added to what the caller holds, and to nothing else.

mod attention;
mod linear;
mod norm;
mod prototypes;
mod scale;
mod tokens;

use crate::cpu::testing::noise;
use crate::{CpuOptions, Device, Precision, Tensor};

/// What gradients that are added to hold beforehand.
const HELD: f64 = 0.75;

/// The allowed difference, relative to the largest element of a gradient. The differences themselves are good to 1e-11.
const TOLERANCE: f64 = 1e-9;

/// The gradient of one input, and how the operation delivers it.
enum Gradient {
    /// All of it written by the operation.
    Returned(Tensor),
    /// Added to a tensor made by [`held`].
    Added(Tensor),
}

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F64 }).unwrap()
}

/// Standard normal values.
fn normal(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.from_f64(shape, &noise::<f64>(seed, shape.iter().product()))
}

/// A gradient's buffer before the backward pass.
fn held(like: &Tensor) -> Tensor {
    let mut t = like.device().empty(like.shape());
    t.fill(HELD);
    t
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Checks the gradient of every input of an operation. `backward` gets the inputs and the output's gradient, and gives
/// one gradient for each input.
#[track_caller]
fn check(
    inputs: Vec<Tensor>,
    forward: impl Fn(&[Tensor]) -> Tensor,
    backward: impl Fn(&[Tensor], &Tensor) -> Vec<Gradient>,
) {
    let y = forward(&inputs);
    let projection = normal(y.device(), 999, y.shape());
    let gradients = backward(&inputs, &projection);
    let projection = projection.to_f64();
    check_loss(inputs, |inputs| dot(&forward(inputs).to_f64(), &projection), gradients);
}

/// Checks the gradients of a number, one for each input, element by element.
#[track_caller]
fn check_loss(mut inputs: Vec<Tensor>, loss: impl Fn(&[Tensor]) -> f64, gradients: Vec<Gradient>) {
    assert_eq!(inputs.len(), gradients.len(), "a gradient for each input");
    // Five points: the error is h^4 times the fifth derivative, so h can be large enough to keep rounding at 1e-12.
    const H: f64 = 1e-4;
    for (i, gradient) in gradients.into_iter().enumerate() {
        let (gradient, offset) = match gradient {
            Gradient::Returned(g) => (g, 0.0),
            Gradient::Added(g) => (g, HELD),
        };
        let got: Vec<f64> = gradient.to_f64().iter().map(|g| g - offset).collect();
        assert_eq!(got.len(), inputs[i].len(), "elements of gradient {i}");
        let start = inputs[i].to_f64();
        let mut differences = Vec::new();
        for j in 0..start.len() {
            let mut at = |step: f64| {
                let mut moved = start.clone();
                moved[j] += step;
                inputs[i].copy_from_f64(&moved);
                loss(&inputs)
            };
            let (near, far) = (at(H) - at(-H), at(2.0 * H) - at(-2.0 * H));
            differences.push((8.0 * near - far) / (12.0 * H));
        }
        inputs[i].copy_from_f64(&start);
        let scale = differences.iter().fold(1e-2, |m: f64, d| m.max(d.abs()));
        for (j, (got, want)) in got.iter().zip(&differences).enumerate() {
            let error = (got - want).abs() / scale;
            assert!(error < TOLERANCE, "input {i}, element {j}: {got} is not {want} ({error:e} of {scale})");
        }
    }
}

#[test]
#[should_panic(expected = "input 0, element 0")]
fn a_derivative_wrong_by_a_hundred_millionth_is_noticed() {
    check(
        vec![normal(&device(), 1, &[3])],
        |x| x[0].device().from_f64(&[3], &x[0].to_f64().iter().map(|x| x.sin()).collect::<Vec<_>>()),
        |x, dy| {
            let slope = |(x, dy): (&f64, &f64)| dy * x.cos() * (1.0 + 1e-8);
            let dx: Vec<f64> = x[0].to_f64().iter().zip(&dy.to_f64()).map(slope).collect();
            vec![Gradient::Returned(dy.device().from_f64(&[3], &dx))]
        },
    );
}
