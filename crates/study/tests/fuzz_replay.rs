//! What the fuzzer has found so far, once more: every input of fuzz/corpus/study. A panic fails the test.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::path::Path;

use study::{Plan, StudyFile};

fn parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let file = StudyFile::parse(text, "study.toml", Path::new("nowhere"));
    _ = file.and_then(|file| Plan::of(&file, "study.toml")).map_err(|error| error.to_string());
}

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    replay::replay("study", parse);
}
