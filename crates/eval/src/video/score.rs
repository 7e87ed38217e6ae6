//! Scores masks as the DAVIS-2017 benchmark does (semi-supervised): region similarity J and boundary accuracy F of every
//! object in every frame but the first and the last, and their mean, recall and decay.

use std::ops::ControlFlow;
use std::path::Path;

use data::Image;
use rayon::ThreadPool;
use rayon::prelude::*;
use tensor::Device;

use super::boundary::{Bits, f_measure};
use super::davis::{Sequence, read_labels};
use super::error::VideoError;
use super::threads;
use crate::error::EvalError;

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
    // One for all: threads that are new for each sequence begin without memory.
    let pool = threads(host)?;
    let mut scores = Vec::with_capacity(sequences.len());
    for (done, sequence) in sequences.iter().enumerate() {
        let folder = folder.join(&sequence.name);
        scores.push(score_sequence(sequence, &pool, |frame| {
            let path = folder.join(sequence.mask_name(frame));
            if !path.exists() {
                let frame = sequence.frames[frame].clone();
                return Err(VideoError::NoMask { sequence: sequence.name.clone(), frame, path });
            }
            let labels = read_labels(&path)?;
            Ok((labels, path))
        })?);
        if progress(done + 1).is_break() {
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
    score_sequence(sequence, &threads(host)?, |frame| Ok((masks[frame].clone(), sequence.annotation(frame))))
}

/// Scores a sequence by the mask of each frame, and where that comes from.
fn score_sequence(
    sequence: &Sequence,
    pool: &ThreadPool,
    mask: impl Fn(usize) -> Result<(Image, std::path::PathBuf), VideoError> + Sync,
) -> Result<SequenceScore, EvalError> {
    let first = sequence.truth(0)?;
    let size = (first.height, first.width);
    let objects = first.pixels.iter().copied().max().unwrap_or(0);
    if objects == 0 {
        return Err(VideoError::NoObjects { path: sequence.annotation(0) }.into());
    }
    let judge = |frame: usize| -> Result<Vec<(f64, f64)>, VideoError> {
        let truth = sequence.truth(frame)?;
        sequence.check_size(&sequence.annotation(frame), &truth, size)?;
        let (result, path) = mask(frame)?;
        sequence.check_size(&path, &result, size)?;
        let label = result.pixels.iter().copied().max().unwrap_or(0);
        if label > objects {
            return Err(VideoError::MoreObjects { sequence: sequence.name.clone(), path, label, objects });
        }
        Ok((1..=objects).map(|object| agreement(&truth, &result, object)).collect())
    };
    // The first frame was given, and nobody is asked for the last.
    let judged = 1..sequence.frames.len() - 1;
    let frames: Vec<_> = pool.install(|| judged.into_par_iter().map(judge).collect::<Vec<_>>());
    // In order, so that of several errors it is always the same that is told.
    let frames: Vec<Vec<(f64, f64)>> = frames.into_iter().collect::<Result<_, _>>()?;
    let score = |object: usize| {
        let values = |which: fn(&(f64, f64)) -> f64| -> Vec<f64> { frames.iter().map(|f| which(&f[object])).collect() };
        Score { j: Statistics::of(&values(|f| f.0)), f: Statistics::of(&values(|f| f.1)) }
    };
    let objects = (0..usize::from(objects)).map(score).collect();
    Ok(SequenceScore { name: sequence.name.clone(), frames: frames.len(), objects })
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
