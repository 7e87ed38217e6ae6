//! `eval all`: every protocol that the data allows, one after the other, and one page of what they gave.
//!
//! A protocol is run as its own command would run it ([`plan`]), on features that are computed once for all of them, and
//! what it found is stored at once ([`store`]): a command that was stopped goes on with the protocols that are missing.

mod headline;
mod pictures;
mod plan;
mod store;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use eval::EvalError;
use random::StableHash;
use report::Chart;
use report::figure::{precision, prototypes};
use report::results::{self, Evaluated, Results};
use serde_json::{Map, Value, json};
use tensor::Device;
use train::run::RunResult;

use super::record::{Judgement, file_digest};
use super::shelf::Shelf;
use crate::args::{AllArgs, Command};
use crate::attention;
use crate::description;
use crate::device;
use crate::error::CliError;
use crate::output;
use crate::output_file::Input;
use crate::signals;
use crate::weights::Weights;
use headline::headline;
use plan::{Data, Item, LeftOut};
pub use store::{FORMAT, MOST_BYTES_OF_RESULTS, RESULTS};
use store::{Kept, Store};

/// Under which key results name the backbone that a finished run has left, by its checksum.
pub const OF_BACKBONE: &str = "backbone";
/// How the reason begins why a protocol has no result that could have had one.
pub const WHY_FAILED: &str = "it failed: ";

