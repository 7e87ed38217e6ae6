//! `eval precision`: kNN accuracy by the precision of the component that an image belongs to.

use std::cell::RefCell;
use std::path::Path;

use eval::precision::{PrecisionBin, by_length, rank_correlation};
use eval::prototypes::assign;
use eval::{KnnOptions, Place, knn};
use serde_json::{Value, json};
use text::count;

use super::head::Head;
use super::record::{self, Evaluation};
use super::sets::{self, Sets};
use crate::args::{PrecisionArgs, PrecisionSettings, SetsArgs};
use crate::error::CliError;
use crate::output;
use crate::progress::Pass;

const PRECISION: Evaluation = Evaluation { name: "precision", version: 2 };

/// Classifies, assigns, and prints an accuracy for each range.
pub fn run(args: &PrecisionArgs) -> Result<(), CliError> {
    let found = judge(&args.weights, &args.data, &args.how)?;
    if args.json {
        return output::json(&found.json());
    }
    output::result(&found.words())
}

/// What was found, and of what.
pub struct Found<'a> {
    how: &'a PrecisionSettings,
    head: Head,
    sets: Sets,
    bins: Vec<PrecisionBin>,
    /// Per cent of all images.
    top1: f64,
    images: usize,
    /// Prototypes that any image chose.
    used: usize,
    correlation: Option<f64>,
}

/// Classifies the images of a source, and sorts them by the lengths of their prototypes.
pub fn judge<'a>(path: &Path, data: &str, how: &'a PrecisionSettings) -> Result<Found<'a>, CliError> {
    let (input, inference) = (how.input.clone(), how.inference.clone());
    let (weights, data) = (Some(path.to_owned()), Some(data.to_owned()));
    let wanted = SetsArgs { weights, data, train: None, test: None, input, inference };
    let opened = sets::open(&wanted, how.split)?;
    let is_leave_one_out = !opened.has_test();
    let k = how.k as usize;
    let options = KnnOptions { ks: vec![k], temperature: how.temperature };
    options.check(opened.train_images().saturating_sub(usize::from(is_leave_one_out)))?;
    let Some((weights, device)) = opened.network() else {
        return Err(CliError::NoHead { path: path.to_owned() });
    };
    let head = Head::load(path, weights, &how.head, device)?;
    let device = device.clone();
    if is_leave_one_out && how.split.is_none() {
        output::note("no images are held out: each is classified by all others (leave-one-out)");
    }
    let sets = opened.compute()?;
    let (train, test) = (&sets.train.features, sets.test.as_ref().map(|test| &test.features));
    let judged = test.unwrap_or(train);
    let mut pass = Pass::new("image", judged.len());
    let mut progress = |done, total| pass.show(done, total);
    let chosen = assign(&head.loaded, head.kind(), head.temperature, judged, &device, &mut progress)?;
    let pass = RefCell::new(Pass::new("classified image", judged.len()));
    let tell = |done, total| _ = pass.borrow_mut().show(done, total);
    let place = Place::new(&sets.host, &sets.device).watched_by(&tell);
    let rightly = knn::rightly(train, test, k, how.temperature, place)?;
    let lengths: Vec<f64> = chosen.prototypes.iter().map(|&prototype| head.lengths[prototype as usize]).collect();
    let bins = by_length(&lengths, &rightly, how.bins as usize);
    let top1 = 100.0 * rightly.iter().filter(|right| **right).count() as f64 / rightly.len() as f64;
    let (correlation, used, images) = (rank_correlation(&lengths, &rightly), chosen.used(), rightly.len());
    Ok(Found { how, head, sets, bins, top1, images, used, correlation })
}

impl Found<'_> {
    /// The result as one object.
    pub fn json(&self) -> Value {
        let row =
            |bin: &PrecisionBin| json!({ "from": bin.from, "to": bin.to, "top1": bin.top1, "images": bin.images });
        let results = json!({
            "protocol": if self.sets.test.is_none() { "leave-one-out" } else { "held-out" },
            "bins": self.bins.iter().map(row).collect::<Vec<_>>(), "top1": self.top1, "used": self.used,
            "rank_correlation": self.correlation,
        });
        let mut settings = self.head.settings();
        settings["k"] = json!(self.how.k);
        settings["bins"] = json!(self.how.bins);
        settings["temperature"] = json!(self.how.temperature);
        record::of_sets(PRECISION, settings, &self.sets, results)
    }

    fn words(&self) -> String {
        let mut text = format!(
            "kNN (k = {}) of {} by |w| of their prototypes (prototypes {}, tau {}), top-1 of all {:.2} %\n      |w| from        to   images  top-1 %\n",
            self.how.k,
            count(self.images, "image"),
            self.head.prototypes,
            self.head.temperature,
            self.top1
        );
        for PrecisionBin { from, to, top1, images } in &self.bins {
            text += &format!("  {from:12.4} {to:9.4} {images:8}  {top1:7.2}\n");
        }
        if let Some(correlation) = self.correlation {
            text += &format!("rank correlation of |w| and being right, over images: {correlation:.3}\n");
        }
        text
    }
}
