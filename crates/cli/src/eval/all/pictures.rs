//! What the network looks at in some images: the pictures in the folder of the results, as a section of their page.

use std::path::{Component, Path};

use data::decode::decode;
use data::{DecodeLimits, Image};
use report::page::Section;
use report::pictures::attention::{HEADS, Looked, section};
use serde_json::Value;

use super::store::Store;

/// The folder of the pictures, in that of the results.
pub const FOLDER: &str = "attention";
/// The largest picture that goes into the page.
const MAX_BYTES: u64 = 4 << 20;

/// The section; none where nothing was drawn, or the files are not what was written.
pub fn of(store: &Store) -> Option<Section> {
    let record = store.kept(FOLDER)?.judgement.record;
    let patch = usize::try_from(record["patch"].as_u64()?).ok().filter(|&patch| patch > 0)?;
    let folder = store.folder().join(FOLDER);
    let looks: Vec<Looked> =
        record["images"].as_array()?.iter().filter_map(|names| look(&folder, names, patch)).collect();
    let heads = match looks.first()?.heads.len() {
        1 => "",
        _ => ": the mean over its heads beside the image, heads below it",
    };
    let about = format!(
        "What the class token of the last block attends to{heads}. Bright is much, dark little; a square is a patch."
    );
    section(&about, &looks).ok()
}

/// An image with the mean over heads, and some heads.
fn look(folder: &Path, names: &Value, patch: usize) -> Option<Looked> {
    let names = names.as_array()?;
    let map = |name: &Value| Some(grid(&picture(folder, name)?, patch));
    let name = names.first()?.as_str()?.trim_end_matches(".png").to_owned();
    let (image, mean) = (picture(folder, names.first()?)?, map(names.get(1)?)?);
    Some(Looked { image, name, class: None, mean, heads: names[2..].iter().take(HEADS).filter_map(map).collect() })
}

fn picture(folder: &Path, name: &Value) -> Option<Image> {
    let name = Path::new(name.as_str()?);
    // The file of results may have been changed: nothing outside of the folder goes into the page.
    let is_inside = matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)]);
    let png = is_inside.then(|| files::read_bounded(&folder.join(name), MAX_BYTES).ok()).flatten()?;
    png.starts_with(b"\x89PNG").then(|| decode(&png, &DecodeLimits::default()).ok()).flatten()
}

/// A map as a pixel for each patch: on the disk each is a square of equal pixels.
fn grid(map: &Image, patch: usize) -> Image {
    let (height, width) = ((map.height / patch).max(1), (map.width / patch).max(1));
    let pixel = |(y, x): (usize, usize)| {
        let at = (y * patch * map.width + x * patch) * map.channels;
        &map.pixels[at..at + map.channels]
    };
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    Image::from_pixels(width, height, map.channels, places.flat_map(pixel).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eval::attention::{Colors, heat};

    #[test]
    fn a_map_becomes_a_pixel_for_each_patch() {
        let weights = [0.1, 0.2, 0.3, 0.05, 0.15, 0.2];
        let map = |patch| heat(&weights, (2, 3), patch, Colors::Viridis);
        assert_eq!(grid(&map(16), 16), map(1));
        assert_eq!(grid(&map(1), 4).width, 1, "a file that somebody else put there");
    }
}
