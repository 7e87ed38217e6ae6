//! The update of all parameters in one launch.

use std::ops::Range;

use super::{Cuda, arguments};
use crate::ops::{AdamW, ParameterUpdate};
use crate::params::ParamSet;
use crate::tensor::Tensor;

/// Elements of one block; the kernels' `CHUNK`.
const CHUNK: usize = 8192;

/// One tensor as `adamw_and_average` reads it; the kernel's `Parameter`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parameter {
    value: u64,
    first: u64,
    second: u64,
    teacher: u64,
    gradient: u64,
    value_copy: u64,
    teacher_copy: u64,
    count: i64,
    shrink: f32,
    clip: f32,
    step_size: f32,
    inverse_sqrt_correction2: f32,
    frozen: i32,
    rest: f32,
}

// SAFETY: plain numbers without padding: eight words of 8 bytes and six of 4.
unsafe impl bytemuck::Zeroable for Parameter {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for Parameter {}

/// Which chunk of which tensor each block takes.
fn chunks(lengths: impl Iterator<Item = usize>) -> Vec<[i32; 2]> {
    lengths.enumerate().flat_map(|(t, n)| (0..n.div_ceil(CHUNK)).map(move |c| [t as i32, c as i32])).collect()
}

pub(crate) fn step(
    cuda: &Cuda,
    student: &mut ParamSet,
    gradient: &ParamSet,
    first: &mut ParamSet,
    second: &mut ParamSet,
    updates: &[ParameterUpdate],
    adam: &AdamW,
    followers: Vec<Option<(&mut Tensor, f64)>>,
) {
    let table: Vec<Parameter> = student
        .iter()
        .zip(gradient.iter())
        .zip(first.tensors_mut().iter_mut().zip(second.tensors_mut()))
        .zip(followers.iter().zip(updates))
        .map(|(((value, gradient), (first, second)), (teacher, &update))| Parameter {
            first: first.cuda_address_mut(),
            second: second.cuda_address_mut(),
            gradient: gradient.cuda_address(),
            ..Parameter::of(value, teacher.as_ref(), update, adam)
        })
        .collect();
    launch(cuda, &table, adam);
}

/// The step of some elements of each parameter, of which there are moments.
pub(crate) fn step_on_parts(
    cuda: &Cuda,
    student: &mut ParamSet,
    gradient: &ParamSet,
    parts: &[Range<usize>],
    (first, second): (&mut ParamSet, &mut ParamSet),
    updates: &[ParameterUpdate],
    adam: &AdamW,
) {
    let copy_size = cuda.dtype().size();
    let table: Vec<Parameter> = student
        .iter()
        .zip(gradient.iter())
        .zip(first.tensors_mut().iter_mut().zip(second.tensors_mut()))
        .zip(parts.iter().zip(updates))
        .map(|(((value, gradient), (first, second)), (part, &update))| {
            let of_all = Parameter::of(value, None, update, adam);
            let at = |address: u64, size: usize| if address == 0 { 0 } else { address + (part.start * size) as u64 };
            Parameter {
                value: at(of_all.value, size_of::<f32>()),
                value_copy: at(of_all.value_copy, copy_size),
                first: first.cuda_address_mut(),
                second: second.cuda_address_mut(),
                gradient: at(gradient.cuda_address(), size_of::<f32>()),
                count: part.len() as i64,
                ..of_all
            }
        })
        .collect();
    launch(cuda, &table, adam);
}

/// The teacher's part of a step alone.
pub(crate) fn average(cuda: &Cuda, student: &ParamSet, followers: Vec<Option<(&mut Tensor, f64)>>) {
    let adam = AdamW::default();
    let still = |(value, teacher): (&Tensor, &Option<(&mut Tensor, f64)>)| {
        Parameter::of(value, teacher.as_ref(), ParameterUpdate::Freeze, &adam)
    };
    let table: Vec<Parameter> = student.iter().zip(&followers).map(still).collect();
    launch(cuda, &table, &adam);
}

impl Parameter {
    /// A tensor and its update, without moments and gradient.
    fn of(value: &Tensor, teacher: Option<&(&mut Tensor, f64)>, update: ParameterUpdate, adam: &AdamW) -> Self {
        let correction = |beta: f64, t: u64| 1.0 - beta.powf(t as f64);
        let (lr, decay, clip, t) = match update {
            ParameterUpdate::Train { lr, decay, clip, t } => (lr, decay, clip, t),
            ParameterUpdate::Freeze => (0.0, 0.0, 1.0, 1),
        };
        Self {
            // The copies for matrix products are written by the same kernel, so they stay good.
            value: value.cuda_address(),
            value_copy: value.cuda_buffer().copy_address(),
            teacher: teacher.map_or(0, |(weights, _)| weights.cuda_address()),
            teacher_copy: teacher.map_or(0, |(weights, _)| weights.cuda_buffer().copy_address()),
            first: 0,
            second: 0,
            gradient: 0,
            count: value.len() as i64,
            shrink: (1.0 - lr * decay) as f32,
            clip: clip as f32,
            step_size: (lr / correction(adam.beta1, t)) as f32,
            inverse_sqrt_correction2: (1.0 / correction(adam.beta2, t).sqrt()) as f32,
            frozen: i32::from(update == ParameterUpdate::Freeze),
            rest: teacher.map_or(0.0, |(_, momentum)| (1.0 - momentum) as f32),
        }
    }
}

fn launch(cuda: &Cuda, table: &[Parameter], adam: &AdamW) {
    let blocks = chunks(table.iter().map(|parameter| parameter.count as usize));
    let (table, places) = (cuda.uploaded(table), cuda.uploaded(&blocks));
    let arguments = arguments![
        table.address(),
        places.address(),
        adam.beta1 as f32,
        adam.beta2 as f32,
        (1.0 - adam.beta1) as f32,
        (1.0 - adam.beta2) as f32,
        adam.epsilon as f32,
    ];
    cuda.launch(("optimizer", "adamw_and_average"), (blocks.len() as u32, 1, 1), (256, 1), 0, &arguments);
}

/// Addresses and lengths of some tensors; the kernels' `Span`.
fn spans<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Vec<[u64; 2]> {
    tensors.map(|t| [t.cuda_address(), t.len() as u64]).collect()
}

pub(crate) fn clear(cuda: &Cuda, tensors: &mut [Tensor]) {
    let blocks = chunks(tensors.iter().map(Tensor::len));
    tensors.iter_mut().for_each(|t| _ = t.cuda_address_mut());
    let (table, places) = (cuda.uploaded(&spans(tensors.iter())), cuda.uploaded(&blocks));
    let arguments = arguments![table.address(), places.address()];
    cuda.launch(("optimizer", "clear_all"), (blocks.len() as u32, 1, 1), (256, 1), 0, &arguments);
}

/// value -= rate velocity, then velocity *= momentum; `group` elements share a rate.
pub(crate) fn momentum_step(
    cuda: &Cuda,
    value: &mut Tensor,
    velocity: &mut Tensor,
    rates: &Tensor,
    group: usize,
    momentum: f64,
) {
    let count = value.len();
    let arguments = arguments![
        value.cuda_address_mut(),
        velocity.cuda_address_mut(),
        rates.cuda_address(),
        group as i64,
        momentum as f32,
        count as i64,
    ];
    cuda.launch_flat(("elementwise", "momentum_step"), count, &arguments);
}

pub(crate) fn squared_norms(cuda: &Cuda, set: &ParamSet) -> Vec<f64> {
    let blocks = chunks(set.iter().map(Tensor::len));
    let mut starts = vec![0i32];
    for t in set.iter() {
        starts.push(starts[starts.len() - 1] + t.len().div_ceil(CHUNK) as i32);
    }
    let (table, places, starts) = (cuda.uploaded(&spans(set.iter())), cuda.uploaded(&blocks), cuda.uploaded(&starts));
    let partial = cuda.scratch(blocks.len() * 8);
    let norms = cuda.scratch(set.len() * 8);
    let arguments = arguments![table.address(), places.address(), partial.address()];
    cuda.launch(("optimizer", "squared_chunks"), (blocks.len() as u32, 1, 1), (256, 1), 0, &arguments);
    let arguments = arguments![partial.address(), starts.address(), norms.address()];
    cuda.launch(("optimizer", "squared_norms"), (set.len() as u32, 1, 1), (256, 1), 0, &arguments);
    cuda.download(norms.address(), set.len())
}
