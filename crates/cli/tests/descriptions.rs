//! What weights and features say of the network they hold or come from, and that it is believed.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{run, small, write_bmp};
use safetensors::SafeTensors;
use tempfile::TempDir;

/// A finished run on images that are higher than wide, and its folder.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1", "--global-size", "16x8", "--local-size", "8"]).succeeded();
    (folder, run)
});

const DATA: &str = "synthetic:train=24,test=12,size=16";

fn metadata(path: &Path) -> HashMap<String, String> {
    let bytes = fs::read(path).unwrap();
    SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap()
}

/// The same tensors with other metadata.
fn rewritten(path: &Path, to: &Path, change: impl Fn(&mut HashMap<String, String>)) {
    let bytes = fs::read(path).unwrap();
    let mut said = metadata(path);
    change(&mut said);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    fs::write(to, safetensors::serialize(tensors.tensors(), Some(said)).unwrap()).unwrap();
}

fn features(weights: &Path, out: &Path, more: &[&str]) -> common::Finished {
    let usual = ["features", "--weights", weights.to_str().unwrap(), "--data", DATA, "--out", out.to_str().unwrap()];
    run(&[&usual[..], more].concat())
}

#[test]
fn a_backbone_says_what_it_is_and_inspect_shows_it() {
    let backbone = RUN.1.join("backbone.safetensors");
    let said = metadata(&backbone);
    for (key, value) in [
        ("architecture", "vit_nano"),
        ("width", "64"),
        ("depth", "4"),
        ("heads", "1"),
        ("patch_size", "8"),
        ("image_size", "16x8"),
        ("channels", "3"),
        ("mean", "[0.485,0.456,0.406]"),
        ("std", "[0.229,0.224,0.225]"),
        ("method", "dino"),
        ("program_version", concat!("dino-vmf ", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{key}");
    }
    let text = run(&["inspect", backbone.to_str().unwrap()]).succeeded().out;
    assert!(text.contains("heads: 1") && text.contains("images of 16x8 with 3 channels"), "{text}");
    assert!(text.contains("VisionTransformer(img_size=(16, 8), patch_size=8, in_chans=3"), "{text}");
    let checkpoint = common::checkpoint(&RUN.1, 3);
    let text = run(&["inspect", checkpoint.to_str().unwrap()]).succeeded().out;
    assert!(text.contains("heads: 1") && text.contains("images of 16x8 with 3 channels"), "{text}");
}

#[test]
fn two_runs_of_the_same_command_write_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = ["a", "b"].map(|name| {
        let out = folder.path().join(name);
        small(&out, &["--epochs", "1"]).succeeded();
        let written = folder.path().join(format!("{name}.safetensors"));
        features(&out, &written, &[]).succeeded();
        // A checkpoint names its run, so two runs' differ.
        let files = [out.join("backbone.safetensors"), out.join("result.json"), written];
        files.map(|file| fs::read(file).unwrap())
    });
    assert!(bytes[0] == bytes[1]);
}

#[test]
fn a_checkpoint_away_from_its_run_is_read_as_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.safetensors");
    fs::copy(common::checkpoint(&RUN.1, 3), &copy).unwrap();
    let (there, here) = (folder.path().join("there.npy"), folder.path().join("here.npy"));
    features(&RUN.1, &there, &[]).succeeded();
    features(&copy, &here, &[]).succeeded();
    assert!(fs::read(there).unwrap() == fs::read(here).unwrap());

    let mut bytes = fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&copy, bytes).unwrap();
    let message = features(&copy, &folder.path().join("damaged.npy"), &[]).failed();
    assert!(message.contains("its checksum is"), "{message}");
}

#[test]
fn a_network_of_no_usual_size_is_not_run_with_guessed_heads() {
    let folder = tempfile::tempdir().unwrap();
    let (bare, out) = (folder.path().join("bare.safetensors"), folder.path().join("f.npy"));
    rewritten(&RUN.1.join("backbone.safetensors"), &bare, |said| said.clear());
    let message = features(&bare, &out, &["--image-size", "16x8"]).failed();
    assert!(message.contains("width of 64 and a depth of 4") && message.contains("--attention-heads N"), "{message}");
    assert!(!out.exists());
    // The size asked for is also that of the positions, where nothing else says which grid they are.
    features(&bare, &out, &["--image-size", "16x8", "--heads", "1"]).succeeded();
    let two = folder.path().join("two.npy");
    features(&bare, &two, &["--trained-size", "16x8", "--attention-heads", "2"]).succeeded();
    assert!(fs::read(&out).unwrap() != fs::read(&two).unwrap(), "the number of heads matters");
    let message = features(&RUN.1, &folder.path().join("x.npy"), &["--heads", "2"]).failed();
    assert!(message.contains("has 1 attention heads, not the 2"), "{message}");
}

