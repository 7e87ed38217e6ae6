//! `eval retrieval` and `eval copies`, from files to the last number.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{program, run, small};
use serde_json::Value;

static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    small(&path, &["--epochs", "1"]).succeeded();
    (folder, path)
});

fn weights() -> &'static str {
    RUN.1.to_str().unwrap()
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/features/images")
}

const NAMES: [&str; 6] =
    ["checks_small", "discs", "gradient_progressive", "hills_grey", "rings_square", "stripes_tall"];

/// A ground truth as a pickle of protocol 0: all six pictures, and two of them as queries, each to find itself.
fn ground_truth(path: &Path) {
    let list = |names: &[&str]| names.iter().map(|name| format!("V{name}\n")).collect::<String>();
    let query = |own: usize, junk: usize| {
        format!("(dVeasy\n(I{own}\nlsVhard\n(I{}\nlsVjunk\n(I{junk}\nlsVbbx\n(F0\nF0\nF100\nF80.5\nls", (own + 1) % 6)
    };
    let text = format!(
        "(dVimlist\n({}lsVqimlist\n({}lsVgnd\n({}{}ls.",
        list(&NAMES),
        list(&[NAMES[1], NAMES[5]]),
        query(1, 3),
        query(5, 3)
    );
    fs::write(path, text).unwrap();
}

fn npy(path: &Path, columns: usize, values: &[i64]) {
    let shape = format!("({}, {columns})", values.len() / columns);
    let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}\n");
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let length = (header.len() as u16).to_le_bytes();
    fs::write(path, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &bytes].concat()).unwrap();
}

#[test]
fn the_official_scores_come_out_of_the_program() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let root = std::env::var("DINO_VMF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let folder = Path::new(&root).join("retrieval");
    let Ok(expected) = fs::read_to_string(folder.join("roxford5k_informed_expected.json")) else {
        eprintln!("skipped: no data in {}", folder.display());
        return;
    };
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let of = |name: &str| folder.join(name).display().to_string();
    let (gnd, ranks) = (of("gnd_roxford5k.pkl"), of("roxford5k_informed_ranks.npy"));
    let found = run(&["eval", "retrieval", "--gnd", &gnd, "--ranks", &ranks, "--json"]).json();
    let near = |a: &Value, b: &Value| assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-9, "{a} {b}");
    for (ours, theirs) in [("easy", "E"), ("medium", "M"), ("hard", "H")] {
        near(&found[ours]["map"], &expected[theirs]["mAP"]);
        for depth in ["1", "5", "10"] {
            near(&found[ours]["mp"][depth], &expected[theirs]["mPk"][depth]);
        }
    }
    assert_eq!((&found["database"], &found["queries"]), (&4993.into(), &70.into()));
    let told = run(&["eval", "retrieval", "--gnd", &gnd, "--ranks", &ranks]).succeeded().out;
    assert!(told.contains("Retrieval of 70 query images among 4,993 images") && told.contains("35.21"), "{told}");
}

#[test]
fn a_network_finds_the_very_image_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let gnd = folder.path().join("gnd.pkl");
    ground_truth(&gnd);
    let (gnd, pictures) = (gnd.to_str().unwrap(), pictures());
    let arguments =
        ["eval", "retrieval", "--gnd", gnd, "--weights", weights(), "--data", pictures.to_str().unwrap(), "--json"];
    let small = [&arguments[..], &["--image-size", "64"]].concat();
    let found = run(&small).json();
    assert_eq!(found["easy"]["map"], 1.0, "each finds itself first");
    assert_eq!(found["easy"]["mp"]["10"], 1.0);
    assert!(found["medium"]["map"].as_f64().unwrap() >= 0.5 && found["hard"]["aps"].as_array().unwrap().len() == 2);
    assert_eq!((&found["settings"]["scales"], &found["settings"]["image_size"]), (&3.into(), &64.into()));
    assert!(found["data_digest"]["database"].is_string() && found["evaluation"]["name"] == "retrieval");
    let threads = run(&[&small[..], &["--threads", "1"]].concat()).json();
    assert_eq!(threads, found);
    let single = run(&[&small[..], &["--single-scale", "--crop-queries"]].concat()).json();
    assert_eq!((&single["settings"]["scales"], &single["settings"]["crop_queries"]), (&1.into(), &true.into()));
    let error = run(&[&arguments[..], &["--image-size", "64x32"]].concat()).failed();
    assert!(error.contains("images keep their aspect"), "{error}");
}

