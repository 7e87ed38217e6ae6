//! `eval all`: what the single commands give, computed once, stored and shown on one page.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Finished, run, small, write_bmp};
use serde_json::Value;

const DATA: &str = "synthetic:train=100,test=30,size=16";

/// A small run with von Mises-Fisher prototypes.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    small(&path, &["--prototypes", "vmf", "--centering", "probability", "--epochs", "1"]).succeeded();
    (folder, path)
});

fn weights() -> &'static str {
    RUN.1.to_str().unwrap()
}

fn all(data: &str, out: &Path, more: &[&str]) -> Finished {
    let words = ["eval", "all", "--weights", weights(), "--device=cpu", "--data", data, "--out", out.to_str().unwrap()];
    run(&[&words, more].concat())
}

fn results(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

/// A result without what a clock decides.
fn timeless(mut result: Value) -> Value {
    result.as_object_mut().unwrap().remove("seconds");
    result
}

#[test]
fn results_are_those_of_the_single_commands_and_are_computed_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let first = all(DATA, &out, &["--epochs=3"]).succeeded();
    let found = results(&out);
    for (protocol, more) in [
        ("knn", &[][..]),
        ("linear", &["--no-augment", "--epochs=3"]),
        ("fewshot", &[]),
        ("transfer", &[]),
        ("mixture", &[]),
        ("prototypes", &[]),
        ("precision", &[]),
        ("certainty", &[]),
    ] {
        let words = ["eval", protocol, "--weights", weights(), "--data", DATA, "--device=cpu", "--json"];
        let alone = run(&[&words, more].concat()).json();
        assert_eq!(timeless(found["results"][protocol].clone()), timeless(alone), "{protocol}");
    }
    assert_eq!(found["results"]["attention"]["images"].as_array().unwrap().len(), 6);
    assert_eq!(found["results"].as_object().unwrap().len(), 9);
    for (name, why) in [("copies", "no --copydays"), ("video", "no --davis"), ("retrieval-oxford", "no --oxford")] {
        assert!(found["skipped"][name].as_str().unwrap().starts_with(why), "{name}");
        assert!(first.out.contains(&format!("left out: {why}")), "{}", first.out);
    }
    // One pass over the training images and one over the held-out ones for all protocols, and the network is loaded once.
    assert_eq!(first.err.matches("weights: ").count(), 1, "{}", first.err);
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("dino-vmf eval knn --weights=") && !page.contains("<script"));
    // Unique prototypes, the largest set, kappa; and accuracies by precision.
    assert_eq!(page.matches("<svg class=\"chart\"").count(), 4);
    // Of each image itself, the mean over heads and the heads; maps have a pixel for each patch.
    let maps = page.matches("<img src=\"data:image/png;base64,").count();
    assert!(
        maps >= 6 && maps.is_multiple_of(6) && page.matches("<img src=\"data:image/jpeg;base64,").count() == 6,
        "{maps}"
    );
    // Figures take the file as it is.
    let (stored, figure) = (out.join("results.json"), folder.path().join("precision.svg"));
    let draw = |file: &Path| run(&["figure", "precision", file.to_str().unwrap(), "--out", figure.to_str().unwrap()]);
    draw(&stored).succeeded();
    assert!(fs::read_to_string(figure.with_extension("csv")).unwrap().contains("results"), "named by its folder");
    let without = folder.path().join("without.json");
    fs::write(&without, r#"{"format": "dino-vmf evaluation", "results": {}, "skipped": {"precision": "no head"}}"#)
        .unwrap();
    fs::remove_file(&figure).unwrap();
    let refused = draw(&without).failed();
    assert!(refused.contains("no result of `eval precision --json`: no head"), "{refused}");
    let picture = found["results"]["attention"]["images"][0][1].as_str().unwrap();
    assert!(picture.ends_with("-mean.png") && out.join("attention").join(picture).is_file(), "{picture}");

    let again = all(DATA, &out, &["--epochs=3"]).succeeded();
    assert_eq!(again.err.matches("stored already, and not computed again").count(), 9, "{}", again.err);
    assert_eq!(results(&out), found, "to the seconds that each took");
    assert_eq!(again.out, first.out);

    // One setting changed: one protocol is computed again, and what is not asked for stays.
    let other = all(DATA, &out, &["--epochs=3", "--k=3", "--only=knn,linear", "--json"]);
    assert_eq!(other.err.matches("stored already").count(), 1, "{}", other.err);
    let other = other.json();
    assert_eq!(other["results"]["knn"]["settings"]["k"], serde_json::json!([3]));
    assert_eq!(other["results"]["transfer"], found["results"]["transfer"]);
}

