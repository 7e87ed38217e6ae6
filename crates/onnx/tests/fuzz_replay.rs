//! What the fuzzer has found so far, once more: every input of fuzz/corpus/onnx. A panic fails the test.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/src/onnx.rs"]
mod target;

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    replay::replay("onnx", target::parse);
}
