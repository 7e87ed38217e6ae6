//! Image files. The decoders are those of others; that none of their panics gets out is ours.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::IMAGE), |bytes: &[u8]| data::source::fuzz::image(bytes));