/// Runs what there is to run, prints a table of it and writes the page.
pub fn run(args: &AllArgs) -> Result<ExitCode, CliError> {
    args.stop_with.map_or(Ok(()), signals::stop_with)?;
    let device = args.judging.inference.open()?;
    let shelf = Shelf::keeping();
    let data = Data::open(args, &shelf)?;
    data.check_neighbors(args)?;
    let planned = plan::plan(args, &data);
    plan::check_possible(&planned)?;
    let weights = shelf.weights(&args.weights, &args.judging.input.network, &device)?;
    let about = about(args, &data, &weights);
    // The head of a network counts, too.
    let weights_file = file_digest(&weights.path);
    let mut store = Store::open(&args.out, &inputs(args), &about, args.force)?;
    let names: Vec<&'static str> = planned.iter().map(|(name, _)| *name).collect();
    let (total, mut number, mut failed) = (planned.iter().filter(|(_, item)| item.is_ok()).count(), 0, false);
    let (mut shown, mut skipped) = (Vec::new(), Vec::new());
    for (name, item) in planned {
        let item = match item {
            Ok(item) => item,
            Err(why) => {
                // What was only not asked for this time keeps the result of another.
                let has_another = store.kept(name).is_some() && why.is_not_asked();
                if why != LeftOut::NotAsked && !has_another {
                    let why = why.to_string();
                    store.leave_out(name, &why);
                    skipped.push((name, why));
                }
                continue;
            }
        };
        number += 1;
        let inputs = inputs_of(&item, weights_file.as_deref(), &device);
        if !args.force && store.is_kept(name, &inputs) {
            output::note(&format!("{name} ({number} of {total}): stored already, and not computed again"));
            shown.push(name);
            continue;
        }
        output::note(&format!("{name} ({number} of {total})"));
        let started = Instant::now();
        match judged(&item, &shelf, &weights, &device) {
            Ok(judgement) => {
                let (command, seconds) = (command(&item), started.elapsed().as_secs_f64());
                store.keep(name, &inputs, &Kept { judgement, command, seconds });
                shown.push(name);
            }
            // The user's own request to stop, or a device that is lost: nothing after it would do better.
            Err(error @ CliError::Eval(EvalError::Stopped | EvalError::Device(_))) => return Err(error),
            // The checkpoint is gone, and with it the head; the network is still the same.
            Err(CliError::NoHead { .. }) if store.kept(name).is_some() => {
                output::note(&format!("{name}: kept from before: there is no head any more"));
                shown.push(name);
            }
            Err(error) => {
                let is_expected = does_not_apply(&error, &item);
                failed |= !is_expected;
                let why = if is_expected { error.to_string() } else { format!("{WHY_FAILED}{error}") };
                output::note(&format!("{name}: {why}"));
                store.leave_out(name, &why);
                skipped.push((name, why));
            }
        }
        store.write(&page(args, &store, &names))?;
    }
    store.write(&page(args, &store, &names))?;
    match args.judging.json {
        true => output::json(&store.to_json())?,
        false => output::result(&table(args, &evaluated(&store, &shown), &skipped))?,
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What all results are of.
fn about(args: &AllArgs, data: &Data, weights: &Weights) -> Map<String, Value> {
    let sources = [("train", data.train.as_ref()), ("test", data.test.as_ref())];
    let digests: Map<String, Value> = sources
        .into_iter()
        .filter_map(|(name, source)| Some((name.to_owned(), json!(format!("{:016x}", source?.fingerprint())))))
        .collect();
    Map::from_iter([
        ("program".to_owned(), json!(description::program())),
        ("weights".to_owned(), json!(text::shown(&weights.path).to_string())),
        ("weights_digest".to_owned(), json!(description::weights_digest(weights))),
        (OF_BACKBONE.to_owned(), json!(RunResult::read(&args.weights).and_then(|result| result.backbone))),
        ("data".to_owned(), json!(args.data)),
        ("data_digest".to_owned(), Value::Object(digests)),
    ])
}

fn inputs(args: &AllArgs) -> Vec<Input> {
    let mut inputs = vec![Input::file("--weights", &args.weights)];
    inputs.extend(args.data.as_deref().map(Input::data));
    inputs.extend(args.other.as_deref().map(|other| Input::images("--other", other)));
    let folders = [
        ("--oxford", &args.oxford),
        ("--paris", &args.paris),
        ("--copydays", &args.copydays),
        ("--davis", &args.davis),
    ];
    inputs.extend(folders.into_iter().filter_map(|(flag, folder)| Some(Input::file(flag, folder.as_deref()?))));
    inputs
}

/// What decides the result of a protocol, besides the backbone and the data of all of them.
fn inputs_of(item: &Item, weights_file: Option<&str>, device: &Device) -> Value {
    let settings: Vec<String> = item.settings.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // All results are of one backbone; the head beside it may be another in another file.
    let weights_file = weights_file.filter(|_| item.needs_head());
    json!({
        "program": description::program(), "settings": settings, "precision": device::precision(device),
        "weights_file": weights_file, "folder": item.folder.as_deref().map(folder_digest), "other": item.other,
    })
}

/// Tells the files of a folder from others, by their names, sizes and times.
fn folder_digest(folder: &Path) -> String {
    let (mut hash, mut open) = (StableHash::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
        entries.sort();
        for path in entries {
            // Links are not followed: they could lead in a circle.
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            hash.write(path.as_os_str().as_encoded_bytes());
            hash.write(&about.len().to_le_bytes());
            let changed = about.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            hash.write(&changed.map_or(0, |time| time.as_nanos()).to_le_bytes());
            if about.is_dir() {
                open.push(path);
            }
        }
    }
    format!("{:016x}", hash.finish())
}

/// Runs a protocol.
fn judged(item: &Item, shelf: &Shelf, weights: &Weights, device: &Device) -> Result<Judgement, CliError> {
    match item.parsed()? {
        Command::Eval(protocol) => match super::judge(&protocol, shelf)? {
            Some((judgement, _)) => Ok(judgement),
            None => Err(CliError::Protocol { name: item.name, why: "it is no protocol".to_owned() }),
        },
        Command::Attention(args) => {
            let drawn = attention::draw(&args, weights, device)?;
            let shown = |names: &Vec<PathBuf>| names.iter().map(|name| text::shown(name).to_string()).collect();
            let images: Vec<Vec<String>> = drawn.images.iter().map(shown).collect();
            let patch = weights.loaded.vit.config().patch;
            let record =
                json!({ "evaluation": { "name": "attention", "version": 2 }, "patch": patch, "images": images });
            Ok(Judgement { record, table: drawn.table })
        }
        _ => Err(CliError::Protocol { name: item.name, why: "it is no protocol".to_owned() }),
    }
}

/// Whether an error says that these weights or this data have nothing for a protocol, rather than that something is wrong.
fn does_not_apply(error: &CliError, item: &Item) -> bool {
    match error {
        CliError::Eval(EvalError::Setting { .. }) => !item.is_chosen,
        CliError::NoHead { .. } | CliError::Unlabelled { .. } | CliError::NoComponents => true,
        CliError::Eval(error) => matches!(
            error,
            EvalError::Empty { .. }
                | EvalError::NoLabels { .. }
                | EvalError::NoMember { .. }
                | EvalError::FoldWithoutClass { .. }
                | EvalError::TooFewVoters { .. }
                | EvalError::Distribution(_)
        ),
        _ => false,
    }
}

/// A protocol's command, as a shell takes it.
fn command(item: &Item) -> String {
    let words: Vec<String> = item.words().map(|word| text::shell(&word.to_string_lossy())).collect();
    format!("dino-vmf {}", words.join(" "))
}

/// What is stored of these protocols.
fn evaluated(store: &Store, names: &[&str]) -> Vec<Evaluated> {
    let of = |name: &str| {
        let Kept { judgement: Judgement { record, table }, command, seconds } = store.kept(name)?;
        let headline = match name {
            pictures::FOLDER => text::count(record["images"].as_array().map_or(0, Vec::len), "image"),
            _ => headline(&record),
        };
        Some(Evaluated { name: name.to_owned(), headline, charts: charts(name, &record), table, command, seconds })
    };
    names.iter().filter_map(|name| of(name)).collect()
}

/// What is drawn of a result; nothing of one that is not what a protocol writes.
fn charts(name: &str, record: &Value) -> Vec<Chart> {
    let name = name.to_owned();
    match record["evaluation"]["name"].as_str() {
        Some(precision::EVALUATION) => {
            precision::Accuracy::of_result(name, record).map_or(Vec::new(), |found| precision::figure(&[found]).charts)
        }
        Some(prototypes::EVALUATION) => {
            let counted = prototypes::Utilisation::of_result(name, record).map(|found| prototypes::figure(&[found]));
            counted
                .map_or(Vec::new(), |figure| figure.charts)
                .into_iter()
                .chain(prototypes::concentrations(record))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn page(args: &AllArgs, store: &Store, names: &[&str]) -> String {
    let about = store.about();
    let fact = |key: &str| Some((key.to_owned(), about.get(key)?.as_str()?.to_owned()));
    let skipped = |name: &&str| Some(((*name).to_owned(), store.why_not(name)?.to_owned()));
    let weights = text::shown(&args.weights);
    results::page(&Results {
        title: format!("Evaluation of {weights}"),
        facts: ["weights", "weights_digest", "data", "program"].into_iter().filter_map(fact).collect(),
        evaluated: evaluated(store, names),
        skipped: names.iter().filter_map(skipped).collect(),
        pictures: pictures::of(store),
    })
}

fn table(args: &AllArgs, shown: &[Evaluated], skipped: &[(&'static str, String)]) -> String {
    let names = shown.iter().map(|result| result.name.len()).chain(skipped.iter().map(|(name, _)| name.len()));
    let width = names.max().unwrap_or(0);
    let mut text = String::new();
    for Evaluated { name, headline, seconds, .. } in shown {
        text += &format!("{name:width$}  {headline}  ({seconds:.1} s)\n");
    }
    for (name, why) in skipped {
        text += &format!("{name:width$}  left out: {why}\n");
    }
    text + &format!("{}: open it in a browser", text::shown(&args.out.join("index.html")))
}
