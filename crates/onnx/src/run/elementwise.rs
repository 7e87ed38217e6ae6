//! Operators that look at one element of each input at a time.

use rayon::prelude::*;

use crate::graph::Element;
use crate::schema;

use super::call::{Call, Operator, operator};
use super::problem::Problem;
use super::value::{Data, Value, View, broadcast};

pub(super) const OPERATORS: &[Operator] = &[
    operator("Add", 2..=2, &[], |call| binary(call, |a, b| a + b, i64::checked_add)),
    operator("Sub", 2..=2, &[], |call| binary(call, |a, b| a - b, i64::checked_sub)),
    operator("Mul", 2..=2, &[], |call| binary(call, |a, b| a * b, i64::checked_mul)),
    operator("Div", 2..=2, &[], |call| binary(call, |a, b| a / b, i64::checked_div)),
    operator("Max", 1..=usize::MAX, &[], max),
    operator("Sqrt", 1..=1, &[], |call| unary(call, f32::sqrt)),
    // In double precision, where the function is good to the last digit of single precision.
    operator("Erf", 1..=1, &[], |call| unary(call, |x| libm::erf(x.into()) as f32)),
    operator("Exp", 1..=1, &[], |call| unary(call, f32::exp)),
    operator("Log", 1..=1, &[], |call| unary(call, f32::ln)),
    operator("Tanh", 1..=1, &[], |call| unary(call, f32::tanh)),
    operator("Relu", 1..=1, &[], |call| unary(call, |x| if x < 0.0 { 0.0 } else { x })),
    operator("Neg", 1..=1, &[], neg),
    operator("Clip", 1..=3, &[], clip),
    operator("Cast", 1..=1, &["to"], cast),
    operator("Identity", 1..=1, &[], |call| call.input(0).cloned()),
];

fn unary(call: &Call<'_>, f: impl Fn(f32) -> f32 + Sync) -> Result<Value, Problem> {
    let (shape, x) = call.f32(0)?;
    Ok(Value::f32(shape, x.par_iter().map(|&x| f(x)).collect())?)
}

fn neg(call: &Call<'_>) -> Result<Value, Problem> {
    let x = call.input(0)?;
    match x.data() {
        Data::F32(_) => unary(call, |x| -x),
        Data::I64(values) => {
            let negated: Option<_> = values.iter().map(|value| value.checked_neg()).collect();
            Ok(Value::i64(x.shape(), negated.ok_or(Problem::Arithmetic)?)?)
        }
    }
}

fn binary(
    call: &Call<'_>,
    float: impl Fn(f32, f32) -> f32,
    whole: impl Fn(i64, i64) -> Option<i64>,
) -> Result<Value, Problem> {
    combine(call, call.input(0)?, call.input(1)?, 1, float, whole)
}

/// Both values broadcast to each other's shape and combined element by element. `input` is the number of `b`.
fn combine(
    call: &Call<'_>,
    a: &Value,
    b: &Value,
    input: usize,
    float: impl Fn(f32, f32) -> f32,
    whole: impl Fn(i64, i64) -> Option<i64>,
) -> Result<Value, Problem> {
    let shape = broadcast(a.shape(), b.shape())?;
    call.count(&shape)?;
    let data = match (a.data(), b.data()) {
        (Data::F32(x), Data::F32(y)) => Data::F32(zip(&shape, (a.shape(), x), (b.shape(), y), float)?),
        (Data::I64(x), Data::I64(y)) => {
            let combined = zip(&shape, (a.shape(), x), (b.shape(), y), whole)?;
            Data::I64(combined.into_iter().collect::<Option<_>>().ok_or(Problem::Arithmetic)?)
        }
        _ => return Err(Problem::Element { input, expected: a.element() }),
    };
    Ok(Value::new(&shape, data)?)
}

fn zip<T: Copy, R>(
    shape: &[usize],
    (a_shape, a): (&[usize], &[T]),
    (b_shape, b): (&[usize], &[T]),
    f: impl Fn(T, T) -> R,
) -> Result<Vec<R>, Problem> {
    let view = |from: &[usize]| {
        let unfit = || Problem::Broadcast { left: from.to_vec(), right: shape.to_vec() };
        View::broadcast(from, shape).ok_or_else(unfit)
    };
    let (a_view, b_view) = (view(a_shape)?, view(b_shape)?);
    let ((length, a_stride), (_, b_stride)) = (a_view.row(), b_view.row());
    let mut out = Vec::with_capacity(shape.iter().product());
    for (a_row, b_row) in a_view.rows().zip(b_view.rows()) {
        out.extend((0..length as isize).map(|i| {
            let (a_at, b_at) = (a_row + i * a_stride, b_row + i * b_stride);
            f(a[a_at as usize], b[b_at as usize])
        }));
    }
    Ok(out)
}

fn max(call: &Call<'_>) -> Result<Value, Problem> {
    let mut most = call.input(0)?.clone();
    for input in 1..call.inputs.len() {
        // What is not a number remains visible.
        let float = |a: f32, b: f32| if a > b || a.is_nan() { a } else { b };
        most = combine(call, &most, call.input(input)?, input, float, |a, b| Some(a.max(b)))?;
    }
    Ok(most)
}

fn clip(call: &Call<'_>) -> Result<Value, Problem> {
    let bound = |input: usize, default: f32| match call.optional(input) {
        None => Ok(default),
        Some(bound) => match (bound.as_f32(), bound.shape()) {
            (Some(&[value]), []) => Ok(value),
            (None, _) => Err(Problem::Element { input, expected: Element::F32 }),
            (_, shape) => Err(Problem::Shape { shape: shape.to_vec(), why: "a bound is a scalar" }),
        },
    };
    let (least, most) = (bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?);
    unary(call, |x| {
        let x = if x < least { least } else { x };
        if x > most { most } else { x }
    })
}

fn cast(call: &Call<'_>) -> Result<Value, Problem> {
    let x = call.input(0)?;
    let to = match u64::try_from(call.int("to", 0)?) {
        Ok(schema::tensor::TYPE_FLOAT) => Element::F32,
        Ok(schema::tensor::TYPE_INT64) => Element::I64,
        _ => return Err(Problem::Attribute { name: "to", expected: "1 (f32) or 7 (i64)" }),
    };
    let data = match (x.data(), to) {
        (Data::F32(values), Element::I64) => Data::I64(values.iter().map(|&value| value as i64).collect()),
        (Data::I64(values), Element::F32) => Data::F32(values.iter().map(|&value| value as f32).collect()),
        (same, _) => same.clone(),
    };
    Ok(Value::new(x.shape(), data)?)
}
