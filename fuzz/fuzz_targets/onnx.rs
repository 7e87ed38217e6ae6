//! ONNX files, read, written again and run.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| fuzz::onnx::parse(bytes));
