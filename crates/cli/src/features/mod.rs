//! `features`: writes the features of an image source to a file, as they are computed; `certainty` has what may stand beside them.

mod certainty;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use data::{Orientation, Source};
use eval::memory::{Kept, estimate_features};
use eval::{
    EvalError, Extraction, FeatureBatch, FeatureFormat, FeatureWriter, InputSpec, Network, Pass, Pooling, ReadOptions,
};

use crate::args::{FeaturesArgs, InputArgs};
use crate::description::{self, Description};
use crate::device;
use crate::devices::Devices;
use crate::error::CliError;
use crate::images;
use crate::memory;
use crate::output;
use crate::output_file::{self, Input, Kind, OutputFileError};
use crate::progress::{Console, Meter};
use crate::signals::Stop;
use crate::weights::{self, Weights};
use certainty::Columns;

/// Skipped images that are named on the terminal.
const NAMED: usize = 100;

/// What a file says beside what made its features.
const BESIDE: [&str; 3] = ["format", "source", "feature_shape"];

/// Computes and writes the features.
pub fn run(args: &FeaturesArgs) -> Result<ExitCode, CliError> {
    // First, so that no hours of computing end in a file that cannot be written.
    let format = FeatureFormat::of(&args.out)?;
    // Features that are there may be those that are asked for, which is known when weights and data are.
    let place = args.out.canonicalize().unwrap_or_else(|_| args.out.clone());
    let there = if args.force { None } else { eval::save::description(format, &place) };
    let out = if there.is_some() { None } else { Some(check_place(args, format)?) };
    let device = args.inference.open()?;
    let source = images::open_chosen(&args.data, args.split)?;
    output_file::check_unlisted(&args.out, &args.data, &*source)?;
    let weights = weights::load(&args.weights, &args.input.network, &device)?;
    let pooling = args.pooling.pooling();
    let input = weights.input.with_size(args.input.network.image_size).oriented(orientation(&weights, &args.input));
    let mut said = description::of_features(&weights, input, device::precision(&device));
    said.extend(pooling.metadata());
    said.extend(description::of_data(&*source));
    let certainty = Columns::asked(args, &weights, &device)?;
    said.extend(certainty.iter().flat_map(Columns::description));
    let shape = pooling.shape(weights.loaded.vit.config(), input.size);
    let Some(out) = out else {
        if let Some(what) = difference(&there.unwrap_or_default(), &said) {
            return Err(OutputFileError::OtherFeatures { path: args.out.clone(), what }.into());
        }
        let (path, source) = (text::shown(&args.out), source.describe());
        output::result(&format!(
            "{path}: holds these features of {source} already, of the same weights; nothing is computed again (--force does)"
        ))?;
        return Ok(ExitCode::SUCCESS);
    };
    let columns = certainty.as_ref().map_or(&[][..], Columns::names);
    let certainty = certainty.as_ref().map(Columns::numbers).transpose()?;
    let mut file = FeatureWriter::with_numbers(format, &out, (&shape, columns), &*source, &said)?;
    let console = Console::new(source.len() as u64);
    let stop = Stop::listen_and_say(
        &console,
        "stopping: nothing is written. Ctrl-C once more, a second from now, ends at once",
    )?;
    let workers = args.inference.machine.thread_count()?;
    let wanted = Wanted::of(&weights, &args.input, workers, &device);
    let mut rows = 0;
    let pass = wanted.each(&*source, pooling, Kept::Batch, &console, &|| stop.requested(), &mut |batch| {
        rows += batch.indices.len();
        let numbers = certainty.as_ref().map_or(Ok(Vec::new()), |certainty| certainty.of(batch))?;
        file.add_with(batch, &numbers)
    });
    let skipped = match pass {
        Err(CliError::Eval(EvalError::Stopped)) => return Ok(ExitCode::from(stop.status())),
        pass => pass?.skipped,
    };
    file.finish()?;
    let left_out = if skipped.is_empty() { String::new() } else { format!(", {} left out", skipped.len()) };
    let beside = if columns.is_empty() { String::new() } else { format!(" with {}", columns.join(", ")) };
    let size: Vec<String> = [rows].iter().chain(&shape).map(usize::to_string).collect();
    output::result(&format!(
        "{}: {} features{beside} of {}{left_out}, computed in {}",
        text::shown(&args.out),
        size.join(" x "),
        source.describe(),
        device::precision(&device)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The file to write, if it may be written, and what comes to be beside it too.
fn check_place(args: &FeaturesArgs, format: FeatureFormat) -> Result<PathBuf, CliError> {
    let kind = match format {
        FeatureFormat::Npy => Kind::Npy,
        FeatureFormat::Safetensors => Kind::Features,
        FeatureFormat::Parquet => Kind::FeatureRows,
    };
    let inputs = [Input::file("--weights", &args.weights), Input::data(&args.data)];
    let out = output_file::check(&args.out, kind, args.force, &inputs)?;
    for beside in format.beside(&out) {
        let is_table = beside.extension().is_some_and(|extension| extension == "csv");
        let kind = if is_table { Kind::FeatureTable } else { Kind::FeatureNote };
        output_file::check(&beside, kind, args.force, &inputs)?;
    }
    Ok(out)
}

/// The first thing in which features that are there differ from those that are asked for, in words.
fn difference(there: &BTreeMap<String, String>, asked: &Description) -> Option<String> {
    let is_asked = |key: &str| asked.iter().any(|(known, _)| *known == key);
    let changed = asked.iter().find_map(|(key, now)| {
        let said = there.get(*key).map_or("unknown", String::as_str);
        (said != now)
            .then(|| format!("`{key}` is {} there, and {} is asked for", text::excerpt(said), text::excerpt(now)))
    });
    changed.or_else(|| {
        let more = there.iter().find(|(key, _)| !BESIDE.contains(&key.as_str()) && !is_asked(key))?;
        Some(format!("`{}` is {} there", text::excerpt(more.0), text::excerpt(more.1)))
    })
}

/// What was asked for, or what the network was trained with.
pub fn orientation(weights: &Weights, input: &InputArgs) -> Orientation {
    input.orientation.unwrap_or(weights.input.orientation)
}

/// Extracts features of these tokens with a progress bar, and names the images that cannot be read. `workers` threads read;
/// one per core where not given.
pub fn extract_pooled(
    weights: &Weights,
    source: &dyn Source,
    input: &InputArgs,
    pooling: Pooling,
    workers: Option<usize>,
    device: &Devices,
) -> Result<Extraction, CliError> {
    extract_seen(&Wanted::of(weights, input, workers, device), source, pooling)
}

/// The same of what the network is to see of an image.
pub fn extract_seen(wanted: &Wanted<'_>, source: &dyn Source, pooling: Pooling) -> Result<Extraction, CliError> {
    let console = Console::new(source.len() as u64);
    let size = wanted.input.network.image_size.unwrap_or(wanted.seen.size);
    let dim = pooling.shape(wanted.weights.loaded.vit.config(), size).iter().product();
    let mut features = eval::Features { dim, ..Default::default() };
    let Pass { skipped, turned } = wanted.each(source, pooling, Kept::All, &console, &|| false, &mut |batch| {
        features.push(batch);
        Ok(())
    })?;
    Ok(Extraction { features, skipped, turned })
}

/// Features that a network is to compute.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The network.
    pub weights: &'a Weights,
    /// What of an image it sees.
    pub seen: InputSpec,
    /// What was asked for of that.
    pub input: &'a InputArgs,
    /// Threads that read; one per core where not given.
    pub workers: Option<usize>,
    /// Where it computes.
    pub device: &'a Devices,
}

impl<'a> Wanted<'a> {
    /// Of images as the network was trained to see them.
    pub fn of(weights: &'a Weights, input: &'a InputArgs, workers: Option<usize>, device: &'a Devices) -> Self {
        Self { weights, seen: weights.input, input, workers, device }
    }

    /// Computes them batch by batch with a progress bar.
    fn each(
        &self,
        source: &dyn Source,
        pooling: Pooling,
        kept: Kept,
        console: &Console,
        should_stop: &dyn Fn() -> bool,
        consume: &mut dyn FnMut(FeatureBatch<'_>) -> Result<(), EvalError>,
    ) -> Result<Pass, CliError> {
        let Self { weights, seen, input, workers, device } = *self;
        let twins = device.twins(&weights.loaded.weights, source.len(), input.batch_size as usize)?;
        let network = Network {
            twins: &twins,
            normalization: Some(&weights.normalization),
            pooling,
            ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device)
        };
        let preparation = seen.with_size(input.network.image_size).preparation();
        let orientation = orientation(weights, input);
        let mut options = ReadOptions { batch_size: input.batch_size as usize, orientation, ..Default::default() };
        options.workers = workers.unwrap_or(options.workers);
        options.channels = weights.loaded.vit.config().channels;
        if !device.is_gpu() {
            let vit = weights.loaded.vit.config();
            let images = (source.len(), kept);
            let need = estimate_features(vit, &preparation, &pooling, &options, images, device.threads());
            memory::check_bytes(need, memory::SMALLER_FEATURES)?;
        }
        let mut meter = Meter::started(console, "image");
        let precision = device::precision(device);
        let mut progress = |at: eval::ReadProgress| {
            let done = at.done as u64;
            let about = format!("{}  {precision}", output::speed(meter.rate(done)));
            meter.show(done, at.total as u64, &about);
            if should_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let pass = eval::extract_each(network, source, &preparation, &options, &mut progress, consume);
        console.close();
        images::say_news(source);
        let pass = pass?;
        for bad in pass.skipped.iter().take(NAMED) {
            output::note(&format!("skipped {}: {}", bad.name, bad.reason));
        }
        if pass.skipped.len() > NAMED {
            output::note(&format!("and {} more", text::count(pass.skipped.len() - NAMED, "image")));
        }
        if pass.turned > 0 {
            output::note(&output::turned(pass.turned));
        }
        Ok(pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_stored_features_is_named() {
        let there = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let asked = vec![("heads", "6".to_owned()), ("tokens", "class".to_owned())];
        let same = there(&[("heads", "6"), ("tokens", "class"), ("source", "photos: 3 images"), ("format", "f")]);
        assert_eq!(difference(&same, &asked), None);
        let mut other = same.clone();
        other.insert("tokens".to_owned(), "mean".to_owned());
        assert_eq!(difference(&other, &asked).unwrap(), "`tokens` is mean there, and class is asked for");
        other.remove("tokens");
        assert_eq!(difference(&other, &asked).unwrap(), "`tokens` is unknown there, and class is asked for");
        other = same;
        other.insert("norm_epsilon".to_owned(), "1e-12".to_owned());
        assert_eq!(difference(&other, &asked).unwrap(), "`norm_epsilon` is 1e-12 there");
    }
}
