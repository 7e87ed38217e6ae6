//! Accuracies of kNN as evidence: which differences chance explains, and where the curve of a run goes.

use std::fmt;

use serde_json::Value;
use train::run::KnnTable;

/// Points of accuracy that are taken for chance where it is not known how many images were classified.
const UNKNOWN_MARGIN: f64 = 5.0;

/// Accuracies in per cent at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Accuracy {
    raw_pixels: f64,
    untrained: f64,
    trained: f64,
    /// Whether the network began with given weights.
    is_given: bool,
    /// A difference that chance may explain: twice its standard error, and at least two images.
    pub(super) margin: f64,
}

impl Accuracy {
    pub(super) fn of(table: &KnnTable) -> Self {
        let KnnTable { raw_pixels, untrained, trained, images, is_given, .. } = *table;
        let variance = |percent: f64| (percent / 100.0) * (1.0 - percent / 100.0);
        let margin = match images {
            Some(images @ 1..) => {
                let n = images as f64;
                let error = ((variance(trained) + variance(untrained).max(variance(raw_pixels))) / n).sqrt();
                (200.0 * error).max(200.0 / n)
            }
            _ => UNKNOWN_MARGIN,
        };
        Self { raw_pixels, untrained, trained, is_given, margin }
    }

    pub(super) fn beats_both(&self) -> bool {
        self.trained > self.untrained.max(self.raw_pixels) + self.margin
    }

    pub(super) fn beats_untrained(&self) -> bool {
        self.trained > self.untrained + self.margin
    }

    /// Why these accuracies could not show a gain, however good the features; none where they could.
    pub(super) fn says_nothing(&self) -> Option<String> {
        let Self { raw_pixels, untrained, trained, margin, .. } = *self;
        let best = raw_pixels.max(untrained);
        if best == 0.0 && trained == 0.0 {
            return Some("nothing classifies a single image right; are there several images of each class?".to_owned());
        }
        let is_out_of_reach = best + margin >= 100.0 && trained >= best - margin;
        is_out_of_reach.then(|| {
            let which = if raw_pixels >= untrained { "raw pixels" } else { self.start() };
            format!("{which} classify so many images right ({best:.1} %) that no gain could be seen on so few images")
        })
    }

    pub(super) fn is_worse_than_untrained(&self) -> bool {
        self.trained < self.untrained - self.margin
    }

    pub(super) fn is_below_raw_pixels(&self) -> bool {
        self.trained < self.raw_pixels - self.margin
    }

    /// How the trained network does that does not beat both baselines.
    pub(super) fn in_words(&self) -> String {
        let against = |baseline: f64, better: &'static str, same: &'static str, worse: &'static str| {
            let gain = self.trained - baseline;
            if gain > self.margin {
                better
            } else if gain < -self.margin {
                worse
            } else {
                same
            }
        };
        let pixels = against(self.raw_pixels, "above", "no better than", "below");
        let untrained = against(self.untrained, "better than", "no better than", "worse than");
        format!("it is {pixels} raw pixels and {untrained} {}", self.start())
    }

    /// The network before its first step.
    fn start(&self) -> &'static str {
        if self.is_given { "the network that it began with" } else { "the untrained network" }
    }

    /// From what accuracy to which it has come.
    pub(super) fn start_and_end(&self) -> (f64, f64) {
        (self.untrained, self.trained)
    }

    /// The numbers, with the difference that says nothing.
    pub(super) fn with_margin(&self) -> String {
        format!("{self}; differences below {:.0} points may be chance", self.margin.ceil())
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { raw_pixels, untrained, trained, is_given, .. } = self;
        let start = if *is_given { "at the start" } else { "untrained" };
        write!(f, "kNN top-1 {trained:.1} %, raw pixels {raw_pixels:.1} %, {start} {untrained:.1} %")
    }
}

/// The accuracies of a run from evaluation to evaluation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trend {
    /// Epoch, counted from 1, and accuracy in per cent.
    points: Vec<(u64, f64)>,
}

