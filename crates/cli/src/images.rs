//! Opens the images of a command, and finds what a recipe is derived from: their number, size and labels.

use std::path::Path;
use std::sync::Arc;

use data::{BadSample, Census, Copies, DecodeLimits, Image, OpenError, Orientation, Reader, Source, Split};
use eval::is_labelled;
use eval::subset::sample;
use ssl::recipe::Facts;
use train::run::CENSUS_FILE;

use crate::args::SplitArg;
use crate::error::CliError;
use crate::output;
use crate::preparing::Preparing;

/// The seed of `synthetic` where its name has none. Not the run's seed: two runs that differ in `--seed` are compared
/// on the same images, and `eval` finds the images of a run without asking for its seed.
const SYNTHETIC_SEED: u64 = 0;
/// Images whose sizes are measured.
const LOOKED_AT: usize = 64;
/// No census is larger: it would be of two hundred million images.
const CENSUS_BYTES: u64 = 4 << 30;
/// Unreadable images that an error names.
const LISTED: usize = 10;

/// Opens one split of the data and prints the source's remarks.
pub fn open(spec: &str, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    Ok(with_remarks(open_quietly(spec, split)?))
}

/// The same without the remarks: they were printed before.
pub fn open_quietly(spec: &str, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    let preparing = Preparing::new();
    let source = data::source::open_watched(spec, split, SYNTHETIC_SEED, preparing.tell());
    drop(preparing);
    source
}

/// How the training images differ from those that a run was begun with, in words; none where they have its fingerprint.
/// Those that cannot be listed any more differ.
pub fn changes(spec: &str, fingerprint: u64, run: &Path) -> Option<String> {
    match data::open(spec, Split::Train, SYNTHETIC_SEED) {
        Ok(source) if source.fingerprint() == fingerprint => None,
        Ok(source) => Some(changes_since(&*source, run).unwrap_or_else(|| "which ones is not known".to_owned())),
        Err(error) => Some(error.to_string()),
    }
}

/// How images differ from those that a run was begun with, by its census; none where there is none. Runs of earlier versions
/// have none, and a damaged one says nothing.
pub fn changes_since(source: &dyn Source, run: &Path) -> Option<String> {
    let bytes = files::read_bounded(&run.join(CENSUS_FILE), CENSUS_BYTES).ok()?;
    Some(Census::from_bytes(&bytes)?.changes(source).in_words())
}

/// Opens the images that `--split` asks for and prints the source's remarks.
pub fn open_chosen(spec: &str, split: SplitArg) -> Result<Arc<dyn Source>, OpenError> {
    match split {
        SplitArg::Train => open(spec, Split::Train),
        SplitArg::Test => open(spec, Split::Test),
        SplitArg::All => {
            let preparing = Preparing::new();
            let source = data::source::open_all_watched(spec, SYNTHETIC_SEED, preparing.tell());
            drop(preparing);
            Ok(with_remarks(source?))
        }
    }
}

fn with_remarks(source: Arc<dyn Source>) -> Arc<dyn Source> {
    for remark in source.remarks() {
        output::note(&format!("note: {remark}"));
    }
    source
}

/// Prints what has come up while images were read.
pub fn say_news(source: &dyn Source) {
    for news in source.take_news() {
        output::note(&format!("note: {news}"));
    }
}

/// Opens the held-out split; the error as text where the data has none.
pub fn open_held_out(spec: &str) -> Result<Arc<dyn Source>, String> {
    open(spec, Split::Test).map_err(|error| error.to_string())
}

/// Looks for images that a kNN classifies by themselves, because they are among those that vote, and warns of them.
/// Without held-out images those are meant that others of the training images are copies of.
pub fn warn_of_copies(train: &dyn Source, held_out: Option<&dyn Source>) -> Copies {
    let copies = match held_out {
        Some(held_out) => Copies::of(held_out, train),
        None => Copies::within(train),
    };
    let what = if held_out.is_some() { "held-out image" } else { "image" };
    if let (Some(share), Some((copy, of))) = (copies.share(what), &copies.first) {
        let (are, beside) = match (held_out.is_some(), copies.found) {
            (true, 1) => ("is a training image too", "that image"),
            (true, _) => ("are training images too", "those"),
            (false, _) => ("have copies among the others", "those"),
        };
        output::note(&format!(
            "warning: {share} {are}, byte for byte (the first: {copy} is {of}). The accuracy on {beside} says nothing about \
             new images"
        ));
    }
    copies
}

/// The same images as seen from any folder: a path or pattern from the root on.
pub fn absolute(spec: &str) -> String {
    if spec == "synthetic" || spec.starts_with("synthetic:") {
        return spec.to_owned();
    }
    std::path::absolute(spec).map_or_else(|_| spec.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// The facts that a recipe is derived from. Sizes are medians over a fixed sample of the images, turned upright where a run
/// would turn them. The fingerprint is left to those who begin or continue a run: it looks into thousands of files.
pub fn facts(source: &dyn Source, channels: usize, orientation: Orientation) -> Result<Facts, CliError> {
    let mut reader = Reader::new(DecodeLimits::default(), channels).oriented(orientation);
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
    say_news(source);
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
        fingerprint: 0,
    })
}

fn median(mut values: Vec<usize>) -> usize {
    values.sort_unstable();
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_synthetic_are_what_its_name_says() {
        let source = open("synthetic:train=100,size=24", Split::Train).unwrap();
        let facts = facts(&*source, 3, Orientation::Upright).unwrap();
        assert_eq!((facts.images, facts.height, facts.width, facts.labelled), (100, 24, 24, true));
    }
}
