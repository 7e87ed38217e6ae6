//! `eval video`: masks of DAVIS-2017, made by a network or by anything, against the annotations.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use data::label_map;
use eval::memory::{Kept, estimate_features};
use eval::video::{
    self, Part, Propagation, Score, Sequence, SequenceScore, Statistics, VideoScore, propagate, score_folder,
    score_masks,
};
use eval::{EvalError, FeatureTokens, Network, Pooling, Preparation, ReadOptions};
use serde_json::{Value, json};
use tensor::Device;
use text::count;

use super::record::{self, Evaluation, Judgement};
use super::sets::Provenance;
use super::shelf::Shelf;
use crate::args::VideoArgs;
use crate::description;
use crate::device;
use crate::error::CliError;
use crate::memory;
use crate::output_file::Input;
use crate::pictures::Pictures;
use crate::progress::{Console, Meter};
use crate::weights::Weights;

const VIDEO: Evaluation = Evaluation { name: "video", version: 1 };
/// The folders of the data set that are read.
const READ: [&str; 3] = ["JPEGImages", "Annotations", "ImageSets"];
/// What a frame is about as large as to the network.
const FRAME: (usize, usize) = (480, 896);
/// Frames at once.
const BATCH: usize = 4;

/// The scores, and what there is to say of them.
struct Outcome {
    score: VideoScore,
    /// Of masks that nobody has to make: the first one for every frame.
    copied: Option<VideoScore>,
    settings: Value,
    from: Provenance,
}

/// Makes masks, or reads them, and scores them.
pub fn judge(args: &VideoArgs, shelf: &Shelf) -> Result<Judgement, CliError> {
    let sequences = video::sequences(&args.davis, &args.sequences).map_err(EvalError::from)?;
    let outcome = match (&args.masks, &args.weights) {
        (None, Some(weights)) => of_network(args, &sequences, weights, shelf)?,
        // The command line is refused without one of them.
        (masks, _) => of_masks(args, &sequences, masks.as_deref().unwrap_or(Path::new("")))?,
    };
    let Outcome { score, copied, settings, from } = outcome;
    let overall = score.overall();
    let copied = copied.map(|copied| copied.overall());
    let mut results = of_score(&overall);
    results["objects"] = json!(score.sequences.iter().map(|sequence| sequence.objects.len()).sum::<usize>());
    results["first_mask_copied"] = json!(copied.as_ref().map(of_score));
    results["sequences"] = score.sequences.iter().map(of_sequence).collect();
    let record = record::object(VIDEO, settings, &from, results);
    Ok(Judgement { record, table: table(&score, copied.as_ref()) })
}

/// Masks made elsewhere.
fn of_masks(args: &VideoArgs, sequences: &[Sequence], masks: &Path) -> Result<Outcome, CliError> {
    let machine = &args.inference.machine;
    let threads = machine.thread_count()?;
    let host = Device::cpu(tensor::CpuOptions { threads, ..Default::default() })?;
    let console = Console::new(sequences.len() as u64);
    let mut meter = Meter::started(&console, "sequence");
    let mut progress = |done: usize| {
        if sequences.len() > 1 {
            meter.show(done as u64, sequences.len() as u64, "scored");
        }
        ControlFlow::Continue(())
    };
    let score = score_folder(sequences, masks, &host, &mut progress);
    console.close();
    let score = score?;
    let [masks_digest, data_digest] = digests(sequences, [Part::Masks(masks), Part::Annotations], &host)?;
    let entries = vec![
        ("masks", json!(text::shown(masks).to_string())),
        ("masks_digest", masks_digest),
        ("data", json!(text::shown(&args.davis).to_string())),
        ("data_digest", data_digest),
    ];
    Ok(Outcome { score, copied: None, settings: json!({}), from: Provenance::new(entries) })
}

