//! Scores masks as the DAVIS-2017 benchmark does (semi-supervised): region similarity J and boundary accuracy F of every
//! object in every frame but the first and the last, and their mean, recall and decay.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use data::Image;
use rayon::prelude::*;
use tensor::Device;

use super::boundary::{Bits, f_measure};
use super::davis::Sequence;
use super::error::VideoError;
use crate::error::EvalError;

/// Frames that are scored between two reports of progress, about.
const FRAMES_AT_ONCE: usize = 256;

/// What is told of the values of J or F over the frames of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Their mean.
    pub mean: f64,
    /// The share of frames above 0.5.
    pub recall: f64,
    /// The mean over the first quarter of the frames minus that over the last: what is lost over time.
    pub decay: f64,
}

impl Statistics {
    /// Of the values of an object, frame by frame.
    ///
    /// # Panics
    /// Without any.
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "frames to judge");
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        // The edges of four bins, as numpy's round(linspace(1, n, 5) + 1e-10) - 1 gives them. A bin has both its edges. (The
        // benchmark's own code keeps them in 8 bits, which is wrong from the 257th frame on.)
        let steps = (values.len() - 1) as f64;
        let edge = |i: usize| (1.0 + i as f64 * steps / 4.0 + 1e-10).round() as usize - 1;
        let bin = |i: usize| mean(&values[edge(i)..=edge(i + 1)]);
        Self {
            mean: mean(values),
            recall: values.iter().filter(|&&value| value > 0.5).count() as f64 / values.len() as f64,
            decay: bin(0) - bin(3),
        }
    }

    /// The mean of each over several objects.
    fn average(all: impl ExactSizeIterator<Item = Statistics>) -> Self {
        let count = all.len().max(1) as f64;
        let sum = all.fold(Self::default(), |sum, s| Self {
            mean: sum.mean + s.mean,
            recall: sum.recall + s.recall,
            decay: sum.decay + s.decay,
        });
        Self { mean: sum.mean / count, recall: sum.recall / count, decay: sum.decay / count }
    }
}

/// How well masks agree with the annotations: of one object, or the mean over several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Region similarity: intersection over union.
    pub j: Statistics,
    /// Boundary accuracy.
    pub f: Statistics,
}

impl Score {
    /// The mean of J's and F's means, which results are ranked by.
    pub fn jf(&self) -> f64 {
        (self.j.mean + self.f.mean) / 2.0
    }

    /// The unweighted mean over objects.
    pub fn average<'a>(scores: impl IntoIterator<Item = &'a Score>) -> Self {
        let scores: Vec<&Score> = scores.into_iter().collect();
        Self {
            j: Statistics::average(scores.iter().map(|score| score.j)),
            f: Statistics::average(scores.iter().map(|score| score.f)),
        }
    }
}

/// The scores of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceScore {
    /// Its name.
    pub name: String,
    /// Frames that were judged.
    pub frames: usize,
    /// Of objects 1, 2 and on.
    pub objects: Vec<Score>,
}

/// The scores of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct VideoScore {
    /// Of each sequence.
    pub sequences: Vec<SequenceScore>,
}

impl VideoScore {
    /// The mean over all objects of all sequences, each counted once.
    pub fn overall(&self) -> Score {
        Score::average(self.sequences.iter().flat_map(|sequence| &sequence.objects))
    }
}

/// Scores the masks `FOLDER/SEQUENCE/FRAME.png`, made by anything. `progress` is called with the number of sequences that are
/// done and may end it. `host`'s threads read and compare.
pub fn score_folder(
    sequences: &[Sequence],
    folder: &Path,
    host: &Device,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
) -> Result<VideoScore, EvalError> {
    let mut scores = Vec::with_capacity(sequences.len());
    while scores.len() < sequences.len() {
        let left = &sequences[scores.len()..];
        scores.extend(score(&left[..at_once(left)], Masks::Folder(folder), host)?);
        if progress(scores.len()).is_break() {
            return Err(EvalError::Stopped);
        }
    }
    Ok(VideoScore { sequences: scores })
}

/// Scores the masks of a sequence, one for each of its frames.
///
/// # Panics
/// When there are not as many masks as frames.
pub fn score_masks(sequence: &Sequence, masks: &[Image], host: &Device) -> Result<SequenceScore, EvalError> {
    assert_eq!(masks.len(), sequence.frames.len(), "a mask for each frame");
    let mut scores = score(std::slice::from_ref(sequence), Masks::Made(masks), host)?;
    Ok(scores.swap_remove(0))
}

/// How many of these sequences are scored together: some hundred frames, so that threads seldom wait for the last of them.
fn at_once(sequences: &[Sequence]) -> usize {
    let mut frames = 0;
    let is_enough = |sequence: &Sequence| {
        frames += sequence.frames.len();
        frames >= FRAMES_AT_ONCE
    };
    sequences.iter().position(is_enough).map_or(sequences.len(), |last| last + 1)
}

