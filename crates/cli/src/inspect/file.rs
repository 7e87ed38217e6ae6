//! A file as `inspect` tells of it: weights, a checkpoint or features.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use eval::{InputSpec, Normalization};
use model::VitConfig;
use model::weights::{HeadsFrom, KeyLayout, LoadOptions, LoadReport, Packing, WeightsError, WeightsFile};
use serde_json::{Value, json};
use train::run::{Checkpoint, Damage};

use super::network;
use crate::args::InspectArgs;
use crate::description;
use crate::error::CliError;
use crate::weights::{GivenWeightsError, grid_taken, trained_size};

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
        /// What it says of its network.
        said: BTreeMap<String, String>,
        backbone: Box<Backbone>,
    },
}

/// The backbone in a file.
enum Backbone {
    Complete { config: VitConfig, report: LoadReport },
    Not { problem: String },
}

impl FileAccount {
    /// Reads a file; the arguments say what is known of the network elsewhere.
    pub fn of(path: &Path, args: &InspectArgs) -> Result<Self, CliError> {
        let file = WeightsFile::open(path)?;
        if file.metadata().get("format").is_some_and(|format| format == eval::FEATURES_FORMAT) {
            return Ok(Self { file, content: Content::Features });
        }
        let (checkpoint, said) = match Checkpoint::read(file.path()) {
            _ if file.packing() != Packing::Safetensors => (None, file.metadata().clone()),
            Ok(checkpoint) => {
                let said = description::of_checkpoint(checkpoint.state()).unwrap_or_default();
                (Some((checkpoint.step(), checkpoint.run().map(str::to_owned))), said)
            }
            // A safetensors file of somebody else.
            Err(Damage::Foreign(_)) => (None, file.metadata().clone()),
            Err(source) => return Err(GivenWeightsError::Checkpoint { path: path.to_owned(), source }.into()),
        };
        let said_heads = said.get("heads").and_then(|heads| heads.parse().ok());
        let known = InputSpec::from_metadata(&said).ok().flatten().map(|input| input.size);
        let image = trained_size(path, args.trained_size, known)?;
        let heads = args.heads.map(|heads| heads as usize).or(said_heads);
        let options = LoadOptions { heads, image, ..Default::default() };
        let backbone = match file.vit_config(&options) {
            Ok((config, report)) => Backbone::Complete { config, report },
            Err(error @ (WeightsError::Grid { .. } | WeightsError::Heads { .. })) => {
                Backbone::Not { problem: format!("complete, but its shape is not known: {error}") }
            }
            Err(error @ WeightsError::IncompleteBackbone { .. }) => match file.match_report(None) {
                Ok(report) => Backbone::Not { problem: format!("not complete\n  {report}") },
                Err(_) => Backbone::Not { problem: error.to_string() },
            },
            Err(error) => Backbone::Not { problem: format!("cannot be loaded: {error}") },
        };
        Ok(Self { file, content: Content::Weights { checkpoint, said, backbone: Box::new(backbone) } })
    }

    /// How to load a backbone elsewhere; in a checkpoint the tensors have other names.
    fn in_python(&self, config: &VitConfig, report: &LoadReport, said: &BTreeMap<String, String>) -> Option<String> {
        let is_of_timm = matches!(report.layout, KeyLayout::Dino | KeyLayout::Timm) && config.extras.registers == 0;
        // Where no position is the class token's, the code would have to say so.
        let positions = self.file.tensor("pos_embed").and_then(|tensor| tensor.shape.get(1).copied());
        let (rows, columns) = config.grid();
        let is_of_timm = is_of_timm && positions == Some(rows * columns + 1);
        let is_loaded_so = self.file.packing() == Packing::Safetensors && is_of_timm;
        if report.role.is_some() || !report.left_over.is_empty() || !is_loaded_so {
            return None;
        }
        let normalization = Normalization::from_metadata(said, config.channels).ok().flatten();
        let normalization = normalization.unwrap_or_else(|| Normalization::usual(config.channels));
        Some(description::timm_snippet(&text::shown(self.file.path()), config, &normalization))
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}", text::shown(self.file.path()), self.file.summary());
        let Content::Weights { checkpoint, said, backbone } = &self.content else {
            return text
                + "features, a row for each image: `names` and `class_names` beside them are JSON, the rest tells the network\n";
        };
        // Writing into a string does not fail.
        if let Some((step, run)) = checkpoint {
            let run = run.as_ref().map_or(String::new(), |run| format!(" of run {run}"));
            _ = writeln!(text, "checkpoint of step {step}, its checksum is right{run}");
            said.iter().for_each(|(key, value)| _ = writeln!(text, "  {key}: {value}"));
        }
        match &**backbone {
            Backbone::Complete { config, report } => {
                _ = writeln!(text, "backbone: complete: {}\n  {report}", network(config));
                if let Some(HeadsFrom::Known(name)) = report.heads_from {
                    _ = writeln!(text, "  the heads are those of every {name} of DINO and timm: the file does not say");
                }
                if let Some(grid) = report.grid_taken {
                    _ = writeln!(text, "  {}", grid_taken(grid));
                }
                if let Some(snippet) = self.in_python(config, report, said) {
                    text = text + "in Python, with timm:\n" + &snippet;
                }
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
            "path": text::shown(self.file.path()).to_string(),
            "bytes": self.file.file_bytes(),
            "packing": self.file.packing().to_string(),
            "tensors": tensors,
            "metadata": self.file.metadata(),
        });
        object["kind"] = json!(match &self.content {
            Content::Features => "features",
            Content::Weights { checkpoint: Some(_), .. } => "checkpoint",
            Content::Weights { checkpoint: None, .. } => "weights",
        });
        if let Content::Weights { checkpoint, backbone, said } = &self.content {
            if let Some((step, run)) = checkpoint {
                object["step"] = json!(step);
                object["run"] = json!(run);
                object["network"] = json!(said);
            }
            object["backbone"] = match &**backbone {
                Backbone::Complete { config: c, .. } => json!({
                    "complete": true, "width": c.dim, "blocks": c.depth, "heads": c.heads, "patch_size": c.patch,
                    "image_size": [c.image.0, c.image.1], "channels": c.channels, "registers": c.extras.registers,
                    "layer_scale": c.extras.layer_scale, "problem": null,
                }),
                Backbone::Not { problem } => json!({ "complete": false, "problem": problem }),
            };
        }
        object
    }
}
