//! Stored features of a benchmark's images, found by the names that the ground truth has for them.

use std::collections::HashMap;
use std::path::Path;

use super::error::RetrievalError;
use crate::features::Features;
use crate::stored::StoredFeatures;

/// The features of these images, in their order. A row is of the image whose name its own begins with, folders and ending
/// aside; where a file names none, its rows are the images in order, and as many.
pub fn of_images<'a>(
    stored: &StoredFeatures,
    images: impl ExactSizeIterator<Item = &'a str>,
) -> Result<Features, RetrievalError> {
    let (rows, count) = (stored.features.len(), images.len());
    if stored.names.is_empty() {
        return if rows == count { Ok(stored.features.clone()) } else { Err(RetrievalError::Unnamed { rows, count }) };
    }
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(rows);
    for (row, name) in stored.names.iter().enumerate() {
        let stem = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
        if places.insert(stem, row).is_some() {
            return Err(RetrievalError::StoredTwice { name: stem.to_owned() });
        }
    }
    let dim = stored.features.dim;
    let mut features = Features { dim, ..Features::default() };
    let (mut missing, mut first) = (0, None);
    for (image, name) in images.enumerate() {
        match places.get(name) {
            Some(&row) => features.values.extend_from_slice(stored.features.row(row)),
            None => {
                missing += 1;
                first.get_or_insert_with(|| name.to_owned());
            }
        }
        features.indices.push(image);
        features.labels.push(None);
    }
    match first {
        None => Ok(features),
        Some(first) => Err(RetrievalError::NotStored { missing, images: count, first }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(names: &[&str]) -> StoredFeatures {
        let values: Vec<f32> = (0..names.len().max(2)).map(|value| value as f32).collect();
        let labels = vec![0; values.len()];
        StoredFeatures {
            features: Features::labelled(1, values, &labels),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            class_names: Vec::new(),
            metadata: Default::default(),
            digest: 0,
        }
    }

    #[test]
    fn rows_are_found_by_name_whatever_their_order() {
        let file = stored(&["jpg/c.jpg", "a.jpg", "b"]);
        let found = of_images(&file, ["a", "b"].into_iter()).unwrap();
        assert_eq!((found.values, found.indices), (vec![1.0, 2.0], vec![0, 1]));
        assert_eq!(of_images(&stored(&[]), ["x", "y"].into_iter()).unwrap().values, [0.0, 1.0]);
    }

    #[test]
    fn images_that_are_not_there_or_there_twice_are_named() {
        let said =
            |file: StoredFeatures, names: &[&str]| of_images(&file, names.iter().copied()).unwrap_err().to_string();
        assert!(said(stored(&["a.jpg", "b.jpg"]), &["a", "x", "y"]).starts_with("2 of the ground truth's 3 images"));
        assert!(said(stored(&["a.jpg", "2/a.jpg"]), &["a"]).contains("`a` stands in the stored features twice"));
        assert!(said(stored(&[]), &["a"]).contains("2 rows without names"));
    }
}
