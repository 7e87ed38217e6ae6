//! Training and held-out images as one source: first all training images, then all held-out ones, each in their own order.
//!
//! The name of an image begins with the name of its split, because both may have an image of the same name.

use super::{Fingerprint, ReadError, Source, Stored, describe};
use crate::decode::DecodeLimits;
use std::sync::Arc;
use text::count;

/// Two sources, one behind the other.
pub(super) struct BothSplits {
    train: Arc<dyn Source>,
    test: Arc<dyn Source>,
    /// Whether the labels of both count in one list of classes: comparing two lists for each image would cost more than
    /// reading it.
    shares_classes: bool,
    /// What the user asked for.
    spec: String,
    remarks: Vec<String>,
}

impl BothSplits {
    pub(super) fn new(spec: &str, train: Arc<dyn Source>, test: Arc<dyn Source>) -> Self {
        let mut remarks: Vec<String> = train.remarks().to_vec();
        remarks.extend(test.remarks().iter().filter(|remark| !train.remarks().contains(remark)).cloned());
        let shares_classes = test.class_names() == train.class_names();
        if !test.class_names().is_empty() && !shares_classes {
            remarks.push("the held-out images have no labels here: their classes are not those of training".to_owned());
        }
        Self { train, test, shares_classes, spec: text::escape_name(spec.as_bytes()).into_owned(), remarks }
    }

    /// The source that holds an image, its number there, and the name of the split.
    fn place(&self, index: usize) -> (&dyn Source, usize, &'static str) {
        match index.checked_sub(self.train.len()) {
            None => (&*self.train, index, "train"),
            Some(index) => (&*self.test, index, "test"),
        }
    }
}

impl Source for BothSplits {
    fn len(&self) -> usize {
        self.train.len() + self.test.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        let (source, number, _) = self.place(index);
        source.fetch(number, limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        let (source, number, _) = self.place(index);
        // Labels count in the list of classes of the training images alone.
        source.label(number).filter(|_| index < self.train.len() || self.shares_classes)
    }

    fn class_names(&self) -> &[String] {
        self.train.class_names()
    }

    fn name(&self, index: usize) -> String {
        if index >= self.len() {
            return format!("#{index}");
        }
        let (source, number, split) = self.place(index);
        format!("{split}/{}", source.name(number))
    }

    fn describe(&self) -> String {
        let (train, test) = (count(self.train.len(), "training image"), count(self.test.len(), "held-out image"));
        format!("{} ({train}, then {test})", describe(&self.spec, self))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new();
        [&self.train, &self.test].iter().for_each(|source| hash.add(&source.fingerprint().to_le_bytes()));
        hash.finish()
    }

    fn stored_bytes(&self, index: usize) -> Option<u64> {
        let (source, number, _) = self.place(index);
        source.stored_bytes(number)
    }

    fn content_digest(&self, index: usize) -> Option<u64> {
        let (source, number, _) = self.place(index);
        source.content_digest(number)
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn take_news(&self) -> Vec<String> {
        [self.train.take_news(), self.test.take_news()].concat()
    }
}
