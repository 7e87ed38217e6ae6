//! What the fuzzer has found so far, once more: every input of fuzz/corpus/weights. A panic fails the test.

use std::path::Path;

fn parse(bytes: &[u8]) {
    _ = files::safetensors::Header::read(&mut &bytes[..], bytes.len() as u64);
}

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/weights");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        parse(&std::fs::read(&path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{}: the corpus is empty", folder.display());
}
