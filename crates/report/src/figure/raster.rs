//! A drawing of ours as PNG, with letters of our own, so that it looks the same on every machine.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

/// The largest side of a picture.
const MOST_PIXELS: f32 = 16_384.0;

/// Why a drawing did not become a picture.
#[derive(Debug, thiserror::Error)]
pub enum RasterError {
    /// It is no SVG, or has parts that are not understood.
    #[error("the drawing cannot be read: {0}")]
    Drawing(String),
    /// Too large, or nothing at all.
    #[error("the picture would have {width} x {height} pixels")]
    Size {
        /// Pixels across.
        width: f32,
        /// Pixels down.
        height: f32,
    },
    /// It could not be packed.
    #[error("the picture cannot be packed: {0}")]
    Png(String),
}

/// The picture of an SVG file of this crate, `zoom` pixels for each of its units.
pub fn png(svg: &str, zoom: f32) -> Result<Vec<u8>, RasterError> {
    let mut letters = fontdb::Database::new();
    letters.load_font_data(dejavu::sans::regular().to_vec());
    letters.set_sans_serif_family("DejaVu Sans");
    let options = Options { fontdb: Arc::new(letters), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| RasterError::Drawing(error.to_string()))?;
    let (width, height) = (tree.size().width() * zoom, tree.size().height() * zoom);
    let fits = |side: f32| (1.0..=MOST_PIXELS).contains(&side);
    let pixmap =
        if fits(width) && fits(height) { Pixmap::new(width.ceil() as u32, height.ceil() as u32) } else { None };
    let mut pixmap = pixmap.ok_or(RasterError::Size { width, height })?;
    resvg::render(&tree, Transform::from_scale(zoom, zoom), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| RasterError::Png(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Chart, Series, svg_file};

    #[test]
    fn a_chart_becomes_a_picture_with_lines_and_letters() {
        let series =
            vec![Series::new("a", vec![(0.0, 0.0), (1.0, 1.0)]), Series::new("b", vec![(0.0, 1.0), (1.0, 0.5)])];
        let with = |title: &str| {
            let chart = Chart { title: title.into(), across: "x".into(), series: series.clone(), ..Default::default() };
            png(&svg_file(&[chart]), 2.0).unwrap()
        };
        let picture = with("A title");
        assert!(picture.starts_with(b"\x89PNG"));
        let decoded = Pixmap::decode_png(&picture).unwrap();
        let has = |color: [u8; 3]| decoded.pixels().iter().any(|p| [p.red(), p.green(), p.blue()] == color);
        assert!(has([0x00, 0x72, 0xb2]) && has([0xd5, 0x5e, 0x00]) && has([255, 255, 255]), "lines on white");
        assert_ne!(picture, with(""), "letters are drawn");
    }

    #[test]
    fn what_cannot_be_a_picture_is_an_error() {
        assert!(matches!(png("<svg", 1.0), Err(RasterError::Drawing(_))));
        let wide = "<svg xmlns='http://www.w3.org/2000/svg' width='90000' height='10'/>";
        assert!(matches!(png(wide, 1.0), Err(RasterError::Size { .. })));
    }
}
