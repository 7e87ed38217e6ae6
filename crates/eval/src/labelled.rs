//! Features that a protocol can learn from and be judged on: finite, with a class for every row.

use rayon::prelude::*;

use crate::error::EvalError;
use crate::features::Features;

/// More classes than any data set has: a number beyond it is no class, and protocols take memory for every one below it.
pub const MAX_CLASSES: u32 = 1 << 20;

/// Features of which every row is finite and has a class.
///
/// ```
/// use eval::{Features, Labelled};
/// let features = Features::labelled(2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0], &[0, 0, 2]);
/// let set = Labelled::new(&features, "training")?;
/// assert_eq!((set.len(), set.classes(), set.label(2)), (3, 3, 2));
/// # Ok::<(), eval::EvalError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Labelled<'a> {
    features: &'a Features,
    labels: Vec<u32>,
    classes: usize,
}

/// Where the first value is that is no number or infinite. Values come by millions, so that memory is all that this should
/// wait for: without a branch for each value, and on all threads of the pool that it is called in, if it is called in one.
pub(crate) fn first_not_finite(values: &[f32]) -> Option<usize> {
    const PIECE: usize = 1 << 14;
    let is_broken = |piece: &[f32]| piece.iter().fold(false, |broken, x| broken | !x.is_finite());
    let piece = match rayon::current_thread_index() {
        Some(_) => values.par_chunks(PIECE).position_first(is_broken)?,
        None => values.chunks(PIECE).position(is_broken)?,
    };
    values[piece * PIECE..].iter().position(|x| !x.is_finite()).map(|place| piece * PIECE + place)
}

impl<'a> Labelled<'a> {
    /// Checks features; `which` names them in an error: `training` or `test`.
    ///
    /// # Panics
    /// When the values, indices and labels are not equally many rows.
    pub fn new(features: &'a Features, which: &'static str) -> Result<Self, EvalError> {
        let (rows, dim) = (features.len(), features.dim);
        assert_eq!((features.values.len(), features.labels.len()), (rows * dim, rows), "rows of the {which} features");
        if rows == 0 || dim == 0 {
            return Err(EvalError::Empty { which });
        }
        if let Some(place) = first_not_finite(&features.values) {
            return Err(EvalError::NotFinite { name: format!("{which} image {}", features.indices[place / dim]) });
        }
        let labels: Vec<u32> = features.labels.iter().flatten().copied().collect();
        if labels.len() < rows {
            return Err(EvalError::NoLabels { which, unlabelled: rows - labels.len(), images: rows });
        }
        let last = labels.iter().copied().max().unwrap_or(0);
        if last >= MAX_CLASSES {
            return Err(EvalError::Label { which, label: i64::from(last), classes: MAX_CLASSES as usize });
        }
        Ok(Self { features, labels, classes: last as usize + 1 })
    }

    /// Training and test features of the same network, with the classes of both.
    pub fn both(train: &'a Features, test: &'a Features) -> Result<(Self, Self), EvalError> {
        if train.dim != test.dim {
            return Err(EvalError::Width { train: train.dim, test: test.dim });
        }
        let (train, test) = (Self::new(train, "training")?, Self::new(test, "test")?);
        let classes = train.classes.max(test.classes);
        Ok((Self { classes, ..train }, Self { classes, ..test }))
    }

    /// The features.
    pub fn features(&self) -> &'a Features {
        self.features
    }

    /// The class of each row.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// The class of a row.
    ///
    /// # Panics
    /// When `row` is not below [`Labelled::len`].
    pub fn label(&self, row: usize) -> u32 {
        self.labels[row]
    }

    /// Classes there may be: one more than the highest label.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many rows each class has.
    pub fn members(&self) -> Vec<usize> {
        let mut members = vec![0; self.classes];
        self.labels.iter().for_each(|&label| members[label as usize] += 1);
        members
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Never: a set without rows is an error.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_have_the_classes_of_either() {
        let train = Features::labelled(1, vec![1.0, 2.0], &[0, 4]);
        let test = Features::labelled(1, vec![3.0], &[6]);
        let (train, test) = Labelled::both(&train, &test).unwrap();
        assert_eq!((train.classes(), test.classes(), train.members()), (7, 7, vec![1, 0, 0, 0, 1, 0, 0]));
    }

    #[test]
    fn what_cannot_be_judged_is_refused_by_name() {
        let nan = Features::labelled(2, vec![0.0, 1.0, f32::NAN, 1.0], &[0, 1]);
        assert_eq!(
            Labelled::new(&nan, "training").unwrap_err().to_string(),
            "the feature of training image 1 is not finite: the network's weights are broken"
        );
        let mut unlabelled = Features::labelled(1, vec![0.0, 1.0], &[0, 1]);
        unlabelled.labels[0] = None;
        let error = Labelled::new(&unlabelled, "test").unwrap_err();
        assert!(matches!(error, EvalError::NoLabels { which: "test", unlabelled: 1, images: 2 }));
        let none = Features { dim: 3, ..Default::default() };
        assert!(matches!(Labelled::new(&none, "test"), Err(EvalError::Empty { which: "test" })));
        let far = Features::labelled(1, vec![0.0], &[MAX_CLASSES]);
        assert!(matches!(Labelled::new(&far, "test"), Err(EvalError::Label { label: 1_048_576, .. })));
        let wide = Features::labelled(2, vec![0.0, 1.0], &[0]);
        let narrow = Features::labelled(1, vec![0.0], &[0]);
        assert!(matches!(Labelled::both(&wide, &narrow), Err(EvalError::Width { train: 2, test: 1 })));
    }
}
