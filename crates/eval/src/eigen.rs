//! Eigenvalues and eigenvectors of a symmetric matrix, in double precision: Householder's reduction to a tridiagonal matrix,
//! then implicit QL steps. Multi-threaded where it is cubic, and the same bits on any number of threads.

use rayon::prelude::*;

/// QL steps for one eigenvalue; two are usual.
const MAX_STEPS: usize = 60;
/// Columns of the vectors that a task rotates: a block of a thousand rows stays in the cache.
const COLUMNS: usize = 16;
/// Rotations that are collected before they are applied.
const COLLECTED: usize = 1 << 16;

/// Eigenvalues in no order, and for each a unit vector.
#[derive(Debug)]
pub(crate) struct Eigen {
    /// The values.
    pub values: Vec<f64>,
    /// The vectors: row i belongs to value i.
    pub vectors: Vec<f64>,
}

/// A rotation of two neighbouring rows, the lower number `row`.
#[derive(Clone, Copy)]
struct Rotation {
    row: usize,
    cos: f64,
    sin: f64,
}

/// Decomposes a symmetric matrix, given row by row; none where the steps do not converge, which no finite matrix has shown.
/// Runs on the threads of the pool that it is called in.
///
/// # Panics
/// When the matrix is not square.
pub(crate) fn symmetric(mut matrix: Vec<f64>, n: usize) -> Option<Eigen> {
    assert_eq!(matrix.len(), n * n, "a square matrix");
    let (mut diagonal, mut beside, vectors) = tridiagonal(&mut matrix, n);
    let mut blocks = Columns::new(&vectors, n);
    drop(vectors);
    // Right to a rounding error of the largest element: the many values of nothing that few samples have are never told apart.
    let largest = diagonal.iter().chain(&beside).fold(0.0, |most: f64, x| most.max(x.abs()));
    let mut rotations = Vec::new();
    for first in 0..n {
        for step in 0.. {
            // The block of the matrix from `first` on ends where an element beside the diagonal is nothing.
            let is_small = |i: usize| {
                let scale = diagonal[i].abs() + diagonal[i + 1].abs();
                beside[i].abs() <= f64::EPSILON * scale.max(largest)
            };
            let last = (first..n - 1).find(|&i| is_small(i)).unwrap_or(n - 1);
            if last == first {
                break;
            }
            if step == MAX_STEPS {
                return None;
            }
            ql_step(&mut diagonal, &mut beside, first, last, &mut rotations);
            if rotations.len() >= COLLECTED {
                blocks.rotate(&rotations);
                rotations.clear();
            }
        }
    }
    blocks.rotate(&rotations);
    Some(Eigen { values: diagonal, vectors: blocks.into_rows() })
}

/// One implicit QL step with Wilkinson's shift on rows `first..=last` of a tridiagonal matrix.
fn ql_step(diagonal: &mut [f64], beside: &mut [f64], first: usize, last: usize, rotations: &mut Vec<Rotation>) {
    let half = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first]);
    let root = half.hypot(1.0);
    let mut g = diagonal[last] - diagonal[first] + beside[first] / (half + root.copysign(half));
    let (mut sin, mut cos, mut moved) = (1.0, 1.0, 0.0);
    for i in (first..last).rev() {
        let (f, b) = (sin * beside[i], cos * beside[i]);
        let length = f.hypot(g);
        // The element behind `last` belongs to another block and stays.
        if i + 1 < last {
            beside[i + 1] = length;
        }
        if length == 0.0 {
            diagonal[i + 1] -= moved;
            return;
        }
        (sin, cos) = (f / length, g / length);
        g = diagonal[i + 1] - moved;
        let r = (diagonal[i] - g) * sin + 2.0 * cos * b;
        moved = sin * r;
        diagonal[i + 1] = g + moved;
        g = cos * r - b;
        rotations.push(Rotation { row: i, cos, sin });
    }
    diagonal[first] -= moved;
    beside[first] = g;
}

