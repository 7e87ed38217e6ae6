//! What pictures are drawn from: a run's network, some of its images, and their features.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Source, Split};
use eval::memory::{Kept, estimate_features};
use eval::subset::Subset;
use eval::{Features, Network, ReadOptions};
use report::pictures::{Picture, THUMBNAIL};
use ssl::recipe::Recipe;
use tensor::Device;

use super::Request;
use super::stored;
use super::thumbnails::{self, Square};
use crate::args::NetworkArgs;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::progress::{Console, Meter};
use crate::weights::{self, Weights};

/// Training images that features are computed of, as many as there is time for. The draw of fewer is part of that of more.
const COUNTS: [usize; 6] = [2000, 1000, 500, 250, 120, 60];
/// Held-out images: one for so many training images.
const HELD_OUT: usize = 4;
/// Seconds that all features may take, about.
const SECONDS: f64 = 15.0;
/// Images of the trial that tells how long one takes. Fewer than four times as many need none.
const TRIAL: usize = 16;
/// Images of a batch.
const BATCH: usize = 32;
/// Nobody wonders about a silence that is shorter.
const SILENCE: Duration = Duration::from_secs(2);

/// The images of a run.
pub struct Data {
    /// Those that it was trained on.
    pub train: Arc<dyn Source>,
    /// Those that were held out.
    pub held_out: Option<Arc<dyn Source>>,
}

impl Data {
    /// Opens the images where the run found them.
    pub fn of(recipe: &Recipe) -> Result<Self, CliError> {
        let Some(spec) = recipe.source() else {
            return Err(CliError::NoPictures { why: "the run does not say where its images are".to_owned() });
        };
        let train = images::open_quietly(spec, Split::Train)?;
        Ok(Self { train, held_out: images::open_quietly(spec, Split::Test).ok() })
    }
}

/// Images with their features.
pub struct Set {
    /// Where they are; rows of the features have their numbers in it.
    pub source: Arc<dyn Source>,
    /// A row for each that could be read.
    pub features: Features,
}

impl Set {
    /// The class of a row.
    pub fn class(&self, row: usize) -> Option<&str> {
        let label = self.features.labels[row]?;
        self.source.class_names().get(label as usize).map(String::as_str)
    }

    /// The name of a row.
    pub fn name(&self, row: usize) -> String {
        self.source.name(self.features.indices[row])
    }
}

/// A run's network, and images with their features.
pub struct Material<'a> {
    /// What was asked for.
    pub request: &'a Request<'a>,
    /// What the run trains.
    pub recipe: &'a Recipe,
    /// Its network.
    pub weights: Weights,
    /// Training images.
    pub train: Set,
    /// Held-out images.
    pub held_out: Option<Set>,
}

impl<'a> Material<'a> {
    /// Loads the network, and computes or reads the features.
    pub fn gather(request: &'a Request<'a>, recipe: &'a Recipe, data: Data) -> Result<Self, CliError> {
        let weights = weights::load_quietly(request.run, &NetworkArgs::default(), &request.device)?;
        let stored = request.features.map(|path| stored::read(path, &weights, &data)).transpose()?;
        let work = Work { request, recipe, weights: &weights };
        let images = match request.images {
            Some(images) => images,
            None => work.affordable(&data)?,
        };
        let (train, held_out) = match stored {
            Some((Split::Train, set)) => (Some(set), None),
            Some((Split::Test, set)) => (None, Some(set)),
            None => (None, None),
        };
        let compute = |source: &Arc<dyn Source>, most: usize| work.compute(source, most);
        let train = train.map_or_else(|| compute(&data.train, images), Ok)?;
        let held_out = match (held_out, &data.held_out) {
            (Some(set), _) => Some(set),
            (None, Some(source)) => Some(compute(source, (images / HELD_OUT).max(1))?),
            (None, None) => None,
        };
        images::say_news(&*data.train);
        Ok(Self { request, recipe, weights, train, held_out })
    }

