//! Folders as people have them: nested, mislabelled, linked in circles, empty.

mod support;

use data::decode::DecodeLimits;
use data::source::{FolderSource, open_cached};
use data::{Image, OpenError, ReadError, Reader, Source, Split, open};
use std::fs;
use std::path::Path;
use support::{TempFolder, bmp, crc32, fixtures, real_data};

const RED: [u8; 3] = [200, 10, 20];

fn names(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|i| source.name(i)).collect()
}

/// The error of opening, where there has to be one.
fn refused(spec: &str, split: Split) -> OpenError {
    match open(spec, split, 0) {
        Ok(source) => panic!("opened: {}", source.describe()),
        Err(error) => error,
    }
}

#[test]
fn a_flat_folder_has_no_labels_and_a_fixed_order() {
    let folder = TempFolder::new();
    for name in ["b.bmp", "a.JPG", "c.Png", "sub/x.webp", ".hidden.jpg", ".git/y.jpg", "notes.txt", "noextension"] {
        folder.write_image(name, RED);
    }
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    assert_eq!(names(&*source), ["a.JPG", "b.bmp", "c.Png", "sub/x.webp"]);
    assert!(source.class_names().is_empty());
    assert_eq!(source.label(0), None);
    assert_eq!(source.describe(), format!("{}: 4 images", folder.spec()));
    // The content decides what the file is, not its name.
    let image = source.read(0).unwrap();
    assert_eq!((image.width, image.height, &image.pixels[..3]), (5, 4, &RED[..]));
}

#[test]
fn first_level_folders_are_classes_when_every_image_lies_in_one() {
    let folder = TempFolder::new();
    for name in ["dog/1.bmp", "cat/deep/er/2.bmp", "cat/1.bmp", "ant/1.bmp"] {
        folder.write_image(name, RED);
    }
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    assert_eq!(source.class_names(), ["ant", "cat", "dog"]);
    assert_eq!(names(&*source), ["ant/1.bmp", "cat/1.bmp", "cat/deep/er/2.bmp", "dog/1.bmp"]);
    let labels: Vec<_> = (0..4).map(|i| source.label(i).unwrap()).collect();
    assert_eq!(labels, [0, 1, 1, 2]);
    assert_eq!(source.describe(), format!("{}: 4 images in 3 classes", folder.spec()));
}

#[test]
fn one_image_beside_the_folders_means_no_classes() {
    let folder = TempFolder::new();
    for name in ["dog/1.bmp", "cat/1.bmp", "stray.bmp"] {
        folder.write_image(name, RED);
    }
    assert!(open(folder.spec(), Split::Train, 0).unwrap().class_names().is_empty());
    let single = TempFolder::new();
    single.write_image("only/1.bmp", RED);
    assert!(open(single.spec(), Split::Train, 0).unwrap().class_names().is_empty());
}

#[test]
fn train_and_val_folders_are_splits_that_share_their_classes() {
    let folder = TempFolder::new();
    // The test part lacks "bee": the label of "cat" must not shift.
    for name in ["train/ant/1.bmp", "train/bee/1.bmp", "train/cat/1.bmp", "val/cat/1.bmp", "val/ant/1.bmp"] {
        folder.write_image(name, RED);
    }
    let (train, test) = (open(folder.spec(), Split::Train, 0).unwrap(), open(folder.spec(), Split::Test, 0).unwrap());
    assert_eq!((train.len(), test.len()), (3, 2));
    assert_eq!(train.class_names(), ["ant", "bee", "cat"]);
    assert_eq!(test.class_names(), train.class_names());
    assert_eq!((test.label(0), test.label(1)), (Some(0), Some(2)));
}

#[test]
fn a_plain_folder_is_all_for_training_and_says_so() {
    let folder = TempFolder::new();
    folder.write_image("a.bmp", RED);
    let error = refused(folder.spec(), Split::Test);
    assert!(matches!(error, OpenError::NoTestSplit { .. }), "{error}");
    assert!(error.to_string().contains("val or validation or valid or test"), "{error}");
    // A class that happens to be called train does not make a split.
    let classes = TempFolder::new();
    for name in ["train/1.bmp", "bus/1.bmp"] {
        classes.write_image(name, RED);
    }
    assert_eq!(open(classes.spec(), Split::Train, 0).unwrap().class_names(), ["bus", "train"]);
}

