//! How predictions are scored.

/// What a data set's accuracy means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The share of images that are classified rightly.
    Top1,
    /// The mean over classes of the share of their images that are: small classes count as much as large ones.
    MeanPerClass,
}

impl Metric {
    /// As it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Top1 => "top1",
            Metric::MeanPerClass => "mean_per_class",
        }
    }
}

/// Both metrics of one set of predictions, in per cent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// See [`Metric::Top1`].
    pub top1: f64,
    /// See [`Metric::MeanPerClass`]; over the classes that occur among the labels.
    pub mean_per_class: f64,
}

impl Accuracy {
    /// Of predictions for images with these labels.
    ///
    /// # Panics
    /// When there are not as many, or a label is not below `classes`.
    pub fn of(predicted: &[u32], labels: &[u32], classes: usize) -> Self {
        assert_eq!(predicted.len(), labels.len(), "a prediction for each label");
        let (mut right, mut all) = (vec![0u64; classes], vec![0u64; classes]);
        for (predicted, &label) in predicted.iter().zip(labels) {
            all[label as usize] += 1;
            right[label as usize] += u64::from(*predicted == label);
        }
        let recalls: Vec<f64> = right
            .iter()
            .zip(&all)
            .filter(|(_, all)| **all > 0)
            .map(|(&right, &all)| right as f64 / all as f64)
            .collect();
        let percent = |share: f64, of: usize| if of == 0 { 0.0 } else { 100.0 * share / of as f64 };
        Self {
            top1: percent(right.iter().sum::<u64>() as f64, labels.len()),
            mean_per_class: percent(recalls.iter().sum(), recalls.len()),
        }
    }

    /// The value of one metric.
    pub fn get(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Top1 => self.top1,
            Metric::MeanPerClass => self.mean_per_class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_alike_in_the_mean_and_absent_ones_not_at_all() {
        let accuracy = Accuracy::of(&[0, 0, 0, 1, 3, 0], &[0, 0, 0, 0, 3, 3], 5);
        assert!((accuracy.top1 - 100.0 * 4.0 / 6.0).abs() < 1e-12);
        assert!((accuracy.mean_per_class - 62.5).abs() < 1e-12);
        assert_eq!(accuracy.get(Metric::MeanPerClass), accuracy.mean_per_class);
        assert_eq!(Accuracy::of(&[], &[], 3), Accuracy { top1: 0.0, mean_per_class: 0.0 });
    }
}