    /// The network on its device.
    pub fn network(&self) -> Network<'_> {
        network(&self.weights, &self.request.device)
    }

    /// The images that the network was not trained on, or those that there are.
    pub fn unseen(&self) -> (&Set, &'static str) {
        match &self.held_out {
            Some(set) if !set.features.is_empty() => (set, "held-out image"),
            _ => (&self.train, "training image"),
        }
    }

    /// Continues unless somebody wants it to end.
    pub fn go_on(&self) -> ControlFlow<()> {
        if (self.request.should_stop)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Images of some rows, none for one that cannot be read.
    pub fn pictures(&self, set: &Set, rows: &[usize]) -> Vec<Option<Picture>> {
        let indices: Vec<usize> = rows.iter().map(|&row| set.features.indices[row]).collect();
        let square = Square { side: THUMBNAIL, recipe: self.recipe, host: &self.request.host };
        let images = thumbnails::read(&*set.source, &indices, square);
        let picture = |(&row, image): (&usize, Option<data::Image>)| {
            let class = set.class(row).map(str::to_owned);
            Some(Picture { image: image?, name: set.name(row), class })
        };
        rows.iter().zip(images).map(picture).collect()
    }
}

fn network<'a>(weights: &'a Weights, device: &'a Device) -> Network<'a> {
    let normalization = Some(&weights.normalization);
    Network { normalization, ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device) }
}

/// Features that are to be computed.
struct Work<'a> {
    request: &'a Request<'a>,
    recipe: &'a Recipe,
    weights: &'a Weights,
}

impl Work<'_> {
    /// As many training images as there is time for.
    fn affordable(&self, data: &Data) -> Result<usize, CliError> {
        let held_out = data.held_out.as_ref().map_or(0, |source| source.len());
        if data.train.len().min(COUNTS[0]) + held_out.min(COUNTS[0] / HELD_OUT) < 4 * TRIAL {
            return Ok(COUNTS[0]);
        }
        let seconds = self.seconds_per_image(&data.train)?;
        let fits = |count: &&usize| {
            let images = data.train.len().min(**count) + held_out.min(**count / HELD_OUT);
            images as f64 * seconds <= SECONDS
        };
        Ok(*COUNTS.iter().find(fits).unwrap_or(&COUNTS[COUNTS.len() - 1]))
    }

    /// How long an image takes, read twice as it will be: for its feature, and to be shown.
    fn seconds_per_image(&self, source: &Arc<dyn Source>) -> Result<f64, CliError> {
        let timed = |images: usize| -> Result<f64, CliError> {
            let clock = Instant::now();
            let set = self.compute(source, images)?;
            let square = Square { side: THUMBNAIL, recipe: self.recipe, host: &self.request.host };
            thumbnails::read(&*set.source, &set.features.indices, square);
            Ok(clock.elapsed().as_secs_f64() / images as f64)
        };
        // The first also makes things ready, unless it is so slow that it tells enough.
        let first = timed(1)?;
        if first > 1.0 { Ok(first) } else { timed(TRIAL) }
    }

    /// Features of up to `most` images of a source.
    fn compute(&self, source: &Arc<dyn Source>, most: usize) -> Result<Set, CliError> {
        let source: Arc<dyn Source> = Arc::new(Subset::sample(source.clone(), most));
        let Self { request, weights, .. } = self;
        let (preparation, config) = (weights.input.preparation(), weights.loaded.vit.config());
        let mut options = ReadOptions { batch_size: BATCH, channels: config.channels, ..Default::default() };
        options.orientation = weights.input.orientation;
        options.workers = request.workers.unwrap_or(options.workers);
        let network = network(weights, &request.device);
        if !request.device.is_gpu() {
            let images = (source.len(), Kept::All);
            let threads = request.device.threads();
            let need = estimate_features(config, &preparation, &network.pooling, &options, images, threads);
            memory::check_bytes(need, memory::SMALLER_FEATURES)?;
        }
        let mut waiting = Waiting::begin();
        let progress = &mut |at: eval::ReadProgress| {
            waiting.show(at.done, at.total);
            if (request.should_stop)() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let features = eval::extract(network, &*source, &preparation, &options, progress)?.features;
        Ok(Set { source, features })
    }
}

/// A bar, once somebody has waited for some time.
struct Waiting {
    begun: Instant,
    shown: Option<(Console, Meter)>,
}

impl Waiting {
    fn begin() -> Self {
        Self { begun: Instant::now(), shown: None }
    }

    fn show(&mut self, done: usize, total: usize) {
        if self.shown.is_none() && self.begun.elapsed() < SILENCE {
            return;
        }
        let (_, meter) = self.shown.get_or_insert_with(|| {
            let console = Console::new(total as u64);
            let meter = Meter::new(&console, "image");
            (console, meter)
        });
        meter.show(done as u64, total as u64, "for the pictures of the report");
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((console, _)) = &self.shown {
            console.close();
        }
    }
}
