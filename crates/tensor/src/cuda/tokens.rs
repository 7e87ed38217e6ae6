//! From pixels to the packed tokens of a batch.

use super::linear::add_partials;
use super::{Cuda, CudaBuffer, arguments};
use crate::ops::{Embeddings, Grid, PixelData, Pixels, TokenLayout};
use crate::tensor::{DType, Tensor};

/// Parts in which the images of a group are summed up; fixed, for the same sums on any GPU.
const IMAGE_PARTS: usize = 32;

pub(crate) fn patchify(cuda: &Cuda, groups: &[Pixels<'_>], patch: usize, out: &mut Tensor) {
    let mut address = out.cuda_address_mut();
    for g in groups {
        let values = g.count * g.patches(patch) * g.channels * patch * patch;
        let shape = [g.height, g.width, g.channels, patch].map(|x| x as i32);
        match &g.data {
            PixelData::Bytes { mean, deviation, .. } | PixelData::Uploaded { mean, deviation, .. } => {
                let held;
                let pixels = match &g.data {
                    PixelData::Uploaded { pixels, first, .. } => cuda.uploaded_address(pixels) + *first as u64,
                    PixelData::Bytes { pixels, .. } => {
                        held = cuda.uploaded(pixels);
                        held.address()
                    }
                    PixelData::Values(_) => 0,
                };
                let levels = cuda.uploaded(&levels(mean, deviation));
                let arguments = arguments![
                    pixels,
                    levels.address(),
                    g.count as i64,
                    shape[0],
                    shape[1],
                    shape[2],
                    shape[3],
                    address,
                ];
                let (kernel, width) = match patch {
                    p if p.is_multiple_of(8) => ("patchify_bytes_by_8", 8),
                    p if p.is_multiple_of(4) => ("patchify_bytes_by_4", 4),
                    _ => ("patchify_bytes_by_1", 1),
                };
                cuda.launch_flat(("tokens", kernel), values / width, &arguments);
            }
            PixelData::Values(pixels) => {
                let pixels = cuda.uploaded(&pixels.iter().map(|&x| x as f32).collect::<Vec<_>>());
                let arguments =
                    arguments![pixels.address(), g.count as i64, shape[0], shape[1], shape[2], shape[3], address];
                cuda.launch_flat(("tokens", "patchify_values"), values, &arguments);
            }
        }
        address += (values * out.dtype().size()) as u64;
    }
}

/// What each byte becomes in each channel, [channels, 256]: (byte / 255 - mean) / deviation in single precision, as
/// torchvision computes it.
fn levels(mean: &[f32], deviation: &[f32]) -> Vec<f32> {
    let of =
        |(&mean, &deviation): (&f32, &f32)| (0..=255u8).map(move |byte| (f32::from(byte) / 255.0 - mean) / deviation);
    mean.iter().zip(deviation).flat_map(of).collect()
}

/// How a grid's positions mix the learnt ones, [patches, learnt]; none where they are the learnt ones.
fn mix(cuda: &Cuda, grid: &Grid, learnt: usize) -> Option<CudaBuffer> {
    if grid.is_learnt() {
        return None;
    }
    let mut weights = vec![0.0f32; grid.patches() * learnt];
    for patch in 0..grid.patches() {
        for (position, weight) in grid.taps(patch) {
            weights[patch * learnt + position] += weight as f32;
        }
    }
    Some(cuda.uploaded(&weights))
}

pub(crate) fn assemble(
    cuda: &Cuda,
    layout: &TokenLayout,
    patches: &Tensor,
    learnt: &Embeddings<&Tensor>,
    x: &mut Tensor,
) {
    let Embeddings { class, registers, position } = learnt;
    let (dim, others) = (class.len(), 1 + layout.registers());
    let cells_learnt = position.len() / dim - 1;
    let (mut from, mut to) = (patches.cuda_address(), x.cuda_address_mut());
    for (count, grid) in layout.groups() {
        let (count, cells) = (*count, grid.patches());
        let mix = mix(cuda, grid, cells_learnt);
        let mixed = cuda.allocate(cells * dim, DType::F32);
        let mix = mix.as_ref().map_or(0, CudaBuffer::address);
        let arguments =
            arguments![position.cuda_address(), mix, cells as i32, cells_learnt as i32, dim as i32, mixed.address()];
        cuda.launch_flat(("tokens", "mix_positions"), cells * dim, &arguments);
        let arguments = arguments![
            from,
            class.cuda_address(),
            registers.map_or(0, Tensor::cuda_address),
            position.cuda_address(),
            mixed.address(),
            count as i64,
            others as i32,
            cells as i32,
            dim as i32,
            to,
        ];
        let (kernel, width) = if dim.is_multiple_of(8) { ("assemble_by_8", 8) } else { ("assemble_by_1", 1) };
        cuda.launch_flat(("tokens", kernel), count * (cells + others) * dim / width, &arguments);
        from += (count * cells * dim * patches.dtype().size()) as u64;
        to += (count * (cells + others) * dim * x.dtype().size()) as u64;
    }
}

pub(crate) fn assemble_backward(
    cuda: &Cuda,
    layout: &TokenLayout,
    dx: &Tensor,
    d_patches: &mut Tensor,
    learnt: &mut Embeddings<&mut Tensor>,
) {
    let Embeddings { class, registers, position } = learnt;
    let (dim, others) = (class.len(), 1 + layout.registers());
    let cells_learnt = position.len() / dim - 1;
    let (mut from, mut to) = (dx.cuda_address(), d_patches.cuda_address_mut());
    for (count, grid) in layout.groups() {
        let (count, cells) = (*count, grid.patches());
        let columns = (cells + others) * dim;
        let per_part = count.div_ceil(IMAGE_PARTS).max(1);
        let parts = count.div_ceil(per_part);
        let partial = cuda.allocate(parts * columns, DType::F32);
        let arguments = arguments![
            from,
            count as i64,
            others as i32,
            cells as i32,
            dim as i32,
            per_part as i32,
            to,
            partial.address(),
        ];
        let blocks = (columns.div_ceil(256) as u32, parts as u32, 1);
        cuda.launch(("tokens", "assemble_backward"), blocks, (256, 1), 0, &arguments);
        let mut places = cuda.allocate(columns, DType::F32);
        cuda.fill(&mut places, 0.0);
        add_partials(cuda, partial.address(), parts, columns, places.address());
        let mix = mix(cuda, grid, cells_learnt);
        let arguments = arguments![
            places.address(),
            mix.as_ref().map_or(0, CudaBuffer::address),
            others as i32,
            cells as i32,
            cells_learnt as i32,
            dim as i32,
            class.cuda_address_mut(),
            registers.as_mut().map_or(0, |registers| registers.cuda_address_mut()),
            position.cuda_address_mut(),
        ];
        cuda.launch_flat(("tokens", "add_place_gradients"), (others + cells_learnt) * dim, &arguments);
        from += (count * (cells + others) * dim * dx.dtype().size()) as u64;
        to += (count * cells * dim * d_patches.dtype().size()) as u64;
    }
}
