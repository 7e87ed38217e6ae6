//! Evaluations of features that were stored before, by any model.

mod common;

use std::path::Path;

use common::{run, small};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};

const DATA: &str = "synthetic:train=24,test=12,size=16";

/// A file of features of one value each, with labels and names of classes.
fn write(path: &Path, values: &[f32], labels: &[i64], classes: &str) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let numbers: Vec<u8> = labels.iter().flat_map(|label| label.to_le_bytes()).collect();
    let tensors = [
        ("features", TensorView::new(Dtype::F32, vec![values.len(), 1], &bytes).unwrap()),
        ("labels", TensorView::new(Dtype::I64, vec![labels.len()], &numbers).unwrap()),
    ];
    let metadata = [("class_names".to_owned(), classes.to_owned())];
    serialize_to_file(tensors, Some(metadata.into_iter().collect()), path).unwrap();
}

#[test]
fn stored_features_are_judged_as_the_images_they_came_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let weights = path("run");
    small(Path::new(&weights), &["--epochs", "1"]).succeeded();
    let of_images = run(&["eval", "knn", "--weights", &weights, "--data", DATA, "--k", "3,20", "--json"]).json();
    let mut digests = Vec::new();
    for form in ["safetensors", "npy", "parquet"] {
        let (train, test) = (path(&format!("train.{form}")), path(&format!("test.{form}")));
        for (split, out) in [("train", &train), ("test", &test)] {
            run(&["features", "--weights", &weights, "--data", DATA, "--split", split, "--out", out]).succeeded();
        }
        let of_files = run(&["eval", "knn", "--train", &train, "--test", &test, "--k", "3,20", "--json"]).json();
        for key in ["results", "protocol", "evaluation", "settings", "precision", "weights_digest", "test_images"] {
            assert_eq!(of_images[key], of_files[key], "{form}: {key}");
            assert!(!of_files[key].is_null(), "{form}: {key}");
        }
        assert!(of_images["data_digest"]["test"].is_string() && of_files["data_digest"]["train"].is_string());
        digests.push(of_files["data_digest"].clone());
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    let train = path("train.npy");
    let alone = run(&["eval", "knn", "--train", &train, "--k", "3", "--json"]).json();
    assert_eq!(alone["protocol"], "leave-one-out");
    let both = run(&["eval", "knn", "--train", &train, "--weights", &weights, "--data", DATA]);
    assert_eq!(both.code, Some(2), "one of the two");
}

#[test]
fn stored_features_that_mean_nothing_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (train, test) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    let judge =
        || run(&["eval", "knn", "--train", train.to_str().unwrap(), "--test", test.to_str().unwrap(), "--k", "1"]);
    write(&train, &[1.0, -1.0], &[0, 1], "[\"cat\",\"dog\"]");
    write(&test, &[2.0], &[0], "[\"cat\",\"dog\"]");
    judge().succeeded();
    write(&test, &[2.0], &[0], "[\"ape\",\"cat\"]");
    assert!(judge().failed().contains("label 0 is `cat` in the training features and `ape` in the test features"));
    write(&test, &[f32::NAN], &[0], "[\"cat\",\"dog\"]");
    assert!(judge().failed().contains("b.safetensors: the feature of row 0 is not finite"));
    write(&test, &[2.0], &[2], "[\"cat\",\"dog\"]");
    assert!(judge().failed().contains("row 0 has the label 2: expected -1 for none, or a class from 0 to 1"));
    write(&test, &[2.0], &[-1], "[\"cat\",\"dog\"]");
    assert!(judge().failed().contains("1 of 1 test images have no label"));
    std::fs::write(&test, "nonsense").unwrap();
    assert!(judge().failed().contains("b.safetensors: it is no safetensors file"));
}
