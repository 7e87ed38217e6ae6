//! Parsers of untrusted bytes, for a fuzzer to call. Each has to come back, whatever the bytes are, without a panic and
//! without taking much more memory than they have.

use super::{
    Census, Split, SyntheticSettings, annotations, cache, cifar, gzip, idx, list, parquet, pattern, published, tar,
};
use crate::Image;
use crate::decode::{DecodeLimits, Decoder, decode_labels};
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
    published::parse_anything(bytes);
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

/// What a run remembers of its images, held against some.
pub fn census(bytes: &[u8]) {
    if let (Some(census), Ok(source)) =
        (Census::from_bytes(bytes), crate::open("synthetic:train=2,size=8", Split::Train, 0))
    {
        _ = census.changes(&*source).in_words();
    }
}

/// A pattern that stands for several files.
pub fn pattern(bytes: &[u8]) {
    pattern::read_text(&String::from_utf8_lossy(bytes));
}

/// A gzip file.
pub fn gzip(bytes: &[u8]) {
    _ = io::copy(&mut gzip::Gunzip::new(bytes), &mut io::sink());
}

/// Numbers of channels that networks ask for: each takes other ways through the decoders.
const CHANNELS: [usize; 3] = [3, 1, 4];

/// An image file, to every number of channels and as a map of labels. An image of 67 megapixels is allowed and would leave a fuzzer with one
/// input a second; that memory stays bounded up to there is what the tests of hostile files are for.
pub fn image(bytes: &[u8]) {
    let limits = DecodeLimits { pixels: 1 << 20, memory: 64 << 20, file_bytes: 5 << 20 };
    for channels in CHANNELS {
        _ = Decoder::new(limits, channels).decode(bytes, &mut Image::black(1, 1, channels));
    }
    _ = decode_labels(bytes, &limits);
}

/// An image file of one format: the bytes with its signature in front, which chance would hardly ever keep.
fn image_of(signature: &[u8], bytes: &[u8]) {
    let mut signed = bytes.to_vec();
    signed.resize(signed.len().max(signature.len()), 0);
    signed[..signature.len()].copy_from_slice(signature);
    image(&signed);
}

/// A JPEG file.
pub fn jpeg(bytes: &[u8]) {
    image_of(&[0xff, 0xd8, 0xff], bytes);
}

/// A PNG file.
pub fn png(bytes: &[u8]) {
    image_of(b"\x89PNG\r\n\x1a\n", bytes);
}

/// A WebP file. The length between the two parts of the signature is the fuzzer's own.
pub fn webp(bytes: &[u8]) {
    let mut signature = *b"RIFF\0\0\0\0WEBPVP8";
    signature[4..8].iter_mut().zip(bytes.iter().skip(4)).for_each(|(to, from)| *to = *from);
    image_of(&signature, bytes);
}

/// A GIF file.
pub fn gif(bytes: &[u8]) {
    image_of(b"GIF89a", bytes);
}

/// A BMP file.
pub fn bmp(bytes: &[u8]) {
    image_of(b"BM", bytes);
}

/// A TIFF file, in the byte order that its first byte says.
pub fn tiff(bytes: &[u8]) {
    let is_big_endian = bytes.first().is_some_and(|first| first & 1 == 1);
    image_of(if is_big_endian { b"MM\0*" } else { b"II*\0" }, bytes);
}

/// The settings of made-up images.
pub fn synthetic(bytes: &[u8]) {
    _ = SyntheticSettings::parse(&String::from_utf8_lossy(bytes), 0);
}
