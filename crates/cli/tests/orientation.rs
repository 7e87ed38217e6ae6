//! Photographs that a camera stored lying: turned upright by default, in training and in what follows it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Finished, program, run};

/// A folder of 24 photographs in all orientations.
fn photographs(folder: &Path) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/fixtures/orientation");
    let photos = folder.join("photos");
    fs::create_dir_all(&photos).unwrap();
    for number in 1..=8 {
        for name in [format!("{number}.jpg"), format!("{number}.png"), format!("{number}.webp")] {
            fs::copy(fixtures.join(&name), photos.join(&name)).unwrap();
        }
    }
    photos.display().to_string()
}

fn pretrain(data: &str, out: &Path, more: &[&str]) -> Finished {
    let sizes =
        ["--arch", "vit_nano", "--patch-size", "4", "--batch-size", "8", "--local-crops", "0", "--out-dim", "32"];
    let sets = ["--set", "head_hidden=32", "--set", "head_bottleneck=16", "--set", "checkpoint_minutes=0"];
    let mut command = program();
    command.args(["pretrain", "--data", data, "--epochs", "2", "--device=cpu"]).args(sizes).args(sets);
    Finished::of(command.args(["--set", "keep_checkpoints=9"]).args(more).arg("--out").arg(out).output().unwrap())
}

#[test]
fn a_run_says_how_many_images_it_turned_and_features_follow_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = photographs(folder.path());
    let at = |name: &str| folder.path().join(name);
    let said = pretrain(&data, &at("upright"), &[]).succeeded().err;
    assert!(said.contains("\n21 images were turned upright"), "{said}");
    let said = pretrain(&data, &at("stored"), &["--orientation", "as-stored"]).succeeded().err;
    assert!(!said.contains("turned upright"), "{said}");
    let features = |weights: PathBuf, more: &[&str]| {
        let out = at("f.npy");
        let mut command = program();
        command.args(["features", "--force", "--device=cpu", "--data", &data, "--weights"]).arg(weights);
        let finished = Finished::of(command.arg("--out").arg(&out).args(more).output().unwrap()).succeeded();
        (finished.err.contains("21 images were turned upright"), fs::read(out).unwrap())
    };
    for run in ["upright", "stored"] {
        let upright = features(at(run), &["--orientation", "upright"]);
        let stored = features(at(run), &["--orientation", "as-stored"]);
        assert!(upright.0 && !stored.0 && upright.1 != stored.1);
        let expected = if run == "upright" { &upright } else { &stored };
        assert_eq!(&features(at(run), &[]), expected, "the folder of {run}");
        assert_eq!(&features(at(run).join("backbone.safetensors"), &[]), expected, "the backbone of {run}");
    }
    let refused = run(&["features", "--weights", "w", "--data", "d", "--out", "o.npy", "--orientation", "sideways"]);
    assert!(refused.code == Some(2) && refused.err.contains("upright, as-stored"), "{refused:?}");
}

#[test]
fn a_run_from_before_images_were_turned_is_read_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let data = photographs(folder.path());
    let (unbroken, old) = (folder.path().join("unbroken"), folder.path().join("old"));
    for out in [&unbroken, &old] {
        pretrain(&data, out, &["--orientation", "as-stored"]).succeeded();
    }
    // What a program that knew nothing of orientation left.
    let config = old.join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("orientation")).collect();
    assert_eq!(without.len() + 1, text.lines().count());
    fs::write(&config, without.join("\n") + "\n").unwrap();
    let refused = pretrain(&data, &old, &["--orientation", "upright"]).failed();
    assert!(refused.contains("orientation"), "{refused}");
    let features = |of: &Path, name: &str| {
        let out = folder.path().join(name);
        let args = ["features", "--device=cpu", "--weights", of.to_str().unwrap(), "--data", &data];
        run(&[&args[..], &["--out", out.to_str().unwrap()]].concat()).succeeded();
        fs::read(out).unwrap()
    };
    assert!(features(&old, "old.npy") == features(&unbroken, "unbroken.npy"), "the same bits");
}

#[test]
fn loading_is_timed_for_the_orientation_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let data = photographs(folder.path());
    let bench = |more: &[&str]| {
        let line = ["bench", "data", "--data", &data, "--seconds", "0.1", "--batch-size", "24", "--local-crops", "0"];
        run(&[&line[..], &["--global-size", "16", "--json"], more].concat()).json()
    };
    let (upright, stored) = (bench(&[]), bench(&["--orientation", "as-stored"]));
    assert_eq!((&upright["orientation"], &upright["turned"]), (&"upright".into(), &21.into()));
    assert_eq!((&stored["orientation"], &stored["turned"]), (&"as stored".into(), &0.into()));
}
