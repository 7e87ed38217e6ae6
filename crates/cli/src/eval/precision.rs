//! `eval precision`: kNN accuracy by the precision of the component that an image belongs to.

use std::cell::RefCell;

use eval::precision::{PrecisionBin, by_length, rank_correlation};
use eval::prototypes::assign;
use eval::{KnnOptions, Place, knn};
use serde_json::json;
use text::count;

use super::head::Head;
use super::record::{self, Evaluation, Judgement};
use super::sets;
use super::shelf::Shelf;
use crate::args::{PrecisionArgs, SetsArgs};
use crate::error::CliError;
use crate::output;
use crate::progress::Pass;

const PRECISION: Evaluation = Evaluation { name: "precision", version: 2 };

/// Classifies and assigns: an accuracy for each range.
pub fn judge(args: &PrecisionArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let (input, inference) = (args.how.input.clone(), args.how.inference.clone());
    // Of stored features the head alone is taken from the weights.
    let weights = args.data.as_ref().map(|_| args.weights.clone());
    let (data, train, test) = (args.data.clone(), args.train.clone(), args.test.clone());
    let wanted = SetsArgs { weights, data, train, test, input, inference };
    let opened = sets::open(&wanted, args.how.split, shelf)?;
    let is_leave_one_out = !opened.has_test();
    let (k, bins) = (args.how.k as usize, args.how.bins as usize);
    let options = KnnOptions { ks: vec![k], temperature: args.how.temperature };
    options.check(opened.train_images().saturating_sub(usize::from(is_leave_one_out)))?;
    let device = opened.devices().1.clone();
    let weights = shelf.weights(&args.weights, &args.how.input.network, &device)?;
    let head = Head::load(&args.weights, &weights, &args.how.head, &device)?;
    if is_leave_one_out && args.how.split.is_none() {
        output::note("no images are held out: each is classified by all others (leave-one-out)");
    }
    let mut sets = opened.compute()?;
    if args.train.is_some() {
        sets.from = sets.from.by(&weights)?;
    }
    let (train, test) = (&sets.train.features, sets.test.as_ref().map(|test| &test.features));
    let judged = test.unwrap_or(train);
    let mut pass = Pass::new("image", judged.len());
    let mut progress = |done, total| pass.show(done, total);
    let chosen = assign(&head.loaded, head.kind(), head.temperature, judged, &device, &mut progress)?;
    let pass = RefCell::new(Pass::new("classified image", judged.len()));
    let tell = |done, total| _ = pass.borrow_mut().show(done, total);
    let place = Place::new(&sets.host, &sets.device).watched_by(&tell);
    let rightly = knn::rightly(train, test, k, args.how.temperature, place)?;
    let lengths: Vec<f64> = chosen.prototypes.iter().map(|&prototype| head.lengths[prototype as usize]).collect();
    let found = by_length(&lengths, &rightly, bins);
    let all = 100.0 * rightly.iter().filter(|right| **right).count() as f64 / rightly.len() as f64;
    let correlation = rank_correlation(&lengths, &rightly);
    let rows: Vec<_> = found
        .iter()
        .map(|bin| json!({ "from": bin.from, "to": bin.to, "top1": bin.top1, "images": bin.images }))
        .collect();
    let results = json!({
        "protocol": if is_leave_one_out { "leave-one-out" } else { "held-out" },
        "bins": rows, "top1": all, "used": chosen.used(), "rank_correlation": correlation,
    });
    let mut settings = head.settings();
    settings["k"] = json!(k);
    settings["bins"] = json!(bins);
    settings["temperature"] = json!(args.how.temperature);
    let record = record::of_sets(PRECISION, settings, &sets, results);
    let mut text = format!(
        "kNN (k = {k}) of {} by |w| of their prototypes (prototypes {}, tau {}), top-1 of all {all:.2} %\n      |w| from        to   images  top-1 %\n",
        count(rightly.len(), "image"),
        head.prototypes,
        head.temperature
    );
    for PrecisionBin { from, to, top1, images } in found {
        text += &format!("  {from:12.4} {to:9.4} {images:8}  {top1:7.2}\n");
    }
    if let Some(correlation) = correlation {
        text += &format!("rank correlation of |w| and being right, over images: {correlation:.3}\n");
    }
    Ok(Judgement { record, table: text })
}
