//! A contact sheet: what a network sees of some images, as one picture for people.
//!
//! One row an image: the image itself, scaled to fit, then its views in their true sizes relative to each other. The
//! colour of a view's frame is that of its part on the image. Frames lie outside views, so that every byte of a view is
//! on the sheet.

use crate::Image;
use crate::augment::{Filter, Rect, resize};
use crate::views::{GLOBAL_VIEWS, MultiCrop, ViewKind};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use thiserror::Error;

/// Around the sheet and between its rows.
const MARGIN: usize = 16;
/// Between the cells of a row, with room for two frames.
const GAP: usize = 10;
/// Thickness of a frame.
const FRAME: usize = 3;
/// Thickness of the outline, on the image, of a part that a global view shows, and of one that a local view shows.
const OUTLINES: (usize, usize) = (3, 2);
/// Views smaller than this are enlarged, each pixel to a square of whole pixels.
const COMFORTABLE: usize = 160;
/// An image is at most this many times as wide as a global view.
const WIDEST: f64 = 1.5;
/// Dark and without a hue, so that it changes no colour to the eye.
const BACKGROUND: [u8; 3] = [38; 3];
/// Of global view 1, global view 2, and the local views in turn.
const COLORS: [[u8; 3]; 12] = [
    [250, 82, 82],
    [51, 154, 240],
    [255, 212, 59],
    [81, 207, 102],
    [204, 93, 232],
    [255, 146, 43],
    [34, 211, 238],
    [247, 131, 172],
    [169, 227, 75],
    [145, 130, 255],
    [32, 201, 151],
    [230, 200, 160],
];

/// Why there is no sheet.
#[derive(Debug, Error)]
pub enum SheetError {
    /// More than there is memory for.
    #[error("a picture of {width} x {height} pixels does not fit into memory; show fewer images or smaller views")]
    TooLarge {
        /// Columns it would have.
        width: usize,
        /// Rows it would have.
        height: usize,
    },
    /// The PNG encoder refused.
    #[error("the picture could not be written as PNG: {reason}")]
    Png {
        /// What it said.
        reason: String,
    },
}

/// An image and its views.
#[derive(Clone, Debug)]
pub struct Row {
    /// The image as it is shown.
    pub image: Image,
    /// (height, width) that it had.
    size: (usize, usize),
    /// Which part of it each view shows, in the order of the views.
    crops: Vec<Rect>,
    /// The views: global 1, global 2, local 1 and on.
    pub views: Vec<Image>,
}

impl Row {
    /// A row of an image, the parts of it that its views by this recipe show, and those views.
    ///
    /// # Panics
    /// When there are not as many crops and views as the recipe makes.
    pub fn new(image: &Image, crops: Vec<Rect>, views: Vec<Image>, recipe: &MultiCrop) -> Self {
        assert_eq!((crops.len(), views.len()), (recipe.count(), recipe.count()), "views of a row");
        let size = (image.height, image.width);
        let place = SheetGrid::new(&[size], recipe).image(0);
        Self { image: scaled(image, (place.height, place.width)), size, crops, views }
    }
}

/// Where everything lies on a sheet.
#[derive(Clone, Debug)]
pub struct SheetGrid {
    /// How many pixels of the sheet, in each direction, show one pixel of a view.
    pub zoom: usize,
    /// (height, width) of the sheet.
    pub size: (usize, usize),
    row_height: usize,
    /// (height, width) of each image as it is shown.
    shown: Vec<(usize, usize)>,
    /// Places of the views in the first row.
    views: Vec<Rect>,
}

