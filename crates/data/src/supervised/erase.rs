//! Random erasing: a rectangle of an image gives way to noise (timm's `RandomErasing` in the mode `pixel`).

use crate::augment::Rect;
use random::{Key, Stream};

/// Rectangles that are tried before an image stays as it is.
const ATTEMPTS: usize = 10;
/// Share of the image's area that is erased.
const AREA: (f64, f64) = (0.02, 1.0 / 3.0);
/// Least ratio of height to width; the largest is its inverse.
const LEAST_ASPECT: f64 = 0.3;

/// How often images lose a rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Erasing {
    /// The probability.
    pub probability: f64,
}

impl Default for Erasing {
    fn default() -> Self {
        Self { probability: 0.25 }
    }
}

impl Erasing {
    /// Erases what the key says from a normalised image, channel by channel: standard normal values take the place.
    ///
    /// # Panics
    /// When there are not `height * width` values in each channel.
    pub fn apply(&self, values: &mut [f32], (height, width): (usize, usize), key: Key) {
        let mut stream = key.stream();
        let Some(Rect { top, left, height: rows, width: columns }) = self.draw(height, width, &mut stream) else {
            return;
        };
        assert!(values.len().is_multiple_of(height * width), "whole channels");
        for channel in values.chunks_exact_mut(height * width) {
            for row in channel.chunks_exact_mut(width).skip(top).take(rows) {
                row[left..left + columns].fill_with(|| stream.normal() as f32);
            }
        }
    }

    /// The rectangle, if there is one: area and aspect first, then where it lies. A rectangle is smaller than the image both
    /// ways.
    fn draw(&self, height: usize, width: usize, stream: &mut Stream) -> Option<Rect> {
        if !stream.chance(self.probability) {
            return None;
        }
        let area = (height * width) as f64;
        for _ in 0..ATTEMPTS {
            let target = stream.uniform_in(AREA.0, AREA.1) * area;
            let aspect = stream.uniform_in(LEAST_ASPECT.ln(), -LEAST_ASPECT.ln()).exp();
            let rows = (target * aspect).sqrt().round_ties_even() as usize;
            let columns = (target / aspect).sqrt().round_ties_even() as usize;
            if rows < height && columns < width {
                let top = stream.below((height - rows + 1) as u64) as usize;
                let left = stream.below((width - columns + 1) as u64) as usize;
                return Some(Rect { top, left, height: rows, width: columns });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Purpose;

    fn key(sample: u64) -> Key {
        Key::new(1, Purpose::Erase).sample(sample)
    }

    #[test]
    fn a_quarter_of_the_images_lose_a_rectangle_of_noise() {
        let (side, images) = (24, 2000);
        let (mut erased, mut shares, mut noise) = (0, 0.0, Vec::new());
        for sample in 0..images {
            let mut values = vec![9.0f32; 3 * side * side];
            Erasing::default().apply(&mut values, (side, side), key(sample));
            let changed: Vec<usize> = (0..side * side).filter(|&i| values[i] != 9.0).collect();
            let (Some(&first), Some(&last)) = (changed.first(), changed.last()) else { continue };
            erased += 1;
            shares += changed.len() as f64 / (side * side) as f64;
            // One rectangle, the same in every channel.
            let inside = |i: usize| (first % side..=last % side).contains(&(i % side)) && (first..=last).contains(&i);
            assert!((0..3 * side * side).all(|i| (values[i] != 9.0) == inside(i % (side * side))));
            noise.extend(values.into_iter().filter(|&v| v != 9.0).map(f64::from));
        }
        let erased = f64::from(erased);
        assert!((erased / images as f64 - 0.25).abs() < 0.03, "{erased}");
        assert!((shares / erased - 0.17).abs() < 0.02, "{}", shares / erased);
        let n = noise.len() as f64;
        let (mean, square) = (noise.iter().sum::<f64>() / n, noise.iter().map(|x| x * x).sum::<f64>() / n);
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02, "{mean} {square}");
    }

    #[test]
    fn an_image_of_one_pixel_has_nothing_to_lose() {
        let mut values = [1.0, 2.0];
        (0..50).for_each(|sample| Erasing { probability: 1.0 }.apply(&mut values, (1, 1), key(sample)));
        assert_eq!(values, [1.0, 2.0]);
    }
}
