//! Folders that hold two parts of a data set, in the layouts that are found.

mod support;

use data::{OpenError, Source, Split, open};
use std::sync::Arc;
use support::TempFolder;

const RED: [u8; 3] = [200, 10, 20];

/// A folder with small images of these names.
fn folder(names: &[&str]) -> TempFolder {
    let folder = TempFolder::new();
    names.iter().for_each(|name| folder.write_image(name, RED));
    folder
}

fn parts(folder: &TempFolder) -> [Arc<dyn Source>; 2] {
    [Split::Train, Split::Test].map(|split| open(folder.spec(), split, 0).unwrap())
}

fn labels(source: &dyn Source) -> Vec<Option<u32>> {
    (0..source.len()).map(|i| source.label(i)).collect()
}

#[test]
fn the_training_part_names_the_classes_and_a_part_with_other_folders_has_no_labels() {
    // The layout of Tiny-ImageNet.
    let folder = folder(&["train/n01/images/a.bmp", "train/n02/images/b.bmp", "val/images/c.bmp", "val/images/d.bmp"]);
    let [train, test] = parts(&folder);
    assert_eq!(
        (train.class_names(), labels(&*train)),
        (&["n01".to_owned(), "n02".to_owned()][..], vec![Some(0), Some(1)])
    );
    assert!(train.remarks().is_empty(), "{:?}", train.remarks());
    assert_eq!((test.len(), test.class_names().len(), labels(&*test)), (2, 0, vec![None, None]));
    let remark = &test.remarks()[0];
    assert!(remark.contains("no labels: `images` is no class of") && remark.contains("train"), "{remark}");
}

#[test]
fn a_flat_held_out_part_leaves_the_labels_of_the_training_part_alone() {
    let [train, test] = parts(&folder(&["train/cat/a.bmp", "train/dog/b.bmp", "val/c.bmp"]));
    assert_eq!((train.class_names().len(), test.class_names().len()), (2, 0));
    assert!(test.remarks()[0].contains("some lie in no folder"), "{:?}", test.remarks());
}

#[test]
fn folders_without_images_beside_the_parts_change_nothing() {
    let folder = folder(&["train/n01/a.bmp", "train/n02/b.bmp", "val/n02/c.bmp"]);
    folder.write("ILSVRC2012_devkit_t12/data/meta.mat", b"MATLAB");
    folder.write("readme.txt", b"hello");
    let [train, test] = parts(&folder);
    assert_eq!((train.len(), test.len(), test.label(0)), (2, 1, Some(1)));
    assert_eq!(train.class_names(), ["n01", "n02"]);
    assert!(train.remarks().is_empty(), "{:?}", train.remarks());
    let single = self::folder(&["train/n01/a.bmp", "train/n02/b.bmp"]);
    single.write("annotations/all.json", b"{}");
    let train = open(single.spec(), Split::Train, 0).unwrap();
    assert_eq!(train.class_names(), ["n01", "n02"]);
    assert!(matches!(open(single.spec(), Split::Test, 0), Err(OpenError::NoTestSplit { .. })));
}

#[test]
fn a_year_after_the_name_of_a_part_is_understood_and_the_latest_is_taken() {
    // The layout of COCO.
    let folder = folder(&["train2017/a.bmp", "val2014/b.bmp", "val2017/c.bmp", "val2017/d.bmp", "test2017/e.bmp"]);
    folder.write("annotations/instances.json", b"{}");
    let [train, test] = parts(&folder);
    assert_eq!((train.len(), test.len()), (1, 2));
    assert!(train.class_names().is_empty());
    for part in [&train, &test] {
        let remark = &part.remarks()[0];
        assert!(remark.contains("not used, 2 time(s)") && remark.ends_with("test2017"), "{remark}");
    }
}

#[test]
fn what_lies_beside_two_parts_is_left_out_and_named() {
    let [train, test] = parts(&folder(&["train/a.bmp", "val/b.bmp", "extra/c.bmp", "sample.bmp"]));
    assert_eq!((train.len(), test.len()), (1, 1));
    assert!(train.remarks()[0].contains("not used, 2 time(s)"), "{:?}", train.remarks());
}

#[test]
fn names_of_parts_are_never_classes() {
    let only_held_out = folder(&["val/a.bmp", "test/b.bmp"]);
    let source = open(only_held_out.spec(), Split::Train, 0).unwrap();
    assert_eq!((source.len(), source.class_names().len()), (2, 0));
    assert!(source.remarks()[0].contains("there is no folder `train`"), "{:?}", source.remarks());
    // The layout of MNIST as images.
    let [train, test] = parts(&folder(&["training/0/a.bmp", "training/1/b.bmp", "testing/1/c.bmp"]));
    assert_eq!((train.class_names().len(), test.label(0)), (2, Some(1)));
}

#[test]
fn an_empty_folder_is_no_class() {
    let folder = folder(&["cat/a.bmp", "dog/b.bmp"]);
    folder.write("ant/notes.txt", b"no images of ants yet");
    assert_eq!(open(folder.spec(), Split::Train, 0).unwrap().class_names(), ["cat", "dog"]);
}

#[test]
fn a_folder_above_files_that_hold_images_says_which_folder_to_give() {
    for file in ["plain/v1/part-0.parquet", "shards/a/0.tar.gz", "raw/x/train-images-idx3-ubyte"] {
        let folder = TempFolder::new();
        folder.write("README.md", b"hello");
        folder.write(file, b"...");
        let message = open(folder.spec(), Split::Train, 0).err().unwrap().to_string();
        let inner = folder.0.join(file);
        assert!(message.ends_with(&format!("Give its folder: {}", inner.parent().unwrap().display())), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn links_to_class_folders_are_classes_and_circles_end() {
    use std::os::unix::fs::symlink;
    let (elsewhere, folder) = (folder(&["cat/a.bmp", "dog/b.bmp"]), TempFolder::new());
    std::fs::create_dir_all(folder.0.join("train")).unwrap();
    symlink(elsewhere.0.join("cat"), folder.0.join("train/cat")).unwrap();
    symlink(elsewhere.0.join("dog"), folder.0.join("train/dog")).unwrap();
    symlink(&folder.0, folder.0.join("round")).unwrap();
    folder.write_image("val/dog/c.bmp", RED);
    let [train, test] = parts(&folder);
    assert_eq!((train.len(), train.class_names().len(), test.label(0)), (2, 2, Some(1)));
}