impl Trend {
    pub(super) fn of(log: &[Value]) -> Self {
        let point = |record: &Value| Some((record.get("epoch")?.as_u64()? + 1, record.get("knn_top1")?.as_f64()?));
        Self { points: log.iter().filter_map(point).collect() }
    }

    pub(super) fn last(&self) -> Option<f64> {
        self.points.last().map(|&(_, top1)| top1)
    }

    /// Whether the last quarter of the run has gained more than chance explains.
    pub(super) fn is_rising(&self, margin: f64) -> bool {
        let count = self.points.len();
        if count < 4 {
            return false;
        }
        let before = &self.points[..count - count / 4];
        let (best, last) = (highest(before).map_or(0.0, |(_, top1)| top1), self.last().unwrap_or(0.0));
        last > best + margin
    }

    /// Epoch and accuracy of the best evaluation, where the last one is worse by more than chance explains.
    pub(super) fn fell(&self, margin: f64) -> Option<(u64, f64)> {
        highest(&self.points).filter(|(_, best)| self.last().is_some_and(|last| last < best - margin))
    }
}

fn highest(points: &[(u64, f64)]) -> Option<(u64, f64)> {
    points.iter().copied().reduce(|best, point| if point.1 > best.1 { point } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn accuracy(raw_pixels: f64, untrained: f64, trained: f64, images: Option<u64>) -> Accuracy {
        Accuracy::of(&KnnTable {
            k: 20,
            judged: String::new(),
            images,
            raw_pixels,
            untrained,
            is_given: false,
            trained,
        })
    }

    #[test]
    fn a_difference_counts_where_chance_does_not_explain_it() {
        assert!(accuracy(33.3, 30.8, 44.3, Some(600)).beats_both());
        assert!(!accuracy(33.3, 30.8, 36.3, Some(600)).beats_both(), "three points of 600 images are chance");
        assert!(accuracy(33.3, 30.8, 36.3, Some(10_000)).beats_both());
        assert!(!accuracy(33.3, 30.8, 37.3, None).beats_both());
        let few = accuracy(0.0, 0.0, 8.4, Some(12));
        assert!(!few.beats_both(), "one image more is not much: {few:?}");
        let worse = accuracy(33.0, 30.0, 15.0, Some(600));
        assert!(worse.is_worse_than_untrained());
        assert_eq!(worse.in_words(), "it is below raw pixels and worse than the untrained network");
        assert_eq!(few.in_words(), "it is no better than raw pixels and no better than the untrained network");
        assert!(few.with_margin().ends_with("differences below 17 points may be chance"), "{}", few.with_margin());
    }

    #[test]
    fn accuracies_that_cannot_tell_are_known_as_such() {
        assert!(
            accuracy(100.0, 98.0, 100.0, Some(600)).says_nothing().unwrap().contains("raw pixels classify so many")
        );
        assert!(accuracy(0.0, 0.0, 0.0, Some(600)).says_nothing().unwrap().contains("several images of each class"));
        assert_eq!(accuracy(98.0, 50.0, 60.0, Some(600)).says_nothing(), None, "a loss can be seen");
        assert_eq!(accuracy(33.3, 30.8, 36.3, Some(600)).says_nothing(), None);
    }

    #[test]
    fn a_curve_is_rising_flat_or_past_its_best() {
        let trend = |points: &[f64]| {
            let record = |(i, top1): (usize, &f64)| json!({ "step": 10 * i, "epoch": i, "knn_top1": top1 });
            Trend::of(&points.iter().enumerate().map(record).collect::<Vec<_>>())
        };
        assert!(trend(&[10.0, 20.0, 30.0, 40.0]).is_rising(3.0));
        assert!(!trend(&[10.0, 40.0, 41.0, 41.5]).is_rising(3.0));
        assert!(!trend(&[10.0, 40.0]).is_rising(3.0), "two points are no curve");
        assert_eq!(trend(&[10.0, 45.0, 41.0, 30.0]).fell(3.0), Some((2, 45.0)));
        assert_eq!(trend(&[10.0, 30.0, 31.0, 30.0]).fell(3.0), None);
        assert_eq!((trend(&[]).last(), trend(&[]).fell(1.0)), (None, None));
    }
}
