//! Softmax attention inside each segment: softmax(q k^T / sqrt(d)) v, head by head.
//!
//! A task takes one segment; the weights of one head (at most a few hundred squared) live in its scratch space and
//! never in the memory of the batch. The forward pass keeps the logarithm of each row's sum, from which the
//! backward pass recomputes the weights: cheaper than storing them, and the memory of a step does not grow with the
//! square of the image.

use rayon::prelude::*;

use super::gemm::{Matrix, MatrixMut, Threads, gemm};
use super::{Cpu, Real, split_mut, taken_in_order, vector};
use crate::rows::Rows;
use simd::simd;

/// Queries, keys and values: columns of matrices with one row a token.
#[derive(Clone, Copy)]
pub(crate) struct Qkv<'a, T> {
    /// The matrix that holds the queries from column 0 on, and its columns.
    pub q: &'a [T],
    pub q_stride: usize,
    /// The matrix that holds the keys from column `k_column` on and the values from `v_column` on.
    pub kv: &'a [T],
    pub kv_stride: usize,
    pub k_column: usize,
    pub v_column: usize,
}

/// How the tokens are cut: the queries of a segment see the keys of the same segment.
#[derive(Clone, Copy)]
pub(crate) struct Shape<'a> {
    pub query_rows: &'a Rows,
    pub key_rows: &'a Rows,
    pub heads: usize,
    pub head_dim: usize,
}

impl Shape<'_> {
    fn dim(&self) -> usize {
        self.heads * self.head_dim
    }
    fn scale<T: Real>(&self) -> T {
        T::from_f64(1.0 / (self.head_dim as f64).sqrt())
    }
    /// The most queries of a segment, and the most pairs of a query and a key.
    fn largest(&self) -> (usize, usize) {
        let segments = 0..self.query_rows.segments();
        let longest = segments.clone().map(|s| self.queries(s).len()).max().unwrap_or(0);
        (longest, segments.map(|s| self.queries(s).len() * self.keys(s).len()).max().unwrap_or(0))
    }
    fn queries(&self, s: usize) -> std::ops::Range<usize> {
        self.query_rows.offsets()[s]..self.query_rows.offsets()[s + 1]
    }
    fn keys(&self, s: usize) -> std::ops::Range<usize> {
        self.key_rows.offsets()[s]..self.key_rows.offsets()[s + 1]
    }
}

simd! {
    /// Turns rows of scores into exp(score - max); returns 1 / sum and writes max + ln sum for each row.
    fn softmax_unnormalised<T: Real>(scores: &mut [T], keys: usize, lse: &mut [T], inverse_sum: &mut [T], head: usize, heads: usize) {
        for (r, row) in scores.chunks_exact_mut(keys).enumerate() {
            let max = vector::max_of_pairs(row, row, |x, _| x);
            for x in row.iter_mut() {
                *x = (*x - max).exp();
            }
            let sum = vector::sum_of(row, |x| x);
            inverse_sum[r] = T::ONE / sum;
            lse[r * heads + head] = max + T::from_f64(sum.to_f64().ln());
        }
    }
}

simd! {
    /// Recomputes the weights: exp(score - lse).
    fn softmax_from_lse<T: Real>(scores: &mut [T], keys: usize, lse: &[T], head: usize, heads: usize) {
        for (r, row) in scores.chunks_exact_mut(keys).enumerate() {
            let lse = lse[r * heads + head];
            for x in row.iter_mut() {
                *x = (*x - lse).exp();
            }
        }
    }
}

simd! {
    fn scale_rows<T: Real>(x: &mut [T], stride: usize, column: usize, width: usize, factors: &[T]) {
        for (row, &f) in x.chunks_mut(stride).zip(factors) {
            for x in &mut row[column..column + width] {
                *x *= f;
            }
        }
    }
}

simd! {
    /// Gradient of the scores from that of the weights: ds = p (dp - <do, o>), in place of dp.
    fn score_gradient<T: Real>(dp: &mut [T], p: &[T], keys: usize, d_out: &[T], out: &[T], dim: usize, column: usize, width: usize) {
        for (r, (dp, p)) in dp.chunks_exact_mut(keys).zip(p.chunks_exact(keys)).enumerate() {
            let at = r * dim + column;
            let along = vector::dot(&d_out[at..at + width], &out[at..at + width]);
            for (dp, &p) in dp.iter_mut().zip(p) {
                *dp = p * (*dp - along);
            }
        }
    }
}

