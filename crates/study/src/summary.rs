//! What the runs of a study gave, run by run and row by row.

use std::path::Path;

use serde_json::Value;
use train::run::RunReader;

use crate::plan::Plan;

/// Accuracies of kNN in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracies {
    /// By the trained network.
    pub trained: f64,
    /// By the network before its first step.
    pub untrained: f64,
    /// By the pixels themselves.
    pub raw_pixels: f64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With a result; what it is worth in a word.
    Judged(String),
    /// Without one, and why.
    Failed(String),
    /// Not yet.
    Open,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOutcome {
    /// How it ended.
    pub ended: Ended,
    /// Whether all of its steps were taken, rather than ended by a collapse.
    pub is_finished: bool,
    /// Accuracies, where the images have labels.
    pub knn: Option<Accuracies>,
    /// Steps done.
    pub steps: u64,
    /// Times that it began again because it had collapsed.
    pub retries: u64,
    /// Seconds of its training, without evaluations; those of attempts that collapsed not counted.
    pub seconds: Option<f64>,
    /// What its evaluation found, for each of the plan's scores; empty where it has none.
    pub scores: Vec<Option<f64>>,
}

/// The judgement on a run that collapsed, as `pretrain --json` prints it.
const COLLAPSED: &str = "collapsed";

impl RunOutcome {
    /// Of a run that has not ended.
    pub fn open() -> Self {
        Self {
            ended: Ended::Open,
            is_finished: false,
            knn: None,
            steps: 0,
            retries: 0,
            seconds: None,
            scores: Vec::new(),
        }
    }

    /// Of a run without a result.
    pub fn failed(why: String) -> Self {
        Self { ended: Ended::Failed(why), ..Self::open() }
    }

    /// From what `pretrain --json` printed; none if it is not that, or the run was only stopped.
    pub fn of_json(object: &Value) -> Option<Self> {
        let word = object.get("judgement")?.as_str()?.to_owned();
        let outcome = object.get("outcome")?.as_str()?;
        if outcome == "stopped" {
            return None;
        }
        let is_finished = outcome == "finished";
        let table = object.get("knn_top1").filter(|table| table.is_object());
        let number = |key: &str| table?.get(key)?.as_f64();
        let accuracies = || {
            let [trained, untrained, raw_pixels] = ["trained", "untrained", "raw_pixels"].map(number);
            Some(Accuracies { trained: trained?, untrained: untrained?, raw_pixels: raw_pixels? })
        };
        let steps = object.get("steps")?.as_u64()?;
        let retries = object.get("attempts").and_then(Value::as_array).map_or(0, |attempts| attempts.len() as u64);
        Some(Self { ended: Ended::Judged(word), is_finished, knn: accuracies(), steps, retries, ..Self::open() })
    }

    /// Whether it collapsed.
    pub fn is_collapsed(&self) -> bool {
        matches!(&self.ended, Ended::Judged(word) if word == COLLAPSED)
    }

    /// With the time that the run's log tells: it is there however often the run was interrupted.
    pub fn timed(self, run: &Path, batch_size: usize) -> Self {
        Self { seconds: training_seconds(run, batch_size), ..self }
    }
}

fn training_seconds(run: &Path, batch_size: usize) -> Option<f64> {
    let (mut seconds, mut last) = (0.0, 0);
    let visit = |record: Value| {
        let step = record.get("step").and_then(Value::as_u64);
        let speed = record.get("images_per_second").and_then(Value::as_f64).filter(|speed| *speed > 0.0);
        if let (Some(step), Some(speed)) = (step, speed) {
            seconds += step.saturating_sub(last) as f64 * batch_size as f64 / speed;
            last = step;
        }
    };
    RunReader::open(run).ok()?.each_record(visit).ok()?;
    (last > 0).then_some(seconds)
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// Runs of the row.
    pub runs: usize,
    /// Of these with accuracies.
    pub judged: Vec<Accuracies>,
    /// Of these collapsed.
    pub collapsed: usize,
    /// Of these without a result.
    pub failed: usize,
    /// Of these not ended.
    pub open: usize,
    /// Times that one of them began again.
    pub retries: u64,
    /// Seconds of a run, in the mean.
    pub seconds: Option<f64>,
    /// What evaluations found, for each of the plan's scores in the runs that have it.
    pub scores: Vec<Vec<f64>>,
}

/// Mean and standard deviation over the seeds; the latter not for one seed, and neither for none.
pub fn mean_and_deviation(values: &[f64]) -> Option<(f64, Option<f64>)> {
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
    Some((mean, (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt())))
}

impl CellSummary {
    /// Mean and standard deviation of an accuracy.
    pub fn mean_of(&self, number: impl Fn(&Accuracies) -> f64) -> Option<(f64, Option<f64>)> {
        mean_and_deviation(&self.judged.iter().map(number).collect::<Vec<_>>())
    }

