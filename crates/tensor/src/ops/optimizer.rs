//! The update of all parameters: AdamW, and a teacher as the moving average of the student.

use std::ops::Range;

use rayon::prelude::*;

use crate::cpu::{on_device, optimizer as cpu, reduce};
use crate::cuda::optimizer as gpu;
use crate::params::ParamSet;
use crate::tensor::Tensor;

/// AdamW's constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub epsilon: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

/// What one step does to one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterUpdate {
    /// An AdamW step.
    Train {
        /// Learning rate.
        lr: f64,
        /// Decoupled weight decay.
        decay: f64,
        /// Factor on the gradient: one, or less where it was clipped.
        clip: f64,
        /// How many steps this parameter has seen, this one included.
        t: u64,
    },
    /// Nothing: no step, no decay, no change of the moments. A teacher still follows.
    Freeze,
}

/// The moving average of a student's parameters.
#[derive(Debug)]
pub struct Teacher<'a> {
    /// The average, one tensor for each of the student's.
    pub weights: &'a mut ParamSet,
    /// How much of itself each parameter keeps. With 1 it does not follow the student: it keeps every bit, even where the
    /// student's value is not finite.
    pub momentum: &'a [f64],
}

impl<'a> Teacher<'a> {
    /// The tensors that follow the student, with their momentum; none for each that does not.
    fn followers(teacher: Option<Self>, parameters: usize) -> Vec<Option<(&'a mut Tensor, f64)>> {
        let Some(Teacher { weights, momentum }) = teacher else {
            return (0..parameters).map(|_| None).collect();
        };
        assert_eq!((weights.len(), momentum.len()), (parameters, parameters), "a teacher of the student's parameters");
        let pairs = weights.tensors_mut().iter_mut().zip(momentum);
        pairs.map(|(weights, &momentum)| (momentum != 1.0).then_some((weights, momentum))).collect()
    }
}

/// One AdamW step on the student, then `teacher = momentum teacher + (1 - momentum) student`, parameter by parameter, where
/// there is a teacher.
///
/// # Panics
/// When there is not one update for each parameter, or the teacher's parameters are not the student's.
pub fn adamw_and_average(
    student: &mut ParamSet,
    gradient: &ParamSet,
    first: &mut ParamSet,
    second: &mut ParamSet,
    updates: &[ParameterUpdate],
    adam: &AdamW,
    teacher: Option<Teacher<'_>>,
) {
    assert_eq!(updates.len(), student.len(), "one update for each parameter");
    let Some(any) = student.tensors().first() else { return };
    let device = any.device().clone();
    let followers = Teacher::followers(teacher, updates.len());
    on_device!(any, T => {
        let slices = student.tensors_mut().iter_mut().zip(gradient.iter())
            .zip(first.tensors_mut().iter_mut().zip(second.tensors_mut()))
            .zip(followers.into_iter().zip(updates))
            .map(|(((value, gradient), (first, second)), (teacher, &update))| cpu::Slices {
                value: T::slice_mut(value),
                gradient: T::slice(gradient),
                first: T::slice_mut(first),
                second: T::slice_mut(second),
                teacher: teacher.map(|(weights, momentum)| (T::slice_mut(weights), momentum)),
                update,
            })
            .collect();
        cpu::step(device.as_cpu(), slices, adam);
    }, cuda => gpu::step(cuda, student, gradient, first, second, updates, adam, followers));
}

/// The moments of a part of each parameter.
#[derive(Debug)]
pub struct PartMoments<'a> {
    /// The elements of each parameter that they are of.
    pub parts: &'a [Range<usize>],
    /// First moment.
    pub first: &'a mut ParamSet,
    /// Second moment.
    pub second: &'a mut ParamSet,
}