/// Where masks are.
#[derive(Clone, Copy)]
enum Masks<'a> {
    /// `SEQUENCE/FRAME.png` in this folder.
    Folder(&'a Path),
    /// In memory, one for each frame of the only sequence.
    Made(&'a [Image]),
}

/// What the first annotation of a sequence says.
#[derive(Clone, Copy)]
struct Outline {
    /// (height, width) of all masks.
    size: (usize, usize),
    /// The highest label.
    objects: u8,
}

/// What one frame is read into. The next one takes the same memory: fresh pages for each would cost more than its scores.
struct Buffers {
    file: Vec<u8>,
    truth: Image,
    result: Image,
}

/// Scores sequences, frame by frame on whichever thread of `host` is free.
fn score(sequences: &[Sequence], masks: Masks<'_>, host: &Device) -> Result<Vec<SequenceScore>, EvalError> {
    let spare = Mutex::new(Vec::new());
    let spare = || spare.lock().unwrap_or_else(PoisonError::into_inner);
    let judge_next = |&(sequence, outline, frame): &(&Sequence, Outline, usize)| {
        let new = || Buffers { file: Vec::new(), truth: Image::black(1, 1, 1), result: Image::black(1, 1, 1) };
        let mut buffers = spare().pop().unwrap_or_else(new);
        let judged = judge(sequence, outline, frame, masks, &mut buffers);
        spare().push(buffers);
        judged
    };
    let judged = host.run(|| {
        let outlines: Vec<_> = sequences.par_iter().with_max_len(1).map(outline).collect();
        let mut frames = Vec::new();
        // In order, so that of several errors it is always the same that is told.
        for (sequence, outline) in sequences.iter().zip(outlines) {
            let outline = outline?;
            // The first frame was given, and nobody is asked for the last.
            frames.extend((1..sequence.frames.len() - 1).map(|frame| (sequence, outline, frame)));
        }
        let judged: Vec<_> = frames.par_iter().with_max_len(1).map(judge_next).collect();
        judged.into_iter().collect::<Result<Vec<Vec<(f64, f64)>>, VideoError>>()
    })?;
    let mut judged = judged.into_iter();
    let of_sequence = |sequence: &Sequence| {
        let frames: Vec<Vec<(f64, f64)>> = judged.by_ref().take(sequence.frames.len() - 2).collect();
        let objects = frames.first().map_or(0, Vec::len);
        let values = |object: usize, which: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            frames.iter().map(|frame| which(&frame[object])).collect()
        };
        let score = |object| Score {
            j: Statistics::of(&values(object, |agreement| agreement.0)),
            f: Statistics::of(&values(object, |agreement| agreement.1)),
        };
        SequenceScore { name: sequence.name.clone(), frames: frames.len(), objects: (0..objects).map(score).collect() }
    };
    Ok(sequences.iter().map(of_sequence).collect())
}

fn outline(sequence: &Sequence) -> Result<Outline, VideoError> {
    let first = sequence.truth(0)?;
    match first.pixels.iter().copied().max().unwrap_or(0) {
        0 => Err(VideoError::NoObjects { path: sequence.annotation(0) }),
        objects => Ok(Outline { size: (first.height, first.width), objects }),
    }
}

/// J and F of every object in a frame.
fn judge(
    sequence: &Sequence,
    Outline { size, objects }: Outline,
    frame: usize,
    masks: Masks<'_>,
    Buffers { file, truth, result }: &mut Buffers,
) -> Result<Vec<(f64, f64)>, VideoError> {
    sequence.read_truth(frame, file, truth)?;
    sequence.check_size(&sequence.annotation(frame), truth, size)?;
    let (result, path) = match masks {
        Masks::Folder(folder) => {
            let path = sequence.read_mask(folder, frame, file, result)?;
            (&*result, path)
        }
        Masks::Made(masks) => (&masks[frame], sequence.annotation(frame)),
    };
    sequence.check_size(&path, result, size)?;
    let label = result.pixels.iter().copied().max().unwrap_or(0);
    if label > objects {
        return Err(VideoError::MoreObjects { sequence: sequence.name.clone(), path, label, objects });
    }
    Ok((1..=objects).map(|object| agreement(truth, result, object)).collect())
}

/// J and F of one object in one frame. J = |P and G| / |P or G|, and 1 where neither shows it.
pub(super) fn agreement(truth: &Image, result: &Image, object: u8) -> (f64, f64) {
    let (truth, result) = (Bits::of_label(truth, object), Bits::of_label(result, object));
    let (common, all) = result.common_and_all(&truth);
    let j = if all == 0 { 1.0 } else { common as f64 / all as f64 };
    (j, f_measure(&result, &truth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_disks_agree_as_the_benchmark_says() {
        let disk = |row: i64, column: i64, radius: i64| {
            let inside = |y: i64, x: i64| (y - row).pow(2) + (x - column).pow(2) < radius * radius;
            let pixels = (0..480).flat_map(|y| (0..854).map(move |x| u8::from(inside(y, x)))).collect();
            Image::from_pixels(854, 480, 1, pixels)
        };
        let (truth, result) = (disk(240, 400, 100), disk(250, 415, 95));
        let (j, f) = agreement(&truth, &result, 1);
        assert!((j - 0.7823466221).abs() < 1e-10 && (f - 0.3310408437).abs() < 1e-10, "{j} {f}");
        let boundary = |labels: &Image| Bits::of_label(labels, 1).boundary().count();
        assert_eq!((boundary(&truth), boundary(&result)), (796, 756));
        assert_eq!(agreement(&truth, &result, 2), (1.0, 1.0), "an object that neither shows");
    }

    #[test]
    fn the_golden_statistics_are_met() {
        let s = Statistics::of(&[0.9, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.3]);
        assert!((s.mean - 0.585).abs() < 1e-12 && (s.recall - 0.6).abs() < 1e-12, "{s:?}");
        assert!((s.decay - 0.4166666667).abs() < 1e-10, "{s:?}");
        let one = Statistics::of(&[0.7]);
        assert_eq!(one, Statistics { mean: 0.7, recall: 1.0, decay: 0.0 });
    }

    #[test]
    fn a_long_video_has_four_quarters() {
        // 400 frames: the last quarter is lost.
        let values: Vec<f64> = (0..400).map(|i| if i < 300 { 1.0 } else { 0.0 }).collect();
        let s = Statistics::of(&values);
        assert!((s.decay - 1.0).abs() < 0.02, "{s:?}");
    }
}
