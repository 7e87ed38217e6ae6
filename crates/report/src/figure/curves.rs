//! A number over the epochs of several runs: a line for each recipe, the mean over its seeds, with a band from the least to
//! the largest.

use std::collections::BTreeMap;

use super::{Figure, merged};
use crate::account::Account;
use crate::chart::{Chart, Series};

/// Settings that tell neither recipes nor accuracies apart: where a run computes and what it keeps.
const BESIDE: [&str; 8] = [
    "seed",
    "workers",
    "log_every",
    "checkpoint_minutes",
    "keep_checkpoints",
    "knn_every",
    "accumulate",
    "checkpoint_activations",
];

/// The figure of one number of the log (`knn_top1`, `loss`, ...) for some runs. Runs whose recipes differ in their seeds alone
/// share a line.
pub fn figure(runs: &[Account], key: &str) -> Figure {
    let mut groups: Vec<(String, Vec<&Account>)> = Vec::new();
    for run in runs {
        let recipe: String = run
            .settings
            .iter()
            .filter(|setting| !BESIDE.contains(&setting.key.as_str()))
            .map(|setting| format!("{}={}\n", setting.key, setting.value))
            .collect();
        match groups.iter_mut().find(|(known, _)| *known == recipe) {
            Some((_, runs)) => runs.push(run),
            None => groups.push((recipe, vec![run])),
        }
    }
    let series: Vec<Series> = groups.iter().filter_map(|(_, runs)| line(runs, key)).collect();
    let columns = |s: &Series| {
        let edge = |what: &str, of: fn(&(f64, f64, f64)) -> f64| {
            Series::new(format!("{}, {what}", s.name), s.band.iter().map(|point| (point.0, of(point))).collect())
        };
        match s.band.is_empty() {
            true => vec![s.clone()],
            false => vec![s.clone(), edge("least", |p| p.1), edge("largest", |p| p.2)],
        }
    };
    let numbers: Vec<Series> = series.iter().flat_map(columns).collect();
    let title = if key == "knn_top1" { "kNN top-1, per cent".to_owned() } else { key.to_owned() };
    let chart = Chart { title, across: "epoch".to_owned(), series, ..Default::default() };
    Figure { charts: vec![chart], table: merged("epoch", &numbers) }
}

/// The mean of some runs where all of them have a value, and the range of their values.
fn line(runs: &[&Account], key: &str) -> Option<Series> {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let points = run.history.column(key).map(|column| column.points()).unwrap_or_default();
        points
            .iter()
            .filter(|p| p.1.is_finite())
            .for_each(|&(step, value)| at.entry(step as u64).or_default().push(value));
    }
    at.retain(|_, values| values.len() == runs.len());
    let first = runs.first().filter(|_| !at.is_empty())?;
    let seeds = match runs.len() - 1 {
        0 => String::new(),
        more => format!(" and {}", text::count(more, "more run")),
    };
    let epochs = first.steps_per_epoch();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let points = at.iter().map(|(&step, values)| (step as f64 / epochs, mean(values))).collect();
    let range =
        |values: &[f64]| values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
    let band = match runs.len() {
        // One run has no range.
        1 => Vec::new(),
        _ => at.iter().map(|(&step, values)| (step as f64 / epochs, range(values).0, range(values).1)).collect(),
    };
    Some(Series { name: format!("{}{seeds}", first.name), points, band })
}