impl SheetGrid {
    /// A sheet of images with these sizes (height, width), and views by this recipe.
    pub fn new(images: &[(usize, usize)], recipe: &MultiCrop) -> Self {
        let (global, local) = (recipe.size(ViewKind::Global1), recipe.size(ViewKind::Local));
        let zoom = (COMFORTABLE / global.0.max(global.1)).max(1);
        let zoomed = |(height, width): (usize, usize)| (height * zoom, width * zoom);
        let (global, local) = (zoomed(global), zoomed(local));
        // As many local views below each other as a global one is high.
        let local_rows = (global.0 / local.0).clamp(1, recipe.local_crops.max(1));
        let row_height = global.0.max(local_rows * (local.0 + GAP) - GAP);
        let shown: Vec<_> = images.iter().map(|&size| fit(size, zoom, (row_height, widest(global.1)))).collect();

        let mut left = MARGIN + shown.iter().map(|size| size.1).max().unwrap_or(0) + 2 * GAP;
        let mut views = Vec::with_capacity(recipe.count());
        for _ in 0..GLOBAL_VIEWS {
            let top = MARGIN + (row_height - global.0) / 2;
            views.push(Rect { top, left, height: global.0, width: global.1 });
            left += global.1 + GAP;
        }
        left += GAP;
        let columns = recipe.local_crops.div_ceil(local_rows);
        // The first local views begin at the top of the row, the last ones end at its bottom.
        let spare = row_height - local_rows * local.0;
        let (first, between) = if local_rows == 1 { (spare / 2, 0) } else { (0, spare / (local_rows - 1)) };
        for i in 0..recipe.local_crops {
            let (row, column) = (i / columns, i % columns);
            let top = MARGIN + first + row * (local.0 + between);
            views.push(Rect { top, left: left + column * (local.1 + GAP), height: local.0, width: local.1 });
        }
        let right = views.iter().map(|view| view.left + view.width).max().unwrap_or(0);
        let size = (MARGIN + images.len() * (row_height + MARGIN), right + MARGIN);
        Self { zoom, size, row_height, shown, views }
    }

    /// Where a row's image is.
    pub fn image(&self, row: usize) -> Rect {
        let (height, width) = self.shown[row];
        let top = MARGIN + row * (self.row_height + MARGIN) + (self.row_height - height) / 2;
        Rect { top, left: MARGIN, height, width }
    }

    /// Where a view is.
    pub fn view(&self, row: usize, view: usize) -> Rect {
        let place = self.views[view];
        Rect { top: place.top + row * (self.row_height + MARGIN), ..place }
    }
}

fn widest(global_width: usize) -> usize {
    (WIDEST * global_width as f64) as usize
}

/// The size at which an image is shown: enlarged as the views are, but no larger than the place for it.
fn fit((height, width): (usize, usize), zoom: usize, place: (usize, usize)) -> (usize, usize) {
    let (high, wide) = (height as f64, width as f64);
    let scale = (zoom as f64).min(place.0 as f64 / high).min(place.1 as f64 / wide);
    let side = |length: f64| ((length * scale).round() as usize).max(1);
    (side(high), side(wide))
}

/// Draws the sheet, with or without frames.
///
/// # Panics
/// When a row was made by another recipe.
pub fn draw(rows: &[Row], recipe: &MultiCrop, frames: bool) -> Result<Image, SheetError> {
    let sizes: Vec<_> = rows.iter().map(|row| row.size).collect();
    let grid = SheetGrid::new(&sizes, recipe);
    let mut canvas = Canvas::new(grid.size)?;
    for (r, row) in rows.iter().enumerate() {
        let place = grid.image(r);
        canvas.paste(&row.image, place, 1);
        for (v, view) in row.views.iter().enumerate() {
            canvas.paste(view, grid.view(r, v), grid.zoom);
        }
        if frames {
            // Global views first: the parts of local ones are smaller and would be covered.
            for (v, crop) in row.crops.iter().enumerate() {
                let part = scale_rect(*crop, row.size, place);
                canvas.outline(part, if v < GLOBAL_VIEWS { OUTLINES.0 } else { OUTLINES.1 }, color(v));
                canvas.outline(grown(grid.view(r, v), FRAME), FRAME, color(v));
            }
        }
    }
    Ok(canvas.0)
}

