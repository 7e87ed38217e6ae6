//! Operators that move elements and compute nothing.

use crate::graph::Attribute;

use super::call::{Call, Operator, Run, length, operator};
use super::problem::Problem;
use super::reduce::transposed;
use super::value::{Data, Value, View, around, axis, broadcast};

pub(super) const OPERATORS: &[Operator] = &[
    operator("Transpose", 1..=1, &["perm"], transpose),
    operator("Reshape", 2..=2, &["allowzero"], reshape),
    operator("Squeeze", 1..=2, &[], squeeze),
    operator("Unsqueeze", 2..=2, &[], unsqueeze),
    operator("Expand", 2..=2, &[], expand),
    operator("Slice", 3..=5, &[], slice),
    Operator { name: "Split", inputs: 1..=2, attributes: &["axis"], run: Run::Many(split) },
    operator("Concat", 1..=usize::MAX, &["axis"], concat),
    operator("Gather", 2..=2, &["axis"], gather),
    operator("Shape", 1..=1, &["end", "start"], shape_of),
    operator("Constant", 0..=0, &["value", "value_float", "value_int", "value_ints"], constant),
    operator("ConstantOfShape", 1..=1, &["value"], constant_of_shape),
];

/// The elements of a value that a view shows.
fn show(value: &Value, view: &View) -> Result<Value, Problem> {
    Ok(Value::new(&view.shape, value.data().pick(view.places()))?)
}

fn transpose(call: &Call<'_>) -> Result<Value, Problem> {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let order: Vec<usize> = match call.list("perm")? {
        None => (0..rank).rev().collect(),
        Some(perm) => perm.iter().map(|&given| axis(given, rank)).collect::<Result<_, _>>()?,
    };
    if order.len() != rank || (0..rank).any(|i| !order.contains(&i)) {
        return Err(Problem::Attribute { name: "perm", expected: "every axis once" });
    }
    show(x, &transposed(x.shape(), &order))
}

/// A zero takes the length that was there, and -1 what is left.
fn reshape(call: &Call<'_>) -> Result<Value, Problem> {
    let (x, wanted, allow_zero) = (call.input(0)?, call.ints(1)?, call.flag("allowzero", false)?);
    let mut shape = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &side) in wanted.iter().enumerate() {
        shape.push(match side {
            0 if !allow_zero => *x.shape().get(i).ok_or(Problem::Axis { axis: i as i64, rank: x.shape().len() })?,
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            side => length(side)?,
        });
    }
    let known = call.count(&shape)?;
    if let Some(i) = open {
        shape[i] = x.data().len().checked_div(known).unwrap_or(0);
    }
    x.clone().reshaped(&shape)
}

fn squeeze(call: &Call<'_>) -> Result<Value, Problem> {
    let x = call.input(0)?;
    let rank = x.shape().len();
    let mut removed: Vec<bool> = vec![false; rank];
    match call.optional_ints(1)? {
        None => removed = x.shape().iter().map(|&side| side == 1).collect(),
        Some(axes) => {
            for &given in axes {
                removed[axis(given, rank)?] = true;
            }
        }
    }
    let shape: Vec<usize> =
        x.shape().iter().zip(removed).filter(|(_, removed)| !removed).map(|(&side, _)| side).collect();
    // A side that is not of length one does not leave the elements that there are.
    x.clone().reshaped(&shape)
}

fn unsqueeze(call: &Call<'_>) -> Result<Value, Problem> {
    let (x, axes) = (call.input(0)?, call.ints(1)?);
    let rank = x.shape().len() + axes.len();
    // So many sides would be refused in the end; here, before anything is made of their number.
    call.count(&vec![1; rank.min(64)])?;
    let mut added = vec![false; rank];
    for &given in axes {
        added[axis(given, rank)?] = true;
    }
    if added.iter().filter(|&&added| added).count() != axes.len() {
        return Err(Problem::Shape { shape: x.shape().to_vec(), why: "an axis is added twice" });
    }
    let mut sides = x.shape().iter().copied();
    let shape: Vec<usize> = added.iter().map(|&added| if added { 1 } else { sides.next().unwrap_or(1) }).collect();
    x.clone().reshaped(&shape)
}

