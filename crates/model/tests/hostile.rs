//! Files that an enemy, or a mistake, has made: an error that says what and why, and nothing executed.
//!
//! `tools/oracle/hostile_weights.py` makes them.

use std::path::{Path, PathBuf};

use model::weights::{LoadOptions, WeightsFile};
use tensor::Device;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hostile").join(name)
}

/// What is said when the backbone of a file is loaded.
fn refusal(name: &str) -> String {
    let device = Device::cpu(Default::default()).unwrap();
    let loaded = WeightsFile::open(&path(name)).and_then(|mut file| file.load_vit(&LoadOptions::default(), &device));
    let message = loaded.map(|_| "loaded".to_owned()).unwrap_err().to_string();
    assert!(message.contains(name), "names the file: {message}");
    message
}

#[track_caller]
fn assert_says(name: &str, words: &str) {
    let message = refusal(name);
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_pickle_that_calls_a_program_runs_nothing_and_is_told_to_hold_no_tensors() {
    assert_says("os_system.pth", "there are no tensors in it that have a name");
    assert!(!Path::new("executed-by-a-pickle").exists());
}

#[test]
fn tensors_that_claim_more_than_the_file_holds_are_refused_before_anything_is_taken_for_them() {
    assert_says("claims_2_60.pth", "tensor `cls_token` has more elements than the file");
    assert_says("expanded.pth", "tensor `cls_token` has more elements than the file");
    assert_says("beyond_storage.pth", "tensor `cls_token` reaches beyond its storage");
    assert_says("no_storage.pth", "it has no archive/data/7");
    assert_says("legacy_claims.pth", "storage 0 reaches beyond its end");
}

#[test]
fn a_zip_bomb_is_not_unpacked() {
    assert_says("zip_bomb.pth", "is compressed");
}

#[test]
fn a_pickle_that_holds_itself_is_left() {
    assert_says("laughs.pth", "holds more than any checkpoint does");
    assert_says("circle.pth", "holds more than any checkpoint does");
}

#[test]
fn another_archive_is_called_what_it_is() {
    assert_says("not_torch.pth", "a zip archive, but none of PyTorch");
}

#[test]
fn two_of_many_tensors_and_a_wrong_prefix_are_errors() {
    assert_says("wrong_prefix.pth", "0 of 18 backbone tensors matched");
    let message = refusal("two_of_many.pth");
    assert!(message.contains("blocks of another kind") && message.contains("blocks.0.other.weight"), "{message}");
}

#[path = "../../../fuzz/replay.rs"]
mod fuzz_corpus;

#[test]
fn what_the_fuzzer_has_found_so_far_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.pth");
    fuzz_corpus::replay("torch", |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(mut file) = WeightsFile::open(&path) else { return };
        _ = file.vit_config(&LoadOptions::default());
        for tensor in file.tensors().to_vec() {
            _ = file.read(&tensor);
        }
    });
}
