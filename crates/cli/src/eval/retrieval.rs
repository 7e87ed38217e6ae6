//! `eval retrieval`: revisited Oxford and Paris, from a network and images, or from a ranking made elsewhere.

use std::ops::ControlFlow;
use std::path::Path;

use data::Source;
use eval::memory::{Kept, estimate_features};
use eval::retrieval::{
    Benchmark, DEPTHS, GroundTruth, Part, READ, Ranking, Score, SearchOptions, describe_images, of_images, score,
};
use eval::{EvalError, Features, Network, Pooling, Preparation, ReadOptions, ReadProgress, stored};
use serde_json::{Map, Value, json};
use tensor::{CpuOptions, Device};
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets::Provenance;
use super::shelf::Shelf;
use crate::args::RetrievalArgs;
use crate::device;
use crate::devices::Devices;
use crate::error::CliError;
use crate::memory;
use crate::output;
use crate::progress::{Console, Meter};
use crate::weights::Weights;

const RETRIEVAL: Evaluation = Evaluation { name: "retrieval", version: 1 };
/// The most pixels of a side, as DINO has it for Paris.
const SIDE: usize = 512;
/// Tokens that go through the network at once.
const TOKENS: usize = 16_384;

/// Ranks, or reads a ranking, and scores it.
pub fn judge(args: &RetrievalArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let truth = GroundTruth::read(&args.gnd).map_err(EvalError::from)?;
    let gnd = json!({ "file": text::shown(&args.gnd).to_string(), "digest": record::file_digest(&args.gnd) });
    let threads = args.inference.machine.thread_count()?;
    let host = || Device::cpu(CpuOptions { threads, ..Default::default() });
    match (&args.ranks, &args.weights, &args.data, &args.database, &args.queries) {
        (None, Some(weights), Some(folder), ..) => of_network(args, &truth, gnd, (weights, folder), shelf),
        (None, .., Some(database), Some(queries)) => of_stored(&truth, gnd, database, queries, &host()?),
        (ranks, ..) => {
            // The command line is refused where neither is given.
            let ranks = ranks.as_deref().unwrap_or(Path::new(""));
            let host = host()?;
            let ranking = Ranking::read(ranks, &truth).map_err(EvalError::from)?;
            let from = Provenance::new(vec![
                ("ranks", json!(text::shown(ranks).to_string())),
                ("ranks_digest", json!(record::file_digest(ranks))),
            ]);
            Ok(judged(&truth, &score(&truth, &ranking, &host), json!({ "gnd": gnd }), &from))
        }
    }
}

/// Features that were stored.
fn of_stored(
    truth: &GroundTruth,
    gnd: Value,
    database: &Path,
    queries: &Path,
    host: &Device,
) -> Result<Judgement, CliError> {
    let stored = [stored::read(database)?, stored::read(queries)?];
    let found = of_images(&stored[0], truth.database.iter().map(String::as_str)).map_err(EvalError::from)?;
    let asked =
        of_images(&stored[1], truth.queries.iter().map(|query| query.name.as_str())).map_err(EvalError::from)?;
    let ranking = Ranking::by_similarity(&found, &asked, host)?;
    let from = Provenance::of_files(&[("database", database, &stored[0]), ("queries", queries, &stored[1])]);
    Ok(judged(truth, &score(truth, &ranking, host), json!({ "gnd": gnd }), &from))
}

