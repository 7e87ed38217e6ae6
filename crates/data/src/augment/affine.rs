//! Affine maps with bicubic interpolation: Pillow's `transform(size, AFFINE, .., BICUBIC)` and `rotate`, and what timm makes
//! of them: shears and shifts. Sizes stay; what comes from outside the image has a fill colour.

use crate::Image;

/// From a pixel of the result to where it comes from: x' = a x + b y + c, y' = d x + e y + f, of pixel centres.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Affine {
    x: [f64; 3],
    y: [f64; 3],
}

/// Turns around the centre, counter-clockwise, by an angle in degrees.
pub fn rotate(image: &Image, degrees: f64, fill: &[u8]) -> Image {
    let degrees = degrees.rem_euclid(360.0);
    if degrees == 0.0 {
        return image.clone();
    }
    let angle = -degrees.to_radians();
    let (cos, sin) = (round_15(angle.cos()), round_15(angle.sin()));
    let (center_x, center_y) = (image.width as f64 / 2.0, image.height as f64 / 2.0);
    let map = Affine {
        x: [cos, sin, cos * -center_x + sin * -center_y + center_x],
        y: [-sin, cos, -sin * -center_x + cos * -center_y + center_y],
    };
    map.apply(image, fill)
}

/// Moves each row sideways by `factor` of its distance from the top.
pub fn shear_x(image: &Image, factor: f64, fill: &[u8]) -> Image {
    Affine { x: [1.0, factor, 0.0], y: [0.0, 1.0, 0.0] }.apply(image, fill)
}

/// Moves each column up or down by `factor` of its distance from the left.
pub fn shear_y(image: &Image, factor: f64, fill: &[u8]) -> Image {
    Affine { x: [1.0, 0.0, 0.0], y: [factor, 1.0, 0.0] }.apply(image, fill)
}

/// Moves the image to the left by a share of its width.
pub fn translate_x(image: &Image, share: f64, fill: &[u8]) -> Image {
    Affine { x: [1.0, 0.0, share * image.width as f64], y: [0.0, 1.0, 0.0] }.apply(image, fill)
}

/// Moves the image upwards by a share of its height.
pub fn translate_y(image: &Image, share: f64, fill: &[u8]) -> Image {
    Affine { x: [1.0, 0.0, 0.0], y: [0.0, 1.0, share * image.height as f64] }.apply(image, fill)
}

/// Fifteen digits after the point, as Pillow rounds sines and cosines: correctly, which arithmetic would not be.
fn round_15(x: f64) -> f64 {
    format!("{x:.15}").parse().unwrap_or(x)
}

impl Affine {
    /// # Panics
    /// When the fill colour has not one value for each channel.
    fn apply(&self, image: &Image, fill: &[u8]) -> Image {
        assert_eq!(fill.len(), image.channels, "one value for each channel");
        let mut out = Image::black(image.width, image.height, image.channels);
        let places = (0..image.height).flat_map(|y| (0..image.width).map(move |x| (x as f64 + 0.5, y as f64 + 0.5)));
        for (pixel, (x, y)) in out.pixels.chunks_exact_mut(image.channels).zip(places) {
            let of = |[a, b, c]: [f64; 3]| a * x + b * y + c;
            let (x, y) = (of(self.x), of(self.y));
            let inside = |at: f64, side: usize| at >= 0.0 && at < side as f64;
            if inside(x, image.width) && inside(y, image.height) {
                interpolate(image, x - 0.5, y - 0.5, pixel);
            } else {
                pixel.copy_from_slice(fill);
            }
        }
        out
    }
}

/// The value between the pixels around (x, y), in pixel numbers: cubics along four rows, and one across them. Beyond a
/// border columns repeat; rows take the value of the row before, so that the first of the four counts as far as it is there.
fn interpolate(image: &Image, x: f64, y: f64, pixel: &mut [u8]) {
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let column = |i: i64| (left as i64 - 1 + i).clamp(0, image.width as i64 - 1) as usize * image.channels;
    let columns = [column(0), column(1), column(2), column(3)];
    let first = top as i64 - 1;
    let last = image.height as i64 - 1;
    for (c, out) in pixel.iter_mut().enumerate() {
        let along = |row: i64| {
            let row = &image.row(row as usize)[c..];
            let [v1, v2, v3, v4] = columns.map(|column| f64::from(row[column]));
            cubic(v1, v2, v3, v4, dx)
        };
        let mut values = [along(first.clamp(0, last)); 4];
        for i in 1..4 {
            let row = first + i as i64;
            values[i] = if (0..=last).contains(&row) { along(row) } else { values[i - 1] };
        }
        let [v1, v2, v3, v4] = values;
        // Truncated, and the nearest end of the range where it lies outside.
        *out = cubic(v1, v2, v3, v4, dy) as u8;
    }
}

/// The cubic through v2 at 0 and v3 at 1 whose slopes are those of Pillow (a = -1).
fn cubic(v1: f64, v2: f64, v3: f64, v4: f64, d: f64) -> f64 {
    let p2 = -v1 + v3;
    let p3 = 2.0 * (v1 - v2) + v3 - v4;
    let p4 = -v1 + v2 - v3 + v4;
    v2 + d * (p2 + d * (p3 + d * p4))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image::from_pixels(5, 4, 3, (0..60).map(|i| (i * 31 % 256) as u8).collect())
    }

    #[test]
    fn whole_pixels_move_as_they_are_and_leave_the_fill_behind() {
        let (image, fill) = (image(), [1, 2, 3]);
        let moved = translate_x(&image, 0.4, &fill);
        for y in 0..4 {
            assert_eq!(moved.row(y)[..9], image.row(y)[6..]);
            assert_eq!(moved.row(y)[9..], [1, 2, 3, 1, 2, 3]);
        }
        let moved = translate_y(&image, -0.25, &fill);
        assert_eq!((moved.row(0), moved.row(1)), (&[1, 2, 3].repeat(5)[..], image.row(0)));
        assert_eq!(rotate(&image, 0.0, &fill), image);
        assert_eq!(shear_x(&image, 0.0, &fill), image);
    }
}
