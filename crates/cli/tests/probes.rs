//! `eval linear` and `eval mixture`, from a network and from stored features.

mod common;

use std::path::Path;

use common::{run, small};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};

const DATA: &str = "synthetic:train=40,test=20,size=16";

/// A file of features of two values each, and labels where there are any.
fn write(path: &Path, values: &[f32], labels: Option<&[i64]>) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let numbers: Vec<u8> = labels.unwrap_or(&[]).iter().flat_map(|label| label.to_le_bytes()).collect();
    let mut tensors = vec![("features", TensorView::new(Dtype::F32, vec![values.len() / 2, 2], &bytes).unwrap())];
    if let Some(labels) = labels {
        tensors.push(("labels", TensorView::new(Dtype::I64, vec![labels.len()], &numbers).unwrap()));
    }
    serialize_to_file(tensors, None, path).unwrap();
}

/// Two directions, eight images each.
fn two_directions(path: &Path, labels: bool) {
    let values: Vec<f32> =
        (0..16).flat_map(|i| if i % 2 == 0 { [1.0, 0.01 * i as f32] } else { [0.02 * i as f32, 1.0] }).collect();
    let classes: Vec<i64> = (0..16).map(|i| i % 2).collect();
    write(path, &values, labels.then_some(&classes[..]));
}

#[test]
fn a_network_is_probed_on_random_views_and_on_stored_features() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (weights, train, test) = (path("run"), path("train.safetensors"), path("test.safetensors"));
    small(Path::new(&weights), &["--epochs", "1"]).succeeded();
    let probe = |more: &[&str]| {
        let common = ["eval", "linear", "--epochs", "3", "--rates", "0.01,0.1", "--step-images", "16", "--json"];
        run(&[&common[..], more].concat()).json()
    };
    let views = probe(&["--weights", &weights, "--data", DATA]);
    assert_eq!((&views["settings"]["views"], &views["evaluation"]["name"]), (&"random".into(), &"linear".into()));
    assert_eq!((views["train_images"].as_u64(), views["test_images"].as_u64()), (Some(40), Some(20)));
    assert_eq!((views["results"].as_array().unwrap().len(), views["epochs"].as_array().unwrap().len()), (2, 3));
    assert!(views["top5"].as_f64().unwrap() >= views["top1"].as_f64().unwrap());
    assert!(views["weights_digest"].is_string() && views["data_digest"]["train"].is_string());
    let fixed = probe(&["--weights", &weights, "--data", DATA, "--no-augment"]);
    assert_eq!(fixed["settings"]["views"], "fixed");
    assert_ne!(fixed["epochs"], views["epochs"], "views are not the images");
    for (split, out) in [("train", &train), ("test", &test)] {
        run(&["features", "--weights", &weights, "--data", DATA, "--split", split, "--out", out]).succeeded();
    }
    let stored = probe(&["--train", &train, "--test", &test]);
    for key in ["top1", "top5", "best_rate", "results", "epochs", "weights_digest"] {
        assert_eq!(stored[key], fixed[key], "{key}");
    }
    let threads = probe(&["--train", &train, "--test", &test, "--threads", "1"]);
    assert_eq!(threads["results"], stored["results"], "the same on one thread");
    // DINO's own features: class tokens of several blocks, or the class token with the mean of the patches.
    let deep = probe(&["--weights", &weights, "--data", DATA, "--layers", "2", "--tokens", "both"]);
    assert_eq!(deep["settings"]["features"]["layers"], "2");
    assert_ne!(deep["epochs"], views["epochs"]);
    let refused = run(&["eval", "linear", "--train", &train, "--test", &test, "--layers", "2"]).failed();
    assert!(refused.contains("stored features"), "{refused}");
    // Judged on what it has learnt, a probe would say nothing.
    assert!(run(&["eval", "linear", "--train", &train]).failed().contains("there are no test images"));
}

#[test]
fn a_linear_probe_separates_two_directions_and_says_so_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.safetensors");
    two_directions(&file, true);
    let name = file.to_str().unwrap();
    let args =
        ["eval", "linear", "--train", name, "--test", name, "--epochs", "20", "--rates", "10", "--step-images", "8"];
    let text = run(&args).succeeded().out;
    assert!(text.contains("16 training images, judged on 16 held-out images, stored features"), "{text}");
    assert!(text.contains("100.00"), "{text}");
    two_directions(&file, false);
    assert!(run(&args).failed().contains("16 of 16 training images have no label"));
}

#[test]
fn a_mixture_is_fitted_to_stored_features_with_and_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.safetensors");
    let name = file.to_str().unwrap();
    two_directions(&file, true);
    let fitted = run(&["eval", "mixture", "--train", name, "--test", name, "--json"]).json();
    let row = &fitted["results"][0];
    assert_eq!((row["components"].as_u64(), row["dimension"].as_u64()), (Some(2), Some(2)), "one for each class");
    assert_eq!((row["test"]["purity"].as_f64(), row["test"]["nmi"].as_f64()), (Some(1.0), Some(1.0)));
    assert_eq!(row["train"]["log_likelihood"], row["test"]["log_likelihood"]);
    assert_eq!(row["converged"], true);
    assert_eq!(fitted["results"].as_array().unwrap().len(), 1, "there is no head");
    let hard = run(&[
        "eval",
        "mixture",
        "--train",
        name,
        "--assignment",
        "hard",
        "--shared-kappa",
        "--components",
        "2",
        "--json",
    ]);
    let hard = hard.json();
    assert!(hard["results"][0]["test"].is_null());
    let kappa = &hard["results"][0]["kappa"];
    assert_eq!(kappa["smallest"], kappa["largest"]);
    two_directions(&file, false);
    assert!(run(&["eval", "mixture", "--train", name]).failed().contains("--components K"));
    let text = run(&["eval", "mixture", "--train", name, "--components", "2"]).succeeded().out;
    assert!(text.contains("movMF") && text.contains('-'), "{text}");
    assert!(
        run(&["eval", "mixture", "--train", name, "--components", "99"])
            .failed()
            .contains("99 components for 16 points")
    );
}

#[test]
fn the_prototypes_of_a_run_stand_beside_the_mixture() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("run");
    small(&weights, &["--epochs", "1"]).succeeded();
    let weights = weights.to_str().unwrap();
    let args =
        ["eval", "mixture", "--weights", weights, "--data", DATA, "--components", "3", "--starts", "2", "--json"];
    let fitted = run(&args).json();
    let rows = fitted["results"].as_array().unwrap();
    let named = |i: usize| (rows[i]["sphere"].as_str().unwrap(), rows[i]["mixture"].as_str().unwrap());
    let all: Vec<(&str, &str)> = (0..rows.len()).map(named).collect();
    let head = [("head", "movMF"), ("head", "prototypes"), ("head", "prototypes, weights fitted")];
    assert_eq!(all, [&[("features", "movMF")], &head[..]].concat());
    let likelihood = |i: usize, set: &str| rows[i][set]["log_likelihood"].as_f64().unwrap();
    assert!(likelihood(3, "train") >= likelihood(2, "train"), "an EM step on the weights never makes it fall");
    assert_eq!(rows[1]["dimension"], rows[2]["dimension"]);
    assert!(rows[2]["components"].as_u64().unwrap() > 3);
    // Away from its run, nothing says how prototypes were used.
    let backbone = folder.path().join("run").join("backbone.safetensors");
    let alone = run(&["eval", "mixture", "--weights", backbone.to_str().unwrap(), "--data", DATA, "--components", "2"]);
    assert!(alone.err.contains("no prototypes beside it"), "{}", alone.err);
}
