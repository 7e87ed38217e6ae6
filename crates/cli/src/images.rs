//! The images of a command: opened, looked at, and parts of them.

use std::sync::Arc;

use data::{BadSample, DecodeLimits, Image, OpenError, ReadError, Reader, Source, Split, Stored};
use random::{Key, Purpose};
use ssl::recipe::Facts;

use crate::error::CliError;
use crate::output;

/// The seed of `synthetic` where its name has none. Not the run's seed: two runs that differ in `--seed` are compared
/// on the same images, and `eval` finds the images of a run without asking for its seed.
const SYNTHETIC_SEED: u64 = 0;
/// Images whose sizes are looked at.
const LOOKED_AT: usize = 64;
/// Bad images that an error spells out.
const LISTED: usize = 10;

/// Opens one part of the data and says what a person should know about it.
pub fn open(spec: &str, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    let source = data::open(spec, split, SYNTHETIC_SEED)?;
    for remark in source.remarks() {
        output::note(&format!("note: {remark}"));
    }
    Ok(source)
}

/// Opens the held-out images; the reason where there are none.
pub fn open_held_out(spec: &str) -> Result<Arc<dyn Source>, String> {
    open(spec, Split::Test).map_err(|error| error.to_string())
}

/// Whether images come with classes.
pub fn is_labelled(source: &dyn Source) -> bool {
    !source.class_names().is_empty() && source.label(0).is_some()
}

/// What a recipe is derived from. Sizes are medians over a sample that is always the same.
pub fn facts(source: &dyn Source, channels: usize) -> Result<Facts, CliError> {
    let mut reader = Reader::new(DecodeLimits::default(), channels);
    let mut image = Image::black(1, 1, channels);
    let (mut heights, mut widths, mut bad) = (Vec::new(), Vec::new(), Vec::new());
    let sample = sample(source.len(), LOOKED_AT);
    for &index in &sample {
        match reader.read(source, index, &mut image) {
            Ok(()) => {
                heights.push(image.height);
                widths.push(image.width);
            }
            Err(error) => {
                bad.push(BadSample { index: index as u64, name: source.name(index), reason: error.reason() });
            }
        }
    }
    if heights.is_empty() {
        bad.truncate(LISTED);
        let (looked_at, source_name) = (sample.len(), source.describe());
        return Err(CliError::NothingReadable { looked_at, source_name, first: bad });
    }
    Ok(Facts {
        images: source.len(),
        height: median(heights),
        width: median(widths),
        labelled: is_labelled(source),
        fingerprint: source.fingerprint(),
    })
}

fn median(mut values: Vec<usize>) -> usize {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Up to `most` of `len` numbers, in order: the same ones for every run, so that runs can be compared.
fn sample(len: usize, most: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..len).collect();
    if len > most {
        Key::new(0, Purpose::Subset).stream().shuffle(&mut indices);
        indices.truncate(most);
        indices.sort_unstable();
    }
    indices
}

/// Some images of a source.
pub struct Subset {
    source: Arc<dyn Source>,
    indices: Vec<usize>,
}

impl Subset {
    /// Up to `most` images, always the same ones.
    pub fn sample(source: Arc<dyn Source>, most: usize) -> Self {
        let indices = sample(source.len(), most);
        Self { source, indices }
    }

    /// How many there are, and of how many where not all, for people.
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
        match self.indices.get(index) {
            Some(&index) => self.source.fetch(index, limits, bytes),
            None => Err(ReadError::NoSuchImage { index, len: self.len() }),
        }
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
        // Of the same list the same sample is taken.
        self.source.fingerprint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_always_the_same_in_order_and_without_repeats() {
        let drawn = sample(1000, 64);
        assert_eq!(drawn, sample(1000, 64));
        assert!(drawn.windows(2).all(|w| w[0] < w[1]) && drawn.len() == 64);
        assert_eq!(sample(5, 64), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_subset_keeps_labels_and_names() {
        let whole = open("synthetic:train=40,size=16", Split::Train).unwrap();
        let part = Subset::sample(whole.clone(), 10);
        let indices = part.indices.clone();
        for (row, &index) in indices.iter().enumerate() {
            assert_eq!((part.label(row), part.name(row)), (whole.label(index), whole.name(index)));
            assert_eq!(part.read(row).unwrap(), whole.read(index).unwrap());
        }
        assert!(matches!(part.read(10), Err(ReadError::NoSuchImage { index: 10, len: 10 })));
        assert_eq!(part.label(10), None);
    }

    #[test]
    fn the_facts_of_synthetic_are_what_its_name_says() {
        let source = open("synthetic:train=100,size=24", Split::Train).unwrap();
        let facts = facts(&*source, 3).unwrap();
        assert_eq!((facts.images, facts.height, facts.width, facts.labelled), (100, 24, 24, true));
    }
}
