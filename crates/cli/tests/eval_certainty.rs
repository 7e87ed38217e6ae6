//! `eval certainty`, `figure certainty` and `features --certainty`, from a trained run to the last number.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{run, small, write_bmp};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

const DATA: &str = "synthetic:train=60,test=40,size=16";
/// Scores of von Mises-Fisher prototypes, and of others.
const ALL: [&str; 5] = ["entropy", "log_density", "neighbor", "precision", "vote"];
const PLAIN: [&str; 3] = ["entropy", "neighbor", "vote"];

type Run = LazyLock<(tempfile::TempDir, PathBuf)>;

fn trained(more: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    small(&path, &[&["--epochs", "1"], more].concat()).succeeded();
    (folder, path)
}

static VMF: Run =
    LazyLock::new(|| trained(&["--prototypes", "vmf", "--centering", "probability", "--set", "head_batch_norm=false"]));
static BATCH_NORM: Run =
    LazyLock::new(|| trained(&["--prototypes", "vmf", "--centering", "probability", "--set", "head_batch_norm=true"]));
static DINO: Run =
    LazyLock::new(|| trained(&["--prototypes", "l2", "--centering", "logit", "--set", "head_batch_norm=false"]));

fn weights(of: &'static Run) -> &'static str {
    of.1.to_str().unwrap()
}

/// Rows of numbers as NumPy stores them.
fn write_npy(path: &str, width: usize, values: impl Iterator<Item = f32>) {
    let values: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let rows = values.len() / width / 4;
    let shape = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}\n");
    let length = (shape.len() as u16).to_le_bytes();
    fs::write(path, [b"\x93NUMPY\x01\x00", &length[..], shape.as_bytes(), &values].concat()).unwrap();
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn certainty(of: &'static Run, more: &[&str]) -> common::Finished {
    run(&[&["eval", "certainty", "--weights", weights(of), "--k=5", "--bins=4", "--device=cpu"], more].concat())
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn every_score_is_held_against_the_same_errors() {
    let found = certainty(&VMF, &["--data", DATA, "--json"]).json();
    assert_eq!((&found["evaluation"]["name"], &found["evaluation"]["version"]), (&"certainty".into(), &2.into()));
    assert_eq!((&found["protocol"], &found["test_images"]), (&"held-out".into(), &40.into()));
    assert!(
        found["weights_digest"].is_string() && found["data_digest"]["test"].is_string() && found["other"].is_null()
    );
    assert_eq!(found["settings"]["calibration_bins"], 15);
    let knn = run(&["eval", "knn", "--weights", weights(&VMF), "--data", DATA, "--k=5", "--json"]).json();
    let top1 = number(&found["top1"]);
    assert!((top1 - number(&knn["results"][0]["top1"])).abs() < 1e-9, "{found} {knn}");
    assert_eq!(keys(&found["scores"]), ALL);
    for (name, score) in found["scores"].as_object().unwrap() {
        let (aurc, excess) = (number(&score["aurc"]), number(&score["excess_aurc"]));
        assert!((0.0..=1.0).contains(&aurc) && (-1e-12..=aurc + 1e-12).contains(&excess), "{name}: {score}");
        let quantiles = score["quantiles"].as_array().unwrap();
        let mean = quantiles.iter().map(|bin| number(&bin["top1"])).sum::<f64>() / 4.0;
        assert!((mean - top1).abs() < 1e-9 && score["auroc"].is_null(), "{name}: {score}");
        let curve = score["risk_coverage"].as_array().unwrap();
        assert_eq!((curve.len(), &curve[99][0]), (100, &1.0.into()), "{name}");
        assert!((number(&curve[99][1]) - (1.0 - top1 / 100.0)).abs() < 1e-9, "{name}: the error of all");
    }
    let bins = found["calibration"]["bins"].as_array().unwrap();
    assert_eq!(bins.iter().map(|bin| number(&bin["images"])).sum::<f64>(), 40.0);
    let gaps =
        bins.iter().map(|b| number(&b["images"]) * (number(&b["top1"]) / 100.0 - number(&b["confidence"])).abs());
    assert!((gaps.sum::<f64>() / 40.0 - number(&found["calibration"]["error"])).abs() < 1e-9);
    assert_eq!(certainty(&VMF, &["--data", DATA, "--threads=1", "--json"]).json(), found, "on any number of threads");
    let told = certainty(&VMF, &["--data", DATA]).succeeded().out;
    for words in
        ["certainty of 40 images, kNN (k = 5)", "log-density", "top-1 % by quantile", "calibration of the vote"]
    {
        assert!(told.contains(words), "{told}");
    }
    let alone = certainty(&VMF, &["--data", DATA, "--split=train", "--json"]).json();
    assert_eq!((&alone["protocol"], &alone["test_images"]), (&"leave-one-out".into(), &60.into()));
}

#[test]
fn another_data_set_is_told_apart_and_stored_features_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for i in 0..10 {
        write_bmp(Path::new(&path(&format!("other/{i}.bmp"))), 16, i);
    }
    let other = path("other");
    let found = certainty(&VMF, &["--data", DATA, "--other", &other, "--json"]).json();
    assert_eq!((&found["other"]["images"], &found["other"]["data"]), (&10.into(), &other.as_str().into()));
    for name in ALL {
        let auroc = number(&found["scores"][name]["auroc"]);
        assert!((0.0..=1.0).contains(&auroc), "{name}: {auroc}");
    }
    // Nothing tells images from themselves.
    let own = certainty(&VMF, &["--data", DATA, "--other", DATA, "--json"]).json();
    assert!(ALL.iter().all(|name| number(&own["scores"][name]["auroc"]) == 0.5), "{own}");
    let stored = |data: &str, split: &str, name: &str| {
        let arguments =
            ["features", "--weights", weights(&VMF), "--data", data, "--split", split, "--device=cpu", "--out"];
        run(&[&arguments[..], &[&path(name), "--certainty"]].concat()).succeeded();
        path(name)
    };
    let (train, test) = (stored(DATA, "train", "train.npy"), stored(DATA, "test", "test.parquet"));
    let elsewhere = stored(&other, "all", "other.safetensors");
    let of_files = certainty(&VMF, &["--train", &train, "--test", &test, "--other", &elsewhere, "--json"]).json();
    for key in ["scores", "calibration", "top1", "settings", "weights_digest", "protocol"] {
        assert_eq!(of_files[key], found[key], "{key}");
    }
    assert_eq!(of_files["other"]["images"], 10);
    let told = certainty(&VMF, &["--data", DATA, "--other", &other]).succeeded().out;
    assert!(told.contains("AUROC") && told.contains("told from 10 other images"), "{told}");
}

#[test]
fn what_cannot_be_judged_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // Prototypes without a density: said, and the rest is judged.
    let plain = certainty(&DINO, &["--data", DATA, "--json"]);
    assert!(plain.err.contains("prototypes l2: their lengths are no precision"), "{}", plain.err);
    assert_eq!(keys(&plain.json()["scores"]), PLAIN);
    let backbone = format!("{}/backbone.safetensors", weights(&VMF));
    let error = run(&["eval", "certainty", "--weights", &backbone, "--data", DATA]).failed();
    assert!(error.contains("holds a backbone and no projection head"), "{error}");
    write_bmp(Path::new(&path("bare/a.bmp")), 16, 1);
    write_bmp(Path::new(&path("bare/b.bmp")), 16, 2);
    assert!(certainty(&VMF, &["--data", &path("bare")]).failed().contains("no label"));
    let error = certainty(&VMF, &["--data", DATA, "--other", &path("nowhere")]).failed();
    assert!(error.contains("nowhere"), "{error}");
    // Stored features that are broken, of another width, without labels, or of another network.
    let npy = |name: &str, width: usize, value: f32, table: &str| {
        write_npy(&path(name), width, (0..8 * width).map(|i| if i == width { value } else { 1.0 + i as f32 }));
        if !table.is_empty() {
            fs::write(path(name).replace(".npy", ".csv"), table).unwrap();
        }
        path(name)
    };
    let labels = format!("label\n{}", "0\n1\n".repeat(4));
    let refused = |train: &str, more: &[&str]| {
        let words = [&["--train", train], more].concat();
        certainty(&VMF, &words).failed()
    };
    assert!(refused(&npy("nan.npy", 64, f32::NAN, &labels), &[]).contains("row 1 is not finite"));
    assert!(refused(&npy("bare.npy", 64, 0.5, ""), &[]).contains("8 of 8 training images have no label"));
    let sound = npy("sound.npy", 64, 0.5, &labels);
    assert!(refused(&npy("wide.npy", 65, 0.5, &labels), &[]).contains("not of the same network"));
    assert!(refused(&sound, &["--test", &path("wide.npy")]).contains("not of the same network"));
    assert!(refused(&sound, &["--other", &path("wide.npy")]).contains("not of the same network"));
    assert!(refused(&sound, &["--other", &path("nan.npy")]).contains("row 1 is not finite"));
    let others = path("others.safetensors");
    run(&["features", "--weights", weights(&DINO), "--data", DATA, "--out", &others]).succeeded();
    assert!(refused(&sound, &["--other", &others]).contains("another network computed them"));
    let words = ["eval", "certainty", "--weights", weights(&VMF), "--train", &sound, "--k=8"];
    assert!(run(&words).failed().contains("k = 8: expected 1 to 7"));
}

