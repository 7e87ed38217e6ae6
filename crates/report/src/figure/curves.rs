//! A number over the epochs of several runs: a line for each recipe, the mean over its seeds, with a band from the least to
//! the largest.

use std::collections::BTreeMap;

use super::{Figure, Table};
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
    let mut rows = Vec::new();
    let (mut columns, names): (Vec<String>, Vec<&String>) =
        (vec!["epoch".to_owned()], series.iter().map(|s| &s.name).collect());
    for name in names {
        columns.extend([name.clone(), format!("{name}, least"), format!("{name}, largest")]);
    }
    for (i, s) in series.iter().enumerate() {
        for (point, (_, low, high)) in s.points.iter().zip(&s.band) {
            let mut row = vec![None; columns.len()];
            row[0] = Some(point.0);
            (row[1 + 3 * i], row[2 + 3 * i], row[3 + 3 * i]) = (Some(point.1), Some(*low), Some(*high));
            rows.push(row);
        }
    }
    let title = if key == "knn_top1" { "kNN top-1, per cent".to_owned() } else { key.to_owned() };
    let chart = Chart { title, across: "epoch".to_owned(), series, ..Default::default() };
    Figure { charts: vec![chart], table: Table { columns, rows } }
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
        more => format!(" and {}", text::count(more, "more seed")),
    };
    let epochs = first.steps_per_epoch();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let points = at.iter().map(|(&step, values)| (step as f64 / epochs, mean(values))).collect();
    let range =
        |values: &[f64]| values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
    let band = at.iter().map(|(&step, values)| (step as f64 / epochs, range(values).0, range(values).1)).collect();
    Some(Series { name: format!("{}{seeds}", first.name), points, band })
}
