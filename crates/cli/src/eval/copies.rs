//! `eval copies`: copy detection on Copydays.

use std::ops::ControlFlow;

use data::{Source, Split};
use eval::copies::{CopySet, Whitening, describe, score};
use eval::memory::{Kept, estimate_features};
use eval::retrieval::RetrievalError;
use eval::{EvalError, Extraction, FeatureTokens, Features, Network, Pooling, Preparation, ReadOptions, ReadProgress};
use serde_json::json;
use tensor::Device;
use text::count;

use super::record::{self, Evaluation};
use super::sets::Provenance;
use crate::args::{CopiesArgs, NetworkArgs};
use crate::device;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::progress::{Console, Meter};
use crate::weights::{self, Weights};

const COPIES: Evaluation = Evaluation { name: "copies", version: 1 };
/// Height and width that images are stretched to, as DINO does it.
const SIZE: (usize, usize) = (320, 320);

/// Describes all images, and prints the precision of each block.
pub fn run(args: &CopiesArgs) -> Result<(), CliError> {
    let set = CopySet::open(&args.data).map_err(EvalError::from)?;
    let device = args.inference.open()?;
    let asked = NetworkArgs { image_size: None, ..args.input.network.clone() };
    let weights = weights::load(&args.weights, &asked, &device)?;
    let size = args.input.network.image_size.unwrap_or(SIZE);
    let open = |spec: &Option<String>| spec.as_deref().map(|spec| images::open(spec, Split::Train)).transpose();
    let (distractors, whiten) = (open(&args.distractors)?, open(&args.whiten)?);
    let mut options = ReadOptions {
        batch_size: args.input.batch_size as usize,
        orientation: args.input.orientation.unwrap_or(weights.input.orientation),
        ..Default::default()
    };
    options.workers = args.inference.machine.thread_count()?.unwrap_or(options.workers);
    let channels = weights.loaded.vit.config().channels;
    let views = [distractors.as_deref(), whiten.as_deref()];
    let images = set.images() + views.iter().flatten().map(|source| source.len()).sum::<usize>();
    if !device.is_gpu() {
        let read = ReadOptions { channels, ..options };
        let config = weights.loaded.vit.config();
        let (pooling, kept) = (Pooling::of(FeatureTokens::Both), (2 * images, Kept::All));
        let need = estimate_features(config, &Preparation::Stretch(size), &pooling, &read, kept, device.threads());
        memory::check_bytes(need, memory::SMALLER_FEATURES)?;
    }
    let console = Console::new(images as u64);
    let meter = Meter::started(&console, "image");
    let mut work = Work { weights: &weights, device: &device, size, options, meter, done: 0, images };
    let mut database = work.all_of(&set.originals)?;
    if let Some(distractors) = &distractors {
        let found = work.features(&**distractors)?;
        database.values.extend(found.values);
        // Numbered behind the originals: what a query finds is told by its row.
        database.indices.extend(found.indices);
        database.labels.extend(found.labels);
    }
    let host = args.inference.machine.host(&device)?;
    let whitening = match &whiten {
        None => None,
        Some(source) => {
            let whitening = Whitening::fit(&work.features(&**source)?, &host)?;
            whitening.apply(&mut database, &host);
            Some(whitening)
        }
    };
    let mut blocks = Vec::new();
    for block in &set.blocks {
        let mut queries = work.all_of(&block.images)?;
        if let Some(whitening) = &whitening {
            whitening.apply(&mut queries, &host);
        }
        blocks.push((block.name.as_str(), queries.len(), score(block, &database, &queries, &host)?));
    }
    console.close();
    let strong = blocks.iter().find(|(name, ..)| *name == "strong").map(|(.., map)| *map);
    if args.json {
        let mut sources: Vec<(&str, &dyn Source)> = vec![("original", &set.originals)];
        sources.extend(set.blocks.iter().skip(1).map(|block| (block.name.as_str(), &block.images as &dyn Source)));
        sources.extend(distractors.as_deref().map(|source| ("distractors", source)));
        sources.extend(whiten.as_deref().map(|source| ("whiten", source)));
        let from = Provenance::of_network(&weights, &device, &text::shown(&args.data), &sources);
        let rows: Vec<_> =
            blocks.iter().map(|(name, images, map)| json!({ "name": name, "images": images, "map": map })).collect();
        let settings = json!({
            "image_size": [size.0, size.1], "distractors": args.distractors, "whiten": args.whiten,
            "orientation": options.orientation.name(),
        });
        let results = json!({ "strong": strong, "blocks": rows, "database": database.len() });
        return output::json(&record::object(COPIES, settings, &from, results));
    }
    let (searched, is_whitened) = (count(database.len(), "image"), if whitening.is_some() { ", whitened" } else { "" });
    let mut text = format!("Copies among {searched}, features in {}{is_whitened}\n", device::precision(&device));
    text += "  block         images    mAP %\n";
    for (name, images, map) in &blocks {
        text += &format!("  {name:12} {images:7}  {:7.2}\n", 100.0 * map);
    }
    if strong.is_none() {
        output::note("there is no folder `strong`, whose mAP is the one that is reported of this data set");
    }
    output::result(&text)
}

/// Describes sources one after another, with one progress bar for all.
struct Work<'a> {
    weights: &'a Weights,
    device: &'a Device,
    size: (usize, usize),
    options: ReadOptions,
    meter: Meter,
    done: usize,
    images: usize,
}

impl Work<'_> {
    /// Features of all images that can be read.
    fn features(&mut self, source: &dyn Source) -> Result<Features, CliError> {
        let Extraction { features, skipped, .. } = self.describe(source)?;
        if !skipped.is_empty() {
            output::note(&format!(
                "{} of {} left out, the first: {}",
                skipped.len(),
                source.describe(),
                skipped[0].name
            ));
        }
        Ok(features)
    }

    /// Features of all images; an error where one cannot be read.
    fn all_of(&mut self, source: &dyn Source) -> Result<Features, CliError> {
        let Extraction { features, skipped, .. } = self.describe(source)?;
        match skipped.into_iter().next() {
            None => Ok(features),
            Some(bad) => Err(EvalError::from(RetrievalError::Image { name: bad.name, reason: bad.reason }).into()),
        }
    }

    fn describe(&mut self, source: &dyn Source) -> Result<Extraction, CliError> {
        let network = Network {
            normalization: Some(&self.weights.normalization),
            ..Network::new(&self.weights.loaded.vit, &self.weights.loaded.weights, self.device)
        };
        let (before, total, meter) = (self.done as u64, self.images as u64, &mut self.meter);
        let mut progress = |at: ReadProgress| {
            let done = before + at.done as u64;
            let about = output::speed(meter.rate(done));
            meter.show(done, total, &about);
            ControlFlow::Continue(())
        };
        let found = describe(network, source, self.size, &self.options, &mut progress);
        self.done += source.len();
        Ok(found?)
    }
}