/// Writes the attention output [queries, dim] and the log-sum-exp [queries, heads].
pub(crate) fn forward<T: Real>(cpu: &Cpu, x: Qkv<'_, T>, shape: Shape<'_>, out: &mut [T], lse: &mut [T]) {
    let (dim, width, heads) = (shape.dim(), shape.head_dim, shape.heads);
    let segments = shape.query_rows.segments();
    let (longest, room) = shape.largest();
    let out = split_mut(out, (0..segments).map(|s| shape.queries(s).len() * dim));
    let lse = split_mut(lse, (0..segments).map(|s| shape.queries(s).len() * heads));
    cpu.install(|| {
        taken_in_order(out.into_iter().zip(lse)).for_each_init(
            || cpu.allocate(room + longest),
            |scratch, (s, (out, lse))| {
                let (nq, nk) = (shape.queries(s).len(), shape.keys(s).len());
                let (scores, inverse_sum) = scratch.as_mut_slice()[..nq * nk + nq].split_at_mut(nq * nk);
                let (q, k, v) = views(x, shape, s);
                for head in 0..heads {
                    let column = head * width;
                    scores_of(q, k, column, width, shape.scale(), x, nq, nk, scores);
                    softmax_unnormalised(scores, nk, lse, inverse_sum, head, heads);
                    let v = Matrix::new(&v[column..], nk, width, x.kv_stride);
                    let o = MatrixMut::new(&mut out[column..], nq, width, dim);
                    gemm(o, false, T::ONE, Matrix::new(scores, nq, nk, nk), v, Threads::One);
                    scale_rows(out, dim, column, width, inverse_sum);
                }
            },
        );
    });
}

/// Where gradients go: laid out as the inputs are.
pub(crate) struct QkvGrad<'a, T> {
    pub dq: Option<&'a mut [T]>,
    pub dkv: &'a mut [T],
}

/// Gradients of queries, keys and values. Where `dq` is none, queries, keys and values share one matrix, `dkv`.
pub(crate) fn backward<T: Real>(
    cpu: &Cpu,
    x: Qkv<'_, T>,
    shape: Shape<'_>,
    out: &[T],
    lse: &[T],
    d_out: &[T],
    grad: QkvGrad<'_, T>,
) {
    let (dim, width, heads) = (shape.dim(), shape.head_dim, shape.heads);
    let segments = shape.query_rows.segments();
    let (_, room) = shape.largest();
    let dkv = split_mut(grad.dkv, (0..segments).map(|s| shape.keys(s).len() * x.kv_stride));
    let dq: Vec<Option<&mut [T]>> = match grad.dq {
        Some(dq) => {
            split_mut(dq, (0..segments).map(|s| shape.queries(s).len() * x.q_stride)).into_iter().map(Some).collect()
        }
        None => (0..segments).map(|_| None).collect(),
    };
    cpu.install(|| {
        taken_in_order(dkv.into_iter().zip(dq)).for_each_init(
            || cpu.allocate(2 * room),
            |scratch, (s, (dkv, mut dq))| {
                let (queries, nq, nk) = (shape.queries(s), shape.queries(s).len(), shape.keys(s).len());
                let (p, dp) = scratch.as_mut_slice()[..2 * nq * nk].split_at_mut(nq * nk);
                let (q, k, v) = views(x, shape, s);
                let lse = &lse[queries.start * heads..queries.end * heads];
                let rows = queries.start * dim..queries.end * dim;
                let (out, d_out) = (&out[rows.clone()], &d_out[rows]);
                for head in 0..heads {
                    let column = head * width;
                    let scale = shape.scale();
                    scores_of(q, k, column, width, scale, x, nq, nk, p);
                    softmax_from_lse(p, nk, lse, head, heads);
                    let dout_h = Matrix::new(&d_out[column..], nq, width, dim);
                    let v_h = Matrix::new(&v[column..], nk, width, x.kv_stride);
                    // dv = p^T do;  dp = do v^T
                    let dv = MatrixMut::new(&mut dkv[x.v_column + column..], nk, width, x.kv_stride);
                    gemm(dv, false, T::ONE, Matrix::new(p, nq, nk, nk).transposed(), dout_h, Threads::One);
                    gemm(MatrixMut::new(dp, nq, nk, nk), false, T::ONE, dout_h, v_h.transposed(), Threads::One);
                    score_gradient(dp, p, nk, d_out, out, dim, column, width);
                    // dk = ds^T q / sqrt(d);  dq = ds k / sqrt(d)
                    let ds = Matrix::new(dp, nq, nk, nk);
                    let q_h = Matrix::new(&q[column..], nq, width, x.q_stride);
                    let dk = MatrixMut::new(&mut dkv[x.k_column + column..], nk, width, x.kv_stride);
                    gemm(dk, false, scale, ds.transposed(), q_h, Threads::One);
                    let dq = dq.as_deref_mut().unwrap_or(dkv);
                    let dq = MatrixMut::new(&mut dq[column..], nq, width, x.q_stride);
                    gemm(dq, false, scale, ds, Matrix::new(&k[column..], nk, width, x.kv_stride), Threads::One);
                }
            },
        );
    });
}

