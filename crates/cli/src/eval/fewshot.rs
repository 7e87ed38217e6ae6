//! `eval fewshot`: held-out images classified by what was learnt from a few of each class.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use eval::fewshot::{self, Draw, FewShot, FewShotResult, Shots, lists};
use eval::{EvalError, Labelled, Pooling};
use serde_json::{Value, json};
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets::{self, Sets};
use super::shelf::Shelf;
use crate::args::{FewShotArgs, NormArg};
use crate::error::CliError;
use crate::output;
use crate::progress::{Console, Meter};

const FEWSHOT: Evaluation = Evaluation { name: "fewshot", version: 1 };
/// Numbers of images where none are asked for.
const DEFAULT_SHOTS: [usize; 3] = [1, 2, 5];

/// Learns from draws of each size.
pub fn judge(args: &FewShotArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let opened = sets::open(&args.sets, None, shelf)?;
    if !opened.has_test() {
        return Err(EvalError::Empty { which: "test" }.into());
    }
    let lists = args.lists.as_deref().map(lists::find).transpose()?;
    let pooling = Pooling { norm: args.norm == NormArg::After, ..Default::default() };
    let sets = opened.compute_pooled(pooling)?;
    let Some(test) = &sets.test else { return Err(EvalError::Empty { which: "test" }.into()) };
    let (train, test) = Labelled::both(&sets.train.features, &test.features)?;
    let sizes = match lists {
        Some(lists) => listed(&lists, &sets)?,
        None => drawn(args, &train)?,
    };
    let judge = FewShot::new(&train, &test, args.strength, &sets.host);
    let total: usize = sizes.iter().map(|(_, draws)| draws.len()).sum();
    let console = Console::new(total as u64);
    let mut meter = Meter::started(&console, "fit");
    let (mut results, mut done) = (Vec::new(), 0);
    for (shots, draws) in &sizes {
        let mut show = || {
            meter.show(done as u64, total as u64, &shots.to_string());
            ControlFlow::Continue(())
        };
        results.push((*shots, judge.judge_all(draws, &mut show)?));
        done += draws.len();
    }
    console.close();
    if results.iter().any(|(_, result)| !result.converged) {
        output::note("warning: a fit ended before it met its tolerances");
    }
    Ok(Judgement { record: record(args, &sets, &results), table: table(args, &sets, &results) })
}

/// The draws of each size, from lists.
fn listed(found: &[lists::Lists], sets: &Sets) -> Result<Vec<(Shots, Vec<Draw>)>, CliError> {
    if sets.train.names.is_empty() {
        let problem = "cannot be followed: the training features do not say which image each row is of".to_owned();
        let path = found.first().and_then(|lists| lists.files.first()).cloned().unwrap_or_default();
        return Err(EvalError::List { path, problem }.into());
    }
    let of_size = |lists: &lists::Lists| {
        let draws = lists.files.iter().map(|file| lists::read(file, &sets.train.names)).collect::<Result<_, _>>()?;
        Ok((lists.shots, draws))
    };
    found.iter().map(of_size).collect()
}

/// The draws of each size that was asked for, or the usual ones that every class has enough images for.
fn drawn(args: &FewShotArgs, train: &Labelled<'_>) -> Result<Vec<(Shots, Vec<Draw>)>, CliError> {
    let least = train.members().into_iter().filter(|&members| members > 0).min().unwrap_or(0);
    let mut sizes: Vec<Shots> = match &args.shots[..] {
        [] if args.percent.is_some() => Vec::new(),
        [] => DEFAULT_SHOTS.into_iter().filter(|&shots| shots <= least).map(Shots::PerClass).collect(),
        asked => {
            let sorted: BTreeSet<u32> = asked.iter().copied().collect();
            sorted.into_iter().map(|shots| Shots::PerClass(shots as usize)).collect()
        }
    };
    if args.shots.is_empty() && args.percent.is_none() && sizes.len() < DEFAULT_SHOTS.len() {
        output::note(&format!("a class has {} only: larger draws are left out", count(least, "training image")));
    }
    sizes.extend(args.percent.map(Shots::Percent));
    let of_size = |shots: Shots| {
        let draw = |split: u32| fewshot::draw(train, shots, split as usize, args.seed);
        Ok((shots, (0..args.splits).map(draw).collect::<Result<_, _>>()?))
    };
    sizes.into_iter().map(of_size).collect()
}

fn record(args: &FewShotArgs, sets: &Sets, results: &[(Shots, FewShotResult)]) -> Value {
    let row = |(shots, result): &(Shots, FewShotResult)| {
        let (per_class, percent) = match *shots {
            Shots::PerClass(images) => (Some(images), None),
            Shots::Percent(percent) => (None, Some(percent)),
        };
        json!({
            "shots": per_class, "percent": percent, "images": result.images, "top1": result.mean(),
            "deviation": result.deviation(), "splits": result.top1, "converged": result.converged,
        })
    };
    let rows: Vec<Value> = results.iter().map(row).collect();
    let lists = args.lists.as_ref().map(|lists| text::shown(lists).to_string());
    // What stored features are is for their own file to say.
    let norm = args.sets.weights.as_ref().map(|_| if args.norm == NormArg::After { "after" } else { "before" });
    let settings = json!({
        "norm": norm, "strength": args.strength, "seed": args.seed, "splits": args.splits, "lists": lists, "intercept": false,
        "preprocessing": "rows centred and scaled to unit length",
    });
    // The last is that of the most images of a class, or of the share.
    let results = json!({ "top1": rows.last().map(|row| row["top1"].clone()), "results": rows });
    record::of_sets(FEWSHOT, settings, sets, results)
}

fn table(args: &FewShotArgs, sets: &Sets, results: &[(Shots, FewShotResult)]) -> String {
    let judged = count(sets.judged(), "held-out image");
    let mut text = format!("few-shot on {judged}, {}, strength {}\n", sets.precision(), args.strength);
    text += "  learnt from     splits   top-1 %\n";
    for (shots, result) in results {
        let splits = result.top1.len();
        text += &format!("  {:14}  {splits:6}  {:8.2}", shots.to_string(), result.mean());
        if splits > 1 {
            text += &format!(" ± {:.2}", result.deviation());
        }
        text.push('\n');
    }
    text
}
