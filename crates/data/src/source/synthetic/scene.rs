//! One picture: a textured shape on a cluttered ground, unevenly lit, perhaps partly hidden, with noise.
//!
//! Drawing (what is where) and rendering (pixels) are apart. All lengths are in pixels. Everything is antialiased by
//! signed distances: coverage falls from 1 to 0 within one pixel of an outline.

use super::shape::Shape;
use super::texture::Texture;
use crate::Image;
use random::Stream;

type Color = [f32; 3];

/// Everything in a picture but its noise.
pub(super) struct Scene {
    size: usize,
    shape: Shape,
    texture: Texture,
    /// Where the shape is, its radius, and the cosine and sine of its turn.
    center: (f32, f32),
    radius: f32,
    turn: (f32, f32),
    /// Period of the texture, its turn and its offset in periods.
    period: f32,
    grain: (f32, f32),
    offset: (f32, f32),
    tones: [Color; 2],
    ground: Ground,
    clutter: Vec<Blob>,
    occluder: Option<Blob>,
    /// Change of brightness across the picture, along x and y.
    light: (f32, f32),
    noise: f32,
}

/// The background: a colour and a smooth field of brightness around it.
struct Ground {
    color: Color,
    field: [[f32; GRID]; GRID],
}

/// Knots of the brightness field along a side.
const GRID: usize = 6;

/// A small ellipse or bar: clutter behind the shape, or an occluder before it.
struct Blob {
    center: (f32, f32),
    turn: (f32, f32),
    /// Half length and half width.
    half: (f32, f32),
    color: Color,
}

impl Scene {
    /// Draws the scene. Nothing but `shape` and `texture` depends on the class.
    pub(super) fn draw(shape: Shape, texture: Texture, size: usize, stream: &mut Stream) -> Self {
        let side = size as f32;
        let mut within = |low: f64, high: f64| stream.uniform_in(low, high) as f32;
        let radius = side * within(0.34, 0.46);
        let slack = side / 2.0 - 0.8 * radius;
        let center = (side / 2.0 + slack * within(-1.0, 1.0), side / 2.0 + slack * within(-1.0, 1.0));
        let period = side * within(0.14, 0.20);
        let offset = (within(0.0, 1.0), within(0.0, 1.0));
        let noise = within(0.01, 0.05);
        let slope = side * within(6.0, 9.0);
        let direction = unit(stream);
        let light = (direction.0 / slope, direction.1 / slope);

        // A dark and a light tone in either order on a ground between them: the sign of every edge is a coin toss.
        let dark = color(stream, (0.15, 0.25));
        let bright = color(stream, (0.75, 0.85));
        let tones = if stream.chance(0.5) { [dark, bright] } else { [bright, dark] };
        let ground = Ground {
            color: color(stream, (0.48, 0.52)),
            field: std::array::from_fn(|_| std::array::from_fn(|_| stream.uniform_in(-0.02, 0.02) as f32)),
        };
        let clutter = (0..stream.below(3)).map(|_| Blob::clutter(side, &ground, stream)).collect();
        let occluder = stream.chance(0.1).then(|| Blob::occluder(center, radius, stream));
        let (turn, grain) = (unit(stream), unit(stream));
        Self {
            size,
            shape,
            texture,
            center,
            radius,
            turn,
            period,
            grain,
            offset,
            tones,
            ground,
            clutter,
            occluder,
            light,
            noise,
        }
    }

    /// Paints the scene; the noise comes from `stream`.
    pub(super) fn render(&self, stream: &mut Stream) -> Image {
        let mut canvas = self.ground.paint(self.size);
        for blob in &self.clutter {
            blob.paint(&mut canvas, self.size);
        }
        self.paint_shape(&mut canvas);
        if let Some(blob) = &self.occluder {
            blob.paint(&mut canvas, self.size);
        }
        self.develop(&canvas, stream)
    }

