//! `eval fewshot` and `eval transfer` from end to end.

mod common;

use std::fs;
use std::path::Path;

use common::{run, small};

const DATA: &str = "synthetic:train=120,test=60,size=16";

/// A small network, and features of its training and test images.
fn features(folder: &Path) -> [String; 3] {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (weights, train, test) = (path("run"), path("train.safetensors"), path("test.safetensors"));
    small(Path::new(&weights), &["--epochs", "1"]).succeeded();
    for (split, out) in [("train", &train), ("test", &test)] {
        run(&["features", "--weights", &weights, "--data", DATA, "--split", split, "--out", out]).succeeded();
    }
    [weights, train, test]
}

#[test]
fn transfer_chooses_a_strength_and_says_with_what() {
    let folder = tempfile::tempdir().unwrap();
    let [weights, train, test] = features(folder.path());
    let of_images = run(&["eval", "transfer", "--weights", &weights, "--data", DATA, "--json"]).json();
    let of_files = run(&["eval", "transfer", "--train", &train, "--test", &test, "--json"]).json();
    for key in ["top1", "mean_per_class", "best_strength", "evaluation", "settings", "validation", "test_images"] {
        assert_eq!(of_images[key], of_files[key], "{key}");
        assert!(!of_files[key].is_null(), "{key}");
    }
    assert_eq!(of_files["evaluation"]["name"], "transfer");
    assert_eq!((of_files["fits"].as_u64(), of_files["validation"].as_array().unwrap().len()), (Some(226), 45));
    assert_eq!(of_files["accuracy"], of_files["top1"]);
    let held_out = ["eval", "transfer", "--train", &train, "--test", &test, "--select", "holdout"];
    let with = |more: &[&str]| run(&[&held_out[..], more].concat());
    let validated = with(&["--validation", &test, "--metric", "mean-per-class", "--json"]).json();
    assert_eq!((validated["fits"].as_u64(), validated["fitted_images"].as_u64()), (Some(46), Some(180)));
    assert_eq!(validated["accuracy"], validated["mean_per_class"]);
    let text = with(&["--strengths", "1,0.1"]).succeeded().out;
    assert!(text.contains("of 2 by a fifth of the training images") && text.contains("mean per class"), "{text}");
    let pets = with(&["--dataset", "pets", "--strengths", "1", "--json"]).json();
    assert_eq!(pets["settings"]["metric"], "mean_per_class", "the data set decides, also for stored features");
}

#[test]
fn transfer_refuses_what_it_cannot_judge() {
    let folder = tempfile::tempdir().unwrap();
    let [weights, train, _] = features(folder.path());
    assert!(run(&["eval", "transfer", "--train", &train]).failed().contains("there are no test images"));
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let data = empty.to_str().unwrap();
    let error = run(&["eval", "transfer", "--weights", &weights, "--data", data, "--dataset", "dtd"]).failed();
    assert!(error.contains("is not laid out as this data set is downloaded"), "{error}");
    let unknown = run(&["eval", "transfer", "--weights", &weights, "--data", data, "--dataset", "cars"]);
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn fewshot_judges_draws_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let [weights, train, test] = features(folder.path());
    let judge = |more: &[&str]| {
        let of_weights = ["eval", "fewshot", "--weights", &weights, "--data", DATA, "--json"];
        run(&[&of_weights[..], more].concat()).json()
    };
    let (plain, of_images) = (judge(&[]), judge(&["--norm", "after"]));
    assert_eq!((&plain["settings"]["norm"], &of_images["settings"]["norm"]), (&"before".into(), &"after".into()));
    // The norm of an untrained network centres and scales a row, as the protocol does anyway.
    assert_eq!(plain["results"], of_images["results"]);
    let of_files = run(&["eval", "fewshot", "--train", &train, "--test", &test, "--json"]).json();
    for key in ["top1", "results", "evaluation", "test_images"] {
        assert_eq!(of_images[key], of_files[key], "{key}");
        assert!(!of_files[key].is_null(), "{key}");
    }
    let rows = of_files["results"].as_array().unwrap();
    let shots: Vec<_> =
        rows.iter().map(|row| (row["shots"].as_u64(), row["splits"].as_array().unwrap().len())).collect();
    assert_eq!(shots, [(Some(1), 3), (Some(2), 3), (Some(5), 3)]);
    let other = run(&["eval", "fewshot", "--train", &train, "--test", &test, "--seed", "1", "--json"]).json();
    assert_ne!(of_files["results"], other["results"]);

    let lists = folder.path().join("lists/imagenet_subsets1");
    fs::create_dir_all(&lists).unwrap();
    // Classes of `synthetic` go round: one image of each of the ten, and more.
    let names: String = (0..40).map(|i| format!("synthetic #{i}\n")).collect();
    fs::write(lists.join("1imgs_class.txt"), &names).unwrap();
    let root = folder.path().join("lists");
    let listed = || run(&["eval", "fewshot", "--train", &train, "--test", &test, "--lists", root.to_str().unwrap()]);
    assert!(listed().succeeded().out.contains("1 per class"));
    fs::write(lists.join("1imgs_class.txt"), names + "synthetic #999\n").unwrap();
    let error = listed().failed();
    assert!(error.contains("names 1 image that the training images do not have, the first: synthetic #999"), "{error}");
}
