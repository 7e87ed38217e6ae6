//! Which images of a folder have changed since somebody looked.

mod support;

use data::source::{Census, FolderSource};
use data::{Source, Split};
use std::fs;
use support::TempFolder;

fn opened(place: &TempFolder) -> FolderSource {
    FolderSource::open(&place.0, Split::Train).unwrap()
}

#[test]
fn images_that_were_replaced_added_and_removed_are_told_apart_and_named() {
    let place = TempFolder::new();
    for i in 0..5u8 {
        place.write(&format!("{i}.png"), &[i; 40]);
    }
    let census = Census::of(&opened(&place));
    let said = || census.changes(&opened(&place)).in_words();
    assert!(said().starts_with("no image that was looked into has changed"), "{}", said());
    // The same size, another content.
    place.write("3.png", &[99; 40]);
    assert_eq!(said(), "1 image is another by the same name (3.png)");
    place.write("1.png", &[1; 41]);
    assert_eq!(said(), "2 images are others by the same name (the first: 1.png)");
    fs::rename(place.0.join("0.png"), place.0.join("zero.png")).unwrap();
    assert_eq!(
        said(),
        "2 images are others by the same name (the first: 1.png), 1 image is new (zero.png), 1 image is gone"
    );
}

#[test]
fn another_label_is_a_change() {
    let place = TempFolder::new();
    for name in ["a/1.png", "b/2.png", "c/3.png"] {
        place.write(name, name.as_bytes());
    }
    let census = Census::of(&opened(&place));
    fs::remove_dir_all(place.0.join("a")).unwrap();
    let changes = census.changes(&opened(&place));
    assert_eq!((changes.gone, changes.changed), (1, Some((2, "b/2.png".to_owned()))), "classes are counted anew");
}

#[test]
fn a_census_survives_its_file_and_other_files_are_none() {
    let place = TempFolder::new();
    (0..3u8).for_each(|i| place.write(&format!("{i}.png"), &[i; 9]));
    let source = opened(&place);
    let census = Census::of(&source);
    let bytes = census.to_bytes();
    assert_eq!(Census::from_bytes(&bytes), Some(census));
    for end in 0..bytes.len() {
        assert_eq!(Census::from_bytes(&bytes[..end]), None, "the first {end} bytes");
    }
    let mut endless = bytes.clone();
    endless[16..24].fill(0xff);
    assert_eq!((Census::from_bytes(&endless), Census::from_bytes(b"")), (None, None));
    assert_eq!(source.len(), 3);
}
