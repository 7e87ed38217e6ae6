//! Images that are in two places at once.

mod support;

use data::source::FolderSource;
use data::{Copies, Split, open};
use support::TempFolder;
use support::archive::Tar;

fn folder(place: &TempFolder, name: &str, images: &[(&str, &str)]) -> FolderSource {
    images.iter().for_each(|(file, bytes)| place.write(&format!("{name}/{file}"), bytes.as_bytes()));
    FolderSource::open(&place.0.join(name), Split::Train).unwrap()
}

#[test]
fn copies_are_found_by_content_whatever_their_names() {
    let place = TempFolder::new();
    let root = &place;
    let train = folder(root, "a", &[("1.png", "one"), ("2.png", "two"), ("3.png", "three"), ("0.png", "")]);
    let test = folder(root, "b", &[("x.png", "three"), ("y.png", "six"), ("z.png", "two"), ("zz.png", "")]);
    let found = Copies::of(&test, &train);
    assert_eq!((found.judged, found.found, found.may_be_more), (4, 2, false), "an empty file is no copy");
    assert_eq!(found.first, Some(("x.png".to_owned(), "3.png".to_owned())));
    assert_eq!(found.share("held-out image").unwrap(), "2 of 4 held-out images");
    let all = Copies::of(&folder(root, "c", &[("x.png", "one"), ("y.png", "two")]), &train);
    assert_eq!(all.share("image").unwrap(), "all 2 images");
    let none = Copies::of(&folder(root, "d", &[("x.png", "owe")]), &train);
    assert_eq!((none.found, none.share("image"), none.first), (0, None, None));
}

#[test]
fn each_image_that_has_a_copy_beside_it_counts() {
    let place = TempFolder::new();
    let images = [("1.png", "one"), ("2.png", "two"), ("3.png", "one"), ("4.png", "one"), ("5.png", "five")];
    let found = Copies::within(&folder(&place, "a", &images));
    assert_eq!((found.judged, found.found), (5, 3));
    assert_eq!(found.first, Some(("1.png".to_owned(), "3.png".to_owned())));
}

#[test]
fn images_in_archives_are_compared_with_files_and_made_ones_with_nothing() {
    let place = TempFolder::new();
    let train = folder(&place, "a", &[("1.png", "one"), ("2.png", "two")]);
    place.write("held-out.tar", &Tar::default().file("x.png", b"two").file("y.png", b"six").end());
    let archive = open(place.0.join("held-out.tar").to_str().unwrap(), Split::Train, 0).unwrap();
    assert_eq!(Copies::of(&*archive, &train).first, Some(("x.png".to_owned(), "2.png".to_owned())));
    let made = open("synthetic:train=8,test=8,size=16", Split::Train, 0).unwrap();
    assert_eq!(Copies::of(&*made, &*made).found, 0);
}