#[test]
fn the_figure_has_the_numbers_of_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let said = certainty(&VMF, &["--data", DATA, "--json"]).succeeded();
    fs::write(path("vmf.json"), &said.out).unwrap();
    let result = said.json();
    run(&["figure", "certainty", &path("vmf.json"), "--out", &path("one.svg")]).succeeded();
    let csv = fs::read_to_string(path("one.csv")).unwrap();
    let mut lines = csv.lines();
    let names =
        "coverage,\"vmf, precision\",\"vmf, entropy\",\"vmf, log-density\",\"vmf, nearest neighbour\",\"vmf, vote\"";
    assert_eq!(lines.next(), Some(names));
    let last: Vec<f64> = lines.next_back().unwrap().split(',').map(|text| text.parse().unwrap()).collect();
    let risk = 100.0 * number(&result["scores"]["entropy"]["risk_coverage"][99][1]);
    assert_eq!(last, [100.0, risk, risk, risk, risk, risk]);
    let svg = fs::read_to_string(path("one.svg")).unwrap();
    assert!(svg.contains("nearest neighbour") && svg.contains("log-density"));
    let both = [weights(&DINO), &path("vmf.json"), "--data", DATA, "--k=5", "--out", &path("both.png")];
    run(&[&["figure", "certainty"][..], &both].concat()).succeeded();
    assert!(fs::read(path("both.png")).unwrap().starts_with(b"\x89PNG"));
    let error = run(&["figure", "certainty", weights(&VMF), "--out", &path("x.svg")]).failed();
    assert!(error.contains("--data SRC says which labelled images"), "{error}");
}