/// The rows of vectors in blocks of columns, each of which one task rotates.
struct Columns {
    n: usize,
    /// Blocks of n x COLUMNS, the last one narrower.
    blocks: Vec<Vec<f64>>,
}

impl Columns {
    fn new(rows: &[f64], n: usize) -> Self {
        let block = |first: usize| {
            let columns = first..n.min(first + COLUMNS);
            (0..n).flat_map(|row| rows[row * n..][columns.clone()].iter().copied()).collect()
        };
        Self { n, blocks: (0..n).step_by(COLUMNS).map(block).collect() }
    }

    fn rotate(&mut self, rotations: &[Rotation]) {
        let n = self.n;
        self.blocks.par_iter_mut().for_each(|block| {
            let width = block.len() / n;
            for &Rotation { row, cos, sin } in rotations {
                let (low, high) = block[row * width..(row + 2) * width].split_at_mut(width);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (cos * *a - sin * *b, sin * *a + cos * *b);
                }
            }
        });
    }

    fn into_rows(self) -> Vec<f64> {
        let mut rows = vec![0.0; self.n * self.n];
        for (i, block) in self.blocks.iter().enumerate() {
            let width = block.len() / self.n;
            for (row, values) in block.chunks_exact(width).enumerate() {
                rows[row * self.n + i * COLUMNS..][..width].copy_from_slice(values);
            }
        }
        rows
    }
}

/// Reduces a symmetric matrix A to T = Q A Q': the diagonal of T, what is beside it, and Q.
fn tridiagonal(matrix: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    // Reflections I - u u' / h, each of which clears a column below the element beside the diagonal.
    let mut reflections: Vec<(Vec<f64>, f64)> = Vec::with_capacity(n.saturating_sub(2));
    let mut beside = vec![0.0; n];
    for k in 0..n.saturating_sub(2) {
        let mut u: Vec<f64> = (k + 1..n).map(|row| matrix[row * n + k]).collect();
        let norm = u.iter().map(|x| x * x).sum::<f64>().sqrt();
        if norm == 0.0 {
            reflections.push((u, 0.0));
            continue;
        }
        let shifted = norm.copysign(u[0]);
        beside[k] = -shifted;
        u[0] += shifted;
        let h = u.iter().map(|x| x * x).sum::<f64>() / 2.0;
        let rest = &matrix[(k + 1) * n..];
        let p: Vec<f64> = rest.par_chunks_exact(n).map(|row| dot(&row[k + 1..], &u) / h).collect();
        let half = dot(&u, &p) / (2.0 * h);
        let q: Vec<f64> = p.iter().zip(&u).map(|(p, u)| p - half * u).collect();
        let rest = &mut matrix[(k + 1) * n..];
        rest.par_chunks_exact_mut(n).zip(u.par_iter().zip(&q)).for_each(|(row, (&ui, &qi))| {
            for (x, (u, q)) in row[k + 1..].iter_mut().zip(u.iter().zip(&q)) {
                *x -= ui * q + qi * u;
            }
        });
        reflections.push((u, h));
    }
    if n >= 2 {
        beside[n - 2] = matrix[(n - 1) * n + n - 2];
    }
    let diagonal = (0..n).map(|i| matrix[i * n + i]).collect();
    let mut vectors = vec![0.0; n * n];
    // Q is the product of the reflections, the last one leftmost. Each of its columns on its own, and stored as such: Q'.
    vectors.par_chunks_exact_mut(n.max(1)).enumerate().for_each(|(column, x)| {
        x[column] = 1.0;
        for (k, (u, h)) in reflections.iter().enumerate() {
            if *h > 0.0 {
                let along = dot(u, &x[k + 1..]) / h;
                for (x, u) in x[k + 1..].iter_mut().zip(u) {
                    *x -= along * u;
                }
            }
        }
    });
    (diagonal, beside, transposed(&vectors, n))
}

