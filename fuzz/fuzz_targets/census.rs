//! What a run remembers of its images.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::census(bytes));
