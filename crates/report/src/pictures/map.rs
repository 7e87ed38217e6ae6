//! Images as points on a plane. Without a script each point has its name as a title; with one the image is shown under the
//! pointer, out of one large picture that holds all of them.

use std::fmt::Write;

use data::Image;

use super::encode::{Encoded, encode};
use super::label;
use crate::account::ReportError;
use crate::markup::escape;
use crate::page::Section;

/// Points, at most.
pub const POINTS: usize = 1500;
/// Pixels of an image's side in the large picture: of images at least as large, and of smaller ones. Whole blocks of a JPEG,
/// so that no image bleeds into the next.
pub const TILES: (usize, usize) = (48, 32);
/// Groups that have a colour of their own.
pub const COLORS: usize = 10;
/// Images in a row of the large picture.
const COLUMNS: usize = 40;
/// Bytes of the large picture.
const BYTES: usize = 1100 << 10;
/// Letters of a name and of a class: there are many points.
const LETTERS: usize = 40;
/// Width of the drawing in its own units, its least and its largest height, and room at its edges.
const WIDTH: f64 = 1000.0;
const HEIGHTS: (f64, f64) = (420.0, 720.0);
const MARGIN: f64 = 14.0;

/// An image on the plane.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where it is, in any units.
    pub place: [f32; 2],
    /// Its group; one without a colour, and those of no group, are grey.
    pub group: Option<usize>,
    /// What it is called.
    pub name: String,
    /// Its class, or the name of whatever it belongs to.
    pub class: Option<String>,
    /// The image itself; none where it cannot be read any more.
    pub image: Option<Image>,
}

/// The section of these points: a sentence, and the names of the groups, of which the first [`COLORS`] have colours.
pub fn section(about: &str, groups: &[String], points: &[Point]) -> Result<Section, ReportError> {
    let points = &points[..points.len().min(POINTS)];
    let colored = groups.len().min(COLORS);
    let color = |point: &Point| point.group.filter(|group| *group < colored);
    let mut circles = String::new();
    let (height, places) = places(points);
    for (point, [x, y]) in points.iter().zip(places) {
        let class = color(point).map_or("o".to_owned(), |group| format!("g{group}"));
        let class_name = point.class.as_deref().map(|class| text::shortened(class, LETTERS));
        let label = label(class_name.as_deref(), &text::shortened(&point.name, LETTERS));
        _ = writeln!(
            circles,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"><title>{}</title></circle>",
            escape(&label)
        );
    }
    let count = |group: Option<usize>| points.iter().filter(|point| color(point) == group).count();
    let mut legend = String::new();
    for (group, name) in groups.iter().take(colored).enumerate() {
        let name = text::shortened(name, super::NAME);
        legend += &entry(&format!("g{group}"), &name, count(Some(group)));
    }
    if count(None) > 0 && colored > 0 {
        legend += &entry("o", "others", count(None));
    }
    let (side, atlas) = atlas(points)?;
    let html = format!(
        "<p class=\"muted\">{}</p>\n<figure class=\"map\"><svg role=\"img\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         aria-label=\"map of the features of {}\">\n{circles}</svg>\n<ul>{legend}</ul>\n\
         <img class=\"atlas\" hidden alt=\"\" data-side=\"{side}\" data-columns=\"{COLUMNS}\" src=\"{}\"></figure>\n",
        escape(about),
        text::count(points.len(), "image"),
        atlas.uri
    );
    Ok(Section { title: "Map of the features".to_owned(), html })
}

fn entry(class: &str, name: &str, count: usize) -> String {
    format!("<li class=\"{class}\" tabindex=\"0\">{} <b>{}</b></li>", escape(name), text::thousands(count as u64))
}

/// The height of the drawing, and places on it: as large as there is room, without changing the proportion. A map has no up
/// and no left, so that its longer side may lie down.
fn places(points: &[Point]) -> (f64, Vec<[f64; 2]>) {
    let range = |axis: usize| {
        let values = points.iter().map(|point| f64::from(point.place[axis])).filter(|value| value.is_finite());
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low <= high { (low, (high - low).max(1e-9)) } else { (0.0, 1.0) }
    };
    let axes = if range(0).1 >= range(1).1 { [0, 1] } else { [1, 0] };
    let ranges = axes.map(range);
    let across = (WIDTH - 2.0 * MARGIN) / ranges[0].1;
    let height = (ranges[1].1 * across + 2.0 * MARGIN).clamp(HEIGHTS.0, HEIGHTS.1);
    let scale = across.min((height - 2.0 * MARGIN) / ranges[1].1);
    let at = |point: &Point, side: usize| {
        let (low, length) = ranges[side];
        let value = f64::from(point.place[axes[side]]);
        let room = [WIDTH, height][side] - length * scale;
        room / 2.0 + if value.is_finite() { (value - low) * scale } else { length * scale / 2.0 }
    };
    (height, points.iter().map(|point| [at(point, 0), at(point, 1)]).collect())
}

