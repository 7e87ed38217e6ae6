//! Sums over rows and columns, always grouped the same way whatever the number of threads.

use rayon::prelude::*;

use super::{Cpu, ELEMENTS_PER_TASK, Real, vector};
use simd::simd;

/// Rows whose sum is one partial sum.
const ROWS_PER_PARTIAL: usize = 256;

simd! {
    /// `sum += ` the sum of the rows of x, which are as long as it is.
    pub(super) fn add_rows<T: Real>(x: &[T], sum: &mut [T]) {
        for row in x.chunks_exact(sum.len().max(1)) {
            vector::add(sum, row);
        }
    }
}

simd! {
    fn sum_squares<T: Real>(x: &[T]) -> f64 {
        // Blocks keep a single-precision sum short; their totals add up in double precision.
        x.chunks(4096).map(|block| vector::sum_of(block, |x| x * x).to_f64()).sum()
    }
}

/// `sums += column sums of x`, x being [rows, columns].
pub(crate) fn add_column_sums<T: Real>(cpu: &Cpu, x: &[T], columns: usize, sums: &mut [T]) {
    assert_eq!(sums.len(), columns, "one sum for each column");
    let partials: Vec<Vec<T>> = cpu.install(|| {
        x.par_chunks(ROWS_PER_PARTIAL * columns.max(1))
            .map(|block| {
                let mut sum = vec![T::ZERO; columns];
                add_rows(block, &mut sum);
                sum
            })
            .collect()
    });
    for partial in &partials {
        add_rows(partial, sums);
    }
}

/// Sum of squares of each slice, in double precision.
pub(crate) fn squared_norms<T: Real>(cpu: &Cpu, slices: &[&[T]]) -> Vec<f64> {
    let blocks: Vec<(usize, &[T])> =
        slices.iter().enumerate().flat_map(|(i, s)| s.chunks(ELEMENTS_PER_TASK).map(move |b| (i, b))).collect();
    let partials: Vec<(usize, f64)> = cpu.install(|| blocks.par_iter().map(|&(i, b)| (i, sum_squares(b))).collect());
    let mut norms = vec![0.0; slices.len()];
    for (i, partial) in partials {
        norms[i] += partial;
    }
    norms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_close, noise};
    use crate::device::CpuOptions;

    #[test]
    fn column_sums_and_norms_match_plain_loops_and_do_not_depend_on_threads() {
        let (rows, columns) = (1500, 37);
        let x = noise::<f32>(1, rows * columns);
        let mut plain = vec![0.0f64; columns];
        for row in x.chunks(columns) {
            plain.iter_mut().zip(row).for_each(|(p, &x)| *p += f64::from(x));
        }
        let results = [1, 2, 3].map(|threads| {
            let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap();
            let mut sums = vec![0.0f32; columns];
            add_column_sums(&cpu, &x, columns, &mut sums);
            (sums, squared_norms(&cpu, &[&x, &x[..5]]))
        });
        assert!(results.iter().all(|r| r == &results[0]));
        let sums: Vec<f64> = results[0].0.iter().map(|&s| f64::from(s)).collect();
        assert_close(&sums, &plain, 1e-5);
        let square = |x: &[f32]| x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        assert_close(&results[0].1, &[square(&x), square(&x[..5])], 1e-6);
    }
}
