//! What `--data` takes: files, patterns, folders of files; each told apart by its content, each mistake answered.

mod support;

use data::source::open_cached;
use data::{OpenError, Source, Split};
use std::sync::Arc;
use support::archive::Tar;
use support::{TempFolder, bmp};

const RED: [u8; 3] = [200, 10, 20];
const BLUE: [u8; 3] = [1, 2, 250];

fn open(folder: &TempFolder, name: &str, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.0.join(name).to_str().unwrap(), split, 0, &folder.0.join(".cache"))
}

fn train(folder: &TempFolder, name: &str) -> Arc<dyn Source> {
    open(folder, name, Split::Train).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn problem(folder: &TempFolder, name: &str) -> String {
    match open(folder, name, Split::Train) {
        Ok(source) => panic!("opened: {}", source.describe()),
        Err(error) => error.to_string(),
    }
}

fn names(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|i| source.name(i)).collect()
}

fn tar(names: &[&str]) -> Vec<u8> {
    names.iter().fold(Tar::default(), |tar, name| tar.image(name, RED)).end()
}

#[test]
fn shards_are_one_source_in_the_order_of_the_pattern() {
    let folder = TempFolder::new();
    for i in 0..4 {
        folder.write(&format!("shard-{i:03}.tar"), &Tar::default().image(&format!("{i}.bmp"), [i as u8; 3]).end());
    }
    let source = train(&folder, "shard-{000..002}.tar");
    assert_eq!(names(&*source), ["shard-000.tar/0.bmp", "shard-001.tar/1.bmp", "shard-002.tar/2.bmp"]);
    assert_eq!(source.read(2).unwrap().pixels[0], 2);
    assert!(source.describe().ends_with("shard-{000..002}.tar: 3 images"), "{}", source.describe());
    assert_eq!(names(&*train(&folder, "shard-{003,001}.tar")), ["shard-003.tar/3.bmp", "shard-001.tar/1.bmp"]);
    assert_eq!(train(&folder, "shard-*.tar").len(), 4);
    assert_eq!(train(&folder, "sh*-00?.tar").len(), 4);
    let error = open(&folder, "shard-*.tar", Split::Test).err().unwrap();
    assert!(matches!(error, OpenError::NoTestSplit { .. }), "{error}");
    assert!(error.to_string().contains("all for training"), "{error}");
}

#[test]
fn a_pattern_names_the_file_that_is_missing() {
    let folder = TempFolder::new();
    folder.write("a-0.tar", &tar(&["x.bmp"]));
    assert!(problem(&folder, "a-{0..1}.tar").contains("a-1.tar"));
    assert!(problem(&folder, "b-*.tar").contains("no file has such a name"));
    assert!(problem(&folder, "a-{0..99999999}.tar").contains("stands for"));
}

#[cfg(unix)] // Elsewhere no file can have such a name.
#[test]
fn a_name_that_looks_like_a_pattern_and_exists_is_a_name() {
    let folder = TempFolder::new();
    folder.write("a{0..1}*.tar", &tar(&["x.bmp"]));
    assert_eq!(train(&folder, "a{0..1}*.tar").len(), 1);
}

#[test]
fn the_content_decides_and_not_the_name() {
    let folder = TempFolder::new();
    folder.write("archive.jpg", &tar(&["x.bmp"]));
    assert_eq!(names(&*train(&folder, "archive.jpg")), ["x.bmp"]);
}

#[test]
fn files_that_are_given_by_mistake_are_answered() {
    let folder = TempFolder::new();
    for (name, content, answer) in [
        ("x.parquet", &b"version https://git-lfs.github.com/spec/v1\n"[..], "git lfs pull"),
        ("x.tar", b"<!DOCTYPE html><html>", "web page"),
        ("x.zip", b"PK\x03\x04....", "zip archive"),
        ("x.tar.zst", b"\x28\xb5\x2f\xfd....", "Unpack it first"),
        ("x.tar.xz", b"\xfd7zXZ\0..", "Unpack it first"),
        ("x.jpg", b"\xff\xd8\xff\xe0", "single image"),
        ("x.parquet", b"something else", "does not start with PAR1"),
        ("x.tar", b"something else", "not a tar archive"),
        ("x.tar.gz", b"something else", "not a gzip file"),
        ("x.tar", b"", "empty"),
        ("x.dat", b"\x01\x02\x03", "it starts with [01, 02, 03]"),
        ("x.gz", b"\x1f\x8b\x08", "damaged gzip"),
    ] {
        folder.write(name, content);
        let message = problem(&folder, name);
        assert!(message.contains(answer) && message.contains(name), "{message}");
    }
    let missing = problem(&folder, "nowhere");
    assert!(missing.contains("no such file or folder") && missing.contains("shard-{000..009}.tar"), "{missing}");
}

