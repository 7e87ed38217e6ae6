//! Eigenvalues and eigenvectors of a symmetric matrix: Householder's reduction to a tridiagonal matrix, then QL steps with
//! Wilkinson's shift (Golub and Van Loan, *Matrix Computations*, 8.3).
//!
//! Rotations are gathered over a sweep and applied to strips of columns side by side. Every element is computed from the
//! same numbers in the same order on any number of threads.

use rayon::prelude::*;

/// Columns of one strip.
const STRIP: usize = 64;
/// Sweeps for one eigenvalue. Two or three are the rule.
const MOST_SWEEPS: usize = 60;

/// A = sum_j values[j] v_j v_j^T.
#[derive(Clone, Debug)]
pub(super) struct Eigen {
    /// Eigenvalues, in no order.
    pub(super) values: Vec<f64>,
    /// The orthonormal eigenvectors, one a row.
    pub(super) vectors: Vec<f64>,
}

/// The decomposition of a symmetric `n` x `n` matrix, on the threads of the current pool.
pub(super) fn symmetric(mut a: Vec<f64>, n: usize) -> Eigen {
    assert_eq!(a.len(), n * n, "a square matrix");
    if n == 0 {
        return Eigen { values: a, vectors: Vec::new() };
    }
    let (mut diagonal, mut off, reflections) = tridiagonal(&mut a, n);
    let mut vectors = accumulated(&reflections, n);
    diagonalize(&mut diagonal, &mut off, &mut vectors);
    Eigen { values: diagonal, vectors }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight lanes, so that the sum becomes vector code; always the same ones.
    let mut lanes = [0.0; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for l in 0..8 {
            lanes[l] += x[l] * y[l];
        }
    }
    lanes.iter().sum::<f64>() + rest
}

/// I - factor v v^T, where v starts at element `first`.
struct Reflection {
    first: usize,
    factor: f64,
    v: Vec<f64>,
}

/// Diagonal and lower diagonal of T = Q^T A Q, and the reflections whose product Q is.
fn tridiagonal(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<Reflection>) {
    let (mut off, mut reflections) = (vec![0.0; n], Vec::new());
    for k in 0..n.saturating_sub(2) {
        let first = k + 1;
        let mut v: Vec<f64> = (first..n).map(|i| a[i * n + k]).collect();
        let norm = dot(&v, &v).sqrt();
        if norm == 0.0 {
            continue;
        }
        // Away from zero, so that nothing cancels.
        let alpha = if v[0] > 0.0 { -norm } else { norm };
        v[0] -= alpha;
        let factor = 2.0 / dot(&v, &v);
        off[k] = alpha;
        let rows = &a[first * n..];
        let mut w: Vec<f64> = rows.par_chunks(n).with_min_len(16).map(|row| factor * dot(&row[first..], &v)).collect();
        let half = 0.5 * factor * dot(&w, &v);
        w.iter_mut().zip(&v).for_each(|(w, v)| *w -= half * v);
        a[first * n..].par_chunks_mut(n).with_min_len(16).enumerate().for_each(|(i, row)| {
            let (vi, wi) = (v[i], w[i]);
            for ((a, v), w) in row[first..].iter_mut().zip(&v).zip(&w) {
                *a -= vi * w + wi * v;
            }
        });
        reflections.push(Reflection { first, factor, v });
    }
    if n > 1 {
        off[n - 2] = a[(n - 1) * n + n - 2];
    }
    ((0..n).map(|i| a[i * n + i]).collect(), off, reflections)
}

/// Q^T, the columns of Q as rows.
fn accumulated(reflections: &[Reflection], n: usize) -> Vec<f64> {
    let mut qt = vec![0.0; n * n];
    (0..n).for_each(|i| qt[i * n + i] = 1.0);
    // Row j of Q^T is Q e_j = H_1 H_2 .. e_j: every row on its own, the last reflection first.
    qt.par_chunks_mut(n).for_each(|row| {
        for Reflection { first, factor, v } in reflections.iter().rev() {
            let tail = &mut row[*first..];
            let scale = factor * dot(tail, v);
            tail.iter_mut().zip(v).for_each(|(x, v)| *x -= scale * v);
        }
    });
    qt
}

/// A rotation of rows i and i + 1.
struct Rotation {
    row: usize,
    cos: f64,
    sin: f64,
}