#[test]
fn missing_unknown_and_empty_are_told_apart() {
    let folder = TempFolder::new();
    let missing = refused(folder.0.join("nowhere").to_str().unwrap(), Split::Train);
    assert!(matches!(missing, OpenError::Missing { .. }), "{missing}");
    folder.write("notes.md", b"1,2");
    let unknown = refused(folder.0.join("notes.md").to_str().unwrap(), Split::Train);
    assert!(matches!(unknown, OpenError::UnknownFile { .. }), "{unknown}");
    let file = FolderSource::open(&folder.0.join("notes.md"), Split::Train).err().unwrap();
    assert!(matches!(file, OpenError::NotAFolder { .. }), "{file}");
    let empty = refused(folder.spec(), Split::Train);
    assert!(matches!(empty, OpenError::NoImages { others: 1, .. }), "{empty}");
    let message = empty.to_string();
    assert!(message.contains(".jpg, .jpeg") && message.contains("1 other file(s), such as notes.md"), "{message}");
}

#[test]
fn unreadable_images_are_errors_with_a_name() {
    let folder = TempFolder::new();
    folder.write("a.jpg", b"");
    folder.write("b.jpg", b"GIF89a but not really");
    folder.write("c.jpg", &bmp(40, 40, RED));
    let limits = DecodeLimits { file_bytes: 1000, ..Default::default() };
    let source = FolderSource::open(&folder.0, Split::Train).unwrap();
    let mut image = Image::black(1, 1, 3);
    let mut read = |i| Reader::new(limits, 3).read(&source, i, &mut image);
    for (i, name) in ["a.jpg", "b.jpg", "c.jpg"].into_iter().enumerate() {
        let error = read(i).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{name}: ")), "{error}");
        assert!(!error.reason().contains(name));
    }
    assert!(matches!(read(2), Err(ReadError::FileTooLarge { limit: 1000, .. })));
    assert!(matches!(read(3), Err(ReadError::NoSuchImage { index: 3, len: 3 })));
    std::fs::remove_file(folder.0.join("a.jpg")).unwrap();
    assert!(matches!(read(0), Err(ReadError::Io { .. })));
}

#[test]
fn a_fingerprint_changes_with_names_sizes_contents_and_labels_only() {
    let folder = TempFolder::new();
    for name in ["x/1.bmp", "y/1.bmp"] {
        folder.write_image(name, RED);
    }
    let fingerprint = || open(folder.spec(), Split::Train, 0).unwrap().fingerprint();
    let first = fingerprint();
    let touched = std::fs::File::options().write(true).open(folder.0.join("x/1.bmp")).unwrap();
    touched.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(5000)).unwrap();
    assert_eq!(fingerprint(), first, "a copy with other times is the same data");
    folder.write_image("x/1.bmp", [0, 0, 0]);
    assert_ne!(fingerprint(), first, "another photograph of the same name and size is not");
    folder.write_image("x/1.bmp", RED);
    assert_eq!(fingerprint(), first);
    folder.write("x/1.bmp", &bmp(6, 4, RED));
    let other_size = fingerprint();
    assert_ne!(other_size, first);
    std::fs::rename(folder.0.join("x/1.bmp"), folder.0.join("x/2.bmp")).unwrap();
    assert_ne!(fingerprint(), other_size);
}

