//! Text lists of images, as .txt, .csv and .tsv.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::PARSER), |bytes: &[u8]| data::source::fuzz::list(bytes));
