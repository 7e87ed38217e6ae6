//! Pillow's `Image.reduce`: block means by integer factors.

use crate::Image;

/// Averages blocks of `factors` = (rows, columns). Blocks cut off at the right and bottom edge average what they have.
///
/// # Panics
/// When a factor is zero.
pub fn reduce(image: &Image, factors: (usize, usize)) -> Image {
    let (fy, fx) = factors;
    assert!(fy > 0 && fx > 0, "a block has at least one pixel");
    let channels = image.channels;
    let (height, width) = (image.height.div_ceil(fy), image.width.div_ceil(fx));
    let mut out = Image::black(width, height, channels);
    let mut sums = vec![0u32; width * channels];
    for (oy, out) in out.pixels.chunks_exact_mut(width * channels).enumerate() {
        let rows = oy * fy..((oy + 1) * fy).min(image.height);
        sums.fill(0);
        for y in rows.clone() {
            for (block, sums) in image.row(y).chunks(fx * channels).zip(sums.chunks_exact_mut(channels)) {
                for pixel in block.chunks_exact(channels) {
                    for (sum, &v) in sums.iter_mut().zip(pixel) {
                        *sum += u32::from(v);
                    }
                }
            }
        }
        for (ox, (out, sums)) in out.chunks_exact_mut(channels).zip(sums.chunks_exact(channels)).enumerate() {
            let columns = ((ox + 1) * fx).min(image.width) - ox * fx;
            let count = (rows.len() * columns) as u32;
            for (out, &sum) in out.iter_mut().zip(sums) {
                *out = mean(sum, count);
            }
        }
    }
    out
}

/// The rounded mean, with Pillow's reciprocal in 24-bit fixed point (found in f32) instead of a division.
fn mean(sum: u32, count: u32) -> u8 {
    let reciprocal = (4_294_967_296.0 / (256.0 * count as f32)) as u32;
    ((u64::from(sum + count / 2) * u64::from(reciprocal)) >> 24) as u8
}