/// The rows of segment `s`: queries, keys, values, each from its first column on.
fn views<'a, T: Real>(x: Qkv<'a, T>, shape: Shape<'_>, s: usize) -> (&'a [T], &'a [T], &'a [T]) {
    let kv = &x.kv[shape.keys(s).start * x.kv_stride..shape.keys(s).end * x.kv_stride];
    let q = &x.q[shape.queries(s).start * x.q_stride..shape.queries(s).end * x.q_stride];
    (q, &kv[x.k_column..], &kv[x.v_column..])
}

fn scores_of<T: Real>(
    q: &[T],
    k: &[T],
    column: usize,
    width: usize,
    scale: T,
    x: Qkv<'_, T>,
    nq: usize,
    nk: usize,
    scores: &mut [T],
) {
    let q = Matrix::new(&q[column..], nq, width, x.q_stride);
    let k = Matrix::new(&k[column..], nk, width, x.kv_stride);
    gemm(MatrixMut::new(scores, nq, nk, nk), false, scale, q, k.transposed(), Threads::One);
}

/// Weights [heads, nq, nk] of one segment, from rows of queries and keys whose heads lie side by side: the oracle.
#[cfg(test)]
fn weights_plain(q: &[f64], k: &[f64], heads: usize, width: usize) -> Vec<f64> {
    let dim = heads * width;
    let mut weights = Vec::new();
    for h in 0..heads {
        for q in q.chunks(dim) {
            let score = |k: &[f64]| (0..width).map(|c| q[h * width + c] * k[h * width + c]).sum::<f64>();
            let e: Vec<f64> = k.chunks(dim).map(|k| (score(k) / (width as f64).sqrt()).exp()).collect();
            let sum: f64 = e.iter().sum();
            weights.extend(e.iter().map(|e| e / sum));
        }
    }
    weights
}

/// Attention of one segment: the oracle.
#[cfg(test)]
fn attention_plain(q: &[f64], k: &[f64], v: &[f64], heads: usize, width: usize) -> Vec<f64> {
    let dim = heads * width;
    let (nq, nk) = (q.len() / dim, k.len() / dim);
    let weights = weights_plain(q, k, heads, width);
    let mut out = vec![0.0; q.len()];
    for (i, out) in out.iter_mut().enumerate() {
        let (r, column) = (i / dim, i % dim);
        *out = (0..nk).map(|t| weights[(column / width * nq + r) * nk + t] * v[t * dim + column]).sum();
    }
    out
}

