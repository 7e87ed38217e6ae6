//! Tokens of a packed batch: the class token, then the patch embeddings, each with its position embedding.

use std::ops::Range;

use rayon::prelude::*;

use super::{Cpu, Real, one_task_each, split_mut, starts};
use crate::ops::{Embeddings, Grid, TokenLayout};

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

/// Where each image's patches begin, how many it has, and its group.
struct Images {
    group: Vec<usize>,
    patches: Vec<usize>,
    starts: Vec<usize>,
    /// Tokens of an image that are no patches.
    others: usize,
}

impl Images {
    fn of(layout: &TokenLayout) -> Self {
        let group = layout.group_of_each();
        let patches: Vec<usize> = group.iter().map(|&g| layout.groups()[g].1.patches()).collect();
        let starts = starts(&patches);
        Self { group, patches, starts, others: 1 + layout.registers() }
    }

    /// Rows of an image in the packed matrix.
    fn tokens(&self, image: usize) -> Range<usize> {
        let first = self.starts[image] + image * self.others;
        first..first + self.others + self.patches[image]
    }
}

/// x [tokens, dim] from patches [patches, dim], and the learnt values.
pub(crate) fn assemble<T: Real>(
    cpu: &Cpu,
    layout: &TokenLayout,
    patches: &[T],
    learnt: &Embeddings<&[T]>,
    x: &mut [T],
) {
    let Embeddings { class, registers, position } = learnt;
    let dim = class.len();
    let grids: Vec<Vec<T>> = layout.groups().iter().map(|(_, grid)| positions(grid, &position[dim..], dim)).collect();
    let images = Images::of(layout);
    let xs = split_mut(x, images.patches.iter().map(|n| (n + images.others) * dim));
    cpu.install(|| {
        one_task_each(xs).for_each(|(i, x)| {
            let (first, rest) = x.split_at_mut(dim);
            first.iter_mut().zip(*class).zip(*position).for_each(|((x, &c), &p)| *x = c + p);
            let (between, rest) = rest.split_at_mut((images.others - 1) * dim);
            between.copy_from_slice(registers.unwrap_or(&[]));
            let patches = &patches[images.starts[i] * dim..][..rest.len()];
            rest.iter_mut().zip(patches).zip(&grids[images.group[i]]).for_each(|((x, &e), &p)| *x = e + p);
        });
    });
}

