//! `eval video` and `attention` from end to end: a made-up video, a network of random weights, and what is written.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Finished, content, program, small, write_bmp};
use data::decode::decode_labels;
use data::{DecodeLimits, Image, label_map, sheet};

/// A small trained network, and the folder that keeps it.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1"]).succeeded();
    (folder, run)
});

fn run(args: &[&str], paths: &[(&str, &Path)]) -> Finished {
    let mut command = program();
    command.args(args).args(["--device", "cpu"]);
    for (flag, path) in paths {
        command.arg(flag).arg(path);
    }
    Finished::of(command.output().expect("the program starts"))
}

const SIZE: (usize, usize) = (36, 64);
const FRAMES: usize = 4;

/// A bright square on a dark ground that moves to the right, as a mask.
fn square(frame: usize) -> Image {
    let mut labels = Image::black(SIZE.1, SIZE.0, 1);
    for y in 10..26 {
        for x in 8 + 2 * frame..24 + 2 * frame {
            labels.pixels[y * SIZE.1 + x] = 1;
        }
    }
    labels
}

/// A DAVIS folder of one sequence. Its frames are PNG data under the names of JPEG files, which the content tells.
fn davis(root: &Path) -> PathBuf {
    let root = root.join("davis");
    for part in ["ImageSets/2017", "JPEGImages/480p/square", "Annotations/480p/square"] {
        fs::create_dir_all(root.join(part)).unwrap();
    }
    fs::write(root.join("ImageSets/2017/val.txt"), "square\n").unwrap();
    for frame in 0..FRAMES {
        let labels = square(frame);
        let name = |part: &str, ending: &str| root.join(format!("{part}/480p/square/{frame:05}.{ending}"));
        fs::write(name("Annotations", "png"), label_map::to_png(&labels).unwrap()).unwrap();
        let pixels = labels.pixels.iter().flat_map(|&label| [40 + 170 * label, 60, 80 + 90 * label]).collect();
        let picture = Image::from_pixels(SIZE.1, SIZE.0, 3, pixels);
        fs::write(name("JPEGImages", "jpg"), sheet::to_png(&picture).unwrap()).unwrap();
    }
    root
}

#[test]
fn masks_made_elsewhere_are_scored() {
    let folder = tempfile::tempdir().unwrap();
    let root = davis(folder.path());
    let annotations = root.join("Annotations/480p");
    let score = |more: &[&str]| {
        let args: Vec<&str> = ["eval", "video"].iter().chain(more).copied().collect();
        run(&args, &[("--davis", &root), ("--masks", &annotations)])
    };
    let result = score(&["--json"]).json();
    assert_eq!((result["jf"].as_f64(), result["j"]["recall"].as_f64()), (Some(1.0), Some(1.0)), "{result}");
    assert_eq!(result["f"]["decay"].as_f64(), Some(0.0));
    assert_eq!(result["sequences"][0]["name"], "square");
    assert_eq!(result["sequences"][0]["frames"], 2);
    assert_eq!(result["evaluation"]["name"], "video");
    assert!(result["data_digest"].as_str().is_some_and(|digest| digest.len() == 16), "{result}");
    let table = score(&[]).succeeded().out;
    assert!(table.starts_with("DAVIS-2017, 1 sequence, 1 object") && table.contains("square 1"), "{table}");
    let message = score(&["--sequences", "none"]).failed();
    assert!(message.contains("the sequence none has no annotations"), "{message}");
    let message = score(&["--sequences", "../square"]).failed();
    assert!(message.contains("without a path"), "{message}");
}

