//! From pixels to the packed tokens of a batch.

use std::ops::Range;

use crate::cpu::{on_device, patchify as cpu_patchify, reduce, residual as cpu_residual, tokens as cpu};
use crate::cuda::{UploadedPixels, prototypes as gpu_prototypes, residual as gpu_residual, tokens as gpu};
use crate::device::Device;
use crate::ops::residual::{assert_stream, gather};
use crate::rows::Rows;
use crate::tensor::Tensor;

/// Images of one size.
#[derive(Clone, Debug)]
pub struct Pixels<'a> {
    /// How many images.
    pub count: usize,
    /// Rows of each.
    pub height: usize,
    /// Columns of each.
    pub width: usize,
    /// Channels of each.
    pub channels: usize,
    /// Their values.
    pub data: PixelData<'a>,
}

/// The values of images.
#[derive(Clone, Copy, Debug)]
pub enum PixelData<'a> {
    /// Eight-bit images, rows of interleaved channels (HWC), to be normalised as (u / 255 - mean) / deviation.
    Bytes {
        /// `count * height * width * channels` levels.
        pixels: &'a [u8],
        /// Mean of each channel.
        mean: &'a [f32],
        /// Standard deviation of each channel.
        deviation: &'a [f32],
    },
    /// The same, sent to the GPU beforehand with [`Device::upload_pixels`] or [`Device::upload_views`].
    Uploaded {
        /// `count * height * width * channels` levels, from the byte `first` on.
        pixels: &'a UploadedPixels,
        /// Where the images begin.
        first: usize,
        /// Mean of each channel.
        mean: &'a [f32],
        /// Standard deviation of each channel.
        deviation: &'a [f32],
    },
    /// Values ready for the network, channel by channel (CHW).
    Values(&'a [f64]),
}

impl<'a> Pixels<'a> {
    /// Some of the images, by their numbers.
    ///
    /// # Panics
    /// When there are not as many images of bytes or values.
    pub fn slice(&self, images: Range<usize>) -> Pixels<'a> {
        let one = self.height * self.width * self.channels;
        let (from, to) = (images.start * one, images.end * one);
        let data = match self.data {
            PixelData::Bytes { pixels, mean, deviation } => {
                PixelData::Bytes { pixels: &pixels[from..to], mean, deviation }
            }
            PixelData::Uploaded { pixels, first, mean, deviation } => {
                PixelData::Uploaded { pixels, first: first + from, mean, deviation }
            }
            PixelData::Values(values) => PixelData::Values(&values[from..to]),
        };
        Pixels { count: images.len(), data, ..*self }
    }

    /// Whole patches of each image.
    pub fn patches(&self, patch: usize) -> usize {
        (self.height / patch) * (self.width / patch)
    }

    fn check(&self) {
        let needed = self.count * self.height * self.width * self.channels;
        match &self.data {
            PixelData::Bytes { pixels, mean, deviation } => {
                assert_eq!(pixels.len(), needed, "bytes of the images");
                assert_eq!((mean.len(), deviation.len()), (self.channels, self.channels), "one mean for each channel");
            }
            PixelData::Uploaded { pixels, first, mean, deviation } => {
                assert!(pixels.len() >= first + needed, "bytes of the images");
                assert_eq!((mean.len(), deviation.len()), (self.channels, self.channels), "one mean for each channel");
            }
            PixelData::Values(values) => assert_eq!(values.len(), needed, "values of the images"),
        }
    }
}

