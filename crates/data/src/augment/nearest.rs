//! Resizing without new values: every pixel is one of the image. For maps of labels, whose numbers have no mean.

use crate::Image;

/// Resizes to (height, width) by the nearest pixel, as Pillow's `resize(.., NEAREST)` does.
///
/// # Panics
/// When a size is zero.
pub fn resize_nearest(image: &Image, (height, width): (usize, usize)) -> Image {
    let mut resized = Image::black(width, height, image.channels);
    let (rows, columns) = (places(image.height, height), places(image.width, width));
    let stride = resized.stride();
    for (row, y) in resized.pixels.chunks_exact_mut(stride).zip(rows) {
        let from = image.row(y);
        for (pixel, &x) in row.chunks_exact_mut(image.channels).zip(&columns) {
            pixel.copy_from_slice(&from[x * image.channels..][..image.channels]);
        }
    }
    resized
}

/// Which of `from` pixels each of `to` shows. Where a centre falls between two pixels the choice is Pillow's only with its own
/// rounding, so the position is added up as it does it.
fn places(from: usize, to: usize) -> Vec<usize> {
    let step = from as f64 / to as f64;
    let mut at = step * 0.5;
    let place = |_| {
        let place = (at as usize).min(from - 1);
        at += step;
        place
    };
    (0..to).map(place).collect()
}
