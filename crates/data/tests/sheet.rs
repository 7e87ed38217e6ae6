//! The contact sheet: every byte of every view is on it, where the layout says.

use data::augment::{Rect, crop};
use data::decode::{DecodeLimits, decode};
use data::sheet::{Row, SheetGrid, draw, to_png};
use data::views::MultiCrop;
use data::{Image, Split, open};
use random::{Key, Purpose};

fn row(image: Image, recipe: &MultiCrop, sample: u64) -> Row {
    let key = Key::new(1, Purpose::View).sample(sample);
    let crops = (0..recipe.count()).map(|v| recipe.draw(v, image.height, image.width, key).crop).collect();
    let views = recipe.views(&image, key);
    Row::new(&image, crops, views, recipe)
}

fn rows(size: usize, recipe: &MultiCrop) -> Vec<Row> {
    let source = open(&format!("synthetic:train=3,size={size}"), Split::Train, 0).unwrap();
    (0..3).map(|i| row(source.read(i).unwrap(), recipe, i as u64)).collect()
}

fn recipe(global: usize, local: usize, local_crops: usize) -> MultiCrop {
    MultiCrop { global_size: (global, global), local_size: (local, local), local_crops, ..MultiCrop::dino() }
}

/// What is on the sheet in a place, made small again.
fn shown(sheet: &Image, place: Rect, zoom: usize) -> Vec<u8> {
    let part = crop(sheet, place);
    let row = |y: usize| part.row(y * zoom).chunks_exact(3).step_by(zoom).flatten().copied().collect::<Vec<u8>>();
    (0..place.height / zoom).flat_map(row).collect()
}

#[test]
fn every_view_is_on_the_sheet_byte_for_byte_with_and_without_frames() {
    for (size, recipe) in [(200, recipe(160, 60, 5)), (40, recipe(32, 16, 2)), (20, recipe(20, 20, 1))] {
        let rows = rows(size, &recipe);
        for frames in [true, false] {
            let sheet = draw(&rows, &recipe, frames).unwrap();
            let layout = SheetGrid::new(&[(size, size); 3], &recipe);
            assert_eq!((sheet.height, sheet.width), layout.size);
            for (r, row) in rows.iter().enumerate() {
                for (v, view) in row.views.iter().enumerate() {
                    assert!(shown(&sheet, layout.view(r, v), layout.zoom) == view.pixels, "row {r} view {v}");
                }
            }
            let same = crop(&sheet, layout.image(0)) == rows[0].image;
            assert_eq!(same, !frames, "an image is shown as it is where nothing is drawn on it");
        }
    }
}

#[test]
fn nothing_overlaps_and_everything_is_on_the_sheet() {
    let sizes = [(300, 400), (400, 300), (7, 5000), (5000, 7), (1, 1)];
    for recipe in [MultiCrop::dino(), MultiCrop::msn(), recipe(224, 96, 0), recipe(64, 96, 3), recipe(8, 1, 40)] {
        let layout = SheetGrid::new(&sizes, &recipe);
        let mut places: Vec<Rect> = (0..sizes.len()).map(|r| layout.image(r)).collect();
        places.extend(
            (0..sizes.len()).flat_map(|r| (0..recipe.count()).map(move |v| (r, v))).map(|(r, v)| layout.view(r, v)),
        );
        for (i, a) in places.iter().enumerate() {
            assert!(a.fits(layout.size.0, layout.size.1), "{a:?} is not on {:?}", layout.size);
            for b in &places[..i] {
                let apart = |a: usize, length: usize, b: usize| a + length <= b;
                assert!(
                    apart(a.left, a.width, b.left)
                        || apart(b.left, b.width, a.left)
                        || apart(a.top, a.height, b.top)
                        || apart(b.top, b.height, a.top),
                    "{a:?} lies over {b:?}"
                );
            }
        }
    }
}

#[test]
fn thin_grey_and_one_pixel_images_are_drawn() {
    let recipe = recipe(24, 12, 3);
    for (width, height) in [(1, 1), (900, 2), (2, 900)] {
        let image = Image::from_pixels(width, height, 3, (0..width * height * 3).map(|i| (i % 251) as u8).collect());
        assert!(draw(&[row(image, &recipe, 0)], &recipe, true).is_ok());
    }
    let mut gray = rows(30, &recipe);
    for image in gray.iter_mut().flat_map(|row| std::iter::once(&mut row.image).chain(&mut row.views)) {
        *image = Image::from_pixels(image.width, image.height, 1, image.pixels.iter().step_by(3).copied().collect());
    }
    let sheet = draw(&gray, &recipe, false).unwrap();
    assert!(sheet.pixels.chunks_exact(3).all(|p| p[0] == p[1] && p[1] == p[2]));
}

#[test]
fn a_sheet_survives_its_png() {
    let recipe = recipe(24, 12, 3);
    let sheet = draw(&rows(30, &recipe), &recipe, true).unwrap();
    assert_eq!(decode(&to_png(&sheet).unwrap(), &DecodeLimits::default()).unwrap(), sheet);
    assert!(to_png(&Image::black(2, 2, 4)).unwrap_err().to_string().contains("4 channels"));
}