#[cfg(unix)]
#[test]
fn links_are_followed_once_and_circles_end() {
    use std::os::unix::fs::symlink;
    let (folder, elsewhere) = (TempFolder::new(), TempFolder::new());
    folder.write_image("a/1.bmp", RED);
    folder.write_image("b/1.bmp", RED);
    elsewhere.write_image("far.bmp", RED);
    symlink(&folder.0, folder.0.join("a/up")).unwrap();
    symlink(folder.0.join("b"), folder.0.join("a/to-b")).unwrap();
    symlink(folder.0.join("a"), folder.0.join("b/to-a")).unwrap();
    symlink(&elsewhere.0, folder.0.join("c")).unwrap();
    symlink(folder.0.join("a/1.bmp"), folder.0.join("b/linked.bmp")).unwrap();
    symlink(Path::new("/nowhere/at/all.bmp"), folder.0.join("b/broken.bmp")).unwrap();
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    assert_eq!(names(&*source), ["a/1.bmp", "b/1.bmp", "b/linked.bmp", "c/far.bmp"]);
    assert_eq!(source.class_names(), ["a", "b", "c"]);
    let remarks = source.remarks().join("\n");
    assert!(remarks.contains("3 linked folder(s) left out that are listed already"), "{remarks}");
}

#[test]
fn real_photographs_decode_to_the_bytes_of_pillow() {
    let expected = std::fs::read(fixtures().join("decode/real_data.json")).unwrap();
    let expected: std::collections::BTreeMap<String, [u64; 2]> = serde_json::from_slice(&expected).unwrap();
    for (name, [files, crc]) in expected {
        let Some(path) = real_data(&name) else { continue };
        let source = FolderSource::open(&path, Split::Train).unwrap();
        assert_eq!(source.len() as u64, files);
        let pixels: Vec<u8> = (0..source.len()).flat_map(|i| source.read(i).unwrap().pixels).collect();
        assert_eq!(crc32(&pixels), crc, "{name}");
    }
}

#[test]
fn the_clothing_set_is_split_and_labelled() {
    let Some(path) = real_data("clothing") else { return };
    let test = open(path.to_str().unwrap(), Split::Test, 0).unwrap();
    let train = open(path.to_str().unwrap(), Split::Train, 0).unwrap();
    assert_eq!((train.len(), test.len()), (300, 100));
    assert_eq!(train.class_names().len(), 10);
    assert_eq!(train.class_names(), test.class_names());
}

#[test]
fn images_of_formats_that_are_not_read_are_counted_by_kind() {
    let folder = TempFolder::new();
    folder.write_image("images/a.bmp", [1; 3]);
    for name in ["b.heic", "c/d.HEIC", "e.avif", "f.ppm", "notes.md"] {
        folder.write(&format!("images/{name}"), b"x");
    }
    let open = |name: &str| data::open(folder.0.join(name).to_str().unwrap(), Split::Train, 0);
    let source = open("images").unwrap();
    let remark = &source.remarks()[0];
    assert!(source.len() == 1 && remark.starts_with("passed over: 2 HEIC, 1 AVIF, 1 PPM"), "{remark}");
    assert!(remark.contains("heif-convert") && remark.contains("avifdec"), "{remark}");
    fs::remove_file(folder.0.join("images/a.bmp")).unwrap();
    let message = open("images").err().unwrap().to_string();
    assert!(message.contains("passed over: 2 HEIC"), "{message}");
    let tar = support::archive::Tar::default().image("a.bmp", [1; 3]).file("x/b.heic", b"x").file("c.jp2", b"x");
    folder.write("x.tar", &tar.end());
    let source = open_cached(folder.0.join("x.tar").to_str().unwrap(), Split::Train, 0, &folder.0.join("cache"));
    let source = source.unwrap();
    assert!(source.remarks()[0].starts_with("passed over: 1 HEIC, 1 JPEG 2000"), "{:?}", source.remarks());
}

