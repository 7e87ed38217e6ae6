//! `eval linear`: a linear classifier on frozen features, trained on random views of the images or on stored features.

use std::ops::ControlFlow;

use eval::linear::{LinearProgress, ProbeImages, probe, probe_images};
use eval::{EvalError, LinearOptions, LinearResult, Network, Place, Pooling, ReadOptions};
use serde_json::{Value, json};

use super::record::{self, Evaluation, Judgement};
use super::sets::{self, Provenance, Seen};
use super::shelf::Shelf;
use crate::args::LinearArgs;
use crate::error::CliError;
use crate::features::{extract_pooled, orientation};
use crate::output;
use crate::progress::{Console, Meter};

const LINEAR: Evaluation = Evaluation { name: "linear", version: 1 };

/// Trains and judges.
pub fn judge(args: &LinearArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let rates = match (&args.rates[..], args.ibot_rates) {
        (_, true) => LinearOptions::ibot_rates(),
        ([], false) => LinearOptions::default().rates,
        (rates, false) => rates.to_vec(),
    };
    let (epochs, batch_size) = (args.epochs as usize, args.step_images as usize);
    let options = LinearOptions { rates, epochs, batch_size, seed: args.seed, ..Default::default() };
    options.check()?;
    let opened = sets::open(&args.sets, None, shelf)?;
    if !opened.has_test() {
        return Err(EvalError::Empty { which: "test" }.into());
    }
    let pooling = args.pooling.pooling();
    if opened.seen().is_none() && pooling != Pooling::default() {
        let (setting, value) = ("tokens, layers and norm", "given".to_owned());
        let expected = "nothing with stored features, which are what they are".to_owned();
        return Err(EvalError::Setting { setting, value, expected }.into());
    }
    opened.warn_of_copies();
    let is_augmented = opened.seen().is_some() && !args.no_augment;
    let settings = json!({
        "rates": options.rates, "epochs": options.epochs, "step_images": options.batch_size,
        "momentum": options.momentum, "views": if is_augmented { "random" } else { "fixed" }, "seed": options.seed,
        "features": opened.seen().map(|_| serde_json::Map::from_iter(
            pooling.metadata().map(|(key, value)| (key.to_owned(), Value::from(value))),
        )),
    });
    if let (Some(seen), true) = (opened.seen(), is_augmented) {
        return augmented(args, &options, settings, seen, opened.devices().0);
    }
    let sets = opened.compute_pooled(pooling)?;
    let Some(test) = &sets.test else { return Err(EvalError::Empty { which: "test" }.into()) };
    let result = watched(&options, sets.train.features.len(), |watch| {
        probe(&sets.train.features, &test.features, &options, Place::new(&sets.host, &sets.device), watch)
    })?;
    let table = table(&result, sets.train.features.len(), test.features.len(), &sets.precision());
    Ok(Judgement { record: record::of_sets(LINEAR, settings, &sets, object(&result)), table })
}

/// On random views: training features are computed anew in every epoch.
fn augmented(
    args: &LinearArgs,
    options: &LinearOptions,
    settings: Value,
    seen: Seen<'_>,
    host: &tensor::Device,
) -> Result<Judgement, CliError> {
    let Seen { weights, device, spec, input, workers, train, test } = seen;
    let Some(test) = test else { return Err(EvalError::Empty { which: "test" }.into()) };
    let held_out = extract_pooled(weights, &**test, input, args.pooling.pooling(), workers, device)?;
    let twins = device.twins(&weights.loaded.weights, train.len(), input.batch_size as usize)?;
    let network = Network {
        normalization: Some(&weights.normalization),
        pooling: args.pooling.pooling(),
        twins: &twins,
        ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device)
    };
    let mut read = ReadOptions { batch_size: input.batch_size as usize, ..Default::default() };
    read.orientation = orientation(weights, input);
    read.workers = workers.unwrap_or(read.workers);
    let size = weights.input.with_size(input.network.image_size).size;
    let images = ProbeImages { network, source: train.clone(), size, read };
    let (result, skipped) = watched(options, train.len(), |watch| {
        probe_images(&images, &held_out.features, options, Place::new(host, device), watch)
    })?;
    if !skipped.is_empty() {
        let (images, first) = (text::count(skipped.len(), "training image"), &skipped[0]);
        output::note(&format!("{images} could not be read, {} first: {}", first.name, first.reason));
    }
    let (trained, tested) = (train.len() - skipped.len(), held_out.features.len());
    let from = Provenance::of_network(weights, device, spec, &[("train", &**train), ("test", &**test)]);
    let mut record = record::object(LINEAR, settings, &from, object(&result));
    record["train_images"] = json!(trained);
    record["test_images"] = json!(tested);
    record["skipped"] = json!(skipped.len() + held_out.skipped.len());
    let precision = from.precision.as_deref().unwrap_or("f32");
    let table = table(&result, trained, tested, &format!("random views, features in {precision}"));
    Ok(Judgement { record, table })
}

/// Runs a probe with a progress bar.
fn watched<R>(
    options: &LinearOptions,
    images: usize,
    run: impl FnOnce(&mut dyn FnMut(LinearProgress<'_>) -> ControlFlow<()>) -> Result<R, EvalError>,
) -> Result<R, CliError> {
    let total = (options.epochs * images) as u64;
    let console = Console::new(total);
    let mut meter = Meter::started(&console, "image");
    let result = run(&mut |at| {
        let done = ((at.epoch - 1) * at.total + at.images) as u64;
        let last = at
            .last
            .map_or_else(String::new, |last| format!("  top-1 {:.2} %", last.top1.iter().copied().fold(0.0, f64::max)));
        meter.show(done, total, &format!("epoch {} of {}{last}", at.epoch, at.epochs));
        ControlFlow::Continue(())
    });
    console.close();
    Ok(result?)
}

fn object(result: &LinearResult) -> Value {
    let rates: Vec<Value> = result
        .rates
        .iter()
        .map(|r| json!({ "rate": r.rate, "epoch": r.epoch, "top1": r.top1, "top5": r.top5, "last_top1": r.last_top1 }))
        .collect();
    let best = result.rates.iter().position(|rate| *rate == result.best).unwrap_or(0);
    let epochs: Vec<Value> = result
        .epochs
        .iter()
        .map(|e| json!({ "epoch": e.epoch, "loss": e.losses[best], "top1": e.top1[best], "top5": e.top5[best] }))
        .collect();
    let best = result.best;
    json!({
        "top1": best.top1, "top5": best.top5, "best_rate": best.rate, "best_epoch": best.epoch,
        "last_top1": best.last_top1, "results": rates, "epochs": epochs,
    })
}

fn table(result: &LinearResult, trained: usize, tested: usize, how: &str) -> String {
    let (train, test) = (text::count(trained, "training image"), text::count(tested, "held-out image"));
    let mut text = format!("linear classifiers on {train}, judged on {test}, {how}\n");
    text += "         rate  best epoch  top-1 %  top-5 %  last top-1 %\n";
    for rate in &result.rates {
        let mark = if *rate == result.best { "  best" } else { "" };
        text += &format!(
            "{:13}  {:10}  {:7.2}  {:7.2}  {:12.2}{mark}\n",
            rate.rate, rate.epoch, rate.top1, rate.top5, rate.last_top1
        );
    }
    text
}
