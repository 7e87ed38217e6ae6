//! `eval prototypes`: duplicates, the void set, use and concentration of a head's prototypes.

use eval::prototypes::{Assignments, Choice, Duplicates, Spread, VoidSet, assign, duplicates};
use eval::{EvalError, Features, Pooling, stored};
use serde_json::{Map, Value, json};
use text::{count, thousands};

use super::head::Head;
use super::record::{self, Evaluation, Judgement};
use super::sets::Provenance;
use super::shelf::Shelf;
use crate::args::PrototypesArgs;
use crate::error::CliError;
use crate::features::Wanted;
use crate::progress::Pass;

const PROTOTYPES: Evaluation = Evaluation { name: "prototypes", version: 2 };

/// Looks at the prototypes, and at what images choose.
pub fn judge(args: &PrototypesArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let device = args.how.inference.open()?;
    let weights = shelf.weights(&args.weights, &args.how.input.network, &device)?;
    let head = Head::load(&weights, &args.how.head, &device)?;
    let source = args.data.as_ref().map(|spec| shelf.images(spec, args.split)).transpose()?;
    let host = args.how.inference.machine.host(&device)?;
    let mut thresholds = args.how.thresholds.clone();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let mut pass = Pass::new("prototype", head.lengths.len());
    let found = duplicates(&head.directions, &thresholds, &host, &mut |done, total| pass.show(done, total))?;
    let files = args.features.as_deref().map(|path| Ok::<_, EvalError>((path, stored::read(path)?))).transpose()?;
    let from = match &files {
        Some((path, stored)) => Provenance::of_files(&[("data", path, stored)]).by(&weights)?,
        None => {
            let sources: Vec<_> = source.iter().map(|source| ("data", &**source)).collect();
            Provenance::of_network(&weights, &device, args.data.as_deref().unwrap_or_default(), &sources)
        }
    };
    let assigned = |features: &Features| {
        let mut pass = Pass::new("image", features.len());
        let mut progress = |done, total| pass.show(done, total);
        assign(&head.loaded, Choice::new(head.kind(), head.temperature), features, &device, &mut progress)
    };
    let chosen = match (&source, &files) {
        (None, None) => None,
        (None, Some((_, stored))) => Some(assigned(&stored.features)?),
        (Some(source), _) => {
            let workers = args.how.inference.machine.thread_count()?;
            let wanted = Wanted::of(&weights, &args.how.input, workers, &device);
            Some(assigned(&shelf.set(&wanted, &**source, Pooling::default())?.features)?)
        }
    };
    let kappa: Vec<f64> = head.lengths.iter().map(|length| length / head.temperature).collect();
    let kappa = Spread::of(&kappa);
    let void = chosen.as_ref().zip(found.first()).map(|(chosen, set)| VoidSet::of(set, &head.directions, chosen));
    let mut settings = head.settings();
    settings["thresholds"] = json!(thresholds);
    settings["split"] = json!(args.data.is_some().then(|| format!("{:?}", args.split).to_lowercase()));
    let results = in_json(&head, &found, chosen.as_ref(), void.as_ref(), kappa.as_ref());
    let record = record::object(PROTOTYPES, settings, &from, results);
    let table = in_words(&head, &found, chosen.as_ref(), void.as_ref(), kappa.as_ref());
    Ok(Judgement { record, table })
}

fn in_json(
    head: &Head,
    found: &[Duplicates],
    chosen: Option<&Assignments>,
    void: Option<&VoidSet>,
    kappa: Option<&Spread>,
) -> Value {
    let by_threshold = |value: &dyn Fn(&Duplicates) -> usize| {
        let entries = found.iter().map(|set| (set.threshold.to_string(), json!(value(set))));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    let spread = kappa.map(|spread| {
        let quantiles: Map<String, Value> =
            spread.quantiles.iter().map(|(share, value)| (share.to_string(), json!(value))).collect();
        let bins: Vec<Value> =
            spread.histogram.iter().map(|(from, count)| json!({ "from": from, "prototypes": count })).collect();
        json!({ "quantiles": quantiles, "histogram": bins, "most": spread.most })
    });
    json!({
        "prototypes": head.lengths.len(),
        "dimension": head.loaded.config.bottleneck,
        "unique": by_threshold(&|set| set.unique),
        "largest": by_threshold(&|set| set.largest.len()),
        "components": by_threshold(&|set| set.components),
        "largest_component": by_threshold(&|set| set.largest_component),
        "images": chosen.map(|chosen| chosen.prototypes.len()),
        "used": chosen.map(Assignments::used),
        "perplexity": chosen.map(Assignments::perplexity),
        "entropy": chosen.map(|chosen| chosen.entropy),
        "void": void.map(|void| json!({
            "members": void.members, "cosine_with_mean": void.cosine, "images": void.images, "is_void": void.is_void(),
        })),
        "kappa": spread,
    })
}

fn in_words(
    head: &Head,
    found: &[Duplicates],
    chosen: Option<&Assignments>,
    void: Option<&VoidSet>,
    kappa: Option<&Spread>,
) -> String {
    let (total, p) = (head.lengths.len(), head.loaded.config.bottleneck);
    let mut text = format!(
        "{} in {p} dimensions (prototypes {}, tau {})\n  cosine above   unique  largest set  components  largest component\n",
        count(total, "prototype"),
        head.prototypes,
        head.temperature
    );
    for set in found {
        let (largest, components) = (thousands(set.largest.len() as u64), thousands(set.components as u64));
        let (unique, component) = (thousands(set.unique as u64), thousands(set.largest_component as u64));
        text += &format!("  {:12} {unique:>8} {largest:>12} {components:>11} {component:>18}\n", set.threshold);
    }
    if let Some(spread) = kappa {
        let at = |share: f64| spread.quantiles.iter().find(|(s, _)| *s == share).map_or(f64::NAN, |(_, value)| *value);
        text += &format!(
            "kappa = |w| / tau: {:.1} to {:.1}, median {:.1}, middle half {:.1} to {:.1} (a run's log divides by student_temp)\n",
            at(0.0),
            at(1.0),
            at(0.5),
            at(0.25),
            at(0.75)
        );
    }
    if let Some(chosen) = chosen {
        text += &format!(
            "{} chose {} of {} prototypes; perplexity of the choices {:.1}, mean entropy of an image {:.3} nats\n",
            count(chosen.prototypes.len(), "image"),
            thousands(chosen.used() as u64),
            thousands(total as u64),
            chosen.perplexity(),
            chosen.entropy
        );
    }
    if let Some(void) = void {
        let cosine = void.cosine.map_or("none".to_owned(), |cosine| format!("{cosine:.3}"));
        let verdict =
            if void.is_void() { "void: it points away from the data and no image chose it" } else { "not void" };
        text += &format!(
            "The largest set ({}) is {verdict}; cosine with the images' mean {cosine}, chosen by {}\n",
            count(void.members, "prototype"),
            count(void.images, "image")
        );
    }
    text
}
