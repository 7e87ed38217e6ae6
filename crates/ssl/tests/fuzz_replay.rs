//! What the fuzzer has found so far, once more: every input of fuzz/corpus/recipe. A panic fails the test.

use std::path::Path;

fn parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    _ = ssl::recipe::RawRecipe::from_toml(text, "recipe.toml").map_err(|error| error.to_string());
    _ = ssl::recipe::Recipe::from_toml(text, "config.toml").map_err(|error| error.to_string());
}

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recipe");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        parse(&std::fs::read(&path).unwrap());
        inputs += 1;
    }
    assert!(inputs > 0, "{}: the corpus is empty", folder.display());
}
