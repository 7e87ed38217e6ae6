//! The run of a fine-tuning as `inspect` tells of it: its settings, how far it is, and the best epoch so far.

use std::path::Path;

use eval::finetune::{Best, best};
use serde_json::{Map, Value, json};
use text::thousands;
use train::run::{Activity, BACKBONE_FILE, RunReader};

use crate::error::CliError;

/// What there is to tell.
pub struct FineTuneAccount {
    path: String,
    state: &'static str,
    settings: Vec<(String, String)>,
    step: u64,
    saved: Option<u64>,
    total: Option<u64>,
    best: Option<Best>,
    has_weights: bool,
}

impl FineTuneAccount {
    /// Reads a run's folder.
    pub fn of(path: &Path) -> Result<Self, CliError> {
        let run = RunReader::open(path)?;
        let activity = run.activity();
        let total = run.identity()?.map(|identity| identity.steps);
        let result = total.and_then(|total| run.result(total));
        let state = match (activity, result) {
            (Some(Activity::Training { .. }), _) => "running",
            (_, Some(_)) => "finished",
            (Some(Activity::Ended), None) => "stopped",
            (Some(Activity::Killed), None) => "killed",
            (None, None) => "unfinished",
        };
        let (config, _) = run.config()?;
        let pair = |line: &str| {
            let (key, value) = line.split_once('=')?;
            Some((key.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
        };
        let saved = run.latest_checkpoint()?.checkpoint.map(|checkpoint| checkpoint.step());
        Ok(Self {
            path: text::shown(path).to_string(),
            state,
            settings: config.lines().filter_map(pair).collect(),
            step: run.last_step().unwrap_or(0),
            saved,
            total,
            best: best(&run)?,
            has_weights: path.join(BACKBONE_FILE).is_file(),
        })
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let settings: Map<String, Value> =
            self.settings.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let best = self.best.map(|b| {
            json!({ "top1": b.top1, "epoch": b.epoch, "last_top1": b.last_top1, "last_top5": b.last_top5, "last_epoch": b.last_epoch })
        });
        json!({
            "kind": "fine-tuning", "path": self.path, "state": self.state, "step": self.step, "saved_step": self.saved,
            "total_steps": self.total, "recipe": settings, "best": best, "weights": self.has_weights.then_some(BACKBONE_FILE),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let of = self.total.map_or(String::new(), |total| format!(" of {}", thousands(total as usize)));
        let saved = self.saved.map_or("none".to_owned(), |step| format!("step {}", thousands(step as usize)));
        let mut text = format!(
            "fine-tuning {}: {}, step {}{of}, saved: {saved}\n",
            self.path,
            self.state,
            thousands(self.step as usize)
        );
        match self.best {
            Some(b) => {
                let Best { top1, epoch, last_top1, last_top5, last_epoch } = b;
                text += &format!(
                    "best top-1 {top1:.2} % after epoch {epoch}; after epoch {last_epoch} top-1 {last_top1:.2} %, top-5 \
                     {last_top5:.2} %\n"
                );
            }
            None => text += "no epoch has been judged yet\n",
        }
        let widest = self.settings.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        self.settings.iter().for_each(|(key, value)| text += &format!("  {key:widest$}  {value}\n"));
        text
    }
}