#[test]
fn features_have_their_certainty_beside_them_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let features = |of: &'static Run, out: &str, more: &[&str]| {
        let usual =
            ["features", "--weights", weights(of), "--data", DATA, "--split=test", "--device=cpu", "--out", out];
        run(&[&usual[..], more].concat())
    };
    let told = features(&VMF, &path("f.npy"), &["--certainty"]).succeeded().out;
    assert!(told.contains("features with kappa, entropy, log_density of"), "{told}");
    let table = fs::read_to_string(path("f.csv")).unwrap();
    assert!(table.starts_with("row,name,label,class,kappa,entropy,log_density\n"), "{table}");
    let rows: Vec<Vec<f64>> = table
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').take(3).map(|text| text.parse().unwrap()).collect())
        .collect();
    assert_eq!(rows.len(), 40);
    // In another batch the numbers are the same, up to the rounding of f32.
    features(&VMF, &path("f.safetensors"), &["--certainty", "--batch-size=3"]).succeeded();
    let bytes = fs::read(path("f.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for (name, column) in [("kappa", 2), ("entropy", 1), ("log_density", 0)] {
        let tensor = file.tensor(name).unwrap();
        let values: Vec<f64> = tensor.data().as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect();
        assert_eq!(values.len(), 40);
        let is_near = |(value, row): (&f64, &Vec<f64>)| (value - row[column]).abs() < 1e-4 * row[column].abs().max(1.0);
        assert!(values.iter().zip(&rows).all(is_near), "{name}");
    }
    // kappa is the length of a prototype over the temperature, and the mean entropy that of `eval prototypes`.
    let prototypes =
        run(&["eval", "prototypes", "--weights", weights(&VMF), "--data", DATA, "--split=test", "--json"]).json();
    let (least, most) = (&prototypes["kappa"]["quantiles"]["0"], &prototypes["kappa"]["quantiles"]["1"]);
    let kappas = number(least) * (1.0 - 1e-9)..=number(most) * (1.0 + 1e-9);
    assert!(rows.iter().all(|row| kappas.contains(&row[2])));
    let mean = rows.iter().map(|row| row[1]).sum::<f64>() / 40.0;
    assert!((mean - number(&prototypes["entropy"])).abs() < 0.02, "the approximation of the log-normaliser aside");

    features(&VMF, &path("f.parquet"), &["--certainty"]).succeeded();
    let again = features(&VMF, &path("f.parquet"), &["--certainty"]).succeeded().out;
    assert!(again.contains("nothing is computed again"), "{again}");
    let other = features(&VMF, &path("f.parquet"), &[]).failed();
    assert!(other.contains("`certainty` is kappa, entropy, log_density of prototypes vmf"), "{other}");
    // Evaluations read such files as they read others, and a table may be replaced by its own kind.
    let knn = run(&["eval", "knn", "--train", &path("f.parquet"), "--test", &path("f.npy"), "--k=1", "--json"]).json();
    assert_eq!(number(&knn["results"][0]["top1"]), 100.0);
    features(&VMF, &path("f.npy"), &["--force"]).succeeded();
    features(&VMF, &path("f.npy"), &["--certainty", "--force"]).succeeded();

    let plain = features(&DINO, &path("plain.npy"), &["--certainty"]).succeeded();
    assert!(plain.err.contains("`entropy` alone is written"), "{}", plain.err);
    assert!(fs::read_to_string(path("plain.csv")).unwrap().starts_with("row,name,label,class,entropy\n"));
    for (more, words) in [
        (&["--certainty", "--tokens=mean"][..], "a head takes class tokens"),
        (&["--certainty", "--norm=before"], "a head takes class tokens"),
        (&["--tau=0.1"], "give --certainty too"),
    ] {
        let error = features(&VMF, &path("x.npy"), more).failed();
        assert!(error.contains(words), "{more:?}: {error}");
    }
    let backbone = format!("{}/backbone.safetensors", weights(&VMF));
    let error =
        run(&["features", "--weights", &backbone, "--data", DATA, "--certainty", "--out", &path("x.npy")]).failed();
    assert!(error.contains("no projection head"), "{error}");
    assert!(!Path::new(&path("x.npy")).exists());
}

