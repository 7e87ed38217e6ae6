//! `views` and `bench data`: what the network sees, and how fast it comes.

mod common;

use std::fs;
use std::path::Path;

use common::{SMALL, program, run, small, unless_given, write_bmp};
use data::augment::crop;
use data::decode::{DecodeLimits, decode};
use data::sheet::SheetGrid;
use data::{Image, Loader, Split};
use ssl::recipe::{Facts, RawRecipe};

const DATA: &str = "synthetic:train=24,test=12,size=16";

fn picture(path: &Path) -> Image {
    decode(&fs::read(path).unwrap(), &DecodeLimits::default()).unwrap()
}

fn views(out: &Path, more: &[&str]) -> common::Finished {
    run(&[&["views", "--out", out.to_str().unwrap()], more].concat())
}

#[test]
fn the_views_on_the_sheet_are_those_that_pretrain_feeds() {
    let folder = tempfile::tempdir().unwrap();
    let (sheet, trained) = (folder.path().join("sheet.png"), folder.path().join("run"));
    let flags = ["--local-crops", "3", "--seed", "7", "--set", "local_size=8", "--epochs", "2"];
    small(&trained, &flags).succeeded();
    // The same flags after another command, but for the run's own.
    let mut command = program();
    let command = command.args(["views", "--epoch", "1", "--images", "5", "--no-frames", "--out"]).arg(&sheet);
    let ended = common::Finished::of(command.args(unless_given(&SMALL[1..23], &flags)).args(flags).output().unwrap())
        .succeeded();
    assert!(ended.out.starts_with(&format!("{}\n5 images in the order of epoch 1, seed 7: ", sheet.display())));

    let source = data::open(DATA, Split::Train, 0).unwrap();
    let facts = Facts { images: 24, height: 16, width: 16, labelled: true, fingerprint: source.fingerprint() };
    let recipe = RawRecipe::from_file(&trained.join("config.toml")).unwrap().resolve(&facts).unwrap();
    let config = ssl::setup::loader_config(&recipe);
    assert_eq!((config.views.local_crops, config.views.local_size, config.seed), (3, (8, 8), 7));
    let layout = SheetGrid::new(&[(16, 16); 5], &config.views);
    let batch_size = config.batch_size;
    let batch = Loader::start(source, config, 1, 0, 2).unwrap().next().unwrap().unwrap();
    let (picture, zoom) = (picture(&sheet), layout.zoom);
    assert_eq!((picture.height, picture.width), layout.size);
    for sample in 0..5 {
        for view in 0..5 {
            let (group, number) = if view < 2 { (0, view) } else { (1, view - 2) };
            let shown = crop(&picture, layout.view(sample, view));
            let small = |y: usize| shown.row(y * zoom).chunks_exact(3).step_by(zoom).flatten().copied();
            let pixels: Vec<u8> = (0..shown.height / zoom).flat_map(small).collect();
            assert!(pixels == batch.groups[group].view(number * batch_size + sample), "sample {sample} view {view}");
        }
    }
}

#[test]
fn a_sheet_is_replaced_with_force_and_has_frames_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = folder.path().join("sheet.png");
    let framed = views(&sheet, &["--data", DATA, "--images", "2"]).succeeded();
    assert!(framed.out.contains("a frame has the colour of its part of the image"), "{}", framed.out);
    let first = picture(&sheet);
    let message = views(&sheet, &["--data", DATA, "--images", "2", "--no-frames"]).failed();
    assert!(message.contains("sheet.png: exists already") && message.contains("--force"), "{message}");
    assert_eq!(picture(&sheet), first);
    views(&sheet, &["--data", DATA, "--images", "2", "--no-frames", "--force"]).succeeded();
    let second = picture(&sheet);
    assert_eq!((first.height, first.width), (second.height, second.width));
    assert_ne!(first.pixels, second.pixels);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn a_sheet_that_cannot_be_drawn_or_written_is_an_error_that_names_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let message = views(&folder.path().join("sheet.jpg"), &["--data", DATA]).failed();
    assert!(message.contains("ends in .png"), "{message}");
    let message = views(&folder.path().join("no/such/sheet.png"), &["--data", DATA]).failed();
    assert!(message.contains("does not exist"), "{message}");
    let sheet = folder.path().join("sheet.png");
    let message = views(&sheet, &["--data", "no/such/folder"]).failed();
    assert!(message.contains("no/such/folder: no such"), "{message}");
    let message = views(&sheet, &["--data", DATA, "--set", "local_scal=0.1"]).failed();
    assert!(message.contains("did you mean `local_scale`"), "{message}");
    assert_eq!(views(&sheet, &["--data", DATA, "--images", "0"]).code, Some(2));
    assert!(!sheet.exists());
}

