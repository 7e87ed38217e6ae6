//! Parquet files: footer, pages, codecs, values, labels.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::parquet(bytes));
