//! The real data sets, where this machine has them: counts, classes, and pictures that decode.

mod support;

use data::source::open_cached;
use data::{DecodeLimits, Source, Split};
use std::path::Path;
use std::sync::Arc;
use support::{TempFolder, crc32, real_data};

fn opened(path: &Path, split: Split, cache: &TempFolder) -> Arc<dyn Source> {
    open_cached(path.to_str().unwrap(), split, 0, &cache.0).unwrap()
}

/// Images of each class.
fn class_counts(source: &dyn Source) -> Vec<usize> {
    let mut counts = vec![0; source.class_names().len()];
    (0..source.len()).for_each(|i| counts[source.label(i).unwrap() as usize] += 1);
    counts
}

/// Checksum of what is stored of all images.
fn checksum(source: &dyn Source) -> u64 {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    for i in 0..source.len() {
        source.fetch(i, &DecodeLimits::default(), &mut bytes).unwrap();
        all.extend_from_slice(&bytes);
    }
    crc32(&all)
}

#[test]
fn cifar_10_in_parquet_is_60_000_images_of_ten_named_classes() {
    let Some(path) = real_data("cifar10") else { return };
    let cache = TempFolder::new();
    let (train, test) = (opened(&path, Split::Train, &cache), opened(&path, Split::Test, &cache));
    assert_eq!((train.len(), test.len()), (50_000, 10_000));
    let names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    assert_eq!((train.class_names(), test.class_names()), (&names.map(str::to_owned)[..], train.class_names()));
    assert_eq!((class_counts(&*train), class_counts(&*test)), (vec![5000; 10], vec![1000; 10]));
    assert!(train.remarks().is_empty(), "{:?}", train.remarks());
    for (source, i) in [(&train, 0), (&train, 49_999), (&test, 5000)] {
        let image = source.read(i).unwrap();
        assert_eq!((image.width, image.height, image.channels), (32, 32, 3));
    }
    // The bytes that pyarrow reads.
    assert_eq!(checksum(&*test), 1_923_069_085);
    // From the cache it is the same data.
    let again = opened(&path, Split::Train, &cache);
    assert_eq!(again.fingerprint(), train.fingerprint());
    assert_eq!(again.read(31_415).unwrap(), train.read(31_415).unwrap());
}

#[test]
fn a_parquet_file_alone_is_all_for_training() {
    let Some(path) = real_data("cifar10") else { return };
    let cache = TempFolder::new();
    let source = opened(&path.join("test.parquet"), Split::Train, &cache);
    assert_eq!((source.len(), source.class_names().len()), (10_000, 10));
    assert!(open_cached(path.join("test.parquet").to_str().unwrap(), Split::Test, 0, &cache.0).is_err());
}

#[test]
fn fashion_mnist_in_idx_is_70_000_grey_images_of_ten_classes() {
    let Some(path) = real_data("fashion-mnist") else { return };
    let cache = TempFolder::new();
    let (train, test) = (opened(&path, Split::Train, &cache), opened(&path, Split::Test, &cache));
    assert_eq!((train.len(), test.len()), (60_000, 10_000));
    assert_eq!(train.class_names(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    assert_eq!((class_counts(&*train), class_counts(&*test)), (vec![6000; 10], vec![1000; 10]));
    // The labels of the first images, as published.
    assert_eq!((0..5).map(|i| train.label(i).unwrap()).collect::<Vec<_>>(), [9, 0, 0, 3, 0]);
    // The bytes that Python's gzip unpacks.
    assert_eq!(checksum(&*test), 309_494_841);
    let image = train.read(0).unwrap();
    assert_eq!((image.width, image.height), (28, 28));
    assert!(image.pixels.chunks(3).all(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]));
    assert!(image.pixels.iter().any(|&value| value > 200) && image.pixels[0] == 0);
}

#[test]
fn the_photographs_of_imagenet_are_unlabelled() {
    let Some(path) = real_data("imagenet300") else { return };
    let cache = TempFolder::new();
    let source = opened(&path, Split::Train, &cache);
    assert_eq!((source.len(), source.class_names().len(), source.label(0)), (221, 0, None));
}

#[test]
fn the_clothing_set_has_ten_classes_in_both_parts() {
    let Some(path) = real_data("clothing") else { return };
    let cache = TempFolder::new();
    let (train, test) = (opened(&path, Split::Train, &cache), opened(&path, Split::Test, &cache));
    let names = ["dress", "hat", "longsleeve", "outwear", "pants", "shirt", "shoes", "shorts", "skirt", "t-shirt"]
        .map(str::to_owned);
    assert_eq!((train.class_names(), test.class_names()), (&names[..], &names[..]));
    assert_eq!((class_counts(&*train), class_counts(&*test)), (vec![30; 10], vec![10; 10]));
}

#[test]
fn the_davis_sequences_are_folders_of_frames() {
    let Some(path) = real_data("davis2017") else { return };
    let cache = TempFolder::new();
    for (folder, classes) in [("JPEGImages", 0), ("JPEGImages/480p", 3), ("Annotations/480p", 3), ("Results/osvos", 3)]
    {
        let source = opened(&path.join(folder), Split::Train, &cache);
        assert_eq!((source.len(), source.class_names().len()), (139, classes), "{folder}");
        source.read(0).unwrap();
    }
    let frames = opened(&path.join("JPEGImages/480p"), Split::Train, &cache);
    assert_eq!(
        (frames.class_names(), class_counts(&*frames)),
        (&["blackswan", "car-shadow", "libby"].map(str::to_owned)[..], vec![50, 40, 49])
    );
}
