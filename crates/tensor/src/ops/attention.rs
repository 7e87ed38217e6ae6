//! Self-attention inside segments, for all tokens or for the class tokens alone.

use crate::cpu::{attention as cpu, on_device};
use crate::cuda::attention as gpu;
use crate::rows::Rows;
use crate::tensor::Tensor;

/// What attention gives, and what its derivative needs of it.
#[derive(Debug)]
pub struct Attended {
    /// [queries, dim], heads side by side.
    pub out: Tensor,
    /// Log of the sum of exponentials of each query's scores, [queries, heads]: the weights are recomputed from it.
    lse: Tensor,
}

fn check(dim: usize, heads: usize) {
    assert_eq!(dim % heads, 0, "{dim} columns in {heads} heads");
}

/// softmax(q k^T / sqrt(d)) v for every token; `qkv` is [tokens, 3 dim], and a segment's tokens see each other only.
pub fn attention(qkv: &Tensor, rows: &Rows, heads: usize) -> Attended {
    let dim = qkv.columns() / 3;
    check(dim, heads);
    assert_eq!(qkv.rows(), rows.count(), "tokens of the segments");
    let device = qkv.device();
    let (mut out, mut lse) = (device.empty(&[rows.count(), dim]), device.empty_exact(&[rows.count(), heads]));
    let shape = cpu::Shape { query_rows: rows, key_rows: rows, heads, head_dim: dim / heads };
    on_device!(qkv, T => {
        let x = T::slice(qkv);
        let x = cpu::Qkv { q: x, q_stride: 3 * dim, kv: x, kv_stride: 3 * dim, k_column: dim, v_column: 2 * dim };
        cpu::forward(device.as_cpu(), x, shape, T::slice_mut(&mut out), T::slice_mut(&mut lse));
    }, cuda => {
        let shape = gpu::Shape { queries: cuda.rows(rows), keys: cuda.rows(rows), heads, head_dim: dim / heads };
        gpu::forward(cuda, shape, qkv, &mut out, &mut lse);
    });
    Attended { out, lse }
}

/// The gradient of `qkv`.
pub fn attention_backward(qkv: &Tensor, rows: &Rows, heads: usize, attended: &Attended, d_out: &Tensor) -> Tensor {
    let dim = qkv.columns() / 3;
    let device = qkv.device();
    let mut d_qkv = device.empty(qkv.shape());
    let shape = cpu::Shape { query_rows: rows, key_rows: rows, heads, head_dim: dim / heads };
    on_device!(qkv, T => {
        let x = T::slice(qkv);
        let x = cpu::Qkv { q: x, q_stride: 3 * dim, kv: x, kv_stride: 3 * dim, k_column: dim, v_column: 2 * dim };
        let grad = cpu::QkvGrad { dq: None, dkv: T::slice_mut(&mut d_qkv) };
        cpu::backward(device.as_cpu(), x, shape, T::slice(&attended.out), T::slice(&attended.lse), T::slice(d_out), grad);
    }, cuda => {
        let shape = gpu::Shape { queries: cuda.rows(rows), keys: cuda.rows(rows), heads, head_dim: dim / heads };
        gpu::backward(cuda, shape, qkv, [&attended.out, &attended.lse, d_out], &mut d_qkv);
    });
    d_qkv
}

/// Attention for one query a segment: `q` is [segments, dim], `kv` is [tokens, 2 dim].
pub fn class_attention(q: &Tensor, kv: &Tensor, rows: &Rows, heads: usize) -> Attended {
    let dim = q.columns();
    check(dim, heads);
    assert_eq!(
        (kv.rows(), kv.columns(), q.rows()),
        (rows.count(), 2 * dim, rows.segments()),
        "queries, keys and values"
    );
    let device = q.device();
    let (mut out, mut lse) = (device.empty(&[q.rows(), dim]), device.empty_exact(&[q.rows(), heads]));
    let queries = rows.first_of_each().compact();
    let shape = cpu::Shape { query_rows: &queries, key_rows: rows, heads, head_dim: dim / heads };
    on_device!(q, T => {
        let x = cpu::Qkv { q: T::slice(q), q_stride: dim, kv: T::slice(kv), kv_stride: 2 * dim, k_column: 0, v_column: dim };
        cpu::forward(device.as_cpu(), x, shape, T::slice_mut(&mut out), T::slice_mut(&mut lse));
    }, cuda => {
        let shape = gpu::Shape { queries: cuda.rows(&queries), keys: cuda.rows(rows), heads, head_dim: dim / heads };
        gpu::class_forward(cuda, shape, q, kv, &mut out, &mut lse);
    });
    Attended { out, lse }
}

/// The gradients of `q` and `kv`.
pub fn class_attention_backward(
    q: &Tensor,
    kv: &Tensor,
    rows: &Rows,
    heads: usize,
    attended: &Attended,
    d_out: &Tensor,
) -> (Tensor, Tensor) {
    let dim = q.columns();
    let device = q.device();
    let (mut dq, mut dkv) = (device.empty(q.shape()), device.empty(kv.shape()));
    let queries = rows.first_of_each().compact();
    let shape = cpu::Shape { query_rows: &queries, key_rows: rows, heads, head_dim: dim / heads };
    on_device!(q, T => {
        let x = cpu::Qkv { q: T::slice(q), q_stride: dim, kv: T::slice(kv), kv_stride: 2 * dim, k_column: 0, v_column: dim };
        let grad = cpu::QkvGrad { dq: Some(T::slice_mut(&mut dq)), dkv: T::slice_mut(&mut dkv) };
        cpu::backward(device.as_cpu(), x, shape, T::slice(&attended.out), T::slice(&attended.lse), T::slice(d_out), grad);
    }, cuda => {
        let shape = gpu::Shape { queries: cuda.rows(&queries), keys: cuda.rows(rows), heads, head_dim: dim / heads };
        let attended = [&attended.out, &attended.lse, d_out];
        gpu::class_backward(cuda, shape, [q, kv], attended, [&mut dq, &mut dkv]);
    });
    (dq, dkv)
}
