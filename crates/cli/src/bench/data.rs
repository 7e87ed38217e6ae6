//! `bench data`: how many images a second the loader turns into views, and where its time goes.

use std::sync::Arc;
use std::time::Instant;

use data::{Loader, LoaderConfig, MultiCrop, Source, Split};
use serde_json::{Value, json};
use text::{bytes, count};

use super::operations::{self, Cost, Operation};
use super::usage;
use crate::args::BenchDataArgs;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;

/// Images of a batch where nobody says and there are as many.
const USUAL_BATCH: usize = 64;
/// Most readings of the memory.
const READINGS: f64 = 600.0;
/// Least seconds between two of them.
const READ_EVERY: f64 = 1.0;

/// What the loader did.
struct Loaded {
    /// Images of the timed batches.
    images: usize,
    /// From the first batch, which is not counted, to the last.
    seconds: f64,
    /// Processor time of that, where the system tells.
    processor_seconds: Option<f64>,
    /// Unreadable images met, and images turned upright, from the start.
    bad: usize,
    turned: usize,
    /// Memory in the course of it.
    resident: Vec<u64>,
    /// The most.
    peak: u64,
}

/// Measures and prints.
pub fn run(args: &BenchDataArgs) -> Result<(), CliError> {
    let source = images::open(&args.data, Split::Train)?;
    let defaults = LoaderConfig::default();
    let square = |side: u32| (side as usize, side as usize);
    let config = LoaderConfig {
        batch_size: args.batch_size.map_or(USUAL_BATCH.min(source.len()), |batch| batch as usize),
        workers: args.workers.map_or(defaults.workers, usize::from),
        views: MultiCrop {
            global_size: square(args.views.global_size),
            local_size: square(args.views.local_size),
            local_crops: args.local_crops as usize,
            ..MultiCrop::dino()
        },
        decoding: args.decoding,
        orientation: args.orientation,
        finish: !args.for_gpu,
        ..defaults
    };
    memory::check_bytes(config.memory(), memory::SMALLER_BATCHES)?;
    let loaded = load(source.clone(), &config, args.seconds)?;
    let cost = operations::measure(&*source, &config);
    if loaded.turned > 0 {
        output::note(&output::turned(loaded.turned));
    }
    if args.json {
        output::json(&object(&*source, &config, &loaded, &cost))
    } else {
        output::result(&table(&*source, &config, &loaded, &cost))
    }
}

/// Takes batches for this many seconds as fast as they come, at least one.
fn load(source: Arc<dyn Source>, config: &LoaderConfig, seconds: f64) -> Result<Loaded, CliError> {
    let read_every = READ_EVERY.max(seconds / READINGS);
    let mut loader = Loader::start(source, config.clone(), 0, 0, u64::MAX)?;
    let (images, bad, turned, resident) = (0, 0, 0, Vec::new());
    let mut loaded = Loaded { images, seconds: 0.0, processor_seconds: None, bad, turned, resident, peak: 0 };
    let mut start: Option<(Instant, Option<f64>)> = None;
    let mut last_reading = 0.0;
    while loaded.images == 0 || loaded.seconds < seconds {
        let Some(batch) = loader.next()? else { break };
        loaded.bad += batch.substituted.len();
        loaded.turned += batch.turned;
        loader.recycle(batch);
        // The clock starts with the first batch: from then on all workers are busy.
        let Some((begun, processor_before)) = start else {
            start = Some((Instant::now(), usage::processor_seconds()));
            loaded.resident.push(usage::resident_memory());
            continue;
        };
        loaded.images += config.batch_size;
        loaded.seconds = begun.elapsed().as_secs_f64();
        loaded.processor_seconds = processor_before.and_then(|before| Some(usage::processor_seconds()? - before));
        if loaded.seconds - last_reading >= read_every {
            last_reading = loaded.seconds;
            loaded.resident.push(usage::resident_memory());
        }
    }
    loaded.peak = usage::peak_memory();
    Ok(loaded)
}

