//! Arrays of NumPy in files of their own.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| files::fuzz::npy(bytes));
