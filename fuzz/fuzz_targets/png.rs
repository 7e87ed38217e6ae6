//! PNG files: the decoder is that of others; that none of its panics gets out is ours.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::IMAGE), |bytes: &[u8]| data::source::fuzz::png(bytes));
