//! Reading here and there in a file: near places from one large read, far ones with small reads.
//!
//! An archive of thumbnails is read from front to back, one of photographs is skipped through; neither reads much more
//! than it needs.

use std::io::{self, Read, Seek, SeekFrom};

/// A header, and usually the records or the name that come with it.
const LEAST: usize = 2 << 10;
const MOST: usize = 256 << 10;

/// A file seen through a window.
pub(super) struct Window<R> {
    input: R,
    /// Length of the file.
    pub length: u64,
    /// Bytes in view, and where they start.
    bytes: Vec<u8>,
    start: u64,
    /// How much to read next.
    size: usize,
}

impl<R: Read + Seek> Window<R> {
    pub(super) fn new(mut input: R) -> io::Result<Self> {
        let length = input.seek(SeekFrom::End(0))?;
        Ok(Self { input, length, bytes: Vec::new(), start: 0, size: LEAST })
    }

    /// `count` bytes from `offset`, or fewer at the end of the file.
    pub(super) fn view(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let left = self.length.saturating_sub(offset);
        let count = usize::try_from(left).map_or(count, |left| left.min(count));
        // Nothing there, and perhaps too far for the system to seek to.
        if count == 0 {
            return Ok(&[]);
        }
        if self.within(offset, count).is_none() {
            let end = self.start + self.bytes.len() as u64;
            let near = offset >= self.start && offset <= end.saturating_add(self.size as u64);
            self.size = if near { (self.size * 2).min(MOST) } else { LEAST };
            self.bytes.clear();
            self.start = offset;
            self.input.seek(SeekFrom::Start(offset))?;
            let wanted = self.size.max(count);
            (&mut self.input).take(wanted as u64).read_to_end(&mut self.bytes)?;
        }
        // Shorter than the length only if the file shrank a moment ago.
        let range = self.within(offset, count).unwrap_or(0..0);
        Ok(&self.bytes[range])
    }

    fn within(&self, offset: u64, count: usize) -> Option<std::ops::Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(count)?;
        (to <= self.bytes.len()).then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_window_shows_the_same_bytes_wherever_it_was_before() {
        let file: Vec<u8> = (0..1_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut window = Window::new(Cursor::new(&file)).unwrap();
        let near = (0..2000).map(|i| (i * 700, 512));
        let far = (0..50).map(|i| ((i * 7919 * 131) % 1_000_000, 3000));
        for (offset, count) in near.chain(far).chain([(0, 1), (999_999, 512), (1_000_000, 5), (u64::MAX as usize, 5)]) {
            let expected = file.get(offset.min(file.len())..offset.saturating_add(count).min(file.len())).unwrap();
            assert_eq!(window.view(offset as u64, count).unwrap(), expected, "{offset} {count}");
        }
    }
}
