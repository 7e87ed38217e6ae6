//! One picture: things of one shape scattered over a ground of one texture, unevenly lit, with noise.
//!
//! Drawing (what is where) and rendering (pixels) are apart. All lengths are in pixels. Everything is antialiased: a
//! shape's coverage falls from 1 to 0 within one pixel of its outline, the ground is sampled four times a pixel. What
//! tells the class is in every part of a picture, and what does not (places, turns, tones, light) differs from part to
//! part or from picture to picture.

use super::shape::Shape;
use super::texture::Texture;
use crate::Image;
use random::Stream;

type Color = [f32; 3];

/// Things lie near the middles of a grid with this many cells along a side, some of which stay empty.
const CELLS: usize = 2;
/// Share of the cells that stay empty.
const EMPTY: f64 = 0.2;
/// The tones of the ground's cells repeat after this many cells along a side: more than a picture shows.
const TABLE: usize = 16;

/// Everything in a picture but its noise.
pub(super) struct Scene {
    size: usize,
    shape: Shape,
    things: Vec<Thing>,
    texture: Texture,
    /// Period of the texture, its turn as cosine and sine, and its offset in periods.
    period: f32,
    grain: (f32, f32),
    offset: (f32, f32),
    /// Whether the ground is mirrored: views are, so no class may lean to one side.
    mirrored: bool,
    /// Tones of the ground's cells, `TABLE` by `TABLE`, and the tone between cells.
    tones: Vec<Color>,
    between: Color,
    /// Change of brightness across the picture, along x and y.
    light: (f32, f32),
    noise: f32,
}

/// One of the scattered shapes.
struct Thing {
    center: (f32, f32),
    radius: f32,
    turn: (f32, f32),
    color: Color,
}

impl Scene {
    /// Draws the scene. Nothing but `shape` and `texture` depends on the class.
    pub(super) fn draw(shape: Shape, texture: Texture, size: usize, stream: &mut Stream) -> Self {
        let side = size as f32;
        let mut within = |low: f64, high: f64| stream.uniform_in(low, high) as f32;
        let period = side * within(0.10, 0.128);
        let offset = (within(0.0, 1.0), within(0.0, 1.0));
        let noise = within(0.02, 0.03);
        let slope = side * within(4.0, 8.0);
        let direction = unit(stream);
        let light = (direction.0 / slope, direction.1 / slope);
        // Dark or bright by a coin toss: the sign of every edge is of no use.
        let mut tone = || {
            let lightness = if stream.chance(0.5) { (0.1, 0.3) } else { (0.7, 0.9) };
            color(stream, lightness)
        };
        let tones = (0..TABLE * TABLE).map(|_| tone()).collect();
        let between = color(stream, (0.45, 0.55));
        let grain = tilt(stream);
        let mirrored = stream.chance(0.5);
        // The grid itself is shifted at random, so that no place of the picture is special.
        let cell = side / CELLS as f32;
        let shift = (stream.uniform() as f32, stream.uniform() as f32);
        // Dark and bright things take turns, so that no picture is much brighter than another for its things.
        let first = usize::from(stream.chance(0.5));
        let mut things = Vec::new();
        for (i, j) in (0..=CELLS).flat_map(|i| (0..=CELLS).map(move |j| (i, j))) {
            let bright = (i + j) % 2 == first;
            let thing = Thing::draw((i as f32 - shift.0, j as f32 - shift.1), cell, bright, stream);
            if !stream.chance(EMPTY) {
                things.push(thing);
            }
        }
        Self { size, shape, things, texture, period, grain, offset, mirrored, tones, between, light, noise }
    }

    /// Paints the scene; the noise comes from `stream`.
    pub(super) fn render(&self, stream: &mut Stream) -> Image {
        let mut canvas = self.paint_ground();
        for thing in &self.things {
            thing.paint(self.shape, &mut canvas, self.size);
        }
        self.develop(&canvas, stream)
    }