#[test]
fn images_of_another_kind_are_those_of_certainty() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    let other = |seed: u32| format!("--other=synthetic:train=20,test=10,size=16,seed={seed}");
    let judge = |other: &str| all(DATA, &out, &["--only=certainty,knn", other]).succeeded();
    judge(&other(3));
    let words = ["eval", "certainty", "--weights", weights(), "--data", DATA, "--device=cpu", "--json"];
    let alone = run(&[&words[..], &[&other(3)]].concat()).json();
    assert_eq!(timeless(results(&out)["results"]["certainty"].clone()), timeless(alone.clone()));
    assert!(alone["scores"]["entropy"]["auroc"].is_f64());
    assert_eq!(judge(&other(3)).err.matches("stored already").count(), 2);
    // Others are another question to certainty, and none to knn.
    assert_eq!(judge(&other(4)).err.matches("stored already").count(), 1);
    assert_ne!(timeless(results(&out)["results"]["certainty"].clone()), timeless(alone));
    assert!(all(DATA, &out, &["--only=knn", "--other=no/such/folder"]).failed().contains("no/such/folder"));
}

#[test]
fn what_was_found_of_a_head_outlives_the_checkpoint_that_held_it() {
    let folder = tempfile::tempdir().unwrap();
    let (trained, out) = (folder.path().join("run"), folder.path().join("results"));
    common::small(&trained, &["--epochs", "1"]).succeeded();
    let judge = || {
        let words =
            ["eval", "all", "--device=cpu", "--only=knn,prototypes", "--data", "synthetic:train=24,test=12,size=16"];
        run(&[&words[..], &["--weights", trained.to_str().unwrap(), "--out", out.to_str().unwrap()]].concat())
            .succeeded()
    };
    judge();
    let before = results(&out);
    assert!(before["backbone"].is_string(), "the backbone is named");
    fs::remove_dir_all(trained.join("checkpoints")).unwrap();
    let again = judge();
    assert!(
        again.err.contains("knn (1 of 2): stored already") && again.err.contains("kept from before"),
        "{}",
        again.err
    );
    assert_eq!(results(&out)["results"], before["results"]);
}

