//! From the soft labels of patches to a label for every pixel.

use data::Image;
use data::augment::resize_nearest;
use rayon::prelude::*;

use super::affinity::Value;

/// Soft labels [patches, labels], enlarged to pixels between which they are linear (align_corners false), and the smallest and
/// largest value of each label, which it is scaled by.
pub(super) struct Upsampled<'a, T> {
    values: &'a [T],
    labels: usize,
    columns: usize,
    down: Vec<Blend<T>>,
    across: Vec<Blend<T>>,
    /// Of each label.
    ranges: Vec<(T, T)>,
}

/// Between which two patches a pixel lies, and the share of the second.
#[derive(Clone, Copy)]
struct Blend<T> {
    first: usize,
    second: usize,
    share: T,
}

impl<'a, T: Value> Upsampled<'a, T> {
    /// Each patch of the grid becomes a square of `patch` pixels. The threads are those of the pool that it is called in.
    pub fn new(values: &'a [T], (rows, columns): (usize, usize), labels: usize, patch: usize) -> Self {
        let (down, across) = (blends(rows, patch), blends(columns, patch));
        let mut soft = Self { values, labels, columns, down, across, ranges: Vec::new() };
        let of_row = |y: usize| {
            let line = soft.line(y);
            // The first pixel is all of the first patch.
            let mut ranges: Vec<(T, T)> = (0..labels).map(|label| (line[label], line[label])).collect();
            for &blend in &soft.across {
                for (label, (low, high)) in ranges.iter_mut().enumerate() {
                    let value = soft.at(&line, blend, label);
                    *low = if value < *low { value } else { *low };
                    *high = if value > *high { value } else { *high };
                }
            }
            ranges
        };
        let smaller = |a: T, b: T| if b < a { b } else { a };
        let larger = |a: T, b: T| if b > a { b } else { a };
        let both = |a: Vec<(T, T)>, b: Vec<(T, T)>| {
            a.into_iter().zip(b).map(|(a, b)| (smaller(a.0, b.0), larger(a.1, b.1))).collect()
        };
        let ranges = (0..soft.down.len()).into_par_iter().map(of_row).reduce_with(both);
        soft.ranges = ranges.unwrap_or_default();
        soft
    }

    /// The soft labels between two rows of patches, as row `y` of pixels has them, [columns, labels].
    fn line(&self, y: usize) -> Vec<T> {
        let Blend { first, second, share } = self.down[y];
        let row = |at: usize| &self.values[at * self.columns * self.labels..][..self.columns * self.labels];
        let rest = T::of(1.0) - share;
        row(first).iter().zip(row(second)).map(|(&a, &b)| rest * a + share * b).collect()
    }

    fn at(&self, line: &[T], blend: Blend<T>, label: usize) -> T {
        let of = |column: usize| line[column * self.labels + label];
        (T::of(1.0) - blend.share) * of(blend.first) + blend.share * of(blend.second)
    }

    /// A value between the smallest and the largest of its label, from 0 to 1. A label that is nowhere stays 0. One that is
    /// everywhere the same has no such scale (0 / 0 in PyTorch, whose maximum then takes it): it is above all others.
    fn scaled(&self, value: T, label: usize) -> T {
        let (low, high) = self.ranges[label];
        if high <= T::default() {
            return value;
        }
        if high > low { (value - low) / (high - low) } else { T::of(f64::INFINITY) }
    }

    /// The value of a label at a pixel, scaled.
    #[cfg(test)]
    pub fn normalized(&self, y: usize, x: usize, label: usize) -> T {
        self.scaled(self.at(&self.line(y), self.across[x], label), label)
    }

    /// The label of the largest value at every pixel, the lowest of equal ones, at (height, width) by the nearest pixel.
    pub fn labels(&self, size: (usize, usize)) -> Image {
        let (height, width) = (self.down.len(), self.across.len());
        let mut image = Image::black(width, height, 1);
        image.pixels.par_chunks_mut(width).enumerate().for_each(|(y, row)| {
            let line = self.line(y);
            for (pixel, &blend) in row.iter_mut().zip(&self.across) {
                let mut best = (self.scaled(self.at(&line, blend, 0), 0), 0);
                for label in 1..self.labels {
                    let value = self.scaled(self.at(&line, blend, label), label);
                    if value > best.0 {
                        best = (value, label);
                    }
                }
                *pixel = best.1 as u8;
            }
        });
        if size == (height, width) { image } else { resize_nearest(&image, size) }
    }
}

/// Where each of `count * patch` pixels lies among `count` patches: the centre of pixel i is at (i + 0.5) / patch - 0.5.
fn blends<T: Value>(count: usize, patch: usize) -> Vec<Blend<T>> {
    let blend = |i: usize| {
        let place = ((i as f64 + 0.5) / patch as f64 - 0.5).max(0.0);
        let first = place as usize;
        Blend { first, second: (first + 1).min(count - 1), share: T::of(place - first as f64) }
    };
    (0..count * patch).map(blend).collect()
}

/// Which patch shows what: the labels of a mask at the places of a grid, as shares of 0 and 1, [patches, labels], and how
/// many labels there are. An object that no patch shows is lost.
pub(super) fn one_hot(mask: &Image, grid: (usize, usize)) -> (Vec<f32>, usize) {
    let small = resize_nearest(mask, grid);
    let labels = 1 + usize::from(small.pixels.iter().copied().max().unwrap_or(0));
    let mut shares = vec![0.0; small.pixels.len() * labels];
    for (shares, &label) in shares.chunks_exact_mut(labels).zip(&small.pixels) {
        shares[usize::from(label)] = 1.0;
    }
    (shares, labels)
}
