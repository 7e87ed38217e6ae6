//! Levels of a page: which of its values are there, and which begin a row. Runs of one level, and levels bit by bit.

use std::io;

use crate::thrift::damage;

/// The levels of a page, a run at a time. Nothing is taken for what a run claims.
#[derive(Debug)]
pub(super) struct Levels<'a> {
    bytes: &'a [u8],
    /// Bits of a level.
    width: u32,
    /// Levels that are still to come.
    left: usize,
    /// Levels of the bit-packed group that is being read: bits, and how many are left in it.
    packed: (&'a [u8], usize, usize),
}

impl<'a> Levels<'a> {
    /// So many levels up to `highest`, taken from the beginning of `body`, which is left behind them.
    pub(super) fn take(body: &mut &'a [u8], highest: u32, count: usize) -> io::Result<Self> {
        let width = u32::BITS - highest.leading_zeros();
        let length: [u8; 4] = body.first_chunk().copied().ok_or_else(short)?;
        let bytes = body[4..].get(..u32::from_le_bytes(length) as usize).ok_or_else(short)?;
        *body = &body[4 + bytes.len()..];
        Ok(Self { bytes, width, left: count, packed: (&[], 0, 0) })
    }

    /// The next run: how many levels, and which. None behind the last.
    pub(super) fn next(&mut self) -> io::Result<Option<(usize, u32)>> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.packed.2 == 0 {
            let header = self.varint()?;
            let count = header >> 1;
            if header & 1 == 0 {
                let size = self.width.div_ceil(8) as usize;
                let level = self.bytes.get(..size).ok_or_else(short)?;
                self.bytes = &self.bytes[size..];
                let level = level.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                if count == 0 || count > self.left {
                    return Err(damage("levels of more values than there are"));
                }
                self.left -= count;
                return Ok(Some((count, level)));
            }
            // Groups of eight levels; the last may reach beyond what is there.
            let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(self.width as usize));
            let bits = bytes.and_then(|bytes| self.bytes.get(..bytes)).ok_or_else(short)?;
            self.bytes = &self.bytes[bits.len()..];
            self.packed = (bits, 0, count as usize * 8);
            if self.packed.2 == 0 {
                return Err(damage("a group of no levels"));
            }
        }
        let (bits, at, left) = &mut self.packed;
        let bit = |place: usize| u32::from(bits.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1));
        let level = (0..self.width).fold(0, |all, i| all | bit(*at + i as usize) << i);
        *at += self.width as usize;
        *left -= 1;
        self.left -= 1;
        Ok(Some((1, level)))
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or_else(short)?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damage("a run that is longer than any"))
    }
}

pub(super) fn short() -> io::Error {
    damage("a page ends too early")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut body: &[u8], highest: u32, count: usize) -> io::Result<Vec<(usize, u32)>> {
        let (mut levels, mut found) = (Levels::take(&mut body, highest, count)?, Vec::new());
        while let Some(run) = levels.next()? {
            found.push(run);
        }
        Ok(found)
    }

    #[test]
    fn runs_and_bits_are_read_as_they_follow_each_other() {
        // Three times level 1; then eight levels of one bit, of which five are there.
        assert_eq!(
            all(&[4, 0, 0, 0, 6, 1, 3, 0b0000_1010, 9], 1, 8).unwrap(),
            [(3, 1), (1, 0), (1, 1), (1, 0), (1, 1), (1, 0)]
        );
        assert_eq!(all(&[3, 0, 0, 0, 3, 0b1110_0100, 0], 3, 4).unwrap(), [(1, 0), (1, 1), (1, 2), (1, 3)]);
        assert!(all(&[0, 0, 0, 0], 1, 0).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_there_is_not_believed() {
        for (body, count) in [
            (&[4, 0, 0][..], 1),
            (&[200, 0, 0, 0, 6, 1], 1),
            (&[2, 0, 0, 0, 8, 1], 3),
            (&[2, 0, 0, 0, 0, 1], 3),
            (&[1, 0, 0, 0, 6], 3),
            (&[1, 0, 0, 0, 1], 3),
            (&[2, 0, 0, 0, 5, 1], 20),
            (&[10, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], 3),
        ] {
            assert!(all(body, 1, count).is_err(), "{body:?}");
        }
    }
}