/// Rows of C P P values, a row a patch: images in order, patches row by row, each patch channel by channel.
pub fn patchify(device: &Device, groups: &[Pixels<'_>], patch: usize) -> Tensor {
    groups.iter().for_each(Pixels::check);
    let channels = groups.first().map_or(0, |g| g.channels);
    assert!(groups.iter().all(|g| g.channels == channels), "images of one batch have the same channels");
    let patches = groups.iter().map(|g| g.count * g.patches(patch)).sum();
    let mut out = device.empty(&[patches, channels * patch * patch]);
    on_device!(
        out,
        T => cpu_patchify::forward(device.as_cpu(), groups, patch, T::slice_mut(&mut out)),
        cuda => gpu::patchify(cuda, groups, patch, &mut out),
    );
    out
}

/// Learnt rows or columns and their weights.
type Taps = Vec<(usize, f64)>;

/// A grid of patches, and how its position embeddings come from the learnt grid.
#[derive(Clone, Debug)]
pub struct Grid {
    height: usize,
    width: usize,
    learnt_width: usize,
    /// Whether the learnt embeddings are taken as they are.
    is_learnt: bool,
    /// For each row and each column of the grid: the learnt rows and columns it mixes, and their weights.
    rows: Vec<Taps>,
    columns: Vec<Taps>,
}

impl Grid {
    /// The learnt embeddings as they are where the grids agree, else DINO's bicubic interpolation of them: the map of
    /// coordinates uses the scale (n + 0.1) / learnt, the kernel has a = -0.75, and edges are repeated.
    pub fn new((height, width): (usize, usize), learnt: (usize, usize)) -> Self {
        let identity = |n: usize, _: usize| (0..n).map(|i| vec![(i, 1.0)]).collect();
        let is_learnt = (height, width) == learnt;
        let axis = if is_learnt { identity } else { bicubic_axis };
        Self {
            height,
            width,
            learnt_width: learnt.1,
            is_learnt,
            rows: axis(height, learnt.0),
            columns: axis(width, learnt.1),
        }
    }

    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.height * self.width
    }

    pub(crate) fn is_learnt(&self) -> bool {
        self.is_learnt
    }

    /// The learnt positions that make up position `patch`, with their weights.
    pub(crate) fn taps(&self, patch: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let (row, column) = (patch / self.width, patch % self.width);
        self.rows[row].iter().flat_map(move |&(y, wy)| {
            self.columns[column].iter().map(move |&(x, wx)| (y * self.learnt_width + x, wy * wx))
        })
    }
}

fn bicubic_axis(n: usize, learnt: usize) -> Vec<Taps> {
    const A: f64 = -0.75;
    let near = |t: f64| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
    let far = |t: f64| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
    let scale = (n as f64 + 0.1) / learnt as f64;
    let last = learnt as isize - 1;
    (0..n)
        .map(|i| {
            let source = (i as f64 + 0.5) / scale - 0.5;
            let base = source.floor();
            let t = source - base;
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            (-1..=2).zip(weights).map(|(d, w)| ((base as isize + d).clamp(0, last) as usize, w)).collect()
        })
        .collect()
}

/// How the images of a batch become tokens: for each group of equal images, their number and their grid.
#[derive(Clone, Debug)]
pub struct TokenLayout {
    groups: Vec<(usize, Grid)>,
}

impl TokenLayout {
    /// Groups in the order of the images.
    pub fn new(groups: Vec<(usize, Grid)>) -> Self {
        Self { groups }
    }

    /// The groups.
    pub fn groups(&self) -> &[(usize, Grid)] {
        &self.groups
    }

    /// Every image's rows of the packed token matrix: a class token, then its patches.
    pub fn rows(&self) -> Rows {
        Rows::all(self.groups.iter().flat_map(|(count, grid)| std::iter::repeat_n(1 + grid.patches(), *count)))
    }

    pub(crate) fn group_of_each(&self) -> Vec<usize> {
        self.groups.iter().enumerate().flat_map(|(g, (count, _))| std::iter::repeat_n(g, *count)).collect()
    }
}