fn of_network(
    args: &RetrievalArgs,
    truth: &GroundTruth,
    gnd: Value,
    (path, folder): (&Path, &Path),
    shelf: &Shelf,
) -> Result<Judgement, CliError> {
    let side = match args.network.image_size {
        None => SIDE,
        Some((height, width)) if height == width => height,
        Some((height, width)) => {
            let expected = "one number, the most pixels of a side: images keep their aspect".to_owned();
            let value = format!("{height}x{width}");
            return Err(EvalError::Setting { setting: "--image-size", value, expected }.into());
        }
    };
    let benchmark = Benchmark::open(folder, truth).map_err(EvalError::from)?;
    let device = args.inference.open()?;
    // Of the image's size nothing is said here: each has its own.
    let asked = crate::args::NetworkArgs { image_size: None, ..args.network.clone() };
    let weights = shelf.weights(path, &asked, &device)?;
    let workers = args.inference.machine.thread_count()?.unwrap_or(ReadOptions::default().workers);
    let options = SearchOptions { side, is_multi_scale: !args.single_scale, orientation: args.orientation, workers };
    check_memory(&weights, &options, truth, &device)?;
    let parts: Vec<Option<Part>> = truth.queries.iter().map(|query| query.part.map(Part)).collect();
    let parts = args.crop_queries.then_some(parts.as_slice());
    let database = describe(&weights, &benchmark.database, None, &options, &device)?;
    let queries = describe(&weights, &benchmark.queries, parts, &options, &device)?;
    let host = args.inference.machine.host(&device)?;
    let ranking = Ranking::by_similarity(&database, &queries, &host)?;
    let sources: [(&str, &dyn Source); 2] = [("database", &benchmark.database), ("queries", &benchmark.queries)];
    let from = Provenance::of_network(&weights, &device, &text::shown(folder), &sources);
    let settings = json!({
        "gnd": gnd, "image_size": side, "scales": if args.single_scale { 1 } else { 3 },
        "crop_queries": args.crop_queries, "orientation": args.orientation.name(),
    });
    Ok(judged(truth, &score(truth, &ranking, &host), settings, &from))
}

fn check_memory(
    weights: &Weights,
    options: &SearchOptions,
    truth: &GroundTruth,
    device: &Device,
) -> Result<(), CliError> {
    if device.is_gpu() {
        return Ok(());
    }
    let (config, size) = (weights.loaded.vit.config(), (options.side, options.side));
    let batch_size = (TOKENS / config.tokens(size).max(1)).max(1);
    let read = ReadOptions { batch_size, workers: options.workers, channels: config.channels, ..Default::default() };
    let kept = (truth.database.len(), Kept::All);
    let need =
        estimate_features(config, &Preparation::Stretch(size), &Pooling::default(), &read, kept, device.threads());
    memory::check_bytes(need, "smaller images (--image-size)")
}

/// Features of images, with a progress bar.
fn describe(
    weights: &Weights,
    source: &dyn Source,
    parts: Option<&[Option<Part>]>,
    options: &SearchOptions,
    device: &Devices,
) -> Result<Features, CliError> {
    let twins = device.twins(&weights.loaded.weights, source.len(), READ)?;
    let network = Network {
        twins: &twins,
        normalization: Some(&weights.normalization),
        ..Network::new(&weights.loaded.vit, &weights.loaded.weights, device)
    };
    let console = Console::new(source.len() as u64);
    let mut meter = Meter::started(&console, "image");
    let precision = device::precision(device);
    let mut progress = |at: ReadProgress| {
        let done = at.done as u64;
        let about = format!("{}  {precision}", output::speed(meter.rate(done)));
        meter.show(done, at.total as u64, &about);
        ControlFlow::Continue(())
    };
    let described = describe_images(network, source, parts, options, &mut progress);
    console.close();
    let described = described?;
    if described.turned > 0 {
        output::note(&output::turned(described.turned));
    }
    Ok(described.features)
}

fn judged(truth: &GroundTruth, scores: &[Score], settings: Value, from: &Provenance) -> Judgement {
    let mut results = Map::new();
    for score in scores {
        let mp =
            score.mp.map(|mp| Value::Object(DEPTHS.iter().map(usize::to_string).zip(mp.map(Value::from)).collect()));
        let object = json!({ "map": score.map, "mp": mp, "aps": score.aps });
        results.insert(score.difficulty.name().to_owned(), object);
    }
    results.insert("database".to_owned(), json!(truth.database.len()));
    results.insert("queries".to_owned(), json!(truth.queries.len()));
    let record = record::object(RETRIEVAL, settings, from, Value::Object(results));
    let percent = |share: Option<f64>| share.map_or("      -".to_owned(), |share| format!("{:7.2}", 100.0 * share));
    let depths: Vec<String> = DEPTHS.iter().map(|depth| format!("  mP@{depth:<3}")).collect();
    let (images, queries) = (count(truth.database.len(), "image"), count(truth.queries.len(), "query image"));
    let mut text = format!("Retrieval of {queries} among {images}, per cent\n            mAP{}\n", depths.concat());
    for score in scores {
        let mp: String = (0..DEPTHS.len()).map(|at| format!(" {}", percent(score.mp.map(|mp| mp[at])))).collect();
        text += &format!("  {:6} {}{mp}\n", score.difficulty.name(), percent(score.map));
    }
    Judgement { record, table: text }
}
