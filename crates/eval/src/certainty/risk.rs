//! The risk-coverage curve: if only the most certain images are kept, how many of them are classified wrongly?
//!
//! With images sorted by certainty, the most certain first, e_i errors among the first i of n:
//!
//! ```text
//! risk(i) = e_i / i at coverage i / n        AURC = mean over i of risk(i)        excess = AURC - AURC of the best order
//! ```
//!
//! The best order has all errors last. Images of equal certainty have no order, and a mixture gives the same precision to all
//! images of a component: e_i grows evenly over them, which is the mean over all their orders.

/// How errors are spread over certainty.
#[derive(Clone, Debug, PartialEq)]
pub struct RiskCoverage {
    /// Area under the curve, from 0 to 1; less is better.
    pub aurc: f64,
    /// How far it is above that of the best order.
    pub excess: f64,
    /// Coverage and risk, ascending in coverage.
    pub curve: Vec<(f64, f64)>,
}

/// The curve of images with these certainties, at `points` coverages; none of no images.
///
/// ```
/// use eval::certainty::risk_coverage;
/// let sure = risk_coverage(&[0.9, 0.8, 0.3, 0.1], &[true, true, false, false], 4).unwrap();
/// assert_eq!((sure.excess, sure.curve[2]), (0.0, (0.75, 1.0 / 3.0)));
/// // Where all are equally certain, the risk is the same at every coverage.
/// assert_eq!(risk_coverage(&[1.0; 4], &[true, false, true, true], 4).unwrap().aurc, 0.25);
/// ```
///
/// # Panics
/// When there are not as many certainties as judgements.
pub fn risk_coverage(certainty: &[f64], rightly: &[bool], points: usize) -> Option<RiskCoverage> {
    assert_eq!(certainty.len(), rightly.len(), "a judgement for each image");
    let images = certainty.len();
    let mut order: Vec<usize> = (0..images).collect();
    order.sort_by(|&a, &b| certainty[b].total_cmp(&certainty[a]));
    let (mut risks, mut errors) = (Vec::with_capacity(images), 0);
    for equal in order.chunk_by(|&a, &b| certainty[a] == certainty[b]) {
        let wrong = equal.iter().filter(|&&image| !rightly[image]).count();
        for of_them in 1..=equal.len() {
            let among = errors as f64 + (wrong * of_them) as f64 / equal.len() as f64;
            risks.push(among / (risks.len() + 1) as f64);
        }
        errors += wrong;
    }
    let mean = |sum: f64| (images > 0).then(|| sum / images as f64);
    let right = images - errors;
    let best: f64 = (right + 1..=images).map(|i| (i - right) as f64 / i as f64).sum();
    let at = |point: usize| {
        let kept = (point * images).div_ceil(points);
        (kept as f64 / images as f64, risks[kept - 1])
    };
    let aurc = mean(risks.iter().sum())?;
    Some(RiskCoverage { aurc, excess: aurc - mean(best)?, curve: (1..=points).map(at).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_equally_certain_images_does_not_matter() {
        let certainty = [3.0, 1.0, 1.0, 1.0, 2.0];
        let of = |rightly: [bool; 5]| risk_coverage(&certainty, &rightly, 5).unwrap();
        let first = of([true, false, true, true, true]);
        assert_eq!(first, of([true, true, true, false, true]));
        // The mean over the three orders of the last three: the error is third, fourth or fifth.
        let orders = [3, 4, 5].map(|place| (place..=5).map(|i| 1.0 / f64::from(i)).sum::<f64>() / 5.0);
        assert!((first.aurc - orders.iter().sum::<f64>() / 3.0).abs() < 1e-15);
        assert!((first.excess - (first.aurc - 0.2 * 0.2)).abs() < 1e-15);
    }

    #[test]
    fn curves_of_few_and_of_no_images() {
        assert_eq!(risk_coverage(&[], &[], 3), None);
        let one = risk_coverage(&[1.0], &[false], 3).unwrap();
        assert_eq!((one.aurc, one.excess, one.curve), (1.0, 0.0, vec![(1.0, 1.0); 3]));
        let reversed = risk_coverage(&[1.0, 2.0], &[true, false], 2).unwrap();
        assert_eq!((reversed.aurc, reversed.excess), (0.75, 0.5));
    }
}