/// Gradients of queries, keys and values of one segment, by the chain rule one number at a time: the oracle.
#[cfg(test)]
fn attention_backward_plain(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    heads: usize,
    width: usize,
    d_out: &[f64],
) -> [Vec<f64>; 3] {
    let dim = heads * width;
    let (nq, nk) = (q.len() / dim, k.len() / dim);
    let weights = weights_plain(q, k, heads, width);
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for (h, r) in (0..heads).flat_map(|h| (0..nq).map(move |r| (h, r))) {
        let p = &weights[(h * nq + r) * nk..][..nk];
        let columns = h * width..(h + 1) * width;
        let dp: Vec<f64> =
            (0..nk).map(|t| columns.clone().map(|c| d_out[r * dim + c] * v[t * dim + c]).sum()).collect();
        let expected: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
        for t in 0..nk {
            let ds = p[t] * (dp[t] - expected) / (width as f64).sqrt();
            for c in columns.clone() {
                dv[t * dim + c] += p[t] * d_out[r * dim + c];
                dq[r * dim + c] += ds * k[t * dim + c];
                dk[t * dim + c] += ds * q[r * dim + c];
            }
        }
    }
    [dq, dk, dv]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, unwritten, wide};

    /// Columns `first..first + dim` of some rows of a matrix.
    fn columns<T: Real>(x: &[T], stride: usize, rows: std::ops::Range<usize>, first: usize, dim: usize) -> Vec<f64> {
        rows.flat_map(|r| wide(&x[r * stride + first..][..dim])).collect()
    }

    fn matches_the_plain_form<T: Real>(lengths: &[usize], heads: usize, width: usize, tolerance: f64) {
        let (rows, dim) = (Rows::all(lengths.iter().copied()), heads * width);
        let (n, stride) = (rows.count(), 3 * dim);
        let (qkv, d_out) = (noise::<T>(1, n * stride), noise::<T>(2, n * dim));
        let x = Qkv { q: &qkv, q_stride: stride, kv: &qkv, kv_stride: stride, k_column: dim, v_column: 2 * dim };
        let shape = Shape { query_rows: &rows, key_rows: &rows, heads, head_dim: width };
        let (mut out, mut lse, mut d_qkv) = (unwritten(n * dim), unwritten(n * heads), unwritten(n * stride));
        forward(&cpu(), x, shape, &mut out, &mut lse);
        backward(&cpu(), x, shape, &out, &lse, &d_out, QkvGrad { dq: None, dkv: &mut d_qkv });
        for s in 0..rows.segments() {
            let here = rows.offsets()[s]..rows.offsets()[s + 1];
            let part = |x: &[T], first| columns(x, stride, here.clone(), first, dim);
            let [q, k, v] = [0, dim, 2 * dim].map(|first| part(&qkv, first));
            assert_follows(
                &out[here.start * dim..here.end * dim],
                &attention_plain(&q, &k, &v, heads, width),
                tolerance,
            );
            let d = wide(&d_out[here.start * dim..here.end * dim]);
            let plain = attention_backward_plain(&q, &k, &v, heads, width, &d);
            for (i, plain) in plain.iter().enumerate() {
                assert_follows(&part(&d_qkv, i * dim), plain, tolerance);
            }
        }
    }

    #[test]
    fn attention_and_its_derivative_match_the_plain_form() {
        for (lengths, heads, width) in [(&[1, 5, 2][..], 3, 4), (&[50, 37], 2, 16), (&[197, 1, 65], 1, 64)] {
            matches_the_plain_form::<f64>(lengths, heads, width, 1e-12);
            matches_the_plain_form::<f32>(lengths, heads, width, 1e-5);
        }
    }

    fn one_query_matches_the_plain_form<T: Real>(tolerance: f64) {
        let (heads, width, dim) = (2, 5, 10);
        let rows = Rows::all([7, 1, 40]);
        let queries = rows.first_of_each().compact();
        let (q, kv, d_out) = (noise::<T>(1, 3 * dim), noise::<T>(2, 48 * 2 * dim), noise::<T>(3, 3 * dim));
        let x = Qkv { q: &q, q_stride: dim, kv: &kv, kv_stride: 2 * dim, k_column: 0, v_column: dim };
        let shape = Shape { query_rows: &queries, key_rows: &rows, heads, head_dim: width };
        let (mut out, mut lse) = (unwritten(3 * dim), unwritten(3 * heads));
        let (mut dq, mut dkv) = (unwritten(3 * dim), unwritten(48 * 2 * dim));
        forward(&cpu(), x, shape, &mut out, &mut lse);
        backward(&cpu(), x, shape, &out, &lse, &d_out, QkvGrad { dq: Some(&mut dq), dkv: &mut dkv });
        for s in 0..3 {
            let (here, keys) = (s * dim..(s + 1) * dim, rows.offsets()[s]..rows.offsets()[s + 1]);
            let [k, v, dk, dv] = [(&kv, 0), (&kv, dim), (&dkv, 0), (&dkv, dim)]
                .map(|(x, first)| columns(x, 2 * dim, keys.clone(), first, dim));
            let (q, d) = (wide(&q[here.clone()]), wide(&d_out[here.clone()]));
            assert_follows(&out[here.clone()], &attention_plain(&q, &k, &v, heads, width), tolerance);
            let plain = attention_backward_plain(&q, &k, &v, heads, width, &d);
            for (got, plain) in [wide(&dq[here]), dk, dv].iter().zip(&plain) {
                assert_follows(got, plain, tolerance);
            }
        }
    }

    #[test]
    fn attention_of_class_tokens_matches_the_plain_form() {
        one_query_matches_the_plain_form::<f64>(1e-12);
        one_query_matches_the_plain_form::<f32>(1e-5);
    }

    #[test]
    fn scores_far_beyond_the_range_of_exp_give_weights_of_one_and_zero() {
        // Scores 1e6 and -1e6 at width 1: each token attends to itself alone, and nothing flows into the scores.
        let (rows, heads) = (Rows::all([2]), 1);
        let qkv = [1e3f32, 1e3, 5.0, -1e3, -1e3, 7.0];
        let x = Qkv { q: &qkv, q_stride: 3, kv: &qkv, kv_stride: 3, k_column: 1, v_column: 2 };
        let shape = Shape { query_rows: &rows, key_rows: &rows, heads, head_dim: 1 };
        let (mut out, mut lse, mut d_qkv) = ([f32::NAN; 2], [f32::NAN; 2], [f32::NAN; 6]);
        forward(&cpu(), x, shape, &mut out, &mut lse);
        assert_eq!((out, lse), ([5.0, 7.0], [1e6, 1e6]));
        backward(&cpu(), x, shape, &out, &lse, &[1.0, 2.0], QkvGrad { dq: None, dkv: &mut d_qkv });
        assert_eq!(d_qkv, [0.0, 0.0, 1.0, 0.0, 0.0, 2.0]);
    }
}
