//! Attention inside segments: tensor cores for bf16 heads of 64, a kernel in registers for the forward pass of those in f32, a plain
//! kernel for everything else.

use super::rows::Group;
use super::{Argument, Cuda, CudaBuffer, DeviceRows, arguments};
use crate::tensor::{DType, Tensor};

/// The width of a head that the fast kernels take: that of every ViT in use.
const HEAD: usize = 64;

/// Rows that a warp of the fast kernels takes.
const STRIP: usize = 16;

/// Warps of a block that has a short segment whole; the kernels count on it (`MOST_WARPS`, `__launch_bounds__`).
const MOST_WARPS: usize = 7;

/// Queries that a warp of the kernel in f32 takes, and the most warps of its blocks.
const EXACT_QUERIES: usize = 32;
const EXACT_WARPS: usize = 8;

/// Shared memory that the kernel for short segments declares: its sums over rows.
const SUMS_BYTES: usize = 2 * MOST_WARPS * HEAD * 4;

/// The longest segment that fits a block whole.
const WHOLE: usize = 256;

/// One attention: its segments, and its heads.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub queries: &'a DeviceRows,
    pub keys: &'a DeviceRows,
    pub heads: usize,
    pub head_dim: usize,
}

impl Shape<'_> {
    fn scale(&self) -> f32 {
        (1.0 / (self.head_dim as f64).sqrt()) as f32
    }

    fn is_fast(&self, cuda: &Cuda) -> bool {
        cuda.dtype() == DType::Bf16 && self.head_dim == HEAD
    }
}

/// Threads of a block whose warps share out the strips of a segment evenly: one each where there are not too many.
fn warps(strips: usize) -> u32 {
    32 * strips.div_ceil(strips.div_ceil(MOST_WARPS)) as u32
}

pub(crate) fn forward(cuda: &Cuda, shape: Shape<'_>, qkv: &Tensor, out: &mut Tensor, lse: &mut Tensor) {
    let is_exact = cuda.dtype() == DType::F32 && shape.head_dim == HEAD;
    if !shape.is_fast(cuda) && !is_exact {
        let (dim, x) = (out.columns(), qkv.cuda_address());
        return plain_forward(cuda, shape, [x, x], [3 * dim, 3 * dim, dim, 2 * dim], out, lse);
    }
    let heads = shape.heads as u32;
    for &Group { first, segments, length } in shape.keys.groups().iter().filter(|g| g.length > 0) {
        let arguments = arguments![
            qkv.cuda_address(),
            shape.keys.offsets(),
            first as i32,
            shape.heads as i32,
            shape.scale(),
            out.cuda_address_mut(),
            lse.cuda_address_mut(),
        ];
        let strips = length.div_ceil(STRIP);
        if is_exact {
            let warps = length.div_ceil(EXACT_QUERIES);
            let parts = warps.div_ceil(EXACT_WARPS);
            let grid = (heads * segments as u32, parts as u32, 1);
            let threads = 32 * warps.div_ceil(parts) as u32;
            cuda.launch(("attention_exact", "attention_exact_forward"), grid, (threads, 1), 0, &arguments);
        } else if length <= WHOLE && cuda.fits_shared(4096 * strips) {
            let kernel = ("attention_forward", "attention_forward");
            let grid = (heads * segments as u32, 1, 1);
            cuda.launch(kernel, grid, (warps(strips), 1), 4096 * strips, &arguments);
        } else {
            let grid = (length.div_ceil(128) as u32, heads, segments as u32);
            cuda.launch(("attention_forward", "attention_forward_long"), grid, (128, 1), 0, &arguments);
        }
    }
}

pub(crate) fn backward(
    cuda: &Cuda,
    shape: Shape<'_>,
    qkv: &Tensor,
    [out, lse, d_out]: [&Tensor; 3],
    d_qkv: &mut Tensor,
) {
    let dim = out.columns();
    if !shape.is_fast(cuda) {
        let (x, dx) = (qkv.cuda_address(), d_qkv.cuda_address_mut());
        let layout = [3 * dim, 3 * dim, dim, 2 * dim];
        return plain_backward(cuda, shape, [x, x], layout, [out, lse, d_out], [dx, dx]);
    }
    let (heads, scale) = (shape.heads as u32, shape.scale());
    let offsets = shape.keys.offsets();
    let is_short = |length: usize| length <= WHOLE && cuda.fits_shared(8320 * length.div_ceil(STRIP) + SUMS_BYTES);
    let any_long = shape.keys.groups().iter().any(|g| !is_short(g.length));
    // The kernel for short segments sums its result over the rows on the way, for the gradient of the bias.
    let all_summed = !any_long && shape.keys.groups().iter().all(|g| g.length > 0);
    let segments: usize = shape.keys.groups().iter().map(|g| g.segments).sum();
    let sums = all_summed.then(|| cuda.allocate(segments * 3 * dim, DType::F32));
    let pairs = out.rows() * shape.heads;
    let dots = cuda.allocate(if any_long { pairs } else { 0 }, DType::F32);
    if any_long {
        let arguments = arguments![out.cuda_address(), d_out.cuda_address(), pairs as i64, dots.address()];
        let grid = (pairs.div_ceil(32) as u32, 1, 1);
        cuda.launch(("attention_backward", "attention_backward_dots"), grid, (256, 1), 0, &arguments);
    }
    for &Group { first, segments, length } in shape.keys.groups().iter().filter(|g| g.length > 0) {
        let strips = length.div_ceil(STRIP);
        let to = d_qkv.cuda_address_mut();
        let (x, dy, first) = (qkv.cuda_address(), d_out.cuda_address(), first as i32);
        let (count, lse) = (shape.heads as i32, lse.cuda_address());
        if is_short(length) {
            let sums = sums.as_ref().map_or(0, CudaBuffer::address);
            let arguments = arguments![x, offsets, first, count, scale, out.cuda_address(), dy, lse, to, sums];
            let grid = (heads * segments as u32, 1, 1);
            let kernel = ("attention_backward", "attention_backward");
            cuda.launch(kernel, grid, (warps(strips), 1), 8320 * strips, &arguments);
        } else {
            let arguments = arguments![x, offsets, first, count, scale, dy, lse, dots.address(), to];
            let grid = |per_block: usize| (strips.div_ceil(per_block) as u32, heads, segments as u32);
            cuda.launch(("attention_backward", "attention_backward_keys_long"), grid(7), (224, 1), 0, &arguments);
            cuda.launch(("attention_backward", "attention_backward_queries_long"), grid(8), (256, 1), 0, &arguments);
        }
    }
    if let Some(sums) = sums {
        d_qkv.keep_column_sums(sums);
    }
}

