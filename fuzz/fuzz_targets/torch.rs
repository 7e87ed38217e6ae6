//! Files of PyTorch: archives, pickles and what the two say together.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| fuzz::torch(bytes));
