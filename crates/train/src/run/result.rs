//! What a finished run is worth: `result.json` in its folder.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The file's name in a run folder.
pub const RESULT_FILE: &str = "result.json";

/// No result is larger.
const MOST_BYTES: u64 = 1 << 20;

/// Accuracies of kNN in per cent.
#[derive(Clone, Debug, PartialEq)]
pub struct KnnTable {
    /// Neighbours that voted.
    pub k: u64,
    /// What was classified.
    pub judged: String,
    /// How many images were; not in results of earlier versions.
    pub images: Option<u64>,
    /// By the pixels themselves.
    pub raw_pixels: f64,
    /// By the network before its first step.
    pub untrained: f64,
    /// Whether that network was given, rather than drawn.
    pub is_given: bool,
    /// By the trained network.
    pub trained: f64,
}

/// Where a run that ended before its last step had collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapsedAt {
    /// The step of the first record that told of it.
    pub since: u64,
    /// The step of the weights that were handed over, from before; none where there were none.
    pub healthy: Option<u64>,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Steps of the run, of which those of one that collapsed were done.
    pub steps: u64,
    /// Where it collapsed; none for a run that came to its end.
    pub collapsed: Option<CollapsedAt>,
    /// The last loss in its log.
    pub loss: Option<f64>,
    /// What was wrong at the end, in words.
    pub verdict: Option<String>,
    /// Accuracies, where the images have labels.
    pub knn: Option<KnnTable>,
    /// How often an image stood in for one that could not be read.
    pub substitutes: u64,
    /// The checksum of the backbone beside it; none in a result of an earlier version.
    pub backbone: Option<String>,
    /// What it is worth, in a word and in a sentence with the next thing to try; not in results of earlier versions.
    pub judgement: Option<(String, String)>,
    /// The epochs of the longer run that the sentence advises.
    pub advised_epochs: Option<u64>,
}

/// Why a file in the place of a result is none.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", text::shown(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}: is damaged: it is not what a run writes", text::shown(path))]
    NotAResult {
        /// The file.
        path: PathBuf,
    },
    /// It speaks of another run, or of this one before its length was changed.
    #[error("{}: speaks of {found} steps, and the run has {steps}", text::shown(path))]
    OtherSteps {
        /// The file.
        path: PathBuf,
        /// Steps that it speaks of.
        found: u64,
        /// Steps of the run.
        steps: u64,
    },
}

/// The checksum of a file's bytes, as a result keeps it.
pub fn checksum(bytes: &[u8]) -> String {
    format!("crc32c:{:08x}", crc32c::crc32c(bytes))
}

impl RunResult {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let knn = self.knn.as_ref().map(|t| {
            json!({
                "k": t.k, "judged": t.judged, "images": t.images,
                "raw_pixels": t.raw_pixels, "untrained": t.untrained, "start_is_given": t.is_given, "trained": t.trained,
            })
        });
        let Self { steps, loss, verdict, substitutes, backbone, advised_epochs, .. } = self;
        let (judgement, advice) = self.judgement.as_ref().map(|(word, advice)| (word, advice)).unzip();
        let outcome = if self.collapsed.is_some() { "collapsed" } else { "finished" };
        let mut object = json!({
            "outcome": outcome, "steps": steps, "loss": loss, "verdict": verdict, "knn_top1": knn,
            "judgement": judgement, "advice": advice, "advised_epochs": advised_epochs,
            "substitutes": substitutes, "backbone": backbone,
        });
        if let Some(CollapsedAt { since, healthy }) = self.collapsed {
            object["collapsed_since"] = json!(since);
            object["weights_step"] = json!(healthy);
        }
        object
    }

    /// From what [`RunResult::to_json`] made; none if it is not that.
    pub fn from_json(value: &Value) -> Option<Self> {
        let knn = match value.get("knn_top1")? {
            Value::Null => None,
            table => {
                let number = |key: &str| table.get(key)?.as_f64();
                Some(KnnTable {
                    k: table.get("k")?.as_u64()?,
                    judged: table.get("judged")?.as_str()?.to_owned(),
                    images: table.get("images").and_then(Value::as_u64),
                    raw_pixels: number("raw_pixels")?,
                    untrained: number("untrained")?,
                    is_given: table.get("start_is_given").and_then(Value::as_bool).unwrap_or(false),
                    trained: number("trained")?,
                })
            }
        };
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let substitutes = value.get("substitutes").and_then(Value::as_u64).unwrap_or(0);
        let (steps, loss) = (value.get("steps")?.as_u64()?, value.get("loss")?.as_f64());
        let (verdict, judgement) = (text("verdict"), text("judgement").zip(text("advice")));
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        let advised_epochs = number("advised_epochs");
        let collapsed = match value.get("outcome").and_then(Value::as_str) {
            Some("collapsed") => {
                Some(CollapsedAt { since: number("collapsed_since")?, healthy: number("weights_step") })
            }
            _ => None,
        };
        let backbone = text("backbone");
        Some(Self { steps, collapsed, loss, verdict, knn, substitutes, backbone, judgement, advised_epochs })
    }

    /// The result that a run's folder holds, if it holds one that can be read.
    pub fn read(run: &Path) -> Option<Self> {
        Self::open(run).ok().flatten()
    }

    /// The same, where a file that is there and is no result is an error.
    pub fn open(run: &Path) -> Result<Option<Self>, ResultError> {
        let path = run.join(RESULT_FILE);
        let text = match files::read_text_bounded(&path, MOST_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ResultError::Io { path, source }),
            Ok(text) => text,
        };
        let value: Option<Value> = serde_json::from_str(&text).ok();
        value.and_then(|value| Self::from_json(&value)).map(Some).ok_or(ResultError::NotAResult { path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_file() {
        let knn = KnnTable {
            k: 10,
            judged: "5 held-out images by 9 training images".into(),
            images: Some(5),
            raw_pixels: 1.5,
            untrained: 2.5,
            is_given: true,
            trained: 60.25,
        };
        let verdict = Some("the teacher is uniform".to_owned());
        let judgement = Some(("learnt".to_owned(), "Learnt: much".to_owned()));
        for result in [
            RunResult {
                steps: 12,
                collapsed: None,
                loss: Some(0.5),
                verdict: None,
                knn: Some(knn),
                substitutes: 0,
                backbone: None,
                judgement,
                advised_epochs: Some(800),
            },
            RunResult {
                steps: 12,
                collapsed: Some(CollapsedAt { since: 9, healthy: Some(7) }),
                loss: None,
                verdict,
                knn: None,
                substitutes: 3,
                backbone: Some(checksum(b"x")),
                judgement: None,
                advised_epochs: None,
            },
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(RESULT_FILE), result.to_json().to_string()).unwrap();
            assert_eq!(RunResult::read(folder.path()), Some(result));
            std::fs::write(folder.path().join(RESULT_FILE), "{}").unwrap();
            assert_eq!(RunResult::read(folder.path()), None);
        }
    }
}
