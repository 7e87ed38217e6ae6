//! AdamW and a teacher's moving average, in one pass over all parameters.

use rayon::prelude::*;

use super::{Cpu, ELEMENTS_PER_TASK, Real};
use crate::ops::{AdamW, ParameterUpdate};
use simd::simd;

/// The slices of one parameter: value, gradient, both moments, and the teacher that follows it with its momentum.
pub(crate) struct Slices<'a, T> {
    pub value: &'a mut [T],
    pub gradient: &'a [T],
    pub first: &'a mut [T],
    pub second: &'a mut [T],
    pub teacher: Option<(&'a mut [T], f64)>,
    pub update: ParameterUpdate,
}

/// The numbers of one element's update, worked out once for a tensor.
#[derive(Clone, Copy)]
struct Step<T> {
    shrink: T,
    clip: T,
    beta1: T,
    beta2: T,
    keep1: T,
    keep2: T,
    step_size: T,
    inverse_sqrt_correction2: T,
    epsilon: T,
}

impl<T: Real> Step<T> {
    /// `p *= 1 - lr wd`, then Adam with bias correction for step `t`, as PyTorch orders it.
    fn new(adam: &AdamW, lr: f64, decay: f64, clip: f64, t: u64) -> Self {
        let correction = |beta: f64| 1.0 - beta.powf(t as f64);
        Self {
            shrink: T::from_f64(1.0 - lr * decay),
            clip: T::from_f64(clip),
            beta1: T::from_f64(adam.beta1),
            beta2: T::from_f64(adam.beta2),
            keep1: T::from_f64(1.0 - adam.beta1),
            keep2: T::from_f64(1.0 - adam.beta2),
            step_size: T::from_f64(lr / correction(adam.beta1)),
            inverse_sqrt_correction2: T::from_f64(1.0 / correction(adam.beta2).sqrt()),
            epsilon: T::from_f64(adam.epsilon),
        }
    }
}

simd! {
    fn adamw<T: Real>(value: &mut [T], gradient: &[T], first: &mut [T], second: &mut [T], s: Step<T>) {
        for (((p, &g), m), v) in value.iter_mut().zip(gradient).zip(first).zip(second) {
            let g = g * s.clip;
            *m = s.beta1 * *m + s.keep1 * g;
            *v = s.beta2 * *v + s.keep2 * g * g;
            let denominator = v.sqrt() * s.inverse_sqrt_correction2 + s.epsilon;
            *p = *p * s.shrink - s.step_size * (*m / denominator);
        }
    }
}

simd! {
    /// t + (1 - m) (p - t) rather than m t + (1 - m) p: rounded to f32, m and 1 - m do not add up to one, and over many
    /// steps that would pull the teacher off by up to a thousandth.
    fn average<T: Real>(teacher: &mut [T], value: &[T], rest: T) {
        for (t, &p) in teacher.iter_mut().zip(value) {
            *t = rest.mul_add(p - *t, *t);
        }
    }
}

/// Updates every parameter and then the teacher that follows it.
pub(crate) fn step<T: Real>(cpu: &Cpu, parameters: Vec<Slices<'_, T>>, adam: &AdamW) {
    let tasks: Vec<_> = parameters
        .into_iter()
        .flat_map(|p| {
            let step = match p.update {
                ParameterUpdate::Train { lr, decay, clip, t } => Some(Step::new(adam, lr, decay, clip, t)),
                ParameterUpdate::Freeze => None,
            };
            let n = ELEMENTS_PER_TASK;
            let mut teacher = p.teacher.map(|(t, momentum)| (t.chunks_mut(n), T::from_f64(1.0 - momentum)));
            p.value.chunks_mut(n).zip(p.gradient.chunks(n)).zip(p.first.chunks_mut(n).zip(p.second.chunks_mut(n))).map(
                move |((value, gradient), (first, second))| {
                    let teacher = teacher.as_mut().and_then(|(chunks, rest)| Some((chunks.next()?, *rest)));
                    (step, value, gradient, first, second, teacher)
                },
            )
        })
        .collect();
    cpu.install(|| {
        tasks.into_par_iter().for_each(|(step, value, gradient, first, second, teacher)| {
            if let Some(step) = step {
                adamw(value, gradient, first, second, step);
            }
            if let Some((teacher, rest)) = teacher {
                average(teacher, value, rest);
            }
        });
    });
}

