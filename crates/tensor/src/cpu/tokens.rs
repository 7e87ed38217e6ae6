//! Tokens of a packed batch: the class token, then the patch embeddings, each with its position embedding.

use rayon::prelude::*;

use super::{Cpu, Real, one_task_each, split_mut, starts};
use crate::ops::{Grid, TokenLayout};

/// Position embeddings of one grid, [patches, dim]: the learnt grid itself or its interpolation.
fn positions<T: Real>(grid: &Grid, learnt: &[T], dim: usize) -> Vec<T> {
    let mut out = vec![T::ZERO; grid.patches() * dim];
    for (patch, out) in out.chunks_exact_mut(dim).enumerate() {
        for (source, weight) in grid.taps(patch) {
            let (weight, row) = (T::from_f64(weight), &learnt[source * dim..(source + 1) * dim]);
            out.iter_mut().zip(row).for_each(|(o, &p)| *o = weight.mul_add(p, *o));
        }
    }
    out
}

/// x [tokens, dim] from patches [patches, dim], class [dim] and position [1 + learnt grid, dim].
pub(crate) fn assemble<T: Real>(
    cpu: &Cpu,
    layout: &TokenLayout,
    patches: &[T],
    class: &[T],
    position: &[T],
    x: &mut [T],
) {
    let dim = class.len();
    let grids: Vec<Vec<T>> = layout.groups().iter().map(|(_, grid)| positions(grid, &position[dim..], dim)).collect();
    let images: Vec<usize> = layout.group_of_each();
    let sizes: Vec<usize> = images.iter().map(|&g| layout.groups()[g].1.patches()).collect();
    let starts = starts(&sizes);
    let xs = split_mut(x, sizes.iter().map(|n| (n + 1) * dim));
    cpu.install(|| {
        one_task_each(xs).for_each(|(i, x)| {
            let (first, rest) = x.split_at_mut(dim);
            first.iter_mut().zip(class).zip(position).for_each(|((x, &c), &p)| *x = c + p);
            let patches = &patches[starts[i] * dim..][..rest.len()];
            rest.iter_mut().zip(patches).zip(&grids[images[i]]).for_each(|((x, &e), &p)| *x = e + p);
        });
    });
}

/// Gradients of the patches (all of it written), the class token and the positions (added to what they hold).
pub(crate) fn assemble_backward<T: Real>(
    cpu: &Cpu,
    layout: &TokenLayout,
    dx: &[T],
    d_patches: &mut [T],
    d_class: &mut [T],
    d_position: &mut [T],
) {
    let dim = d_class.len();
    let images: Vec<usize> = layout.group_of_each();
    let sizes: Vec<usize> = images.iter().map(|&g| layout.groups()[g].1.patches()).collect();
    let starts = starts(&sizes);
    // Row s of the packed matrix belongs to image i at starts[i] + i, because each image has one class token more.
    let rows = |i: usize| &dx[(starts[i] + i) * dim..(starts[i] + i + 1 + sizes[i]) * dim];
    let pieces = split_mut(d_patches, sizes.iter().map(|n| n * dim));
    cpu.install(|| one_task_each(pieces).for_each(|(i, piece)| piece.copy_from_slice(&rows(i)[dim..])));

    for i in 0..images.len() {
        d_class.iter_mut().zip(rows(i)).for_each(|(d, &x)| *d += x);
        d_position.iter_mut().zip(&rows(i)[..dim]).for_each(|(d, &x)| *d += x);
    }
    // Patches: sum over the images of a group first, in order, one task a patch; then through the interpolation.
    let mut first = 0;
    for (count, grid) in layout.groups() {
        let mut sums = vec![T::ZERO; grid.patches() * dim];
        cpu.install(|| {
            sums.par_chunks_mut(dim).enumerate().for_each(|(patch, sum)| {
                for i in first..first + count {
                    let row = &rows(i)[(patch + 1) * dim..(patch + 2) * dim];
                    sum.iter_mut().zip(row).for_each(|(s, &x)| *s += x);
                }
            });
        });
        for (patch, sum) in sums.chunks_exact(dim).enumerate() {
            for (source, weight) in grid.taps(patch) {
                let weight = T::from_f64(weight);
                let target = &mut d_position[(1 + source) * dim..(2 + source) * dim];
                target.iter_mut().zip(sum).for_each(|(d, &s)| *d = weight.mul_add(s, *d));
            }
        }
        first += count;
    }
}

