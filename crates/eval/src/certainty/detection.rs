//! How well a score tells two sets of images apart.

use crate::precision::ranks;

/// The area under the ROC curve: the chance that an image of the first set has the larger score than one of the second, where
/// equal scores count half. One half is chance; none where either set is empty.
///
/// ```
/// use eval::certainty::auroc;
/// assert_eq!(auroc(&[0.9, 0.4], &[0.1, 0.4]), Some(0.875));
/// assert_eq!(auroc(&[0.9], &[]), None);
/// ```
pub fn auroc(own: &[f64], other: &[f64]) -> Option<f64> {
    let pairs = own.len() as f64 * other.len() as f64;
    let ranks = ranks(&[own, other].concat());
    // A place, counted from 0, is how many are below: those of the same set, and those of the other.
    let below: f64 = ranks[..own.len()].iter().sum();
    let among_themselves = own.len() as f64 * (own.len() as f64 - 1.0) / 2.0;
    (pairs > 0.0).then(|| (below - among_themselves) / pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_the_share_of_pairs() {
        let own: Vec<f64> = (0..57).map(|i| f64::from((i * 31) % 23)).collect();
        let other: Vec<f64> = (0..40).map(|i| f64::from((i * 17) % 19) - 2.0).collect();
        let pairs = own.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
        let won: f64 = pairs
            .map(|(a, b)| {
                if a > b {
                    1.0
                } else if a == b {
                    0.5
                } else {
                    0.0
                }
            })
            .sum();
        assert!((auroc(&own, &other).unwrap() - won / (57.0 * 40.0)).abs() < 1e-12);
        assert!((auroc(&own, &other).unwrap() + auroc(&other, &own).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(auroc(&[1.0, 1.0], &[1.0]), Some(0.5));
    }
}
