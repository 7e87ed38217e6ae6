//! Hue rotation through Pillow's 8-bit HSV.
//!
//! Pillow mixes f32 variables with f64 constants. None of those places decides a byte: in f32 alone, as here, both
//! conversions agree with Pillow on all 2^24 colours (`tests/augment.rs`), and a turn can be worked out for many pixels
//! at once without a jump.

use super::color::{Planes, rgb_mut, truncate};
use crate::Image;
use simd::simd;

/// Turns the hue by `factor` of a full circle, in [-0.5, 0.5] (torchvision's `adjust_hue`).
///
/// A shift of less than one step of 1/255 changes no hue, but the way through 8-bit HSV and back still rounds.
///
/// # Panics
/// When the image is not RGB.
pub fn hue(image: &mut Image, factor: f64) {
    turn(rgb_mut(image), hue_shift(factor));
}

/// The steps of 1/255 that a turn by `factor` of a full circle makes.
pub fn hue_shift(factor: f64) -> u8 {
    // Truncation toward zero, then wrapping: a negative turn is a large positive one.
    (factor * 255.0) as i32 as u8
}

simd! {
    fn turn(pixels: &mut [[u8; 3]], shift: u8) {
        for block in pixels.chunks_mut(Planes::SIZE) {
            let mut planes = Planes::of(block);
            let Planes { r, g, b } = &mut planes;
            for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
                let [h, s, v] = rgb_to_hsv([*r, *g, *b]);
                [*r, *g, *b] = hsv_to_rgb([h.wrapping_add(shift), s, v]);
            }
            planes.put(block);
        }
    }
}

/// RGB to HSV with hue, saturation and value in 0..=255.
#[inline(always)]
pub fn rgb_to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let max = r.max(g).max(b);
    let min = r.min(g).min(b);
    let range = f32::from(max - min);
    // Of the two channels that are not the largest, the smallest is a whole range below it. The other one says how far
    // into a sixth of the circle the hue is, and whether it is counted from its start or its end.
    let middle = r.max(g).min(r.min(g).max(b));
    let share = f32::from(max - middle) / range;
    let (start, forward) = if r == max {
        (0.0, b == min)
    } else if g == max {
        (2.0, r == min)
    } else {
        (4.0, g == min)
    };
    let sixths = if forward { start + 1.0 - share } else { start - 1.0 + share };
    let turn = sixths / 6.0;
    let turn = if turn < 0.0 { turn + 1.0 } else { turn };
    let saturation = range / f32::from(max);
    // A grey has no hue, black no saturation: 0 / 0 is not a number, and becomes 0.
    [truncate(turn * 255.0), truncate(saturation * 255.0), max]
}

/// HSV back to RGB.
#[inline(always)]
pub fn hsv_to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    // Which sixth of the circle, and how far into it.
    let sixths = u32::from(h) * 6;
    let sector = sixths / 255;
    let f = (sixths - sector * 255) as f32 / 255.0;
    let (s, value) = (f32::from(s) / 255.0, f32::from(v));
    // Half away from zero, for values that are never negative.
    let round = |x: f32| truncate(x + 0.5);
    // One channel has the value, one what saturation leaves of it, and the third is on its way between them: up in the
    // even sectors and down in the odd ones.
    let way = if sector % 2 == 1 { f } else { 1.0 - f };
    let (p, x) = (round(value * (1.0 - s)), round(value * (1.0 - s * way)));
    // The circle ends where it begins: sector 6 is sector 0.
    let sector = if sector == 6 { 0 } else { sector };
    let pick = |high: [u32; 2], low: [u32; 2]| {
        if sector == high[0] || sector == high[1] {
            v
        } else if sector == low[0] || sector == low[1] {
            p
        } else {
            x
        }
    };
    [pick([5, 0], [2, 3]), pick([1, 2], [4, 5]), pick([3, 4], [0, 1])]
}
