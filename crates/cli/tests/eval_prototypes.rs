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
    // Away from its run it does not say at which temperature its prototypes were used.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone.safetensors");
    fs::copy(&checkpoint, &alone).unwrap();
    let alone = alone.to_str().unwrap();
    let told = run(&["eval", "prototypes", "--weights", alone]).succeeded();
    assert!(told.err.contains("taking prototypes vmf, tau 0.07"), "{}", told.err);
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

/// The entry of a table in CSV, by the name of its column and the beginning of its row.
fn entry(csv: &str, row: &str, column: &str) -> String {
    let mut lines = csv.lines();
    let names = lines.next().unwrap().replace("\"", "");
    // Names have a comma and a space; columns are parted by a comma alone.
    let names = names.replace(", ", "; ");
    let at = names.split(',').position(|name| name == column.replace(", ", "; ")).unwrap_or_else(|| panic!("{names}"));
    let line = lines.find(|line| line.starts_with(&format!("{row},"))).unwrap_or_else(|| panic!("{row}: {csv}"));
    line.split(',').nth(at).unwrap().to_owned()
}

#[test]
fn the_figure_of_prototypes_has_the_numbers_of_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let thresholds = ["--thresholds", "0.3,0.5,0.9"];
    let said = run(&[&["eval", "prototypes", "--weights", weights(), "--json"][..], &thresholds].concat()).succeeded();
    fs::write(path("said.json"), &said.out).unwrap();
    let result = said.json();
    let both = [weights(), &path("said.json"), "--out", &path("both.svg")];
    run(&[&["figure", "prototypes"][..], &both, &thresholds].concat()).succeeded();
    let csv = fs::read_to_string(path("both.csv")).unwrap();
    for threshold in ["0.3", "0.5", "0.9"] {
        for name in ["run", "said"] {
            let of = |column: &str| entry(&csv, threshold, &format!("{name}, {column}"));
            assert_eq!(of("unique"), result["unique"][threshold].to_string());
            assert_eq!(of("largest set"), result["largest"][threshold].to_string());
        }
    }
    let svg = fs::read_to_string(path("both.svg")).unwrap();
    assert!(svg.contains("unique prototypes") && svg.contains(">said<"), "{svg}");
    run(&["figure", "prototypes", &path("said.json"), "--out", &path("one.png")]).succeeded();
    assert!(fs::read(path("one.png")).unwrap().starts_with(b"\x89PNG"));
    fs::write(path("other.json"), "{\"evaluation\":{\"name\":\"knn\"}}").unwrap();
    let error = run(&["figure", "prototypes", &path("other.json"), "--out", &path("x.svg")]).failed();
    assert!(error.contains("it is one of `eval knn`"), "{error}");
    fs::write(path("bare.json"), "{\"evaluation\":{\"name\":\"prototypes\"}}").unwrap();
    let error = run(&["figure", "prototypes", &path("bare.json"), "--out", &path("x.svg")]).failed();
    assert!(error.contains("`unique` is missing in it"), "{error}");
    assert!(!folder.path().join("x.svg").exists());
}

#[test]
fn the_figure_of_precision_has_the_numbers_of_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let how = ["--data", DATA, "--k", "5", "--bins", "3"];
    let said = run(&[&["eval", "precision", "--weights", weights(), "--json"][..], &how].concat()).succeeded();
    fs::write(path("said.json"), &said.out).unwrap();
    let result = said.json();
    run(&[&["figure", "precision", weights(), "--out", &path("run.svg")][..], &how].concat()).succeeded();
    run(&["figure", "precision", &path("said.json"), "--out", &path("file.svg")]).succeeded();
    for (file, name) in [("run.csv", "run"), ("file.csv", "said")] {
        let csv = fs::read_to_string(path(file)).unwrap();
        assert_eq!(csv.lines().count(), 4, "{csv}");
        for (row, bin) in
            ["0", "33.333333333333336", "66.66666666666667"].iter().zip(result["bins"].as_array().unwrap())
        {
            for (column, key) in [("top-1", "top1"), ("|w| from", "from"), ("|w| to", "to"), ("images", "images")] {
                let drawn: f64 = entry(&csv, row, &format!("{name}, {column}")).parse().unwrap();
                assert_eq!(drawn, number(&bin[key]), "{column} at {row}: {csv}");
            }
        }
    }
    let error = run(&["figure", "precision", weights(), "--out", &path("x.svg")]).failed();
    assert!(error.contains("--data SRC says which labelled images"), "{error}");
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
    assert!(precision(&["--train", &train, "--test", &others]).failed().contains("another network computed them"));
    let means = folder.path().join("means.npy").to_str().unwrap().to_owned();
    run(&["features", "--weights", weights(), "--data", DATA, "--tokens", "mean", "--out", &means]).succeeded();
    assert!(precision(&["--train", &means]).failed().contains("not of class tokens"));
    assert!(prototypes(["--features", &others]).failed().contains("another network computed them"));
    let both = precision(&["--train", &train, "--data", DATA]);
    assert_eq!(both.code, Some(2), "one of the two");
}
