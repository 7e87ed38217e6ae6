//! Patterns that stand for several files: braces, stars, question marks.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::pattern(bytes));
