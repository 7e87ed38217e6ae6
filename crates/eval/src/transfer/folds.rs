//! Which images a strength is chosen on: folds, or a part that is held out.

use random::{Key, Purpose};

use crate::error::EvalError;

/// A fold for each image, so that every class is spread over the folds as evenly as it can be, and the folds are of the same size to
/// one image for each class at most. A function of the labels and the seed.
///
/// A class needs two images, or the fold that holds its only one out would have to tell a class that it has never seen.
pub(super) fn stratified(labels: &[u32], classes: usize, folds: usize, seed: u64) -> Result<Vec<usize>, EvalError> {
    let mut parts = vec![0; labels.len()];
    // Where the next class begins, so that what does not divide evenly does not all go to the first folds.
    let mut next = 0;
    for (class, mut rows) in rows_by_class(labels, classes).into_iter().enumerate() {
        if rows.len() == 1 {
            return Err(EvalError::FoldWithoutClass { class: class as u32, members: rows.len() });
        }
        Key::new(seed, Purpose::Subset).sample(class as u64).stream().shuffle(&mut rows);
        for row in rows {
            parts[row] = next % folds;
            next += 1;
        }
    }
    Ok(parts)
}

/// 1 for a fifth of the images, rounded down, and 0 for the others: drawn at random, whatever their class.
///
/// Every class has to be left among the others.
pub(super) fn fifth(labels: &[u32], classes: usize, seed: u64) -> Result<Vec<usize>, EvalError> {
    let mut rows: Vec<usize> = (0..labels.len()).collect();
    Key::new(seed, Purpose::Subset).stream().shuffle(&mut rows);
    let mut parts = vec![0; labels.len()];
    rows[..labels.len() / 5].iter().for_each(|&row| parts[row] = 1);
    if labels.len() < 5 {
        let (value, expected) = (labels.len().to_string(), "at least 5, of which one is held out".to_owned());
        return Err(EvalError::Setting { setting: "training images", value, expected });
    }
    for (class, rows) in rows_by_class(labels, classes).iter().enumerate() {
        if !rows.is_empty() && rows.iter().all(|&row| parts[row] == 1) {
            return Err(EvalError::FoldWithoutClass { class: class as u32, members: rows.len() });
        }
    }
    Ok(parts)
}

fn rows_by_class(labels: &[u32], classes: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); classes];
    labels.iter().enumerate().for_each(|(row, &label)| rows[label as usize].push(row));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_have_their_share_of_every_class() {
        let labels: Vec<u32> = (0..103).map(|i| [0, 0, 0, 1, 1, 2][i % 6]).collect();
        let parts = stratified(&labels, 4, 5, 7).unwrap();
        let count = |fold: usize, class: u32| (0..103).filter(|&i| parts[i] == fold && labels[i] == class).count();
        for class in 0..3 {
            let counts: Vec<usize> = (0..5).map(|fold| count(fold, class)).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
        let sizes: Vec<usize> = (0..5).map(|fold| parts.iter().filter(|&&part| part == fold).count()).collect();
        assert_eq!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap(), 1, "{sizes:?}");
        assert_eq!(parts, stratified(&labels, 4, 5, 7).unwrap());
        assert_ne!(parts, stratified(&labels, 4, 5, 8).unwrap());
    }

    #[test]
    fn a_class_that_a_fold_would_not_see_is_refused() {
        let error = stratified(&[0, 0, 1, 0, 0, 0], 2, 5, 0).unwrap_err();
        assert!(matches!(error, EvalError::FoldWithoutClass { class: 1, members: 1 }), "{error}");
        // Two members lie in two folds: each is seen when the other is held out.
        let parts = stratified(&[0, 0, 1, 1, 0, 0], 2, 5, 0).unwrap();
        assert_ne!(parts[2], parts[3]);
    }

    #[test]
    fn a_fifth_is_held_out() {
        let labels: Vec<u32> = (0..99).map(|i| i % 3).collect();
        let parts = fifth(&labels, 3, 0).unwrap();
        assert_eq!(parts.iter().sum::<usize>(), 19);
        assert_ne!(parts, fifth(&labels, 3, 1).unwrap());
        assert!(fifth(&[0, 1, 0, 1], 2, 0).is_err());
        // One of the single images is held out for some seed.
        let lonely: Vec<u32> = (0..10).collect();
        assert!(matches!(fifth(&lonely, 10, 0), Err(EvalError::FoldWithoutClass { members: 1, .. })));
    }
}
