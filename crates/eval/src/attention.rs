//! Where a network looks: the attention of the class token in the last block, as pictures.
//!
//! [`looks`] computes it for images of a source; the rest draws: [`heat`] a map in colours, [`kept`] the patches that hold
//! most of it, and [`lit`] those patches of the image itself.

use std::ops::ControlFlow;

use data::augment::{Filter, resize};
use data::{BadSample, DecodeLimits, Image, Orientation, Reader, Source};
use model::ClassAttention;
use tensor::ops::{PixelData, Pixels};

use crate::error::EvalError;
use crate::network::Network;
use crate::normalization::Normalization;

/// Pixels of the shorter side of an image, where nothing else is asked for: that of DINO's script.
pub const SHORT: usize = 480;
/// Pixels of the longer side, at most: attention weighs every pair of patches.
const LONGEST: usize = 1920;
/// How bright, of 256, the part of an image is that is not kept.
const DIMMED: u32 = 64;

/// What a network sees of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The whole image, its shorter side so many pixels, its sides in proportion.
    Short(usize),
    /// The whole image at (height, width), whatever its own proportion: DINO's script takes 480 x 480.
    Stretched((usize, usize)),
}

impl Seen {
    /// The (height, width) of an image of that size, floored to whole patches; none where no patch is left or a side is too
    /// long.
    pub fn size(self, (height, width): (usize, usize), patch: usize) -> Option<(usize, usize)> {
        let (height, width) = match self {
            Seen::Stretched(size) => size,
            Seen::Short(side) => {
                let short = height.min(width) as f64;
                let scaled = |n: usize| (side as f64 * n as f64 / short).round() as usize;
                (scaled(height), scaled(width))
            }
        };
        let (height, width) = (height / patch * patch, width / patch * patch);
        (height.min(width) > 0 && height.max(width) <= LONGEST.max(SHORT)).then_some((height, width))
    }
}

/// An image and what the class token looks at in it.
#[derive(Clone, Debug)]
pub struct Look {
    /// The number of the image in its source.
    pub index: usize,
    /// The image as the network saw it.
    pub image: Image,
    /// The attention.
    pub attention: ClassAttention,
}

/// Hands the attention in the first `most` images of a source to `each`, one after another. Returns those that could not be
/// used.
pub fn looks(
    network: Network<'_>,
    source: &dyn Source,
    seen: Seen,
    orientation: Orientation,
    most: usize,
    each: &mut dyn FnMut(Look) -> Result<ControlFlow<()>, EvalError>,
) -> Result<Vec<BadSample>, EvalError> {
    let Network { vit, weights, device, normalization, .. } = network;
    let config = vit.config();
    let Normalization { mean, deviation } =
        normalization.cloned().unwrap_or_else(|| Normalization::usual(config.channels));
    let mut reader = Reader::new(DecodeLimits::default(), config.channels).oriented(orientation);
    let mut stored = Image::black(1, 1, config.channels);
    let mut bad = Vec::new();
    let total = source.len().min(most);
    for index in 0..total {
        let mut skip = |reason: String| bad.push(BadSample { index: index as u64, name: source.name(index), reason });
        if let Err(error) = reader.read(source, index, &mut stored) {
            skip(error.reason());
            continue;
        }
        let Some((height, width)) = seen.size((stored.height, stored.width), config.patch) else {
            let (width, height) = (stored.width, stored.height);
            skip(format!("{width} x {height} pixels: too long and thin, or smaller than a patch"));
            continue;
        };
        let image = resize(&stored, (height, width), Filter::Bilinear);
        let data = PixelData::Bytes { pixels: &image.pixels, mean: &mean, deviation: &deviation };
        let pixels = Pixels { count: 1, height, width, channels: config.channels, data };
        let attention = vit.class_attention(weights, device, &[pixels])?.pop();
        device.finish()?;
        let Some(attention) = attention.filter(|attention| attention.weights.iter().all(|w| w.is_finite())) else {
            return Err(EvalError::NotFinite { name: source.name(index) });
        };
        if each(Look { index, image, attention })?.is_break() {
            return Err(EvalError::Stopped);
        }
    }
    if bad.len() == total {
        bad.truncate(10);
        return Err(EvalError::NothingReadable { images: total, source_name: source.describe(), first: bad });
    }
    Ok(bad)
}

