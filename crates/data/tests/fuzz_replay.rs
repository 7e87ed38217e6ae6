//! What the fuzzer has found so far, once more: every input of fuzz/corpus for a parser of this crate, and changed ones. The
//! corpora `weights`, `pickle` and `zip`, `recipe`, and `study` are replayed by the crates `files`, `ssl` and `study`, which
//! have their parsers.
//!
//! A panic fails the test. That the changes are the same each time is the point: this is a guard, not a search; the
//! search is `tools/fuzz`.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use data::source::fuzz;
use random::{Key, Purpose, Stream};
use replay::folder;

/// Changed inputs for every one in the corpus.
const CHANGED: usize = 60;

/// Changed inputs grow no longer than this.
const LONGEST: usize = 16 << 10;

type Parse = fn(&[u8]);

/// Runs the corpus of a target.
fn replay(target: &str, parse: Parse) {
    let inputs = replay::corpus(target);
    for (number, (path, input)) in inputs.iter().enumerate() {
        println!("{}", path.display());
        parse(input);
        let mut random = Key::new(0, Purpose::Bench).sample(number as u64).stream();
        for _ in 0..CHANGED {
            let (_, other) = &inputs[random.below(inputs.len() as u64) as usize];
            let mut changed = input.clone();
            (0..=random.below(4)).for_each(|_| change(&mut changed, other, &mut random));
            parse(&changed);
        }
    }
}

/// Changes an input in one place.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Stream) {
    let mut below = |n: usize| random.below(n.max(1) as u64) as usize;
    let at = below(bytes.len() + 1);
    let end = (at + 1 + below(16)).min(bytes.len());
    match below(7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << below(8),
        1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'{', b','][below(8)],
        // Numbers as files have them, at their limits.
        2 if at + 4 <= bytes.len() => {
            let number = [0u32, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x0100_0000][below(6)];
            bytes[at..at + 4].copy_from_slice(&[number.to_le_bytes(), number.to_be_bytes()][below(2)]);
        }
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let again = bytes[at..end].repeat(1 + below(4));
            bytes.splice(at..at, again);
        }
        _ => {
            let from = below(other.len());
            bytes.splice(at..end, other[from..(from + 1 + below(64)).min(other.len())].iter().copied());
        }
    }
    bytes.truncate(LONGEST);
}

#[test]
fn tar_archives() {
    replay("tar", fuzz::tar);
}

#[test]
fn censuses() {
    replay("census", fuzz::census);
}

#[test]
fn text_lists() {
    replay("list", fuzz::list);
}

#[test]
fn idx_files() {
    replay("idx", fuzz::idx);
}

#[test]
fn cifar_files() {
    replay("cifar", fuzz::cifar);
}

#[test]
fn parquet_files() {
    replay("parquet", fuzz::parquet);
}

#[test]
fn entries_of_the_cache() {
    replay("cache", fuzz::cache);
}

#[test]
fn patterns() {
    replay("pattern", fuzz::pattern);
}

#[test]
fn images() {
    replay("image", fuzz::image);
}

#[test]
fn synthetic_settings() {
    replay("synthetic", fuzz::synthetic);
}

#[test]
fn gzip_files() {
    replay("gzip", fuzz::gzip);
}

/// Decoders of single formats share their seeds, the images of all formats; some have found more.
const DECODERS: [(&str, Parse); 6] = [
    ("jpeg", fuzz::jpeg),
    ("png", fuzz::png),
    ("webp", fuzz::webp),
    ("gif", fuzz::gif),
    ("bmp", fuzz::bmp),
    ("tiff", fuzz::tiff),
];

#[test]
fn images_of_single_formats() {
    for (target, decode) in DECODERS {
        if folder(target).is_dir() {
            replay(target, decode);
        }
    }
}

#[test]
fn images_that_claim_to_be_of_another_format() {
    for (_, decode) in DECODERS {
        for entry in std::fs::read_dir(folder("image")).unwrap() {
            decode(&std::fs::read(entry.unwrap().path()).unwrap());
        }
    }
    replay("image", fuzz::tiff);
    replay("image", fuzz::bmp);
}

#[test]
fn every_corpus_is_replayed_somewhere() {
    let here = ["tar", "list", "idx", "cifar", "parquet", "cache", "census", "pattern", "image", "synthetic", "gzip"];
    let elsewhere = ["weights", "recipe", "study", "pickle", "zip", "torch", "onnx", "npy", "csv", "table"];
    for entry in std::fs::read_dir(folder("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = here.iter().chain(&elsewhere).copied().chain(DECODERS.map(|(target, _)| target));
        assert!(known.into_iter().any(|target| target == name), "fuzz/corpus/{name} is not replayed");
    }
}
