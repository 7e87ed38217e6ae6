//! The weights of a resampling: which pixels along one axis make up each output pixel, and by how much.

use super::Filter;
use simd::simd;

/// Fractional bits of a weight.
pub(super) const BITS: u32 = 22;
/// One half, so that the final shift rounds.
pub(super) const HALF: i32 = 1 << (BITS - 1);

/// For every output position of one axis: the first input position and the weights from there on.
#[derive(Default)]
pub(super) struct Taps {
    ranges: Vec<(u32, u32)>,
    /// `stride` for each output position, zeros behind the last weight.
    weights: Vec<i32>,
    stride: usize,
    exact: Vec<f64>,
}

/// What is resampled to what along an axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    /// Positions there are.
    pub input: usize,
    /// Where the part that is resampled begins.
    pub start: f64,
    /// How long it is; not necessarily a whole number.
    pub span: f64,
    /// Positions wanted.
    pub output: usize,
    /// From the last to the first.
    pub mirrored: bool,
}

impl Axis {
    /// Every position wanted is a position there is.
    pub(super) fn is_identity(&self) -> bool {
        self.input == self.output && self.start == 0.0 && self.span == self.input as f64
    }
}

impl Taps {
    /// Fills in the taps of an axis.
    pub(super) fn fill(&mut self, axis: Axis, filter: Filter) {
        let support = filter.support() * (axis.span / axis.output as f64).max(1.0);
        // Whole groups of four, which is what the vector kernel takes at a time.
        self.stride = (support.ceil() as usize * 2 + 1).next_multiple_of(4);
        self.ranges.clear();
        self.ranges.resize(axis.output, (0, 0));
        self.weights.clear();
        self.weights.resize(axis.output * self.stride, 0);
        self.exact.resize(self.stride, 0.0);
        fill(&mut self.ranges, &mut self.weights, &mut self.exact, axis, filter);
    }

    /// Output positions.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Weights that an output position has room for, a multiple of four.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// All weights, [`Self::stride`] for each output position, zeros where it has fewer.
    pub(super) fn weights(&self) -> &[i32] {
        &self.weights
    }

    /// The first input position of an output position.
    #[inline(always)]
    pub(super) fn first(&self, position: usize) -> usize {
        self.ranges[position].0 as usize
    }

    /// For every output position the first input position and the weights.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let weights = self.weights.chunks_exact(self.stride);
        self.ranges.iter().zip(weights).map(|(&(first, count), weights)| (first as usize, &weights[..count as usize]))
    }
}

simd! {
    fn fill(ranges: &mut [(u32, u32)], weights: &mut [i32], exact: &mut [f64], axis: Axis, filter: Filter) {
        let scale = axis.span / axis.output as f64;
        let widening = scale.max(1.0);
        let (support, inverse) = (filter.support() * widening, 1.0 / widening);
        for ((place, range), quantised) in ranges.iter_mut().enumerate().zip(weights.chunks_exact_mut(exact.len())) {
            let position = if axis.mirrored { axis.output - 1 - place } else { place };
            let center = axis.start + (position as f64 + 0.5) * scale;
            // `as usize` truncates and turns negatives into 0, the two things wanted of the lower end.
            let low = (center - support + 0.5) as usize;
            let high = ((center + support + 0.5) as usize).min(axis.input);
            *range = (low as u32, (high - low) as u32);
            let exact = &mut exact[..high - low];
            let distance = |i: usize| ((low + i) as f64 - center + 0.5) * inverse;
            match filter {
                Filter::Bilinear => exact.iter_mut().enumerate().for_each(|(i, w)| *w = bilinear(distance(i))),
                Filter::Bicubic => exact.iter_mut().enumerate().for_each(|(i, w)| *w = bicubic(distance(i))),
                Filter::Lanczos => exact.iter_mut().enumerate().for_each(|(i, w)| *w = lanczos(distance(i))),
            }
            // One after the other, as Pillow adds them.
            let sum: f64 = exact.iter().sum();
            let sum = if sum == 0.0 { 1.0 } else { sum };
            for (quantised, w) in quantised.iter_mut().zip(exact) {
                *quantised = quantise(*w / sum);
            }
        }
    }
}

#[inline(always)]
fn bilinear(x: f64) -> f64 {
    let d = x.abs();
    if d < 1.0 { 1.0 - d } else { 0.0 }
}

/// Keys with a = -0.5.
#[inline(always)]
fn bicubic(x: f64) -> f64 {
    let d = x.abs();
    let near = (1.5 * d - 2.5) * d * d + 1.0;
    let far = (((d - 5.0) * d + 8.0) * d - 4.0) * -0.5;
    if d < 1.0 {
        near
    } else if d < 2.0 {
        far
    } else {
        0.0
    }
}

#[inline(always)]
fn lanczos(x: f64) -> f64 {
    if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// To fixed point, half away from zero: the addend carries the sign and the conversion truncates.
#[inline(always)]
#[allow(clippy::manual_clamp)] // `clamp` would keep what is not a number.
fn quantise(w: f64) -> i32 {
    const LIMIT: f64 = (1 << 30) as f64;
    let scaled = (w * f64::from(1u32 << BITS) + 0.5f64.copysign(w)).max(-LIMIT).min(LIMIT);
    // SAFETY: the line above has left a finite number within the range of i32; true weights are far below the limit.
    unsafe { scaled.to_int_unchecked() }
}
