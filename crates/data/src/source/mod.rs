//! Where images come from.
//!
//! A [`Source`] is a numbered list of images that can be read in any order by any number of threads. [`open`] finds the
//! kind from what the user wrote.

mod annotations;
mod both;
mod cache;
mod census;
mod checksums;
mod cifar;
mod content;
mod copies;
mod error;
mod files;
mod folder;
mod folder_index;
mod formats;
mod found;
#[doc(hidden)]
pub mod fuzz;
mod gzip;
mod idx;
mod list;
mod open;
mod parallel;
mod parquet;
mod parts;
mod passed_over;
mod paths;
mod pattern;
mod preparing;
mod published;
mod ranges;
mod read_at;
mod reader;
mod shelf;
mod stamp;
mod synthetic;
mod tar;
mod unpacking;

pub use census::{Census, Changes};
pub use copies::Copies;
pub use error::{OpenError, ReadError};
pub use folder::FolderSource;
pub use open::{open, open_all, open_all_cached, open_all_watched, open_cached, open_watched};
pub use paths::PathsSource;
pub use preparing::{Preparation, Prepared, Tell};
pub use published::{Published, PublishedSets};
pub use reader::Reader;
pub use synthetic::{SyntheticSettings, SyntheticSource};

use crate::Image;
use crate::decode::DecodeLimits;
use random::StableHash;
use ranges::Table;
use text::count;

/// A data set: a numbered list of images, read in any order.
pub trait Source: Send + Sync {
    /// Number of images.
    fn len(&self) -> usize;

    /// True for a source without images. [`open`] never returns one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads image `index` as it is stored into `bytes`, which is overwritten and whose allocation is reused, and returns
    /// its kind. Allocates no more than `limits` allow.
    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError>;

    /// Reads and decodes image `index` to RGB. Memory is bounded and nothing in a file makes it panic. To read
    /// many images, keep a [`Reader`]: it reuses its buffers.
    fn read(&self, index: usize) -> Result<Image, ReadError> {
        let mut image = Image::black(1, 1, RGB);
        Reader::new(DecodeLimits::default(), RGB).read(self, index, &mut image)?;
        Ok(image)
    }

    /// The class of image `index`, where classes are known.
    fn label(&self, index: usize) -> Option<u32>;

    /// Names of the classes, by label; empty for a source without labels.
    fn class_names(&self) -> &[String];

    /// The name of image `index` in messages: a relative path, or `synthetic #17`.
    fn name(&self, index: usize) -> String;

    /// The source in one line for people: `/data/pets: 7,390 images in 37 classes`.
    fn describe(&self) -> String;

    /// A hash of names, sizes, labels and contents: a resumed run checks that its data is still the same. Where there are
    /// very many images, the contents of some stand for all.
    fn fingerprint(&self) -> u64;

    /// Bytes of image `index` as it is stored; none where it is made rather than stored, or cannot be asked.
    fn stored_bytes(&self, index: usize) -> Option<u64> {
        _ = index;
        None
    }

    /// A digest of those bytes, or of pieces where they are many; none where there are none.
    fn content_digest(&self, index: usize) -> Option<u64> {
        _ = index;
        None
    }

    /// Warnings about the data that are no errors: members left out, an index that could not be cached.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// What has come up while images were read and has not been asked for yet: a damaged file of the cache that was made
    /// again. For people.
    fn take_news(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Channels of a colour image.
pub(crate) const RGB: usize = 3;

/// How an image is stored in its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A file in one of the formats of [`crate::decode`].
    File,
    /// Pixels, channels interleaved, rows from the top.
    Pixels {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
        /// Bytes of a pixel.
        channels: usize,
    },
}

/// Which split of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training split, or all images where the data is not split.
    Train,
    /// The held-out split.
    Test,
}

/// A hash of a list of images, the same on every machine and in every version.
pub(crate) struct Fingerprint(StableHash);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(StableHash::new())
    }

    /// Adds a field. Its length goes in first, so that ("ab", "c") and ("a", "bc") differ.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
    }

    /// Adds an image.
    pub(crate) fn add_entry(&mut self, name: &[u8], bytes: u64, label: Option<u32>) {
        self.add(name);
        self.add(&bytes.to_le_bytes());
        self.add(&label.map_or(u64::MAX, u64::from).to_le_bytes());
    }

    /// Adds what is in the images.
    pub(crate) fn add_contents(&mut self, digests: &[u64]) {
        digests.iter().for_each(|digest| self.add(&digest.to_le_bytes()));
    }

    /// Adds the classes that labels mean.
    pub(crate) fn add_classes(&mut self, names: &[String]) {
        names.iter().for_each(|name| self.add(name.as_bytes()));
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// A source in one line: what it is called, how many images, how many classes.
pub(crate) fn describe(name: impl std::fmt::Display, source: &dyn Source) -> String {
    let classes = match source.class_names().len() {
        0 => String::new(),
        n => format!(" in {}", count(n, "class")),
    };
    format!("{name}: {}{classes}", count(source.len(), "image"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_sees_where_fields_end() {
        let of = |fields: [&str; 2]| {
            let mut f = Fingerprint::new();
            fields.iter().for_each(|field| f.add(field.as_bytes()));
            f.finish()
        };
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
    }
}