/// <a, b>, added up in a fixed number of lanes, so that it runs in vectors.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    const LANES: usize = 8;
    let (mut lanes, whole) = ([0.0; LANES], a.len().min(b.len()) / LANES * LANES);
    for (a, b) in a[..whole].chunks_exact(LANES).zip(b[..whole].chunks_exact(LANES)) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f64>() + a[whole..].iter().zip(&b[whole..]).map(|(a, b)| a * b).sum::<f64>()
}

fn transposed(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut out = vec![0.0; n * n];
    out.par_chunks_exact_mut(n.max(1)).enumerate().for_each(|(row, out)| {
        out.iter_mut().enumerate().for_each(|(column, x)| *x = matrix[column * n + row]);
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    /// A symmetric matrix, and how far its decomposition is from it: |A v - l v| and |v v' - 1|, relative to the largest value.
    fn errors(matrix: &[f64], n: usize) -> (Eigen, f64, f64) {
        let eigen = symmetric(matrix.to_vec(), n).unwrap();
        let scale = eigen.values.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(value.abs()));
        let vector = |i: usize| &eigen.vectors[i * n..(i + 1) * n];
        let (mut residual, mut skew): (f64, f64) = (0.0, 0.0);
        for i in 0..n {
            for row in 0..n {
                let image = dot(&matrix[row * n..(row + 1) * n], vector(i));
                residual = residual.max((image - eigen.values[i] * vector(i)[row]).abs() / scale);
                let one = if i == row { 1.0 } else { 0.0 };
                skew = skew.max((dot(vector(i), vector(row)) - one).abs());
            }
        }
        (eigen, residual, skew)
    }

    fn covariance(n: usize, samples: usize) -> Vec<f64> {
        let mut stream = Key::new(3, Purpose::Bench).stream();
        let x: Vec<f64> = (0..samples * n).map(|_| stream.normal() + 0.5).collect();
        let entry = |i: usize| x.chunks(n).map(|x| x[i / n] * x[i % n]).sum::<f64>() / samples as f64;
        (0..n * n).map(entry).collect()
    }

    #[test]
    fn vectors_are_what_they_should_be() {
        // Full rank; far from it, so that most values are nothing; and the sizes where loops are empty.
        for (n, samples) in [(150, 400), (700, 20), (90, 7), (17, 17), (3, 9), (2, 5), (1, 2), (0, 1)] {
            let (_, residual, skew) = errors(&covariance(n, samples), n);
            assert!(residual < 1e-13 && skew < 1e-13, "{n}: {residual:e} {skew:e}");
        }
    }

    #[test]
    fn values_of_matrices_that_are_known() {
        let n = 40;
        // 2 on the diagonal, -1 beside it: 2 - 2 cos(pi k / (n + 1)).
        let near = |i: usize, j: usize| {
            if i == j {
                2.0
            } else if i.abs_diff(j) == 1 {
                -1.0
            } else {
                0.0
            }
        };
        let matrix: Vec<f64> = (0..n * n).map(|at| near(at / n, at % n)).collect();
        let (eigen, residual, skew) = errors(&matrix, n);
        assert!(residual < 1e-14 && skew < 1e-13, "{residual:e} {skew:e}");
        let mut values = eigen.values;
        values.sort_by(f64::total_cmp);
        for (k, value) in values.iter().enumerate() {
            let want = 2.0 - 2.0 * (std::f64::consts::PI * (k + 1) as f64 / (n + 1) as f64).cos();
            assert!((value - want).abs() < 1e-13, "{value} {want}");
        }
        // Equal values, zeros, and numbers of very different sizes.
        for diagonal in [[1.0; 5], [0.0; 5], [1e-12, 1e12, 3.0, 3.0, -7.0]] {
            let matrix: Vec<f64> = (0..25).map(|at| if at / 5 == at % 5 { diagonal[at / 5] } else { 0.0 }).collect();
            assert_eq!(symmetric(matrix, 5).unwrap().values, diagonal);
        }
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let matrix = covariance(70, 90);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| symmetric(matrix.clone(), 70).unwrap().vectors)
        };
        assert_eq!(run(1), run(3));
    }
}