#[test]
fn files_of_two_kinds_are_no_source() {
    let folder = TempFolder::new();
    folder.write("a.tar", &tar(&["x.bmp"]));
    folder.write("b.txt", b"a.bmp\n");
    assert!(problem(&folder, "*.t*").contains("not of one kind"));
    folder.write("c.txt", b"a.bmp\n");
    assert!(problem(&folder, "*.txt").contains("one at a time"));
}

#[test]
fn a_folder_of_archives_is_split_by_their_names() {
    let folder = TempFolder::new();
    folder.write("set-train-000.tar", &tar(&["dog/1.bmp", "cat/2.bmp"]));
    folder.write("set-train-001.tar", &tar(&["ant/3.bmp"]));
    folder.write("set-val-000.tar", &tar(&["dog/4.bmp"]));
    folder.write("set-extra-000.tar", &tar(&["bee/5.bmp"]));
    let (train, test) = (train(&folder, ""), open(&folder, "", Split::Test).unwrap());
    assert_eq!((train.len(), test.len()), (3, 1));
    // One list of classes, although the held-out part has a single one.
    assert_eq!(train.class_names(), ["ant", "cat", "dog"]);
    assert_eq!(test.class_names(), train.class_names());
    assert_eq!((train.label(0), test.label(0)), (Some(2), Some(2)));
    assert_eq!(names(&*test), ["set-val-000.tar/dog/4.bmp"]);
    assert!(train.remarks().iter().any(|remark| remark.contains("set-extra-000.tar")), "{:?}", train.remarks());
}

#[test]
fn part_folders_inside_the_archives_of_each_part_are_no_classes() {
    let folder = TempFolder::new();
    folder.write("train.tar", &tar(&["train/dog/1.bmp", "train/cat/2.bmp"]));
    folder.write("val.tar", &tar(&["val/dog/3.bmp"]));
    let (train, test) = (train(&folder, ""), open(&folder, "", Split::Test).unwrap());
    assert_eq!((train.class_names(), test.label(0)), (&["cat".to_owned(), "dog".to_owned()][..], Some(1)));
    assert!(train.remarks().is_empty(), "{:?}", train.remarks());
    let both = TempFolder::new();
    both.write("x.tar", &tar(&["train/dog/1.bmp", "val/cat/2.bmp"]));
    assert!(open(&both, "x.tar", Split::Train).unwrap().remarks()[0].contains("train, val inside the archives"));
}

#[test]
fn archives_in_folders_named_after_their_part_are_found() {
    let folder = TempFolder::new();
    folder.write("train/0.tar", &tar(&["a.bmp", "b.bmp"]));
    folder.write("test/0.tar", &tar(&["c.bmp"]));
    assert_eq!((train(&folder, "").len(), open(&folder, "", Split::Test).unwrap().len()), (2, 1));
    let plain = TempFolder::new();
    plain.write("data/x.tar", &tar(&["a.bmp"]));
    plain.write("data/test.tar", &tar(&["b.bmp"]));
    assert_eq!(train(&plain, "").len(), 2, "without a train file all are for training");
    assert!(matches!(open(&plain, "", Split::Test), Err(OpenError::NoTestSplit { .. })));
}

#[test]
fn a_folder_with_images_and_archives_has_to_be_made_clear() {
    let folder = TempFolder::new();
    folder.write("photos.tar", &tar(&["a.bmp"]));
    folder.write("photos/deep/a.bmp", &bmp(5, 4, BLUE));
    let message = problem(&folder, "");
    assert!(message.contains("a.bmp") && message.contains("Name the one"), "{message}");
    let example = folder.0.join("photos.tar");
    assert!(message.contains(&format!("a file such as {}", example.display())), "{message}");
    assert_eq!(train(&folder, "photos").len(), 1);
    assert_eq!(train(&folder, "photos.tar").read(0).unwrap().pixels[..3], RED);
}