#[test]
fn unreadable_images_are_named_and_left_out_of_the_sheet() {
    let folder = tempfile::tempdir().unwrap();
    let (data, sheet) = (folder.path().join("photos"), folder.path().join("sheet.png"));
    (0..5).for_each(|i| write_bmp(&data.join(format!("{i}.bmp")), 40, i));
    fs::write(data.join("broken.jpg"), b"\xff\xd8\xff\xe0 cut off").unwrap();
    let arguments = ["--data", data.to_str().unwrap(), "--images", "20", "--patch-size", "8"];
    let ended = views(&sheet, &arguments).succeeded();
    assert_eq!(ended.err.matches("skipped broken.jpg: ").count(), 1, "{}", ended.err);
    assert!(ended.out.contains("\n5 images in the order of epoch 0"), "{}", ended.out);

    (0..5).for_each(|i| fs::write(data.join(format!("{i}.bmp")), "no image").unwrap());
    let message = views(&folder.path().join("other.png"), &arguments).failed();
    assert!(message.contains("none of the 6 images looked at"), "{message}");
}

#[test]
fn bench_data_prints_one_object() {
    let arguments =
        ["bench", "data", "--data", "synthetic:train=12,size=24", "--batch-size", "4", "--local-crops", "3"];
    let object = run(&[&arguments[..], &["--workers", "2", "--seconds", "0.1", "--json"]].concat()).json();
    for key in ["images_per_second", "views_per_second", "seconds", "worker_microseconds", "operations_microseconds"] {
        assert!(object[key].as_f64().is_some_and(|x| x.is_finite() && x > 0.0), "{key}: {object}");
    }
    for (key, value) in [("workers", 2), ("batch_size", 4), ("local_crops", 3), ("bad", 0), ("source_images", 12)] {
        assert_eq!(object[key], value, "{key}: {object}");
    }
    let images = object["images"].as_u64().unwrap();
    assert!(images >= 4 && images.is_multiple_of(4), "whole batches: {images}");
    let number = |key: &str| object[key].as_f64().unwrap();
    assert!((number("views_per_second") / number("images_per_second") - 5.0).abs() < 1e-9);
    assert!(object["peak_memory_bytes"].is_u64());
    assert!(object["resident_bytes"].as_array().is_some_and(|readings| !readings.is_empty()));
    let operations = object["operations"].as_array().unwrap();
    let names: Vec<&str> = operations.iter().map(|operation| operation["name"].as_str().unwrap()).collect();
    for name in ["read", "decode", "resize", "brightness", "contrast", "saturation", "hue", "grayscale", "blur"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let shares: f64 = operations.iter().map(|operation| operation["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");

    let table = run(&[&arguments[..], &["--workers", "1", "--seconds", "0.1"]].concat()).succeeded().out;
    assert!(table.contains("images/s") && table.contains("resize") && table.contains("1 worker"), "{table}");
}

#[test]
fn bench_data_counts_unreadable_images_and_refuses_data_without_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("photos");
    (0..7).for_each(|i| write_bmp(&data.join(format!("{i}.bmp")), 20, i));
    fs::write(data.join("broken.jpg"), b"\xff\xd8\xff\xe0 cut off").unwrap();
    let bench = |data: &str, batch: &str| {
        run(&[
            "bench",
            "data",
            "--data",
            data,
            "--batch-size",
            batch,
            "--local-crops",
            "0",
            "--seconds",
            "0.2",
            "--json",
        ])
    };
    let data = data.to_str().unwrap();
    assert_eq!(bench(data, "8").json()["bad"], 1);
    assert!(bench(data, "9").failed().contains("use a batch of at most 8"));
    assert!(bench("no/such/folder", "8").failed().contains("no/such/folder: no such"));
    (0..7).for_each(|i| fs::write(format!("{data}/{i}.bmp"), "no image").unwrap());
    assert!(bench(data, "8").failed().contains("cannot be read"));
    assert_eq!(run(&["bench", "data", "--data", data, "--seconds", "0"]).code, Some(2));
}

#[test]
fn a_sheet_needs_no_images_for_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let sheet = folder.path().join("sheet.png");
    let args = ["--data", "synthetic:train=5,size=16", "--batch-size", "64", "--out", sheet.to_str().unwrap()];
    run(&[&["views"][..], &args].concat()).succeeded();
    assert!(sheet.is_file());
    assert!(run(&[&["pretrain"][..], &args].concat()).failed().contains("batch_size 64 is larger than the data"));
}
