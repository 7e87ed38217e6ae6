//! Operators that look at all elements along some sides.
//!
//! Sums are taken in double precision: not what a device does, but what it should come close to.

use super::call::{Call, Operator, operator};
use super::problem::Problem;
use super::value::{Value, View, around, axis, strides};

pub(super) const OPERATORS: &[Operator] = &[
    operator("ReduceMean", 1..=1, &["axes", "keepdims"], |call| {
        reduce(call, call.list("axes")?, |x| (sum(x.iter().copied()) / x.len() as f64) as f32)
    }),
    operator("ReduceMax", 1..=1, &["axes", "keepdims"], |call| reduce(call, call.list("axes")?, max)),
    operator("ReduceL2", 1..=1, &["axes", "keepdims"], |call| {
        reduce(call, call.list("axes")?, |x| x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt() as f32)
    }),
    operator("ReduceLogSumExp", 1..=1, &["axes", "keepdims"], |call| reduce(call, call.list("axes")?, log_sum_exp)),
    operator("ReduceSum", 1..=2, &["keepdims", "noop_with_empty_axes"], reduce_sum),
    operator("ArgMax", 1..=1, &["axis", "keepdims", "select_last_index"], arg_max),
    operator("Softmax", 1..=1, &["axis"], softmax),
    operator("LayerNormalization", 2..=3, &["axis", "epsilon", "stash_type"], layer_norm),
];

fn sum(x: impl Iterator<Item = f32>) -> f64 {
    x.map(f64::from).sum()
}

fn max(x: &[f32]) -> f32 {
    x.iter().copied().fold(f32::NEG_INFINITY, |a, b| if a > b || a.is_nan() { a } else { b })
}

fn log_sum_exp(x: &[f32]) -> f32 {
    let most = f64::from(max(x));
    if most == f64::NEG_INFINITY {
        return f32::NEG_INFINITY;
    }
    (most + x.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln()) as f32
}

/// The only one whose axes are an input in this version of the operators.
fn reduce_sum(call: &Call<'_>) -> Result<Value, Problem> {
    match call.optional_ints(1)?.filter(|axes| !axes.is_empty()) {
        None if call.flag("noop_with_empty_axes", false)? => call.input(0).cloned(),
        axes => reduce(call, axes, |x| sum(x.iter().copied()) as f32),
    }
}

/// `f` of all elements along some axes, or along all.
fn reduce(call: &Call<'_>, axes: Option<&[i64]>, f: impl Fn(&[f32]) -> f32) -> Result<Value, Problem> {
    let (shape, x) = call.f32(0)?;
    let keep = call.flag("keepdims", true)?;
    let mut reduced = vec![axes.is_none(); shape.len()];
    for &given in axes.unwrap_or_default() {
        reduced[axis(given, shape.len())?] = true;
    }
    // With the reduced sides last, the elements of one result lie together.
    let is_kept = |&i: &usize| !reduced[i];
    let order: Vec<usize> = (0..shape.len()).filter(is_kept).chain((0..shape.len()).filter(|i| reduced[*i])).collect();
    let view = transposed(shape, &order);
    let sorted: Vec<f32> = view.places().map(|i| x[i]).collect();
    let kept_sides: Vec<usize> = (0..shape.len()).filter(is_kept).map(|i| shape[i]).collect();
    let (results, each) =
        (kept_sides.iter().product(), (0..shape.len()).filter(|&i| reduced[i]).map(|i| shape[i]).product());
    let values: Vec<f32> = match each {
        0 => vec![f(&[]); results],
        each => sorted.chunks_exact(each).map(f).collect(),
    };
    let with_ones: Vec<usize> = (0..shape.len()).map(|i| if reduced[i] { 1 } else { shape[i] }).collect();
    Ok(Value::f32(if keep { &with_ones } else { &kept_sides }, values)?)
}

/// A view with the sides of a shape in another order.
pub(super) fn transposed(shape: &[usize], order: &[usize]) -> View {
    let strides = strides(shape);
    View {
        shape: order.iter().map(|&i| shape[i]).collect(),
        start: 0,
        strides: order.iter().map(|&i| strides[i] as isize).collect(),
    }
}

fn arg_max(call: &Call<'_>) -> Result<Value, Problem> {
    let (shape, x) = call.f32(0)?;
    let axis = axis(call.int("axis", 0)?, shape.len())?;
    let keep = call.flag("keepdims", true)?;
    if call.flag("select_last_index", false)? {
        return Err(Problem::Attribute { name: "select_last_index", expected: "0" });
    }
    let (before, along, behind) = around(shape, axis);
    if along == 0 {
        return Err(Problem::Shape { shape: shape.to_vec(), why: "nothing has no largest element" });
    }
    let largest = |i: usize, j: usize| {
        let at = |l: usize| x[(i * along + l) * behind + j];
        (1..along).fold(0, |best, l| if at(l) > at(best) { l } else { best }) as i64
    };
    let values = (0..before).flat_map(|i| (0..behind).map(move |j| (i, j))).map(|(i, j)| largest(i, j)).collect();
    let mut shape = shape.to_vec();
    match keep {
        true => shape[axis] = 1,
        false => _ = shape.remove(axis),
    }
    Ok(Value::i64(&shape, values)?)
}

fn softmax(call: &Call<'_>) -> Result<Value, Problem> {
    let (shape, x) = call.f32(0)?;
    let (before, along, behind) = around(shape, axis(call.int("axis", -1)?, shape.len())?);
    let mut out = x.to_vec();
    let mut line = Vec::with_capacity(along);
    for (i, j) in (0..before).flat_map(|i| (0..behind).map(move |j| (i, j))) {
        let places = (0..along).map(|l| (i * along + l) * behind + j);
        line.clear();
        line.extend(places.clone().map(|at| x[at]));
        let most = max(&line);
        line.iter_mut().for_each(|x| *x = (*x - most).exp());
        let total = sum(line.iter().copied()) as f32;
        places.zip(&line).for_each(|(at, x)| out[at] = x / total);
    }
    Ok(Value::f32(shape, out)?)
}

fn layer_norm(call: &Call<'_>) -> Result<Value, Problem> {
    let (shape, x) = call.f32(0)?;
    let first = axis(call.int("axis", -1)?, shape.len())?;
    let epsilon = f64::from(call.float("epsilon", 1e-5)?);
    if call.int("stash_type", 1)? != 1 {
        return Err(Problem::Attribute { name: "stash_type", expected: "1" });
    }
    let inner = &shape[first..];
    let affine = |input: usize| -> Result<Vec<f32>, Problem> {
        let (own, values) = call.f32(input)?;
        let unfit = || Problem::Broadcast { left: own.to_vec(), right: inner.to_vec() };
        let view = View::broadcast(own, inner).ok_or_else(unfit)?;
        Ok(view.places().map(|i| values[i]).collect())
    };
    let scale = affine(1)?;
    let shift = call.optional(2).map(|_| affine(2)).transpose()?.unwrap_or_else(|| vec![0.0; scale.len()]);
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(scale.len().max(1)) {
        let mean = sum(row.iter().copied()) / row.len() as f64;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let factor = (variance + epsilon).sqrt().recip();
        let normal = row.iter().map(|&x| ((f64::from(x) - mean) * factor) as f32);
        out.extend(normal.zip(&scale).zip(&shift).map(|((x, scale), shift)| x * scale + shift));
    }
    Ok(Value::f32(shape, out)?)
}
