//! Images as text within a page, each within its bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data::Image;
use data::augment::{Filter, resize};
use data::encode::to_jpeg;

use crate::account::ReportError;

/// Qualities that are tried, the best first.
const QUALITIES: [u8; 5] = [86, 74, 58, 40, 22];

/// An image as it stands in a page.
pub(super) struct Encoded {
    /// A `data:` address.
    pub(super) uri: String,
    /// Pixels in a row.
    pub(super) width: usize,
    /// Rows.
    pub(super) height: usize,
}

/// Encodes an image whose longer side becomes at most `side` pixels, as well as `bytes` allow: first with less quality, then
/// smaller.
pub(super) fn encode(image: &Image, side: usize, bytes: usize) -> Result<Encoded, ReportError> {
    let mut image = within(data::encode::to_rgb(image), side);
    loop {
        for quality in QUALITIES {
            let jpeg = to_jpeg(&image, quality)?;
            if jpeg.len() <= bytes || image.width.max(image.height) == 1 {
                let uri = format!("data:image/jpeg;base64,{}", STANDARD.encode(jpeg));
                return Ok(Encoded { uri, width: image.width, height: image.height });
            }
        }
        let half = image.width.max(image.height).div_ceil(2);
        image = within(image, half);
    }
}

/// An image as it is, pixel by pixel; none where that takes more than `bytes`.
pub(super) fn lossless(image: &Image, bytes: usize) -> Option<Encoded> {
    let png = data::sheet::to_png(&data::encode::to_rgb(image)).ok().filter(|png| png.len() <= bytes)?;
    let uri = format!("data:image/png;base64,{}", STANDARD.encode(png));
    Some(Encoded { uri, width: image.width, height: image.height })
}

/// The image, made smaller where its longer side is above `side`.
fn within(image: Image, side: usize) -> Image {
    let longer = image.width.max(image.height);
    if longer <= side {
        return image;
    }
    let scaled = |n: usize| ((n as f64 * side as f64 / longer as f64).round() as usize).max(1);
    resize(&image, (scaled(image.height), scaled(image.width)), Filter::Bicubic)
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    #[test]
    fn an_image_is_as_good_as_its_bytes_allow() {
        let image = noise(90, 60, 4);
        for bytes in [100_000, 6_000, 1_500, 700] {
            let Encoded { uri, width, height } = encode(&image, 80, bytes).unwrap();
            let jpeg = STANDARD.decode(uri.strip_prefix("data:image/jpeg;base64,").unwrap()).unwrap();
            assert!(jpeg.len() <= bytes && jpeg.starts_with(&[0xff, 0xd8]), "{} of {bytes}", jpeg.len());
            assert!(width <= 80 && (width as f64 / height as f64 - 1.5).abs() < 0.1, "{width} x {height}");
        }
        assert_eq!(encode(&image, 80, 100_000).unwrap().width, 80);
        assert_eq!(encode(&noise(20, 10, 1), 80, 100_000).unwrap().width, 20, "nothing is enlarged");
    }
}
