//! Names of images: unique where the files are, fit for a terminal, and leading back to the file.
#![cfg(unix)]

mod support;

use data::source::{open_all_cached, open_cached};
use data::{Source, Split};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use support::archive::Tar;
use support::{TempFolder, bmp};

const ODD: [&[u8]; 6] = [b"a\n.bmp", b"a\r.bmp", b"a\xff.bmp", b"a\xfe.bmp", b"a\x1b[2J.bmp", b"a\\x0a.bmp"];

fn open(folder: &TempFolder, name: &str) -> Arc<dyn Source> {
    open_cached(folder.0.join(name).to_str().unwrap(), Split::Train, 0, &folder.0.join("cache")).unwrap()
}

fn names(source: &dyn Source) -> Vec<String> {
    let names: Vec<String> = (0..source.len()).map(|i| source.name(i)).collect();
    assert!(names.iter().all(|name| text::is_plain(name)), "{names:?}");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    names
}

/// Writes images of odd names, of which the first byte of the first pixel is the number; false where the file system
/// takes only text.
fn write_odd(folder: &Path) -> bool {
    fs::create_dir_all(folder).unwrap();
    let write = |(i, name): (usize, &&[u8])| fs::write(folder.join(OsStr::from_bytes(name)), bmp(5, 4, [i as u8; 3]));
    ODD.iter().enumerate().all(|(i, name)| write((i, name)).is_ok())
}

#[test]
fn odd_names_in_a_folder_stay_different_and_lead_back_to_their_files() {
    let folder = TempFolder::new();
    if !write_odd(&folder.0.join("images")) {
        return;
    }
    let source = open(&folder, "images");
    for (i, name) in names(&*source).iter().enumerate() {
        let path = folder.0.join("images").join(text::path_of(name));
        assert_eq!(fs::read(path).unwrap(), bmp(5, 4, [source.read(i).unwrap().pixels[0]; 3]), "{name}");
    }
    // The same names in a list are the same files, and keep their names.
    let list = names(&*source).join("\n");
    folder.write("images/list.txt", list.as_bytes());
    let listed = open(&folder, "images/list.txt");
    assert_eq!(names(&*listed), names(&*source));
    for i in 0..source.len() {
        assert_eq!(listed.read(i).unwrap(), source.read(i).unwrap());
    }
}

#[test]
fn odd_names_in_an_archive_stay_different() {
    let folder = TempFolder::new();
    let add = |tar: Tar, (i, name): (usize, &&[u8])| {
        let mut header = support::archive::header("", support::archive::octal(bmp(5, 4, [0; 3]).len()), b'0');
        header[..name.len()].copy_from_slice(name);
        tar.block(support::archive::with_checksum(header)).data(&bmp(5, 4, [i as u8; 3]))
    };
    let tar = ODD.iter().enumerate().fold(Tar::default(), add);
    // And a plain name twice.
    let tar = tar.image("b.bmp", [7; 3]).image("b.bmp", [8; 3]);
    folder.write("x.tar", &tar.end());
    let source = open(&folder, "x.tar");
    let found = names(&*source);
    let expected: Vec<_> = ODD.iter().map(|name| text::escape_name(name).into_owned()).collect();
    assert_eq!(found[..ODD.len()], expected);
    assert_eq!(found[ODD.len()..], ["b.bmp", "b.bmp (2)"]);
}

#[test]
fn classes_that_differ_in_a_byte_are_two_classes() {
    let folder = TempFolder::new();
    for class in [&b"c\xff"[..], b"c\xfe", b"c\n"] {
        let path = folder.0.join("images").join(OsStr::from_bytes(class));
        if fs::create_dir_all(&path).is_err() {
            return;
        }
        fs::write(path.join("a.bmp"), bmp(5, 4, [1; 3])).unwrap();
    }
    assert_eq!(open(&folder, "images").class_names(), [r"c\x0a", r"c\xfe", r"c\xff"]);
    folder.write("images/list.csv", b"path,label\nc\\xff/a.bmp,\"a\\n\"\nc\\xfe/a.bmp,b\x1b[2J\n");
    let listed = open(&folder, "images/list.csv");
    assert_eq!(listed.class_names(), [r"a\n", r"b\x1b[2J"]);
    assert!(listed.read(1).is_ok());
}

#[test]
fn shards_of_the_same_name_in_different_folders_stay_two() {
    let folder = TempFolder::new();
    for (name, color) in [("d/a/0.tar", [1; 3]), ("d/b/c/0.tar", [2; 3])] {
        folder.write(name, &Tar::default().image("x.bmp", color).end());
    }
    assert_eq!(names(&*open(&folder, "d/**/*.tar")), ["a/0.tar/x.bmp", "b/c/0.tar/x.bmp"]);
}

#[test]
fn all_images_are_those_for_training_and_then_the_held_out_ones() {
    let folder = TempFolder::new();
    for (i, name) in ["train/x/0.bmp", "train/y/0.bmp", "val/x/0.bmp", "val/y/1.bmp"].into_iter().enumerate() {
        folder.write_image(&format!("images/{name}"), [i as u8; 3]);
    }
    let open_all = |spec: &str| open_all_cached(spec, 0, &folder.0.join("cache")).unwrap();
    let all = open_all(folder.0.join("images").to_str().unwrap());
    assert_eq!(names(&*all), ["train/x/0.bmp", "train/y/0.bmp", "test/x/0.bmp", "test/y/1.bmp"]);
    assert_eq!((0..4).map(|i| all.label(i).unwrap()).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert!((0..4).all(|i| all.read(i).unwrap().pixels[0] == i as u8));
    assert!(all.describe().contains("4 images in 2 classes (2 training images, then 2 held-out images)"));
    assert!(all.read(4).is_err());
    // Without splits, all is what there is, under its own names.
    assert_eq!(names(&*open_all(folder.0.join("images/train").to_str().unwrap())), ["x/0.bmp", "y/0.bmp"]);
    let synthetic = open_all("synthetic:train=3,test=2,size=16");
    assert_eq!((synthetic.len(), names(&*synthetic).len()), (5, 5));
}