    fn paint_ground(&self) -> Vec<Color> {
        const SAMPLES: [(f32, f32); 4] = [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)];
        let (gc, gs) = (self.grain.0 / self.period, self.grain.1 / self.period);
        let tone = |x: f32, y: f32| match self
            .texture
            .cell(gc * x + gs * y + self.offset.0, gc * y - gs * x + self.offset.1)
        {
            Some((i, j)) => self.tones[wrap(i) * TABLE + wrap(j)],
            None => self.between,
        };
        let along = |x: f32| if self.mirrored { self.size as f32 - x } else { x };
        let mut canvas = Vec::with_capacity(self.size * self.size);
        for y in 0..self.size {
            for x in 0..self.size {
                let mut sum = [0.0; 3];
                for (dx, dy) in SAMPLES {
                    let sample = tone(along(x as f32 + dx), y as f32 + dy);
                    sum = [0, 1, 2].map(|c| sum[c] + 0.25 * sample[c]);
                }
                canvas.push(sum);
            }
        }
        canvas
    }

    /// Light, noise, and bytes.
    fn develop(&self, canvas: &[Color], stream: &mut Stream) -> Image {
        let mut image = Image::black(self.size, self.size, 3);
        let middle = self.size as f32 / 2.0;
        // Four bytes sum to nearly a normal deviate; this makes its deviation `noise`.
        let scale = self.noise / (4.0f32 * (256.0 * 256.0 - 1.0) / 12.0).sqrt();
        let rows = image.pixels.chunks_exact_mut(self.size * 3).zip(canvas.chunks_exact(self.size));
        for (y, (out, row)) in rows.enumerate() {
            let across = 1.0 + self.light.1 * (y as f32 - middle);
            for (x, (out, color)) in out.as_chunks_mut::<3>().0.iter_mut().zip(row).enumerate() {
                let light = across + self.light.0 * (x as f32 - middle);
                let (first, second) = (stream.bits(), stream.bits());
                let grains = [first as u32, (first >> 32) as u32, second as u32];
                for ((out, &v), grain) in out.iter_mut().zip(color).zip(grains) {
                    let sum: u32 = grain.to_le_bytes().iter().map(|&b| u32::from(b)).sum();
                    let value = v * light + scale * (sum as f32 - 510.0);
                    *out = (value * 255.0 + 0.5) as u8;
                }
            }
        }
        image
    }
}

impl Thing {
    /// Near the middle of a cell, a little turned, nearly black or nearly white.
    fn draw(place: (f32, f32), cell: f32, bright: bool, stream: &mut Stream) -> Self {
        let mut within = |low: f64, high: f64| stream.uniform_in(low, high) as f32;
        let center = (cell * (place.0 + within(0.38, 0.62)), cell * (place.1 + within(0.38, 0.62)));
        let radius = cell * within(0.36, 0.46);
        let turn = tilt(stream);
        let lightness = if bright { (0.80, 0.90) } else { (0.10, 0.20) };
        Self { center, radius, turn, color: color(stream, lightness) }
    }

    /// Lays the shape over the canvas.
    fn paint(&self, shape: Shape, canvas: &mut [Color], size: usize) {
        let reach = self.radius * Shape::REACH + 1.0;
        // `as usize` ends at 0 for what lies outside to the left or above.
        let range = |c: f32| ((c - reach) as usize).min(size)..((c + reach + 1.0) as usize).min(size);
        let columns = range(self.center.0);
        for y in range(self.center.1) {
            let row = &mut canvas[y * size..(y + 1) * size];
            for (pixel, x) in row[columns.clone()].iter_mut().zip(columns.clone()) {
                let (x, y) = (x as f32 + 0.5 - self.center.0, y as f32 + 0.5 - self.center.1);
                let (u, v) = (self.turn.0 * x + self.turn.1 * y, self.turn.0 * y - self.turn.1 * x);
                let distance = shape.distance(u / self.radius, v / self.radius) * self.radius;
                *pixel = blend(*pixel, self.color, (0.5 - distance).clamp(0.0, 1.0));
            }
        }
    }
}

/// How colourful a tone may be: colour tells nothing, and a network should not be drawn to it.
const CHROMA: f64 = 0.02;

/// The place of a cell in the table of tones.
#[inline]
fn wrap(index: i32) -> usize {
    index.rem_euclid(TABLE as i32) as usize
}

#[inline]
fn blend(a: Color, b: Color, t: f32) -> Color {
    [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * t)
}

/// A random direction as its cosine and sine: a point of the unit disk, pushed to its rim.
///
/// Only operations that IEEE 754 defines exactly, here and everywhere in a scene, so that the pictures are the same on
/// every machine.
fn unit(stream: &mut Stream) -> (f32, f32) {
    loop {
        let (x, y) = (stream.uniform_in(-1.0, 1.0), stream.uniform_in(-1.0, 1.0));
        let length = (x * x + y * y).sqrt();
        if (0.01..=1.0).contains(&length) {
            return ((x / length) as f32, (y / length) as f32);
        }
    }
}

/// A direction near the x axis, as its cosine and sine.
fn tilt(stream: &mut Stream) -> (f32, f32) {
    let y = stream.uniform_in(-0.12, 0.12);
    let length = (1.0 + y * y).sqrt();
    ((1.0 / length) as f32, (y / length) as f32)
}

/// Any hue, faint, with a lightness in this range.
fn color(stream: &mut Stream, lightness: (f64, f64)) -> Color {
    const HALF_SQRT_3: f32 = 0.866_025_4;
    let l = stream.uniform_in(lightness.0, lightness.1) as f32;
    let chroma = stream.uniform_in(0.0, CHROMA) as f32;
    let (c, s) = unit(stream);
    // The hue's cosine at three angles a third of a circle apart.
    [l + chroma * c, l + chroma * (-0.5 * c - HALF_SQRT_3 * s), l + chroma * (-0.5 * c + HALF_SQRT_3 * s)]
}
