//! The last work on views that were sent to the GPU, on the stream that brought them.

use cudarc::driver::sys;

use super::{Cuda, arguments};
use crate::ops::{ColorStep, ViewEdit};

/// Longest side of a view that is edited here: a line of it, twice, fits into shared memory.
const MOST_SIDE: usize = 4096;
/// Shared memory that every kernel may have.
const SHARED: usize = 48 << 10;
/// Threads of a block.
const THREADS: u32 = 512;
/// Most rows of a block that blurs along rows, and most bytes of a row for one that blurs along columns.
const ROWS: usize = 8;
const COLUMN_BYTES: usize = 64;

/// A [`ViewEdit`] as `views.cu` reads it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Packed {
    kinds: [u32; 4],
    amounts: [f32; 4],
    gray: u32,
    solarize_from: u32,
    radius: i32,
    inner: u32,
    outer: u32,
}

impl Packed {
    pub(super) fn new(edit: &ViewEdit) -> Self {
        let pack = |step: &ColorStep| match *step {
            ColorStep::Brightness(factor) => (1, factor),
            ColorStep::Contrast(factor) => (2, factor),
            ColorStep::Saturation(factor) => (3, factor),
            ColorStep::Hue(shift) => (4, f32::from(shift)),
        };
        let mut steps = [(0, 0.0); 4];
        if let Some(colors) = &edit.colors {
            steps = colors.each_ref().map(pack);
        }
        let (radius, inner, outer) = edit.blur.map_or((-1, 0, 0), |blur| (blur.radius as i32, blur.inner, blur.outer));
        Self {
            kinds: steps.map(|(kind, _)| kind),
            amounts: steps.map(|(_, amount)| amount),
            gray: edit.grayscale.into(),
            solarize_from: edit.solarize_from.map_or(256, u32::from),
            radius,
            inner,
            outer,
        }
    }
}

/// Whether views of this size can be edited on a GPU.
pub(crate) fn can_edit(height: usize, width: usize, channels: usize) -> bool {
    channels == 3 && height.max(width) <= MOST_SIDE
}

/// How many rows or columns of `bytes` each fit into shared memory: `most`, halved until they do.
fn fitting(most: usize, bytes: usize) -> usize {
    let mut count = most;
    while count > 1 && count * bytes > SHARED {
        count /= 2;
    }
    count
}

impl Cuda {
    /// Queues the edits of `count` views on a stream, in place.
    pub(super) fn edit_views(
        &self,
        stream: sys::CUstream,
        (views, edits): (u64, u64),
        (height, width): (usize, usize),
        count: usize,
    ) {
        let pixels = height * width;
        let kernel = if pixels.is_multiple_of(4) { "edit_colors_by_4" } else { "edit_colors_by_1" };
        let grid = (count as u32, 1, 1);
        self.launch_on(stream, ("views", kernel), grid, (THREADS, 1), 0, &arguments![views, edits, pixels as i32]);

        let arguments = arguments![views, edits, height as i32, width as i32];
        let rows = fitting(ROWS, 2 * width * 3);
        let grid = (count as u32, height.div_ceil(rows) as u32, 1);
        let block = (THREADS / rows as u32, rows as u32);
        self.launch_on(stream, ("views", "blur_rows"), grid, block, 2 * rows * width * 3, &arguments);

        let across = fitting(COLUMN_BYTES, 2 * height);
        let grid = (count as u32, (width * 3).div_ceil(across) as u32, 1);
        let block = (across as u32, THREADS / across as u32);
        self.launch_on(stream, ("views", "blur_columns"), grid, block, 2 * height * across, &arguments);
    }
}
