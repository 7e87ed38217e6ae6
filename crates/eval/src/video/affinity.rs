//! Carries a soft segmentation from earlier frames to the next one by the likeness of patches.
//!
//! A patch of the target takes the mean of the segmentations of the patches that are most like it in the context, with weights
//! exp(cosine / 0.1). Only patches near its own place count, and only the 5 most like it: both are used while the cosines are
//! made, so that neither a matrix of all pairs nor any cosine outside the neighbourhood ever exists.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

use rayon::prelude::*;

/// What the cosine is divided by.
const TEMPERATURE: f64 = 0.1;
/// Lower bound of the norm that a vector is divided by, as in `torch.nn.functional.normalize`.
const NORMALIZE_EPSILON: f64 = 1e-12;
/// Partial sums of a dot product: an AVX-512 register of f32.
const LANES: usize = 16;
/// Patches of a row that are compared together.
const TARGETS: usize = 4;

/// The numbers that are computed with: f32, and f64 for golden values.
pub(super) trait Value:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    fn of(x: f64) -> Self;
    fn to_f64(self) -> f64;
}

impl Value for f32 {
    #[inline(always)]
    fn of(x: f64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f64 {
    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        self
    }
}

/// Rows and columns of patches, and the neighbourhood that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// (rows, columns) of patches.
    pub grid: (usize, usize),
    /// How far a patch may move in either direction from one frame to any later one, in patches; 0 for any distance.
    pub reach: usize,
    /// How many of the most similar patches count. Those as similar as the last of them count too.
    pub most: usize,
}

impl Field {
    /// The places within reach of `at`, of `count`.
    fn near(&self, at: usize, count: usize) -> std::ops::Range<usize> {
        match self.reach {
            0 => 0..count,
            reach => at.saturating_sub(reach)..count.min(at + reach + 1),
        }
    }
}

/// Features of a frame's patches, row by row of its grid, scaled to unit length.
#[derive(Clone, Debug)]
pub(super) struct Patches<T> {
    values: Vec<T>,
    /// Values of a feature.
    dim: usize,
}

impl<T: Value> Patches<T> {
    /// Of features that are not scaled yet.
    pub fn new(mut values: Vec<T>, dim: usize) -> Self {
        for row in values.chunks_exact_mut(dim) {
            let norm = row.iter().map(|x| x.to_f64() * x.to_f64()).sum::<f64>().sqrt().max(NORMALIZE_EPSILON);
            row.iter_mut().for_each(|x| *x = T::of(x.to_f64() / norm));
        }
        Self { values, dim }
    }
}

/// A frame that is known: its patches and what each of them shows.
#[derive(Clone, Debug)]
pub(super) struct Known<T> {
    pub patches: Patches<T>,
    /// The share of each label in each patch, [patches, labels].
    pub labels: Vec<T>,
}

/// The soft labels of the next frame, [patches, labels], from those of the frames in `context`. The threads are those of the
/// pool that it is called in.
///
/// # Panics
/// When frames have not the same number of patches, values and labels.
pub(super) fn carry<T: Value>(field: Field, context: &[&Known<T>], target: &Patches<T>, labels: usize) -> Vec<T> {
    let (rows, columns) = field.grid;
    let dim = target.dim;
    assert_eq!(target.values.len(), rows * columns * dim, "features of the grid");
    for known in context {
        assert_eq!((known.patches.values.len(), known.patches.dim), (target.values.len(), dim), "the same features");
        assert_eq!(known.labels.len(), rows * columns * labels, "labels of each patch");
    }
    let mut carried = vec![T::default(); rows * columns * labels];
    let blocks = carried.par_chunks_mut(columns * labels).enumerate().flat_map_iter(|(row, out)| {
        out.chunks_mut(TARGETS * labels).enumerate().map(move |(block, out)| (row, block * TARGETS, out))
    });
    blocks.for_each(|(row, first, out)| {
        let count = out.len() / labels;
        let targets = &target.values[(row * columns + first) * dim..][..count * dim];
        let mut nearest: Vec<Nearest<T>> = (0..count).map(|_| Nearest::new(field.most)).collect();
        let reached = field.near(first, columns).start..field.near(first + count - 1, columns).end;
        let mut cosines = vec![T::default(); count * reached.len()];
        for (frame, known) in context.iter().enumerate() {
            for near_row in field.near(row, rows) {
                let from = near_row * columns + reached.start;
                let sources = &known.patches.values[from * dim..][..reached.len() * dim];
                dots(targets, sources, dim, &mut cosines);
                for ((i, nearest), cosines) in nearest.iter_mut().enumerate().zip(cosines.chunks(reached.len())) {
                    let own = field.near(first + i, columns);
                    let patch = near_row * columns + own.start;
                    let cosines = &cosines[own.start - reached.start..own.end - reached.start];
                    nearest.offer_all(frame, patch, cosines);
                }
            }
        }
        for (nearest, out) in nearest.iter().zip(out.chunks_exact_mut(labels)) {
            nearest.mean(context, labels, out);
        }
    });
    carried
}

