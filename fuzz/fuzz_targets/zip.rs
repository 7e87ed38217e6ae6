//! Directories of zip archives, and the places of their entries.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| files::fuzz::zip(bytes));