fn expand(call: &Call<'_>) -> Result<Value, Problem> {
    let x = call.input(0)?;
    let wanted: Vec<usize> = call.ints(1)?.iter().map(|&side| length(side)).collect::<Result<_, _>>()?;
    let shape = broadcast(x.shape(), &wanted)?;
    call.count(&shape)?;
    let unfit = || Problem::Broadcast { left: x.shape().to_vec(), right: wanted.clone() };
    show(x, &View::broadcast(x.shape(), &shape).ok_or_else(unfit)?)
}

/// As Python's slices: bounds beyond the ends are moved to them, negative ones count from the end.
fn slice(call: &Call<'_>) -> Result<Value, Problem> {
    let (x, starts, ends) = (call.input(0)?, call.ints(1)?, call.ints(2)?);
    let rank = x.shape().len();
    let all: Vec<i64> = (0..starts.len() as i64).collect();
    let ones = vec![1; starts.len()];
    let axes = call.optional_ints(3)?.unwrap_or(&all);
    let steps = call.optional_ints(4)?.unwrap_or(&ones);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Problem::Shape { shape: vec![starts.len(), ends.len()], why: "lists of different lengths" });
    }
    let mut view = View::whole(x.shape());
    let mut seen = vec![false; rank];
    for (((&start, &end), &given), &step) in starts.iter().zip(ends).zip(axes).zip(steps) {
        let axis = axis(given, rank)?;
        if step == 0 || step == i64::MIN || std::mem::replace(&mut seen[axis], true) {
            return Err(Problem::Number { value: step, what: "step, or its axis is cut twice" });
        }
        let size = x.shape()[axis] as i64;
        // A walk backwards begins at the last element and may end before the first, which is -1.
        let (least, most) = if step > 0 { (0, size) } else { (-1, size - 1) };
        let bound = |at: i64| (if at < 0 { at.saturating_add(size) } else { at }).clamp(least, most);
        let (start, end) = (bound(start), bound(end));
        let distance = if step > 0 { end - start } else { start - end };
        let count = if distance > 0 { (distance as u64).div_ceil(step.unsigned_abs()) as usize } else { 0 };
        view.shape[axis] = count;
        if count > 0 {
            view.start += start as isize * view.strides[axis];
            // A step that leads nowhere may be of any length.
            view.strides[axis] = if count > 1 { view.strides[axis] * step as isize } else { 0 };
        }
    }
    show(x, &view)
}

fn split(call: &Call<'_>) -> Result<Vec<Value>, Problem> {
    let x = call.input(0)?;
    let axis = axis(call.int("axis", 0)?, x.shape().len())?;
    let (along, parts) = (x.shape()[axis], call.node.outputs.len());
    let sizes: Vec<usize> = match call.optional_ints(1)? {
        Some(sizes) => sizes.iter().map(|&size| length(size)).collect::<Result<_, _>>()?,
        None if parts > 0 && along.is_multiple_of(parts) => vec![along / parts; parts],
        None => return Err(Problem::Shape { shape: x.shape().to_vec(), why: "it has no equal parts" }),
    };
    let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
    if sizes.len() != parts || total != Some(along) {
        return Err(Problem::Shape { shape: sizes, why: "these parts do not make up the whole, or are too many" });
    }
    let mut view = View::whole(x.shape());
    let part = |size: usize| {
        view.shape[axis] = size;
        let part = show(x, &view);
        view.start += size as isize * view.strides[axis];
        part
    };
    sizes.into_iter().map(part).collect()
}

