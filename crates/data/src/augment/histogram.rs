//! Contrast from the histogram of each channel: Pillow's `ImageOps.autocontrast` and `ImageOps.equalize`.

use crate::Image;

/// How often each value occurs in one channel.
type Histogram = [u64; 256];
/// What each value becomes.
type Table = [u8; 256];

/// Stretches every channel so that its darkest value becomes 0 and its brightest 255. A channel of one value stays.
pub fn autocontrast(image: &mut Image) {
    map_channels(image, stretch);
}

/// Spreads the values of every channel so that all occur about equally often.
pub fn equalize(image: &mut Image) {
    map_channels(image, spread);
}

fn map_channels(image: &mut Image, table_of: impl Fn(&Histogram) -> Option<Table>) {
    let channels = image.channels;
    for c in 0..channels {
        let mut histogram = [0; 256];
        image.pixels.iter().skip(c).step_by(channels).for_each(|&v| histogram[usize::from(v)] += 1);
        if let Some(table) = table_of(&histogram) {
            image.pixels.iter_mut().skip(c).step_by(channels).for_each(|v| *v = table[usize::from(*v)]);
        }
    }
}

/// None where nothing changes.
fn stretch(histogram: &Histogram) -> Option<Table> {
    let low = histogram.iter().position(|&n| n > 0)?;
    let high = histogram.iter().rposition(|&n| n > 0).filter(|&high| high > low)?;
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    // A float becomes a byte by truncation, and the nearest end of the range where it lies outside.
    Some(std::array::from_fn(|v| (v as f64 * scale + offset) as u8))
}

/// None where nothing changes: a channel of one value, or too few pixels for 255 steps.
fn spread(histogram: &Histogram) -> Option<Table> {
    let last = histogram.iter().rfind(|&&n| n > 0)?;
    let step = (histogram.iter().sum::<u64>() - last) / 255;
    if step == 0 {
        return None;
    }
    let mut before = step / 2;
    Some(std::array::from_fn(|v| {
        let value = before / step;
        before += histogram[v];
        value.min(255) as u8
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_stretched_by_themselves_and_flat_ones_stay() {
        let mut image = Image::from_pixels(3, 1, 2, vec![10, 7, 20, 7, 30, 7]);
        autocontrast(&mut image);
        assert_eq!(image.pixels, [0, 7, 127, 7, 255, 7]);
    }

    #[test]
    fn a_small_image_has_too_few_pixels_to_equalize() {
        let mut image = Image::from_pixels(4, 1, 1, vec![1, 2, 3, 4]);
        equalize(&mut image);
        assert_eq!(image.pixels, [1, 2, 3, 4]);
    }
}
