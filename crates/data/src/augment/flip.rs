//! Mirroring.

use crate::Image;

/// Mirrors left and right in place.
pub fn flip_horizontal(image: &mut Image) {
    let (stride, channels) = (image.stride(), image.channels);
    for row in image.pixels.chunks_exact_mut(stride) {
        match channels {
            1 => row.reverse(),
            3 => row.as_chunks_mut::<3>().0.reverse(),
            _ => {
                for x in 0..image.width / 2 {
                    let (left, right) = row.split_at_mut((image.width - 1 - x) * channels);
                    left[x * channels..(x + 1) * channels].swap_with_slice(&mut right[..channels]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_swap_sides_and_channels_keep_their_order_for_any_channel_count() {
        for channels in 1..=5 {
            for width in 1..=4 {
                let pixels: Vec<u8> = (0..2 * width * channels).map(|i| i as u8).collect();
                let mut image = Image::from_pixels(width, 2, channels, pixels.clone());
                flip_horizontal(&mut image);
                for y in 0..2 {
                    for x in 0..width {
                        for c in 0..channels {
                            let mirrored = pixels[(y * width + width - 1 - x) * channels + c];
                            assert_eq!(image.pixels[(y * width + x) * channels + c], mirrored);
                        }
                    }
                }
            }
        }
    }
}
