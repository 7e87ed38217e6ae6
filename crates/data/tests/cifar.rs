//! CIFAR in binary: records, names of the classes, and files that are none.

mod support;

use data::source::{fuzz, open_cached};
use data::{OpenError, Source, Split};
use std::sync::Arc;
use support::TempFolder;

const NAMES: &str = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n";

/// A record: labels, then a red, a green and a blue plane whose pixels tell their place.
fn record(labels: &[u8], first: u8) -> Vec<u8> {
    let plane = |channel: u8| (0..1024u32).map(move |i| first.wrapping_add(channel * 50).wrapping_add(i as u8));
    labels.iter().copied().chain((0..3).flat_map(plane)).collect()
}

fn opened(folder: &TempFolder, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.spec(), split, 0, &folder.0.join("cache"))
}

fn problem(folder: &TempFolder) -> String {
    match opened(folder, Split::Train) {
        Ok(source) => panic!("opened: {}", source.describe()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn cifar_10_has_five_batches_or_fewer_a_test_batch_and_names() {
    let folder = TempFolder::new();
    folder.write("data_batch_1.bin", &[record(&[6], 0), record(&[9], 7)].concat());
    folder.write("data_batch_2.bin", &record(&[0], 20));
    folder.write("test_batch.bin", &record(&[3], 100));
    folder.write("batches.meta.txt", format!("{NAMES}\n").as_bytes());
    let (train, test) = (opened(&folder, Split::Train).unwrap(), opened(&folder, Split::Test).unwrap());
    assert_eq!((train.len(), test.len()), (3, 1));
    assert_eq!(train.class_names(), NAMES.lines().collect::<Vec<_>>());
    let labels: Vec<_> = (0..3).map(|i| train.label(i).unwrap()).collect();
    assert_eq!((labels, test.label(0)), (vec![6, 9, 0], Some(3)));
    assert_eq!((train.name(1), train.name(2)), ("data_batch_1.bin #1".to_owned(), "data_batch_2.bin #0".to_owned()));
    let image = train.read(1).unwrap();
    assert_eq!((image.width, image.height, image.channels), (32, 32, 3));
    // The first pixel, and the last of the first row: planes have become pixels.
    assert_eq!((&image.pixels[..3], &image.pixels[93..96]), (&[7, 57, 107][..], &[38, 88, 138][..]));
}

#[test]
fn cifar_100_is_labelled_by_its_fine_classes() {
    let folder = TempFolder::new();
    let names: Vec<String> = (0..100).map(|i| format!("thing {i}")).collect();
    folder.write("train.bin", &[record(&[19, 99], 0), record(&[2, 41], 1)].concat());
    folder.write("test.bin", &record(&[0, 5], 3));
    folder.write("fine_label_names.txt", names.join("\r\n").as_bytes());
    let source = opened(&folder, Split::Train).unwrap();
    assert_eq!(source.class_names(), names);
    assert_eq!((source.label(0), source.label(1)), (Some(99), Some(41)));
    assert_eq!(source.read(1).unwrap().pixels[..3], [1, 51, 101]);
    assert_eq!(opened(&folder, Split::Test).unwrap().label(0), Some(5));
}

#[test]
fn without_a_file_of_names_classes_are_numbers() {
    let folder = TempFolder::new();
    folder.write("data_batch_1.bin", &record(&[6], 0));
    assert_eq!(
        opened(&folder, Split::Train).unwrap().class_names(),
        ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
    );
}

#[test]
fn a_file_of_wrong_length_is_named_with_its_length_and_that_of_a_record() {
    for length in [1, 3072, 3074, 5000] {
        let folder = TempFolder::new();
        folder.write("data_batch_1.bin", &vec![1; length]);
        let message = problem(&folder);
        assert!(message.contains("data_batch_1.bin: ") && message.contains("records of 3,073 bytes"), "{message}");
        let shown =
            if length == 1 { "1 bytes".to_owned() } else { format!("{},{:03} bytes", length / 1000, length % 1000) };
        assert!(message.contains(&shown), "{message}");
    }
    let folder = TempFolder::new();
    folder.write("data_batch_1.bin", &record(&[6], 0));
    folder.write("data_batch_2.bin", b"");
    assert!(problem(&folder).contains("data_batch_2.bin: 0 bytes"), "{}", problem(&folder));
}

#[test]
fn a_label_beyond_the_classes_is_an_error_with_its_record() {
    let folder = TempFolder::new();
    folder.write("data_batch_1.bin", &[record(&[9], 0), record(&[10], 0)].concat());
    let message = problem(&folder);
    assert!(message.contains("record 1 has label 10") && message.contains("classes 0 to 9"), "{message}");
}

#[test]
fn names_that_are_too_few_or_too_many_are_an_error() {
    for names in ["airplane\nbird", "", &NAMES.repeat(2), &"x\n".repeat(1 << 20)] {
        let folder = TempFolder::new();
        folder.write("data_batch_1.bin", &record(&[6], 0));
        folder.write("batches.meta.txt", names.as_bytes());
        let message = problem(&folder);
        assert!(message.contains("batches.meta.txt") && message.contains("the 10 class names"), "{message}");
    }
}

#[test]
fn anything_at_all_comes_back() {
    for length in [0, 1, 3072, 3073, 3074, 6146, 6148, 9000] {
        for byte in [0, 9, 10, 255] {
            fuzz::cifar(&vec![byte; length]);
        }
    }
}
