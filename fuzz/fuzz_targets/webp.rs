//! WebP files: the decoder is that of others; that none of its panics gets out is ours.
#![no_main]

libfuzzer_sys::fuzz_target!(init: fuzz::prepare(fuzz::IMAGE), |bytes: &[u8]| {
    // The length between the two parts of the signature is the fuzzer's own.
    let mut signature = *b"RIFF\0\0\0\0WEBPVP8";
    signature[4..8].iter_mut().zip(bytes.iter().skip(4)).for_each(|(to, from)| *to = *from);
    data::source::fuzz::image_of(&signature, bytes)
});
