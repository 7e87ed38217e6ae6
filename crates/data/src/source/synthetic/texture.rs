//! Two-toned fillings. A texture has a period but no preferred place, turn or colour.

/// A class's filling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texture {
    Stripes,
    Checks,
    Dots,
}

impl Texture {
    pub(super) const ALL: [Texture; 3] = [Texture::Stripes, Texture::Checks, Texture::Dots];

    pub(super) fn adjective(self) -> &'static str {
        match self {
            Texture::Stripes => "striped",
            Texture::Checks => "checked",
            Texture::Dots => "dotted",
        }
    }

    /// How much of the second tone a point has, from 0 to 1. (x, y) is in periods, `blur` is half a pixel in periods.
    #[inline]
    pub(super) fn mix(self, x: f32, y: f32, blur: f32) -> f32 {
        // A triangle wave from -1 to 1 with slope 4 a period; edges lie at its zeros.
        let wave = |t: f32| 4.0 * (t - t.floor() - 0.5).abs() - 1.0;
        let sharpen = |v: f32, slope: f32| (0.5 + v / (2.0 * slope * blur)).clamp(0.0, 1.0);
        match self {
            Texture::Stripes => sharpen(wave(x), 4.0),
            Texture::Checks => {
                // The product of two antialiased square waves, each half a cell wide at a period of 1.4 cells.
                let (a, b) = (sharpen(wave(x * CHECK), 4.0 * CHECK), sharpen(wave(y * CHECK), 4.0 * CHECK));
                a * b + (1.0 - a) * (1.0 - b)
            }
            Texture::Dots => {
                let (dx, dy) = (x - x.floor() - 0.5, y - y.floor() - 0.5);
                sharpen(DOT_RADIUS - (dx * dx + dy * dy).sqrt(), 1.0)
            }
        }
    }
}

/// Checks are coarser than stripes, so that all textures hold about as many edges.
const CHECK: f32 = 0.7;
/// Of a dot, in periods: it covers two fifths of its cell.
const DOT_RADIUS: f32 = 0.357;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tones_are_common_in_every_texture() {
        for texture in Texture::ALL {
            let n = 500;
            let mut sum = 0.0;
            for i in 0..n * n {
                let (x, y) = ((i % n) as f32 / 50.0, (i / n) as f32 / 50.0);
                let mix = texture.mix(x, y, 0.05);
                assert!((0.0..=1.0).contains(&mix));
                sum += mix;
            }
            let share = sum / (n * n) as f32;
            assert!((0.35..0.65).contains(&share), "{texture:?}: {share}");
        }
    }
}
