//! `features` in every format and of every choice of tokens, and features that need not be computed again.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Finished, run, small};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

/// A finished run: a network of 64 columns and patches of 8 pixels, for images of 16.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1"]).succeeded();
    (folder, run)
});

const DATA: &str = "synthetic:train=24,test=12,size=16";

fn features(data: &str, out: &Path, more: &[&str]) -> Finished {
    let weights = RUN.1.to_str().unwrap();
    let usual = ["features", "--weights", weights, "--data", data, "--device=cpu", "--out", out.to_str().unwrap()];
    run(&[&usual[..], more].concat())
}

/// Shape and values of a safetensors file of features.
fn tensor(path: &Path) -> (Vec<usize>, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let features = file.tensor("features").unwrap();
    let values = features.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    (features.shape().to_vec(), values)
}

#[test]
fn the_choices_of_tokens_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, more: &[&str]| {
        let path = folder.path().join(format!("{name}.safetensors"));
        features(DATA, &path, more).succeeded();
        tensor(&path)
    };
    let class = of("class", &[]);
    let mean = of("mean", &["--tokens", "mean"]);
    let both = of("both", &["--tokens", "both"]);
    let patches = of("patches", &["--tokens", "patches"]);
    let layers = of("layers", &["--layers", "2"]);
    let before = of("before", &["--norm", "before"]);
    assert_eq!((class.0, mean.0, both.0), (vec![24, 64], vec![24, 64], vec![24, 128]));
    assert_eq!((patches.0, layers.0), (vec![24, 4, 64], vec![24, 128]));
    let close = |a: &[f32], b: &[f32]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
    for image in [0, 7, 23] {
        let row = |values: &[f32], width: usize| values[image * width..(image + 1) * width].to_vec();
        assert!(close(&row(&both.1, 128), &[row(&class.1, 64), row(&mean.1, 64)].concat()), "image {image}");
        assert!(close(&row(&layers.1, 128)[64..], &row(&class.1, 64)), "the last block is last");
        let tokens = row(&patches.1, 256);
        let means: Vec<f32> = (0..64).map(|i| tokens[i..].iter().step_by(64).sum::<f32>() / 4.0).collect();
        assert!(close(&means, &row(&mean.1, 64)));
        assert!(!close(&row(&before.1, 64), &row(&class.1, 64)), "the norm does something");
    }
    let refused = |more: &[&str]| features(DATA, &folder.path().join("x.npy"), more).failed();
    let unknown = features(DATA, &folder.path().join("x.npy"), &["--tokens", "cls"]).err;
    assert!(unknown.contains("one of class, mean, both, patches"), "{unknown}");
    let said = refused(&["--tokens", "patches", "--layers", "2"]);
    assert!(said.contains("class tokens alone are taken from several blocks"), "{said}");
    assert!(refused(&["--layers", "999"]).contains("999"));
    assert!(!folder.path().join("x.npy").exists());
}

#[test]
fn every_format_has_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    for (class, name) in [("cat", "a, \"b\".bmp"), ("cat", "é.bmp"), ("dog", "broken.bmp"), ("dog", "c.bmp")] {
        fs::create_dir_all(photos.join(class)).unwrap();
        common::write_bmp(&photos.join(class).join(name), 20, name.len());
    }
    fs::write(photos.join("dog/broken.bmp"), b"BM").unwrap();
    let data = photos.to_str().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["f.safetensors", "f.npy", "f.parquet"] {
        let ended = features(data, &at(name), &[]).succeeded();
        assert!(ended.out.contains("3 x 64 features") && ended.out.contains("1 left out"), "{}", ended.out);
        assert!(ended.err.contains("skipped dog/broken.bmp"), "{}", ended.err);
    }
    let (shape, values) = tensor(&at("f.safetensors"));
    assert_eq!(shape, [3, 64]);
    let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let array = fs::read(at("f.npy")).unwrap();
    assert!(array.ends_with(&expected) && array.len() == 128 + expected.len());
    assert!(String::from_utf8_lossy(&array[..128]).contains("'shape': (3, 64)"));
    let table = "row,name,label,class\n0,\"cat/a, \"\"b\"\".bmp\",0,cat\n1,cat/é.bmp,0,cat\n2,dog/c.bmp,1,dog\n";
    assert_eq!(fs::read_to_string(at("f.csv")).unwrap(), table);
    let note: Value = serde_json::from_slice(&fs::read(at("f.json")).unwrap()).unwrap();
    assert_eq!((note["rows"].as_u64(), note["tokens"].as_str()), (Some(3), Some("class")));
    // A group of one page for each column: the floats are there as they are.
    let rows = fs::read(at("f.parquet")).unwrap();
    assert!(rows.windows(expected.len()).any(|window| window == expected));
    let said = files::parquet::metadata(&at("f.parquet")).unwrap();
    for key in ["weights_hash", "data_hash", "tokens", "norm", "layers", "precision", "image_size", "image_orientation"]
    {
        assert_eq!(said.get(key).map(String::as_str), note[key].as_str(), "{key}");
        assert!(note[key].is_string(), "{key}");
    }
}

#[test]
fn the_same_features_are_not_computed_twice_and_others_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["f.safetensors", "f.npy", "f.parquet"] {
        let out = folder.path().join(name);
        features(DATA, &out, &[]).succeeded();
        let (bytes, written) = (fs::read(&out).unwrap(), fs::metadata(&out).unwrap().modified().unwrap());
        let again = features(DATA, &out, &["--batch-size", "7"]).succeeded().out;
        assert!(again.contains("nothing is computed again"), "{again}");
        assert_eq!(fs::metadata(&out).unwrap().modified().unwrap(), written);
        for (data, more, key) in [
            (DATA, &["--tokens", "mean"][..], "tokens"),
            (DATA, &["--norm", "before"], "norm"),
            (DATA, &["--layers", "2"], "layers"),
            (DATA, &["--image-size", "24"], "image_size"),
            (DATA, &["--orientation", "as-stored"], "image_orientation"),
            (DATA, &["--which", "student"], "weights_hash"),
            (DATA, &["--split", "test"], "data_hash"),
            ("synthetic:train=24,test=12,size=16,seed=3", &[], "data_hash"),
        ] {
            let message = features(data, &out, more).failed();
            assert!(message.contains(&format!("holds other features already: `{key}`")), "{name} {more:?}: {message}");
            assert!(message.contains("--force replaces it"), "{message}");
        }
        assert_eq!(fs::read(&out).unwrap(), bytes);
        features(DATA, &out, &["--tokens", "mean", "--force"]).succeeded();
        assert_ne!(fs::read(&out).unwrap(), bytes);
    }
}

#[test]
fn what_lies_beside_an_array_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (out, table) = (folder.path().join("f.npy"), folder.path().join("f.csv"));
    fs::write(&table, "my,notes\n").unwrap();
    assert!(features(DATA, &out, &[]).failed().contains("f.csv: exists already"));
    let message = features(DATA, &out, &["--force"]).failed();
    assert!(message.contains("f.csv") && message.contains("no table of features"), "{message}");
    assert_eq!(fs::read_to_string(&table).unwrap(), "my,notes\n");
    assert!(!out.exists() && !folder.path().join("f.json").exists());
}
