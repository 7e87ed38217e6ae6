//! What a network sees of a video's frame: the shorter side 480 pixels, the longer one in proportion and floored to a multiple
//! of 64, resized as OpenCV does it.

use data::Image;

/// Pixels of the shorter side.
const SHORT: usize = 480;
/// The longer side is a multiple of this.
const MULTIPLE: usize = 64;
/// Pixels of the longer side, at most: a frame ten times as long as high.
const LONGEST: usize = 4800;

/// The (height, width) at which a frame of this one is seen, by a network whose patches are so large. Where these do not fill
/// 480 x 64 n pixels, both sides are floored to a multiple of a patch, so that the grid covers the frame. None where nothing is
/// left, or too much.
pub(super) fn seen_size((height, width): (usize, usize), patch: usize) -> Option<(usize, usize)> {
    let (short, long) = (height.min(width), height.max(width));
    let long = (SHORT as f64 * long as f64 / short as f64 / MULTIPLE as f64) as usize * MULTIPLE;
    let [short, long] = [SHORT, long].map(|side| side / patch * patch);
    if short == 0 || long == 0 || long > LONGEST {
        return None;
    }
    // A square counts as wide.
    Some(if height > width { (long, short) } else { (short, long) })
}

/// Resizes to (height, width) as OpenCV's `resize` does by default, byte for byte: bilinear between the four nearest pixels,
/// also where that leaves pixels out, in the same integers.
///
/// # Panics
/// When a size is zero.
pub(super) fn resize_as_opencv(image: &Image, (height, width): (usize, usize)) -> Image {
    let mut resized = Image::black(width, height, image.channels);
    let columns = taps(image.width, width, true);
    let rows = taps(image.height, height, false);
    let (from, to) = (image.stride(), resized.stride());
    // Each row of the image, once widened or narrowed, serves two of the result or more.
    let mut lines = [vec![0i32; to], vec![0i32; to]];
    let mut held = [usize::MAX; 2];
    for (row, tap) in resized.pixels.chunks_exact_mut(to).zip(&rows) {
        for (line, source) in [tap.first, tap.second].into_iter().enumerate() {
            if held[line] == source {
                continue;
            }
            if line == 0 && held[1] == source {
                lines.swap(0, 1);
                held.swap(0, 1);
                continue;
            }
            let pixels = &image.pixels[source * from..(source + 1) * from];
            stretch(pixels, image.channels, &columns, &mut lines[line]);
            held[line] = source;
        }
        let [b0, b1] = tap.weights;
        for ((pixel, &s0), &s1) in row.iter_mut().zip(&lines[0]).zip(&lines[1]) {
            let sum = ((b0 * (s0 >> 4)) >> 16) + ((b1 * (s1 >> 4)) >> 16);
            *pixel = ((sum + 2) >> 2).clamp(0, 255) as u8;
        }
    }
    resized
}

/// One row at its new width, in units of 1 / 2048.
fn stretch(pixels: &[u8], channels: usize, columns: &[Tap], line: &mut [i32]) {
    for (values, tap) in line.chunks_exact_mut(channels).zip(columns) {
        let [a0, a1] = tap.weights;
        let (first, second) = (&pixels[tap.first * channels..], &pixels[tap.second * channels..]);
        for ((value, &p), &q) in values.iter_mut().zip(first).zip(second) {
            *value = i32::from(p) * a0 + i32::from(q) * a1;
        }
    }
}

/// Two neighbours and their weights, in units of 1 / 2048.
struct Tap {
    first: usize,
    second: usize,
    weights: [i32; 2],
}

/// The neighbours of each of `to` places among `from`. Before the first and behind the last pixel there is nothing to mix: for
/// columns OpenCV drops the second weight there, and for rows it mixes the border with itself, which rounds differently.
fn taps(from: usize, to: usize, is_columns: bool) -> Vec<Tap> {
    let scale = from as f64 / to as f64;
    let tap = |i: usize| {
        let place = ((i as f64 + 0.5) * scale - 0.5) as f32;
        let (mut first, mut share) = (place.floor() as i64, place - place.floor());
        let last = from as i64 - 1;
        if is_columns && !(0..last).contains(&first) {
            (first, share) = (first.clamp(0, last), 0.0);
        }
        let inside = |at: i64| at.clamp(0, last) as usize;
        let weight = |share: f32| (share * 2048.0).round_ties_even() as i32;
        Tap { first: inside(first), second: inside(first + 1), weights: [weight(1.0 - share), weight(share)] }
    };
    (0..to).map(tap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_seen_at_the_sizes_of_dinos_script() {
        for (size, seen) in [
            ((480, 854), (480, 832)),
            ((480, 910), (480, 896)),
            ((1080, 1920), (480, 832)),
            ((854, 480), (832, 480)),
            ((100, 100), (480, 448)),
        ] {
            for patch in [4, 8, 16, 32] {
                assert_eq!(seen_size(size, patch), Some(seen), "{size:?} {patch}");
            }
        }
        assert_eq!(seen_size((480, 854), 14), Some((476, 826)), "patches that do not fill it");
        assert_eq!(seen_size((854, 480), 14), Some((826, 476)));
        assert_eq!(seen_size((2, 9000), 16), None, "too long");
        assert_eq!(seen_size((480, 854), 481), None, "a patch larger than the frame");
    }
}
