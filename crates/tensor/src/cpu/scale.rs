//! A factor for each row.

use rayon::prelude::*;

use super::{Cpu, Real};

/// y_r = f_r x_r.
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: &[T], factors: &[T], y: &mut [T]) {
    let Some(columns) = columns(x, factors) else { return };
    let rows = y.par_chunks_mut(columns).zip(x.par_chunks(columns)).zip(factors);
    cpu.install(|| rows.for_each(|((y, x), &f)| y.iter_mut().zip(x).for_each(|(y, &x)| *y = f * x)));
}

/// dx_r += f_r dy_r and df_r += <x_r, dy_r>.
pub(crate) fn backward<T: Real>(cpu: &Cpu, x: &[T], factors: &[T], dy: &[T], dx: &mut [T], d_factors: &mut [T]) {
    let Some(columns) = columns(x, factors) else { return };
    let rows = dx.par_chunks_mut(columns).zip(x.par_chunks(columns)).zip(dy.par_chunks(columns));
    cpu.install(|| {
        rows.zip(factors).zip(d_factors).for_each(|((((dx, x), dy), &f), df)| {
            let mut sum = T::ZERO;
            for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                *dx = f.mul_add(dy, *dx);
                sum = x.mul_add(dy, sum);
            }
            *df += sum;
        });
    });
}

/// Elements of a row; none where there are none.
fn columns<T>(x: &[T], factors: &[T]) -> Option<usize> {
    x.len().checked_div(factors.len()).filter(|&columns| columns > 0)
}
