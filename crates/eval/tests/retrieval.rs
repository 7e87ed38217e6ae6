//! Retrieval against the official scorer, Pillow, PyTorch and timm, and files that are not what they should be.

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use common::{deviation, expected, fixture, hashed_tiny, numbers, pictures, shared};
use data::{Orientation, PathsSource};
use eval::retrieval::{
    DEPTHS, GroundTruth, Part, Ranking, RetrievalError, Score, SearchOptions, describe_images, score,
};
use eval::{EvalError, Network};
use serde_json::Value;
use tensor::{CpuOptions, Device, Precision};

fn device(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision: Precision::F32 }).unwrap()
}

fn read(name: &str) -> Result<GroundTruth, RetrievalError> {
    GroundTruth::read(&fixture("retrieval").join(name))
}

#[test]
fn the_official_scorer_agrees_to_a_billionth() {
    let Some(folder) = shared("retrieval") else { return };
    let truth = GroundTruth::read(&folder.join("gnd_roxford5k.pkl")).unwrap();
    assert_eq!((truth.database.len(), truth.queries.len()), (4993, 70));
    assert_eq!(truth.queries[0].part, Some([136.5, 34.1, 648.5, 955.7]));
    let ranking = Ranking::read(&folder.join("roxford5k_informed_ranks.npy"), &truth).unwrap();
    let expected = fs::read_to_string(folder.join("roxford5k_informed_expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let scores = score(&truth, &ranking, &device(2));
    assert_eq!(scores, score(&truth, &ranking, &device(1)));
    for (Score { map, mp, aps, .. }, key) in scores.iter().zip(["E", "M", "H"]) {
        let near = |a: f64, b: &Value| assert!((a - b.as_f64().unwrap()).abs() < 1e-9, "{key}: {a} {b}");
        near(map.unwrap(), &expected[key]["mAP"]);
        for (depth, mp) in DEPTHS.iter().zip(mp.unwrap()) {
            near(mp, &expected[key]["mPk"][depth.to_string()]);
        }
        let theirs = expected[key]["aps"].as_array().unwrap();
        assert_eq!(aps.len(), theirs.len());
        for (ours, theirs) in aps.iter().zip(theirs) {
            match ours {
                Some(ap) => near(*ap, theirs),
                None => assert!(theirs.is_null()),
            }
        }
    }
}

#[test]
fn every_protocol_and_numpys_arrays_hold_the_same_ground_truth() {
    let truth = &expected("retrieval/expected.json")["truth"];
    for name in ["lists_0", "lists_1", "lists_2", "lists_3", "lists_4", "lists_5", "arrays_2", "arrays_4", "arrays_5"] {
        let read = read(&format!("{name}.pkl")).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = truth["imlist"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(read.database, names, "{name}");
        assert_eq!(read.queries.len(), 2);
        for (query, (id, said)) in
            read.queries.iter().zip(truth["qimlist"].as_array().unwrap().iter().zip(truth["gnd"].as_array().unwrap()))
        {
            assert_eq!(query.name, id.as_str().unwrap());
            for (list, key) in [(&query.easy, "easy"), (&query.hard, "hard"), (&query.junk, "junk")] {
                assert_eq!(list.iter().map(|&n| f64::from(n)).collect::<Vec<_>>(), numbers(&said[key]), "{name} {key}");
            }
            assert_eq!(query.part.unwrap().to_vec(), numbers(&said["bbx"]), "{name}");
        }
    }
}

#[test]
fn a_pickle_that_would_run_something_is_refused_and_runs_nothing() {
    for (name, callable) in [
        ("harmful_system", "posix.system"),
        ("harmful_system_inside", "posix.system"),
        ("harmful_system_as_list", "posix.system"),
        ("harmful_eval", "__builtin__.eval"),
        ("harmful_popen", "subprocess.Popen"),
        ("harmful_getattr", "__builtin__.getattr"),
    ] {
        let error = read(&format!("{name}.pkl")).unwrap_err();
        let is_named = |said: &str| said == callable || said == callable.replace("__builtin__", "builtins");
        assert!(matches!(&error, RetrievalError::Hostile { callable, .. } if is_named(callable)), "{name}: {error}");
        assert!(error.to_string().contains("It was not called"));
    }
    // cos\nsystem\n(S'true'\ntR. behind a sound ground truth is not even looked at: Python stops at the first STOP too.
    let mut bytes = fs::read(fixture("retrieval").join("lists_3.pkl")).unwrap();
    bytes.extend(b"cos\nsystem\n(S'true'\ntR.");
    assert!(GroundTruth::from_pickle(&bytes, Path::new("x")).is_ok());
}

#[test]
fn a_billion_laughs_are_read_as_the_ninety_objects_that_they_are() {
    let error = read("laughs.pkl").unwrap_err().to_string();
    assert!(
        error.contains("`junk` of query query_a is a list, or too long, and should be a list of image numbers"),
        "{error}"
    );
}

/// A pickle of protocol 2 from pieces of its program.
fn pickle(program: &[u8]) -> Result<GroundTruth, RetrievalError> {
    GroundTruth::from_pickle(&[b"\x80\x02", program, b"."].concat(), Path::new("gnd.pkl"))
}

#[test]
fn what_is_no_ground_truth_is_named() {
    let two = |easy: &str, more: &str| -> Vec<u8> {
        let query = format!("(dVeasy\n{easy}sVhard\n(lsVjunk\n(ls{more}");
        format!("(dVimlist\n(Va\nVb\nlsVqimlist\n(Vq\nlsVgnd\n({query}ls").into_bytes()
    };
    let said = |program: &[u8]| pickle(program).unwrap_err().to_string();
    assert!(pickle(&two("(I0\nI1\nl", "")).is_ok());
    for (program, what) in [
        (two("(I0\nI2\nl", ""), "names image 2, and there are 2"),
        (two("(I-1\nl", ""), "names image -1, and there are 2"),
        (two("(L99999999999999999999L\nl", ""), "should be a list of image numbers"),
        (two("(I1\nI1\nl", ""), "names image 1 twice"),
        (two("(F1.0\nl", ""), "should be a list of image numbers"),
        (two("V12\n", ""), "`easy` of query q is a string"),
        (two("(dVa\nI1\ns", ""), "`easy` of query q is a dict"),
        (two("(I0\nl", "Vbbx\n(F0.0\nF1.0\nlsVx\nNs"), "`bbx` of query q is no box"),
        (two("(I0\nl", "Vbbx\n(F5.0\nF0.0\nF1.0\nF2.0\nlsVx\nNs"), "`bbx` of query q is no box"),
        (b"(I1\nI2\nl".to_vec(), "it has no `imlist`, or is no dict: it is a list"),
        (b"(dVimlist\n(lsVqimlist\n(lsVgnd\n(ls".to_vec(), "no database images, or no queries"),
        (b"(dVimlist\n(Va\nlsVqimlist\n(I7\nlsVgnd\n(ls".to_vec(), "`qimlist` has an int"),
        (b"(dVimlist\n(Va\nlsVqimlist\n(Vq\nlsVgnd\n(ls".to_vec(), "`gnd` has 0 entries for 1 queries"),
        (b"(dVimlist\n(Va\nlsVqimlist\n(Vq\nlsVgnd\nVtext\ns".to_vec(), "`gnd` is a string, and should be a list"),
        (b"(dVimlist\n(Va\nlsVqimlist\n(Vq\nlsVgnd\n((dVok\n(lsls".to_vec(), "before they were revisited"),
        (b"(dVimlist\n(Va\nlsVqimlist\n(Vq\nlsVgnd\n(Nls".to_vec(), "`easy` of query q is missing"),
    ] {
        let message = said(&program);
        assert!(message.contains(what), "{what}: {message}");
    }
    assert!(matches!(GroundTruth::from_pickle(b"PK\x03\x04", Path::new("x")), Err(RetrievalError::Pickle { .. })));
    assert!(matches!(GroundTruth::from_pickle(b"", Path::new("x")), Err(RetrievalError::Pickle { .. })));
    assert!(matches!(read("none.pkl"), Err(RetrievalError::Io { .. })));
    // The same list for very many queries.
    let many = "Vq\n".repeat(9000);
    let list = "I0\nI1\n".to_owned() + &(2..2000).map(|i| format!("I{i}\n")).collect::<String>();
    let images = "Va\n".repeat(2000);
    let program = format!(
        "(dVimlist\n({images}lsVqimlist\n({many}lsVgnd\n((dVeasy\n({list}lsVhard\n(lsVjunk\n(lsp1\n{}ls",
        "g1\n".repeat(8999)
    );
    assert!(said(program.as_bytes()).contains("or too long"), "two million numbers are fine, 18 are not");
}

/// An .npy file of whole numbers of two bytes.
fn npy(folder: &Path, rows: &[&[i16]]) -> PathBuf {
    let header =
        format!("{{'descr': '<i2', 'fortran_order': False, 'shape': ({}, {}), }}\n", rows.len(), rows[0].len());
    let values: Vec<u8> = rows.concat().iter().flat_map(|value| value.to_le_bytes()).collect();
    let path = folder.join("ranks.npy");
    fs::write(
        &path,
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &values].concat(),
    )
    .unwrap();
    path
}

#[test]
fn a_ranking_that_is_none_of_this_ground_truth_is_refused() {
    let truth = read("lists_4.pkl").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let read = |rows: &[&[i16]]| Ranking::read(&npy(folder.path(), rows), &truth);
    assert_eq!(read(&[&[3, 0], &[7, 11]]).unwrap().of(1), [0, 11], "the first two of each query");
    let said = |rows: &[&[i16]]| read(rows).unwrap_err().to_string();
    assert!(said(&[&[0, 12]]).contains("query 1, place 0: image 12 is not in the database"));
    assert!(said(&[&[0, 1], &[-1, 2]]).contains("query 0, place 1: image -1 is not in the database"));
    assert!(said(&[&[0, 1], &[1, 1]]).contains("query 1, place 1: image 1 stands there a second time"));
    let wide = said(&[&[0, 1, 2]]);
    assert!(wide.contains("[1, 3]") && wide.contains("12 database images and 2 queries"), "{wide}");
    let long: Vec<&[i16]> = vec![&[0, 0]; 13];
    assert!(said(&long).contains("[13, 2]"));
    fs::write(folder.path().join("no.npy"), "1 2 3").unwrap();
    let error = Ranking::read(&folder.path().join("no.npy"), &truth).unwrap_err();
    assert!(error.to_string().contains("not a NumPy array"), "{error}");
}

#[test]
fn features_at_one_and_at_three_scales_are_those_of_pillow_and_pytorch() {
    let expected = expected("retrieval/expected.json");
    let device = device(2);
    let (vit, weights) = hashed_tiny(&device);
    let network = Network::new(&vit, &weights, &device);
    for case in expected["scales"].as_array().unwrap() {
        let source = PathsSource::new(&pictures(), vec![case["file"].as_str().unwrap().into()]).unwrap();
        let options = |is_multi_scale| SearchOptions {
            side: case["side"].as_u64().unwrap() as usize,
            is_multi_scale,
            orientation: Orientation::AsStored,
            workers: 1,
        };
        let go_on = &mut |_| ControlFlow::Continue(());
        for (is_multi_scale, key) in [(false, "single"), (true, "together")] {
            let ours = describe_images(network, &source, None, &options(is_multi_scale), go_on).unwrap().features;
            let deviation = deviation(&ours.row(0)[..32], &numbers(&case[key]));
            println!("{} {key}: {deviation:.2e}", case["file"]);
            assert!(deviation < 1e-5, "{} {key}: {deviation}", case["file"]);
            let norm = ours.row(0).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let want = if is_multi_scale { 1.0 } else { case["norm"].as_f64().unwrap() };
            assert!((norm / want - 1.0).abs() < 1e-5, "{norm} {want}");
        }
    }
}

#[test]
fn neither_threads_nor_neighbours_change_a_feature() {
    let names = ["discs.jpg", "stripes_tall.jpg", "checks_small.jpg", "hills_grey.jpg"];
    let describe = |threads: usize, names: &[&str]| {
        let device = device(threads);
        let (vit, weights) = hashed_tiny(&device);
        let source = PathsSource::new(&pictures(), names.iter().map(PathBuf::from).collect()).unwrap();
        let options =
            SearchOptions { side: 96, is_multi_scale: true, orientation: Orientation::AsStored, workers: threads };
        let network = Network::new(&vit, &weights, &device);
        describe_images(network, &source, None, &options, &mut |_| ControlFlow::Continue(())).unwrap().features.values
    };
    let all = describe(2, &names);
    assert_eq!(all, describe(1, &names));
    assert_eq!(all[..192], describe(2, &names[..1]));
}

#[test]
fn an_image_that_cannot_be_used_ends_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.jpg"), "no image").unwrap();
    fs::copy(pictures().join("checks_small.jpg"), folder.path().join("small.jpg")).unwrap();
    let device = device(1);
    let (vit, weights) = hashed_tiny(&device);
    let network = Network::new(&vit, &weights, &device);
    let options = SearchOptions { side: 100, is_multi_scale: true, orientation: Orientation::AsStored, workers: 1 };
    let describe = |name: &str, parts: Option<&[Option<Part>]>, options: &SearchOptions| {
        let source = PathsSource::new(folder.path(), vec![name.into()]).unwrap();
        describe_images(network, &source, parts, options, &mut |_| ControlFlow::Continue(())).map(|_| ())
    };
    let said = |result: Result<(), EvalError>| result.unwrap_err().to_string();
    assert!(said(describe("broken.jpg", None, &options)).starts_with("broken.jpg: "));
    let part = [Some(Part([0.0, 0.0, 30.0, 200.0]))];
    let thin = said(describe("small.jpg", Some(&part), &options));
    assert!(thin.starts_with("small.jpg: at 30 x 90 pixels it has no whole patch at every scale"), "{thin}");
    assert!(describe("small.jpg", Some(&[Some(Part([0.0, 0.0, 32.0, 200.0]))]), &options).is_ok());
    let outside = [Some(Part([500.0, 0.0, 600.0, 20.0]))];
    assert!(said(describe("small.jpg", Some(&outside), &options)).contains("lies outside of 120 x 90 pixels"));
    let nothing = SearchOptions { side: 0, ..options };
    assert!(matches!(describe("small.jpg", None, &nothing), Err(EvalError::Setting { .. })));
    let source = PathsSource::new(folder.path(), vec!["small.jpg".into()]).unwrap();
    let stopped = describe_images(network, &source, None, &options, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
}