#[test]
fn a_network_makes_masks_that_are_saved_and_score_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = davis(folder.path());
    let save = folder.path().join("masks");
    let paths = [("--davis", &*root), ("--weights", &*RUN.1), ("--save", &*save)];
    let result = run(&["eval", "video", "--json"], &paths).json();
    assert_eq!(result["settings"]["top_k"], 5);
    assert!(result["first_mask_copied"]["jf"].as_f64().is_some_and(|jf| (0.1..1.0).contains(&jf)), "{result}");
    assert!(result["weights_digest"].is_string() && result["precision"] == "f32", "{result}");
    let masks = content(&save);
    assert_eq!(masks.len(), FRAMES);
    for (frame, (path, bytes)) in masks.iter().enumerate() {
        assert_eq!(*path, save.join(format!("square/{frame:05}.png")));
        let labels = decode_labels(bytes, &DecodeLimits::default()).unwrap();
        assert_eq!((labels.height, labels.width), SIZE);
        assert!(frame > 0 || labels == square(0), "the first mask is the annotation");
    }
    let again = run(&["eval", "video", "--json"], &[("--davis", &root), ("--masks", &save)]).json();
    assert_eq!((&again["jf"], &again["j"], &again["f"]), (&result["jf"], &result["j"], &result["f"]));
    assert_eq!(again["data_digest"], result["data_digest"]);

    let message = run(&["eval", "video"], &paths).failed();
    assert!(message.contains("square/00000.png: exists already") && message.contains("another --save"), "{message}");
    run(&["eval", "video", "--force"], &paths).succeeded();
    assert!(content(&save) == masks, "the same masks");
    // Never into what it reads.
    let before = content(&root);
    for inside in ["Annotations/480p", "JPEGImages/new", ""] {
        let save = root.join(inside);
        let paths = [("--davis", &*root), ("--weights", &*RUN.1), ("--save", &*save)];
        assert!(run(&["eval", "video", "--force"], &paths).failed().contains("--davis"), "{inside}");
    }
    assert!(content(&root) == before, "the data set was changed");
}

#[test]
fn attention_is_drawn_for_every_head() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    (0..3).for_each(|i| write_bmp(&photos.join(format!("photo {i}.bmp")), 40, i));
    let out = folder.path().join("maps");
    let paths = [("--weights", &*RUN.1), ("--data", &*photos), ("--out", &*out)];
    let said = run(&["attention", "--images", "2", "--threshold", "0.6"], &paths).succeeded().out;
    let drawn = content(&out);
    let heads = drawn.iter().filter(|(path, _)| path.to_str().unwrap().contains("-kept")).count() / 2;
    assert!(heads > 0 && drawn.len() == 2 * (2 + 2 * heads), "{said}");
    assert!(out.join("0001-photo-0-head0.png").is_file() && out.join("0002-photo-1-mean.png").is_file());
    for (path, bytes) in &drawn {
        let picture = data::decode::decode(bytes, &DecodeLimits::default()).unwrap();
        // Trained on images of 16 pixels, which it sees whole.
        assert_eq!((picture.height, picture.width), (16, 16), "{}", path.display());
    }
    let message = run(&["attention", "--images", "2"], &paths).failed();
    assert!(message.contains("exists already"), "{message}");
    let message = run(&["attention"], &[("--weights", &RUN.1), ("--data", &photos), ("--out", &photos)]).failed();
    assert!(message.contains("--data"), "{message}");
    assert_eq!(run(&["attention", "--threshold", "1.5"], &paths).code, Some(2));
}

#[test]
fn frames_become_pictures_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("frames");
    (0..12).for_each(|i| write_bmp(&photos.join(format!("{i:03}.bmp")), 20 + i, i));
    let out = folder.path().join("video");
    let paths = [("--weights", &*RUN.1), ("--data", &*photos), ("--out", &*out)];
    run(&["attention", "--frames", "--image-size", "24x40"], &paths).succeeded();
    let drawn = content(&out);
    assert_eq!(drawn.len(), 12);
    assert_eq!(drawn[11].0, out.join("00012.png"));
    let picture = data::decode::decode(&drawn[0].1, &DecodeLimits::default()).unwrap();
    assert_eq!((picture.height, picture.width), (24, 40));
}
