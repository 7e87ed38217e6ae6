//! `inspect`: what a weights file or a run holds.

use std::fmt::Write;
use std::path::Path;

use model::VitConfig;
use model::weights::{LoadOptions, WeightsError, WeightsFile};
use serde_json::Value;
use ssl::recipe::{self, Recipe};
use ssl::setup::vit_config;
use text::{bytes, count, thousands};
use train::run::{Checkpoint, Damage, RunReader};

use crate::args::InspectArgs;
use crate::error::CliError;
use crate::output;

/// Prints what is there.
pub fn run(args: &InspectArgs) -> Result<(), CliError> {
    let path = &args.weights;
    let text = if path.is_dir() { of_run(path)? } else { of_file(path)? };
    output::result(&text)
}

fn of_run(path: &Path) -> Result<String, CliError> {
    let run = RunReader::open(path)?;
    let recipe = recipe::of_run(&run)?;
    let total = recipe.total_steps();
    let facts = recipe.facts();
    let mut text = format!("{}: a run of {}\n", text::shown(path), in_words(&recipe)?);
    let labels = if facts.labelled { "labelled" } else { "without labels" };
    line(&mut text, "data", &format!("{}, {} (the median), {labels}", count(facts.images, "image"), facts.size()));
    line(&mut text, "recipe", &summary(&recipe));

    let mut checkpoints = Vec::new();
    let mut newest = None;
    for (step, file) in run.checkpoints()? {
        let size = std::fs::metadata(&file).map_or(0, |m| m.len());
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let state = match Checkpoint::read(&file) {
            Ok(_) => {
                newest = newest.or(Some(step));
                "sound".to_owned()
            }
            Err(damage) => damage.to_string(),
        };
        checkpoints.push(format!("{name}  {}  {state}", bytes(size)));
    }
    let result = run.result(total);
    let is_damaged = newest.is_none() && !checkpoints.is_empty();
    let done = if result.is_some() { total } else { newest.unwrap_or(0) };
    let epochs = done as f64 / recipe.steps_per_epoch().max(1) as f64;
    let state = match (done == total, is_damaged) {
        (true, false) => "finished",
        (true, true) => "finished; no checkpoint can be read any more, only the backbone",
        (false, false) => "not finished; the command that started it continues it",
        (false, true) => "not finished, and no checkpoint can be read: it cannot be continued",
    };
    line(
        &mut text,
        "progress",
        &format!(
            "step {} of {}, {epochs:.1} of {}: {state}",
            thousands(done),
            thousands(total),
            count(recipe.epochs(), "epoch")
        ),
    );
    for (title, key) in [("metrics", "loss"), ("", "knn_top1")] {
        if let Some(record) = run.last_record(key)? {
            line(&mut text, title, &metrics(&record));
        }
    }
    if let Some(knn) = result.and_then(|result| result.knn) {
        line(
            &mut text,
            "result",
            &format!(
                "top-1 kNN (k={}) on {}: raw pixels {:.1} %, untrained {:.1} %, trained {:.1} %",
                knn.k,
                text::printable(&knn.judged),
                knn.raw_pixels,
                knn.untrained,
                knn.trained
            ),
        );
    }
    if checkpoints.is_empty() {
        checkpoints.push("none yet".to_owned());
    }
    for (i, checkpoint) in checkpoints.iter().enumerate() {
        line(&mut text, if i == 0 { "checkpoints" } else { "" }, checkpoint);
    }
    Ok(text)
}

fn line(text: &mut String, title: &str, content: &str) {
    // Writing into a string does not fail.
    _ = writeln!(text, "  {title:11}  {content}");
}

fn in_words(recipe: &Recipe) -> Result<String, CliError> {
    Ok(format!(
        "{}, prototypes {}, centering {}; {}: {}",
        recipe.method(),
        recipe.prototypes(),
        recipe.centering(),
        recipe.arch(),
        network(&vit_config(recipe)?)
    ))
}