#[test]
fn another_normalisation_is_used_and_a_broken_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = RUN.1.join("backbone.safetensors");
    let file = |name: &str| folder.path().join(name);
    features(&backbone, &file("usual.npy"), &[]).succeeded();
    rewritten(&backbone, &file("half.safetensors"), |said| {
        said.insert("mean".to_owned(), "[0.5, 0.5, 0.5]".to_owned());
        said.insert("std".to_owned(), "[0.5, 0.5, 0.5]".to_owned());
    });
    features(&file("half.safetensors"), &file("half.npy"), &[]).succeeded();
    assert!(fs::read(file("usual.npy")).unwrap() != fs::read(file("half.npy")).unwrap());
    for (key, value) in [("mean", "[0.5]"), ("std", "[0, 1, 1]"), ("image_size", "big"), ("image_part", "left")] {
        rewritten(&backbone, &file("broken.safetensors"), |said| _ = said.insert(key.to_owned(), value.to_owned()));
        let message = features(&file("broken.safetensors"), &file("broken.npy"), &[]).failed();
        assert!(message.contains(&format!("`{key}` is `{value}`")), "{message}");
        assert!(!file("broken.npy").exists());
    }
}

#[test]
fn features_say_which_network_made_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("f.safetensors");
    features(&RUN.1, &out, &["--image-size", "24x16"]).succeeded();
    let said = metadata(&out);
    for (key, value) in [
        ("architecture", "vit_nano"),
        ("heads", "1"),
        ("image_size", "24x16"),
        ("method", "dino"),
        ("precision", "f32"),
    ] {
        assert_eq!(said.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(said["weights_hash"].len(), 16);
    let other = folder.path().join("other");
    small(&other, &["--epochs", "2", "--global-size", "16x8", "--local-size", "8"]).succeeded();
    let later = folder.path().join("later.safetensors");
    features(&other, &later, &[]).succeeded();
    assert_ne!(metadata(&later)["weights_hash"], said["weights_hash"], "other weights, another hash");
}

#[test]
fn the_defaults_adapt_to_few_images_and_what_was_asked_for_does_not() {
    let folder = tempfile::tempdir().unwrap();
    (0..20).for_each(|i| write_bmp(&folder.path().join(format!("class {}/{i}.bmp", i % 2)), 16, i));
    let (weights, few) = (RUN.1.to_str().unwrap(), folder.path().to_str().unwrap());
    let ended = run(&["eval", "knn", "--weights", weights, "--data", few, "--json"]);
    assert!(ended.err.contains("k: 10,19, as many neighbours as there are"), "{}", ended.err);
    assert_eq!(ended.json()["results"][1]["k"], 19);
    let message = run(&["eval", "knn", "--weights", weights, "--data", DATA, "--k", "25"]).failed();
    assert!(message.contains("k = 25: expected 1 to 24"), "{message}");

    let bench = |more: &[&str]| {
        let usual =
            ["bench", "data", "--data", "synthetic:train=9,size=16", "--global-size", "16", "--local-size", "8"];
        run(&[&usual[..], &["--local-crops", "1", "--seconds", "0.1", "--workers", "1", "--json"], more].concat())
    };
    assert_eq!(bench(&[]).json()["batch_size"], 9);
    assert!(bench(&["--batch-size", "10"]).failed().contains("10"));
}

#[test]
fn settings_that_were_changed_since_are_noticed_and_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    small(&out, &["--epochs", "1", "--global-size", "16x8", "--local-size", "8"]).succeeded();
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    // As many patches: no tensor has another shape.
    fs::write(out.join("config.toml"), config.replace("\"16x8\"", "\"8x16\"")).unwrap();
    let message = features(&out, &folder.path().join("f.npy"), &[]).failed();
    assert!(message.contains("trained with image_size 16x8") && message.contains("8x16"), "{message}");
}

#[test]
fn features_given_as_weights_are_called_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("f.safetensors");
    features(&RUN.1, &out, &[]).succeeded();
    let message = features(&out, &folder.path().join("g.npy"), &[]).failed();
    assert!(message.contains("holds features, not a network"), "{message}");
}
