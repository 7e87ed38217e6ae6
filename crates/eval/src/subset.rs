//! A fixed random sample of a source, so that evaluations during training are affordable and comparable between runs.

use std::sync::Arc;

use data::{DecodeLimits, ReadError, Source, Stored};
use random::{Key, Purpose};

/// Whether the images of a source have class labels.
pub fn is_labelled(source: &dyn Source) -> bool {
    !source.class_names().is_empty() && source.label(0).is_some()
}

/// Draws `most` of the numbers below `len` without replacement, or takes all where there are no more, in ascending
/// order. The draw depends on `len` and `most` alone, never on a run's seed: runs are compared on the same images.
pub fn sample(len: usize, most: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..len).collect();
    if len > most {
        Key::new(0, Purpose::Subset).stream().shuffle(&mut indices);
        indices.truncate(most);
        indices.sort_unstable();
    }
    indices
}

/// Some images of a source, numbered anew from zero.
pub struct Subset {
    source: Arc<dyn Source>,
    indices: Vec<usize>,
}

impl Subset {
    /// Up to `most` images, drawn by [`sample`].
    pub fn sample(source: Arc<dyn Source>, most: usize) -> Self {
        let indices = sample(source.len(), most);
        Self { source, indices }
    }

    /// These images of a source, in this order.
    pub(crate) fn of(source: Arc<dyn Source>, indices: Vec<usize>) -> Self {
        Self { source, indices }
    }

    /// The number of an image in the source that it is of.
    pub(crate) fn place(&self, index: usize) -> Result<usize, ReadError> {
        self.indices.get(index).copied().ok_or(ReadError::NoSuchImage { index, len: self.len() })
    }

    /// The source that the images are of.
    pub(crate) fn whole(&self) -> &dyn Source {
        &*self.source
    }

    /// Its size for people, with that of the source where it differs: `1,000 of 10,000 test images`.
    pub fn share(&self, what: &str) -> String {
        let all = text::count(self.source.len(), what);
        if self.len() == self.source.len() { all } else { format!("{} of {all}", text::thousands(self.len())) }
    }
}

impl Source for Subset {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        self.source.fetch(self.place(index)?, limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.source.label(*self.indices.get(index)?)
    }

    fn class_names(&self) -> &[String] {
        self.source.class_names()
    }

    fn name(&self, index: usize) -> String {
        self.indices.get(index).map_or_else(|| format!("#{index}"), |&index| self.source.name(index))
    }

    fn describe(&self) -> String {
        format!("{} images of {}", self.len(), self.source.describe())
    }

    fn fingerprint(&self) -> u64 {
        // The sample is a function of the source.
        self.source.fingerprint()
    }

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        self.source.stored_bytes(*self.indices.get(index)?)
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        self.source.content_digest(*self.indices.get(index)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_reproducible_ascending_and_without_repeats() {
        let drawn = sample(1000, 64);
        assert_eq!(drawn, sample(1000, 64));
        assert!(drawn.windows(2).all(|w| w[0] < w[1]) && drawn.len() == 64);
        assert_eq!(sample(5, 64), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_subset_keeps_pixels_labels_and_names() {
        let whole = data::open("synthetic:train=40,size=16", data::Split::Train, 0).unwrap();
        assert!(is_labelled(&*whole));
        let part = Subset::sample(whole.clone(), 10);
        let indices = part.indices.clone();
        for (row, &index) in indices.iter().enumerate() {
            assert_eq!((part.label(row), part.name(row)), (whole.label(index), whole.name(index)));
            assert_eq!(part.read(row).unwrap(), whole.read(index).unwrap());
        }
        assert!(matches!(part.read(10), Err(ReadError::NoSuchImage { index: 10, len: 10 })));
        assert_eq!(part.label(10), None);
        assert_eq!(part.share("image"), "10 of 40 images");
    }
}
