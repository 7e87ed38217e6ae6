//! What the fuzzer has found so far, once more: every input of fuzz/corpus/weights. A panic fails the test.

#[path = "../../../fuzz/replay.rs"]
mod replay;

fn parse(bytes: &[u8]) {
    _ = files::safetensors::Header::read(&mut &bytes[..], bytes.len() as u64);
}

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    replay::replay("weights", parse);
}