#[test]
fn what_the_data_does_not_allow_is_left_out_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, out) = (folder.path().join("photos"), folder.path().join("results"));
    for i in 0..4 {
        write_bmp(&photos.join(format!("{i}.bmp")), 16, i);
    }
    all(photos.to_str().unwrap(), &out, &[]).succeeded();
    let found = results(&out);
    let names: Vec<&String> = found["results"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["attention", "prototypes"]);
    for name in ["knn", "linear", "fewshot", "transfer", "mixture", "precision", "certainty"] {
        assert!(found["skipped"][name].as_str().unwrap().contains("label"), "{}", found["skipped"][name]);
    }
    // Classes, and nothing held out.
    let (classes, out) = (folder.path().join("classes"), folder.path().join("of classes"));
    for i in 0..6 {
        write_bmp(&classes.join(format!("{}/{i}.bmp", ["cat", "dog"][i % 2])), 16, i);
    }
    let skip = "--skip=mixture,attention,prototypes,precision,certainty";
    all(classes.to_str().unwrap(), &out, &["--k=3", skip]).succeeded();
    let found = results(&out);
    assert_eq!(found["results"].as_object().unwrap().len(), 1);
    assert_eq!(found["results"]["knn"]["protocol"], "leave-one-out");
    for name in ["linear", "fewshot", "transfer"] {
        assert_eq!(found["skipped"][name], "no images are held out");
    }
    // Whatever needs the features of the images, each of them is seen once.
    fs::write(classes.join("cat/broken.bmp"), "no image").unwrap();
    let only = "--only=knn,mixture,prototypes,precision,certainty";
    let said = all(classes.to_str().unwrap(), &folder.path().join("once"), &["--k=3", only]).succeeded().err;
    assert_eq!(said.matches("skipped cat/broken.bmp").count(), 1, "{said}");
    // A backbone alone has no prototypes to look at.
    let backbone = RUN.1.join("backbone.safetensors");
    let out = folder.path().join("backbone");
    let words =
        ["eval", "all", "--device=cpu", "--data", DATA, "--only=knn,precision,certainty,prototypes", "--weights"];
    run(&[&words[..], &[backbone.to_str().unwrap(), "--out", out.to_str().unwrap()]].concat()).succeeded();
    let found = results(&out);
    assert!(found["results"]["knn"].is_object());
    for name in ["precision", "certainty", "prototypes"] {
        assert!(found["skipped"][name].as_str().unwrap().contains("no projection head"), "{found}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("results");
    assert_eq!(all(DATA, &out, &["--only=knn,nothing"]).code, Some(2));
    assert!(all("no/such/folder", &out, &[]).failed().contains("no/such/folder"));
    let elsewhere = all(DATA, &out, &["--only=retrieval,video"]).failed();
    assert!(elsewhere.contains("retrieval-oxford: no --oxford FOLDER was given; retrieval-paris"), "{elsewhere}");
    // More neighbours than there are, which the protocol alone refuses, too.
    let alone = run(&["eval", "knn", "--weights", weights(), "--device=cpu", "--data", DATA, "--k=5,101"]).failed();
    assert_eq!(all(DATA, &out, &["--k=5,101"]).failed(), alone);
    assert!(!out.exists());
    all(DATA, &folder.path().join("without"), &["--k=5,101", "--only=prototypes"]).succeeded();
    all(DATA, &out, &["--only=knn"]).succeeded();
    let other = "synthetic:train=50,test=20,size=16";
    let refused = all(other, &out, &["--only=knn"]).failed();
    assert!(refused.contains("it holds results of other data") && refused.contains("--force"), "{refused}");
    let before = results(&out);
    assert_ne!(timeless(all(other, &out, &["--only=knn", "--force", "--json"]).json()), before);
    fs::write(out.join("results.json"), "{}").unwrap();
    assert!(all(DATA, &out, &["--force"]).failed().contains("it is no file of results of this command"));
    let inside = RUN.1.join("results");
    assert!(all(DATA, &inside, &[]).failed().contains("lies in the run"));
}

#[test]
fn a_benchmark_is_known_by_its_layout() {
    let folder = tempfile::tempdir().unwrap();
    let (copydays, out) = (folder.path().join("copydays"), folder.path().join("results"));
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/features/images");
    for (name, picture) in
        [("original/200000", "discs"), ("original/200100", "rings_square"), ("strong/200101", "discs")]
    {
        let to = copydays.join(format!("{name}.jpg"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(pictures.join(format!("{picture}.jpg")), to).unwrap();
    }
    all(copydays.to_str().unwrap(), &out, &[]).succeeded();
    let found = results(&out);
    let names: Vec<&String> = found["results"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["copies", "prototypes"]);
    let data = copydays.to_str().unwrap();
    let alone = run(&["eval", "copies", "--weights", weights(), "--device=cpu", "--data", data, "--json"]).json();
    assert_eq!(found["results"]["copies"], alone);
    assert!(found["skipped"]["knn"].as_str().unwrap().contains("has no classes"));
    // A benchmark whose files are damaged fails, and says so with its exit status; the others are there.
    fs::write(copydays.join("strong/200101.jpg"), "no image").unwrap();
    let ended = all(data, &out, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("copies") && ended.out.contains("it failed: "), "{}", ended.out);
    assert!(results(&out)["results"]["prototypes"].is_object());
}
