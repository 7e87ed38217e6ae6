//! The exact GELU, x Phi(x), and its derivative, Phi(x) + x phi(x).

use super::Real;
use simd::simd;

simd! {
    /// Adds a bias to rows of a product; writes the sums and their GELU.
    pub(super) fn bias_gelu<T: Real>(product: &[T], bias: &[T], pre: &mut [T], activated: &mut [T]) {
        let outputs = pre.chunks_exact_mut(bias.len()).zip(activated.chunks_exact_mut(bias.len()));
        for (product, (pre, activated)) in product.chunks_exact(bias.len()).zip(outputs) {
            for (((&product, &bias), pre), activated) in product.iter().zip(bias).zip(pre).zip(activated) {
                let x = product + bias;
                *pre = x;
                *activated = x * x.normal_cdf_pdf().0;
            }
        }
    }
}

simd! {
    /// The same without the sums.
    pub(super) fn bias_gelu_only<T: Real>(product: &[T], bias: &[T], activated: &mut [T]) {
        for (product, activated) in product.chunks_exact(bias.len()).zip(activated.chunks_exact_mut(bias.len())) {
            for ((&product, &bias), activated) in product.iter().zip(bias).zip(activated) {
                let x = product + bias;
                *activated = x * x.normal_cdf_pdf().0;
            }
        }
    }
}

simd! {
    /// The GELU of every element.
    pub(crate) fn gelu<T: Real>(x: &[T], y: &mut [T]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * x.normal_cdf_pdf().0;
        }
    }
}

#[inline(always)]
fn derivative<T: Real>(x: T) -> T {
    let (cdf, pdf) = x.normal_cdf_pdf();
    x.mul_add(pdf, cdf)
}

simd! {
    /// A gradient times the GELU's derivative at the pre-activations.
    pub(super) fn times_derivative<T: Real>(gradient: &[T], pre: &[T], out: &mut [T]) {
        for ((out, &g), &x) in out.iter_mut().zip(gradient).zip(pre) {
            *out = g * derivative(x);
        }
    }
}

/// 0.5 x (1 + erf(x / sqrt(2))): the oracle.
#[cfg(test)]
fn gelu_plain(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, noise, unwritten, wide};

    fn matches_the_plain_form<T: Real>(tolerance: f64) {
        let x: Vec<T> = noise::<T>(1, 7 * 45).iter().map(|&x| x * T::from_f64(3.0)).collect();
        let plain: Vec<f64> = wide(&x).into_iter().map(gelu_plain).collect();
        let mut y = unwritten(x.len());
        gelu(&x, &mut y);
        assert_follows(&y, &plain, tolerance);

        // With a bias: rows of 45 that become x once it is added.
        let bias = noise::<T>(2, 45);
        let product: Vec<T> = x.iter().enumerate().map(|(i, &x)| x - bias[i % 45]).collect();
        let plain_pre: Vec<f64> = wide(&product).iter().enumerate().map(|(i, p)| p + bias[i % 45].to_f64()).collect();
        let (mut pre, mut activated, mut only) = (unwritten(x.len()), unwritten(x.len()), unwritten(x.len()));
        bias_gelu(&product, &bias, &mut pre, &mut activated);
        bias_gelu_only(&product, &bias, &mut only);
        assert!(only == activated);
        assert_follows(&pre, &plain_pre, tolerance);
        assert_follows(&activated, &plain_pre.into_iter().map(gelu_plain).collect::<Vec<_>>(), tolerance);
    }

    #[test]
    fn gelu_with_and_without_a_bias_matches_the_plain_form() {
        matches_the_plain_form::<f64>(1e-14);
        matches_the_plain_form::<f32>(1e-6);
    }

    #[test]
    fn gelu_goes_to_zero_on_the_left_and_to_the_identity_on_the_right() {
        let mut y = [f32::NAN; 6];
        gelu(&[-40.0, -13.5, -0.0, 0.0, 13.5, 40.0], &mut y);
        assert!(y[..4].iter().all(|y| y.abs() < 1e-37), "{y:?}");
        assert_eq!(y[4..], [13.5, 40.0]);
        let mut slope = [f32::NAN; 4];
        times_derivative(&[1.0; 4], &[-40.0, 0.0, 13.5, 40.0], &mut slope);
        assert_eq!(slope, [0.0, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn the_derivative_is_that_of_the_function() {
        let f = |x: f64| {
            let mut y = [0.0];
            gelu(&[x], &mut y);
            y[0]
        };
        for i in -60..=60 {
            let x = f64::from(i) * 0.1;
            let mut slope = [f64::NAN];
            times_derivative(&[1.0], &[x], &mut slope);
            let difference = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
            assert!((slope[0] - difference).abs() < 1e-9, "{x}: {} {difference}", slope[0]);
        }
    }
}
