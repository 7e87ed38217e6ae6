//! Rows of RGB pixels resampled with AVX2: four taps of an output pixel in one vector.
//!
//! A weight has 24 bits and the fast multiplication takes 16, so every weight is split: w = 2048 high + low. Both sums
//! are exact, and so is what they make together.

use super::passes::Region;
use super::taps::{BITS, HALF, Taps};
use std::arch::x86_64::*;

/// Bits of the low part of a weight.
const LOW_BITS: i32 = 11;
/// Taps in a vector.
const GROUP: usize = 4;
/// Bytes of a group's pixels.
const GROUP_BYTES: usize = GROUP * 3;
/// Bytes that are loaded for a group.
const LOADED: usize = 16;

/// The weights of [`Taps`] in the order of the vectors, and the rows that end too early to be loaded from.
#[derive(Default)]
pub(super) struct RgbRows {
    /// For every group of four taps the high parts, then the low parts.
    weights: Vec<[[i16; 16]; 2]>,
    padded: Vec<u8>,
}

impl RgbRows {
    /// Resamples every row. False where this machine or this image is not for this kernel, and nothing was done.
    pub(super) fn horizontal(&mut self, region: Region<'_>, taps: &Taps, out: &mut [u8]) -> bool {
        if region.channels != 3 || simd::level() < simd::Level::Avx2 {
            return false;
        }
        let groups = taps.stride() / GROUP;
        self.weights.clear();
        self.weights
            .extend(taps.weights().as_chunks::<GROUP>().0.iter().map(|w| [w.map(high), w.map(low)].map(spread)));
        // How far the last load of a row reaches.
        let reach = (0..taps.len()).map(|o| taps.first(o)).max().unwrap_or(0) * 3 + (groups - 1) * GROUP_BYTES + LOADED;
        for (y, out) in out.chunks_exact_mut(taps.len() * 3).enumerate() {
            // Loads run on into the next row, against weights of zero. The last rows have nothing behind them.
            let mut row = region.rows_from(y);
            if row.len() < reach {
                self.padded.clear();
                self.padded.extend_from_slice(region.row(y));
                self.padded.resize(reach, 0);
                row = &self.padded;
            }
            // SAFETY: the processor has AVX2, as `level` found out, and `reach` was taken over all output positions.
            unsafe { resample(row, reach, taps, &self.weights, groups, out) };
        }
        true
    }
}

fn high(w: i32) -> i16 {
    (w >> LOW_BITS) as i16
}

fn low(w: i32) -> i16 {
    (w & ((1 << LOW_BITS) - 1)) as i16
}

/// Taps 0 and 1 side by side for each channel in the lower half, taps 2 and 3 in the upper.
fn spread(w: [i16; GROUP]) -> [i16; 16] {
    let [a, b, c, d] = w;
    [a, b, a, b, a, b, 0, 0, c, d, c, d, c, d, 0, 0]
}