    /// Of the runs with accuracies, those that are above both raw pixels and the untrained network.
    pub fn above_both(&self) -> usize {
        self.judged.iter().filter(|knn| knn.trained > knn.untrained.max(knn.raw_pixels)).count()
    }
}

/// What a study gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary<'a> {
    /// Its runs.
    pub plan: &'a Plan,
    /// What became of each.
    pub outcomes: &'a [RunOutcome],
    /// The rows of the table.
    pub cells: Vec<CellSummary>,
}

impl<'a> Summary<'a> {
    /// # Panics
    /// When there is not one outcome for each run.
    pub fn of(plan: &'a Plan, outcomes: &'a [RunOutcome]) -> Self {
        assert_eq!(plan.runs.len(), outcomes.len(), "one outcome for each run");
        let of_cell = |cell: usize| {
            let runs = plan.runs.iter().zip(outcomes).filter(|(run, _)| run.cell == cell);
            let all: Vec<&RunOutcome> = runs.map(|(_, outcome)| outcome).collect();
            let count = |is: &dyn Fn(&RunOutcome) -> bool| all.iter().filter(|outcome| is(outcome)).count();
            let times: Vec<f64> = all.iter().filter_map(|outcome| outcome.seconds).collect();
            let score = |number: usize| all.iter().filter_map(|outcome| *outcome.scores.get(number)?).collect();
            CellSummary {
                runs: all.len(),
                judged: all.iter().filter_map(|outcome| outcome.knn).collect(),
                collapsed: count(&RunOutcome::is_collapsed),
                failed: count(&|outcome| matches!(outcome.ended, Ended::Failed(_))),
                open: count(&|outcome| outcome.ended == Ended::Open),
                retries: all.iter().map(|outcome| outcome.retries).sum(),
                seconds: (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64),
                scores: (0..plan.scores.len()).map(score).collect(),
            }
        };
        Self { plan, outcomes, cells: (0..plan.cells.len()).map(of_cell).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_read_from_what_a_run_printed() {
        let knn = json!({ "k": 20, "trained": 58.5, "untrained": 32.0, "raw_pixels": 38.5 });
        let object =
            json!({ "outcome": "finished", "steps": 70, "knn_top1": knn, "judgement": "learnt", "advice": "x" });
        let outcome = RunOutcome::of_json(&object).unwrap();
        assert_eq!(outcome.ended, Ended::Judged("learnt".into()));
        let expected = Accuracies { trained: 58.5, untrained: 32.0, raw_pixels: 38.5 };
        assert_eq!((outcome.knn, outcome.steps, outcome.is_collapsed()), (Some(expected), 70, false));
        assert!(outcome.is_finished);
        let stopped = json!({ "outcome": "stopped", "steps": 7, "judgement": "unfinished", "advice": "x" });
        assert_eq!(RunOutcome::of_json(&stopped), None);
        let collapsed = json!({ "outcome": "collapsed", "steps": 7, "knn_top1": null, "judgement": "collapsed", "attempts": [{}, {}] });
        let outcome = RunOutcome::of_json(&collapsed).unwrap();
        assert!(outcome.is_collapsed() && !outcome.is_finished && outcome.knn.is_none() && outcome.retries == 2);
        assert_eq!(RunOutcome::of_json(&json!({ "error": "x" })), None);
    }

    #[test]
    fn the_time_of_a_run_is_in_its_log() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(training_seconds(folder.path(), 8), None);
        std::fs::write(folder.path().join("config.toml"), "").unwrap();
        let log = "{\"step\":10,\"images_per_second\":40.0}\n{\"step\":10,\"knn_top1\":3.0}\n\
                   {\"step\":15,\"images_per_second\":10.0}\n";
        std::fs::write(folder.path().join("metrics.jsonl"), log).unwrap();
        assert_eq!(training_seconds(folder.path(), 8), Some(2.0 + 4.0));
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_seeds() {
        let knn = |trained| Accuracies { trained, untrained: 30.0, raw_pixels: 40.0 };
        let mut cell = CellSummary {
            runs: 3,
            judged: vec![knn(39.0), knn(50.0), knn(61.0)],
            collapsed: 0,
            failed: 0,
            open: 0,
            retries: 0,
            seconds: None,
            scores: vec![vec![1.0], vec![]],
        };
        assert_eq!(
            cell.scores.iter().map(|values| mean_and_deviation(values)).collect::<Vec<_>>(),
            [Some((1.0, None)), None]
        );
        assert_eq!(cell.mean_of(|k| k.trained), Some((50.0, Some(11.0))));
        assert_eq!(cell.above_both(), 2);
        cell.judged.truncate(1);
        assert_eq!(cell.mean_of(|k| k.trained), Some((39.0, None)));
        cell.judged.clear();
        assert_eq!(cell.mean_of(|k| k.trained), None);
    }
}
