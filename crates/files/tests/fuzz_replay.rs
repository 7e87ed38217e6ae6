//! What the fuzzer has found so far, once more: every input of fuzz/corpus for a parser of this crate. A panic fails the test.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn the_corpus_of_weights_is_parsed_without_a_panic() {
    replay::replay("weights", |bytes| {
        _ = files::safetensors::Header::read(&mut &bytes[..], bytes.len() as u64);
    });
}

#[test]
fn the_corpus_of_pickles_is_parsed_without_a_panic() {
    replay::replay("pickle", files::fuzz::pickle);
}

#[test]
fn the_corpus_of_archives_is_parsed_without_a_panic() {
    replay::replay("zip", files::fuzz::zip);
}

#[test]
fn the_corpora_of_features_files_are_parsed_without_a_panic() {
    replay::replay("npy", files::fuzz::npy);
    replay::replay("csv", files::fuzz::csv);
    replay::replay("table", files::fuzz::table);
}