/// QL steps on the tridiagonal matrix until it is diagonal; `vectors` follows.
fn diagonalize(d: &mut [f64], e: &mut [f64], vectors: &mut [f64]) {
    let n = d.len();
    for l in 0..n {
        for _sweep in 0..MOST_SWEEPS {
            // The block that ends where an element beside the diagonal is nothing against its neighbours.
            let negligible = |i: &usize| e[*i].abs() <= f64::EPSILON * (d[*i].abs() + d[*i + 1].abs());
            let end = (l..n - 1).find(negligible).unwrap_or(n - 1);
            if end == l {
                break;
            }
            let shift = wilkinson(d[l], d[l + 1], e[l]);
            let mut rotations = Vec::with_capacity(end - l);
            // The bulge starts at the far end and is chased up to l.
            let (mut x, mut z) = (d[end] - shift, e[end - 1]);
            for i in (l..end).rev() {
                let r = x.hypot(z);
                let (cos, sin) = if r == 0.0 { (1.0, 0.0) } else { (x / r, z / r) };
                if i + 1 < end {
                    e[i + 1] = r;
                }
                // [d_i e_i; e_i d_i+1] becomes G^T [..] G.
                let (low, high, beside) = (d[i], d[i + 1], e[i]);
                let cross = 2.0 * cos * sin * beside;
                d[i + 1] = cos * cos * high + cross + sin * sin * low;
                d[i] = sin * sin * high - cross + cos * cos * low;
                e[i] = cos * sin * (low - high) + (cos * cos - sin * sin) * beside;
                rotations.push(Rotation { row: i, cos, sin });
                if i > l {
                    (x, z) = (e[i], sin * e[i - 1]);
                    e[i - 1] *= cos;
                }
            }
            apply(&rotations, vectors, n);
        }
    }
}

/// The eigenvalue of [a b; b c] nearest to a.
fn wilkinson(a: f64, c: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a;
    }
    let half = 0.5 * (c - a);
    let root = half.hypot(b);
    a - b * b / if half >= 0.0 { half + root } else { half - root }
}

fn apply(rotations: &[Rotation], vectors: &mut [f64], n: usize) {
    // A strip of every row, so that strips can be handed to threads.
    let mut strips: Vec<Vec<&mut [f64]>> = (0..n.div_ceil(STRIP)).map(|_| Vec::with_capacity(n)).collect();
    for row in vectors.chunks_mut(n) {
        row.chunks_mut(STRIP).zip(&mut strips).for_each(|(part, strip)| strip.push(part));
    }
    strips.par_iter_mut().for_each(|strip| {
        for &Rotation { row, cos, sin } in rotations {
            let (upper, lower) = strip.split_at_mut(row + 1);
            for (low, high) in upper[row].iter_mut().zip(lower[0].iter_mut()) {
                (*high, *low) = (cos * *high + sin * *low, cos * *low - sin * *high);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    /// |A - sum values v v^T| and |V V^T - I|, largest element.
    fn errors(a: &[f64], eigen: &Eigen, n: usize) -> (f64, f64) {
        let v = |j: usize| &eigen.vectors[j * n..(j + 1) * n];
        let (mut of_a, mut of_v) = (0f64, 0f64);
        for i in 0..n {
            for k in 0..n {
                let rebuilt: f64 = (0..n).map(|j| eigen.values[j] * v(j)[i] * v(j)[k]).sum();
                of_a = of_a.max((a[i * n + k] - rebuilt).abs());
                of_v = of_v.max((dot(v(i), v(k)) - f64::from(i == k)).abs());
            }
        }
        (of_a, of_v)
    }

    fn gram(n: usize, rank: usize, seed: u64) -> Vec<f64> {
        let mut stream = Key::new(seed, Purpose::Bench).stream();
        let x: Vec<f64> = (0..rank * n).map(|_| stream.normal()).collect();
        let entry = |i: usize, j: usize| (0..rank).map(|r| x[r * n + i] * x[r * n + j]).sum();
        (0..n * n).map(|at| entry(at / n, at % n)).collect()
    }

    #[test]
    fn the_parts_make_the_matrix_again_also_where_its_rank_is_low() {
        for (n, rank) in [(1, 1), (2, 2), (3, 1), (17, 40), (130, 200), (150, 20)] {
            let a = gram(n, rank, n as u64);
            let eigen = symmetric(a.clone(), n);
            let scale = eigen.values.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
            let (of_a, of_v) = errors(&a, &eigen, n);
            assert!(of_a < 1e-13 * scale * n as f64 && of_v < 1e-13 * n as f64, "{n}, {rank}: {of_a:e} {of_v:e}");
        }
    }

    #[test]
    fn special_matrices_have_the_eigenvalues_they_should() {
        let sorted = |a: Vec<f64>, n: usize| {
            let mut values = symmetric(a, n).values;
            values.sort_by(f64::total_cmp);
            values
        };
        assert_eq!(sorted(vec![0.0; 9], 3), [0.0; 3]);
        assert_eq!(sorted(vec![3.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 2.0], 3), [-1.0, 2.0, 3.0]);
        // The second difference: 2 - 2 cos(pi j / (n + 1)).
        let n = 12;
        let entry = |i: usize, j: usize| if i == j { 2.0 } else { -f64::from(i.abs_diff(j) == 1) };
        let values = sorted((0..n * n).map(|at| entry(at / n, at % n)).collect(), n);
        for (j, value) in values.iter().enumerate() {
            let want = 2.0 - 2.0 * (std::f64::consts::PI * (j + 1) as f64 / (n + 1) as f64).cos();
            assert!((value - want).abs() < 1e-13, "{value} {want}");
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let Eigen { values, vectors } = pool.install(|| symmetric(gram(90, 120, 5), 90));
            (values, vectors)
        };
        assert_eq!(run(1), run(3));
    }
}
