//! `bench knn`: how long the nearest-neighbour classifier takes once it has its features.

use std::time::Instant;

use eval::{Features, KnnOptions, Place, knn};
use random::{Key, Purpose};
use serde_json::json;
use text::{bytes, count};

use super::usage;
use crate::args::BenchKnnArgs;
use crate::error::CliError;
use crate::output;

/// Classes of the random labels.
const CLASSES: usize = 1000;

/// Measures and prints.
pub fn run(args: &BenchKnnArgs) -> Result<(), CliError> {
    let chosen = args.device.choose_exact()?;
    let host = args.device.host(&chosen.device)?;
    let features = |images: u32, sample: u64| {
        let mut stream = Key::new(0, Purpose::Bench).sample(sample).stream();
        let values = (0..images as usize * args.dim as usize).map(|_| stream.uniform_in(-1.0, 1.0) as f32).collect();
        let labels: Vec<u32> = (0..images as usize).map(|image| (image % CLASSES) as u32).collect();
        Features::labelled(args.dim as usize, values, &labels)
    };
    let (train, test) = (features(args.train_images, 0), features(args.test_images, 1));
    let options = KnnOptions { ks: vec![args.k as usize], ..Default::default() };
    let place = Place::new(&host, &chosen.device);
    let before = usage::resident_memory();
    if place.is_gpu() {
        // Kernels are compiled, products chosen and memory taken when they are first needed.
        knn::classify(&train, &test, &options, place)?;
    }
    let (processor, start) = (usage::processor_seconds(), Instant::now());
    knn::classify(&train, &test, &options, place)?;
    let seconds = start.elapsed().as_secs_f64();
    let processor_seconds = usage::processor_seconds().zip(processor).map(|(after, before)| after - before);
    let memory = usage::peak_memory().saturating_sub(before);
    if args.json {
        return output::json(&json!({
            "seconds": seconds, "images_per_second": test.len() as f64 / seconds, "processor_seconds": processor_seconds,
            "memory_bytes": memory, "train_images": train.len(), "test_images": test.len(), "dim": args.dim, "k": args.k,
            "device": chosen.describe(),
        }));
    }
    output::result(&format!(
        "{} by {} of {} values, k = {}: {seconds:.2} s, {:.0} images a second, {} beside the features\n{}",
        count(test.len(), "image"),
        count(train.len(), "training image"),
        args.dim,
        args.k,
        test.len() as f64 / seconds,
        bytes(memory),
        chosen.describe()
    ))
}