/// All images side by side, in the order of the points; the pixels of a side.
fn atlas(points: &[Point]) -> Result<(usize, Encoded), ReportError> {
    let largest =
        points.iter().filter_map(|point| point.image.as_ref()).map(|image| image.width.min(image.height)).max();
    let side = if largest.unwrap_or(0) >= TILES.0 { TILES.0 } else { TILES.1 };
    let (columns, rows) = (COLUMNS, points.len().div_ceil(COLUMNS).max(1));
    let mut sheet = Image::from_pixels(columns * side, rows * side, 3, vec![128; columns * rows * side * side * 3]);
    for (number, image) in points.iter().enumerate().filter_map(|(i, point)| Some((i, point.image.as_ref()?))) {
        let (top, left) = (number / columns * side, number % columns * side);
        let tile = data::encode::to_rgb(&data::augment::resize(image, (side, side), data::augment::Filter::Bicubic));
        for y in 0..side {
            let start = (top + y) * sheet.stride() + 3 * left;
            sheet.pixels[start..start + 3 * side].copy_from_slice(tile.row(y));
        }
    }
    let longest = sheet.width.max(sheet.height);
    let encoded = encode(&sheet, longest, BYTES)?;
    // Where its bytes did not suffice it has become smaller as a whole.
    Ok((encoded.width / columns, encoded))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::noise;
    use super::*;

    fn points(count: usize, side: usize) -> Vec<Point> {
        let point = |i: usize| Point {
            place: [(i as f32 * 0.7).sin(), 3.0 * (i as f32 * 1.1).cos()],
            group: Some(i % 12),
            name: "\"name\"".repeat(40),
            class: Some(format!("<class {}>", i % 12)),
            image: (!i.is_multiple_of(7)).then(|| noise(side, side, i as u32)),
        };
        (0..count).map(point).collect()
    }

    fn groups() -> Vec<String> {
        (0..12).map(|i| format!("<class {i}>")).collect()
    }

    pub(crate) fn largest() -> Section {
        section("some", &groups(), &points(POINTS + 10, TILES.0)).unwrap()
    }

    #[test]
    fn every_image_has_a_point_with_its_name_and_colours_are_explained() {
        let html = section("some <images>", &groups(), &points(60, 40)).unwrap().html;
        assert_eq!((html.matches("<circle").count(), html.matches("<title>").count()), (60, 60));
        assert_eq!(html.matches("<li ").count(), COLORS + 1, "and the others");
        assert!(html.contains("<li class=\"g3\" tabindex=\"0\">&lt;class 3&gt; <b>5</b></li>"), "{html}");
        assert!(html.contains("others <b>10</b>") && !html.contains("<class") && html.contains("data-side=\"32\""));
        let largest = largest().html;
        assert_eq!(largest.matches("<circle").count(), POINTS);
        assert!(!largest.contains("data-side=\"0\""));
    }

    #[test]
    fn places_fill_the_drawing_with_the_longer_side_across() {
        let (height, places) = places(&points(300, 8));
        let range = |axis: usize| {
            let values = || places.iter().map(|place| place[axis]);
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
        };
        let ((left, right), (top, bottom)) = (range(0), range(1));
        assert!((left - MARGIN).abs() < 1e-3 && (right - (WIDTH - MARGIN)).abs() < 1e-3, "{left} to {right}");
        assert!(top >= MARGIN - 1e-3 && bottom <= height - MARGIN + 1e-3 && height == HEIGHTS.0);
        assert!(((right - left) / (bottom - top) - 3.0).abs() < 0.1, "the proportion stays");
        let odd = vec![Point { place: [f32::NAN, 1.0], ..points(1, 8)[0].clone() }; 2];
        assert!(super::places(&odd).1.iter().flatten().all(|x| x.is_finite()));
    }
}
