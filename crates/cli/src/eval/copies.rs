//! `eval copies`: copy detection on Copydays.

use std::ops::ControlFlow;
use std::path::Path;

use data::{Source, Split};
use eval::copies::{Block, CopySet, Whitening, describe, score};
use eval::memory::{Kept, estimate_features};
use eval::retrieval::RetrievalError;
use eval::{
    EvalError, Extraction, FeatureTokens, Features, Network, Pooling, Preparation, ReadOptions, ReadProgress,
    StoredFeatures, stored,
};
use serde_json::{Value, json};
use tensor::{CpuOptions, Device};
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets::Provenance;
use super::shelf::Shelf;
use crate::args::{CopiesArgs, NetworkArgs};
use crate::device;
use crate::devices::Devices;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::progress::{Console, Meter};
use crate::weights::Weights;

const COPIES: Evaluation = Evaluation { name: "copies", version: 1 };
/// Height and width that images are stretched to, as DINO does it.
const SIZE: (usize, usize) = (320, 320);

/// Describes all images, or reads their features, and scores each block.
pub fn judge(args: &CopiesArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    match (&args.weights, &args.data, &args.features) {
        (Some(weights), Some(folder), _) => of_network(args, weights, folder, shelf),
        // The command line is refused where neither is given.
        (.., features) => of_stored(args, features.as_deref().unwrap_or(Path::new(""))),
    }
}

fn of_network(args: &CopiesArgs, path: &Path, folder: &Path, shelf: &Shelf) -> Result<Judgement, CliError> {
    let set = CopySet::open(folder).map_err(EvalError::from)?;
    let device = args.judging.inference.open()?;
    let asked = NetworkArgs { image_size: None, ..args.judging.input.network.clone() };
    let weights = shelf.weights(path, &asked, &device)?;
    let size = args.judging.input.network.image_size.unwrap_or(SIZE);
    let open = |spec: &Option<String>| spec.as_deref().map(|spec| images::open(spec, Split::Train)).transpose();
    let (distractors, whiten) = (open(&args.distractors)?, open(&args.whiten)?);
    let mut options = ReadOptions {
        batch_size: args.judging.input.batch_size as usize,
        orientation: args.judging.input.orientation.unwrap_or(weights.input.orientation),
        ..Default::default()
    };
    options.workers = args.judging.inference.machine.thread_count()?.unwrap_or(options.workers);
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
    let host = args.judging.inference.machine.host(&device)?;
    let database = work.all_of(&set.originals)?;
    let others = distractors.as_deref().map(|source| work.features(source)).transpose()?;
    let learnt = whiten.as_deref().map(|source| work.features(source)).transpose()?;
    let search = Search::new(database, others, learnt, &host)?;
    let found = search.blocks(&set, &host, &mut |block| work.all_of(&block.images))?;
    console.close();
    let mut sources: Vec<(&str, &dyn Source)> = vec![("original", &set.originals)];
    sources.extend(set.blocks.iter().skip(1).map(|block| (block.name.as_str(), &block.images as &dyn Source)));
    sources.extend(distractors.as_deref().map(|source| ("distractors", source)));
    sources.extend(whiten.as_deref().map(|source| ("whiten", source)));
    let from = Provenance::of_network(&weights, &device, &text::shown(folder), &sources);
    let settings = json!({
        "image_size": [size.0, size.1], "distractors": args.distractors, "whiten": args.whiten,
        "orientation": options.orientation.name(),
    });
    Ok(search.judged(&found, settings, &from, &format!("features in {}", device::precision(&device))))
}

