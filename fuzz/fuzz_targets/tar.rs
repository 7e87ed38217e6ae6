//! Tar archives: headers of all dialects, records, samples, classes.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::tar(bytes));