/// Encodes an image of one or three channels as PNG.
pub fn to_png(image: &Image) -> Result<Vec<u8>, SheetError> {
    let refused = |reason: String| SheetError::Png { reason };
    let side = |n: usize| u32::try_from(n).map_err(|error| refused(error.to_string()));
    let color = match image.channels {
        1 => ExtendedColorType::L8,
        3 => ExtendedColorType::Rgb8,
        n => return Err(refused(format!("{n} channels"))),
    };
    let mut bytes = Vec::new();
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive)
        .write_image(&image.pixels, side(image.width)?, side(image.height)?, color)
        .map_err(|error| refused(error.to_string()))?;
    Ok(bytes)
}

fn color(view: usize) -> [u8; 3] {
    let local = COLORS.len() - GLOBAL_VIEWS;
    if view < COLORS.len() { COLORS[view] } else { COLORS[GLOBAL_VIEWS + (view - GLOBAL_VIEWS) % local] }
}

/// An image at another size: enlarged by whole factors pixel for pixel, otherwise smoothly.
fn scaled(image: &Image, (height, width): (usize, usize)) -> Image {
    let zoom = height / image.height;
    if zoom >= 1 && (height, width) == (image.height * zoom, image.width * zoom) {
        let mut canvas = Canvas(Image::black(width, height, 3));
        canvas.paste(image, Rect { top: 0, left: 0, height, width }, zoom);
        return canvas.0;
    }
    resize(image, (height, width), Filter::Bicubic)
}

/// Where a part of an image lies on the place where the image is shown.
fn scale_rect(part: Rect, (height, width): (usize, usize), place: Rect) -> Rect {
    let along = |start: usize, length: usize, from: usize, to: usize| {
        let at = |x: usize| (x as f64 * to as f64 / from as f64).round() as usize;
        let first = at(start).min(to - 1);
        (first, at(start + length).clamp(first + 1, to) - first)
    };
    let (top, height) = along(part.top, part.height, height, place.height);
    let (left, width) = along(part.left, part.width, width, place.width);
    Rect { top: place.top + top, left: place.left + left, height, width }
}

fn grown(rect: Rect, by: usize) -> Rect {
    Rect { top: rect.top - by, left: rect.left - by, height: rect.height + 2 * by, width: rect.width + 2 * by }
}

/// The picture under construction, RGB.
struct Canvas(Image);

impl Canvas {
    fn new((height, width): (usize, usize)) -> Result<Self, SheetError> {
        let too_large = || SheetError::TooLarge { width, height };
        let bytes = height.checked_mul(width).and_then(|n| n.checked_mul(3)).ok_or_else(too_large)?;
        let mut pixels = Vec::new();
        pixels.try_reserve_exact(bytes).map_err(|_| too_large())?;
        pixels.extend(std::iter::repeat_n(BACKGROUND, height * width).flatten());
        Ok(Self(Image::from_pixels(width, height, 3, pixels)))
    }

    /// Puts an image in its place, each pixel as a square of `zoom` pixels: the first three channels, or grey.
    fn paste(&mut self, image: &Image, place: Rect, zoom: usize) {
        for y in 0..place.height {
            let row = image.row(y / zoom);
            for x in 0..place.width {
                let pixel = &row[x / zoom * image.channels..][..image.channels];
                let color = if let &[r, g, b, ..] = pixel { [r, g, b] } else { [pixel[0]; 3] };
                self.set(place.top + y, place.left + x, color);
            }
        }
    }

    /// Draws the border of a rectangle, inside it.
    fn outline(&mut self, rect: Rect, thickness: usize, color: [u8; 3]) {
        for y in 0..rect.height {
            let is_edge = y < thickness || y + thickness >= rect.height;
            for x in 0..rect.width {
                if is_edge || x < thickness || x + thickness >= rect.width {
                    self.set(rect.top + y, rect.left + x, color);
                }
            }
        }
    }

    fn set(&mut self, y: usize, x: usize, color: [u8; 3]) {
        let at = y * self.0.stride() + 3 * x;
        self.0.pixels[at..at + 3].copy_from_slice(&color);
    }
}