/// The checkpoint of a run with heads whose first layer takes `inputs` values.
fn with_inputs(of: &'static Run, inputs: usize, out: &str) {
    let bytes = fs::read(format!("{}/checkpoints/step-00000003.safetensors", weights(of))).unwrap();
    let mut said = SafeTensors::read_metadata(&bytes).unwrap().1.metadata().clone().unwrap();
    said.remove("checksum");
    let tensors = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let zeros = vec![0; 1 << 20];
    let changed = tensors.iter().map(|(name, tensor)| match tensor.shape() {
        [outputs, _] if name.ends_with("head.mlp.0.weight") => {
            let shape = vec![*outputs, inputs];
            (name, TensorView::new(Dtype::F32, shape, &zeros[..4 * outputs * inputs]).unwrap())
        }
        _ => (name, tensor.clone()),
    });
    fs::write(out, safetensors::serialize(changed, Some(said)).unwrap()).unwrap();
}

#[test]
fn a_head_of_another_width_than_its_backbone_is_refused_by_all_that_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for inputs in [63, 65] {
        let misfit = path("misfit.safetensors");
        with_inputs(&VMF, inputs, &misfit);
        let words = format!("its MLP takes {inputs} values, and the backbone gives 64");
        let how = ["--weights", &misfit, "--data", DATA, "--prototypes=vmf", "--tau=0.07", "--device=cpu"];
        let out = path("x.npy");
        for command in [
            &["features", "--certainty", "--out", &out][..],
            &["eval", "certainty"],
            &["eval", "precision"],
            &["eval", "prototypes"],
        ] {
            let error = run(&[command, &how].concat()).failed();
            assert!(error.contains(&words), "{command:?}: {error}");
        }
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn a_head_that_describes_nothing_is_refused_before_images_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("photos")).unwrap();
    fs::write(path("photos/broken.png"), b"\x89PNG\r\n\x1a\n and nothing else").unwrap();
    // So small that |w| / tau is infinite.
    let how = ["--data", &path("photos"), "--certainty", "--tau=1e-320", "--out", &path("x.npy"), "--device=cpu"];
    let error = run(&[&["features", "--weights", weights(&VMF)], &how[..]].concat()).failed();
    assert!(error.contains("kappa = inf"), "{error}");
}

