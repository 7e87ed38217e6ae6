//! `eval certainty`: does a network know which images it gets wrong, and which are none of its own?

use std::path::Path;
use std::rc::Rc;

use eval::certainty::{Calibration, Certainty, Describer, ReliabilityBin, RiskCoverage, Score};
use eval::certainty::{auroc, calibration, risk_coverage, scores};
use eval::precision::{PrecisionBin, by_length};
use eval::prototypes::PrototypeKind;
use eval::{Features, Pooling, stored};
use serde_json::{Map, Value, json};
use tensor::Device;
use text::count;

use super::headed::Headed;
use super::precision::in_json;
use super::record::{self, Evaluation, Judgement};
use super::sets::{Provenance, Set};
use super::shelf::Shelf;
use crate::args::CertaintyArgs;
use crate::error::CliError;
use crate::features::Wanted;
use crate::output;
use crate::progress::Pass;

const CERTAINTY: Evaluation = Evaluation { name: "certainty", version: 2 };
/// Coverages at which risks are told.
const POINTS: usize = 100;

/// What one score is worth.
struct Worth {
    score: Score,
    risk: RiskCoverage,
    quantiles: Vec<PrecisionBin>,
    /// How well it tells the other data set apart.
    auroc: Option<f64>,
}

/// The other data set.
struct Other {
    set: Rc<Set>,
    /// Where it comes from.
    from: Value,
}

/// Describes, classifies, and holds the one against the other.
pub fn judge(args: &CertaintyArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let headed = Headed::open(&args.judged, shelf)?;
    let head = &headed.head;
    if head.kind() == PrototypeKind::Plain {
        output::note(&format!(
            "prototypes {}: their lengths are no precision and they have no density, so that entropy, neighbours and votes \
             alone are compared",
            head.prototypes
        ));
    }
    let other = args.other.as_deref().map(|other| open_other(other, args, &headed, shelf)).transpose()?;
    // Batch norm must not take away what tells the others apart: all have the statistics of the images that vote.
    let describer = head.describer()?.normalized_by(&headed.sets.train.features)?;
    let described = |features: &Features| described(&describer, features, &headed.sets.host);
    let certainties = described(headed.judged())?;
    let votes = headed.votes(None)?;
    let (rightly, top1) = headed.rightly(&votes)?;
    let of_other = match &other {
        None => Vec::new(),
        Some(other) => {
            let features = &other.set.features;
            scores(&described(features)?, &headed.votes(Some(features))?)
        }
    };
    let bins = args.judged.how.bins as usize;
    let worth = |(score, values): &(Score, Vec<f64>)| {
        let of_other = of_other.iter().find(|(other, _)| other == score).map(|(_, values)| values);
        Some(Worth {
            score: *score,
            risk: risk_coverage(values, &rightly, POINTS)?,
            quantiles: by_length(values, &rightly, bins),
            auroc: of_other.and_then(|other| auroc(values, other)),
        })
    };
    let found: Vec<Worth> = scores(&certainties, &votes).iter().filter_map(worth).collect();
    let shares: Vec<f64> = votes.iter().map(|vote| vote.share).collect();
    let calibrated = calibration(&shares, &rightly, args.calibration_bins as usize);
    let mut settings = headed.settings();
    settings["calibration_bins"] = json!(args.calibration_bins);
    let results = json!({
        "protocol": headed.protocol(), "top1": top1,
        "scores": found.iter().map(|worth| (worth.score.name().to_owned(), worth.to_json())).collect::<Map<_, _>>(),
        "calibration": calibration_in_json(&calibrated),
        "other": other.as_ref().map(|other| json!({
            "data": other.from["data"], "data_digest": other.from["data_digest"]["other"],
            "images": other.set.features.len(), "skipped": other.set.skipped,
        })),
    });
    let record = record::of_sets(CERTAINTY, settings, &headed.sets, results);
    Ok(Judgement { record, table: in_words(args, &headed, top1, &found, &calibrated, other.as_ref()) })
}