#[test]
fn what_is_wrong_with_a_benchmark_is_said_before_anything_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let shown = |name: &str| path(name).display().to_string();
    ground_truth(&path("gnd.pkl"));
    let ranked =
        |gnd: &str, ranks: &str| run(&["eval", "retrieval", "--gnd", &shown(gnd), "--ranks", &shown(ranks)]).failed();
    npy(&path("ranks.npy"), 2, &[0, 6]);
    assert!(ranked("gnd.pkl", "ranks.npy").contains("query 1, place 0: image 6 is not in the database"));
    npy(&path("wide.npy"), 3, &[0, 1, 2]);
    assert!(ranked("gnd.pkl", "wide.npy").contains("its shape is [1, 3]"));
    assert!(ranked("gnd.pkl", "gone.npy").contains("gone.npy"));
    // Loaded with Python this would make a file.
    let marker = path("was-run");
    fs::write(path("evil.pkl"), format!("cposix\nsystem\n(Vtouch {}\ntR.", marker.display())).unwrap();
    let error = ranked("evil.pkl", "ranks.npy");
    assert!(error.contains("Python would call `posix.system`") && !marker.exists(), "{error}");
    fs::create_dir(path("images")).unwrap();
    let images = shown("images");
    let missing = run(&["eval", "retrieval", "--gnd", &shown("gnd.pkl"), "--weights", weights(), "--data", &images]);
    assert!(missing.failed().contains("8 of the ground truth's 8 images are not there"));
    // Neither a ranking nor a network.
    let output = program().args(["eval", "retrieval", "--gnd", "g.pkl"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn copies_are_found_and_blocks_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        let to = folder.path().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(pictures().join(from), to).unwrap();
    };
    for (i, name) in NAMES.iter().enumerate() {
        copy(&format!("{name}.jpg"), &format!("original/20{i}000.jpg"));
        copy(&format!("{name}.jpg"), &format!("jpegqual/75/20{i}000.jpg"));
    }
    copy("discs.jpg", "strong/201001.jpg");
    copy("rings_square.jpg", "strong/204001.jpg");
    let data = folder.path().to_str().unwrap();
    let arguments = ["eval", "copies", "--weights", weights(), "--data", data, "--image-size", "48", "--json"];
    let found = run(&arguments).json();
    assert_eq!((&found["strong"], &found["database"]), (&1.0.into(), &6.into()));
    let named: Vec<&str> = found["blocks"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["original", "strong", "jpegqual/75"]);
    let more = ["--distractors", "synthetic:train=10,size=16", "--whiten", "synthetic:train=200,size=16"];
    let whitened = run(&[&arguments[..], &more].concat()).json();
    assert_eq!(whitened["database"], 16);
    // Equal images have equal features, whitened or not.
    assert_eq!(whitened["strong"], 1.0);
    assert!(whitened["data_digest"]["whiten"].is_string());
    let told = run(&arguments[..arguments.len() - 1]).succeeded().out;
    assert!(told.contains("strong") && told.contains("100.00"), "{told}");
    fs::write(folder.path().join("strong/204001.jpg"), "no image").unwrap();
    let error = run(&arguments).failed();
    assert!(error.contains("strong/204001.jpg") && error.contains("would not be the benchmark's"), "{error}");
    let nothing = run(&["eval", "copies", "--weights", weights(), "--data", weights()]).failed();
    assert!(nothing.contains("no .jpg files in `original`"), "{nothing}");
}

/// Features of a folder in a file of this name.
fn stored(folder: &Path, data: &str, name: &str) -> String {
    let out = folder.join(name).to_str().unwrap().to_owned();
    run(&["features", "--weights", weights(), "--data", data, "--image-size=48", "--out", &out]).succeeded();
    out
}

#[test]
fn stored_features_are_ranked_by_the_names_of_their_images() {
    let folder = tempfile::tempdir().unwrap();
    let gnd = folder.path().join("gnd.pkl");
    ground_truth(&gnd);
    let (gnd, pictures) = (gnd.to_str().unwrap(), pictures());
    let judged = |database: &str, queries: &str| {
        run(&["eval", "retrieval", "--gnd", gnd, "--database", database, "--queries", queries, "--json"])
    };
    let all = stored(folder.path(), pictures.to_str().unwrap(), "all.npy");
    let found = judged(&all, &all).json();
    assert_eq!(found["easy"]["map"], 1.0, "each finds itself first");
    assert_eq!((&found["weights"], &found["database"]), (&Value::Null, &6.into()));
    assert!(found["weights_digest"].is_string() && found["data_digest"]["queries"].is_string());
    let tables = stored(folder.path(), pictures.to_str().unwrap(), "all.parquet");
    assert_eq!(judged(&tables, &all).json()["medium"], found["medium"]);
    // Without its table nothing says which image a row is of; the six in order are the database, and no queries.
    fs::remove_file(folder.path().join("all.csv")).unwrap();
    assert_eq!(judged(&all, &tables).json()["medium"], found["medium"]);
    assert!(judged(&tables, &all).failed().contains("6 rows without names, and 2 are needed"));
    let others = stored(folder.path(), "synthetic:train=10,size=16", "others.npy");
    assert!(judged(&others, &tables).failed().contains("6 of the ground truth's 6 images are not among the stored"));
    assert_eq!(run(&["eval", "retrieval", "--gnd", gnd, "--database", &all]).code, Some(2));
}

#[test]
fn stored_features_of_copies_are_arranged_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let copydays = folder.path().join("copydays");
    for (i, name) in NAMES.iter().enumerate() {
        for to in ["original", "crops/10"] {
            let to = copydays.join(format!("{to}/20{i}000.jpg"));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(pictures().join(format!("{name}.jpg")), to).unwrap();
        }
    }
    let all = stored(folder.path(), copydays.to_str().unwrap(), "all.safetensors");
    let others = stored(folder.path(), "synthetic:train=10,size=16", "others.parquet");
    let arguments = ["eval", "copies", "--features", &all, "--distractors", &others, "--whiten", &others, "--json"];
    let found = run(&arguments).json();
    assert_eq!((&found["database"], &found["strong"]), (&16.into(), &Value::Null));
    assert_eq!(found["blocks"][1]["name"], "crops/10");
    assert_eq!(found["blocks"][1]["map"], 1.0, "equal images have equal features");
    assert!(found["data_digest"]["whiten"].is_string());
    let error = run(&["eval", "copies", "--features", &others]).failed();
    assert!(error.contains("no .jpg files in `original`"), "{error}");
}
