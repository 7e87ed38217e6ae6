//! A labelled image set made of nothing: procedural pictures of shapes scattered over patterned grounds.
//!
//! Ten classes: two shapes, each on one of five grounds. Class and appearance are independent otherwise: tones,
//! places, sizes, turns, light and noise come from the same distributions for every class. Every part of a picture is
//! dark or bright by a coin toss, so two pictures of a class are hardly more alike pixel by pixel than two of different
//! classes: raw pixels are a poor feature, and most of what separates the classes has to be learnt.
//!
//! Image `i` is a function of (seed, `i`) and is computed when it is read: nothing is stored. The test images have
//! numbers of their own, far from any training image, and do not change with the number of those.

mod scene;
mod shape;
mod texture;

use super::{Fingerprint, OpenError, ReadError, Source, Split, Stored};
use crate::{DecodeLimits, Image};
use random::{Key, Purpose};
use scene::Scene;
use shape::Shape;
use text::thousands;
use texture::Texture;

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticSettings {
    /// Training images.
    pub train: usize,
    /// Test images.
    pub test: usize,
    /// Side of an image in pixels.
    pub size: usize,
    /// What the images are made from: another seed, another data set.
    pub seed: u64,
}

impl Default for SyntheticSettings {
    fn default() -> Self {
        Self { train: 6000, test: 600, size: 32, seed: 0 }
    }
}

/// Sides a picture may have: below, textures vanish; above, it is no longer made in a moment.
const SIZES: std::ops::RangeInclusive<usize> = 16..=1024;
/// Images a set may have.
const COUNTS: std::ops::RangeInclusive<usize> = 1..=100_000_000;

impl SyntheticSettings {
    /// Reads `synthetic` or `synthetic:key=value,...`. `seed` holds unless the text has one.
    pub fn parse(spec: &str, seed: u64) -> Result<Self, OpenError> {
        let mut settings = Self { seed, ..Self::default() };
        let list = spec.strip_prefix("synthetic").unwrap_or(spec).trim_start_matches(':');
        let refuse = |problem: String| OpenError::Synthetic { spec: spec.to_owned(), problem };
        for part in list.split(',').filter(|part| !part.trim().is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| refuse(format!("`{part}` is not key=value")))?;
            let (key, value) = (key.trim(), value.trim());
            let number: u64 = value.parse().map_err(|_| refuse(format!("{key}={value} is not a whole number")))?;
            let within = |range: std::ops::RangeInclusive<usize>| {
                let fits = usize::try_from(number).ok().filter(|n| range.contains(n));
                fits.ok_or_else(|| refuse(format!("{key}={number} is not from {} to {}", range.start(), range.end())))
            };
            match key {
                "train" => settings.train = within(COUNTS)?,
                "test" => settings.test = within(COUNTS)?,
                "size" => settings.size = within(SIZES)?,
                "seed" => settings.seed = number,
                _ => return Err(refuse(format!("there is no setting `{key}`"))),
            }
        }
        Ok(settings)
    }
}

/// Number of the first test image.
const FIRST_TEST_SAMPLE: u64 = 1 << 40;

/// The procedural image set.
pub struct SyntheticSource {
    settings: SyntheticSettings,
    split: Split,
    class_names: Vec<String>,
}

impl SyntheticSource {
    /// One split of the set.
    pub fn new(settings: SyntheticSettings, split: Split) -> Self {
        let name = |shape: &Shape| Texture::ALL.map(|texture| format!("{} on {}", shape.plural(), texture.plural()));
        Self { settings, split, class_names: Shape::ALL.iter().flat_map(name).collect() }
    }

    /// The number that names an image across both splits.
    fn sample(&self, index: usize) -> u64 {
        match self.split {
            Split::Train => index as u64,
            Split::Test => FIRST_TEST_SAMPLE + index as u64,
        }
    }

    fn class(&self, index: usize) -> usize {
        // Balanced: classes take turns.
        index % (Shape::ALL.len() * Texture::ALL.len())
    }
}

impl Source for SyntheticSource {
    fn len(&self) -> usize {
        match self.split {
            Split::Train => self.settings.train,
            Split::Test => self.settings.test,
        }
    }

