//! Headers of safetensors files: weights, checkpoints, features.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| fuzz::weights(bytes));