    fn paint_shape(&self, canvas: &mut [Color]) {
        let reach = self.radius * Shape::REACH + 1.0;
        // Texture coordinates turn with `grain`, not with the shape.
        let (gc, gs) = (self.grain.0 / self.period, self.grain.1 / self.period);
        let blur = 0.5 / self.period;
        paint(canvas, self.size, self.center, reach, |x, y| {
            let (u, v) = (self.turn.0 * x + self.turn.1 * y, self.turn.0 * y - self.turn.1 * x);
            let distance = self.shape.distance(u / self.radius, v / self.radius) * self.radius;
            let coverage = (0.5 - distance).clamp(0.0, 1.0);
            if coverage == 0.0 {
                return (coverage, self.tones[0]);
            }
            let mix = self.texture.mix(gc * x + gs * y + self.offset.0, gc * y - gs * x + self.offset.1, blur);
            (coverage, blend(self.tones[0], self.tones[1], mix))
        });
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

impl Ground {
    fn paint(&self, size: usize) -> Vec<Color> {
        // Where a pixel lies between two knots: the first of them and a smooth step toward the second.
        let steps: Vec<(usize, f32)> = (0..size)
            .map(|i| {
                let at = (i as f32 + 0.5) / size as f32 * (GRID - 1) as f32;
                let knot = (at as usize).min(GRID - 2);
                let t = at - knot as f32;
                (knot, t * t * (3.0 - 2.0 * t))
            })
            .collect();
        let mut canvas = Vec::with_capacity(size * size);
        for &(ky, ty) in &steps {
            let line: [f32; GRID] = std::array::from_fn(|k| lerp(self.field[ky][k], self.field[ky + 1][k], ty));
            canvas.extend(steps.iter().map(|&(kx, tx)| {
                let lift = lerp(line[kx], line[kx + 1], tx);
                self.color.map(|v| v + lift)
            }));
        }
        canvas
    }
}

impl Blob {
    /// Something small and faint anywhere.
    fn clutter(side: f32, ground: &Ground, stream: &mut Stream) -> Self {
        let mut within = |low: f64, high: f64| stream.uniform_in(low, high) as f32;
        let center = (side * within(0.0, 1.0), side * within(0.0, 1.0));
        let half = (side * within(0.04, 0.18), side * within(0.02, 0.07));
        let shade = within(-0.14, 0.14);
        let color = ground.color.map(|v| v + shade);
        Self { center, turn: unit(stream), half, color }
    }

    /// Something opaque over the rim of the shape.
    fn occluder(center: (f32, f32), radius: f32, stream: &mut Stream) -> Self {
        let direction = unit(stream);
        let mut within = |low: f64, high: f64| stream.uniform_in(low, high) as f32;
        let distance = radius * within(0.6, 1.0);
        let half = (radius * within(0.25, 0.6), radius * within(0.15, 0.35));
        let center = (center.0 + distance * direction.0, center.1 + distance * direction.1);
        let turn = unit(stream);
        Self { center, turn, half, color: color(stream, (0.15, 0.85)) }
    }

    fn paint(&self, canvas: &mut [Color], size: usize) {
        let (a, b) = self.half;
        paint(canvas, size, self.center, a.max(b) + 1.0, |x, y| {
            let (u, v) = (self.turn.0 * x + self.turn.1 * y, self.turn.0 * y - self.turn.1 * x);
            // Distance to an ellipse to first order: the implicit function over its slope.
            let (p, q) = (u / a, v / b);
            let length = (p * p + q * q).sqrt();
            let slope = ((p / a) * (p / a) + (q / b) * (q / b)).sqrt();
            let distance = if slope > 0.0 { length * (length - 1.0) / slope } else { -b };
            ((0.5 - distance).clamp(0.0, 1.0), self.color)
        });
    }
}

/// Lays `f(x, y)` = (coverage, colour) over the pixels within `reach` of `center`; x and y count from there.
fn paint(canvas: &mut [Color], size: usize, center: (f32, f32), reach: f32, f: impl Fn(f32, f32) -> (f32, Color)) {
    // `as usize` ends at 0 for what lies outside to the left or above.
    let range = |c: f32| ((c - reach) as usize).min(size)..((c + reach + 1.0) as usize).min(size);
    let columns = range(center.0);
    for y in range(center.1) {
        let row = &mut canvas[y * size..(y + 1) * size];
        for (pixel, x) in row[columns.clone()].iter_mut().zip(columns.clone()) {
            let (coverage, color) = f(x as f32 + 0.5 - center.0, y as f32 + 0.5 - center.1);
            *pixel = blend(*pixel, color, coverage);
        }
    }
}

#[inline]
fn lerp(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

#[inline]
fn blend(a: Color, b: Color, t: f32) -> Color {
    [lerp(a[0], b[0], t), lerp(a[1], b[1], t), lerp(a[2], b[2], t)]
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

/// Any hue, with a lightness in this range.
fn color(stream: &mut Stream, lightness: (f64, f64)) -> Color {
    const HALF_SQRT_3: f32 = 0.866_025_4;
    let l = stream.uniform_in(lightness.0, lightness.1) as f32;
    let chroma = stream.uniform_in(0.0, 0.02) as f32;
    let (c, s) = unit(stream);
    // The hue's cosine at three angles a third of a circle apart.
    [l + chroma * c, l + chroma * (-0.5 * c - HALF_SQRT_3 * s), l + chroma * (-0.5 * c + HALF_SQRT_3 * s)]
}
