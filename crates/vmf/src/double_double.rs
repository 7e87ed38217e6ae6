//! Numbers carried as an unevaluated sum of two `f64`, about 32 digits.
//!
//! `log C_p` is a difference of terms as large as `p log p` and `kappa`; where it crosses zero they cancel, and at
//! p = 100000 plain `f64` would leave 10 correct decimals. Only the handful of operations of that difference are here.

use std::f64::consts::{LN_2, SQRT_2};

/// `high + low`, with `|low|` at most half a unit in the last place of `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoubleDouble {
    pub(crate) high: f64,
    pub(crate) low: f64,
}

/// ln 2 beyond the digits of `f64`.
const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17;
/// ln(2 pi).
pub(crate) const LN_TAU: DoubleDouble = DoubleDouble { high: 1.837_877_066_409_345_6, low: -7.756_588_316_134_483e-17 };

impl DoubleDouble {
    pub(crate) fn new(value: f64) -> Self {
        Self { high: value, low: 0.0 }
    }

    /// `a + b` without error (Knuth).
    fn sum(a: f64, b: f64) -> Self {
        let high = a + b;
        let part = high - a;
        Self { high, low: (a - (high - part)) + (b - part) }
    }

    /// `a * b` without error.
    pub(crate) fn product(a: f64, b: f64) -> Self {
        let high = a * b;
        Self { high, low: a.mul_add(b, -high) }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let sum = Self::sum(self.high, other.high);
        Self::sum(sum.high, sum.low + self.low + other.low)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self { high: -other.high, low: -other.low })
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        let product = Self::product(self.high, factor);
        Self::sum(product.high, self.low.mul_add(factor, product.low))
    }

    fn divided_by(self, divisor: Self) -> Self {
        let quotient = self.high / divisor.high;
        let rest = self.minus(divisor.times(quotient));
        Self::sum(quotient, rest.high / divisor.high)
    }

    pub(crate) fn sqrt(self) -> Self {
        let root = self.high.sqrt();
        let rest = self.minus(Self::product(root, root));
        Self::sum(root, rest.high / (2.0 * root))
    }

    /// The logarithm of a positive, normal number, with an absolute error near 1e-18.
    pub(crate) fn ln(self) -> Self {
        // self = m 2^e with m in [sqrt(1/2), sqrt(2)): ln m = 2 artanh(z) with |z| <= 0.172.
        let mut exponent = ((self.high.to_bits() >> 52) & 0x7ff) as i64 - 1023;
        let mantissa = self.high * power_of_two(-exponent);
        if mantissa >= SQRT_2 {
            exponent += 1;
        }
        let scale = power_of_two(-exponent);
        let m = Self { high: self.high * scale, low: self.low * scale };
        let one = Self::new(1.0);
        let z = m.minus(one).divided_by(m.plus(one));
        // Beyond its first term the series is at most 2e-3, so plain f64 gives it to 2e-19.
        let square = z.high * z.high;
        let tail = (1..15).rev().fold(0.0, |sum, j| (sum + 1.0 / f64::from(2 * j + 1)) * square);
        let ln_2 = Self { high: LN_2, low: LN_2_LOW };
        ln_2.times(exponent as f64).plus(z.plus(Self::new(z.high * tail)).times(2.0))
    }
}

fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023).clamp(1, 2046) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_turns_products_into_sums_beyond_f64() {
        for (a, b) in [(3.0, 7.0), (1.000_001, 123_456.789), (0.3, 1e-5), (1.5e6, 1.4142e-3), (1e100, 1e-37)] {
            let sum = DoubleDouble::new(a).ln().plus(DoubleDouble::new(b).ln());
            let gap = DoubleDouble::product(a, b).ln().minus(sum);
            assert!(gap.high.abs() < 1e-18 * sum.high.abs().max(1.0), "{a} {b} {gap:?}");
            assert!((DoubleDouble::new(a).ln().high - a.ln()).abs() <= 2.0 * f64::EPSILON * a.ln().abs());
        }
    }

    #[test]
    fn a_square_root_squares_back() {
        let two = DoubleDouble::new(2.0);
        let root = two.sqrt();
        let square = DoubleDouble::product(root.high, root.high).plus(root.times(2.0 * root.low));
        assert!(two.minus(square).high.abs() < 1e-30);
    }
}
