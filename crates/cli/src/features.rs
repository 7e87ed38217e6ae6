//! `features`: writes the class-token features of an image source to a file.

use std::ops::ControlFlow;

use data::Orientation;
use data::Source;
use eval::memory::estimate_features;
use eval::{Extraction, FeatureFormat, Network, ReadOptions};
use tensor::Device;

use crate::args::{FeaturesArgs, InputArgs};
use crate::description;
use crate::device;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::output_file::{self, Input, Kind};
use crate::progress::{Console, Meter};
use crate::weights::{self, Weights};

/// Skipped images that are named on the terminal.
const NAMED: usize = 100;

/// Computes and writes the features.
pub fn run(args: &FeaturesArgs) -> Result<(), CliError> {
    // First, so that no hours of computing end in a file that cannot be written.
    let format = FeatureFormat::of(&args.out)?;
    let kind = match format {
        FeatureFormat::Npy => Kind::Npy,
        FeatureFormat::Safetensors => Kind::Features,
    };
    let inputs = [Input::file("--weights", &args.weights), Input::data(&args.data)];
    let out = output_file::check(&args.out, kind, args.force, &inputs)?;
    let device = args.inference.open()?;
    let source = images::open_chosen(&args.data, args.split)?;
    output_file::check_unlisted(&args.out, &args.data, &*source)?;
    let weights = weights::load(&args.weights, &args.input.network, &device)?;
    let workers = args.inference.machine.thread_count()?;
    let Extraction { features, skipped, .. } = extract(&weights, &*source, &args.input, workers, &device)?;
    let input = weights.input.with_size(args.input.network.image_size).oriented(orientation(&weights, &args.input));
    let network = description::of_features(&weights, input, device::precision(&device));
    eval::save_as(format, &out, &features, &*source, &network)?;
    let left_out = if skipped.is_empty() { String::new() } else { format!(", {} left out", skipped.len()) };
    if !skipped.is_empty() && format == FeatureFormat::Npy {
        output::note(
            "warning: a row of the .npy is no longer the image of that number, as some were left out; a .safetensors file \
             names the image of each row",
        );
    }
    output::result(&format!(
        "{}: {} x {} features of {}{left_out}, computed in {}",
        text::shown(&args.out),
        features.len(),
        features.dim,
        source.describe(),
        device::precision(&device)
    ))
}

/// What was asked for, or what the network was trained with.
pub fn orientation(weights: &Weights, input: &InputArgs) -> Orientation {
    input.orientation.unwrap_or(weights.input.orientation)
}

/// Extracts features with a progress bar, and names the images that cannot be read. `workers` threads read; one per core
/// where not given.
pub fn extract(
    weights: &Weights,
    source: &dyn Source,
    input: &InputArgs,
    workers: Option<usize>,
    device: &Device,
) -> Result<Extraction, CliError> {
    let network = Network {
        normalization: Some(&weights.normalization),
        ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device)
    };
    let preparation = weights.input.with_size(input.network.image_size).preparation();
    let orientation = orientation(weights, input);
    let mut options = ReadOptions { batch_size: input.batch_size as usize, orientation, ..Default::default() };
    options.workers = workers.unwrap_or(options.workers);
    options.channels = weights.loaded.vit.config().channels;
    if !device.is_gpu() {
        let vit = weights.loaded.vit.config();
        let need = estimate_features(vit, &preparation, &options, source.len(), device.threads());
        memory::check_bytes(need, memory::SMALLER_FEATURES)?;
    }
    let console = Console::new(source.len() as u64);
    let mut meter = Meter::started(&console, "image");
    let precision = device::precision(device);
    let mut progress = |at: eval::ReadProgress| {
        let done = at.done as u64;
        let about = format!("{}  {precision}", output::speed(meter.rate(done)));
        meter.show(done, at.total as u64, &about);
        ControlFlow::Continue(())
    };
    let extraction = eval::extract(network, source, &preparation, &options, &mut progress);
    console.close();
    images::say_news(source);
    let extraction = extraction?;
    for bad in extraction.skipped.iter().take(NAMED) {
        output::note(&format!("skipped {}: {}", bad.name, bad.reason));
    }
    if extraction.skipped.len() > NAMED {
        output::note(&format!("and {} more", text::count(extraction.skipped.len() - NAMED, "image")));
    }
    if extraction.turned > 0 {
        output::note(&output::turned(extraction.turned));
    }
    Ok(extraction)
}
