//! The backbone that a run has handed over, as `inspect` tells of it: whether it is what the run wrote.
//!
//! A finished run has its checksum in `result.json`. A run that was stopped has not, so its backbone is held against the
//! teacher in the checkpoint of the step that the file names.

use std::path::Path;

use model::weights::{Values, WeightsFile};
use serde_json::{Value, json};
use ssl::learner::BACKBONE;
use text::{bytes, thousands};
use train::run::{BACKBONE_FILE, Checkpoint, RunReader, RunResult};

use crate::description;

/// What there is to tell.
pub struct BackboneAccount {
    bytes: u64,
    /// None where it cannot be opened.
    file: Option<WeightsFile>,
    /// The step that it is of, as the file says it; none at the end of a run.
    said: Option<String>,
    /// The same as a number.
    step: u64,
    standing: Standing,
}

/// Whose a backbone is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    /// Not known: nothing is left that it could be held against.
    Unknown,
    /// The run's own.
    Sound,
    /// Not what the run wrote, for this reason.
    Not(String),
}

impl BackboneAccount {
    /// That of a run of so many steps; none where it has none.
    pub fn of(run: &RunReader, result: Option<&RunResult>, total: u64) -> Option<Self> {
        let path = run.root().join(BACKBONE_FILE);
        let bytes = path.metadata().ok()?.len();
        let file = WeightsFile::open(&path).ok();
        let said = file.as_ref().and_then(|file| file.metadata().get(description::STEP).cloned());
        // `12 of 27`; the backbone of the last step does not say it.
        let step = said.as_ref().map_or(Some(total), |said| said.split(' ').next()?.parse().ok()).unwrap_or(u64::MAX);
        let known = result.filter(|result| result.backbone.is_some()).map(|result| run.has_backbone_of(result));
        let standing = match (&file, known) {
            (None, _) | (_, Some(false)) => Standing::Not("damaged".to_owned()),
            (_, Some(true)) => Standing::Sound,
            (_, None) => Standing::Unknown,
        };
        Some(Self { bytes, file, said, step, standing })
    }

    /// Holds it against a checkpoint of the run, where that is of the same step and nothing better is known.
    pub fn compare(&mut self, checkpoint: &Checkpoint) {
        let Some(file) = self.file.as_mut().filter(|_| self.standing == Standing::Unknown) else { return };
        if checkpoint.step() == self.step {
            self.standing = match is_teacher_of(file, checkpoint) {
                true => Standing::Sound,
                false => {
                    let name = checkpoint.path().file_name().unwrap_or_default();
                    Standing::Not(format!("not this run's: it is not the teacher in {}", text::shown(Path::new(name))))
                }
            };
        }
    }

    /// A backbone of a step that the run has not done, as far as anybody knows, is another run's.
    pub fn compare_with_last(&mut self, last: u64) {
        if self.standing == Standing::Unknown && self.step > last {
            let last = thousands(last);
            self.standing = Standing::Not(format!("not this run's: the run has only come to step {last}"));
        }
    }

    /// Why it is not to be trusted.
    pub fn problem(&self) -> Option<String> {
        match &self.standing {
            Standing::Not(problem) => Some(format!("{BACKBONE_FILE} is {problem}")),
            Standing::Unknown | Standing::Sound => None,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let step = self.said.as_ref().map_or("of the last step".to_owned(), |step| format!("of step {step}"));
        let state = match &self.standing {
            Standing::Sound => "sound".to_owned(),
            Standing::Not(problem) => format!("{problem}. The command that started the run makes it again"),
            Standing::Unknown => "not checked, as no checkpoint of that step is left".to_owned(),
        };
        format!("{BACKBONE_FILE}  {}  {step}, {state}", bytes(self.bytes))
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let is_sound = match &self.standing {
            Standing::Unknown => None,
            standing => Some(*standing == Standing::Sound),
        };
        json!({ "bytes": self.bytes, "step": self.said, "sound": is_sound, "problem": self.problem() })
    }
}

/// Whether a file holds the backbone of the teacher in a checkpoint, bit for bit, and nothing else.
fn is_teacher_of(file: &mut WeightsFile, checkpoint: &Checkpoint) -> bool {
    let prefix = format!("teacher/{BACKBONE}");
    let expected = checkpoint.tensors().filter(|tensor| tensor.name.starts_with(&prefix)).count();
    let tensors = file.tensors().to_vec();
    tensors.len() == expected
        && tensors.iter().all(|tensor| {
            let Some(saved) = checkpoint.tensor(&format!("{prefix}{}", tensor.name)) else { return false };
            // One that cannot be read is not the same.
            let Ok(Values::F32(values)) = file.read(tensor) else { return false };
            let same =
                values.iter().zip(saved.bytes.chunks_exact(4)).all(|(value, bytes)| value.to_le_bytes() == bytes);
            tensor.shape == saved.shape && 4 * values.len() == saved.bytes.len() && same
        })
}
