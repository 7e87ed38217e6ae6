//! What a finished run is worth: `result.json` in its folder.

use std::path::Path;

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
    /// By the pixels themselves.
    pub raw_pixels: f64,
    /// By the network before its first step.
    pub untrained: f64,
    /// By the trained network.
    pub trained: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunResult {
    /// Steps of the run.
    pub steps: u64,
    /// The last loss in its log.
    pub loss: Option<f64>,
    /// What was wrong at the end, in words.
    pub verdict: Option<String>,
    /// Accuracies, where the images have labels.
    pub knn: Option<KnnTable>,
}

impl RunResult {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let knn = self.knn.as_ref().map(|t| {
            json!({
                "k": t.k, "judged": t.judged,
                "raw_pixels": t.raw_pixels, "untrained": t.untrained, "trained": t.trained,
            })
        });
        let (steps, loss, verdict) = (self.steps, self.loss, &self.verdict);
        json!({ "outcome": "finished", "steps": steps, "loss": loss, "verdict": verdict, "knn_top1": knn })
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
                    raw_pixels: number("raw_pixels")?,
                    untrained: number("untrained")?,
                    trained: number("trained")?,
                })
            }
        };
        let verdict = value.get("verdict").and_then(Value::as_str).map(str::to_owned);
        Some(Self { steps: value.get("steps")?.as_u64()?, loss: value.get("loss")?.as_f64(), verdict, knn })
    }

    /// The result that a run's folder holds, if it holds one that can be read.
    pub fn read(run: &Path) -> Option<Self> {
        let text = files::read_text_bounded(&run.join(RESULT_FILE), MOST_BYTES).ok()?;
        Self::from_json(&serde_json::from_str(&text).ok()?)
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
            raw_pixels: 1.5,
            untrained: 2.5,
            trained: 60.25,
        };
        let verdict = Some("the teacher is uniform".to_owned());
        for result in [
            RunResult { steps: 12, loss: Some(0.5), verdict: None, knn: Some(knn) },
            RunResult { steps: 12, loss: None, verdict, knn: None },
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(RESULT_FILE), result.to_json().to_string()).unwrap();
            assert_eq!(RunResult::read(folder.path()), Some(result));
            std::fs::write(folder.path().join(RESULT_FILE), "{}").unwrap();
            assert_eq!(RunResult::read(folder.path()), None);
        }
    }
}