/// One AdamW step on those elements of the student that there are moments of, with the bits that [`adamw_and_average`] gives
/// them.
///
/// # Panics
/// When there is not one update and one part for each parameter.
pub fn adamw_on_parts(
    student: &mut ParamSet,
    gradient: &ParamSet,
    moments: PartMoments<'_>,
    updates: &[ParameterUpdate],
    adam: &AdamW,
) {
    let PartMoments { parts, first, second } = moments;
    assert_eq!((updates.len(), parts.len()), (student.len(), student.len()), "one update and part for each parameter");
    let Some(any) = student.tensors().first() else { return };
    let device = any.device().clone();
    on_device!(any, T => {
        let moments = first.tensors_mut().iter_mut().zip(second.tensors_mut());
        let values = student.tensors_mut().iter_mut().zip(gradient.iter()).zip(parts);
        let slices = values.zip(moments).zip(updates).map(|((((value, gradient), part), (first, second)), &update)| {
            let (value, gradient) = (&mut T::slice_mut(value)[part.clone()], &T::slice(gradient)[part.clone()]);
            cpu::Slices { value, gradient, first: T::slice_mut(first), second: T::slice_mut(second), teacher: None, update }
        });
        cpu::step(device.as_cpu(), slices.collect(), adam);
    }, cuda => gpu::step_on_parts(cuda, student, gradient, parts, (first, second), updates, adam));
}

/// The second half of [`adamw_and_average`] alone, with the same bits: the teacher follows the student.
///
/// # Panics
/// When the teacher's parameters are not the student's.
pub fn average(student: &ParamSet, teacher: Teacher<'_>) {
    let Some(any) = student.tensors().first() else { return };
    let device = any.device().clone();
    let followers = Teacher::followers(Some(teacher), student.len());
    on_device!(any, T => {
        let pairs = followers.into_iter().zip(student.iter());
        let pairs = pairs.filter_map(|(teacher, value)| teacher.map(|(t, m)| (T::slice_mut(t), T::slice(value), m)));
        cpu::average_all(device.as_cpu(), pairs.collect());
    }, cuda => gpu::average(cuda, student, followers));
}

/// The end of a step of SGD with momentum: `value -= rate velocity`, then `velocity *= momentum`, so that the next gradient
/// can be added to it where it lies. Rows of `value` come in as many equal groups as there are rates.
///
/// # Panics
/// When the two have not the same elements, or do not fall into groups.
pub fn momentum_step(value: &mut Tensor, velocity: &mut Tensor, rates: &Tensor, momentum: f64) {
    assert_eq!(value.len(), velocity.len(), "one velocity for each value");
    assert!(value.len().is_multiple_of(rates.len().max(1)), "groups of equal size");
    let (device, group) = (value.device().clone(), value.len() / rates.len().max(1));
    on_device!(rates, T => cpu::momentum_step(
        device.as_cpu(), T::slice_mut(value), T::slice_mut(velocity), T::slice(rates), group, T::from_f64(momentum),
    ), cuda => gpu::momentum_step(cuda, value, velocity, rates, group, momentum));
}

/// Sum of squares of each tensor of a set.
pub fn squared_norms(set: &ParamSet) -> Vec<f64> {
    let Some(any) = set.tensors().first() else { return Vec::new() };
    on_device!(any, T => {
        let slices: Vec<&[T]> = set.iter().map(T::slice).collect();
        reduce::squared_norms(any.device().as_cpu(), &slices)
    }, cuda => gpu::squared_norms(cuda, set))
}

/// Sets every element of every tensor to zero.
pub fn clear(tensors: &mut [Tensor]) {
    let Some(any) = tensors.first() else { return };
    let device = any.device().clone();
    on_device!(any, T => {
        let slices: Vec<&mut [T]> = tensors.iter_mut().flat_map(|t| T::slice_mut(t).chunks_mut(crate::cpu::ELEMENTS_PER_TASK)).collect();
        device.as_cpu().install(|| slices.into_par_iter().for_each(|s| s.fill(T::from_f64(0.0))));
    }, cuda => gpu::clear(cuda, tensors));
}
