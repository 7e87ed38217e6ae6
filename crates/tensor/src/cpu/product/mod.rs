//! Matrix products of our own, for the large ones: those of linear layers.
//!
//! A library's product writes its result to memory and what follows (bias, GELU) reads it back. Here the task that has
//! finished some rows of the result hands them to the caller's `finish` while they are in its cache. The right factor,
//! the weights, is packed once for all tasks.
//!
//! Work is cut by shape alone: the number of threads cannot change a bit.

mod kernel;
mod pack;

use rayon::prelude::*;

use super::gemm::Matrix;
use super::{Buffer, Cpu, Real};
pub(crate) use kernel::TileProduct;
use kernel::{GROUP, LARGEST_TILE, Order, Strip, Tile, multiply, tile};

/// Steps along the inner dimension that are taken at once: a tile's rows of that depth stay in the first-level cache.
const DEPTH: usize = 384;
/// Columns that a task works on at once: their share of the right factor stays in the second-level cache.
const COLUMNS: usize = 256;
/// Tasks that a product is cut into where it is large enough.
const TASKS: usize = 32;
/// The most rows of a task: its share of the left factor stays in the second-level cache.
const ROWS: usize = 192;

/// `out = a b`, or `out += a b` where `accumulate`, row by row without gaps; `finish` gets each task's rows of the result,
/// with the number of the first, when they are done.
pub(crate) fn product<T: Real>(
    cpu: &Cpu,
    out: &mut [T],
    accumulate: bool,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    finish: impl Fn(usize, &mut [T]) + Sync,
) {
    let plan = Plan::new::<T>(a, b, out.len());
    let Some(packed) = plan.pack(cpu, b) else { return };
    cpu.install(|| {
        let tasks = out.par_chunks_mut(plan.task_rows * plan.n).enumerate();
        tasks.for_each_init(
            || plan.scratch(cpu),
            |scratch, (task, out)| {
                plan.run(task, accumulate, a, packed.as_slice(), scratch, out);
                finish(task * plan.task_rows, out);
            },
        );
    });
}

/// `out = a b`; `finish` gets each task's rows of the result and the same rows of `beside`, which it may fill from them.
pub(crate) fn product_beside<T: Real>(
    cpu: &Cpu,
    out: &mut [T],
    beside: &mut [T],
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    finish: impl Fn(&mut [T], &mut [T]) + Sync,
) {
    let plan = Plan::new::<T>(a, b, out.len());
    let Some(packed) = plan.pack(cpu, b) else { return };
    let rows = plan.task_rows * plan.n;
    cpu.install(|| {
        let tasks = out.par_chunks_mut(rows).zip(beside.par_chunks_mut(rows)).enumerate();
        tasks.for_each_init(
            || plan.scratch(cpu),
            |scratch, (task, (out, beside))| {
                plan.run(task, false, a, packed.as_slice(), scratch, out);
                finish(out, beside);
            },
        );
    });
}

/// How a product is cut.
struct Plan {
    n: usize,
    k: usize,
    tile: Tile,
    task_rows: usize,
    /// Elements of the packed right factor for each step along the inner dimension.
    packed_columns: usize,
}

impl Plan {
    fn new<T: Real>(a: Matrix<'_, T>, b: Matrix<'_, T>, out: usize) -> Self {
        let (m, n, k) = (a.rows, b.columns, a.columns);
        assert_eq!((b.rows, out), (k, m * n), "shapes of a matrix product");
        let tile = tile::<T>();
        let task_rows = m.div_ceil(TASKS).next_multiple_of(tile.rows).clamp(4 * tile.rows, ROWS);
        Self { n, k, tile, task_rows, packed_columns: n.next_multiple_of(tile.columns) }
    }

    /// The right factor in the order of the tiles, block by block of the inner dimension; none for an empty result.
    fn pack<T: Real>(&self, cpu: &Cpu, b: Matrix<'_, T>) -> Option<Buffer<T>> {
        if self.n == 0 {
            return None;
        }
        let mut packed = cpu.allocate::<T>(self.packed_columns * self.k);
        let mut rest = packed.as_mut_slice();
        cpu.install(|| {
            for inner in blocks(self.k) {
                let (part, after) = rest.split_at_mut(inner.len() * self.packed_columns);
                rest = after;
                part.par_chunks_mut(inner.len() * self.tile.columns).enumerate().for_each(|(panel, out)| {
                    pack::columns(b, panel * self.tile.columns, inner.clone(), self.tile.columns, out);
                });
            }
        });
        Some(packed)
    }

    /// Room for a task's packed rows.
    fn scratch<T: Real>(&self, cpu: &Cpu) -> Buffer<T> {
        cpu.allocate(self.task_rows.next_multiple_of(self.tile.rows) * self.k.min(DEPTH).next_multiple_of(GROUP))
    }

    /// The rows of one task.
    fn run<T: Real>(
        &self,
        task: usize,
        accumulate: bool,
        a: Matrix<'_, T>,
        packed: &[T],
        scratch: &mut Buffer<T>,
        out: &mut [T],
    ) {
        let first = task * self.task_rows;
        if self.k == 0 && !accumulate {
            out.fill(T::ZERO);
        }
        let rows = self.tile.rows;
        for inner in blocks(self.k) {
            let part = &packed[inner.start * self.packed_columns..][..inner.len() * self.packed_columns];
            let strip = rows * inner.len().next_multiple_of(GROUP);
            let scratch = &mut scratch.as_mut_slice()[..(out.len() / self.n).div_ceil(rows) * strip];
            let mut order = Order::Rows;
            for (tile, scratch) in scratch.chunks_exact_mut(strip).enumerate() {
                order = pack::rows(a, first + tile * rows, inner.clone(), rows, scratch);
            }
            let strips = scratch.chunks_exact(strip).map(|data| Strip { data, order });
            let add = accumulate || inner.start > 0;
            rows_times_columns(self.tile, inner.len(), strips, part, add, self.n, out);
        }
    }
}

