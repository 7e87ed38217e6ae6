//! Small numbers in as many bits as they need, and runs of them: levels, and references to a dictionary.
//!
//! "RLE / bit-packing hybrid" in the format's specification. A run is a value that is repeated, or a list of values. How
//! long it claims to be costs nothing: values are given one by one, and a list ends with its bytes.

use super::thrift::{damage, varint};
use std::io;

/// The most bits that a number may take in runs.
pub(super) const MOST_BITS: u32 = u32::BITS;

/// Takes so many bytes off the front, where there are so many.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    bytes.split_off(..count).ok_or_else(short)
}

/// The error of a page that ends where a value should be.
pub(super) fn short() -> io::Error {
    damage("a page ends before its values do")
}

/// Takes a number of variable length off the front.
pub(super) fn take_varint(bytes: &mut &[u8]) -> io::Result<u64> {
    varint(|| take(bytes, 1).map(|byte| byte[0]))
}

/// Numbers of `width` bits each, no more than 64, the lowest bit first.
#[derive(Default)]
pub(super) struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
    /// The first bit that has not been read.
    at: usize,
    left: u64,
}

impl<'a> Packed<'a> {
    /// Takes `count` numbers off the front of `bytes`; fewer where these end, for some writers do not fill up the last
    /// group.
    pub(super) fn take(bytes: &mut &'a [u8], count: u64, width: u32) -> Self {
        let size = count.saturating_mul(width.into()).div_ceil(8).min(bytes.len() as u64);
        let (taken, rest) = bytes.split_at(size as usize);
        *bytes = rest;
        let left = (size * 8).checked_div(width.into()).map_or(count, |fit| fit.min(count));
        Self { bytes: taken, width, at: 0, left }
    }

    /// Numbers to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        // 64 bits that do not start with a byte lie in nine of them.
        let mut window = [0; 16];
        let bytes = &self.bytes[self.at / 8..];
        let bytes = &bytes[..bytes.len().min(9)];
        window[..bytes.len()].copy_from_slice(bytes);
        let value = u128::from_le_bytes(window) >> (self.at % 8) & ((1 << self.width) - 1);
        self.at += self.width as usize;
        Some(value as u64)
    }
}

/// Runs of numbers of so many bits.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
    width: u32,
    /// A value and how often it is still to be given.
    same: (u32, u64),
    packed: Packed<'a>,
}

impl<'a> Runs<'a> {
    /// `width` has to be no more than [`MOST_BITS`].
    pub(super) fn new(bytes: &'a [u8], width: u32) -> Self {
        debug_assert!(width <= MOST_BITS);
        Self { rest: bytes, width, same: (0, 0), packed: Packed::default() }
    }

    pub(super) fn next(&mut self) -> io::Result<u32> {
        loop {
            if let (value, left @ 1..) = &mut self.same {
                *left -= 1;
                return Ok(*value);
            }
            if let Some(value) = self.packed.next() {
                return Ok(value as u32);
            }
            let start = take_varint(&mut self.rest)?;
            if start & 1 == 1 {
                self.packed = Packed::take(&mut self.rest, (start >> 1).saturating_mul(8), self.width);
            } else {
                let bytes = take(&mut self.rest, self.width.div_ceil(8) as usize)?;
                let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
                self.same = (value, start >> 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers up to the end or an error, `most` at most.
    fn all(bytes: &[u8], width: u32, most: usize) -> Vec<u32> {
        let mut runs = Runs::new(bytes, width);
        (0..most).map_while(|_| runs.next().ok()).collect()
    }

    #[test]
    fn eight_numbers_of_three_bits_are_the_example_of_the_specification() {
        assert_eq!(all(&[0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010], 3, 9), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_repeated_value_takes_whole_bytes_the_lowest_first() {
        assert_eq!(all(&[5 << 1, 1], 1, 9), [1; 5]);
        assert_eq!(all(&[2 << 1, 0x34, 0x12], 13, 9), [0x1234; 2]);
        assert_eq!(all(&[1 << 1, 0x78, 0x56, 0x34, 0x12], 32, 9), [0x1234_5678]);
        // 200 times, as a number of two bytes.
        assert_eq!(all(&[0b1001_0000, 0b11, 7], 3, 201), [7; 200]);
    }

    #[test]
    fn runs_of_both_kinds_follow_each_other() {
        let bytes = [3 << 1, 1, 0b11, 0b1010_1010, 0 << 1, 0, 2 << 1, 0];
        assert_eq!(all(&bytes, 1, 99), [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]);
    }

    #[test]
    fn numbers_of_no_bits_are_all_zero() {
        assert_eq!(all(&[3 << 1, 1 << 1 | 1], 0, 99), [0; 11]);
    }

    #[test]
    fn numbers_of_every_width_come_back() {
        for width in 1..=32 {
            let numbers: Vec<u32> = (0..32u32).map(|i| i.wrapping_mul(0x9E37_79B9) >> (32 - width)).collect();
            let mut bits = vec![false; 0];
            numbers.iter().for_each(|number| bits.extend((0..width).map(|bit| number >> bit & 1 == 1)));
            let packed = bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit)));
            let bytes: Vec<u8> = [4 << 1 | 1].into_iter().chain(packed).collect();
            assert_eq!(all(&bytes, width, 99), numbers, "{width} bits");
        }
    }

    #[test]
    fn a_list_ends_with_its_bytes_whatever_it_claims() {
        // 2^62 groups of eight, and bytes for ten numbers of three bits.
        let mut bytes = vec![0xff; 8];
        bytes.extend([0x7f, 0b1000_1000, 0b1100_0110, 0b1111_1010, 0b1000]);
        assert_eq!(all(&bytes, 3, 99), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
        assert!(all(&[0xff; 9], 3, 99).is_empty());
        assert!(all(&[], 3, 99).is_empty());
        assert!(all(&[5 << 1, 1], 9, 99).is_empty());
    }
}
