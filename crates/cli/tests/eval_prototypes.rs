//! `eval prototypes` and `eval precision`, from a trained run to the last number.

mod common;

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use common::{program, run, small};
use serde_json::Value;

const DATA: &str = "synthetic:train=24,test=12,size=16";

/// A small run with von Mises-Fisher prototypes.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    small(&path, &["--prototypes", "vmf", "--centering", "probability", "--epochs", "2"]).succeeded();
    (folder, path)
});

fn weights() -> &'static str {
    RUN.1.to_str().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn prototypes_of_a_run_are_counted() {
    let arguments = ["eval", "prototypes", "--weights", weights(), "--thresholds", "0.99,0.5,0.9,0.9", "--json"];
    let alone = run(&arguments).json();
    assert_eq!((&alone["prototypes"], &alone["dimension"]), (&32.into(), &16.into()));
    assert_eq!(alone["settings"]["prototypes"], "vmf");
    assert!(alone["used"].is_null() && alone["void"].is_null());
    for (unique, largest) in [("unique", "largest"), ("components", "largest_component")] {
        let (mut last, thresholds) = (0.0, ["0.5", "0.9", "0.99"]);
        assert_eq!(alone[unique].as_object().unwrap().len(), 3);
        for threshold in thresholds {
            let (count, most) = (number(&alone[unique][threshold]), number(&alone[largest][threshold]));
            assert!(count >= last && (1.0..=32.0).contains(&count) && most <= 32.0 - count + 1.0, "{alone}");
            last = count;
        }
    }
    let quantiles = alone["kappa"]["quantiles"].as_object().unwrap();
    assert!(
        number(&quantiles["0"]) <= number(&quantiles["0.5"]) && number(&quantiles["0.5"]) <= number(&quantiles["1"])
    );
    let bins = alone["kappa"]["histogram"].as_array().unwrap();
    assert_eq!(bins.iter().map(|bin| number(&bin["prototypes"])).sum::<f64>(), 32.0);

    let with_data = run(&[&arguments[..], &["--data", DATA, "--split", "all", "--threads", "2"]].concat()).json();
    for key in ["unique", "largest", "components", "kappa"] {
        assert_eq!(with_data[key], alone[key]);
    }
    assert_eq!(with_data["images"], 36);
    let (used, perplexity) = (number(&with_data["used"]), number(&with_data["perplexity"]));
    assert!((1.0..=32.0).contains(&used) && perplexity >= 1.0 && perplexity <= used + 1e-9, "{with_data}");
    assert_eq!(with_data["void"]["members"], with_data["largest"]["0.5"], "of the lowest threshold");
    assert!(number(&with_data["void"]["cosine_with_mean"]).abs() <= 1.0);
    assert!(with_data["weights_digest"].is_string() && with_data["data_digest"]["data"].is_string());
    let one_thread = run(&[&arguments[..], &["--data", DATA, "--split", "all", "--threads", "1"]].concat()).json();
    assert_eq!(one_thread, with_data);

    let told = run(&["eval", "prototypes", "--weights", weights(), "--data", DATA]).succeeded().out;
    for words in
        ["32 prototypes in 16 dimensions (prototypes vmf", "largest set", "kappa = |w| / tau", "24 images chose"]
    {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn a_checkpoint_says_the_same_as_its_run_and_a_backbone_is_refused() {
    let of = |weights: &str| run(&["eval", "prototypes", "--weights", weights, "--json"]).json();
    let checkpoint = format!("{}/checkpoints/step-00000006.safetensors", weights());
    let (run_says, checkpoint_says) = (of(weights()), of(&checkpoint));
    for key in ["unique", "kappa", "settings", "weights_digest"] {
        assert_eq!(run_says[key], checkpoint_says[key], "{key}");
    }
    // Away from its run nothing says how prototypes were used.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone.safetensors");
    fs::copy(&checkpoint, &alone).unwrap();
    let alone = alone.to_str().unwrap();
    let told = run(&["eval", "prototypes", "--weights", alone]).succeeded();
    assert!(told.err.contains("taking prototypes none, tau 0.07"), "{}", told.err);
    let tau = run_says["settings"]["tau"].to_string();
    let asked = ["eval", "prototypes", "--weights", alone, "--prototypes", "vmf", "--tau", &tau, "--json"];
    assert_eq!(run(&asked).json()["kappa"], run_says["kappa"]);
    let backbone = format!("{}/backbone.safetensors", weights());
    let error = run(&["eval", "prototypes", "--weights", &backbone]).failed();
    assert!(error.contains("holds a backbone and no projection head"), "{error}");
}

#[test]
fn accuracy_by_precision_adds_up_to_that_of_knn() {
    let arguments = ["eval", "precision", "--weights", weights(), "--data", DATA, "--k", "5", "--bins", "4", "--json"];
    let found = run(&arguments).json();
    let knn = run(&["eval", "knn", "--weights", weights(), "--data", DATA, "--k", "5", "--json"]).json();
    let bins = found["bins"].as_array().unwrap();
    assert_eq!(bins.iter().map(|bin| number(&bin["images"])).collect::<Vec<_>>(), [3.0; 4]);
    let mean = bins.iter().map(|bin| number(&bin["top1"])).sum::<f64>() / 4.0;
    assert!((mean - number(&knn["results"][0]["top1"])).abs() < 1e-9, "{found} {knn}");
    assert!((number(&found["top1"]) - mean).abs() < 1e-9);
    assert!(bins.iter().all(|bin| number(&bin["from"]) <= number(&bin["to"])));
    assert!(bins.windows(2).all(|pair| number(&pair[0]["to"]) <= number(&pair[1]["from"])));
    assert_eq!((&found["protocol"], &found["test_images"]), (&"held-out".into(), &12.into()));
    let alone = ["eval", "precision", "--weights", weights(), "--data", DATA, "--split", "train", "--k", "3"];
    let told = run(&alone).succeeded().out;
    assert!(told.contains("kNN (k = 3) of 24 images by |w|"), "{told}");
    let error = run(&["eval", "precision", "--weights", weights(), "--data", DATA, "--k", "25"]).failed();
    assert!(error.contains("k = 25: expected 1 to 24"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_the_command_line() {
    for (more, words) in [
        (&["--thresholds", "1.5"][..], "a cosine between 0 and 1"),
        (&["--tau", "0"], "above zero"),
        (&["--prototypes", "round"], "invalid value"),
        (&["--split", "test"], "--data"),
    ] {
        let output = program().args(["eval", "prototypes", "--weights", weights()]).args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(words), "{more:?}: {said}");
    }
}

#[test]
fn stored_features_of_the_network_say_the_same_as_its_images() {
    let folder = tempfile::tempdir().unwrap();
    let stored = |weights: &str, split: &str, name: &str| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        run(&["features", "--weights", weights, "--data", DATA, "--split", split, "--out", &out]).succeeded();
        out
    };
    let (train, test) = (stored(weights(), "train", "train.npy"), stored(weights(), "test", "test.parquet"));
    let prototypes = |more: [&str; 2]| run(&["eval", "prototypes", "--weights", weights(), more[0], more[1], "--json"]);
    let (of_images, of_files) = (prototypes(["--data", DATA]).json(), prototypes(["--features", &train]).json());
    for key in ["unique", "used", "perplexity", "void", "weights", "weights_digest"] {
        assert_eq!(of_images[key], of_files[key], "{key}");
    }
    let precision =
        |more: &[&str]| run(&[&["eval", "precision", "--weights", weights(), "--k=5", "--json"], more].concat());
    let of_images = precision(&["--data", DATA]).json();
    let of_files = precision(&["--train", &train, "--test", &test]).json();
    for key in ["bins", "top1", "rank_correlation", "protocol", "settings", "weights_digest"] {
        assert_eq!(of_images[key], of_files[key], "{key}");
    }
    // The features of another network do not belong to these prototypes.
    let other = folder.path().join("other");
    small(&other, &["--epochs", "1", "--seed", "7"]).succeeded();
    let others = stored(other.to_str().unwrap(), "train", "others.safetensors");
    assert!(precision(&["--train", &others]).failed().contains("another network computed them"));
    assert!(prototypes(["--features", &others]).failed().contains("another network computed them"));
    let both = precision(&["--train", &train, "--data", DATA]);
    assert_eq!(both.code, Some(2), "one of the two");
}
