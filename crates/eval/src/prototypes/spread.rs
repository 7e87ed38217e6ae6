//! How values spread: quantiles and a histogram.

/// Bins of the histogram.
const BINS: usize = 20;
/// The quantiles that are reported.
const QUANTILES: [f64; 9] = [0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0];

/// Quantiles and a histogram of some values.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Pairs of a share and the value that this share of all is not above, linear between two values.
    pub quantiles: Vec<(f64, f64)>,
    /// Bins of equal width from the least to the largest value: where each begins, and how many values are in it.
    pub histogram: Vec<(f64, usize)>,
    /// Where the last bin ends.
    pub most: f64,
}

impl Spread {
    /// Of these values; none where there are none, or one is not finite.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        if !(least.is_finite() && most.is_finite()) {
            return None;
        }
        let quantile = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            (share, low + (high - low) * place.fract())
        };
        let width = (most - least) / BINS as f64;
        // All equal values are in one bin.
        let bins = if width > 0.0 { BINS } else { 1 };
        let mut counts = vec![0; bins];
        for value in &sorted {
            let bin = if width > 0.0 { ((value - least) / width) as usize } else { 0 };
            counts[bin.min(bins - 1)] += 1;
        }
        let histogram = counts.into_iter().enumerate().map(|(bin, count)| (least + width * bin as f64, count));
        Some(Self { quantiles: QUANTILES.map(quantile).to_vec(), histogram: histogram.collect(), most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_between_the_values_and_bins_cover_them() {
        let values: Vec<f64> = (0..101).rev().map(f64::from).collect();
        let spread = Spread::of(&values).unwrap();
        assert_eq!(spread.quantiles[4], (0.5, 50.0));
        assert_eq!((spread.quantiles[0].1, spread.quantiles[8].1, spread.most), (0.0, 100.0, 100.0));
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().quantiles[3], (0.25, 1.25));
        let counts: Vec<usize> = spread.histogram.iter().map(|bin| bin.1).collect();
        assert_eq!((counts.len(), counts[0], counts[19], counts.iter().sum::<usize>()), (20, 5, 6, 101));
        assert_eq!(spread.histogram[1].0, 5.0);
    }

    #[test]
    fn equal_values_are_one_bin_and_no_values_have_no_spread() {
        assert_eq!(Spread::of(&[3.0; 7]).unwrap().histogram, [(3.0, 7)]);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }
}
