//! Tables of features in parquet.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| files::fuzz::table(bytes));
