//! Which numbers of a run are drawn together, and beside what.

use crate::account::Account;
use crate::chart::{Chart, Reference, Series};

/// A chart of a run's page: the numbers of a log that it shows.
struct Curves {
    title: &'static str,
    /// Whether it is for a run.
    when: fn(&Account) -> bool,
    /// Keys of the log, and what they are called.
    lines: &'static [(&'static str, &'static str)],
    /// Keys between which a band is drawn around the first line.
    band: Option<(&'static str, &'static str)>,
    references: fn(&Account) -> Vec<Reference>,
    is_logarithmic: bool,
}

const NOTHING: fn(&Account) -> Vec<Reference> = |_| Vec::new();
const ALWAYS: fn(&Account) -> bool = |_| true;

/// Whether the loss has other parts beside that of class tokens: patches, me-max, KoLeo. What the teacher's entropy is part of
/// is then the loss of class tokens.
fn has_parts(run: &Account) -> bool {
    run.history.column(CLASS_LOSS).is_some()
}

/// The key of the loss of class tokens, where that is not all of it.
const CLASS_LOSS: &str = "class_loss";

/// The charts of several runs side by side: what each shows of every run, and whether its axis is logarithmic.
const AMONG_RUNS: [(&str, &str, bool); 13] = [
    ("kNN top-1, per cent", "knn_top1", false),
    ("Loss", "loss", false),
    ("Loss of class tokens", CLASS_LOSS, false),
    ("Loss of patches", "patch_loss", false),
    ("Prototypes that the teacher chose for its last views", "prototypes_in_use", false),
    ("Concentration kappa of the student's prototypes, median", "kappa_median", false),
    ("Effective rank of the features", "feature_rank", false),
    ("Norm of the gradient, on a logarithmic axis", "gradient_norm", true),
    ("Learning rate", "lr", false),
    ("Temperature of the teacher", "teacher_temperature", false),
    ("Momentum of the teacher", "momentum", false),
    ("Images a second", "images_per_second", false),
    ("Share of the time that waits for data", "data_wait", false),
];

const CURVES: [Curves; 13] = [
    Curves {
        title: "kNN top-1, per cent",
        when: ALWAYS,
        lines: &[("knn_top1", "trained so far")],
        band: None,
        references: baselines,
        is_logarithmic: false,
    },
    Curves {
        title: "Loss = divergence + entropy of the teacher",
        when: |run| !has_parts(run),
        lines: &[("loss", "loss"), ("divergence", "divergence"), ("teacher_entropy", "teacher's entropy")],
        band: None,
        references: uniform,
        is_logarithmic: false,
    },
    Curves {
        title: "Loss of class tokens = divergence + entropy",
        when: has_parts,
        lines: &[(CLASS_LOSS, "class tokens"), ("divergence", "divergence"), ("teacher_entropy", "teacher's entropy")],
        band: None,
        references: uniform,
        is_logarithmic: false,
    },
    Curves {
        title: "Loss and its parts",
        when: has_parts,
        lines: &[
            ("loss", "loss"),
            (CLASS_LOSS, "class tokens"),
            ("patch_loss", "patches"),
            ("me_max", "me-max"),
            ("koleo", "KoLeo, before its weight"),
            ("kappa_prior", "prior on kappa"),
        ],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Prototypes that the teacher chose for its last views",
        when: ALWAYS,
        lines: &[("prototypes_in_use", "chosen at all"), ("usage_perplexity", "perplexity of the choice")],
        band: None,
        references: prototypes,
        is_logarithmic: false,
    },
    Curves {
        title: "Concentration kappa of the student's prototypes (band: least to largest)",
        when: ALWAYS,
        lines: &[("kappa_median", "median")],
        band: Some(("kappa_min", "kappa_max")),
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Effective rank of the features",
        when: ALWAYS,
        lines: &[("feature_rank", "directions in which images differ")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Norm of the gradient, on a logarithmic axis",
        when: ALWAYS,
        lines: &[("gradient_norm", "before clipping")],
        band: None,
        references: NOTHING,
        is_logarithmic: true,
    },
    Curves {
        title: "Learning rate",
        when: ALWAYS,
        lines: &[("lr", "peak scaled by the batch")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Temperature of the teacher",
        when: ALWAYS,
        lines: &[("teacher_temperature", "class tokens")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Momentum of the teacher",
        when: ALWAYS,
        lines: &[("momentum", "share that stays in a step")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Images a second",
        when: ALWAYS,
        lines: &[("images_per_second", "images a second")],
        band: None,
        references: NOTHING,
        is_logarithmic: false,
    },
    Curves {
        title: "Share of the time that waits for data",
        when: ALWAYS,
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
        let (title, is_logarithmic) = (curves.title.to_owned(), curves.is_logarithmic);
        let references = (curves.references)(run);
        Chart { title, across: "epoch".to_owned(), series, references, is_logarithmic, ..Default::default() }
    };
    CURVES.iter().filter(|curves| (curves.when)(run)).map(chart).filter(|chart| !chart.is_empty()).collect()
}

/// The charts of several runs: a line for each.
pub fn of_runs(runs: &[Account]) -> Vec<Chart> {
    let have_parts = runs.iter().any(has_parts);
    let chart = |&(title, key, is_logarithmic): &(&str, &str, bool)| {
        // The whole loss of a run without other parts is that of class tokens.
        let own = |run: &Account| if key == CLASS_LOSS && have_parts && !has_parts(run) { "loss" } else { key };
        // An empty line where a run has not logged it: every run has one colour on the whole page.
        let of = |run: &Account| line(run, own(run), &run.name).unwrap_or_else(|| Series::new(&run.name, Vec::new()));
        let series = runs.iter().map(of).collect();
        let (title, across) = (title.to_owned(), "epoch".to_owned());
        Chart { title, across, series, is_logarithmic, ..Default::default() }
    };
    AMONG_RUNS.iter().map(chart).filter(|chart| !chart.is_empty()).collect()
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