/// A patch of the context.
#[derive(Clone, Copy, Debug)]
struct Source<T> {
    cosine: T,
    frame: usize,
    patch: usize,
}

/// The patches most like a target among those offered so far.
struct Nearest<T> {
    most: usize,
    /// The most similar first.
    found: Vec<Source<T>>,
}

impl<T: Value> Nearest<T> {
    fn new(most: usize) -> Self {
        Self { most, found: Vec::with_capacity(2 * most) }
    }

    /// Offers neighbouring patches of a frame, from `first` on.
    fn offer_all(&mut self, frame: usize, first: usize, cosines: &[T]) {
        for (i, &cosine) in cosines.iter().enumerate() {
            // The common case: less like it than as many as count.
            if self.found.get(self.most - 1).is_some_and(|last| cosine < last.cosine) {
                continue;
            }
            let place = self.found.partition_point(|source| source.cosine >= cosine);
            self.found.insert(place, Source { cosine, frame, patch: first + i });
            // What is now behind the last that counts, and less similar than it.
            if let Some(last) = self.found.get(self.most - 1).map(|source| source.cosine) {
                while self.found.len() > self.most && self.found.last().is_some_and(|source| source.cosine < last) {
                    self.found.pop();
                }
            }
        }
    }

    /// The weighted mean of their labels.
    fn mean(&self, context: &[&Known<T>], labels: usize, out: &mut [T]) {
        let Some(largest) = self.found.first().map(|source| source.cosine.to_f64()) else { return };
        let mut sums = vec![0.0; labels];
        let mut total = 0.0;
        for source in &self.found {
            // Relative to the largest: a common factor, which the division takes out.
            let weight = ((source.cosine.to_f64() - largest) / TEMPERATURE).exp();
            total += weight;
            let of_source = &context[source.frame].labels[source.patch * labels..][..labels];
            sums.iter_mut().zip(of_source).for_each(|(sum, share)| *sum += weight * share.to_f64());
        }
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::of(sum / total));
    }
}

simd::simd! {
    /// All dot products of the rows of `targets` and of `sources`, [targets, sources]. Each is summed in the same order
    /// wherever it stands.
    fn dots<T: Value>(targets: &[T], sources: &[T], dim: usize, out: &mut [T]) {
        let (count, of) = (targets.len() / dim, sources.len() / dim);
        let mut at = 0;
        while at < of {
            let width = if at + 1 < of { 2 } else { 1 };
            let pair = &sources[at * dim..(at + width) * dim];
            match (count, width) {
                (TARGETS, 2) => tile::<T, TARGETS, 2>(targets, pair, dim, &mut out[at..], of),
                (TARGETS, _) => tile::<T, TARGETS, 1>(targets, pair, dim, &mut out[at..], of),
                _ => {
                    for (i, target) in targets.chunks_exact(dim).enumerate() {
                        for (j, source) in pair.chunks_exact(dim).enumerate() {
                            tile::<T, 1, 1>(target, source, dim, &mut out[i * of + at + j..], of);
                        }
                    }
                }
            }
            at += width;
        }
    }
}