/// The keys that tell runs apart most often; config.toml has all.
fn summary(recipe: &Recipe) -> String {
    const SHOWN: [&str; 10] = [
        "epochs",
        "batch_size",
        "lr",
        "out_dim",
        "global_size",
        "local_size",
        "local_crops",
        "teacher_temp",
        "momentum_teacher",
        "seed",
    ];
    let lines = recipe.explain();
    let shown = lines.iter().filter(|line| SHOWN.contains(&line.key));
    shown.map(|line| format!("{} {}", line.key, line.value)).collect::<Vec<_>>().join(", ")
}

/// What of a record of the log tells most; metrics.jsonl has all.
fn metrics(record: &Value) -> String {
    const SHOWN: [&str; 8] = [
        "loss",
        "divergence",
        "teacher_entropy",
        "prototypes_in_use",
        "kappa_median",
        "feature_rank",
        "images_per_second",
        "knn_top1",
    ];
    let shown = SHOWN.iter().filter_map(|&key| match record.get(key)? {
        Value::Number(x) if x.is_f64() => Some(format!("{key} {}", short(x.as_f64()?))),
        value => Some(format!("{key} {value}")),
    });
    let step = record.get("step").map_or(String::new(), |step| format!("step {step}: "));
    step + &shown.collect::<Vec<_>>().join(", ")
}

/// About four significant digits.
fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if (1e-3..1e5).contains(&a) => {
            let digits = (3 - a.log10().floor() as i32).max(0) as usize;
            format!("{x:.digits$}")
        }
        _ => format!("{x:.2e}"),
    }
}

fn of_file(path: &Path) -> Result<String, CliError> {
    let file = WeightsFile::open(path)?;
    let mut text = format!("{}: {}", text::shown(path), file.summary());
    if file.metadata().get("format").is_some_and(|format| format == eval::FEATURES_FORMAT) {
        text += "features, a row for each image: `names` and `class_names` beside them are JSON\n";
        return Ok(text);
    }
    match Checkpoint::read(path) {
        Ok(checkpoint) => _ = writeln!(text, "checkpoint of step {}, its checksum is right", checkpoint.step()),
        // A safetensors file of somebody else.
        Err(Damage::Foreign(_)) => {}
        Err(source) => return Err(CliError::Checkpoint { path: path.to_owned(), source }),
    }
    match file.vit_config(&LoadOptions::default()) {
        Ok((config, report)) => _ = writeln!(text, "backbone: complete: {}\n  {report}", network(&config)),
        Err(error @ (WeightsError::Grid { .. } | WeightsError::Heads { .. })) => {
            _ = writeln!(text, "backbone: complete, but its shape is not: {error}");
        }
        Err(error @ WeightsError::IncompleteBackbone { .. }) => match file.match_report(None) {
            Ok(report) => _ = writeln!(text, "backbone: not complete\n  {report}"),
            Err(_) => _ = writeln!(text, "backbone: {error}"),
        },
        Err(error) => _ = writeln!(text, "backbone: cannot be loaded: {error}"),
    }
    Ok(text)
}

fn network(config: &VitConfig) -> String {
    let VitConfig { dim, depth, heads, patch, image: (height, width), channels, .. } = config;
    let (blocks, heads) = (count(*depth, "block"), count(*heads, "head"));
    format!(
        "ViT of width {dim}, {blocks}, {heads}, patches of {patch} pixels, for images of {height}x{width} \
         with {channels} channels"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        assert_eq!(
            [0.0, 0.123456, 8.31777, 1234.5, 123456.0, 1e-6].map(short),
            ["0", "0.1235", "8.318", "1234", "1.23e5", "1.00e-6"]
        );
    }

    #[test]
    fn a_record_begins_with_its_step() {
        let record = serde_json::json!({ "prototypes_in_use": 3, "loss": 2.0, "epoch": 3, "step": 7 });
        assert_eq!(metrics(&record), "step 7: loss 2.000, prototypes_in_use 3");
    }
}
