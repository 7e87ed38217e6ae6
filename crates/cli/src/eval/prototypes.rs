//! `eval prototypes`: duplicates, the void set, use and concentration of a head's prototypes.

use std::path::Path;
use std::sync::Arc;

use data::Source;
use eval::Pooling;
use eval::prototypes::{Assignments, Duplicates, Spread, VoidSet, assign, duplicates};
use serde_json::{Map, Value, json};
use tensor::Device;
use text::{count, thousands};

use super::head::Head;
use super::record::{self, Evaluation};
use super::sets::Provenance;
use crate::args::{PrototypesArgs, PrototypesSettings, SplitArg};
use crate::error::CliError;
use crate::features::extract_pooled;
use crate::images;
use crate::output;
use crate::progress::Pass;
use crate::weights::{self, Weights};

const PROTOTYPES: Evaluation = Evaluation { name: "prototypes", version: 2 };

/// Looks at the prototypes, and at what images choose.
pub fn run(args: &PrototypesArgs) -> Result<(), CliError> {
    let found = look(&args.weights, args.data.as_deref().map(|data| (data, args.split)), &args.how)?;
    if args.json {
        return output::json(&found.json());
    }
    output::result(&in_words(&found))
}

/// What was found, and in what.
pub struct Found<'a> {
    weights: Weights,
    device: Device,
    data: Option<(&'a str, SplitArg, Arc<dyn Source>)>,
    head: Head,
    thresholds: Vec<f64>,
    duplicates: Vec<Duplicates>,
    chosen: Option<Assignments>,
    void: Option<VoidSet>,
    kappa: Option<Spread>,
}

/// Looks at the prototypes of a network, and at what the images of a source choose.
pub fn look<'a>(
    path: &Path,
    data: Option<(&'a str, SplitArg)>,
    how: &PrototypesSettings,
) -> Result<Found<'a>, CliError> {
    let device = how.inference.open()?;
    let weights = weights::load(path, &how.input.network, &device)?;
    let head = Head::load(path, &weights, &how.head, &device)?;
    let open = |(spec, split)| Ok::<_, CliError>((spec, split, images::open_chosen(spec, split)?));
    let data = data.map(open).transpose()?;
    let host = how.inference.machine.host(&device)?;
    let mut thresholds = how.thresholds.clone();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    let mut pass = Pass::new("prototype", head.lengths.len());
    let duplicates = duplicates(&head.directions, &thresholds, &host, &mut |done, total| pass.show(done, total))?;
    let chosen = match &data {
        None => None,
        Some((_, _, source)) => {
            let workers = how.inference.machine.thread_count()?;
            let features =
                extract_pooled(&weights, &**source, &how.input, Pooling::default(), workers, &device)?.features;
            let mut pass = Pass::new("image", features.len());
            let mut progress = |done, total| pass.show(done, total);
            Some(assign(&head.loaded, head.kind(), head.temperature, &features, &device, &mut progress)?)
        }
    };
    let kappa: Vec<f64> = head.lengths.iter().map(|length| length / head.temperature).collect();
    let kappa = Spread::of(&kappa);
    let void = chosen.as_ref().zip(duplicates.first()).map(|(chosen, set)| VoidSet::of(set, &head.directions, chosen));
    Ok(Found { weights, device, data, head, thresholds, duplicates, chosen, void, kappa })
}

impl Found<'_> {
    /// The result as one object.
    pub fn json(&self) -> Value {
        let sources: Vec<_> = self.data.iter().map(|(_, _, source)| ("data", &**source)).collect();
        let spec = self.data.as_ref().map_or("", |(spec, _, _)| spec);
        let from = Provenance::of_network(&self.weights, &self.device, spec, &sources);
        let mut settings = self.head.settings();
        settings["thresholds"] = json!(self.thresholds);
        settings["split"] = json!(self.data.as_ref().map(|(_, split, _)| format!("{split:?}").to_lowercase()));
        record::object(PROTOTYPES, settings, &from, in_json(self))
    }
}

fn in_json(found: &Found<'_>) -> Value {
    let Found { head, duplicates, chosen, void, kappa, .. } = found;
    let chosen = chosen.as_ref();
    let by_threshold = |value: &dyn Fn(&Duplicates) -> usize| {
        let entries = duplicates.iter().map(|set| (set.threshold.to_string(), json!(value(set))));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    let spread = kappa.as_ref().map(|spread| {
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
        "void": void.as_ref().map(|void| json!({
            "members": void.members, "cosine_with_mean": void.cosine, "images": void.images, "is_void": void.is_void(),
        })),
        "kappa": spread,
    })
}

fn in_words(found: &Found<'_>) -> String {
    let Found { head, duplicates, chosen, void, kappa, .. } = found;
    let (total, p) = (head.lengths.len(), head.loaded.config.bottleneck);
    let mut text = format!(
        "{} in {p} dimensions (prototypes {}, tau {})\n  cosine above   unique  largest set  components  largest component\n",
        count(total, "prototype"),
        head.prototypes,
        head.temperature
    );
    for set in duplicates {
        let (largest, components) = (thousands(set.largest.len() as u64), thousands(set.components as u64));
        let (unique, component) = (thousands(set.unique as u64), thousands(set.largest_component as u64));
        text += &format!("  {:12} {unique:>8} {largest:>12} {components:>11} {component:>18}\n", set.threshold);
    }
    if let Some(spread) = kappa {
        let at = |share: f64| spread.quantiles.iter().find(|(s, _)| *s == share).map_or(f64::NAN, |(_, value)| *value);
        text += &format!(
            "kappa = |w| / tau: {:.1} to {:.1}, median {:.1}, middle half {:.1} to {:.1}\n",
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
            "The largest set ({} prototypes) is {verdict}; cosine with the images' mean {cosine}, chosen by {}\n",
            thousands(void.members as u64),
            count(void.images, "image")
        );
    }
    text
}