/// Gradients of the patches (all of it written) and of the learnt values (added to what they hold).
pub(crate) fn assemble_backward<T: Real>(
    cpu: &Cpu,
    layout: &TokenLayout,
    dx: &[T],
    d_patches: &mut [T],
    learnt: &mut Embeddings<&mut [T]>,
) {
    let dim = learnt.class.len();
    let images = Images::of(layout);
    let others = images.others;
    let rows = |i: usize| &dx[images.tokens(i).start * dim..images.tokens(i).end * dim];
    let pieces = split_mut(d_patches, images.patches.iter().map(|n| n * dim));
    cpu.install(|| one_task_each(pieces).for_each(|(i, piece)| piece.copy_from_slice(&rows(i)[others * dim..])));

    let add = |to: &mut [T], from: &[T]| to.iter_mut().zip(from).for_each(|(d, &x)| *d += x);
    for i in 0..images.group.len() {
        add(learnt.class, &rows(i)[..dim]);
        add(&mut learnt.position[..dim], &rows(i)[..dim]);
        if let Some(registers) = &mut learnt.registers {
            add(registers, &rows(i)[dim..others * dim]);
        }
    }
    // Patches: sum over the images of a group first, in order, one task a patch; then through the interpolation.
    let mut first = 0;
    for (count, grid) in layout.groups() {
        let mut sums = vec![T::ZERO; grid.patches() * dim];
        cpu.install(|| {
            sums.par_chunks_mut(dim).enumerate().for_each(|(patch, sum)| {
                for i in first..first + count {
                    let row = &rows(i)[(patch + others) * dim..(patch + others + 1) * dim];
                    sum.iter_mut().zip(row).for_each(|(s, &x)| *s += x);
                }
            });
        });
        for (patch, sum) in sums.chunks_exact(dim).enumerate() {
            for (source, weight) in grid.taps(patch) {
                let weight = T::from_f64(weight);
                let target = &mut learnt.position[(1 + source) * dim..(2 + source) * dim];
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
    use crate::ops::Interpolation;

    const LEARNT: (usize, usize) = (4, 5);
    const GROUPS: [(usize, (usize, usize)); 4] = [(2, (4, 5)), (3, (2, 2)), (1, (5, 4)), (2, (7, 3))];

    /// With and without register tokens.
    const REGISTERS: [usize; 2] = [0, 2];

    fn layout(registers: usize) -> TokenLayout {
        let grid = |size| Grid::new(size, LEARNT, Interpolation::Dino);
        let groups = GROUPS.iter().map(|&(count, size)| (count, grid(size))).collect();
        TokenLayout::new(groups).with_registers(registers)
    }

    /// Class token, registers and positions.
    fn learnt<T: Real>(dim: usize, registers: usize) -> [Vec<T>; 3] {
        [noise::<T>(2, dim), noise::<T>(5, registers * dim), noise::<T>(3, 21 * dim)]
    }

    fn borrowed<T>([class, registers, position]: &[Vec<T>; 3]) -> Embeddings<&[T]> {
        let registers = (!registers.is_empty()).then_some(&registers[..]);
        Embeddings { class, registers, position }
    }

    fn matches_the_plain_form<T: Real>(dim: usize, registers: usize, tolerance: f64) {
        let count = GROUPS.iter().map(|(n, (h, w))| n * h * w).sum::<usize>();
        let (patches, learnt) = (noise::<T>(1, count * dim), learnt::<T>(dim, registers));
        let mut x = unwritten(layout(registers).rows().count() * dim);
        assemble(&cpu(), &layout(registers), &patches, &borrowed(&learnt), &mut x);
        let (e, [class, register, position]) = (wide(&patches), learnt.each_ref().map(|values| wide(values)));
        let mut want = Vec::new();
        let mut patch_row = 0;
        for (n, grid) in GROUPS {
            for _ in 0..n {
                want.extend((0..dim).map(|c| class[c] + position[c]));
                want.extend(&register);
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
    fn tokens_are_class_registers_and_patches_and_all_but_registers_have_a_position() {
        for registers in REGISTERS {
            matches_the_plain_form::<f64>(3, registers, 1e-13);
            matches_the_plain_form::<f32>(3, registers, 1e-6);
        }
    }

    fn is_the_adjoint<T: Real>(registers: usize, tolerance: f64) {
        let dim = 3;
        let layout = layout(registers);
        let rows = layout.rows();
        let count = rows.count() - rows.segments() * (1 + registers);
        let (patches, learnt) = (noise::<T>(1, count * dim), learnt::<T>(dim, registers));
        let dx = noise::<T>(4, rows.count() * dim);
        let mut x = unwritten(dx.len());
        assemble(&cpu(), &layout, &patches, &borrowed(&learnt), &mut x);
        let mut d_patches = unwritten(count * dim);
        let mut d_learnt = learnt.each_ref().map(|values| vec![T::ZERO; values.len()]);
        let [class, register, position] = d_learnt.each_mut();
        let register = (registers > 0).then_some(&mut register[..]);
        let mut d = Embeddings { class: &mut class[..], registers: register, position: &mut position[..] };
        assemble_backward(&cpu(), &layout, &dx, &mut d_patches, &mut d);
        let dot = |a: &[T], b: &[T]| a.iter().zip(b).map(|(a, b)| a.to_f64() * b.to_f64()).sum::<f64>();
        let back = dot(&patches, &d_patches) + learnt.iter().zip(&d_learnt).map(|(a, d)| dot(a, d)).sum::<f64>();
        assert!((dot(&x, &dx) - back).abs() < tolerance, "{} {back}", dot(&x, &dx));
    }

    #[test]
    fn the_derivative_is_the_adjoint_of_the_linear_map() {
        for registers in REGISTERS {
            is_the_adjoint::<f64>(registers, 1e-11);
            is_the_adjoint::<f32>(registers, 1e-3);
        }
    }
}
