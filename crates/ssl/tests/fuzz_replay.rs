//! What the fuzzer has found so far, once more: every input of fuzz/corpus/recipe. A panic fails the test.

#[path = "../../../fuzz/replay.rs"]
mod replay;

fn parse(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    _ = ssl::recipe::RawRecipe::from_toml(text, "recipe.toml").map_err(|error| error.to_string());
    _ = ssl::recipe::Recipe::from_toml(text, "config.toml").map_err(|error| error.to_string());
}

#[test]
fn the_corpus_is_parsed_without_a_panic() {
    replay::replay("recipe", parse);
}