fn concat(call: &Call<'_>) -> Result<Value, Problem> {
    let first = call.input(0)?;
    let axis = axis(call.int("axis", 0)?, first.shape().len())?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for input in 0..call.inputs.len() {
        let value = call.input(input)?;
        let unfit = || Problem::Broadcast { left: first.shape().to_vec(), right: value.shape().to_vec() };
        let along = value.shape().get(axis).copied().ok_or_else(unfit)?;
        let mut others = value.shape().to_vec();
        others[axis] = shape[axis];
        if others != shape {
            return Err(unfit());
        }
        shape[axis] = shape[axis].checked_add(along).ok_or_else(unfit)?;
    }
    let elements = call.count(&shape)?;
    let (before, _, behind) = around(&shape, axis);
    // The elements of each input between two neighbours along the sides before the axis lie together.
    let pieces = (0..before).flat_map(|i| (0..call.inputs.len()).map(move |input| (i, input)));
    let place = |value: &Value, i: usize| {
        let piece = value.shape()[axis] * behind;
        i * piece..(i + 1) * piece
    };
    let data = match first.data() {
        Data::F32(_) => {
            let mut out = Vec::with_capacity(elements);
            for (i, input) in pieces {
                let (_, values) = call.f32(input)?;
                out.extend_from_slice(&values[place(call.input(input)?, i)]);
            }
            Data::F32(out)
        }
        Data::I64(_) => {
            let mut out = Vec::with_capacity(elements);
            for (i, input) in pieces {
                let value = call.input(input)?;
                let values = value.as_i64().ok_or(Problem::Element { input, expected: first.element() })?;
                out.extend_from_slice(&values[place(value, i)]);
            }
            Data::I64(out)
        }
    };
    Ok(Value::new(&shape, data)?)
}

fn gather(call: &Call<'_>) -> Result<Value, Problem> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = axis(call.int("axis", 0)?, x.shape().len())?;
    let (before, along, behind) = around(x.shape(), axis);
    let places = indices.as_i64().ok_or(Problem::Element { input: 1, expected: crate::graph::Element::I64 })?;
    let within = |&index: &i64| {
        let counted = if index < 0 { index + along as i64 } else { index };
        usize::try_from(counted).ok().filter(|&i| i < along).ok_or(Problem::Index { index, length: along })
    };
    let places: Vec<usize> = places.iter().map(within).collect::<Result<_, _>>()?;
    let shape = [&x.shape()[..axis], indices.shape(), &x.shape()[axis + 1..]].concat();
    call.count(&shape)?;
    let rows = (0..before).flat_map(|i| places.iter().map(move |place| i * along + place));
    Ok(Value::new(&shape, x.data().pick(rows.flat_map(|row| row * behind..(row + 1) * behind)))?)
}

fn shape_of(call: &Call<'_>) -> Result<Value, Problem> {
    let shape = call.input(0)?.shape();
    let rank = shape.len() as i64;
    let bound = |at: i64| (if at < 0 { at.saturating_add(rank) } else { at }).clamp(0, rank) as usize;
    let (start, end) = (bound(call.int("start", 0)?), bound(call.int("end", rank)?));
    let sides: Vec<i64> = shape.get(start..end).unwrap_or_default().iter().map(|&side| side as i64).collect();
    Ok(Value::i64(&[sides.len()], sides)?)
}

fn constant(call: &Call<'_>) -> Result<Value, Problem> {
    let mut attributes = call.node.attributes.values();
    match (attributes.next(), attributes.next()) {
        (Some(Attribute::Tensor(tensor)), None) => Value::of_tensor(tensor, call.limit),
        (Some(Attribute::Float(value)), None) => Ok(Value::f32(&[], vec![*value])?),
        (Some(Attribute::Int(value)), None) => Ok(Value::i64(&[], vec![*value])?),
        (Some(Attribute::Ints(values)), None) => Ok(Value::i64(&[values.len()], values.clone())?),
        _ => Err(Problem::Attribute { name: "value", expected: "the only one, and a number or tensor" }),
    }
}

fn constant_of_shape(call: &Call<'_>) -> Result<Value, Problem> {
    let shape: Vec<usize> = call.ints(0)?.iter().map(|&side| length(side)).collect::<Result<_, _>>()?;
    let elements = call.count(&shape)?;
    let value = match call.node.attributes.get("value") {
        None => Data::F32(vec![0.0]),
        Some(Attribute::Tensor(tensor)) if tensor.shape == [1] => Value::of_tensor(tensor, call.limit)?.data().clone(),
        Some(_) => return Err(Problem::Attribute { name: "value", expected: "a tensor of one element" }),
    };
    Ok(Value::new(&shape, value.pick(std::iter::repeat_n(0, elements)))?)
}