/// The dot products of M by N rows, with all partial sums in registers.
#[inline(always)]
fn tile<T: Value, const M: usize, const N: usize>(a: &[T], b: &[T], dim: usize, out: &mut [T], stride: usize) {
    let mut sums = [[[T::default(); LANES]; N]; M];
    let a: [&[T]; M] = std::array::from_fn(|i| &a[i * dim..(i + 1) * dim]);
    let b: [&[T]; N] = std::array::from_fn(|j| &b[j * dim..(j + 1) * dim]);
    let whole = dim / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let part = |row: &[T]| -> [T; LANES] { std::array::from_fn(|lane| row[at + lane]) };
        let (x, y): ([[T; LANES]; M], [[T; LANES]; N]) =
            (std::array::from_fn(|i| part(a[i])), std::array::from_fn(|j| part(b[j])));
        for (sums, x) in sums.iter_mut().zip(&x) {
            for (sums, y) in sums.iter_mut().zip(&y) {
                for lane in 0..LANES {
                    sums[lane] += x[lane] * y[lane];
                }
            }
        }
        at += LANES;
    }
    for (i, sums) in sums.iter_mut().enumerate() {
        for (j, sums) in sums.iter_mut().enumerate() {
            for (lane, at) in (whole..dim).enumerate() {
                sums[lane] += a[i][at] * b[j][at];
            }
            let mut width = LANES;
            while width > 1 {
                width /= 2;
                for lane in 0..width {
                    let other = sums[lane + width];
                    sums[lane] += other;
                }
            }
            out[i * stride + j] = sums[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    fn noise(seed: u64, count: usize) -> Vec<f64> {
        let mut numbers = Key::new(seed, Purpose::Bench).stream();
        (0..count).map(|_| numbers.normal()).collect()
    }

    /// The definition: all pairs, a mask, the largest, in f64.
    fn carry_plain(field: Field, context: &[&Known<f64>], target: &Patches<f64>, labels: usize) -> Vec<f64> {
        let (rows, columns) = field.grid;
        let dim = target.dim;
        let is_near = |a: usize, b: usize| {
            let apart = |a: usize, b: usize| a.abs_diff(b) <= field.reach;
            field.reach == 0 || apart(a / columns, b / columns) && apart(a % columns, b % columns)
        };
        let mut out = Vec::new();
        for i in 0..rows * columns {
            let mut all = Vec::new();
            for known in context {
                for j in (0..rows * columns).filter(|&j| is_near(i, j)) {
                    let (x, y) = (&target.values[i * dim..][..dim], &known.patches.values[j * dim..][..dim]);
                    let cosine: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                    all.push(((cosine / 0.1).exp(), &known.labels[j * labels..][..labels]));
                }
            }
            let mut sorted: Vec<f64> = all.iter().map(|(weight, _)| *weight).collect();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let least = sorted[field.most.min(sorted.len()) - 1];
            all.retain(|(weight, _)| *weight >= least);
            let total: f64 = all.iter().map(|(weight, _)| weight).sum();
            out.extend((0..labels).map(|c| all.iter().map(|(weight, labels)| weight * labels[c]).sum::<f64>() / total));
        }
        out
    }

    #[test]
    fn the_golden_values_of_dinos_label_propagation_are_met() {
        let features = |phase: f64| Patches::new((0..24 * 8).map(|i| (phase + 0.37 * i as f64).sin()).collect(), 8);
        let labels: Vec<f64> = (0..24).flat_map(|i| (0..3).map(move |c| f64::from(u8::from(7 * i % 3 == c)))).collect();
        let context = [0.1, 0.5].map(|phase| Known { patches: features(phase), labels: labels.clone() });
        let field = Field { grid: (4, 6), reach: 2, most: 5 };
        let out = carry(field, &context.each_ref(), &features(0.9), 3);
        let at = |y: usize, x: usize| &out[(y * 6 + x) * 3..][..3];
        for (found, want) in at(1, 2).iter().zip([0.47063158, 0.37168947, 0.15767895]) {
            assert!((found - want).abs() < 1e-8, "{out:?}");
        }
        for (found, want) in at(3, 5).iter().zip([0.57375334, 0.0, 0.42624666]) {
            assert!((found - want).abs() < 1e-8, "{out:?}");
        }
        let soft = super::super::soft::Upsampled::new(&out, field.grid, 3, 1);
        for (label, want) in [0.67311219, 0.52867061, 0.22548178].into_iter().enumerate() {
            assert!((soft.normalized(1, 2, label) - want).abs() < 1e-8);
        }
    }

    #[test]
    fn the_band_is_the_whole_product_under_its_mask() {
        // Grids with and without a remainder of a block, reaches within and beyond them, odd widths of features.
        for (grid, reach, dim, frames) in
            [((5, 11), 2, 16, 3), ((7, 9), 3, 37, 1), ((3, 4), 12, 8, 2), ((6, 10), 0, 24, 2), ((1, 3), 1, 5, 1)]
        {
            let count = grid.0 * grid.1;
            let known = |seed: u64| {
                let labels: Vec<f64> = noise(seed + 50, count * 3).iter().map(|x| x.abs()).collect();
                Known { patches: Patches::new(noise(seed, count * dim), dim), labels }
            };
            let context: Vec<Known<f64>> = (0..frames).map(known).collect();
            let context: Vec<&Known<f64>> = context.iter().collect();
            let target = Patches::new(noise(99, count * dim), dim);
            let field = Field { grid, reach, most: 5 };
            let (found, want) = (carry(field, &context, &target, 3), carry_plain(field, &context, &target, 3));
            for (found, want) in found.iter().zip(&want) {
                assert!((found - want).abs() < 1e-12, "{grid:?} {reach}: {found} {want}");
            }
        }
    }

    #[test]
    fn patches_as_similar_as_the_fifth_count_too() {
        // Every patch is the same: all tie.
        let patches = Patches::new(vec![1.0f32; 12 * 4], 4);
        let labels: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let known = Known { patches: patches.clone(), labels };
        let field = Field { grid: (3, 4), reach: 1, most: 5 };
        let out = carry(field, &[&known], &patches, 1);
        // A corner sees four patches, the centre nine: fewer than five, and more.
        assert_eq!(out[0], (0.0 + 1.0 + 4.0 + 5.0) / 4.0);
        assert_eq!(out[5], 5.0);
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let values = |seed| noise(seed, 80 * 33).iter().map(|&x| x as f32).collect();
            let labels = noise(9, 80 * 2).iter().map(|&x| x as f32).collect();
            let known = Known { patches: Patches::new(values(1), 33), labels };
            let field = Field { grid: (8, 10), reach: 3, most: 5 };
            pool.install(|| carry(field, &[&known], &Patches::new(values(2), 33), 2))
        };
        assert_eq!(run(1), run(3));
    }
}