/// Resamples one row.
///
/// # Safety
/// The processor has AVX2, and for every output position the row has 16 bytes from each of its groups of taps on: `reach`
/// is the largest such end.
#[target_feature(enable = "avx2")]
unsafe fn resample(row: &[u8], reach: usize, taps: &Taps, weights: &[[[i16; 16]; 2]], groups: usize, out: &mut [u8]) {
    assert!(row.len() >= reach && weights.len() == taps.len() * groups);
    const Z: i8 = -1;
    // Bytes of two pixels to 16-bit pairs: R0 R1 G0 G1 B0 B1 in the lower half, R2 R3 G2 G3 B2 B3 in the upper.
    let pairs = _mm256_setr_epi8(
        0, Z, 3, Z, 1, Z, 4, Z, 2, Z, 5, Z, Z, Z, Z, Z, 6, Z, 9, Z, 7, Z, 10, Z, 8, Z, 11, Z, Z, Z, Z, Z,
    );
    let half = _mm256_setr_epi32(HALF, HALF, HALF, 0, 0, 0, 0, 0);
    // Adds the halves of two output pixels and rounds: the first in the lower half, the second in the upper.
    let join = |a: __m256i, b: __m256i| {
        let lower = _mm256_permute2x128_si256::<0x20>(a, b);
        let upper = _mm256_permute2x128_si256::<0x31>(a, b);
        _mm256_srai_epi32::<{ BITS as i32 }>(_mm256_add_epi32(lower, upper))
    };
    // Drops the fourth byte of four pixels.
    let close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, Z, Z, Z, Z);
    let last = taps.len() - 1;
    for (four, out) in out.chunks_mut(GROUP_BYTES).enumerate() {
        // For each output pixel its sums of red, green and blue in both halves, still to be added. A loop rather than a
        // function: the compiler does not inline one that needs AVX2, and a call costs as much as the sums.
        let mut totals = [_mm256_setzero_si256(); GROUP];
        for (i, total) in totals.iter_mut().enumerate() {
            // Positions behind the last are worked out again and dropped.
            let position = (four * GROUP + i).min(last);
            let start = taps.first(position) * 3;
            let (mut high, mut low) = (_mm256_setzero_si256(), half);
            for (group, [w_high, w_low]) in weights[position * groups..(position + 1) * groups].iter().enumerate() {
                debug_assert!(start + group * GROUP_BYTES + LOADED <= reach);
                // SAFETY: 16 bytes from here end within `reach`, which the caller took as the maximum over all positions
                // and which the row was just found to have.
                let pixels = unsafe { _mm_loadu_si128(row.as_ptr().add(start + group * GROUP_BYTES).cast()) };
                let pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), pairs);
                // SAFETY: an array of sixteen 16-bit numbers is 32 bytes.
                let (w_high, w_low) =
                    unsafe { (_mm256_loadu_si256(w_high.as_ptr().cast()), _mm256_loadu_si256(w_low.as_ptr().cast())) };
                high = _mm256_add_epi32(high, _mm256_madd_epi16(pixels, w_high));
                low = _mm256_add_epi32(low, _mm256_madd_epi16(pixels, w_low));
            }
            *total = _mm256_add_epi32(_mm256_slli_epi32::<LOW_BITS>(high), low);
        }
        let [a, b, c, d] = totals;
        let words = _mm256_packs_epi32(join(a, b), join(c, d));
        let bytes = _mm256_packus_epi16(words, words);
        // The lower half holds pixels 0 and 2, the upper 1 and 3.
        let ordered = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256::<1>(bytes));
        let mut pixels = [0u8; 16];
        // SAFETY: the array has the 16 bytes that are stored.
        unsafe { _mm_storeu_si128(pixels.as_mut_ptr().cast(), _mm_shuffle_epi8(ordered, close)) };
        match <&mut [u8; GROUP_BYTES]>::try_from(&mut *out) {
            Ok(whole) => whole.copy_from_slice(&pixels[..GROUP_BYTES]),
            Err(_) => out.copy_from_slice(&pixels[..out.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Filter;
    use super::super::passes::horizontal_plain;
    use super::super::taps::Axis;
    use super::*;

    #[test]
    fn the_vector_kernel_gives_the_bytes_of_the_plain_one() {
        if simd::of_this_machine() < simd::Level::Avx2 {
            println!("skipped: this machine has no AVX2");
            return;
        }
        let mut taps = Taps::default();
        for (width, height, output) in [(1, 1, 1), (2, 3, 7), (5, 2, 3), (37, 4, 96), (500, 3, 224), (300, 2, 1)] {
            let pixels: Vec<u8> = (0..width * height * 3).map(|i| (i * i * 31 % 256) as u8).collect();
            for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
                taps.fill(
                    Axis { input: width, start: 0.0, span: width as f64, output, mirrored: width % 2 == 1 },
                    filter,
                );
                let region = Region { pixels: &pixels, stride: width * 3, width, channels: 3 };
                let (mut fast, mut plain) = (vec![0; output * height * 3], vec![0; output * height * 3]);
                horizontal_plain(region, &taps, &mut plain);
                let done = RgbRows::default().horizontal(region, &taps, &mut fast);
                assert_eq!(done, simd::level() >= simd::Level::Avx2);
                assert!(!done || fast == plain, "{width} -> {output}");
            }
        }
    }
}
