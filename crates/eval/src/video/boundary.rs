//! The boundary of a mask, and how well two of them agree (F of the DAVIS benchmark).
//!
//! Masks are packed, 64 pixels in a word, so that a shift is a step to the side and a bitwise OR unites 64 pixels. A disk is
//! a stack of horizontal runs: a row is widened step by step, and each width goes to the rows above and below that the disk
//! has it in. That is the dilation by the disk exactly, at some 2 r operations for 64 pixels in place of its area for each.

use data::Image;

/// Share of an image's diagonal that two boundaries may lie apart.
const TOLERANCE: f64 = 0.008;

/// The pixels of one object, or of a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    /// (height, width).
    size: (usize, usize),
    /// Words of a row.
    stride: usize,
    /// The first pixel of a row is the lowest bit of its first word. Bits past the end of a row are zero.
    words: Vec<u64>,
}

impl Bits {
    fn empty(size: (usize, usize)) -> Self {
        let stride = size.1.div_ceil(64);
        Self { size, stride, words: vec![0; stride * size.0] }
    }

    /// The pixels that have this label.
    pub fn of_label(labels: &Image, label: u8) -> Self {
        let mut bits = Self::empty((labels.height, labels.width));
        for (y, row) in bits.words.chunks_exact_mut(bits.stride).enumerate() {
            for (word, pixels) in row.iter_mut().zip(labels.row(y).chunks(64)) {
                let (eights, rest) = pixels.as_chunks::<8>();
                // Most of a frame is inside or outside, far from any edge.
                if rest.is_empty() && is_one(eights) {
                    *word = if pixels[0] == label { u64::MAX >> (64 - pixels.len()) } else { 0 };
                    continue;
                }
                for (i, eight) in eights.iter().enumerate() {
                    *word |= u64::from(equal(u64::from_le_bytes(*eight), label)) << (8 * i);
                }
                for (i, &pixel) in rest.iter().enumerate() {
                    *word |= u64::from(pixel == label) << (8 * eights.len() + i);
                }
            }
        }
        bits
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How many are in both, and how many in either.
    pub fn common_and_all(&self, other: &Bits) -> (u64, u64) {
        self.words.iter().zip(&other.words).fold((0, 0), |(common, all), (a, b)| {
            (common + u64::from((a & b).count_ones()), all + u64::from((a | b).count_ones()))
        })
    }

    fn row(&self, y: usize) -> &[u64] {
        &self.words[y * self.stride..(y + 1) * self.stride]
    }

    /// The boundary: pixels that differ from the one to the right, below, or right below them. In the last row only the
    /// first counts, in the last column only the second.
    pub fn boundary(&self) -> Bits {
        let (height, width) = self.size;
        let mut edges = Bits::empty(self.size);
        // All columns but the last.
        let inner = |word: usize| match width - 1 {
            last if last >= 64 * (word + 1) => u64::MAX,
            last if last <= 64 * word => 0,
            last => (1 << (last - 64 * word)) - 1,
        };
        for y in 0..height {
            let row = self.row(y);
            let below = if y + 1 < height { self.row(y + 1) } else { row };
            // Where the object is not, as in most rows, there is no boundary.
            if row.iter().chain(below).fold(0, |any, word| any | word) == 0 {
                continue;
            }
            for (at, edge) in edges.words[y * self.stride..].iter_mut().take(self.stride).enumerate() {
                let right = |row: &[u64]| row[at] >> 1 | row.get(at + 1).map_or(0, |next| next << 63);
                // Of the last row `below` is the row itself, so that only what is to the right can differ.
                let beside = (row[at] ^ right(row)) | (row[at] ^ right(below));
                *edge = beside & inner(at) | (row[at] ^ below[at]);
            }
        }
        edges
    }

    /// Everything within `radius` of it: the dilation by the disk dx^2 + dy^2 <= radius^2.
    pub fn dilated(&self, radius: usize) -> Bits {
        let mut wide = Bits::empty(self.size);
        let (height, stride) = (self.size.0, self.stride);
        // Half the width of the disk at each distance from its centre row.
        let half_width = |dy: usize| (0..=radius).rev().find(|dx| dx * dx + dy * dy <= radius * radius).unwrap_or(0);
        let half_widths: Vec<usize> = (0..=radius).map(half_width).collect();
        let mut run = Vec::new();
        for y in 0..height {
            let row = self.row(y);
            let is_there = |word: &u64| *word != 0;
            let (Some(first), Some(last)) = (row.iter().position(is_there), row.iter().rposition(is_there)) else {
                continue;
            };
            // What the widest run can reach.
            let (first, end) = (first.saturating_sub(radius / 64 + 1), (last + radius / 64 + 2).min(stride));
            run.clear();
            run.extend_from_slice(&row[first..end]);
            let mut width = 0;
            for dy in (0..=radius).rev() {
                while width < half_widths[dy] {
                    widen(&mut run);
                    width += 1;
                }
                let above = y.checked_sub(dy);
                for to in above.into_iter().chain((dy > 0 && y + dy < height).then_some(y + dy)) {
                    let to = &mut wide.words[to * stride + first..to * stride + end];
                    to.iter_mut().zip(&run).for_each(|(to, from)| *to |= from);
                }
            }
        }
        wide
    }

    /// How many are also in `other`, where that may have bits past the ends of rows.
    fn common(&self, other: &Bits) -> u64 {
        self.common_and_all(other).0
    }
}

/// Whether all pixels have one label.
#[inline]
fn is_one(eights: &[[u8; 8]]) -> bool {
    let all = u64::from_le_bytes([eights[0][0]; 8]);
    eights.iter().fold(0, |differs, eight| differs | (u64::from_le_bytes(*eight) ^ all)) == 0
}

/// Which of eight bytes equal `label`, one bit each.
#[inline]
fn equal(bytes: u64, label: u8) -> u8 {
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    let difference = bytes ^ u64::from_le_bytes([label; 8]);
    // The high bit of each byte that is zero, and no other bit.
    let zeros = !(((difference & LOW) + LOW) | difference | LOW);
    // The multiplication moves the eight bits to the top, each to its place.
    ((zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// One pixel more on either side. Bits beyond the ends may be set or lost: each run grows from its own ends, so that no bit
/// inside depends on one outside.
fn widen(row: &mut [u64]) {
    let mut before = 0;
    for at in 0..row.len() {
        let (word, after) = (row[at], row.get(at + 1).copied().unwrap_or(0));
        row[at] = word | word << 1 | word >> 1 | before >> 63 | after << 63;
        before = word;
    }
}

/// How far apart, in pixels, boundaries in an image of (height, width) may lie: ceil(0.008 * diagonal).
pub(super) fn tolerance((height, width): (usize, usize)) -> usize {
    (TOLERANCE * (height as f64).hypot(width as f64)).ceil() as usize
}

/// F of two masks of one size: the harmonic mean of precision |b_P & dilated(b_G)| / |b_P| and recall
/// |b_G & dilated(b_P)| / |b_G| of their boundaries b.
pub(super) fn f_measure(result: &Bits, truth: &Bits) -> f64 {
    let (result, truth) = (result.boundary(), truth.boundary());
    let radius = tolerance(result.size);
    let (precision, recall) = match (result.count(), truth.count()) {
        (0, 0) => (1.0, 1.0),
        (0, _) => (1.0, 0.0),
        (_, 0) => (0.0, 1.0),
        (of_result, of_truth) => (
            result.common(&truth.dilated(radius)) as f64 / of_result as f64,
            truth.common(&result.dilated(radius)) as f64 / of_truth as f64,
        ),
    };
    if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    fn noise(size: (usize, usize), share: f64, seed: u64) -> Image {
        let mut numbers = Key::new(seed, Purpose::Bench).stream();
        let pixels = (0..size.0 * size.1).map(|_| u8::from(numbers.uniform() < share)).collect();
        Image::from_pixels(size.1, size.0, 1, pixels)
    }

    fn plain(bits: &Bits) -> Vec<Vec<bool>> {
        let (height, width) = bits.size;
        (0..height).map(|y| (0..width).map(|x| bits.row(y)[x / 64] >> (x % 64) & 1 == 1).collect()).collect()
    }

    const SIZES: [(usize, usize); 8] = [(1, 1), (1, 70), (65, 1), (2, 64), (9, 65), (30, 63), (40, 200), (17, 129)];

    #[test]
    fn packing_finds_every_label_whatever_the_width() {
        for (seed, size) in SIZES.into_iter().enumerate() {
            let mut labels = noise(size, 0.5, seed as u64);
            labels.pixels.iter_mut().enumerate().for_each(|(i, p)| *p *= [1, 2, 127, 128, 129, 255][i % 6]);
            for label in [0, 1, 2, 127, 128, 129, 254, 255] {
                let bits = Bits::of_label(&labels, label);
                let want: Vec<Vec<bool>> =
                    (0..size.0).map(|y| labels.row(y).iter().map(|&p| p == label).collect()).collect();
                assert_eq!(plain(&bits), want, "{size:?} {label}");
                let set = want.iter().flatten().filter(|&&p| p).count() as u64;
                assert_eq!(bits.count(), set, "no bits past the ends of rows: {size:?} {label}");
            }
        }
    }

    #[test]
    fn the_boundary_is_that_of_the_definition() {
        for (seed, size) in SIZES.into_iter().enumerate() {
            let mask = Bits::of_label(&noise(size, 0.7, seed as u64), 1);
            let s = plain(&mask);
            let (height, width) = size;
            let edge = |y: usize, x: usize| match (y + 1 < height, x + 1 < width) {
                (true, true) => s[y][x] != s[y][x + 1] || s[y][x] != s[y + 1][x] || s[y][x] != s[y + 1][x + 1],
                (false, true) => s[y][x] != s[y][x + 1],
                (true, false) => s[y][x] != s[y + 1][x],
                (false, false) => false,
            };
            let want: Vec<Vec<bool>> = (0..height).map(|y| (0..width).map(|x| edge(y, x)).collect()).collect();
            let found = mask.boundary();
            assert_eq!(plain(&found), want, "{size:?}");
            assert_eq!(found.count(), want.iter().flatten().filter(|&&p| p).count() as u64);
        }
    }

    #[test]
    fn the_dilation_is_that_by_a_disk_pixel_for_pixel() {
        for (seed, size) in SIZES.into_iter().enumerate() {
            for radius in [0, 1, 2, 3, 8, 9, 63, 64, 65, 130] {
                let bits = Bits::of_label(&noise(size, 0.01, seed as u64 + 7), 1);
                let set: Vec<(i64, i64)> = plain(&bits)
                    .iter()
                    .enumerate()
                    .flat_map(|(y, row)| {
                        row.iter().enumerate().filter(|(_, p)| **p).map(move |(x, _)| (y as i64, x as i64))
                    })
                    .collect();
                let r = (radius * radius) as i64;
                let near = |y: i64, x: i64| set.iter().any(|&(v, u)| (v - y).pow(2) + (u - x).pow(2) <= r);
                let want: Vec<Vec<bool>> =
                    (0..size.0 as i64).map(|y| (0..size.1 as i64).map(|x| near(y, x)).collect()).collect();
                assert_eq!(plain(&bits.dilated(radius)), want, "{size:?} radius {radius}");
            }
        }
    }

    #[test]
    fn the_tolerance_is_that_of_the_benchmark() {
        assert_eq!([tolerance((480, 854)), tolerance((480, 910)), tolerance((1, 1))], [8, 9, 1]);
    }

    #[test]
    fn empty_boundaries_agree_with_each_other_alone() {
        let (none, all) = (Bits::empty((20, 30)), Bits::of_label(&noise((20, 30), 2.0, 0), 1));
        let some = Bits::of_label(&noise((20, 30), 0.1, 3), 1);
        assert_eq!(f_measure(&none, &none), 1.0);
        assert_eq!(f_measure(&none, &all), 1.0, "a full mask has no boundary either");
        assert_eq!(f_measure(&none, &some), 0.0);
        assert_eq!(f_measure(&some, &none), 0.0);
        assert_eq!(f_measure(&some, &some), 1.0);
    }
}
