//! Data that is not what it seems: held-out images that are training images too, lists with a line that lacks its label.

mod common;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use common::{Finished, run, small, write_bmp};
use tempfile::TempDir;

/// Two classes of four images each for training, and as many held-out ones, the first `copied` of them copies.
fn photos(root: &Path, copied: usize) {
    for (class, first) in [("cat", 0), ("dog", 4)] {
        for i in first..first + 4 {
            write_bmp(&root.join(format!("train/{class}/{i}.bmp")), 16, i);
            let held_out = root.join(format!("val/{class}/other-{i}.bmp"));
            write_bmp(&held_out, 16, if i < copied { i } else { 100 + i });
        }
    }
}

static RUN: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), &["--epochs=1"]).succeeded();
    folder
});

fn knn(data: &Path, more: &[&str]) -> Finished {
    let (weights, data) = (RUN.path().to_str().unwrap(), data.to_str().unwrap());
    run(&[&["eval", "knn", "--device=cpu", "--weights", weights, "--data", data, "--k=3"], more].concat())
}

#[test]
fn held_out_images_that_are_training_images_are_counted_by_an_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    for (copied, said) in [
        (0, None),
        (3, Some("warning: 3 of 8 held-out images are training images too, byte for byte")),
        (8, Some("warning: all 8 held-out images are training images too, byte for byte")),
    ] {
        let data = folder.path().join(copied.to_string());
        photos(&data, copied);
        let ended = knn(&data, &["--json"]);
        match said {
            None => assert!(!ended.err.contains("training images too"), "{}", ended.err),
            Some(said) => assert!(ended.err.contains(said), "{}", ended.err),
        }
        assert!(copied == 0 || ended.err.contains("(the first: cat/other-0.bmp is cat/0.bmp)"), "{}", ended.err);
        assert_eq!(ended.json()["copies"], copied);
    }
}

#[test]
fn a_run_warns_of_held_out_images_that_it_trains_on() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("photos");
    photos(&data, 8);
    let more = ["--data", data.to_str().unwrap(), "--epochs=1"];
    let said = small(&folder.path().join("run"), &more).succeeded().err;
    assert!(said.contains("warning: all 8 held-out images are training images too, byte for byte"), "{said}");
}

#[test]
fn copies_among_images_that_are_classified_by_each_other_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    photos(folder.path(), 8);
    let data = folder.path().join("train");
    assert!(!knn(&data, &[]).succeeded().err.contains("byte for byte"));
    fs::copy(data.join("cat/1.bmp"), data.join("cat/9.bmp")).unwrap();
    let said = knn(&data, &[]).succeeded().err;
    let expected =
        "warning: 2 of 9 images have copies among the others, byte for byte (the first: cat/1.bmp is cat/9.bmp)";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_line_without_a_label_is_named_and_not_sub_folders() {
    let folder = tempfile::tempdir().unwrap();
    photos(folder.path(), 0);
    let list = folder.path().join("list.txt");
    fs::write(&list, "train/cat/0.bmp 0\ntrain/cat/1.bmp\ntrain/dog/4.bmp 1\ntrain/dog/5.bmp 1\n").unwrap();
    let message = knn(&list, &[]).failed();
    assert!(message.contains("line 2 has no label: train/cat/1.bmp"), "{message}");
    assert!(!message.contains("sub-folder"), "{message}");
}

#[test]
fn an_input_that_the_patches_do_not_fill_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    photos(folder.path(), 0);
    let said = knn(folder.path(), &["--image-size=18"]).succeeded().err;
    assert!(said.contains("warning: --image-size 18x18 is no multiple of the network's patches of 8 pixels"), "{said}");
    let said = knn(folder.path(), &["--image-size=24"]).succeeded().err;
    assert!(!said.contains("no multiple"), "{said}");
}
