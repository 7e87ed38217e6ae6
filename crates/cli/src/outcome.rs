//! What a finished run is worth: `result.json` in its folder, and the table that is printed.

use std::path::Path;

use serde_json::{Value, json};
use ssl::recipe::Recipe;
use text::count;

use crate::output::shell;

/// The file's name in a run folder.
pub const FILE: &str = "result.json";

/// The kNN accuracies in per cent.
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

    /// The result that a run's folder holds; none if there is none for this many steps.
    pub fn read(run: &Path, steps: u64) -> Option<Self> {
        let text = std::fs::read_to_string(run.join(FILE)).ok()?;
        let result = Self::from_json(&serde_json::from_str(&text).ok()?)?;
        (result.steps == steps).then_some(result)
    }

    /// For people: the accuracies, where the weights are and what can be done with them.
    pub fn table(&self, run: &Path, data: &str, recipe: &Recipe) -> String {
        let run = shell(&run.display().to_string());
        let data = shell(data);
        let mut text = match &self.knn {
            Some(t) => format!(
                "top-1 kNN (k={}) on {}:\n  raw pixels         {:5.1} %\n  untrained network  {:5.1} %\n  \
                 trained network    {:5.1} %\n\n",
                t.k, t.judged, t.raw_pixels, t.untrained, t.trained
            ),
            None => {
                let loss = self.loss.map_or(String::new(), |loss| format!(", last loss {loss:.4}"));
                format!("trained {}{loss}. There are no labels to judge it by\n\n", count(self.steps as usize, "step"))
            }
        };
        if let Some(verdict) = &self.verdict {
            text += &format!("warning: at the end {verdict}\n\n");
        }
        text += &format!(
            "weights   {run}/{} ({}/{}, DINO's names)\n",
            crate::backbone::FILE,
            recipe.arch(),
            recipe.patch_size()
        );
        text += &format!("next      dino-vmf features --weights {run} --data {data} --out features.safetensors\n");
        if self.knn.is_some() {
            text += &format!("          dino-vmf eval knn --weights {run} --data {data}\n");
        }
        text
    }
}

/// The last record of a run's log that has this key.
pub fn last_record(run: &Path, key: &str) -> Option<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).ok()?;
    let records = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.into_iter().find(|record| record.get(key).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_survives_its_file_and_counts_only_for_its_own_steps() {
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
            std::fs::write(folder.path().join(FILE), result.to_json().to_string()).unwrap();
            assert_eq!(RunResult::read(folder.path(), 12), Some(result));
            assert_eq!(RunResult::read(folder.path(), 13), None);
            std::fs::write(folder.path().join(FILE), "{}").unwrap();
            assert_eq!(RunResult::read(folder.path(), 12), None);
        }
    }

    #[test]
    fn the_last_record_with_a_key_is_found_behind_torn_and_other_lines() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"step\":1,\"loss\":3.0}\n{\"step\":2,\"loss\":2.0}\n{\"step\":2,\"knn_top1\":9.0}\n{\"ste";
        std::fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        assert_eq!(last_record(folder.path(), "loss").unwrap()["step"], 2);
        assert_eq!(last_record(folder.path(), "entropy"), None);
    }
}
