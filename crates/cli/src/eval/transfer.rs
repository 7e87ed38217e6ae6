//! `eval transfer`: test images classified by logistic regression on the training images, its penalty chosen by validation.

use std::ops::ControlFlow;
use std::time::Instant;

use data::source::Published;
use eval::logistic::{LogisticOptions, PathProgress};
use eval::transfer::{self, Metric, Selection, TransferOptions, TransferResult};
use eval::{EvalError, Labelled};
use serde_json::{Value, json};
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets::{self, Sets};
use super::shelf::Shelf;
use crate::args::TransferArgs;
use crate::error::CliError;
use crate::output;
use crate::progress::{Console, Meter};

const TRANSFER: Evaluation = Evaluation { name: "transfer", version: 1 };

/// The accuracy that is reported of a data set.
fn usual_metric(set: Option<Published>) -> Metric {
    use Published::{Aircraft, Caltech101, Flowers102, Pets};
    match set {
        Some(Aircraft | Caltech101 | Flowers102 | Pets) => Metric::MeanPerClass,
        _ => Metric::Top1,
    }
}

/// Chooses, fits and judges.
pub fn judge(args: &TransferArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let options = options(args);
    let published = args.dataset.map(|set| sets::open_published(&args.sets, set, args.seed, shelf));
    let published = published.transpose()?.flatten();
    let opened = match published {
        Some(opened) => opened,
        None => sets::open(&args.sets, None, shelf)?.with_validation(args.validation.as_ref())?,
    };
    if !opened.has_test() {
        return Err(EvalError::Empty { which: "test" }.into());
    }
    let sets = opened.seen_whole().compute()?;
    let Some(test) = &sets.test else { return Err(EvalError::Empty { which: "test" }.into()) };
    let (train, test) = Labelled::both(&sets.train.features, &test.features)?;
    let validation = sets.validation.as_ref().map(|set| Labelled::new(&set.features, "validation")).transpose()?;
    let problems = if options.selection == Selection::HoldOut { 1 } else { transfer::FOLDS };
    let console = Console::new((problems * options.strengths.len() + 1) as u64);
    let mut meter = Meter::started(&console, "fit");
    let mut show = |at: PathProgress| {
        meter.show(at.done as u64, at.total as u64, "logistic regression");
        ControlFlow::Continue(())
    };
    let started = Instant::now();
    let result = transfer::evaluate(&sets.host, &train, validation.as_ref(), &test, &options, &mut show);
    console.close();
    let (result, seconds) = (result?, started.elapsed().as_secs_f64());
    if result.converged < result.fits {
        let (missed, all) = (result.fits - result.converged, count(result.fits, "fit"));
        output::note(&format!("warning: {missed} of {all} ended before their tolerances were met"));
    }
    let record = record(args, &options, &sets, &result, seconds);
    Ok(Judgement { record, table: table(&options, &sets, &result) })
}

fn options(args: &TransferArgs) -> TransferOptions {
    let mut strengths = if args.strengths.is_empty() { transfer::strengths() } else { args.strengths.clone() };
    strengths.sort_by(f64::total_cmp);
    strengths.dedup();
    TransferOptions {
        selection: args.select.into(),
        metric: args.metric.map_or_else(|| usual_metric(args.dataset), Metric::from),
        strengths,
        seed: args.seed,
        solver: LogisticOptions {
            tolerance: args.tolerance,
            max_iterations: args.max_iterations as usize,
            ..Default::default()
        },
    }
}

fn record(args: &TransferArgs, options: &TransferOptions, sets: &Sets, result: &TransferResult, seconds: f64) -> Value {
    let score = |score: &transfer::StrengthScore| {
        let (accuracy, objective) = (score.accuracy, score.objective);
        json!({
            "strength": score.strength, "top1": accuracy.top1, "mean_per_class": accuracy.mean_per_class,
            "objective": objective,
        })
    };
    let scores: Vec<Value> = result.scores.iter().map(score).collect();
    let settings = json!({
        "select": options.selection.name(), "metric": options.metric.name(), "seed": options.seed,
        "dataset": args.dataset.map(Published::name), "strengths": options.strengths,
        "tolerance": options.solver.tolerance, "gap": options.solver.gap,
        "max_iterations": options.solver.max_iterations, "intercept": true,
    });
    let test = &result.test;
    let results = json!({
        "top1": test.top1, "mean_per_class": test.mean_per_class, "accuracy": test.get(options.metric),
        "best_strength": result.best_strength, "validation": scores, "fitted_images": result.fitted_images,
        "fits": result.fits, "converged": result.converged, "seconds": seconds,
    });
    record::of_sets(TRANSFER, settings, sets, results)
}

fn table(options: &TransferOptions, sets: &Sets, result: &TransferResult) -> String {
    let (metric, TransferResult { test, best_strength, .. }) = (options.metric, result);
    let on = match options.selection {
        Selection::CrossValidation => "5 stratified folds".to_owned(),
        Selection::HoldOut => match &sets.validation {
            Some(validation) => count(validation.features.len(), "validation image"),
            None => "a fifth of the training images".to_owned(),
        },
    };
    let (judged, learnt) = (count(sets.judged(), "test image"), count(result.fitted_images, "image"));
    let (top1, mean) =
        (format!("top-1           {:6.2} %\n", test.top1), format!("mean per class  {:6.2} %\n", test.mean_per_class));
    let accuracies = if metric == Metric::Top1 { [top1, mean] } else { [mean, top1] }.concat();
    format!(
        "logistic regression on {judged}, learnt from {learnt}, {}\nstrength {best_strength:.3e} of {} by {on}\n{accuracies}",
        sets.precision(),
        options.strengths.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_data_sets_are_judged_by_class() {
        let by_class = Published::ALL.iter().filter(|set| usual_metric(Some(**set)) == Metric::MeanPerClass);
        let names: Vec<&str> = by_class.map(|set| set.name()).collect();
        assert_eq!(names, ["aircraft", "caltech101", "flowers102", "pets"]);
        assert_eq!(usual_metric(None), Metric::Top1);
    }
}
