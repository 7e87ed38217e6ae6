//! Copies of parts of a matrix in the order in which the tile loop reads them.

use std::ops::Range;

use super::Matrix;
use super::kernel::{GROUP, Order};
use crate::cpu::Real;

/// One tile's rows of a block of `a`, in groups of steps. Rows beyond the matrix are zero.
pub(super) fn rows<T: Real>(
    a: Matrix<'_, T>,
    first: usize,
    inner: Range<usize>,
    tile_rows: usize,
    out: &mut [T],
) -> Order {
    let here = tile_rows.min(a.rows - first);
    if here < tile_rows || !inner.len().is_multiple_of(GROUP) {
        out.fill(T::ZERO);
    }
    if a.column_stride == 1 {
        for i in 0..here {
            let row = &a.data[(first + i) * a.row_stride..][inner.clone()];
            let (groups, rest) = row.as_chunks::<GROUP>();
            let slots = &mut out.as_chunks_mut::<GROUP>().0[i..];
            for (slot, group) in slots.iter_mut().step_by(tile_rows).zip(groups) {
                *slot = *group;
            }
            if !rest.is_empty() {
                slots[groups.len() * tile_rows][..rest.len()].copy_from_slice(rest);
            }
        }
        return Order::Rows;
    }
    match (a.row_stride, here == tile_rows, tile_rows) {
        (1, true, 12) => steps::<T, 12>(&a.data[first..], inner, a.column_stride, out),
        (1, true, 8) => steps::<T, 8>(&a.data[first..], inner, a.column_stride, out),
        (1, true, 6) => steps::<T, 6>(&a.data[first..], inner, a.column_stride, out),
        _ => {
            for (l, out) in inner.zip(out.chunks_exact_mut(tile_rows)) {
                let at = first * a.row_stride + l * a.column_stride;
                out[..here].iter_mut().enumerate().for_each(|(i, out)| *out = a.data[at + i * a.row_stride]);
            }
        }
    }
    Order::Steps
}

/// The rows of a transposed matrix lie side by side: one copy of known length for each step.
fn steps<T: Real, const ROWS: usize>(data: &[T], inner: Range<usize>, stride: usize, out: &mut [T]) {
    for (l, out) in inner.zip(out.as_chunks_mut::<ROWS>().0) {
        if let Some(from) = data[l * stride..].first_chunk::<ROWS>() {
            *out = *from;
        }
    }
}

/// Columns `first..` of `b`, as many as a tile has: for each step along the inner dimension the elements of all its
/// columns. Columns beyond the matrix are zero.
pub(super) fn columns<T: Real>(b: Matrix<'_, T>, first: usize, inner: Range<usize>, width: usize, out: &mut [T]) {
    let here = width.min(b.columns - first);
    if here < width {
        out.fill(T::ZERO);
    }
    if b.column_stride == 1 {
        for (l, out) in out.chunks_exact_mut(width).enumerate() {
            out[..here].copy_from_slice(&b.data[(inner.start + l) * b.row_stride + first..][..here]);
        }
    } else {
        for j in 0..here {
            let at = (first + j) * b.column_stride + inner.start * b.row_stride;
            for (l, out) in out.chunks_exact_mut(width).enumerate() {
                out[j] = b.data[at + l * b.row_stride];
            }
        }
    }
}