#[test]
fn batch_norm_does_not_make_other_images_like_these() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let value = |i: usize| ((i * i + 7 * i) % 101) as f32 / 50.0 - 1.0;
    for (name, rows) in [("train", 0..12), ("test", 12..18)] {
        write_npy(&path(&format!("{name}.npy")), 64, (64 * rows.start..64 * rows.end).map(value));
        fs::write(path(&format!("{name}.csv")), format!("label\n{}", "0\n1\n".repeat(rows.len() / 2))).unwrap();
    }
    // Each of the six test images as the only one of another data set has its own place among the six.
    let mut places: [Vec<f64>; 2] = Default::default();
    for row in 12..18 {
        write_npy(&path("other.npy"), 64, (64 * row..64 * (row + 1)).map(value));
        let files = ["--train", &path("train.npy"), "--test", &path("test.npy"), "--other", &path("other.npy")];
        let found = certainty(&BATCH_NORM, &[&files[..], &["--json"]].concat()).json();
        for (places, score) in places.iter_mut().zip(["entropy", "log_density"]) {
            places.push(6.0 * number(&found["scores"][score]["auroc"]));
        }
    }
    for mut places in places {
        places.sort_by(f64::total_cmp);
        // Half a place is that of an image beside itself, which rounding may decide.
        let is_near = |(place, i): (&f64, usize)| (place - (i as f64 + 0.5)).abs() < 0.51;
        assert!(places.iter().zip(0..).all(is_near), "{places:?}");
    }
}

#[test]
fn precision_has_the_components_of_certainty_where_the_head_has_batch_norm() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let value = |i: usize| ((i * i + 7 * i) % 101) as f32 / 50.0 - 1.0;
    for (name, rows, shift) in [("train", 0..40, 0.0), ("test", 40..80, 0.8)] {
        let values = (64 * rows.start..64 * rows.end).map(|i| value(i) + shift);
        write_npy(&path(&format!("{name}.npy")), 64, values);
        fs::write(path(&format!("{name}.csv")), format!("label\n{}", "0\n1\n".repeat(rows.len() / 2))).unwrap();
    }
    let of = |test: &str| {
        let words = ["eval", "precision", "--weights", weights(&BATCH_NORM), "--k=5", "--bins=4", "--device=cpu"];
        let files = ["--train", &path("train.npy"), "--test", test, "--json"];
        (run(&[&words[..], &files].concat()).json(), certainty(&BATCH_NORM, &files).json())
    };
    let (precision, certain) = of(&path("test.npy"));
    assert_eq!((&precision["evaluation"]["version"], &precision["top1"]), (&3.into(), &certain["top1"]));
    let (lengths, kappas) = (&precision["bins"], &certain["scores"]["precision"]["quantiles"]);
    let tau = number(&precision["settings"]["tau"]);
    assert_eq!(lengths.as_array().unwrap().len(), 4);
    for (length, kappa) in lengths.as_array().unwrap().iter().zip(kappas.as_array().unwrap()) {
        for end in ["from", "to"] {
            let (length, kappa) = (number(&length[end]), number(&kappa[end]));
            assert!((length - kappa * tau).abs() < 1e-6 * length, "{length} {kappa}");
        }
        assert_eq!((&length["top1"], &length["images"]), (&kappa["top1"], &kappa["images"]));
    }
}
