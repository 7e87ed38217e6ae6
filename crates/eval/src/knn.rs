//! Weighted k-nearest-neighbour classification, DINO's protocol for judging features without training a classifier.
//!
//! Features are scaled to unit length. The k training features of the largest cosine vote for their classes, each with
//! weight exp(cosine / 0.07). Cosines are computed in f32, on a GPU too: neighbours are told apart by differences that bf16
//! would round away.

use crate::error::EvalError;
use crate::features::Features;
use crate::labelled::{Labelled, first_not_finite};
use crate::neighbors::{Exclude, Neighbor, Place, nearest};

/// The numbers of neighbours that DINO reports.
pub const DEFAULT_KS: [usize; 4] = [10, 20, 100, 200];
/// The temperature of DINO's protocol.
pub const DEFAULT_TEMPERATURE: f64 = 0.07;
/// Classes of a top-5 prediction.
const TOP5: usize = 5;

/// Settings of the classifier.
#[derive(Clone, Debug, PartialEq)]
pub struct KnnOptions {
    /// Numbers of neighbours, each with a result of its own.
    pub ks: Vec<usize>,
    /// Divisor of the cosine in a vote's weight.
    pub temperature: f64,
}

impl Default for KnnOptions {
    fn default() -> Self {
        Self { ks: DEFAULT_KS.to_vec(), temperature: DEFAULT_TEMPERATURE }
    }
}

impl KnnOptions {
    /// Validates the settings for this many training images, and returns the largest number of neighbours.
    pub fn check(&self, train_images: usize) -> Result<usize, EvalError> {
        let refuse = |setting, value: String, expected| Err(EvalError::Setting { setting, value, expected });
        if !(self.temperature.is_finite() && self.temperature > 0.0) {
            return refuse("temperature", self.temperature.to_string(), "a number above zero".to_owned());
        }
        if let Some(k) = self.ks.iter().find(|k| !(1..=train_images).contains(*k)) {
            return refuse("k", k.to_string(), format!("1 to {train_images}, the number of training images"));
        }
        match self.ks.iter().max() {
            Some(&k) => Ok(k),
            None => refuse("k", "nothing".to_owned(), "at least one number of neighbours".to_owned()),
        }
    }
}

/// Accuracy for one number of neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnnResult {
    /// Neighbours that voted.
    pub k: usize,
    /// Per cent of the test images whose class has the most votes.
    pub top1: f64,
    /// Per cent whose class is among the five (k, where that is fewer) with the most votes. As in DINO's script, classes
    /// without a vote fill the five up; here those of the lowest numbers.
    pub top5: f64,
}

/// Classifies test features by training features: on the host (`&host`), or with similarities on a GPU ([`Place::new`]).
///
/// Among equally near neighbours the lower row wins, among classes with equal votes the lower class. Besides the features
/// it takes another copy of the training features, where similarities are computed, and some 20 MiB.
///
/// ```
/// use eval::{Features, KnnOptions, knn};
/// let host = tensor::Device::cpu(Default::default())?;
/// let train = Features::labelled(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 2.0], &[0, 0, 1, 1]);
/// let test = Features::labelled(2, vec![5.0, 1.0, 0.0, 0.3, 1.0, 0.1], &[0, 1, 1]);
/// let options = KnnOptions { ks: vec![1, 3], ..Default::default() };
/// let results = knn::classify(&train, &test, &options, &host)?;
/// assert_eq!((results[1].k, results[1].top1.round()), (3, 67.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When the host is a GPU, or the values, indices and labels of a set of features are not equally many rows.
pub fn classify<'a>(
    train: &Features,
    test: &Features,
    options: &KnnOptions,
    place: impl Into<Place<'a>>,
) -> Result<Vec<KnnResult>, EvalError> {
    let k = options.check(train.len())?;
    run(train, test, k, options, place.into(), Exclude::Nothing)
}

/// Classifies each image by all others of the same set.
///
/// # Panics
/// As [`classify`].
pub fn leave_one_out<'a>(
    features: &Features,
    options: &KnnOptions,
    place: impl Into<Place<'a>>,
) -> Result<Vec<KnnResult>, EvalError> {
    let k = options.check(features.len().saturating_sub(1))?;
    run(features, features, k, options, place.into(), Exclude::Itself)
}

/// What the neighbours of an image vote for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vote {
    /// The class with the most votes.
    pub class: u32,
    /// Its share of all votes' weight: how probable the vote says that it is.
    pub share: f64,
    /// Cosine of the nearest neighbour.
    pub similarity: f64,
}

/// The vote of `k` neighbours on each image: on the test images by the training images, or, without test images, on each
/// training image by all others. Labels of test images are not looked at.
///
/// # Panics
/// As [`classify`].
pub fn vote(
    train: &Features,
    test: Option<&Features>,
    k: usize,
    temperature: f64,
    place: Place<'_>,
) -> Result<Vec<Vote>, EvalError> {
    let options = KnnOptions { ks: vec![k], temperature };
    options.check(train.len().saturating_sub(usize::from(test.is_none())))?;
    let labelled = Labelled::new(train, "training")?;
    if let Some(test) = test {
        if test.dim != train.dim {
            return Err(EvalError::Width { train: train.dim, test: test.dim });
        }
        if let Some(place) = first_not_finite(&test.values) {
            return Err(EvalError::NotFinite { name: format!("test image {}", test.indices[place / test.dim]) });
        }
    }
    let of_image = |_: usize, neighbors: &[Neighbor]| {
        let votes = votes(neighbors, labelled.labels(), temperature);
        let all: f64 = votes.iter().map(|(_, sum)| sum).sum();
        // The nearest has the weight 1, so that there is a class and a sum.
        let best = votes.into_iter().reduce(|a, b| if (b.1, a.0) > (a.1, b.0) { b } else { a });
        let (class, sum) = best.unwrap_or_default();
        Vote { class, share: sum / all, similarity: neighbors.first().map_or(0.0, |nearest| nearest.similarity) }
    };
    let exclude = if test.is_some() { Exclude::Nothing } else { Exclude::Itself };
    nearest(place, train, test.unwrap_or(train), k, exclude, of_image)
}

