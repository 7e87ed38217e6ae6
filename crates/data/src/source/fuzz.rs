//! Parsers of untrusted bytes, for a fuzzer to call. Each has to come back, whatever the bytes are, without a panic and
//! without taking much more memory than they have.

use super::{SyntheticSettings, annotations, cache, cifar, gzip, idx, list, parquet, pattern, tar};
use crate::decode::{self, DecodeLimits};
use std::io;

/// A tar archive, as it is and with the checksums of headers put right, which chance would hardly ever do.
pub fn tar(bytes: &[u8]) {
    tar::index_bytes(bytes);
    let mut repaired = bytes.to_vec();
    repaired.chunks_exact_mut(512).filter(|block| block.iter().any(|&byte| byte != 0)).for_each(|block| {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    });
    tar::index_bytes(&repaired);
}

/// A text list, and the list of Tiny-ImageNet.
pub fn list(bytes: &[u8]) {
    list::parse_anything(bytes);
    annotations::parse_bytes(bytes);
}

/// An IDX file.
pub fn idx(bytes: &[u8]) {
    idx::index_bytes(bytes);
}

/// A CIFAR file.
pub fn cifar(bytes: &[u8]) {
    cifar::index_bytes(bytes);
}

/// A parquet file.
pub fn parquet(bytes: &[u8]) {
    parquet::index_bytes(bytes);
}

/// An index that was kept in the cache folder.
pub fn cache(bytes: &[u8]) {
    cache::read_bytes(bytes);
}

/// A pattern that stands for several files.
pub fn pattern(bytes: &[u8]) {
    pattern::read_text(&String::from_utf8_lossy(bytes));
}

/// A gzip file.
pub fn gzip(bytes: &[u8]) {
    _ = io::copy(&mut gzip::Gunzip::new(bytes), &mut io::sink());
}

/// An image file.
pub fn image(bytes: &[u8]) {
    _ = decode::decode(bytes, &DecodeLimits { pixels: 1 << 20, memory: 64 << 20, file_bytes: 5 << 20 });
}

/// An image file of one format: the bytes with its signature in front, which chance would hardly ever keep.
pub fn image_of(signature: &[u8], bytes: &[u8]) {
    let mut signed = bytes.to_vec();
    signed.resize(signed.len().max(signature.len()), 0);
    signed[..signature.len()].copy_from_slice(signature);
    image(&signed);
}

/// The settings of made-up images.
pub fn synthetic(bytes: &[u8]) {
    _ = SyntheticSettings::parse(&String::from_utf8_lossy(bytes), 0);
}
