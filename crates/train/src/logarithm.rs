//! Parameters that are trained by the logarithm of their size ([`Treatment::in_log`]): few numbers, on the host in double
//! precision.

use tensor::ops::ParameterUpdate;
use tensor::{ParamId, ParamSet, Tensor};

use crate::optimizer::Treatment;

/// The least size that has a logarithm here: a parameter of zero would never move again.
const LEAST: f64 = 1e-12;

/// Turns the gradients of such parameters into those of their logarithms: dl = w dw.
pub(crate) fn gradients(treatments: &[Treatment], weights: &ParamSet, gradient: &mut ParamSet) {
    for (i, _) in treatments.iter().enumerate().filter(|(_, t)| t.in_log && t.trained) {
        let (weight, d) = (weights[ParamId(i)].to_f64(), gradient[ParamId(i)].to_f64());
        gradient[ParamId(i)].copy_from_f64(&weight.iter().zip(d).map(|(w, d)| w * d).collect::<Vec<f64>>());
    }
}

/// Parameters that are logarithms for the time of a step, with the signs that they had.
pub(crate) struct Logarithms(Vec<Held>);

struct Held {
    at: ParamId,
    weight: Vec<f64>,
    teacher: Option<Vec<f64>>,
}

impl Logarithms {
    /// Puts logarithms in the place of those that this step trains, and of their teachers.
    pub(crate) fn of(
        treatments: &[Treatment],
        updates: &[ParameterUpdate],
        weights: &mut ParamSet,
        mut teacher: Option<&mut ParamSet>,
    ) -> Self {
        let is_moved = |(treatment, update): &(&Treatment, &ParameterUpdate)| {
            treatment.in_log && **update != ParameterUpdate::Freeze
        };
        let pairs = treatments.iter().zip(updates).enumerate().filter(|(_, pair)| is_moved(pair));
        let mut held = Vec::new();
        for (i, _) in pairs {
            let at = ParamId(i);
            let teacher = teacher.as_deref_mut().map(|teacher| take(&mut teacher[at]));
            held.push(Held { at, weight: take(&mut weights[at]), teacher });
        }
        Self(held)
    }

    /// Puts them back.
    pub(crate) fn back(self, weights: &mut ParamSet, mut teacher: Option<&mut ParamSet>) {
        for Held { at, weight, teacher: of_teacher } in self.0 {
            put(&mut weights[at], &weight);
            if let (Some(teacher), Some(signs)) = (teacher.as_deref_mut(), of_teacher) {
                put(&mut teacher[at], &signs);
            }
        }
    }
}

/// Replaces values by the logarithms of their sizes; their signs.
fn take(tensor: &mut Tensor) -> Vec<f64> {
    let values = tensor.to_f64();
    tensor.copy_from_f64(&values.iter().map(|w| w.abs().max(LEAST).ln()).collect::<Vec<f64>>());
    values.iter().map(|w| 1f64.copysign(*w)).collect()
}

fn put(tensor: &mut Tensor, signs: &[f64]) {
    let values = tensor.to_f64();
    tensor.copy_from_f64(&values.iter().zip(signs).map(|(l, sign)| sign * l.exp()).collect::<Vec<f64>>());
}
