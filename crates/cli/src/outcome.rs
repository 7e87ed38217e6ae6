//! What a run that has ended is worth, as it is printed.

use std::path::Path;

use serde_json::{Value, json};
use ssl::pretraining::Pretraining;
use ssl::recipe::Recipe;
use text::{count, printable, shell};
use train::Trainer;
use train::run::{Attempt, BACKBONE_FILE, CollapsedAt, REPORT_FILE, RunResult};

use crate::args::PretrainArgs;
use crate::collapse;
use crate::conclusion;
use crate::error::CliError;
use crate::longer;
use crate::output;
use crate::signals::Stop;

/// A run that has ended in one way or another, to be told of.
pub struct Ended<'a> {
    pub args: &'a PretrainArgs,
    pub out: &'a Path,
    pub recipe: &'a Recipe,
    /// The attempts before this one, which collapsed.
    pub attempts: &'a [Attempt],
}

impl Ended<'_> {
    /// Prints a result; the exit status that goes with it.
    pub fn print(&self, result: &RunResult) -> Result<u8, CliError> {
        let status = result.collapsed.map_or(0, |_| collapse::STATUS);
        if self.args.json {
            let has_weights = result.collapsed.is_none_or(|collapsed| collapsed.healthy.is_some());
            self.json(result.to_json(), has_weights)?;
        } else {
            let table = match result.collapsed {
                Some(at) => collapsed(result, at, self.out),
                None => {
                    let longer = |epochs| longer::command(self.args, self.recipe, self.out, epochs);
                    let shows = !self.args.no_report;
                    table(
                        result,
                        self.out,
                        &self.args.recipe.data,
                        self.recipe,
                        result.advised_epochs.map(longer),
                        shows,
                    )
                }
            };
            output::result(&(attempts(self.attempts) + &table))?;
        }
        Ok(status)
    }

    /// Tells of a run that somebody has stopped.
    pub fn stopped(&self, trainer: &Trainer<Pretraining>, stop: &Stop) -> Result<u8, CliError> {
        let (word, advice) = conclusion::of_a_stop(trainer, self.recipe)?;
        let (step, weights) = (trainer.step(), text::shown(&self.out.join(BACKBONE_FILE)).to_string());
        output::note(&format!("{weights} is the teacher of step {step}"));
        output::note(&advice);
        if self.args.json {
            self.json(json!({ "outcome": "stopped", "steps": step, "judgement": word, "advice": advice }), true)?;
        }
        Ok(stop.status())
    }

    fn json(&self, mut object: Value, has_weights: bool) -> Result<(), CliError> {
        object["run"] = json!(text::shown(self.out));
        object["weights"] = json!(has_weights.then(|| text::shown(&self.out.join(BACKBONE_FILE)).to_string()));
        object["attempts"] = self.attempts.iter().map(Attempt::to_json).collect();
        output::json(&object)
    }
}

/// What became of an attempt that collapsed, as the end of a sentence that begins with its number.
pub fn of_attempt(attempt: &Attempt) -> String {
    let changes: Vec<String> = attempt.changes.iter().map(|c| format!("{} {}", c.key, c.from)).collect();
    let (became, since) = (printable(&attempt.became), attempt.since);
    format!("became {became} at step {since}, with {}", printable(&changes.join(" and ")))
}

/// Attempts that collapsed before the one that ended, a line each.
fn attempts(attempts: &[Attempt]) -> String {
    attempts.iter().zip(1..).map(|(attempt, number)| format!("attempt {number} {}\n", of_attempt(attempt))).collect()
}

/// For people, of a run that a collapse ended: which weights there are, and last what became of it.
fn collapsed(result: &RunResult, at: CollapsedAt, run: &Path) -> String {
    let run = shell(&run.display().to_string());
    let mut text = match at.healthy {
        Some(step) => format!("weights   {run}/{BACKBONE_FILE}: the teacher of step {step}, before the collapse\n"),
        None => "weights   none: no checkpoint is from before the collapse\n".to_owned(),
    };
    text += "go on     the same command with --set on_collapse=continue\n";
    if let Some((_, advice)) = &result.judgement {
        text += &format!("\n{advice}\n");
    }
    text
}

/// For people: the accuracies, where the weights are and what can be done with them, and last what the run is worth.
/// `longer` is the command of a longer run, where that is advised; `shows` whether there is a page to look at.
fn table(result: &RunResult, run: &Path, data: &str, recipe: &Recipe, longer: Option<String>, shows: bool) -> String {
    let run = shell(&run.display().to_string());
    let data = shell(data);
    let mut text = match &result.knn {
        Some(t) => format!(
            "top-1 kNN (k={}) on {}:\n  raw pixels         {:5.1} %\n  {}  {:5.1} %\n  \
             trained network    {:5.1} %\n\n",
            t.k,
            printable(&t.judged),
            t.raw_pixels,
            if t.is_given { "at the start     " } else { "untrained network" },
            t.untrained,
            t.trained
        ),
        None => {
            let loss = result.loss.map_or(String::new(), |loss| format!(", last loss {loss:.4}"));
            format!("trained {}{loss}. There are no labels to judge it by\n\n", count(result.steps as usize, "step"))
        }
    };
    if result.substitutes > 0 {
        let times = count(result.substitutes as usize, "time");
        text += &format!("warning: another image stood in for one that could not be read, {times}\n\n");
    }
    text += &format!("weights   {run}/{} ({}/{}, DINO's names)\n", BACKBONE_FILE, recipe.arch(), recipe.patch_size());
    if shows {
        text += &format!("report    {run}/{REPORT_FILE}: open it in a browser\n");
    }
    text += &format!("next      dino-vmf features --weights {run} --data {data} --out features.safetensors\n");
    if result.knn.is_some() {
        text += &format!("          dino-vmf eval knn --weights {run} --data {data}\n");
    }
    if let Some(command) = longer {
        text += &format!("longer    {command}\n");
    }
    // Last, where it is read: what the run is worth.
    if let Some((_, advice)) = &result.judgement {
        text += &format!("\n{advice}\n");
    }
    text
}
