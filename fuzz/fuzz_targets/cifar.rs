//! CIFAR-10 and CIFAR-100 files.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::cifar(bytes));