/// Masks of a network.
fn of_network(args: &VideoArgs, sequences: &[Sequence], path: &Path, shelf: &Shelf) -> Result<Outcome, CliError> {
    let settings =
        Propagation { last_frames: args.last_frames.into(), reach: args.reach.into(), top_k: args.top_k.into() };
    let save = args.save.as_ref().map(|folder| place(args, sequences, folder)).transpose()?;
    let device = args.inference.open()?;
    let weights = shelf.weights(path, &args.network(), &device)?;
    let host = args.inference.machine.host(&device)?;
    check_memory(&weights, &device)?;
    let network = Network {
        normalization: Some(&weights.normalization),
        ..Network::new(&weights.loaded.vit, &weights.loaded.weights, &device)
    };
    let total: usize = sequences.iter().map(|sequence| sequence.frames.len()).sum();
    let console = Console::new(total as u64);
    let mut meter = Meter::started(&console, "frame");
    let precision = device::precision(&device);
    let (mut scores, mut copied, mut done) = (Vec::new(), Vec::new(), 0);
    for sequence in sequences {
        let mut failed = None;
        let made = propagate(network, sequence, &settings, &host, &mut |frame, mask| {
            if let Some(save) = &save {
                let written = label_map::to_png(mask).map_err(CliError::from);
                if let Err(error) = written.and_then(|png| save.write(&mask_path(sequence, frame), &png)) {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            done += 1;
            let about = format!("{:.1} frames/s  {precision}  {}", meter.rate(done), sequence.name);
            meter.show(done, total as u64, &about);
            ControlFlow::Continue(())
        });
        if let Some(error) = failed {
            console.close();
            return Err(error);
        }
        let masks = made.inspect_err(|_| console.close())?;
        scores.push(score_masks(sequence, &masks, &host)?);
        copied.push(score_masks(sequence, &vec![masks[0].clone(); masks.len()], &host)?);
    }
    console.close();
    let [frames_digest, data_digest] = digests(sequences, [Part::Frames, Part::Annotations], &host)?;
    let entries = vec![
        ("weights", json!(text::shown(&weights.path).to_string())),
        ("weights_digest", json!(description::weights_digest(&weights))),
        ("precision", json!(precision)),
        ("frames_digest", frames_digest),
        ("data", json!(text::shown(&args.davis).to_string())),
        ("data_digest", data_digest),
    ];
    Ok(Outcome {
        score: VideoScore { sequences: scores },
        copied: Some(VideoScore { sequences: copied }),
        settings: json!({ "last_frames": settings.last_frames, "reach": settings.reach, "top_k": settings.top_k }),
        from: Provenance::new(entries),
    })
}

fn mask_path(sequence: &Sequence, frame: usize) -> PathBuf {
    Path::new(&sequence.name).join(sequence.mask_name(frame))
}

/// The folder of `--save`, if every mask may be written there.
fn place(args: &VideoArgs, sequences: &[Sequence], folder: &Path) -> Result<Pictures, CliError> {
    let of =
        |sequence: &Sequence| (0..sequence.frames.len()).map(|frame| mask_path(sequence, frame)).collect::<Vec<_>>();
    let names: Vec<PathBuf> = sequences.iter().flat_map(of).collect();
    let data = READ.map(|part| Input::file("--davis", &args.davis.join(part)));
    let weights = args.weights.iter().map(|path| Input::file("--weights", path));
    Pictures::check(folder, "--save", &names, args.force, &data.into_iter().chain(weights).collect::<Vec<_>>())
}

fn check_memory(weights: &Weights, device: &Device) -> Result<(), CliError> {
    if device.is_gpu() {
        return Ok(());
    }
    let config = weights.loaded.vit.config();
    let options = ReadOptions { batch_size: BATCH, channels: config.channels, ..Default::default() };
    let (pooling, frames) = (Pooling::of(FeatureTokens::Patches), (BATCH, Kept::Batch));
    let need = estimate_features(config, &Preparation::Stretch(FRAME), &pooling, &options, frames, device.threads());
    memory::check_bytes(need, "a network with larger patches, or fewer --threads")
}

/// What the files of these parts are told from others by.
fn digests<const N: usize>(
    sequences: &[Sequence],
    parts: [Part<'_>; N],
    host: &Device,
) -> Result<[Value; N], CliError> {
    let digests = video::digests(sequences, parts, host).map_err(EvalError::from)?;
    Ok(digests.map(|digest| json!(format!("{digest:016x}"))))
}

fn of_score(score: &Score) -> Value {
    let of = |s: &Statistics| json!({ "mean": s.mean, "recall": s.recall, "decay": s.decay });
    json!({ "jf": score.jf(), "j": of(&score.j), "f": of(&score.f) })
}

fn of_sequence(sequence: &SequenceScore) -> Value {
    let mut value = of_score(&Score::average(&sequence.objects));
    value["name"] = json!(sequence.name);
    value["frames"] = json!(sequence.frames);
    value["objects"] = sequence.objects.iter().map(of_score).collect();
    value
}

/// The scores for people: a line for each object, and their means.
fn table(score: &VideoScore, copied: Option<&Score>) -> String {
    let objects: usize = score.sequences.iter().map(|sequence| sequence.objects.len()).sum();
    let longest = score.sequences.iter().map(|sequence| sequence.name.chars().count()).max().unwrap_or(0);
    let width = (longest + 4).max("first mask copied".len());
    let mut text = format!(
        "DAVIS-2017, {}, {}, in per cent\n{:width$}    J&F  |  J mean  recall   decay  |  F mean  recall   decay\n",
        count(score.sequences.len(), "sequence"),
        count(objects, "object"),
        "",
    );
    let mut line = |name: &str, score: &Score| {
        let [jf, j, jr, jd, f, fr, fd] =
            [score.jf(), score.j.mean, score.j.recall, score.j.decay, score.f.mean, score.f.recall, score.f.decay]
                .map(|share| 100.0 * share);
        text += &format!("{name:width$} {jf:6.2}  | {j:7.2} {jr:7.2} {jd:7.2}  | {f:7.2} {fr:7.2} {fd:7.2}\n");
    };
    for sequence in &score.sequences {
        for (number, object) in sequence.objects.iter().enumerate() {
            line(&format!("{} {}", sequence.name, number + 1), object);
        }
    }
    line("all objects", &score.overall());
    if let Some(copied) = copied {
        line("first mask copied", copied);
    }
    text
}