/// The patches that together hold the share `mass` of the attention, the largest first: DINO's threshold. A patch is kept if
/// it and all smaller ones hold more than `1 - mass`.
pub fn kept(weights: &[f64], mass: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // Stable: equal ones stay in their order.
    order.sort_by(|&a, &b| weights[a].total_cmp(&weights[b]));
    let total: f64 = weights.iter().sum();
    let (mut kept, mut sum) = (vec![false; weights.len()], 0.0);
    for patch in order {
        sum += weights[patch] / total;
        kept[patch] = sum > 1.0 - mass;
    }
    kept
}

/// Colours from the smallest to the largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colors {
    /// From violet over green to yellow: maps of heads.
    Viridis,
    /// From black over red to pale yellow: frames of a video.
    Inferno,
}

impl Colors {
    /// Ten colours, evenly spaced; those between are mixed.
    fn anchors(self) -> [u32; 10] {
        match self {
            Colors::Viridis => {
                [0x440154, 0x482878, 0x3e4989, 0x31688e, 0x26828e, 0x1f9e89, 0x35b779, 0x6ece58, 0xb5de2b, 0xfde725]
            }
            Colors::Inferno => {
                [0x000004, 0x1b0c41, 0x4a0c6b, 0x781c6d, 0xa52c60, 0xcf4446, 0xed6925, 0xfb9b06, 0xf7d13d, 0xfcffa4]
            }
        }
    }

    /// The colour of a value from 0 to 1.
    fn of(self, value: f64) -> [u8; 3] {
        let anchors = self.anchors();
        let place = value.clamp(0.0, 1.0) * (anchors.len() - 1) as f64;
        let first = (place as usize).min(anchors.len() - 2);
        let share = place - first as f64;
        [16, 8, 0].map(|shift| {
            let level = |anchor: u32| f64::from(anchor >> shift & 255);
            (level(anchors[first]) + share * (level(anchors[first + 1]) - level(anchors[first]))).round() as u8
        })
    }
}

/// A map of patches as a picture, from its smallest to its largest value, each patch a square of `patch` pixels.
pub fn heat(weights: &[f64], grid: (usize, usize), patch: usize, colors: Colors) -> Image {
    let low = weights.iter().copied().fold(f64::INFINITY, f64::min);
    let high = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scaled = |weight: f64| if high > low { (weight - low) / (high - low) } else { 0.0 };
    let of_patch: Vec<[u8; 3]> = weights.iter().map(|&weight| colors.of(scaled(weight))).collect();
    squares(grid, patch, |at, _| of_patch[at])
}

/// The image with all but the patches that are kept dimmed.
///
/// # Panics
/// When the image is not as large as the grid.
pub fn lit(image: &Image, kept: &[bool], grid: (usize, usize), patch: usize) -> Image {
    assert_eq!((image.height, image.width), (grid.0 * patch, grid.1 * patch), "an image of whole patches");
    squares(grid, patch, |at, pixel| {
        let levels = &image.pixels[pixel * image.channels..][..image.channels];
        let color = if let &[r, g, b, ..] = levels { [r, g, b] } else { [levels[0]; 3] };
        if kept[at] { color } else { color.map(|level| (u32::from(level) * DIMMED / 256) as u8) }
    })
}