#[test]
fn content_decides_what_a_file_that_is_passed_over_is_called() {
    let folder = TempFolder::new();
    folder.write_image("images/a.bmp", [1; 3]);
    // What some phones export: a JPEG under the name of the format that it was converted from.
    folder.write("images/IMG_1.heic", b"\xff\xd8\xff\xe0 and so on");
    folder.write("images/IMG_2.heic", b"\0\0\0\x18ftypheic and so on");
    folder.write_image("images/no-extension", [2; 3]);
    folder.write("images/a.bmp.bak", b"BM, but no picture");
    folder.write("images/weights.bin", b"x");
    for companion in ["notes.txt", "labels.CSV", "a.json"] {
        folder.write(&format!("images/{companion}"), b"\xff\xd8\xff\xe0: no matter what");
    }
    let open = || data::open(folder.0.join("images").to_str().unwrap(), Split::Train, 0);
    let source = open().unwrap();
    let remarks = source.remarks();
    assert_eq!((source.len(), remarks.len()), (1, 3), "{remarks:?}");
    assert!(remarks[0].starts_with("passed over: 1 HEIC, the first: IMG_2.heic"), "{remarks:?}");
    assert!(
        remarks[1].starts_with("passed over: 1 BMP, 1 JPEG by their content, but not by their names"),
        "{remarks:?}"
    );
    assert!(remarks[2].starts_with("passed over: 2 other files that are no images by their names"), "{remarks:?}");
    fs::remove_file(folder.0.join("images/a.bmp")).unwrap();
    let message = open().err().unwrap().to_string();
    assert!(message.contains("1 BMP, 1 JPEG by their content") && message.contains("saw 8 other file(s)"), "{message}");
}

#[cfg(unix)]
#[test]
fn links_that_lead_nowhere_are_counted() {
    let folder = TempFolder::new();
    folder.write_image("a.bmp", [1; 3]);
    std::os::unix::fs::symlink(folder.0.join("gone.bmp"), folder.0.join("b.bmp")).unwrap();
    let source = data::open(folder.spec(), Split::Train, 0).unwrap();
    assert!(source.remarks()[0].contains("1 image(s) left out that are links and lead nowhere, the first: b.bmp"));
}

#[test]
fn the_held_out_images_of_tiny_imagenet_have_the_classes_of_their_list() {
    let folder = TempFolder::new();
    for name in ["train/n01/images/n01_0.JPEG", "train/n02/images/n02_0.JPEG"] {
        folder.write_image(name, [1; 3]);
    }
    folder.write("train/n01/n01_boxes.txt", b"n01_0.JPEG\t0\t0\t1\t1\n");
    (0..3).for_each(|i| folder.write_image(&format!("val/images/val_{i}.JPEG"), [i; 3]));
    let list = "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\nval_2.JPEG\tn02\t4\t0\t60\t55\n";
    folder.write("val/val_annotations.txt", list.as_bytes());
    let open = |split| data::open(folder.spec(), split, 0).unwrap();
    let (train, test) = (open(Split::Train), open(Split::Test));
    assert_eq!((test.class_names(), test.len()), (train.class_names(), 3));
    assert_eq!((0..3).map(|i| test.label(i)).collect::<Vec<_>>(), [Some(1), Some(0), Some(1)]);
    assert!(test.remarks().is_empty(), "{:?}", test.remarks());
    folder.write_image("val/images/val_3.JPEG", [3; 3]);
    let test = open(Split::Test);
    assert_eq!((test.label(0), test.remarks().len()), (None, 2));
    assert!(test.remarks()[0].contains("says nothing of val_3.JPEG"), "{:?}", test.remarks());
}

#[test]
fn a_file_of_annotations_in_another_form_leaves_the_labels_to_the_folders() {
    let folder = TempFolder::new();
    for name in ["train/cat/0.bmp", "train/dog/0.bmp", "val/cat/1.bmp", "val/dog/1.bmp"] {
        folder.write_image(name, [1; 3]);
    }
    for (other, said) in [
        (&b"<annotation>cat</annotation>\n"[..], "no class behind a TAB"),
        (b"\xff\xfe\0\x80", "val_annotations.txt"),
        (b"others.jpg\tcat\n", "says nothing of 1.bmp"),
    ] {
        folder.write("val/val_annotations.txt", other);
        let test = data::open(folder.spec(), Split::Test, 0).unwrap();
        assert_eq!([test.label(0), test.label(1)], [Some(0), Some(1)], "{said}");
        let remarks = test.remarks();
        assert!(remarks.len() == 1 && remarks[0].contains("not used") && remarks[0].contains(said), "{remarks:?}");
    }
}
