//! Hue rotation through Pillow's 8-bit HSV.
//!
//! Pillow mixes f32 variables with f64 constants. The places where that decides a byte are marked; both conversions
//! agree with Pillow on all 2^24 colours (`tests/augment.rs`).

use super::color::rgb_mut;
use crate::Image;

/// Turns the hue by `factor` of a full circle, in [-0.5, 0.5] (torchvision's `adjust_hue`).
///
/// A shift of less than one step of 1/255 changes no hue, but the way through 8-bit HSV and back still rounds.
///
/// # Panics
/// When the image is not RGB.
pub fn hue(image: &mut Image, factor: f64) {
    // Truncation toward zero, then wrapping: a negative turn is a large positive one.
    let shift = (factor * 255.0) as i32 as u8;
    let sectors = sectors();
    for pixel in rgb_mut(image) {
        let [h, s, v] = rgb_to_hsv(*pixel);
        *pixel = to_rgb(&sectors[usize::from(h.wrapping_add(shift))], s, v);
    }
}

/// RGB to HSV with hue, saturation and value in 0..=255.
#[inline]
pub fn rgb_to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let max = r.max(g).max(b);
    let min = r.min(g).min(b);
    if max == min {
        return [0, 0, max];
    }
    let range = f32::from(max - min);
    let saturation = range / f32::from(max);
    // Chosen without a jump: which channel is the largest is as good as random.
    let (start, above, below) = if r == max {
        (0.0, b, g)
    } else if g == max {
        (2.0, r, b)
    } else {
        (4.0, g, r)
    };
    // f32 shares, an f64 sum, an f32 result.
    let share = |v: u8| f64::from(f32::from(max - v) / range);
    let sixths = (start + share(above) - share(below)) as f32;
    let turn = f64::from(sixths) / 6.0 + 1.0;
    // The remainder after division by 1; `turn` is less than 2.
    let turn = if turn >= 1.0 { turn - 1.0 } else { turn } as f32;
    [(f64::from(turn) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, max]
}

/// HSV back to RGB.
pub fn hsv_to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    to_rgb(&Sector::of(h), s, v)
}

/// Which sixth of the circle a hue lies in, and how far into it.
#[derive(Clone, Copy)]
struct Sector {
    number: u8,
    f: f32,
}

impl Sector {
    fn of(h: u8) -> Self {
        let sixths = f64::from(h) * 6.0 / 255.0;
        let number = sixths as u8;
        Self { number: number % 6, f: (sixths - f64::from(number)) as f32 }
    }
}

fn sectors() -> [Sector; 256] {
    std::array::from_fn(|h| Sector::of(h as u8))
}

#[inline]
fn to_rgb(sector: &Sector, s: u8, v: u8) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let s = (f64::from(s) / 255.0) as f32;
    let value = f64::from(v);
    // Half away from zero, for values that are never negative.
    let round = |x: f64| (x + 0.5) as u8;
    // The three other corners of the sector.
    let p = round(value * (1.0 - f64::from(s)));
    let q = round(value * (1.0 - f64::from(s * sector.f)));
    let t = round(value * (1.0 - f64::from(s) * (1.0 - f64::from(sector.f))));
    let corners = [v, p, q, t];
    CORNERS[usize::from(sector.number)].map(|corner| corners[usize::from(corner & 3)])
}

/// Which of the corners v, p, q, t is red, green and blue in each sector.
const CORNERS: [[u8; 3]; 6] = [[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]];
