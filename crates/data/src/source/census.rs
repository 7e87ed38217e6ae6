//! What is remembered of every image of a source, so that it can be told later which of them have changed.
//!
//! A fingerprint tells that images are others and not which. Of each image a census has a hash of its name and one of its
//! size and label, twelve bytes together, and of those that a fingerprint looks into the digest of the content. It is
//! taken once, when a run is begun, and looked at when the fingerprint is no longer what it was.

use super::content::{LOOKED_AT, nth};
use super::{Source, parallel};
use random::StableHash;
use std::collections::HashMap;
use text::count;

/// How a census begins.
const MAGIC: &[u8; 16] = b"dino-vmf census1";
/// Bytes of an image.
const ENTRY: usize = 12;
/// Images that a thread takes at a time.
const SHARE: usize = 64;

/// The images of a source, as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Hashes of the name, and of size and label, of each image.
    entries: Vec<(u64, u32)>,
    /// Digests of the images that were looked into; none for one that could not be read.
    contents: Vec<u64>,
}

/// How images differ from a census.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Images of names that were not there, and the first of them.
    pub new: Option<(usize, String)>,
    /// Images that were there and are not.
    pub gone: usize,
    /// Images of the same name whose size, label or content is another, and the first of them.
    pub changed: Option<(usize, String)>,
}

impl Census {
    /// Of the images as they are.
    pub fn of(source: &dyn Source) -> Self {
        let entry = |index: usize| {
            let mut about = StableHash::new();
            about.write(&source.stored_bytes(index).unwrap_or(0).to_le_bytes());
            about.write(&source.label(index).map_or(u64::MAX, u64::from).to_le_bytes());
            (name_hash(source, index), about.finish() as u32)
        };
        let entries: Vec<(u64, u32)> = parallel::map(source.len(), SHARE, entry);
        let taken = entries.len().min(LOOKED_AT);
        let digest = |i: usize| source.content_digest(nth(i, taken, source.len())).unwrap_or(0);
        Self { contents: parallel::map(taken, SHARE, digest), entries }
    }

    /// As bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        for (name, about) in &self.entries {
            bytes.extend(name.to_le_bytes());
            bytes.extend(about.to_le_bytes());
        }
        self.contents.iter().for_each(|digest| bytes.extend(digest.to_le_bytes()));
        bytes
    }

    /// From what [`Census::to_bytes`] made; none if it is not that.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (images, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let images = usize::try_from(u64::from_le_bytes(*images)).ok()?;
        let (entries, contents) = rest.split_at_checked(images.checked_mul(ENTRY)?)?;
        if contents.len() != 8 * images.min(LOOKED_AT) {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let (name, about) = bytes.split_first_chunk()?;
            Some((u64::from_le_bytes(*name), u32::from_le_bytes(about.try_into().ok()?)))
        };
        let digest = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        Some(Self {
            entries: entries.chunks_exact(ENTRY).map(entry).collect::<Option<_>>()?,
            contents: contents.chunks_exact(8).map(digest).collect::<Option<_>>()?,
        })
    }

    /// Each image by its name: size and label, and content where it was looked into.
    fn by_name(&self) -> HashMap<u64, (u32, Option<u64>)> {
        let (images, taken) = (self.entries.len(), self.contents.len());
        let mut known: HashMap<u64, (u32, Option<u64>)> =
            self.entries.iter().map(|&(name, about)| (name, (about, None))).collect();
        for (i, &digest) in self.contents.iter().enumerate() {
            if let Some((_, content)) = known.get_mut(&self.entries[nth(i, taken, images)].0) {
                *content = Some(digest);
            }
        }
        known
    }

    /// How the images of a source differ from these.
    pub fn changes(&self, source: &dyn Source) -> Changes {
        let (then, census) = (self.by_name(), Census::of(source));
        let now = census.by_name();
        let (mut new, mut changed) = (Vec::new(), Vec::new());
        for (index, (name, _)) in census.entries.iter().enumerate() {
            match (then.get(name), now.get(name)) {
                (None, _) => new.push(index),
                (Some((about, content)), Some((about_now, content_now))) => {
                    let is_other = content.zip(*content_now).is_some_and(|(then, now)| then != now);
                    if about != about_now || is_other {
                        changed.push(index);
                    }
                }
                (Some(_), None) => {}
            }
        }
        let first = |found: Vec<usize>| found.first().map(|&index| (found.len(), source.name(index)));
        let gone = then.keys().filter(|name| !now.contains_key(name)).count();
        Changes { new: first(new), gone, changed: first(changed) }
    }
}

impl Changes {
    /// For people: `1 image is another by the same name (3.jpg), 2 images are new (the first: a.jpg)`.
    pub fn in_words(&self) -> String {
        let be = |count: usize| if count == 1 { "is" } else { "are" };
        let named =
            |count: usize, first: &str| if count == 1 { format!("({first})") } else { format!("(the first: {first})") };
        let mut words = Vec::new();
        if let Some((images, first)) = &self.changed {
            let (other, named) = (if *images == 1 { "another" } else { "others" }, named(*images, first));
            words.push(format!("{} {} {other} by the same name {named}", count(*images, "image"), be(*images)));
        }
        if let Some((images, first)) = &self.new {
            words.push(format!("{} {} new {}", count(*images, "image"), be(*images), named(*images, first)));
        }
        if self.gone > 0 {
            words.push(format!("{} {} gone", count(self.gone, "image"), be(self.gone)));
        }
        if words.is_empty() {
            return "no image that was looked into has changed, so that it is their order, or the names of classes"
                .to_owned();
        }
        words.join(", ")
    }
}

fn name_hash(source: &dyn Source, index: usize) -> u64 {
    let mut hash = StableHash::new();
    hash.write(source.name(index).as_bytes());
    hash.finish()
}