fn blocks(k: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..k).step_by(DEPTH).map(move |start| start..(start + DEPTH).min(k))
}

/// All tiles of a task for one block of the inner dimension.
fn rows_times_columns<'a, T: Real>(
    tile: Tile,
    depth: usize,
    strips: impl Iterator<Item = Strip<'a, T>> + Clone,
    b: &[T],
    add: bool,
    n: usize,
    out: &mut [T],
) {
    let mut sums = [T::ZERO; LARGEST_TILE];
    let group = (COLUMNS / tile.columns).max(1) * tile.columns;
    for (g, b) in b.chunks(group * depth).enumerate() {
        for (a, out) in strips.clone().zip(out.chunks_mut(tile.rows * n)) {
            for (j, b) in b.chunks_exact(tile.columns * depth).enumerate() {
                multiply(tile, a, b, &mut sums);
                let column = g * group + j * tile.columns;
                let width = tile.columns.min(n - column);
                for (sums, out) in sums.chunks_exact(tile.columns).zip(out.chunks_exact_mut(n)) {
                    let out = &mut out[column..column + width];
                    if add {
                        out.iter_mut().zip(sums).for_each(|(o, &s)| *o += s);
                    } else {
                        out.copy_from_slice(&sums[..width]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::gemm::{MatrixMut, gemm_plain};
    use crate::cpu::testing::{assert_close, cpu, noise};
    use crate::device::CpuOptions;

    /// Sizes around the edges of tiles, tasks and blocks.
    const SHAPES: [(usize, usize, usize); 9] = [
        (1, 1, 1),
        (5, 7, 3),
        (12, 32, 4),
        (13, 33, 5),
        (47, 64, 383),
        (50, 31, 385),
        (200, 70, 20),
        (3, 300, 769),
        (500, 9, 2),
    ];

    fn matches_the_plain_loop<T: Real>(tolerance: f64) {
        for (m, n, k) in SHAPES {
            let (a, b, start) = (noise::<T>(1, m * k), noise::<T>(2, k * n), noise::<T>(3, m * n));
            let left = [Matrix::new(&a, m, k, k), Matrix::new(&a, k, m, m).transposed()];
            let right = [Matrix::new(&b, k, n, n), Matrix::new(&b, n, k, k).transposed()];
            for (a, b) in left.into_iter().flat_map(|a| right.map(|b| (a, b))) {
                for accumulate in [false, true] {
                    let (mut fast, mut plain) = (start.clone(), start.clone());
                    product(&cpu(), &mut fast, accumulate, a, b, |_, _| ());
                    gemm_plain(MatrixMut::new(&mut plain, m, n, n), accumulate, T::ONE, a, b);
                    assert_close(&fast, &plain, tolerance);
                }
            }
        }
    }

    #[test]
    fn products_of_rows_and_columns_in_either_order_match_the_plain_loop() {
        matches_the_plain_loop::<f64>(1e-13);
        matches_the_plain_loop::<f32>(1e-4);
    }

    #[test]
    fn every_row_is_finished_once_and_after_its_last_product() {
        let (m, n, k) = (401, 37, 800);
        let (a, b) = (noise::<f64>(1, m * k), noise::<f64>(2, k * n));
        let (a, b) = (Matrix::new(&a, m, k, k), Matrix::new(&b, k, n, n));
        let (mut plain, mut negated, mut beside) = (vec![0.0; m * n], vec![0.0; m * n], vec![0.0; m * n]);
        product(&cpu(), &mut plain, false, a, b, |_, _| ());
        product(&cpu(), &mut negated, false, a, b, |first, rows| {
            rows.iter_mut().enumerate().for_each(|(i, x)| *x = -*x + (first * n + i) as f64);
        });
        let mut out = vec![0.0; m * n];
        product_beside(&cpu(), &mut out, &mut beside, a, b, |out, beside| {
            beside.iter_mut().zip(out).for_each(|(b, o)| *b = 2.0 * *o);
        });
        for i in 0..m * n {
            assert_eq!((negated[i], out[i], beside[i]), (i as f64 - plain[i], plain[i], 2.0 * plain[i]));
        }
    }

    #[test]
    fn an_empty_sum_is_zero_and_an_empty_result_is_nothing() {
        let mut out = vec![f64::NAN; 6];
        product(&cpu(), &mut out, false, Matrix::new(&[], 2, 0, 0), Matrix::new(&[], 0, 3, 3), |_, _| ());
        assert_eq!(out, [0.0; 6]);
        product(&cpu(), &mut [], false, Matrix::new(&[], 0, 3, 3), Matrix::new(&[1.0; 6], 3, 2, 2), |_, _| ());
        product(&cpu(), &mut [], false, Matrix::new(&[1.0; 6], 2, 3, 3), Matrix::new(&[], 3, 0, 0), |_, _| ());
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() {
        for (m, n, k) in [(788, 576, 192), (96, 2000, 256), (576, 192, 788)] {
            let (a, b) = (noise::<f32>(1, m * k), noise::<f32>(2, n * k));
            let runs = [1, 2, 3, 4].map(|threads| {
                let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
                let mut out = vec![0.0; m * n];
                let (a, b) = (Matrix::new(&a, m, k, k), Matrix::new(&b, n, k, k).transposed());
                product(&cpu, &mut out, false, a, b, |_, _| ());
                out
            });
            assert!(runs.iter().all(|r| r == &runs[0]), "{m}x{n}x{k}");
        }
    }
}