/// The features of the other data set.
fn open_other(other: &str, args: &CertaintyArgs, headed: &Headed<'_>, shelf: &Shelf) -> Result<Other, CliError> {
    let weights = &headed.weights;
    if args.judged.train.is_some() {
        let path = Path::new(other);
        let stored = stored::read(path)?;
        let from = Provenance::of_files(&[("other", path, &stored)]).by(weights)?.to_json();
        let set = Set { features: stored.features, names: stored.names, class_names: stored.class_names, skipped: 0 };
        return Ok(Other { set: Rc::new(set), from });
    }
    let source = shelf.judged(other)?;
    let how = &args.judged.how;
    let wanted = Wanted::of(weights, &how.input, how.inference.machine.thread_count()?, headed.device());
    let set = shelf.set(&wanted, &*source, Pooling::default())?;
    let from = Provenance::of_network(weights, headed.device(), other, &[("other", &*source)]).to_json();
    Ok(Other { set, from })
}

fn described(describer: &Describer<'_>, features: &Features, host: &Device) -> Result<Vec<Certainty>, CliError> {
    let mut pass = Pass::new("image", features.len());
    Ok(describer.describe(features, host, &mut |done, total| pass.show(done, total))?)
}

impl Worth {
    fn to_json(&self) -> Value {
        let curve: Vec<Value> = self.risk.curve.iter().map(|(coverage, risk)| json!([coverage, risk])).collect();
        json!({
            "aurc": self.risk.aurc, "excess_aurc": self.risk.excess, "auroc": self.auroc,
            "quantiles": in_json(&self.quantiles), "risk_coverage": curve,
        })
    }
}

fn calibration_in_json(found: &Calibration) -> Value {
    let row = |bin: &ReliabilityBin| {
        json!({
            "from": bin.from, "to": bin.to, "confidence": bin.confidence, "top1": bin.top1, "images": bin.images,
        })
    };
    json!({ "error": found.error, "bins": found.bins.iter().map(row).collect::<Vec<_>>() })
}

fn in_words(
    args: &CertaintyArgs,
    headed: &Headed<'_>,
    top1: f64,
    found: &[Worth],
    calibrated: &Calibration,
    other: Option<&Other>,
) -> String {
    let head = &headed.head;
    let mut text = format!(
        "certainty of {}, kNN (k = {}) top-1 {top1:.2} % (prototypes {}, tau {})\n  {:12} {:>8} {:>8}",
        count(headed.judged().len(), "image"),
        args.judged.how.k,
        head.prototypes,
        head.temperature,
        "by",
        "AURC",
        "excess"
    );
    let told = |auroc: Option<f64>| auroc.map_or(String::new(), |auroc| format!(" {auroc:8.4}"));
    text += if other.is_some() { "    AUROC\n" } else { "\n" };
    for Worth { score, risk, auroc, .. } in found {
        text += &format!("  {score:12} {:8.4} {:8.4}{}\n", risk.aurc, risk.excess, told(*auroc));
    }
    if let Some(other) = other {
        text += &format!("AUROC: these images told from {}\n", count(other.set.features.len(), "other image"));
    }
    text += "top-1 % by quantile, from the least certain to the most\n  quantile";
    found.iter().for_each(|worth| text += &format!(" {:>11}", worth.score));
    text += "\n";
    for quantile in 0..found.first().map_or(0, |worth| worth.quantiles.len()) {
        text += &format!("  {:8}", quantile + 1);
        found.iter().for_each(|worth| text += &format!(" {:11.2}", worth.quantiles[quantile].top1));
        text += "\n";
    }
    text += &format!(
        "calibration of the vote: expected error {:.2} %\n      from       to   images   mean %  top-1 %\n",
        100.0 * calibrated.error
    );
    for ReliabilityBin { from, to, confidence, top1, images } in &calibrated.bins {
        text += &format!("  {from:8.3} {to:8.3} {images:8} {:8.2} {top1:8.2}\n", 100.0 * confidence);
    }
    text
}