/// A picture by the patch and the pixel of every place.
fn squares((rows, columns): (usize, usize), patch: usize, color: impl Fn(usize, usize) -> [u8; 3]) -> Image {
    let (height, width) = (rows * patch, columns * patch);
    let mut pixels = Vec::with_capacity(height * width * 3);
    for y in 0..height {
        for x in 0..width {
            pixels.extend(color(y / patch * columns + x / patch, y * width + x));
        }
    }
    Image::from_pixels(width, height, 3, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Layout, Vit, VitConfig};
    use tensor::{CpuOptions, Device};

    #[test]
    fn the_patches_kept_hold_the_mass_and_no_more_than_needed() {
        let weights = [0.1, 0.4, 0.05, 0.15, 0.3];
        // Ascending 0.05, 0.15, 0.3, 0.6, 1.0 of the whole.
        assert_eq!(kept(&weights, 0.6), [false, true, false, false, true]);
        assert_eq!(kept(&weights, 0.35), [false, true, false, false, false]);
        assert_eq!(kept(&weights, 1.0), [true; 5]);
        assert_eq!(kept(&[0.2, 0.2, 0.2, 0.2, 0.2].map(|w| w * 3.0), 0.5), [false, false, true, true, true]);
        assert!(kept(&weights, 0.999).iter().filter(|&&k| k).count() == 5, "every patch reaches into the mass");
    }

    #[test]
    fn colours_go_from_dark_to_bright() {
        for colors in [Colors::Viridis, Colors::Inferno] {
            let luma = |value: f64| {
                let [r, g, b] = colors.of(value).map(f64::from);
                0.299 * r + 0.587 * g + 0.114 * b
            };
            let lumas: Vec<f64> = (0..=100).map(|i| luma(f64::from(i) / 100.0)).collect();
            assert!(lumas.is_sorted(), "{colors:?}: {lumas:?}");
        }
        assert_eq!([Colors::Viridis.of(0.0), Colors::Viridis.of(1.0)], [[0x44, 0x01, 0x54], [0xfd, 0xe7, 0x25]]);
    }

    #[test]
    fn a_map_has_a_square_for_each_patch() {
        let picture = heat(&[0.0, 1.0, 0.5, 0.25, 0.0, 0.75], (2, 3), 4, Colors::Viridis);
        assert_eq!((picture.height, picture.width, picture.channels), (8, 12, 3));
        let at = |y: usize, x: usize| &picture.row(y)[3 * x..][..3];
        assert_eq!((at(0, 0), at(3, 3)), (&[0x44, 0x01, 0x54][..], &[0x44, 0x01, 0x54][..]));
        assert_eq!((at(0, 4), at(3, 7)), (&[0xfd, 0xe7, 0x25][..], &[0xfd, 0xe7, 0x25][..]));
        assert_ne!(at(4, 0), at(3, 0));
        let image = Image::from_pixels(12, 8, 3, vec![200; 288]);
        let shown = lit(&image, &[true, false, false, false, false, true], (2, 3), 4);
        assert_eq!((shown.row(0)[0], shown.row(0)[12], shown.row(7)[35]), (200, 50, 200));
    }

    #[test]
    fn images_are_seen_whole_in_whole_patches() {
        assert_eq!(Seen::Short(480).size((375, 500), 16), Some((480, 640)));
        assert_eq!(Seen::Short(480).size((500, 333), 16), Some((720, 480)));
        assert_eq!(Seen::Short(480).size((10, 1000), 16), None, "too long");
        assert_eq!(Seen::Stretched((480, 500)).size((10, 1000), 14), Some((476, 490)));
        assert_eq!(Seen::Stretched((8, 8)).size((10, 10), 16), None, "no patch is left");
    }

    #[test]
    fn every_image_is_looked_at_in_order_until_it_is_enough() {
        let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3).unwrap());
        let weights = layout.initial(&device, 0);
        let network = Network::new(&vit, &weights, &device);
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let mut seen = Vec::new();
        let size = Seen::Stretched((24, 40));
        let bad = looks(network, &*source, size, Orientation::Upright, 4, &mut |look| {
            assert_eq!((look.attention.grid, look.image.height, look.image.width), ((3, 5), 24, 40));
            assert_eq!(look.attention.heads().len(), vit.config().heads);
            seen.push(look.index);
            Ok(ControlFlow::Continue(()))
        });
        assert!(bad.unwrap().is_empty());
        assert_eq!(seen, [0, 1, 2, 3]);
        let stop = &mut |_: Look| Ok(ControlFlow::Break(()));
        let stopped = looks(network, &*source, size, Orientation::Upright, 4, stop);
        assert!(matches!(stopped, Err(EvalError::Stopped)));
    }
}
