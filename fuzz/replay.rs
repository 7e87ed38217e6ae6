//! The inputs that the fuzzer has found so far, for tests that give them to a parser once more. Included by the tests of the
//! crates whose parsers are fuzzed.

use std::path::{Path, PathBuf};

/// Where the inputs of a target are.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The inputs of a target, sorted by name. There is at least one.
pub fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = folder(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{}: the corpus is empty", folder.display());
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Gives each input to a parser, and says which it is: the last one that is named made it panic.
#[allow(dead_code, reason = "the tests of some crates change the inputs as well")]
pub fn replay(target: &str, parse: impl Fn(&[u8])) {
    for (path, input) in corpus(target) {
        println!("{}", path.display());
        parse(&input);
    }
}