/// Attention of the class tokens: one query for each segment.
pub(crate) fn class_forward(
    cuda: &Cuda,
    shape: Shape<'_>,
    q: &Tensor,
    kv: &Tensor,
    out: &mut Tensor,
    lse: &mut Tensor,
) {
    let dim = q.columns();
    if shape.head_dim != HEAD {
        let addresses = [q.cuda_address(), kv.cuda_address()];
        return plain_forward(cuda, shape, addresses, [dim, 2 * dim, 0, dim], out, lse);
    }
    let arguments = arguments![
        q.cuda_address(),
        kv.cuda_address(),
        shape.keys.offsets(),
        shape.heads as i32,
        shape.scale(),
        out.cuda_address_mut(),
        lse.cuda_address_mut(),
    ];
    let grid = ((q.rows() * shape.heads) as u32, 1, 1);
    cuda.launch(("class_attention", "class_attention_forward"), grid, (128, 1), 0, &arguments);
}

pub(crate) fn class_backward(
    cuda: &Cuda,
    shape: Shape<'_>,
    [q, kv]: [&Tensor; 2],
    [out, lse, d_out]: [&Tensor; 3],
    [dq, dkv]: [&mut Tensor; 2],
) {
    let dim = q.columns();
    let (x, dx) = ([q.cuda_address(), kv.cuda_address()], [dq.cuda_address_mut(), dkv.cuda_address_mut()]);
    if shape.head_dim != HEAD {
        return plain_backward(cuda, shape, x, [dim, 2 * dim, 0, dim], [out, lse, d_out], dx);
    }
    let arguments = arguments![
        x[0],
        x[1],
        shape.keys.offsets(),
        shape.heads as i32,
        shape.scale(),
        out.cuda_address(),
        lse.cuda_address(),
        d_out.cuda_address(),
        dx[0],
        dx[1],
    ];
    let grid = ((q.rows() * shape.heads) as u32, 1, 1);
    cuda.launch(("class_attention", "class_attention_backward"), grid, (128, 1), 0, &arguments);
}

/// The grid of the plain kernels: a block for some rows of a segment and a head.
fn plain_grid(shape: Shape<'_>) -> (u32, u32, u32) {
    assert!(shape.head_dim <= 128, "heads of {} columns; the plain kernels take up to 128", shape.head_dim);
    let segments: usize = shape.keys.groups().iter().map(|g| g.segments).sum();
    let longest = shape.keys.groups().iter().map(|g| g.length).max().unwrap_or(0);
    (segments as u32, shape.heads as u32, longest.div_ceil(32).max(1) as u32)
}

/// What both plain kernels read. `layout` is the strides of q and kv, and the columns of keys and values in kv.
fn plain_inputs(shape: Shape<'_>, [q, kv]: [u64; 2], layout: [usize; 4]) -> [Argument; 11] {
    let [q_stride, kv_stride, k_column, v_column] = layout.map(|x| x as i32);
    arguments![
        q,
        q_stride,
        kv,
        kv_stride,
        k_column,
        v_column,
        shape.queries.offsets(),
        shape.keys.offsets(),
        shape.heads as i32,
        shape.head_dim as i32,
        shape.scale(),
    ]
}

fn plain_forward(cuda: &Cuda, shape: Shape<'_>, x: [u64; 2], layout: [usize; 4], out: &mut Tensor, lse: &mut Tensor) {
    let outputs = arguments![out.cuda_address_mut(), lse.cuda_address_mut()];
    let arguments = [&plain_inputs(shape, x, layout)[..], &outputs].concat();
    cuda.launch(("attention_plain", "attention_plain_forward"), plain_grid(shape), (128, 1), 0, &arguments);
}

fn plain_backward(
    cuda: &Cuda,
    shape: Shape<'_>,
    x: [u64; 2],
    layout: [usize; 4],
    [out, lse, d_out]: [&Tensor; 3],
    [dq, dkv]: [u64; 2],
) {
    let [q_stride, kv_stride, k_column, v_column] = layout.map(|x| x as i32);
    let given = arguments![out.cuda_address(), lse.cuda_address(), d_out.cuda_address()];
    // A gradient has the memory layout of what it is the gradient of.
    let gradients = arguments![dq, q_stride, dkv, kv_stride, k_column, v_column];
    let arguments = [&plain_inputs(shape, x, layout)[..], &given, &gradients].concat();
    cuda.launch(("attention_plain", "attention_plain_backward"), plain_grid(shape), (128, 1), 0, &arguments);
}