    fn fetch(&self, index: usize, _: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        if index >= self.len() {
            return Err(ReadError::NoSuchImage { index, len: self.len() });
        }
        let class = self.class(index);
        let (shape, texture) = (Shape::ALL[class / Texture::ALL.len()], Texture::ALL[class % Texture::ALL.len()]);
        let key = Key::new(self.settings.seed, Purpose::Synthetic).sample(self.sample(index));
        let mut stream = key.stream();
        let scene = Scene::draw(shape, texture, self.settings.size, &mut stream);
        let Image { height, width, channels, pixels } = scene.render(&mut stream);
        *bytes = pixels;
        Ok(Stored::Pixels { height, width, channels })
    }

    fn label(&self, index: usize) -> Option<u32> {
        (index < self.len()).then(|| self.class(index) as u32)
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn name(&self, index: usize) -> String {
        match self.split {
            Split::Train => format!("synthetic #{index}"),
            Split::Test => format!("synthetic test #{index}"),
        }
    }

    fn describe(&self) -> String {
        let (images, classes, size) = (thousands(self.len()), self.class_names.len(), self.settings.size);
        let part = if self.split == Split::Test { "test " } else { "" };
        format!("synthetic: {images} {part}images of {size} x {size} in {classes} classes, seed {}", self.settings.seed)
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new();
        // Raise the number whenever a pixel changes: a run is not continued on other pictures.
        hash.add(b"synthetic, drawing 2");
        for part in [self.len() as u64, self.sample(0), self.settings.size as u64, self.settings.seed] {
            hash.add(&part.to_le_bytes());
        }
        hash.add_classes(&self.class_names);
        hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let parsed = SyntheticSettings::parse("synthetic:train=120, test=24,size=32", 7).unwrap();
        assert_eq!(parsed, SyntheticSettings { train: 120, test: 24, size: 32, seed: 7 });
        assert_eq!(
            SyntheticSettings::parse("synthetic", 3).unwrap(),
            SyntheticSettings { seed: 3, ..Default::default() }
        );
        assert_eq!(SyntheticSettings::parse("synthetic:seed=9", 3).unwrap().seed, 9);
        let mistakes =
            [("colour=3", "colour"), ("size", "key=value"), ("size=2", "16 to 1024"), ("train=-4", "whole number")];
        for (list, part) in mistakes {
            let error = SyntheticSettings::parse(&format!("synthetic:{list}"), 0).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_image_depends_on_seed_and_number_only() {
        let source =
            |train, seed, split| SyntheticSource::new(SyntheticSettings { train, seed, ..Default::default() }, split);
        let image = source(100, 1, Split::Train).read(17).unwrap();
        assert_eq!(image, source(4000, 1, Split::Train).read(17).unwrap());
        assert_ne!(image, source(100, 2, Split::Train).read(17).unwrap());
        let held_out = source(100, 1, Split::Test).read(17).unwrap();
        assert_eq!(held_out, source(5, 1, Split::Test).read(17).unwrap());
        assert_ne!(image, held_out);
        assert!(matches!(source(100, 1, Split::Train).read(100), Err(ReadError::NoSuchImage { index: 100, len: 100 })));
    }

    #[test]
    fn classes_are_balanced_and_named() {
        let source = SyntheticSource::new(SyntheticSettings { train: 120, ..Default::default() }, Split::Train);
        assert_eq!(source.class_names().len(), 10);
        let mut counts = [0; 10];
        for i in 0..120 {
            counts[source.label(i).unwrap() as usize] += 1;
        }
        assert_eq!(counts, [12; 10]);
        assert_eq!(source.label(120), None);
    }

    #[test]
    fn pictures_stay_what_they_were() {
        // A change here changes every score ever published for this data.
        let source = SyntheticSource::new(SyntheticSettings::default(), Split::Train);
        let mut hash = Fingerprint::new();
        for i in 0..10 {
            hash.add(&source.read(i).unwrap().pixels);
        }
        assert_eq!(hash.finish(), 0x8398_2c41_7d87_7a48, "{:#x}", hash.finish());
    }
}