#[test]
fn a_list_in_a_folder_of_images_is_just_a_file() {
    let folder = TempFolder::new();
    folder.write_image("a.bmp", RED);
    folder.write("labels.csv", b"a.bmp,1");
    assert_eq!(names(&*train(&folder, "")), ["a.bmp"]);
}

/// CIFAR records: label bytes, then an image of one value.
fn cifar(records: &[(&[u8], u8)]) -> Vec<u8> {
    let record = |&(label, value): &(&[u8], u8)| [label, &[value; 3072]].concat();
    records.iter().flat_map(record).collect()
}

#[test]
fn cifar_10_is_found_in_its_folder_and_above_it() {
    let folder = TempFolder::new();
    let names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
    for (file, records) in [
        ("data_batch_1.bin", &[(&[3u8][..], 10u8), (&[9], 20)][..]),
        ("data_batch_2.bin", &[(&[0], 30)]),
        ("test_batch.bin", &[(&[5], 40)]),
    ] {
        folder.write(&format!("cifar-10-batches-bin/{file}"), &cifar(records));
    }
    folder.write("cifar-10-batches-bin/batches.meta.txt", names.as_bytes());
    folder.write("cifar-10-batches-bin/readme.html", b"<html>");
    for name in ["", "cifar-10-batches-bin"] {
        let (train, test) = (train(&folder, name), open(&folder, name, Split::Test).unwrap());
        assert_eq!((train.len(), test.len()), (3, 1));
        assert_eq!((train.class_names()[3].as_str(), train.label(0)), ("cat", Some(3)));
        assert_eq!((train.read(2).unwrap().pixels[0], test.read(0).unwrap().pixels[0]), (30, 40));
    }
    let single = train(&folder, "cifar-10-batches-bin/data_batch_{1..2}.bin");
    assert_eq!((single.len(), single.class_names()[9].as_str()), (3, "truck"));
    folder.write("cifar-10-batches-bin/data_batch_4.bin", &cifar(&[(&[0], 30)]));
    assert!(problem(&folder, "").contains("data_batch_3.bin is missing"));
}

#[test]
fn cifar_100_has_its_fine_classes() {
    let folder = TempFolder::new();
    let names: String = (0..100).map(|i| format!("class{i}\n")).collect();
    folder.write("train.bin", &cifar(&[(&[1, 77], 5), (&[1, 2], 6)]));
    folder.write("test.bin", &cifar(&[(&[1, 2], 7)]));
    folder.write("fine_label_names.txt", names.as_bytes());
    for name in ["", "train.bin"] {
        let train = train(&folder, name);
        assert_eq!((train.len(), train.label(0), train.class_names().len()), (2, Some(77), 100));
    }
    assert_eq!(open(&folder, "", Split::Test).unwrap().len(), 1);
}

#[test]
fn idx_files_are_found_under_both_spellings() {
    for spelling in ["-idx", ".idx"] {
        let folder = TempFolder::new();
        for (part, count) in [("train", 3u8), ("t10k", 2)] {
            let header = [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 4];
            let images = [&header[..], &vec![9; usize::from(count) * 16]].concat();
            let labels = [&[0, 0, 8, 1, 0, 0, 0, count][..], &vec![1; usize::from(count)]].concat();
            folder.write(&format!("{part}-images{spelling}3-ubyte"), &images);
            folder.write(&format!("{part}-labels{spelling}1-ubyte"), &labels);
        }
        let (train_part, test) = (train(&folder, ""), open(&folder, "", Split::Test).unwrap());
        assert_eq!((train_part.len(), test.len(), test.label(1)), (3, 2, Some(1)));
        assert_eq!(train(&folder, &format!("t10k-images{spelling}3-ubyte")).label(0), Some(1));
        // Two formats in one folder: which?
        folder.write("x.tar", &tar(&["x.bmp"]));
        assert!(problem(&folder, "").contains("IDX files"));
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = TempFolder::new();
    let pipe = folder.0.join("pipe.tar");
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        assert!(problem(&folder, "pipe.tar").contains("neither a file nor a folder"));
    }
}
