//! The element types of the host: f32 for speed, f64 for verification.
//!
//! The f32 transcendental functions are branch-free so that loops over them become vector instructions; the f64 ones
//! are the platform's, correctly rounded for all that matters here.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use super::memory::{Buffer, Shelf, Shelves};
use crate::tensor::{Storage, Tensor};

/// A floating-point element.
pub(crate) trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const LOWEST: Self;

    fn from_f64(x: f64) -> Self;
    fn to_f64(self) -> f64;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn exp(self) -> Self;
    /// The standard normal's cumulative distribution and density: the two parts of GELU and its derivative.
    fn normal_cdf_pdf(self) -> (Self, Self);

    fn slice(t: &Tensor) -> &[Self];
    fn slice_mut(t: &mut Tensor) -> &mut [Self];
    fn shelf(shelves: &Shelves) -> &Shelf<Self>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f32::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f32::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }

    /// e^x to 2 units in the last place: x = n ln 2 + r, a polynomial for e^r (minimax on |r| <= ln 2 / 2, relative
    /// error 3e-9), n put into the exponent. Zero below -87.3, where the true value is subnormal; NaN stays NaN.
    #[inline(always)]
    fn exp(self) -> Self {
        const SHIFTER: f32 = 12_582_912.0; // 1.5 * 2^23: adding it leaves round(x) in the low bits of the mantissa
        const P: [f32; 5] = [0.499_999_93, 0.166_665_21, 0.041_668_39, 0.008_368_717_5, 0.001_381_459_4];
        let x = if self > 88.37 { 88.37 } else { self };
        let shifted = f32::mul_add(x, std::f32::consts::LOG2_E, SHIFTER);
        let n = shifted - SHIFTER;
        // ln 2 in two parts, the first exact in few bits, so that r keeps its low bits.
        let r = f32::mul_add(n, -0.693_359_4, x);
        let r = f32::mul_add(n, 2.121_944_4e-4, r);
        let mut p = P[4];
        p = f32::mul_add(p, r, P[3]);
        p = f32::mul_add(p, r, P[2]);
        p = f32::mul_add(p, r, P[1]);
        p = f32::mul_add(p, r, P[0]);
        let e_r = f32::mul_add(p, r * r, r) + 1.0;
        let two_n = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
        if self < -87.3 { 0.0 } else { e_r * two_n }
    }

    /// Phi(-u) = e^(-u^2/2) t Q(t) with t = 1 / (1 + 0.21 u), u = |x|: a polynomial Q of degree 8 (minimax, relative
    /// error 1.7e-8), so that the small tail keeps its relative accuracy. Phi(u) is its complement.
    #[inline(always)]
    fn normal_cdf_pdf(self) -> (Self, Self) {
        const Q: [f32; 9] = [
            0.083_711_57,
            0.085_068_872,
            0.069_192_076,
            0.124_873_08,
            -0.093_925_99,
            0.349_402_08,
            -0.330_254_26,
            0.283_588_96,
            -0.071_656_38,
        ];
        const INV_SQRT_TAU: f32 = 0.398_942_3;
        let u = f32::abs(self);
        let bell = Real::exp(-0.5 * u * u);
        let t = 1.0 / f32::mul_add(0.21, u, 1.0);
        let mut q = Q[8];
        q = f32::mul_add(q, t, Q[7]);
        q = f32::mul_add(q, t, Q[6]);
        q = f32::mul_add(q, t, Q[5]);
        q = f32::mul_add(q, t, Q[4]);
        q = f32::mul_add(q, t, Q[3]);
        q = f32::mul_add(q, t, Q[2]);
        q = f32::mul_add(q, t, Q[1]);
        q = f32::mul_add(q, t, Q[0]);
        let tail = bell * t * q;
        (if self < 0.0 { tail } else { 1.0 - tail }, bell * INV_SQRT_TAU)
    }

    fn slice(t: &Tensor) -> &[Self] {
        match t.storage() {
            Storage::F32(b) => b.as_slice(),
            Storage::F64(_) | Storage::Cuda(_) => mixed(),
        }
    }
    fn slice_mut(t: &mut Tensor) -> &mut [Self] {
        match t.storage_mut() {
            Storage::F32(b) => b.as_mut_slice(),
            Storage::F64(_) | Storage::Cuda(_) => mixed(),
        }
    }
    fn shelf(shelves: &Shelves) -> &Shelf<Self> {
        &shelves.f32
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const LOWEST: Self = f64::NEG_INFINITY;

    #[inline(always)]
    fn from_f64(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        f64::mul_add(self, a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn normal_cdf_pdf(self) -> (Self, Self) {
        const INV_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
        let cdf = 0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2);
        (cdf, INV_SQRT_TAU * f64::exp(-0.5 * self * self))
    }

    fn slice(t: &Tensor) -> &[Self] {
        match t.storage() {
            Storage::F64(b) => b.as_slice(),
            Storage::F32(_) | Storage::Cuda(_) => mixed(),
        }
    }
    fn slice_mut(t: &mut Tensor) -> &mut [Self] {
        match t.storage_mut() {
            Storage::F64(b) => b.as_mut_slice(),
            Storage::F32(_) | Storage::Cuda(_) => mixed(),
        }
    }
    fn shelf(shelves: &Shelves) -> &Shelf<Self> {
        &shelves.f64
    }
}

/// The elements of a buffer of either type, so that `Tensor` need not know the types one by one.
impl<T: Real> Buffer<T> {
    pub(crate) fn as_slice(&self) -> &[T] {
        self.elements()
    }
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        self.elements_mut()
    }
}

fn mixed() -> ! {
    panic!("an operation was given tensors of two devices or element types")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_in_single_precision_is_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in 0..2_000_000 {
            let x = -87.2 + f64::from(i) * (175.4 / 2e6);
            let x = x as f32;
            let (got, want) = (Real::exp(x).to_f64(), f64::from(x).exp());
            worst = worst.max((got / want - 1.0).abs());
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "{worst:e}");
        assert_eq!(Real::exp(0.0f32), 1.0);
        assert_eq!(Real::exp(f32::NEG_INFINITY), 0.0);
        assert!(Real::exp(f32::NAN).is_nan());
        assert!(Real::exp(200.0f32).is_finite(), "large arguments saturate");
    }

    #[test]
    fn normal_cdf_keeps_its_relative_accuracy_in_the_lower_tail() {
        for i in -1300..=800 {
            let x = f64::from(i) * 0.01;
            let x32 = x as f32;
            let ((cdf, pdf), (want_cdf, want_pdf)) = (x32.normal_cdf_pdf(), f64::from(x32).normal_cdf_pdf());
            // The exponent's own rounding, |x|^2/2 * eps, is part of any single-precision answer.
            let bound = (4.0 + 0.5 * x * x) * f64::from(f32::EPSILON);
            assert!((cdf.to_f64() / want_cdf - 1.0).abs() < bound, "cdf({x})");
            assert!((pdf.to_f64() / want_pdf - 1.0).abs() < bound, "pdf({x})");
        }
    }
}
