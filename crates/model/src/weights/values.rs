//! The elements of a tensor, out of the bytes of a file.

use std::fmt;
use std::ops::Range;

use files::safetensors::Dtype;
use half::{bf16, f16};
use tensor::Tensor;

/// Type of a tensor's elements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// 64-bit float.
    F64,
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// The upper half of a 32-bit float.
    Bf16,
    /// Anything else, by the format's name for it: no weights.
    Other(String),
}

impl Element {
    pub(super) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 => Element::F64,
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::BF16 => Element::Bf16,
            other => Element::Other(other.to_string()),
        }
    }
}

impl Element {
    /// Whether these are numbers that weights may be.
    pub fn is_float(&self) -> bool {
        self.size().is_some()
    }

    /// Bytes of one element; none of a type that is no weight.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Element::F64 => Some(8),
            Element::F32 => Some(4),
            Element::F16 | Element::Bf16 => Some(2),
            Element::Other(_) => None,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F64 => "F64",
            Element::F32 => "F32",
            Element::F16 => "F16",
            Element::Bf16 => "BF16",
            Element::Other(name) => name,
        })
    }
}

/// The elements of a tensor, without loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// From F32, F16 or BF16.
    F32(Vec<f32>),
    /// From F64.
    F64(Vec<f64>),
}

impl Values {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F64(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In single precision, rounded where they are in double.
    pub fn into_f32(self) -> Vec<f32> {
        match self {
            Values::F32(values) => values,
            Values::F64(values) => values.into_iter().map(|value| value as f32).collect(),
        }
    }

    /// Into a parameter of as many elements.
    pub(super) fn copy_to(&self, parameter: &mut Tensor) {
        match self {
            Values::F32(values) => parameter.copy_from_f32(values),
            Values::F64(values) => parameter.copy_from_f64(values),
        }
    }

    fn into_f64(self) -> Vec<f64> {
        match self {
            Values::F32(values) => values.into_iter().map(f64::from).collect(),
            Values::F64(values) => values,
        }
    }

    /// One after another; in double precision where one of them is.
    pub(super) fn joined(parts: Vec<Values>) -> Self {
        if parts.iter().any(|part| matches!(part, Values::F64(_))) {
            return Values::F64(parts.into_iter().flat_map(Values::into_f64).collect());
        }
        let single = |part| match part {
            Values::F32(values) => values,
            Values::F64(_) => Vec::new(),
        };
        Values::F32(parts.into_iter().flat_map(single).collect())
    }

    /// Some of them.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Values::F32(values) => Values::F32(values[range].to_vec()),
            Values::F64(values) => Values::F64(values[range].to_vec()),
        }
    }

    /// Element by element.
    pub(super) fn plus(self, other: &Values) -> Self {
        match (self, other) {
            (Values::F32(a), Values::F32(b)) => Values::F32(a.iter().zip(b).map(|(a, b)| a + b).collect()),
            (a, b) => Values::F64(a.into_f64().iter().zip(b.clone().into_f64()).map(|(a, b)| a + b).collect()),
        }
    }
}

/// Whether single-precision numbers, little-endian, are all finite: no exponent is all ones.
pub(super) fn is_finite(bytes: &[u8]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    let numbers = bytes.as_chunks().0.iter().map(|number| u32::from_le_bytes(*number));
    // No early end, so that it runs in vectors.
    !numbers.fold(false, |is_odd, bits| is_odd | (bits & EXPONENT == EXPONENT))
}

/// Elements from little-endian bytes, and whether all are finite, in single precision too. Other types than the four have none.
pub(super) fn convert(element: &Element, bytes: &[u8]) -> (Values, bool) {
    let single = |values: Vec<f32>| {
        let finite = values.iter().all(|x| x.is_finite());
        (Values::F32(values), finite)
    };
    match element {
        Element::F64 => {
            let values: Vec<f64> = bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
            // Beyond single precision it would be infinite where the network computes.
            let finite = values.iter().all(|&x| (x as f32).is_finite());
            (Values::F64(values), finite)
        }
        Element::F32 => single(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        Element::F16 => single(bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect()),
        Element::Bf16 => single(bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect()),
        Element::Other(_) => single(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_becomes_single_without_loss() {
        let bits: [u16; 4] = [0x3c00, 0xc500, 0x0001, 0x7bff];
        let bytes: Vec<u8> = bits.iter().flat_map(|b| b.to_le_bytes()).collect();
        // IEEE 754 binary16: 1, -5, the smallest subnormal 2^-24, the largest value 65504.
        let (values, finite) = convert(&Element::F16, &bytes);
        assert_eq!((values, finite), (Values::F32(vec![1.0, -5.0, 2f32.powi(-24), 65504.0]), true));
        let (values, finite) = convert(&Element::Bf16, &0x40a0u16.to_le_bytes());
        assert_eq!((values, finite), (Values::F32(vec![5.0]), true));
        assert!(!convert(&Element::F16, &0x7c00u16.to_le_bytes()).1, "infinity");
        assert!(!convert(&Element::Bf16, &0x7fc0u16.to_le_bytes()).1, "not a number");
        let double = |value: f64| convert(&Element::F64, &value.to_le_bytes());
        assert_eq!(double(-3.4e38), (Values::F64(vec![-3.4e38]), true));
        assert!(!double(1e39).1 && !double(f64::NAN).1, "no number of single precision");
        let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
        assert!(is_finite(&bytes([0.0, f32::MAX, -f32::MIN_POSITIVE])));
        assert!(!is_finite(&bytes([0.0, f32::NEG_INFINITY, 1.0])) && !is_finite(&bytes([f32::NAN, 0.0, 1.0])));
    }
}