/// Whether each of these votes is for the label of its image.
///
/// # Panics
/// When there are not as many votes as images.
pub fn rightly(votes: &[Vote], judged: &Features) -> Result<Vec<bool>, EvalError> {
    let labelled = Labelled::new(judged, "test")?;
    assert_eq!(votes.len(), labelled.len(), "a vote on each image");
    Ok(votes.iter().zip(labelled.labels()).map(|(vote, label)| vote.class == *label).collect())
}

/// Whether a label is among those that are predicted.
#[derive(Clone, Copy)]
struct Right {
    top1: bool,
    top5: bool,
}

fn run(
    train: &Features,
    test: &Features,
    k: usize,
    options: &KnnOptions,
    place: Place<'_>,
    exclude: Exclude,
) -> Result<Vec<KnnResult>, EvalError> {
    let judged = judge(train, test, k, options, place, exclude)?;
    let percent = |is_right: &dyn Fn(&Vec<Right>) -> bool| {
        100.0 * judged.iter().filter(|of_image| is_right(of_image)).count() as f64 / judged.len() as f64
    };
    let result = |(i, &k): (usize, &usize)| KnnResult {
        k,
        top1: percent(&|of_image| of_image[i].top1),
        top5: percent(&|of_image| of_image[i].top5),
    };
    Ok(options.ks.iter().enumerate().map(result).collect())
}

/// For every test image, and each number of neighbours, whether it is classified rightly.
fn judge(
    train: &Features,
    test: &Features,
    k: usize,
    options: &KnnOptions,
    place: Place<'_>,
    exclude: Exclude,
) -> Result<Vec<Vec<Right>>, EvalError> {
    let (labelled_train, labelled_test) = place.devices().0.run(|| Labelled::both(train, test))?;
    let (train_labels, test_labels) = (labelled_train.labels(), labelled_test.labels());
    let classes = labelled_train.classes() as u64;
    let of_image = |row: usize, neighbors: &[Neighbor]| -> Vec<Right> {
        let with_k = |&k: &usize| {
            let votes = votes(&neighbors[..k], train_labels, options.temperature);
            let predicted = best_classes(votes, TOP5.min(k), classes);
            let right = test_labels[row];
            Right { top1: predicted.first() == Some(&right), top5: predicted.contains(&right) }
        };
        options.ks.iter().map(with_k).collect()
    };
    nearest(place, train, test, k, exclude, of_image)
}

/// Classes of the neighbours with the sum of their weights, in the order of the first vote.
fn votes(neighbors: &[Neighbor], labels: &[u32], temperature: f64) -> Vec<(u32, f64)> {
    let mut votes: Vec<(u32, f64)> = Vec::new();
    // Relative to the nearest: the order of the sums is the same, and no temperature makes them infinite.
    let nearest = neighbors.first().map_or(0.0, |n| n.similarity);
    for neighbor in neighbors {
        let weight = ((neighbor.similarity - nearest) / temperature).exp();
        let class = labels[neighbor.row];
        match votes.iter_mut().find(|(voted, _)| *voted == class) {
            Some((_, sum)) => *sum += weight,
            None => votes.push((class, weight)),
        }
    }
    votes
}

/// The `count` classes with the most votes. All others have zero votes, and of equals the lower is better.
fn best_classes(mut votes: Vec<(u32, f64)>, count: usize, classes: u64) -> Vec<u32> {
    votes.retain(|&(_, sum)| sum > 0.0);
    votes.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut named: Vec<u32> = votes.into_iter().map(|(class, _)| class).take(count).collect();
    let voted = named.len();
    let others = (0..=u32::MAX).take_while(|&class| u64::from(class) < classes);
    for class in others {
        if named.len() == count {
            break;
        }
        if !named[..voted].contains(&class) {
            named.push(class);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_of_several_far_votes_can_beat_the_nearest() {
        let neighbors: Vec<Neighbor> =
            [(0, 0.90), (1, 0.89), (2, 0.88)].map(|(row, similarity)| Neighbor { row, similarity }).to_vec();
        let votes = votes(&neighbors, &[4, 2, 2], 0.07);
        assert_eq!(votes[0], (4, 1.0));
        let both = (-0.01f64 / 0.07).exp() + (-0.02f64 / 0.07).exp();
        assert!((votes[1].1 - both).abs() < 1e-12);
        assert_eq!(best_classes(votes, 2, 9), [2, 4]);
    }

    #[test]
    fn equal_votes_go_to_the_lower_class_and_empty_ones_fill_up_from_the_lowest() {
        assert_eq!(best_classes(vec![(7, 1.0), (3, 1.0), (5, 2.0)], 5, 10), [5, 3, 7, 0, 1]);
        assert_eq!(best_classes(vec![(1, 1.0), (0, 0.0)], 5, 3), [1, 0, 2]);
        assert_eq!(best_classes(vec![(u32::MAX, 1.0)], 1, 1 << 32), [u32::MAX]);
    }

    #[test]
    fn a_tiny_temperature_leaves_the_nearest_class_only() {
        let neighbors = [Neighbor { row: 1, similarity: 1.0 }, Neighbor { row: 0, similarity: 0.9 }];
        assert_eq!(best_classes(votes(&neighbors, &[0, 1], 1e-300), 1, 2), [1]);
    }
}
