//! A safetensors file as `inspect` tells of it: weights, a checkpoint or features.

use std::fmt::Write;
use std::path::Path;

use model::VitConfig;
use model::weights::{LoadOptions, WeightsError, WeightsFile};
use serde_json::{Value, json};
use train::run::{Checkpoint, Damage};

use super::network;
use crate::error::CliError;

/// What there is to tell.
pub struct FileAccount {
    file: WeightsFile,
    content: Content,
}

/// What a file is.
enum Content {
    Features,
    Weights {
        /// The step and the run, where it is a checkpoint.
        checkpoint: Option<(u64, Option<String>)>,
        backbone: Backbone,
    },
}

/// The backbone in a file.
enum Backbone {
    Complete { config: VitConfig, report: String },
    Not { problem: String },
}

impl FileAccount {
    /// Reads a file.
    pub fn of(path: &Path) -> Result<Self, CliError> {
        let file = WeightsFile::open(path)?;
        if file.metadata().get("format").is_some_and(|format| format == eval::FEATURES_FORMAT) {
            return Ok(Self { file, content: Content::Features });
        }
        let checkpoint = match Checkpoint::read(path) {
            Ok(checkpoint) => Some((checkpoint.step(), checkpoint.run().map(str::to_owned))),
            // A safetensors file of somebody else.
            Err(Damage::Foreign(_)) => None,
            Err(source) => return Err(CliError::Checkpoint { path: path.to_owned(), source }),
        };
        let backbone = match file.vit_config(&LoadOptions::default()) {
            Ok((config, report)) => Backbone::Complete { config, report: report.to_string() },
            Err(error @ (WeightsError::Grid { .. } | WeightsError::Heads { .. })) => {
                Backbone::Not { problem: format!("complete, but its shape is not: {error}") }
            }
            Err(error @ WeightsError::IncompleteBackbone { .. }) => match file.match_report(None) {
                Ok(report) => Backbone::Not { problem: format!("not complete\n  {report}") },
                Err(_) => Backbone::Not { problem: error.to_string() },
            },
            Err(error) => Backbone::Not { problem: format!("cannot be loaded: {error}") },
        };
        Ok(Self { file, content: Content::Weights { checkpoint, backbone } })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}", self.file.path().display(), self.file.summary());
        let Content::Weights { checkpoint, backbone } = &self.content else {
            return text + "features, a row for each image: `names` and `class_names` beside them are JSON\n";
        };
        // Writing into a string does not fail.
        if let Some((step, run)) = checkpoint {
            let run = run.as_ref().map_or(String::new(), |run| format!(" of run {run}"));
            _ = writeln!(text, "checkpoint of step {step}, its checksum is right{run}");
        }
        match backbone {
            Backbone::Complete { config, report } => {
                _ = writeln!(text, "backbone: complete: {}\n  {report}", network(config));
            }
            Backbone::Not { problem } => _ = writeln!(text, "backbone: {problem}"),
        }
        text
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let tensors: Vec<Value> = (self.file.tensors().iter())
            .map(|t| json!({ "name": t.name, "element": t.element.to_string(), "shape": t.shape }))
            .collect();
        let mut object = json!({
            "path": self.file.path().display().to_string(),
            "bytes": self.file.file_bytes(),
            "tensors": tensors,
            "metadata": self.file.metadata(),
        });
        object["kind"] = json!(match &self.content {
            Content::Features => "features",
            Content::Weights { checkpoint: Some(_), .. } => "checkpoint",
            Content::Weights { checkpoint: None, .. } => "weights",
        });
        if let Content::Weights { checkpoint, backbone } = &self.content {
            if let Some((step, run)) = checkpoint {
                object["step"] = json!(step);
                object["run"] = json!(run);
            }
            object["backbone"] = match backbone {
                Backbone::Complete { config: c, .. } => json!({
                    "complete": true, "width": c.dim, "blocks": c.depth, "heads": c.heads, "patch_size": c.patch,
                    "image_size": [c.image.0, c.image.1], "channels": c.channels, "problem": null,
                }),
                Backbone::Not { problem } => json!({ "complete": false, "problem": problem }),
            };
        }
        object
    }
}
