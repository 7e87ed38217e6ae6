//! Photographs turned upright, against Pillow's `exif_transpose`.
//!
//! The files and checksums come from tools/oracle/orientation_fixtures.py.

mod support;

use data::decode::{DecodeLimits, Decoder, Reduction};
use data::{Decoding, Image, Loader, LoaderConfig, MultiCrop, Orientation, Split};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::{TempFolder, crc32, fixtures};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("orientation").join(name)).unwrap()
}

fn decode(bytes: &[u8], orientation: Orientation) -> (Image, bool) {
    let mut image = Image::black(1, 1, 3);
    let mut decoder = Decoder::new(DecodeLimits::default(), 3).oriented(orientation);
    decoder.decode(bytes, &mut image).unwrap();
    (image, decoder.turned())
}

#[test]
fn every_orientation_of_every_format_is_as_in_pillow() {
    // {file name: [width, height, checksum] as stored and upright}
    let expected: BTreeMap<String, [[u64; 3]; 2]> = serde_json::from_slice(&read("expected.json")).unwrap();
    assert!(expected.len() >= 45);
    let summary = |image: &Image| [image.width as u64, image.height as u64, crc32(&image.pixels)];
    let mut wrong = Vec::new();
    for (name, [stored, upright]) in expected {
        let bytes = read(&name);
        let (as_stored, left) = decode(&bytes, Orientation::AsStored);
        let (turned, was_turned) = decode(&bytes, Orientation::Upright);
        if summary(&as_stored) != stored || summary(&turned) != upright {
            wrong.push(format!("{name}: {:?} {:?}", summary(&as_stored), summary(&turned)));
        }
        assert!(!left && was_turned == (stored != upright), "{name}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn upright_is_the_default() {
    let image = data::decode::decode(&read("6.jpg"), &DecodeLimits::default()).unwrap();
    assert_eq!((image.width, image.height), (13, 21));
}

#[test]
fn views_are_drawn_for_the_upright_size_also_where_a_jpeg_is_decoded_smaller() {
    let mut image = Image::black(1, 1, 3);
    let mut decoder = Decoder::new(DecodeLimits::default(), 3);
    for (number, size) in [(1, (13, 21)), (3, (13, 21)), (6, (21, 13)), (7, (21, 13))] {
        let mut asked = None;
        let mut reduce = |height, width| {
            asked = Some((height, width));
            Reduction::Half
        };
        let done = decoder.decode_reduced(&read(&format!("{number}.jpg")), &mut reduce, &mut image).unwrap();
        assert_eq!((asked, done), (Some(size), Reduction::Half));
        assert_eq!((image.height, image.width), (size.0.div_ceil(2), size.1.div_ceil(2)));
    }
}

#[test]
fn a_loader_turns_images_and_counts_each_once() {
    let folder = TempFolder::new();
    for (name, file) in [("a", "6.jpg"), ("b", "1.jpg"), ("c", "8.png"), ("d", "none.jpg")] {
        folder.write(&format!("{name}.{}", file.rsplit('.').next().unwrap()), &read(file));
    }
    let source = data::open(folder.spec(), Split::Train, 0).unwrap();
    let views = MultiCrop { global_size: (8, 8), local_size: (4, 4), local_crops: 1, ..MultiCrop::dino() };
    let config = LoaderConfig { batch_size: 2, workers: 2, views, ..LoaderConfig::default() };
    let load = |config: LoaderConfig| {
        let mut loader = Loader::start(Arc::clone(&source), config, 0, 0, 3).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = loader.next().unwrap() {
            batches.push(batch);
        }
        batches
    };
    let upright = load(config.clone());
    assert_eq!(upright.len(), 6);
    assert_eq!(upright.iter().map(|batch| batch.turned).sum::<usize>(), 2);
    assert_eq!(upright[2..].iter().map(|batch| batch.turned).sum::<usize>(), 0, "an image is counted once");
    let stored = load(LoaderConfig { orientation: Orientation::AsStored, ..config.clone() });
    assert!(stored.iter().all(|batch| batch.turned == 0));
    // Only the two images that are turned look different.
    let pixels = |batches: &[data::Batch]| -> BTreeMap<u64, Vec<u8>> {
        let of_batch = |batch: &data::Batch| {
            (0..2).map(|i| (batch.samples[i], batch.groups[0].view(i).to_vec())).collect::<Vec<_>>()
        };
        batches[..2].iter().flat_map(of_batch).collect()
    };
    let (upright, stored) = (pixels(&upright), pixels(&stored));
    let differ: Vec<u64> = upright.iter().filter(|(image, view)| stored[*image] != **view).map(|(&i, _)| i).collect();
    assert_eq!(differ, [0, 2]);
    let fast = load(LoaderConfig { decoding: Decoding::Fast, ..config });
    assert_eq!(fast.iter().map(|batch| batch.turned).sum::<usize>(), 2);
}
