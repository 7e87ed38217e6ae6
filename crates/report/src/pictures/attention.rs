//! Images beside where the network looks: the mean over its heads, and the heads.

use data::Image;

use super::encode::{Encoded, encode, lossless};
use super::label;
use crate::account::ReportError;
use crate::markup::escape;
use crate::page::Section;

/// Images, at most.
pub const IMAGES: usize = 8;
/// Heads of each, at most.
pub const HEADS: usize = 6;
/// Pixels of the longer side of the image and of the mean, and their bytes.
const SIDE: usize = 192;
const BYTES: usize = 12 << 10;
/// The same of a head.
const HEAD_SIDE: usize = 80;
const HEAD_BYTES: usize = 3 << 10;

/// Where the network looks in one image.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The image as the network saw it.
    pub image: Image,
    /// What it is called.
    pub name: String,
    /// Its class, where that is known.
    pub class: Option<String>,
    /// The mean over the heads in colours, a pixel for each patch.
    pub mean: Image,
    /// Each head, likewise.
    pub heads: Vec<Image>,
}

/// The section of these images, with a sentence on them.
pub fn section(about: &str, looks: &[Looked]) -> Result<Section, ReportError> {
    let mut html = format!("<p class=\"muted\">{}</p>\n<div class=\"looks\">\n", escape(about));
    for look in looks.iter().take(IMAGES) {
        let name = label(look.class.as_deref(), &look.name);
        let image = element(&encode(&look.image, SIDE, BYTES)?, &name);
        let mean = map(&look.mean, (SIDE, BYTES), &format!("{name}, mean of the heads"))?;
        let mut heads = String::new();
        // One head is the mean.
        for (number, head) in look.heads.iter().take(HEADS).enumerate().filter(|_| look.heads.len() > 1) {
            heads += &map(head, (HEAD_SIDE, HEAD_BYTES), &format!("{name}, head {}", number + 1))?;
        }
        let columns = look.heads.len().clamp(3, HEADS);
        html += &format!(
            "<figure><div class=\"pair\">{image}{mean}</div><div class=\"heads\" style=\"--n:{columns}\">{heads}</div><figcaption>{}</figcaption>\
             </figure>\n",
            escape(&name)
        );
    }
    html += "</div>\n";
    Ok(Section { title: "Where it looks".to_owned(), html })
}

/// A map as it is, which the page enlarges to squares; where that would take too many bytes, as a photograph.
fn map(map: &Image, (side, bytes): (usize, usize), about: &str) -> Result<String, ReportError> {
    match lossless(map, bytes) {
        Some(encoded) => Ok(element(&encoded, about)),
        None => Ok(element(&encode(map, side, bytes)?, about)),
    }
}

fn element(Encoded { uri, width, height }: &Encoded, about: &str) -> String {
    let about = escape(about);
    format!("<img src=\"{uri}\" width=\"{width}\" height=\"{height}\" alt=\"{about}\" title=\"{about}\">")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::noise;
    use super::*;

    pub(crate) fn largest() -> Section {
        let look = |i: u32| Looked {
            image: noise(480, 640, i),
            name: "<i>".repeat(200),
            class: Some("\"dog\"".to_owned()),
            mean: noise(480, 640, i + 50),
            heads: (0..HEADS as u32 + 6).map(|head| noise(480, 640, 100 * i + head)).collect(),
        };
        section("some", &(0..IMAGES as u32 + 1).map(look).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_image_has_its_mean_and_its_heads() {
        let html = largest().html;
        assert_eq!(html.matches("<figure>").count(), IMAGES);
        assert_eq!(html.matches("<img").count(), IMAGES * (2 + HEADS));
        assert!(html.contains("&quot;dog&quot;: &lt;i&gt;") && !html.contains("<i>"));
        let image = || noise(9, 9, 1);
        let alone = Looked { image: image(), name: String::new(), class: None, mean: image(), heads: vec![image()] };
        let alone = section("", &[alone]).unwrap().html;
        assert_eq!(alone.matches("<img").count(), 2, "one head is the mean");
        let map = "<img src=\"data:image/png;base64,";
        assert_eq!((alone.matches(map).count(), html.matches(map).count()), (1, 0), "a map as it is, if it is small");
    }
}
