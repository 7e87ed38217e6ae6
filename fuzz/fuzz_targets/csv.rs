//! Tables as text.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| files::fuzz::csv(bytes));
