//! `eval precision`: kNN accuracy by the precision of the component that an image belongs to.

use eval::precision::{PrecisionBin, by_length, rank_correlation};
use eval::prototypes::{Choice, assign};
use serde_json::{Value, json};
use text::count;

use super::headed::Headed;
use super::record::{self, Evaluation, Judgement};
use super::shelf::Shelf;
use crate::args::PrecisionArgs;
use crate::error::CliError;
use crate::output;
use crate::progress::Pass;

const PRECISION: Evaluation = Evaluation { name: "precision", version: 3 };

/// Classifies and assigns: an accuracy for each range.
pub fn judge(args: &PrecisionArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let headed = Headed::open(args, shelf)?;
    let (head, judged) = (&headed.head, headed.judged());
    let mut pass = Pass::new("image", judged.len());
    let mut progress = |done, total| pass.show(done, total);
    // As in `eval certainty`: which images are judged together says nothing of any of them.
    let choice = Choice::new(head.kind(), head.temperature).normalized_by(&headed.sets.train.features);
    let chosen = assign(&head.loaded, choice, judged, headed.device(), &mut progress)?;
    let (rightly, all) = headed.rightly(&headed.votes(None)?)?;
    let lengths: Vec<f64> = chosen.prototypes.iter().map(|&prototype| head.lengths[prototype as usize]).collect();
    let found = by_length(&lengths, &rightly, args.how.bins as usize);
    let correlation = rank_correlation(&lengths, &rightly);
    if let Some(&first) = lengths.first().filter(|first| lengths.iter().all(|length| length == *first)) {
        output::note(&format!(
            "every prototype that was chosen has |w| = {first}: the ranges are arbitrary, and their accuracies say nothing of precision"
        ));
    }
    let results = json!({
        "protocol": headed.protocol(), "bins": in_json(&found), "top1": all, "used": chosen.used(),
        "rank_correlation": correlation,
    });
    let record = record::of_sets(PRECISION, headed.settings(), &headed.sets, results);
    let mut text = format!(
        "kNN (k = {}) of {} by |w| of their prototypes (prototypes {}, tau {}), top-1 of all {all:.2} %\n      |w| from         to   images  top-1 %\n",
        args.how.k,
        count(rightly.len(), "image"),
        head.prototypes,
        head.temperature
    );
    for PrecisionBin { from, to, top1, images } in found {
        text += &format!("  {from:12.6} {to:10.6} {images:8}  {top1:7.2}\n");
    }
    if let Some(correlation) = correlation {
        text += &format!("rank correlation of |w| and being right, over images: {correlation:.3}\n");
    }
    Ok(Judgement { record, table: text })
}

/// Ranges as they stand in a result.
pub(super) fn in_json(bins: &[PrecisionBin]) -> Vec<Value> {
    let row = |bin: &PrecisionBin| json!({ "from": bin.from, "to": bin.to, "top1": bin.top1, "images": bin.images });
    bins.iter().map(row).collect()
}
