//! Which numbers of a run are drawn together, and beside what.

use crate::account::Account;
use crate::chart::{Chart, Reference, Series};

/// A chart of a page: the numbers of a log that it shows, the first of which stands for a run among others.
struct Curves {
    title: &'static str,
    /// Keys of the log, and what they are called.
    lines: &'static [(&'static str, &'static str)],
    /// Keys between which a band is drawn around the first line.
    band: Option<(&'static str, &'static str)>,
    references: fn(&Account) -> Vec<Reference>,
    is_logarithmic: bool,
}

const NOTHING: fn(&Account) -> Vec<Reference> = |_| Vec::new();

const CURVES: [Curves; 12] = [
    Curves {
        title: "kNN top-1, per cent",
        lines: &[("knn_top1", "trained so far")],
        band: None,
        references: baselines,
        is_logarithmic: false,
    },
    Curves {
        title: "Loss = divergence + entropy of the teacher",
        lines: &[("loss", "loss"), ("divergence", "divergence"), ("teacher_entropy", "teacher's entropy")],
        band: None,
        references: uniform,
        is_logarithmic: false,
    },
    Curves {
        title: "Loss of class tokens and of patches",
        lines: &[("class_loss", "class tokens"), ("patch_loss", "patches"), ("me_max", "me-max")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Prototypes in use",
        lines: &[("prototypes_in_use", "chosen at all"), ("usage_perplexity", "perplexity of their use")],
        band: None,
        references: prototypes,
        is_logarithmic: false,
    },
    Curves {
        title: "Concentration kappa of the student's prototypes (band: least to largest)",
        lines: &[("kappa_median", "median")],
        band: Some(("kappa_min", "kappa_max")),
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Effective rank of the features",
        lines: &[("feature_rank", "directions in which images differ")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Norm of the gradient",
        lines: &[("gradient_norm", "before clipping")],
        band: None,
        references: NOTHING,
        is_logarithmic: true,
    },
    Curves {
        title: "Learning rate",
        lines: &[("lr", "peak scaled by the batch")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Temperature of the teacher",
        lines: &[("teacher_temperature", "class tokens")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Momentum of the teacher",
        lines: &[("momentum", "share that stays in a step")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Images a second",
        lines: &[("images_per_second", "images a second")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Share of the time that waits for data",
        lines: &[("data_wait", "waiting")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
];

fn baselines(run: &Account) -> Vec<Reference> {
    let Some(knn) = run.result.as_ref().and_then(|result| result.knn.as_ref()) else { return Vec::new() };
    let start = if knn.is_given { "at the start" } else { "untrained" };
    vec![
        Reference { label: "raw pixels".to_owned(), value: knn.raw_pixels },
        Reference { label: start.to_owned(), value: knn.untrained },
    ]
}

fn uniform(run: &Account) -> Vec<Reference> {
    let prototypes = run.recipe.out_dim();
    vec![Reference { label: format!("uniform: ln {prototypes}"), value: (prototypes as f64).ln() }]
}

fn prototypes(run: &Account) -> Vec<Reference> {
    vec![Reference { label: "prototypes".to_owned(), value: run.recipe.out_dim() as f64 }]
}

/// The charts of one run: of every number that it has logged.
pub fn of_run(run: &Account) -> Vec<Chart> {
    let chart = |curves: &Curves| {
        let mut series: Vec<Series> = curves.lines.iter().filter_map(|&(key, name)| line(run, key, name)).collect();
        if let (Some(first), Some((low, high))) = (series.first_mut(), curves.band) {
            first.band = band(run, low, high);
        }
        filled(curves, series, (curves.references)(run))
    };
    CURVES.iter().map(chart).filter(|chart| !chart.is_empty()).collect()
}

/// The charts of several runs: a line for each, of the number that stands for it.
pub fn of_runs(runs: &[Account]) -> Vec<Chart> {
    let chart = |curves: &Curves| {
        let first = curves.lines.first().map(|(key, _)| *key).unwrap_or_default();
        let series = runs.iter().filter_map(|run| line(run, first, &run.name)).collect();
        filled(curves, series, Vec::new())
    };
    CURVES.iter().map(chart).filter(|chart| !chart.is_empty()).collect()
}

fn filled(curves: &Curves, series: Vec<Series>, references: Vec<Reference>) -> Chart {
    let (title, is_logarithmic) = (curves.title.to_owned(), curves.is_logarithmic);
    Chart { title, across: "epoch".to_owned(), series, references, is_logarithmic }
}

/// A number over the epochs; none where the run has not logged it.
fn line(run: &Account, key: &str, name: &str) -> Option<Series> {
    let points = run.history.column(key)?.points();
    let epochs = run.steps_per_epoch();
    Some(Series::new(name, points.into_iter().map(|(step, value)| (step / epochs, value)).collect()))
}

/// What lies between two numbers, which are logged together.
fn band(run: &Account, low: &str, high: &str) -> Vec<(f64, f64, f64)> {
    let (Some(low), Some(high)) = (line(run, low, ""), line(run, high, "")) else { return Vec::new() };
    let pairs = low.points.iter().zip(&high.points);
    let both = pairs.map(|(low, high)| (low.0, low.1, high.1));
    both.filter(|(at, low, high)| at.is_finite() && low.is_finite() && high.is_finite()).collect()
}
