//! Whether probabilities are right: of images that are called with 80 %, are 80 % called rightly?
//!
//! Images are put into ranges of equal width by the probability of their predicted class. With n_b images in range b, of
//! which the share a_b is right, at the mean probability c_b:
//!
//! ```text
//! ECE = sum_b n_b / n |a_b - c_b|
//! ```

/// Ranges where none are asked for: what is usual.
pub const DEFAULT_BINS: usize = 15;

/// Images of one range of probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReliabilityBin {
    /// Probabilities above this,
    pub from: f64,
    /// and up to this.
    pub to: f64,
    /// Their mean.
    pub confidence: f64,
    /// Per cent of its images that are classified rightly.
    pub top1: f64,
    /// Its images, at least one.
    pub images: usize,
}

/// How far probabilities are from the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// The expected calibration error, from 0 to 1; zero for no images.
    pub error: f64,
    /// The ranges that have images, ascending.
    pub bins: Vec<ReliabilityBin>,
}

/// Holds probabilities against judgements, in `bins` ranges of equal width.
///
/// ```
/// let found = eval::certainty::calibration(&[0.9, 0.7, 0.2], &[true, false, false], 2);
/// assert_eq!((found.bins.len(), found.bins[1].images, found.bins[1].top1), (2, 2, 50.0));
/// assert!((found.error - (0.2 + 2.0 * 0.3) / 3.0).abs() < 1e-12);
/// ```
///
/// # Panics
/// When there are not as many probabilities as judgements.
pub fn calibration(probabilities: &[f64], rightly: &[bool], bins: usize) -> Calibration {
    assert_eq!(probabilities.len(), rightly.len(), "a judgement for each image");
    // Images, those that are right, and the sum of probabilities.
    let mut sums = vec![(0usize, 0usize, 0.0); bins];
    for (probability, right) in probabilities.iter().zip(rightly) {
        // What lies on a border belongs to the lower range.
        let bin = ((probability * bins as f64).ceil() as usize).clamp(1, bins.max(1)) - 1;
        if let Some((images, correct, sum)) = sums.get_mut(bin) {
            *images += 1;
            *correct += usize::from(*right);
            *sum += probability;
        }
    }
    let bin = |(at, &(images, correct, sum)): (usize, &(usize, usize, f64))| {
        let (from, to) = (at as f64 / bins as f64, (at + 1) as f64 / bins as f64);
        let share = correct as f64 / images as f64;
        (images > 0).then(|| ReliabilityBin { from, to, confidence: sum / images as f64, top1: 100.0 * share, images })
    };
    let found: Vec<ReliabilityBin> = sums.iter().enumerate().filter_map(bin).collect();
    let gap = |bin: &ReliabilityBin| bin.images as f64 * (bin.top1 / 100.0 - bin.confidence).abs();
    let error = found.iter().map(gap).sum::<f64>() / probabilities.len().max(1) as f64;
    Calibration { error, bins: found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_belong_to_the_lower_range_and_nothing_is_lost() {
        let found = calibration(&[0.0, 0.2, 0.20001, 1.0], &[true; 4], 5);
        let images: Vec<(f64, usize)> = found.bins.iter().map(|bin| (bin.from, bin.images)).collect();
        assert_eq!(images, [(0.0, 2), (0.2, 1), (0.8, 1)]);
        assert_eq!(calibration(&[], &[], 5), Calibration { error: 0.0, bins: Vec::new() });
    }

    #[test]
    fn a_sure_classifier_that_is_right_has_no_error() {
        assert_eq!(calibration(&[1.0; 9], &[true; 9], 15).error, 0.0);
        assert_eq!(calibration(&[1.0; 4], &[false, true, true, true], 15).error, 0.25);
    }
}