/// Features that were stored, of all images of the data set by their names.
fn of_stored(args: &CopiesArgs, path: &Path) -> Result<Judgement, CliError> {
    let threads = args.judging.inference.machine.thread_count()?;
    let host = Device::cpu(CpuOptions { threads, ..Default::default() })?;
    let all = stored::read(path)?;
    let set = CopySet::of_names(&all.names, path).map_err(EvalError::from)?;
    let read = |path: &Option<String>| path.as_ref().map(|path| stored::read(Path::new(path))).transpose();
    let (distractors, whiten) = (read(&args.distractors)?, read(&args.whiten)?);
    let mut files = vec![("all", path, &all)];
    for (name, path, stored) in [("distractors", &args.distractors, &distractors), ("whiten", &args.whiten, &whiten)] {
        files.extend(path.as_ref().zip(stored.as_ref()).map(|(path, stored)| (name, Path::new(path), stored)));
    }
    let from = Provenance::of_files(&files);
    let others = |stored: &Option<StoredFeatures>| stored.as_ref().map(|stored| stored.features.clone());
    let database = all.features.select(&set.originals);
    let search = Search::new(database, others(&distractors), others(&whiten), &host)?;
    let found = search.blocks(&set, &host, &mut |block| Ok(all.features.select(&block.images)))?;
    let settings = json!({ "distractors": args.distractors, "whiten": args.whiten });
    let how = from.precision.as_ref().map_or("stored features".to_owned(), |how| format!("features in {how}"));
    Ok(search.judged(&found, settings, &from, &how))
}

/// What is searched: originals, and distractors behind them; whitened, where that was learnt.
struct Search {
    database: Features,
    whitening: Option<Whitening>,
}

/// A block: its name, its images, and their mean average precision.
type Found<'a> = (&'a str, usize, f64);

impl Search {
    fn new(
        mut database: Features,
        distractors: Option<Features>,
        learnt: Option<Features>,
        host: &Device,
    ) -> Result<Self, CliError> {
        for other in distractors.iter().chain(&learnt) {
            if other.dim != database.dim {
                return Err(EvalError::Width { train: database.dim, test: other.dim }.into());
            }
        }
        if let Some(distractors) = distractors {
            database.values.extend(distractors.values);
            // Numbered behind the originals: what a query finds is told by its row.
            database.indices.extend(distractors.indices);
            database.labels.extend(distractors.labels);
        }
        let whitening = learnt.map(|learnt| Whitening::fit(&learnt, host)).transpose()?;
        if let Some(whitening) = &whitening {
            whitening.apply(&mut database, host);
        }
        Ok(Self { database, whitening })
    }

    /// Looks for the originals of each block.
    fn blocks<'a, S>(
        &self,
        set: &'a CopySet<S>,
        host: &Device,
        features: &mut dyn FnMut(&Block<S>) -> Result<Features, CliError>,
    ) -> Result<Vec<Found<'a>>, CliError> {
        let mut found = Vec::new();
        for block in &set.blocks {
            let mut queries = features(block)?;
            if let Some(whitening) = &self.whitening {
                whitening.apply(&mut queries, host);
            }
            found.push((block.name.as_str(), queries.len(), score(block, &self.database, &queries, host)?));
        }
        Ok(found)
    }

    fn judged(&self, blocks: &[Found<'_>], settings: Value, from: &Provenance, how: &str) -> Judgement {
        let strong = blocks.iter().find(|(name, ..)| *name == "strong").map(|(.., map)| *map);
        let rows: Vec<_> =
            blocks.iter().map(|(name, images, map)| json!({ "name": name, "images": images, "map": map })).collect();
        let results = json!({ "strong": strong, "blocks": rows, "database": self.database.len() });
        let record = record::object(COPIES, settings, from, results);
        let (searched, whitened) =
            (count(self.database.len(), "image"), if self.whitening.is_some() { ", whitened" } else { "" });
        let mut table = format!("Copies among {searched}, {how}{whitened}\n  block         images    mAP %\n");
        for (name, images, map) in blocks {
            table += &format!("  {name:12} {images:7}  {:7.2}\n", 100.0 * map);
        }
        if strong.is_none() {
            output::note("there is no folder `strong`, whose mAP is the one that is reported of this data set");
        }
        Judgement { record, table }
    }
}

/// Describes sources one after another, with one progress bar for all.
struct Work<'a> {
    weights: &'a Weights,
    device: &'a Devices,
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
        let twins = self.device.twins(&self.weights.loaded.weights, source.len(), self.options.batch_size)?;
        let network = Network {
            twins: &twins,
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
