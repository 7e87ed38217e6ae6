//! The uniform expansion of Eq. (5) with twelve terms instead of one, in a form that needs no large order.
//!
//! With `s = sqrt(nu^2 + kappa^2)` and `x = (nu / s)^2`, the logarithm of the sum in Eq. (5) is `sum_k P_k(x) / s^k`:
//! the `t^k` of the k-th polynomial cancels the `nu^k` below it, because `t = nu / s`. Hence
//!
//! ```text
//! log C_p(kappa) = nu ln((nu + s) / 2 pi) - s + ln(s / 2 pi) / 2 - sum_k P_k(x) / s^k
//! ```
//!
//! whose error depends on `s` alone, at small and large `nu` alike: for `nu = 0` it is Hankel's expansion, for
//! `kappa = 0` it is Stirling's. `A_p` and its derivative are this formula's derivatives, term by term.

use crate::double_double::{DoubleDouble, LN_TAU};

/// The expansion is used from this `s` on, where its first neglected term is below 4e-16.
pub(crate) const SMALLEST_S: f64 = 40.0;
const TERMS: usize = 12;

/// Row k - 1 holds the polynomial in x that goes with `1 / s^k`, by rising powers 0 to k.
type Polynomials = [[f64; TERMS + 1]; TERMS];

/// `Q_k = k P_k + 2 x P_k'`, so that `d/dkappa (P_k / s^k) = -kappa Q_k / s^(k+2)`.
const SLOPE: Polynomials = slope_polynomials();
/// `P_k`.
const VALUE: Polynomials = value_polynomials();
/// `R_k = (k + 2) Q_k + 2 x Q_k'`: the same step once more.
const CURVATURE: Polynomials = curvature_polynomials();

/// Bessel's equation for the logarithm of the sum, solved power by power of `1 / nu`.
///
/// With `D_k(t)` the k-th term and `E_k = D_k'`, it reads `E_1 = (1 - 5 t^2) / 8` and
/// `E_{k+1} = (t - 2 t^3) E_k + (t^2 - t^4) / 2 * (E_k' + sum_{i=1}^{k-1} E_i E_{k-i})`; `E_k = t^(k-1) Q_k(t^2)`.
const fn slope_polynomials() -> Polynomials {
    let mut q = [[0.0; TERMS + 1]; TERMS];
    q[0][0] = 1.0 / 8.0;
    q[0][1] = -5.0 / 8.0;
    let mut k = 1;
    while k < TERMS {
        let mut j = 0;
        while j <= k {
            let half_power = 0.5 * (k + 2 * j - 1) as f64;
            q[k][j] += (1.0 + half_power) * q[k - 1][j];
            q[k][j + 1] -= (2.0 + half_power) * q[k - 1][j];
            j += 1;
        }
        let mut i = 1;
        while i < k {
            let mut a = 0;
            while a <= i {
                let mut b = 0;
                while b <= k - i {
                    let product = 0.5 * q[i - 1][a] * q[k - i - 1][b];
                    q[k][a + b] += product;
                    q[k][a + b + 1] -= product;
                    b += 1;
                }
                a += 1;
            }
            i += 1;
        }
        k += 1;
    }
    q
}

const fn value_polynomials() -> Polynomials {
    let mut p = SLOPE;
    let mut k = 0;
    while k < TERMS {
        let mut j = 0;
        while j <= TERMS {
            p[k][j] /= (k + 1 + 2 * j) as f64;
            j += 1;
        }
        k += 1;
    }
    p
}

const fn curvature_polynomials() -> Polynomials {
    let mut r = SLOPE;
    let mut k = 0;
    while k < TERMS {
        let mut j = 0;
        while j <= TERMS {
            r[k][j] *= (k + 3 + 2 * j) as f64;
            j += 1;
        }
        k += 1;
    }
    r
}

/// `sum_k polynomials_k(x) / s^k`.
fn series(polynomials: &Polynomials, inverse_s: f64, x: f64) -> f64 {
    polynomials.iter().enumerate().rev().fold(0.0, |sum, (row, coefficients)| {
        let polynomial = coefficients[..=row + 1].iter().rev().fold(0.0, |value, c| value * x + c);
        (sum + polynomial) * inverse_s
    })
}

/// `log C_p(kappa)` for `p = 2 nu + 2`, where `s` is at least [`SMALLEST_S`].
pub(crate) fn log_normalizer(nu: f64, kappa: f64) -> f64 {
    // Beyond 1e100 the squares could overflow; nu^2 is then far below the last digit of kappa^2.
    let s = if kappa > 1e100 {
        DoubleDouble::new(kappa)
    } else {
        DoubleDouble::product(nu, nu).plus(DoubleDouble::product(kappa, kappa)).sqrt()
    };
    let order_part = s.plus(DoubleDouble::new(nu)).ln().minus(LN_TAU).times(nu);
    let root_part = s.ln().minus(LN_TAU).times(0.5);
    let t = nu / s.high;
    let corrections = series(&VALUE, 1.0 / s.high, t * t);
    let total = order_part.minus(s).plus(root_part).minus(DoubleDouble::new(corrections));
    total.high + total.low
}

/// The Bessel ratio `A = I_{nu+1}(kappa) / I_nu(kappa)`, as needed by the recurrence towards smaller orders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// `A / kappa`, which has a limit at kappa = 0.
    pub(crate) over_kappa: f64,
    /// `dA / dkappa`.
    pub(crate) derivative: f64,
}

/// The ratio for order `nu`, where `s` is at least [`SMALLEST_S`].
///
/// Every term is a derivative written out, so the two sides of `A' = 1 - A^2 - (p - 1) A / kappa` never meet: at
/// kappa = 1e6 they would cancel to nothing.
pub(crate) fn ratio(nu: f64, kappa: f64) -> Ratio {
    let s = nu.hypot(kappa);
    let inverse_s = 1.0 / s;
    let inverse_square = inverse_s * inverse_s;
    let x = (nu * inverse_s) * (nu * inverse_s);
    let slopes = series(&SLOPE, inverse_s, x);
    let curvatures = series(&CURVATURE, inverse_s, x);
    let cosine = kappa * inverse_s;
    Ratio {
        over_kappa: 1.0 / (nu + s) - inverse_square * (0.5 + slopes),
        derivative: nu * inverse_s / (nu + s) + inverse_square * (0.5 - x - slopes + cosine * cosine * curvatures),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_polynomials_are_those_of_the_handbook() {
        assert_eq!(VALUE[0][..2], [3.0 / 24.0, -5.0 / 24.0]);
        assert_eq!(VALUE[1][..3], [1.0 / 16.0, -6.0 / 16.0, 5.0 / 16.0]);
        // At x = 1 they are Stirling's series with the opposite sign: -1/12, 0, 1/360, 0, -1/1260.
        for (k, stirling) in [-1.0 / 12.0, 0.0, 1.0 / 360.0, 0.0, -1.0 / 1260.0].into_iter().enumerate() {
            let at_one: f64 = VALUE[k].iter().sum();
            assert!((at_one - stirling).abs() < 1e-12, "{k}: {at_one} {stirling}");
        }
    }
}
