//! How exactly gradients travel between processes.

use half::bf16;

/// How exactly gradients travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// As they were computed.
    #[default]
    Exact,
    /// Rounded to bfloat16: those of each process before they are added up, which is done exactly, and their sum once more.
    /// Half the bytes.
    Bf16,
}

/// Numbers rounded to bfloat16, to the nearest and of two such to the even one.
pub(super) fn rounded(numbers: impl Iterator<Item = f64>) -> Vec<u16> {
    numbers.map(|number| bf16::from_f32(number as f32).to_bits()).collect()
}

/// What a number means on the wire.
pub(super) fn number(bits: u16) -> f64 {
    bf16::from_bits(bits).to_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_loses_at_most_half_of_its_last_place() {
        for i in -2000..2000 {
            let exact = f64::from(i) * 0.37 + 0.001;
            let travelled = number(rounded([exact].into_iter())[0]);
            assert!((travelled - exact).abs() <= exact.abs() / 256.0, "{travelled} is not {exact}");
            assert_eq!(rounded([travelled].into_iter()), rounded([exact].into_iter()), "once is enough");
        }
        assert!(number(rounded([f64::NAN].into_iter())[0]).is_nan());
        assert_eq!(number(rounded([1e300].into_iter())[0]), f64::INFINITY);
    }
}
