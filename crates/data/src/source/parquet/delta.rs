//! Whole numbers by their differences: "delta encoding" (`DELTA_BINARY_PACKED`) in the format's specification.
//!
//! The first value stands for itself. The others come in blocks: the smallest difference of the block, then in several
//! parts how much larger each difference is, in as many bits as the part needs. All sums wrap around.

use super::runs::{Packed, short, take, take_varint};
use super::thrift::{damage, signed};
use std::io;

/// Values in a part of a block are a multiple of this.
const PART: u64 = 32;

/// Values one after the other.
pub(super) struct Delta<'a> {
    rest: &'a [u8],
    /// Parts of a block, and values in each.
    parts: usize,
    part: u64,
    /// Values to come.
    left: u64,
    is_first: bool,
    /// The value before the next, or the first.
    value: i64,
    /// The smallest difference of this block.
    smallest: i64,
    /// Bits of a difference, for the parts of this block that are to come.
    widths: &'a [u8],
    packed: Packed<'a>,
}

impl<'a> Delta<'a> {
    pub(super) fn new(mut rest: &'a [u8]) -> io::Result<Self> {
        let [block, parts, left] = [take_varint(&mut rest)?, take_varint(&mut rest)?, take_varint(&mut rest)?];
        let value = signed(take_varint(&mut rest)?);
        let part = block.checked_div(parts).unwrap_or_default();
        if part == 0 || block % parts != 0 || part % PART != 0 {
            return Err(damage(format!("differences in blocks of {block} values and {parts} parts")));
        }
        let parts = usize::try_from(parts).map_err(|_| damage("a block of too many parts"))?;
        Ok(Self { rest, parts, part, left, is_first: true, value, smallest: 0, widths: &[], packed: Packed::default() })
    }

    pub(super) fn next(&mut self) -> io::Result<i64> {
        self.left = self.left.checked_sub(1).ok_or_else(short)?;
        if std::mem::take(&mut self.is_first) {
            return Ok(self.value);
        }
        loop {
            if let Some(more) = self.packed.next() {
                self.value = self.value.wrapping_add(self.smallest).wrapping_add(more as i64);
                return Ok(self.value);
            }
            self.next_part()?;
        }
    }

    fn next_part(&mut self) -> io::Result<()> {
        if self.widths.is_empty() {
            self.smallest = signed(take_varint(&mut self.rest)?);
            self.widths = take(&mut self.rest, self.parts)?;
        }
        let width = take(&mut self.widths, 1)?[0];
        if u32::from(width) > u64::BITS {
            return Err(damage(format!("differences of {width} bits")));
        }
        self.packed = Packed::take(&mut self.rest, self.part, width.into());
        // The end of the last part may be missing, but no value: the next part would be taken for this one's.
        if self.packed.left() < self.part.min(self.left + 1) {
            return Err(short());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All values up to the end or an error.
    fn all(bytes: &[u8]) -> Vec<i64> {
        let Ok(mut delta) = Delta::new(bytes) else { return Vec::new() };
        (0..999).map_while(|_| delta.next().ok()).collect()
    }

    /// 128 values a block in four parts, then how many values and which is first.
    const START: [u8; 3] = [0x80, 0x01, 4];

    #[test]
    fn steps_of_one_take_no_bits_as_in_the_first_example_of_the_specification() {
        // 1, 2, 3, 4, 5: the smallest difference is 1, and none is larger.
        assert_eq!(all(&[&START[..], &[5, 2, 2, 0, 0, 0, 0]].concat()), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn differences_above_the_smallest_as_in_the_second_example_of_the_specification() {
        // 7, 5, 3, 1, 2, 3, 4, 5: the smallest difference is -2, and 0 0 0 3 3 3 3 are on top, two bits each.
        let part = [0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0];
        let bytes = [&START[..], &[8, 14, 3, 2, 0, 0, 0], &part].concat();
        assert_eq!(all(&bytes), [7, 5, 3, 1, 2, 3, 4, 5]);
        // The end of the part may be missing, for it is nothing.
        assert_eq!(all(&bytes[..bytes.len() - 6]), [7, 5, 3, 1, 2, 3, 4, 5]);
        assert_eq!(all(&bytes[..bytes.len() - 7]), [7]);
    }

    #[test]
    fn a_value_alone_has_no_block_and_none_has_nothing() {
        assert_eq!(all(&[&START[..], &[1, 5]].concat()), [-3]);
        assert!(all(&[&START[..], &[0, 0]].concat()).is_empty());
    }

    #[test]
    fn parts_and_blocks_follow_each_other() {
        // 0 and then 130 values, each 1 more than the last; the 33rd difference is 2, in a part of one bit.
        // In the second block, nobody looks at the bits of parts that are not there.
        let bytes = [&START[..], &[0x83, 1, 0, 2, 0, 1, 0, 0, 1, 0, 0, 0], &[2, 0, 99, 99, 99]].concat();
        let expected: Vec<i64> = (0..131).map(|i| if i < 33 { i } else { i + 1 }).collect();
        assert_eq!(all(&bytes), expected);
    }

    #[test]
    fn differences_of_64_bits_wrap_around() {
        // From the largest value to the smallest: 1 more. Then to -1: 2^63 - 1 more.
        let largest = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let part = [&1u64.to_le_bytes()[..], &(i64::MAX as u64).to_le_bytes()].concat();
        let bytes = [&START[..], &[3], &largest, &[0, 64, 0, 0, 0], &part].concat();
        assert_eq!(all(&bytes), [i64::MAX, i64::MIN, -1]);
    }

    #[test]
    fn claims_are_errors_or_cost_nothing() {
        for [block, parts] in [[0, 4], [127, 0], [0, 0], [32, 3], [100, 4], [31, 1]] {
            assert!(Delta::new(&[block, parts, 5, 2]).is_err(), "{block} {parts}");
        }
        // A part of 65 bits; more parts than bytes; blocks of 2^56 values.
        assert_eq!(all(&[&START[..], &[5, 2, 2, 65, 0, 0, 0]].concat()), [1]);
        assert_eq!(all(&[0x80, 0x80, 0x80, 0x40, 0x80, 0x80, 0x80, 0x01, 5, 2, 2, 0]), [1]);
        let large = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01, 1, 4, 2, 2, 1, 0b101];
        assert_eq!(all(&large), [1, 3, 4, 6]);
        assert!(all(&[]).is_empty() && all(&[0x80]).is_empty());
    }
}
