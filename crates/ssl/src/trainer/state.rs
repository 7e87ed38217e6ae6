//! What a checkpoint holds: all that a step changes, so that a resumed run is the unbroken one, bit for bit.

use std::borrow::Cow;

use serde_json::{Value, json};
use tensor::{DType, ParamId, ParamSet, Tensor};

use crate::health::Health;
use crate::learner::{LearnError, Learner};
use crate::run::{Checkpoint, Element, TensorRef};

use super::TrainError;

/// The parameter sets of a learner, by the word that stands before the parameters' names.
fn sets(learner: &Learner) -> [(&'static str, &ParamSet); 4] {
    [
        ("student", &learner.student),
        ("teacher", &learner.teacher),
        ("first", &learner.optimizer.first),
        ("second", &learner.optimizer.second),
    ]
}

/// Saves a learner after `step` steps.
pub(super) fn save(
    checkpoints: &crate::run::Checkpoints,
    step: u64,
    learner: &Learner,
    health: &Health,
) -> Result<(), TrainError> {
    let mut named: Vec<(String, &Tensor)> = Vec::new();
    for (word, set) in sets(learner) {
        named.extend(learner.layout().specs().iter().zip(set.iter()).map(|(s, t)| (format!("{word}/{}", s.name), t)));
    }
    named.push(("center".into(), learner.loss.center()));
    let bytes: Vec<Cow<'_, [u8]>> = named.iter().map(|(_, t)| t.to_le_bytes()).collect();
    // A device that has failed gives zeros, which must not take the place of a good checkpoint.
    learner.device().finish().map_err(LearnError::from)?;
    let tensors: Vec<TensorRef<'_>> = named
        .iter()
        .zip(&bytes)
        .map(|((name, t), bytes)| TensorRef { name, shape: t.shape(), element: element(t.dtype()), bytes })
        .collect();
    let state = json!({
        "optimizer_steps": learner.optimizer.steps,
        "assignments": health.assignments().collect::<Vec<u32>>(),
    });
    checkpoints.write(step, &tensors, &state.to_string())?;
    Ok(())
}

/// Sets a learner to what a checkpoint holds; returns the health that goes with it.
pub(super) fn restore(checkpoint: &Checkpoint, learner: &mut Learner) -> Result<Health, TrainError> {
    let broken = |what: String| TrainError::Checkpoint { path: checkpoint.path().to_owned(), what };
    let names: Vec<String> = learner.layout().specs().iter().map(|s| s.name.clone()).collect();
    let fetch = |name: &str, into: &mut Tensor| {
        let found = checkpoint.tensor(name).ok_or_else(|| broken(format!("has no tensor {name}")))?;
        let fits = found.shape == into.shape() && found.element == element(into.dtype());
        if fits && into.copy_from_le_bytes(found.bytes) {
            return Ok(());
        }
        Err(broken(format!("has {name} as {:?} {:?}, not {:?}", found.element, found.shape, into.shape())))
    };
    for (i, name) in names.iter().enumerate() {
        let id = ParamId(i);
        fetch(&format!("student/{name}"), &mut learner.student[id])?;
        fetch(&format!("teacher/{name}"), &mut learner.teacher[id])?;
        fetch(&format!("first/{name}"), &mut learner.optimizer.first[id])?;
        fetch(&format!("second/{name}"), &mut learner.optimizer.second[id])?;
    }
    fetch("center", learner.loss.center_mut())?;
    let state: Value =
        serde_json::from_str(checkpoint.state()).map_err(|e| broken(format!("has a broken state: {e}")))?;
    let numbers = |key: &str| -> Option<Vec<u64>> { state.get(key)?.as_array()?.iter().map(Value::as_u64).collect() };
    let steps = numbers("optimizer_steps").filter(|s| s.len() == names.len());
    learner.optimizer.steps = steps.ok_or_else(|| broken("has no step counts".into()))?;
    let assignments = numbers("assignments").ok_or_else(|| broken("has no assignments".into()))?;
    Ok(Health::restore(assignments.into_iter().map(|k| k as u32)))
}

fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        DType::Bf16 => unreachable!("parameters, moments and the centre are never rounded to bfloat16"),
    }
}
