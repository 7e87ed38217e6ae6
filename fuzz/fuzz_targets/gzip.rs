//! Gzip files, plain and in several members.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::gzip(bytes));
