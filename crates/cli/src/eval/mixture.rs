//! `eval mixture`: a mixture of von Mises-Fisher distributions fitted to features, beside a network's own prototypes.

use std::ops::ControlFlow;

use eval::{Features, mixture};
use serde_json::{Value, json};
use tensor::Device;
use vmf::{Assignment, FitOptions, MixtureFit, VmfMixture};

use super::head::Head;
use super::record::{self, Evaluation, Judgement};
use super::sets::{self, Sets};
use super::shelf::Shelf;
use crate::args::{AssignmentArg, MixtureArgs};
use crate::error::CliError;
use crate::output;
use crate::progress::{Console, Meter};

const MIXTURE: Evaluation = Evaluation { name: "mixture", version: 1 };

/// A mixture on a sphere, and how it describes training and held-out images.
struct Row {
    sphere: &'static str,
    mixture: &'static str,
    fitted: VmfMixture,
    fit: Option<MixtureFit>,
    train: mixture::MixtureScore,
    test: Option<mixture::MixtureScore>,
}

/// Fits and judges.
pub fn judge(args: &MixtureArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let opened = sets::open(&args.sets, None, shelf)?;
    let run_head = match (opened.seen(), &args.sets.weights) {
        (Some(seen), Some(_)) => Some(Head::as_mixture(seen.weights, seen.device)?),
        _ => None,
    };
    let sets = opened.compute()?;
    let classes = sets.train.features.labels.iter().flatten().max().map(|&last| last as usize + 1);
    let components = args.components.map(|k| k as usize).or(classes).ok_or(CliError::NoComponents)?;
    let options = FitOptions {
        components,
        assignment: match args.assignment {
            AssignmentArg::Soft => Assignment::Soft,
            AssignmentArg::Hard => Assignment::Hard,
        },
        shared_kappa: args.shared_kappa,
        starts: args.starts as usize,
        seed: args.seed,
        iterations: args.iterations as usize,
        largest_kappa: args.largest_kappa,
        ..FitOptions::new(components)
    };
    let test = sets.test.as_ref().map(|test| &test.features);
    let mut rows = vec![fitted("features", &sets.train.features, test, &options, &sets.host)?];
    match run_head {
        Some(Ok(head)) => {
            let train = head.project(&sets.train.features)?;
            let test = test.map(|test| head.project(test)).transpose()?;
            rows.push(fitted("head", &train, test.as_ref(), &options, &sets.host)?);
            let prototypes = head.mixture()?;
            let reweighted = mixture::reweighted(&prototypes, &train, &sets.host)?;
            for (name, mixture) in [("prototypes", prototypes), ("prototypes, weights fitted", reweighted)] {
                rows.push(judged("head", name, mixture, None, &train, test.as_ref(), &sets.host)?);
            }
        }
        Some(Err(why)) => output::note(&format!("no prototypes beside it: {why}")),
        None => {}
    }
    let settings = json!({
        "components": components, "assignment": if args.assignment == AssignmentArg::Soft { "soft" } else { "hard" },
        "shared_kappa": args.shared_kappa, "starts": args.starts, "iterations": args.iterations,
        "tolerance": options.tolerance, "largest_kappa": args.largest_kappa, "seed": args.seed,
    });
    Ok(Judgement { record: record(settings, &sets, &rows), table: table(&sets, &rows) })
}

/// The mixture that fits the training features best.
fn fitted(
    sphere: &'static str,
    train: &Features,
    test: Option<&Features>,
    options: &FitOptions,
    host: &Device,
) -> Result<Row, CliError> {
    let total = (options.starts * (options.iterations + 1)) as u64;
    let console = Console::new(total);
    let mut meter = Meter::started(&console, "iteration");
    let fit = mixture::fit(train, options, host, &mut |at| {
        let done = at.start * (options.iterations + 1) + at.iteration + 1;
        meter.show(done as u64, total, &format!("start {}  {:.4} nats", at.start + 1, at.objective));
        ControlFlow::Continue(())
    });
    console.close();
    let fit = fit?;
    if !fit.converged {
        output::note(&format!(
            "warning: still gaining after {} iterations; --iterations N allows more",
            options.iterations
        ));
    }
    judged(sphere, "movMF", fit.mixture.clone(), Some(fit), train, test, host)
}

fn judged(
    sphere: &'static str,
    mixture: &'static str,
    fitted: VmfMixture,
    fit: Option<MixtureFit>,
    train: &Features,
    test: Option<&Features>,
    host: &Device,
) -> Result<Row, CliError> {
    let train = mixture::score(&fitted, train, host)?;
    let test = test.map(|test| mixture::score(&fitted, test, host)).transpose()?;
    Ok(Row { sphere, mixture, fitted, fit, train, test })
}

fn score(score: &mixture::MixtureScore) -> Value {
    json!({
        "log_likelihood": score.log_likelihood, "used": score.used,
        "purity": score.agreement.map(|a| a.purity), "nmi": score.agreement.map(|a| a.nmi),
    })
}

/// The smallest, the median and the largest concentration of components that have a weight.
fn kappas(row: &Row) -> [f64; 3] {
    let pairs = row.fitted.kappas().iter().zip(row.fitted.weights()).filter(|(_, weight)| **weight > 0.0);
    let mut kappas: Vec<f64> = pairs.map(|(kappa, _)| *kappa).collect();
    kappas.sort_by(f64::total_cmp);
    [0, kappas.len() / 2, kappas.len().saturating_sub(1)].map(|at| kappas.get(at).copied().unwrap_or(f64::NAN))
}

fn record(settings: Value, sets: &Sets, rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let [smallest, median, largest] = kappas(row);
        json!({
            "sphere": row.sphere, "mixture": row.mixture, "dimension": row.fitted.dimension(),
            "components": row.fitted.components(),
            "kappa": { "smallest": smallest, "median": median, "largest": largest },
            "iterations": row.fit.as_ref().map(|fit| fit.objective.len() - 1),
            "converged": row.fit.as_ref().map(|fit| fit.converged),
            "train": score(&row.train), "test": row.test.as_ref().map(score),
        })
    };
    let results = json!({ "results": rows.iter().map(row).collect::<Vec<_>>() });
    record::of_sets(MIXTURE, settings, sets, results)
}

fn table(sets: &Sets, rows: &[Row]) -> String {
    let judged = if sets.test.is_some() { "held-out" } else { "the same" };
    let mut text = format!(
        "mixtures fitted to {} and judged on {}, {}\nsphere    mixture                     components  median kappa  \
         log-likelihood  held-out  used  purity    NMI\n",
        text::count(sets.train.features.len(), "image"),
        text::count(sets.judged(), &format!("{judged} image")),
        sets.precision()
    );
    for row in rows {
        let on = row.test.as_ref().unwrap_or(&row.train);
        let of = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
        text += &format!(
            "{:8}  {:26}  {:10}  {:12.1}  {:14.4}  {:>8}  {:4}  {:>6}  {:>5}\n",
            row.sphere,
            row.mixture,
            row.fitted.components(),
            kappas(row)[1],
            row.train.log_likelihood,
            row.test.as_ref().map_or_else(|| "-".to_owned(), |test| format!("{:.4}", test.log_likelihood)),
            on.used,
            of(on.agreement.map(|a| a.purity)),
            of(on.agreement.map(|a| a.nmi)),
        );
    }
    text
}
