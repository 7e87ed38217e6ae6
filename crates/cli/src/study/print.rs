//! What `study` prints: its table, or with `--dry-run` the list of its runs.

use std::path::Path;

use ::study::{Accuracies, Cell, CellSummary, Plan, Score, StudyFile, Summary, markdown, mean_and_deviation};
use serde_json::{Map, Value, json};
use ssl::recipe::Recipe;

use super::folder::run_in;
use super::found;
use crate::args::StudyArgs;
use crate::error::CliError;
use crate::output;

/// Prints the runs that are asked for, and how far they are.
pub fn list(
    plan: &Plan,
    selected: &[usize],
    recipes: &[Recipe],
    memory: &[u64],
    out: &Path,
    args: &StudyArgs,
) -> Result<(), CliError> {
    let about = |&number: &usize| {
        let (run, memory, steps) = (&plan.runs[number], &memory[number], recipes[number].total_steps());
        let state = found::state(&run_in(out, run), steps);
        if args.json {
            let (data, set) = (&run.source, &run.settings);
            let object = json!({ "run": run.name, "data": data, "set": set, "steps": steps, "memory": memory, "state": state.word() });
            return object.to_string();
        }
        let memory = if *memory > 0 { format!(", {}", text::bytes(*memory)) } else { String::new() };
        format!("{}  {}{memory}{state}", run.name, text::count(steps as usize, "step"))
    };
    let lines: Vec<String> = selected.iter().map(about).collect();
    output::result(&(lines.join("\n") + "\n"))
}

/// Prints the table.
pub fn print(summary: &Summary<'_>, file: &StudyFile, args: &StudyArgs, out: &Path) -> Result<(), CliError> {
    if !args.json {
        let names = "table.md, table.csv, runs.csv, figure.svg";
        let has_pages = out.join("evaluations").is_dir();
        let pages = if has_pages { ", and in evaluations/ a page for each network" } else { "" };
        return output::result(&format!("{}\n{} has {names}{pages}\n", markdown(summary), text::shown(out)));
    }
    let scores = |found: &CellSummary| {
        let score = |(score, values): (&&Score, &Vec<f64>)| {
            let (mean, deviation) = mean_and_deviation(values).unzip();
            (score.key.to_owned(), json!({ "mean": mean, "deviation": deviation.flatten(), "runs": values.len() }))
        };
        summary.plan.scores.iter().zip(&found.scores).map(score).collect::<Map<_, _>>()
    };
    let row = |(cell, found): (&Cell, &CellSummary)| {
        let number = |number: fn(&Accuracies) -> f64| found.mean_of(number).map(|(mean, _)| mean);
        let deviation = found.mean_of(|knn| knn.trained).and_then(|(_, deviation)| deviation);
        let varied: Map<String, Value> = cell.varied.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        json!({
            "data": cell.data, "recipe": cell.recipe, "grid": varied, "runs": found.runs,
            "knn_mean": number(|knn| knn.trained), "knn_deviation": deviation,
            "raw_pixels": number(|knn| knn.raw_pixels), "untrained": number(|knn| knn.untrained),
            "above_both": found.above_both(), "collapsed": found.collapsed, "retries": found.retries,
            "failed": found.failed, "open": found.open, "seconds": found.seconds, "scores": scores(found),
        })
    };
    let rows: Vec<Value> = summary.plan.cells.iter().zip(&summary.cells).map(row).collect();
    output::json(&json!({ "study": text::shown(out), "seeds": file.seeds, "rows": rows }))
}
