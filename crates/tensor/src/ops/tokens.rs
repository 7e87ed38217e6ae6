//! From pixels to the packed tokens of a batch.

use std::ops::Range;

use crate::cpu::{on_device, patchify as cpu_patchify, reduce, residual as cpu_residual, tokens as cpu};
use crate::cuda::{UploadedPixels, prototypes as gpu_prototypes, residual as gpu_residual, tokens as gpu};
use crate::device::Device;
use crate::ops::positions::Grid;
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

/// How the images of a batch become tokens: for each group of equal images, their number and their grid.
#[derive(Clone, Debug)]
pub struct TokenLayout {
    groups: Vec<(usize, Grid)>,
    registers: usize,
}

impl TokenLayout {
    /// Groups in the order of the images.
    pub fn new(groups: Vec<(usize, Grid)>) -> Self {
        Self { groups, registers: 0 }
    }

    /// With so many register tokens between an image's class token and its patches.
    pub fn with_registers(self, registers: usize) -> Self {
        Self { registers, ..self }
    }

    /// Register tokens of each image.
    pub(crate) fn registers(&self) -> usize {
        self.registers
    }

    /// Patches of all images.
    fn patches(&self) -> usize {
        self.groups.iter().map(|(count, grid)| count * grid.patches()).sum()
    }

    /// The groups.
    pub fn groups(&self) -> &[(usize, Grid)] {
        &self.groups
    }

    /// Every image's rows of the packed token matrix: a class token, its registers, then its patches.
    pub fn rows(&self) -> Rows {
        let tokens = |grid: &Grid| 1 + self.registers + grid.patches();
        Rows::all(self.groups.iter().flat_map(|(count, grid)| std::iter::repeat_n(tokens(grid), *count)))
    }

    pub(crate) fn group_of_each(&self) -> Vec<usize> {
        self.groups.iter().enumerate().flat_map(|(g, (count, _))| std::iter::repeat_n(g, *count)).collect()
    }
}

/// The learnt values that the tokens of an image begin with, beside its patches; or their gradients.
#[derive(Debug)]
pub struct Embeddings<T> {
    /// The class token, a row of dim.
    pub class: T,
    /// The register tokens, rows of dim without a position; none where the layout has none.
    pub registers: Option<T>,
    /// The positions: of the class token, then of each cell of the learnt grid.
    pub position: T,
}

/// Packed tokens [tokens, dim], with which the residual stream begins, from patch embeddings [patches, dim].
pub fn assemble_tokens(layout: &TokenLayout, patches: &Tensor, learnt: &Embeddings<&Tensor>) -> Tensor {
    let dim = learnt.class.len();
    assert_eq!(learnt.registers.map_or(0, Tensor::len), layout.registers * dim, "register tokens");
    let mut x = patches.device().empty_residual(&[layout.rows().count(), dim]);
    on_device!(patches, T => {
        let learnt = Embeddings {
            class: T::slice(learnt.class),
            registers: learnt.registers.map(T::slice),
            position: T::slice(learnt.position),
        };
        cpu::assemble(patches.device().as_cpu(), layout, T::slice(patches), &learnt, T::slice_mut(&mut x));
    }, cuda => gpu::assemble(cuda, layout, patches, learnt, &mut x));
    x
}

/// The gradient of the patch embeddings; adds those of the learnt values.
pub fn assemble_tokens_backward(layout: &TokenLayout, dx: &Tensor, learnt: &mut Embeddings<&mut Tensor>) -> Tensor {
    assert_stream(dx);
    let dim = learnt.class.len();
    assert_eq!(learnt.registers.as_ref().map_or(0, |r| r.len()), layout.registers * dim, "register tokens");
    let mut d_patches = dx.device().empty(&[layout.patches(), dim]);
    on_device!(dx, T => {
        let mut learnt = Embeddings {
            class: T::slice_mut(learnt.class),
            registers: learnt.registers.as_deref_mut().map(T::slice_mut),
            position: T::slice_mut(learnt.position),
        };
        cpu::assemble_backward(dx.device().as_cpu(), layout, T::slice(dx), T::slice_mut(&mut d_patches), &mut learnt);
    }, cuda => gpu::assemble_backward(cuda, layout, dx, &mut d_patches, learnt));
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
