//! Pictures on a page: what the network sees of images, where it puts them, and what its prototypes stand for.
//!
//! Everything here is presentation: whoever computes hands over images, numbers and names, and gets a [`Section`]. Names are
//! text, whatever they hold. Images stand in the page itself, and how many bytes each may take is a constant, so that no data
//! makes a page larger than [`MOST_BYTES`] beside its curves.
//!
//! - [`views`]: sheets of what training sees.
//! - [`galleries`]: prototypes, each with the images that stand for it.
//! - [`neighbors`]: held-out images and what the network finds most like them.
//! - [`attention`]: images beside where the network looks.
//! - [`map`]: images as points on a plane, shown under the pointer.

pub mod attention;
mod encode;
pub mod galleries;
pub mod map;
pub mod neighbors;

use data::Image;

use crate::account::ReportError;
use crate::markup::{escape, prose};
use crate::page::Section;
use encode::{Encoded, encode};

pub(crate) const STYLE: &str = include_str!("../assets/pictures.css");
pub(crate) const SCRIPT: &str = include_str!("../assets/pictures.js");

/// Pixels of the longer side of an image in a row of several.
pub const THUMBNAIL: usize = 80;
/// Bytes of one of them.
pub(crate) const THUMBNAIL_BYTES: usize = 3 << 10;
/// Sheets of views, at most.
const SHEETS: usize = 2;
/// Pixels of the longer side of one.
const VIEWS: usize = 1280;
/// And its bytes.
const VIEWS_BYTES: usize = 160 << 10;
/// Letters of a name that are shown.
const NAME: usize = 90;
/// Bytes that all pictures of a page take at most, as text: a third more than as files, and names beside them.
pub const MOST_BYTES: usize = 4_300_000;

/// An image of the data.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The image, as large as it is shown or larger.
    pub image: Image,
    /// What it is called.
    pub name: String,
    /// Its class, where that is known.
    pub class: Option<String>,
}

impl Picture {
    /// Its class and its name.
    fn label(&self) -> String {
        label(self.class.as_deref(), &self.name)
    }

    /// As an element that says what it is.
    fn thumbnail(&self, more: &str) -> Result<String, ReportError> {
        let Encoded { uri, width, height } = encode(&self.image, THUMBNAIL, THUMBNAIL_BYTES)?;
        let label = format!("{}{more}", self.label());
        let label = escape(&label);
        Ok(format!("<img src=\"{uri}\" width=\"{width}\" height=\"{height}\" alt=\"{label}\" title=\"{label}\">"))
    }
}

fn label(class: Option<&str>, name: &str) -> String {
    let name = text::shortened(name, NAME);
    class.map_or_else(|| name.to_string(), |class| format!("{}: {name}", text::shortened(class, NAME)))
}

impl Section {
    /// A section that says why there is nothing to see in it.
    pub fn without(title: &str, why: &str) -> Self {
        let html = format!("<p class=\"muted\">{}</p>\n", prose(why));
        Self { title: title.to_owned(), html }
    }
}

/// Sheets of images with their views, and what they show.
pub fn views(sheets: &[Image], about: &str) -> Result<Section, ReportError> {
    let mut html = format!("<p class=\"muted\">{}</p>\n<div class=\"sheets\">\n", escape(about));
    for sheet in sheets.iter().take(SHEETS) {
        let Encoded { uri, width, height } = encode(sheet, VIEWS, VIEWS_BYTES)?;
        html += &format!("<img src=\"{uri}\" width=\"{width}\" height=\"{height}\" alt=\"views of some images\">\n");
    }
    html += "</div>\n";
    Ok(Section { title: "What the network sees in training".to_owned(), html })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many bytes as an image can have.
    pub(super) fn noise(width: usize, height: usize, seed: u32) -> Image {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        let mut level = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 11) as u8
        };
        Image::from_pixels(width, height, 3, (0..width * height * 3).map(|_| level()).collect())
    }

    pub(super) fn picture(seed: u32) -> Picture {
        let class = Some("<b>\"cat\"</b>".to_owned());
        Picture { image: noise(THUMBNAIL, THUMBNAIL, seed), name: format!("</script>'{}", "x".repeat(300)), class }
    }

    #[test]
    fn all_pictures_of_a_page_fit_however_they_look() {
        let mut bytes = views(&vec![noise(VIEWS, VIEWS, 1); SHEETS + 1], "x").unwrap().html.len();
        bytes += galleries::tests::largest().html.len();
        bytes += neighbors::tests::largest().html.len();
        bytes += attention::tests::largest().html.len();
        bytes += map::tests::largest().html.len();
        assert!(bytes < MOST_BYTES, "{bytes}");
    }

    #[test]
    fn names_are_text() {
        let html = picture(3).thumbnail("").unwrap();
        assert!(html.contains("&lt;b&gt;&quot;cat&quot;&lt;/b&gt;: &lt;/script&gt;&#39;xxx"), "{html}");
        assert!(!html.contains("</script>") && !html.contains(&"x".repeat(120)));
        let section = Section::without("Map", "no <data>");
        assert!(section.html.contains("no &lt;data&gt;"));
    }
}