/// Each teacher, of which a share `momentum` stays, follows its values.
pub(crate) fn average_all<T: Real>(cpu: &Cpu, pairs: Vec<(&mut [T], &[T], f64)>) {
    let chunks = |(teacher, value, momentum): (_, _, f64)| {
        let (teacher, value): (&mut [T], &[T]) = (teacher, value);
        let pieces = teacher.chunks_mut(ELEMENTS_PER_TASK).zip(value.chunks(ELEMENTS_PER_TASK));
        pieces.map(move |(teacher, value)| (teacher, value, T::from_f64(1.0 - momentum)))
    };
    let tasks: Vec<_> = pairs.into_iter().flat_map(chunks).collect();
    cpu.install(|| tasks.into_par_iter().for_each(|(teacher, value, rest)| average(teacher, value, rest)));
}

simd! {
    fn move_by_velocity<T: Real>(value: &mut [T], velocity: &mut [T], rate: T, momentum: T) {
        for (p, v) in value.iter_mut().zip(velocity) {
            *p = (-rate).mul_add(*v, *p);
            *v *= momentum;
        }
    }
}

/// `value -= rate velocity`, then `velocity *= momentum`; `group` elements share a rate.
pub(crate) fn momentum_step<T: Real>(
    cpu: &Cpu,
    value: &mut [T],
    velocity: &mut [T],
    rates: &[T],
    group: usize,
    momentum: T,
) {
    let groups = value.chunks_mut(group.max(1)).zip(velocity.chunks_mut(group.max(1))).zip(rates);
    let tasks: Vec<_> = groups
        .flat_map(|((value, velocity), &rate)| {
            let parts = value.chunks_mut(ELEMENTS_PER_TASK).zip(velocity.chunks_mut(ELEMENTS_PER_TASK));
            parts.map(move |(value, velocity)| (value, velocity, rate))
        })
        .collect();
    cpu.install(|| {
        tasks.into_par_iter().for_each(|(value, velocity, rate)| move_by_velocity(value, velocity, rate, momentum))
    });
}

/// One element of one parameter: (value, first, second, teacher).
#[cfg(test)]
type Element = (f64, f64, f64, f64);

