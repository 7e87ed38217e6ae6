//! kNN accuracy by precision (Fig. 2 of the paper): are images that fall to concentrated components classified better?
//!
//! Each image belongs to the component k* of its largest logit, and has the value |w_k*|, which is kappa times the temperature.
//! Sorted by it, the images are cut into bins of equal count, and each bin has an accuracy of its own.

/// Bins where none are asked for.
pub const DEFAULT_BINS: usize = 10;

/// Images of one range of |w|.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrecisionBin {
    /// The least |w| in it.
    pub from: f64,
    /// The largest.
    pub to: f64,
    /// Per cent of its images that are classified rightly.
    pub top1: f64,
    /// Its images.
    pub images: usize,
}

/// Cuts images into bins of equal count, give or take one, by the length of their component, or by any other number. Of images of one component, or of
/// equal lengths, the earlier come first. `lengths` and `rightly` have an entry for each image; with fewer images than bins,
/// each has a bin of its own.
///
/// ```
/// let bins = eval::precision::by_length(&[3.0, 1.0, 2.0, 1.0], &[true, false, true, true], 2);
/// assert_eq!((bins[0].to, bins[0].top1), (1.0, 50.0));
/// assert_eq!((bins[1].from, bins[1].top1, bins[1].images), (2.0, 100.0, 2));
/// ```
///
/// # Panics
/// When there are not as many lengths as judgements.
pub fn by_length(lengths: &[f64], rightly: &[bool], bins: usize) -> Vec<PrecisionBin> {
    assert_eq!(lengths.len(), rightly.len(), "a judgement for each image");
    let images = lengths.len();
    let mut order: Vec<usize> = (0..images).collect();
    // Stable, so that equals stay in order.
    order.sort_by(|&a, &b| lengths[a].total_cmp(&lengths[b]));
    let bins = bins.min(images);
    let bin = |bin: usize| {
        let members = &order[bin * images / bins..(bin + 1) * images / bins];
        let (&first, &last) = (members.first()?, members.last()?);
        let right = members.iter().filter(|&&image| rightly[image]).count();
        let top1 = 100.0 * right as f64 / members.len() as f64;
        Some(PrecisionBin { from: lengths[first], to: lengths[last], top1, images: members.len() })
    };
    (0..bins).filter_map(bin).collect()
}

/// Spearman's rank correlation between |w| and being classified rightly, over images: above zero where concentrated components
/// are the better ones. None where either is the same for all.
pub fn rank_correlation(lengths: &[f64], rightly: &[bool]) -> Option<f64> {
    assert_eq!(lengths.len(), rightly.len(), "a judgement for each image");
    let right: Vec<f64> = rightly.iter().map(|&right| f64::from(u8::from(right))).collect();
    correlation(&ranks(lengths), &ranks(&right))
}

/// The place of each value among all, the mean of the places for equal ones.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let mean = first as f64 + (equal.len() - 1) as f64 / 2.0;
        equal.iter().for_each(|&i| ranks[i] = mean);
        first += equal.len();
    }
    ranks
}

fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(a, b)| f(a - mean_a, b - mean_b)).sum::<f64>();
    let (both, of_a, of_b) = (sum(&|a, b| a * b), sum(&|a, _| a * a), sum(&|_, b| b * b));
    (of_a > 0.0 && of_b > 0.0).then(|| both / (of_a * of_b).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_equally_full_and_hold_what_they_say() {
        let lengths: Vec<f64> = (0..103).map(|i| f64::from((i * 37) % 103)).collect();
        let rightly: Vec<bool> = lengths.iter().map(|&length| length >= 50.0).collect();
        let bins = by_length(&lengths, &rightly, 10);
        assert_eq!(bins.len(), 10);
        assert_eq!(bins.iter().map(|bin| bin.images).sum::<usize>(), 103);
        assert!(bins.iter().all(|bin| (10..=11).contains(&bin.images)));
        assert!(bins.windows(2).all(|pair| pair[0].to < pair[1].from));
        assert_eq!((bins[0].top1, bins[9].top1, bins[9].to), (0.0, 100.0, 102.0));
        let right: f64 = bins.iter().map(|bin| bin.top1 / 100.0 * bin.images as f64).sum();
        assert!((right - 53.0).abs() < 1e-9);
    }

    #[test]
    fn few_images_and_equal_lengths() {
        assert!(by_length(&[], &[], 10).is_empty());
        let bins = by_length(&[2.0, 2.0], &[false, true], 10);
        assert_eq!((bins.len(), bins[0].top1, bins[1].top1), (2, 0.0, 100.0), "the earlier first");
    }

    #[test]
    fn the_correlation_is_that_of_ranks() {
        assert!(
            (rank_correlation(&[1.0, 5.0, 100.0, 101.0], &[false, false, true, true]).unwrap() - 0.894_427_191).abs()
                < 1e-9
        );
        assert!(rank_correlation(&[4.0, 3.0, 2.0, 1.0], &[false, false, true, true]).unwrap() < -0.89);
        assert_eq!(rank_correlation(&[1.0, 1.0], &[false, true]), None);
        assert_eq!(rank_correlation(&[1.0, 2.0], &[true, true]), None);
    }
}