/// A position embedding of a grid by the definition of bicubic interpolation over the whole plane, with a = -0.75 and
/// edges repeated: the oracle.
#[cfg(test)]
fn position_plain(grid: (usize, usize), learnt: (usize, usize), patch: usize, value: impl Fn(usize) -> f64) -> f64 {
    let (row, column) = (patch / grid.1, patch % grid.1);
    if grid == learnt {
        return value(patch);
    }
    let kernel = |t: f64| match t.abs() {
        t if t <= 1.0 => 1.25 * t.powi(3) - 2.25 * t.powi(2) + 1.0,
        t if t < 2.0 => -0.75 * (t.powi(3) - 5.0 * t.powi(2) + 8.0 * t - 4.0),
        _ => 0.0,
    };
    let source = |i: usize, n: usize, learnt: usize| (i as f64 + 0.5) * learnt as f64 / (n as f64 + 0.1) - 0.5;
    let (y, x) = (source(row, grid.0, learnt.0), source(column, grid.1, learnt.1));
    let edge = |i: i32, n: usize| i.clamp(0, n as i32 - 1) as usize;
    let mut sum = 0.0;
    for i in -4..learnt.0 as i32 + 4 {
        for j in -4..learnt.1 as i32 + 4 {
            let weight = kernel(f64::from(i) - y) * kernel(f64::from(j) - x);
            sum += weight * value(edge(i, learnt.0) * learnt.1 + edge(j, learnt.1));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    const LEARNT: (usize, usize) = (4, 5);
    const GROUPS: [(usize, (usize, usize)); 4] = [(2, (4, 5)), (3, (2, 2)), (1, (5, 4)), (2, (7, 3))];

    fn layout() -> TokenLayout {
        TokenLayout::new(GROUPS.iter().map(|&(count, grid)| (count, Grid::new(grid, LEARNT))).collect())
    }

    fn matches_the_plain_form<T: Real>(dim: usize, tolerance: f64) {
        let count = GROUPS.iter().map(|(n, (h, w))| n * h * w).sum::<usize>();
        let tokens = count + GROUPS.iter().map(|(n, _)| n).sum::<usize>();
        let (patches, class, position) = (noise::<T>(1, count * dim), noise::<T>(2, dim), noise::<T>(3, 21 * dim));
        let mut x = unwritten(tokens * dim);
        assemble(&cpu(), &layout(), &patches, &class, &position, &mut x);
        let (e, class, position) = (wide(&patches), wide(&class), wide(&position));
        let mut want = Vec::new();
        let mut patch_row = 0;
        for (n, grid) in GROUPS {
            for _ in 0..n {
                want.extend((0..dim).map(|c| class[c] + position[c]));
                for patch in 0..grid.0 * grid.1 {
                    for c in 0..dim {
                        let p = position_plain(grid, LEARNT, patch, |i| position[(1 + i) * dim + c]);
                        want.push(e[patch_row * dim + c] + p);
                    }
                    patch_row += 1;
                }
            }
        }
        assert_follows(&x, &want, tolerance);
    }

    #[test]
    fn tokens_are_class_and_patches_each_with_its_position() {
        matches_the_plain_form::<f64>(3, 1e-13);
        matches_the_plain_form::<f32>(3, 1e-6);
    }

    fn is_the_adjoint<T: Real>(tolerance: f64) {
        let dim = 3;
        let rows = layout().rows();
        let count = rows.count() - rows.segments();
        let (patches, class, position) = (noise::<T>(1, count * dim), noise::<T>(2, dim), noise::<T>(3, 21 * dim));
        let dx = noise::<T>(4, rows.count() * dim);
        let mut x = unwritten(dx.len());
        assemble(&cpu(), &layout(), &patches, &class, &position, &mut x);
        let (mut d_patches, mut d_class, mut d_position) =
            (unwritten(count * dim), vec![T::ZERO; dim], vec![T::ZERO; 21 * dim]);
        assemble_backward(&cpu(), &layout(), &dx, &mut d_patches, &mut d_class, &mut d_position);
        let dot = |a: &[T], b: &[T]| a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>();
        let back = dot(&patches, &d_patches) + dot(&class, &d_class) + dot(&position, &d_position);
        assert!((dot(&x, &dx) - back).abs() < tolerance, "{} {back}", dot(&x, &dx));
    }

    #[test]
    fn the_derivative_is_the_adjoint_of_the_linear_map() {
        is_the_adjoint::<f64>(1e-11);
        is_the_adjoint::<f32>(1e-3);
    }
}
