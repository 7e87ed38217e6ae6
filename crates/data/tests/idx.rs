//! IDX files: images with one channel or several, labels, gzip, and headers that lie.

mod support;

use data::source::{fuzz, open_cached};
use data::{OpenError, Source, Split};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;
use support::TempFolder;

const IMAGES: &str = "train-images-idx3-ubyte";
const LABELS: &str = "train-labels-idx1-ubyte";

/// A file with these sizes in the header and bytes that count up.
fn idx(sizes: &[u32], bytes: usize) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend((0..bytes).map(|i| i as u8));
    file
}

fn labels(labels: &[u8]) -> Vec<u8> {
    let mut file = idx(&[labels.len() as u32], 0);
    file.extend(labels);
    file
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn opened(folder: &TempFolder) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.spec(), Split::Train, 0, &folder.0.join("cache"))
}

fn problem(images: &[u8], labels: &[u8]) -> String {
    let folder = TempFolder::new();
    folder.write(IMAGES, images);
    folder.write(LABELS, labels);
    match opened(&folder) {
        Ok(source) => panic!("opened: {}", source.describe()),
        Err(error) => {
            assert!(
                !folder.0.join("cache").exists() || std::fs::read_dir(folder.0.join("cache")).unwrap().count() == 0
            );
            error.to_string()
        }
    }
}