impl Loaded {
    fn images_per_second(&self) -> f64 {
        self.images as f64 / self.seconds
    }

    /// Time of one worker for one image, in microseconds.
    fn worker_microseconds(&self, config: &LoaderConfig) -> f64 {
        1e6 * config.workers as f64 / self.images_per_second()
    }

    /// The part of it in which it computed rather than waited for the disk or for a processor.
    fn processor_microseconds(&self) -> Option<f64> {
        self.processor_seconds.map(|seconds| 1e6 * seconds / self.images as f64)
    }
}

/// The operations of a loader.
fn measured(config: &LoaderConfig) -> impl Iterator<Item = Operation> {
    let finish = config.finish;
    Operation::ALL.into_iter().filter(move |operation| finish || !operation.is_finish())
}

fn object(source: &dyn Source, config: &LoaderConfig, loaded: &Loaded, cost: &Cost) -> Value {
    let operations: Vec<Value> = measured(config)
        .map(|operation| {
            let seconds = cost.operations.of(operation);
            json!({
                "name": operation.name(), "microseconds": 1e6 * seconds, "share": seconds / cost.operations.total(),
            })
        })
        .collect();
    json!({
        "images_per_second": loaded.images_per_second(),
        "views_per_second": loaded.images_per_second() * config.views.count() as f64,
        "workers": config.workers, "batch_size": config.batch_size, "local_crops": config.views.local_crops,
        "global_size": config.views.global_size.0, "local_size": config.views.local_size.0,
        "decoding": config.decoding.name(), "for_gpu": !config.finish,
        "seconds": loaded.seconds, "images": loaded.images, "bad": loaded.bad,
        "orientation": config.orientation.name(), "turned": loaded.turned,
        "source": source.describe(), "source_images": source.len(),
        "peak_memory_bytes": loaded.peak, "resident_bytes": loaded.resident,
        "worker_microseconds": loaded.worker_microseconds(config),
        "processor_microseconds": loaded.processor_microseconds(),
        "operations_microseconds": 1e6 * cost.operations.total(), "operations_images": cost.images,
        "operations": operations,
    })
}

fn table(source: &dyn Source, config: &LoaderConfig, loaded: &Loaded, cost: &Cost) -> String {
    let milliseconds = |microseconds: f64| format!("{:.2} ms", microseconds / 1e3);
    let processor = loaded.processor_microseconds();
    let mut text = format!(
        "{}; batch {}, 2 views of {} pixels + {} of {}{}, {}\n  {:.1} images/s, {:.0} views/s ({} in {:.1} s, {} unreadable)\n  \
         a worker takes {} for an image{}\n  {} resident at the start, {} at the end, {} at most\n\
         operations, each by itself on one thread, for an image with all its views (mean of {}):\n",
        source.describe(),
        config.batch_size,
        config.views.global_size.0,
        config.views.local_crops,
        config.views.local_size.0,
        if config.finish { "" } else { " for a GPU to finish" },
        count(config.workers, "worker"),
        loaded.images_per_second(),
        loaded.images_per_second() * config.views.count() as f64,
        count(loaded.images, "image"),
        loaded.seconds,
        loaded.bad,
        milliseconds(loaded.worker_microseconds(config)),
        processor.map_or(String::new(), |time| format!(", {} of it on a processor", milliseconds(time))),
        bytes(loaded.resident.first().copied().unwrap_or(0)),
        bytes(loaded.resident.last().copied().unwrap_or(0)),
        bytes(loaded.peak),
        cost.images,
    );
    let total = cost.operations.total();
    for operation in measured(config) {
        let seconds = cost.operations.of(operation);
        let share = 100.0 * seconds / total;
        text += &format!("  {:<12}{:>9.1} us{share:>7.1} %\n", operation.name(), 1e6 * seconds);
    }
    text + &format!("  {:<12}{:>9.1} us", "all", 1e6 * total)
}