/// AdamW as its authors write it, then the moving average where there is one: the oracle.
#[cfg(test)]
fn adamw_plain(e: Element, gradient: f64, update: ParameterUpdate, adam: &AdamW, momentum: Option<f64>) -> Element {
    let (mut p, mut m, mut v, teacher) = e;
    if let ParameterUpdate::Train { lr, decay, clip, t } = update {
        let g = clip * gradient;
        p -= lr * decay * p;
        m = adam.beta1 * m + (1.0 - adam.beta1) * g;
        v = adam.beta2 * v + (1.0 - adam.beta2) * g * g;
        let m_hat = m / (1.0 - adam.beta1.powi(t as i32));
        let v_hat = v / (1.0 - adam.beta2.powi(t as i32));
        p -= lr * m_hat / (v_hat.sqrt() + adam.epsilon);
    }
    (p, m, v, momentum.map_or(teacher, |kept| kept * teacher + (1.0 - kept) * p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::{assert_follows, cpu, noise, wide};

    fn follows_the_plain_form<T: Real>(tolerance: f64) {
        // The first parameter fills more than one task; the third stays frozen until the third step; the last has no teacher.
        let lengths = [ELEMENTS_PER_TASK + 77, 5, 40, 23];
        let adam = AdamW::default();
        let parameters = |seed: u64| [0, 1, 2, 3].map(|i| noise::<T>(seed + i as u64, lengths[i]));
        let (mut value, mut teacher) = (parameters(10), parameters(20));
        let [mut first, mut second] = [0, 0].map(|_| lengths.map(|n| vec![T::ZERO; n]));
        let mut plain: [Vec<Element>; 4] = [0, 1, 2, 3]
            .map(|i| value[i].iter().zip(&teacher[i]).map(|(p, t)| (p.to_f64(), 0.0, 0.0, t.to_f64())).collect());
        for step_number in 1..=4u64 {
            let lr = 0.01 * step_number as f64;
            let kept = 0.9 + 0.02 * step_number as f64;
            let momentum = [Some(kept), Some(0.5 * kept), Some(kept), None];
            let gradient = parameters(100 * step_number);
            let updates = [
                ParameterUpdate::Train { lr, decay: 0.1, clip: 0.7, t: step_number },
                ParameterUpdate::Train { lr, decay: 0.0, clip: 1.0, t: step_number },
                match step_number {
                    1 | 2 => ParameterUpdate::Freeze,
                    _ => ParameterUpdate::Train { lr, decay: 0.1, clip: 1.0, t: step_number - 2 },
                },
                ParameterUpdate::Train { lr, decay: 0.2, clip: 0.3, t: step_number },
            ];
            let slices = value.iter_mut().zip(&gradient).zip(first.iter_mut().zip(&mut second));
            let slices = slices.zip(teacher.iter_mut().zip(momentum).zip(updates)).map(
                |(((value, gradient), (first, second)), ((teacher, momentum), update))| Slices {
                    value,
                    gradient,
                    first,
                    second,
                    teacher: momentum.map(|momentum| (&mut teacher[..], momentum)),
                    update,
                },
            );
            step(&cpu(), slices.collect(), &adam);
            for i in 0..4 {
                for (e, g) in plain[i].iter_mut().zip(&gradient[i]) {
                    *e = adamw_plain(*e, g.to_f64(), updates[i], &adam, momentum[i]);
                }
                let part = |f: fn(&Element) -> f64| plain[i].iter().map(f).collect::<Vec<f64>>();
                assert_follows(&value[i], &part(|e| e.0), tolerance);
                assert_follows(&first[i], &part(|e| e.1), tolerance);
                assert_follows(&second[i], &part(|e| e.2), tolerance);
                assert_follows(&teacher[i], &part(|e| e.3), tolerance);
            }
        }
    }

    #[test]
    fn steps_freezing_and_the_moving_average_follow_the_plain_form() {
        follows_the_plain_form::<f64>(1e-13);
        follows_the_plain_form::<f32>(1e-6);
    }

    #[test]
    fn a_frozen_parameter_keeps_every_bit_and_its_teacher_moves() {
        let [mut value, mut first, mut second, mut teacher] = [1, 2, 3, 4].map(|seed| noise::<f32>(seed, 9));
        let before = [value.clone(), first.clone(), second.clone()];
        let gradient = vec![f32::NAN; 9];
        let slices = Slices {
            value: &mut value,
            gradient: &gradient,
            first: &mut first,
            second: &mut second,
            teacher: Some((&mut teacher, 0.75)),
            update: ParameterUpdate::Freeze,
        };
        let old = wide(&noise::<f32>(4, 9));
        step(&cpu(), vec![slices], &AdamW::default());
        let want: Vec<f64> = old.iter().zip(&before[0]).map(|(t, &p)| 0.75 * t + 0.25 * f64::from(p)).collect();
        assert_follows(&teacher, &want, 1e-6);
        assert_eq!([value, first, second], before);
    }

    #[test]
    fn a_learning_rate_of_zero_moves_the_moments_alone() {
        let [mut value, mut first, mut second, mut teacher] = [1, 2, 3, 4].map(|seed| noise::<f64>(seed, 9));
        second.iter_mut().for_each(|v| *v = v.abs());
        let (before, moments) = (value.clone(), first.clone());
        let gradient = noise::<f64>(5, 9);
        let update = ParameterUpdate::Train { lr: 0.0, decay: 0.4, clip: 1.0, t: 1 };
        let slices = Slices {
            value: &mut value,
            gradient: &gradient,
            first: &mut first,
            second: &mut second,
            teacher: Some((&mut teacher, 1.0)),
            update,
        };
        step(&cpu(), vec![slices], &AdamW::default());
        assert_eq!(value, before);
        assert_eq!(teacher, noise::<f64>(4, 9));
        assert!(first.iter().zip(&moments).all(|(a, b)| a != b));
    }

    #[test]
    fn momentum_is_that_of_its_definition_in_every_group() {
        let group = ELEMENTS_PER_TASK + 3;
        let (values, velocities) = (noise::<f64>(1, 2 * group), noise::<f64>(2, 2 * group));
        let (mut value, mut velocity) = (values.clone(), velocities.clone());
        momentum_step(&cpu(), &mut value, &mut velocity, &[0.5, 0.25], group, 0.9);
        for i in 0..2 * group {
            let rate = if i < group { 0.5 } else { 0.25 };
            assert!((value[i] - (values[i] - rate * velocities[i])).abs() < 1e-15, "{i}");
            assert!((velocity[i] - 0.9 * velocities[i]).abs() < 1e-15, "{i}");
        }
    }
}
