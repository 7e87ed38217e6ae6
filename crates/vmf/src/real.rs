//! The two floating-point types, behind the few operations that the formulas need.

use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `f32` or `f64`; sealed, because the accuracy claims of this crate were checked for these two only.
pub trait Real:
    sealed::Sealed
    + Copy
    + Debug
    + PartialOrd
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
    /// The same value as `f64`, exactly.
    fn to_f64(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `e^self`.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// `ln(1 + self)`, accurate near zero.
    fn ln_1p(self) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! real {
    ($float:ident) => {
        impl Real for $float {
            #[inline]
            fn from_f64(value: f64) -> Self {
                value as $float
            }
            #[inline]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline]
            fn sqrt(self) -> Self {
                $float::sqrt(self)
            }
            #[inline]
            fn exp(self) -> Self {
                $float::exp(self)
            }
            #[inline]
            fn ln(self) -> Self {
                $float::ln(self)
            }
            #[inline]
            fn ln_1p(self) -> Self {
                $float::ln_1p(self)
            }
        }
    };
}

real!(f32);
real!(f64);