/// Packed tokens [tokens, dim], with which the residual stream begins, from patch embeddings [patches, dim], the class token
/// and the position embeddings (1 + learnt grid rows of dim).
pub fn assemble_tokens(layout: &TokenLayout, patches: &Tensor, class: &Tensor, position: &Tensor) -> Tensor {
    let dim = class.len();
    let mut x = patches.device().empty_residual(&[layout.rows().count(), dim]);
    on_device!(patches, T => cpu::assemble(
        patches.device().as_cpu(), layout, T::slice(patches), T::slice(class), T::slice(position), T::slice_mut(&mut x),
    ), cuda => gpu::assemble(cuda, layout, patches, class, position, &mut x));
    x
}

/// The gradient of the patch embeddings; adds those of the class token and the position embeddings.
pub fn assemble_tokens_backward(
    layout: &TokenLayout,
    dx: &Tensor,
    d_class: &mut Tensor,
    d_position: &mut Tensor,
) -> Tensor {
    assert_stream(dx);
    let dim = d_class.len();
    let rows = layout.rows();
    let mut d_patches = dx.device().empty(&[rows.count() - rows.segments(), dim]);
    on_device!(dx, T => cpu::assemble_backward(
        dx.device().as_cpu(), layout, T::slice(dx), T::slice_mut(&mut d_patches), T::slice_mut(d_class), T::slice_mut(d_position),
    ), cuda => gpu::assemble_backward(cuda, layout, dx, [&mut d_patches, d_class, d_position]));
    d_patches
}

/// Puts `value`, one row, into the named rows of `x`, activations: the embeddings of masked patches become the mask token.
pub fn replace_rows(x: &mut Tensor, rows: &Rows, value: &Tensor) {
    assert_eq!((x.rows(), x.columns()), (rows.source_rows(), value.len()), "rows to replace");
    assert_eq!(x.dtype(), x.device().dtype(), "activations");
    on_device!(
        x,
        T => cpu_residual::fill_rows(T::slice_mut(x), rows, T::slice(value)),
        cuda => gpu_residual::fill_rows(cuda, x, rows, Some(value)),
    );
}

/// The derivative of [`replace_rows`]: adds the gradient of the named rows to that of the value, and takes it from `dx`.
pub fn replace_rows_backward(dx: &mut Tensor, rows: &Rows, d_value: &mut Tensor) {
    assert_eq!((dx.rows(), dx.columns()), (rows.source_rows(), d_value.len()), "rows that were replaced");
    assert_eq!(dx.dtype(), dx.device().dtype(), "activations");
    let replaced = gather(dx, rows, 1.0);
    on_device!(
        dx,
        T => {
            let cpu = replaced.device().as_cpu();
            reduce::add_column_sums(cpu, T::slice(&replaced), replaced.columns(), T::slice_mut(d_value));
            let nothing = vec![T::ZERO; replaced.columns()];
            cpu_residual::fill_rows(T::slice_mut(dx), rows, &nothing);
        },
        cuda => {
            gpu_prototypes::column_sums(cuda, &replaced, d_value);
            gpu_residual::fill_rows(cuda, dx, rows, None);
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolated_positions_follow_the_published_vector() {
        // vit.md: grid[r, c] = sin(0.37 (14 r + c)), 14 -> 6, first row.
        let learnt: Vec<f64> = (0..196).map(|i| (0.37 * f64::from(i)).sin()).collect();
        let grid = Grid::new((6, 6), (14, 14));
        let row: Vec<f64> = (0..6).map(|p| grid.taps(p).map(|(i, w)| w * learnt[i]).sum()).collect();
        let want = [-0.43428076, 0.37869161, 0.9258493, 0.83380666, 0.18987975, -0.60891144];
        for (got, want) in row.iter().zip(want) {
            assert!((got - want).abs() < 5.1e-9, "{got} {want}");
        }
    }

    #[test]
    fn a_grid_equal_to_the_learnt_one_is_taken_as_it_is() {
        let grid = Grid::new((3, 5), (3, 5));
        for p in 0..15 {
            assert_eq!(grid.taps(p).collect::<Vec<_>>(), [(p, 1.0)]);
        }
    }
}