#[test]
fn images_and_labels_are_read_plain_and_gzipped_alike() {
    let (images, classes) = (idx(&[3, 5, 4], 60), labels(&[2, 0, 7]));
    for packed in [false, true] {
        let folder = TempFolder::new();
        if packed {
            folder.write(&format!("{IMAGES}.gz"), &gzip(&images));
            folder.write(&format!("{LABELS}.gz"), &gzip(&classes));
        } else {
            folder.write(IMAGES, &images);
            folder.write(LABELS, &classes);
        }
        // The second time from the cache.
        for _ in 0..2 {
            let source = opened(&folder).unwrap();
            assert_eq!(source.len(), 3);
            assert_eq!(source.class_names(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
            assert_eq!([0, 1, 2].map(|i| source.label(i)), [Some(2), Some(0), Some(7)]);
            assert!(source.name(2).starts_with(IMAGES) && source.name(2).ends_with(" #2"), "{}", source.name(2));
            let image = source.read(2).unwrap();
            assert_eq!((image.height, image.width), (5, 4));
            assert_eq!(image.pixels[..6], [40, 40, 40, 41, 41, 41]);
        }
    }
}

#[test]
fn four_sizes_are_images_with_channels() {
    let folder = TempFolder::new();
    folder.write(IMAGES, &idx(&[2, 4, 5, 3], 120));
    let source = opened(&folder).unwrap();
    assert_eq!((source.len(), source.label(0), source.class_names().len()), (2, None, 0));
    let image = source.read(1).unwrap();
    assert_eq!((image.height, image.width, &image.pixels[..3]), (4, 5, &[60, 61, 62][..]));
}

#[test]
fn more_than_ten_classes_are_as_many_as_the_labels_need() {
    let folder = TempFolder::new();
    folder.write(IMAGES, &idx(&[2, 4, 4], 32));
    folder.write(LABELS, &labels(&[46, 3]));
    assert_eq!(opened(&folder).unwrap().class_names().len(), 47);
}

#[test]
fn a_file_of_wrong_length_is_named_with_both_lengths() {
    let good = labels(&[1, 2]);
    for (bytes, found) in [(31, "are 47."), (33, "are 49."), (0, "are 16.")] {
        let message = problem(&idx(&[2, 4, 4], bytes), &good);
        assert!(
            message.contains(IMAGES) && message.contains("promises 48 bytes") && message.contains(found),
            "{message}"
        );
        let message = problem(&gzip(&idx(&[2, 4, 4], bytes)), &good);
        assert!(message.contains("promises 48 bytes"), "{message}");
    }
    for (bytes, found) in [(1, "are 9."), (3, "are 11 or more."), (0, "are 8.")] {
        let message = problem(&idx(&[2, 4, 4], 32), &idx(&[2], bytes));
        assert!(
            message.contains(LABELS) && message.contains("promises 10 bytes") && message.contains(found),
            "{message}"
        );
    }
}

#[test]
fn labels_have_to_be_as_many_as_images() {
    let message = problem(&idx(&[2, 4, 4], 32), &labels(&[1, 2, 3]));
    assert!(message.contains("holds 3 labels for 2 images"), "{message}");
}

#[test]
fn images_and_labels_that_are_mistaken_for_each_other_are_told_so() {
    let (images, classes) = (idx(&[2, 4, 4], 32), labels(&[1, 2]));
    assert!(problem(&classes, &classes).contains("Is this the file of labels?"));
    assert!(problem(&images, &images).contains("Is this the file of images?"));
}

#[test]
fn other_numbers_than_bytes_are_named() {
    for (kind, name) in [(9, "signed bytes"), (11, "16-bit integers"), (13, "32-bit floats"), (14, "64-bit floats")] {
        let mut images = idx(&[2, 4, 4], 32);
        images[2] = kind;
        let message = problem(&images, &labels(&[1, 2]));
        assert!(message.contains(name) && message.contains("only unsigned bytes"), "{message}");
    }
    let mut images = idx(&[2, 4, 4], 32);
    images[2] = 77;
    assert!(problem(&images, &labels(&[1, 2])).contains("not an IDX file: 0x4d"));
    assert!(problem(b"GIF89a..", &labels(&[1, 2])).contains("not an IDX file: it starts with 47 49"));
}

#[test]
fn sizes_that_cannot_be_are_refused_before_memory_is_taken() {
    for sizes in [
        &[0, 4, 4][..],
        &[2, 0, 4],
        &[2, 4, 0],
        &[2, 4, 4, 0],
        &[2, 4, 4, 65],
        &[2, 1, 1],
        &[u32::MAX, 70_000, 4],
        &[u32::MAX; 3],
        &[u32::MAX; 4],
        &[2, 4],
        &[2, 4, 4, 3, 1],
    ] {
        let message = problem(&idx(sizes, 32), &labels(&[1, 2]));
        assert!(message.contains("that cannot be") || message.contains("dimensions"), "{message}");
    }
    // The largest that can be meant is far more than the file has.
    let message = problem(&idx(&[u32::MAX, 65_536, 65_536, 64], 32), &labels(&[1, 2]));
    assert!(message.contains("there are 52."), "{message}");
    let message = problem(&gzip(&idx(&[u32::MAX, 65_536, 65_536, 64], 32)), &labels(&[1, 2]));
    assert!(message.contains("there are 52."), "{message}");
}

#[test]
fn a_file_that_ends_within_its_header_and_damaged_gzip_are_told_apart() {
    let whole = idx(&[2, 4, 4], 32);
    for end in 0..16 {
        assert!(problem(&whole[..end], &labels(&[1, 2])).contains("it ends within the header"));
    }
    let packed = gzip(&whole);
    for end in [12, 20, packed.len() - 1] {
        let message = problem(&packed[..end], &labels(&[1, 2]));
        assert!(message.contains("damaged gzip data"), "{message}");
    }
    let mut flipped = packed.clone();
    let last = flipped.len() - 6;
    flipped[last] ^= 1;
    assert!(problem(&flipped, &labels(&[1, 2])).contains("damaged gzip data"), "a wrong checksum is noticed");
}

#[test]
fn no_flipped_byte_makes_a_parser_panic() {
    for whole in [idx(&[2, 4, 4], 32), labels(&[1, 2, 3]), gzip(&idx(&[2, 4, 4], 32)), gzip(&labels(&[1, 2, 3]))] {
        for i in 0..whole.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut flipped = whole.clone();
                flipped[i] ^= bits;
                fuzz::idx(&flipped);
                fuzz::idx(&flipped[..i]);
            }
        }
    }
}
