//! Files of at most 5 MB that are out to take memory: each ends as an image or as an error within 512 MiB, a progressive JPEG
//! of more than 2 MB within 800.
//!
//! One test alone in its program, because it counts the memory of the whole of it.

#[path = "../../files/tests/counting/mod.rs"]
mod counting;
mod support;

use data::decode::{DecodeError, DecodeLimits, Decoder};
use data::{Image, Orientation};
use flate2::{Compression, write::ZlibEncoder};
use std::io::Write;
use std::time::Instant;
use support::{crc32, fixtures};

const MIB: usize = 1 << 20;
const ALLOWED: usize = 512 * MIB;

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("decode").join(name)).unwrap()
}

/// Deflate data of this many MiB of zeros.
fn zeros(mib: usize) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    (0..mib).for_each(|_| encoder.write_all(&vec![0; MIB]).unwrap());
    encoder.finish().unwrap()
}

/// A PNG of zeros with some chunks of its own before the image.
fn png(
    (width, height): (u32, u32),
    depth: u8,
    color: u8,
    interlaced: bool,
    before: &[(&[u8; 4], Vec<u8>)],
    data: Vec<u8>,
) -> Vec<u8> {
    let header =
        [width.to_be_bytes().to_vec(), height.to_be_bytes().to_vec(), vec![depth, color, 0, 0, interlaced.into()]];
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let chunks = [(b"IHDR", header.concat())].into_iter().chain(before.iter().cloned());
    for (name, body) in chunks.chain([(b"IDAT", data), (b"IEND", Vec::new())]) {
        let named = [&name[..], &body].concat();
        bytes.extend((body.len() as u32).to_be_bytes());
        bytes.extend(&named);
        bytes.extend((crc32(&named) as u32).to_be_bytes());
    }
    bytes
}

fn riff(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    for (name, content) in chunks {
        body.extend(*name);
        body.extend((content.len() as u32).to_le_bytes());
        body.extend(content);
        body.resize(body.len() + content.len() % 2, 0);
    }
    [b"RIFF".to_vec(), (body.len() as u32).to_le_bytes().to_vec(), body].concat()
}

fn extended(flags: u8, width: u32, height: u32) -> Vec<u8> {
    let side = |n: u32| (n - 1).to_le_bytes()[..3].to_vec();
    [vec![flags, 0, 0, 0], side(width), side(height)].concat()
}

/// The lossy frame of a fixture with another size in its header.
fn lossy(width: u16, height: u16) -> Vec<u8> {
    let mut frame = read("lossy.webp")[20..].to_vec();
    frame[6..8].copy_from_slice(&width.to_le_bytes());
    frame[8..10].copy_from_slice(&height.to_le_bytes());
    frame
}

fn lossless(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels = vec![0; (width * height * 4) as usize];
    image::codecs::webp::WebPEncoder::new_lossless(&mut bytes)
        .encode(&pixels, width, height, image::ExtendedColorType::Rgba8)
        .unwrap();
    bytes
}

/// A fixture with another size in its frame header, and its last scan as often as wanted.
fn jpeg(name: &str, marker: u8, width: u16, height: u16, scans: usize) -> Vec<u8> {
    let mut bytes = read(name);
    let frame = bytes.windows(2).position(|w| w == [0xff, marker]).unwrap() + 5;
    bytes[frame..frame + 2].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 2..frame + 4].copy_from_slice(&width.to_be_bytes());
    let last = bytes.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap();
    let scan = bytes[last..bytes.len() - 2].to_vec();
    let end = bytes.split_off(bytes.len() - 2);
    (1..scans).for_each(|_| bytes.extend(&scan));
    [bytes, end].concat()
}

fn gif(screen: u16, frame: u16) -> Vec<u8> {
    let two = |n: u16| [n.to_le_bytes(), n.to_le_bytes()].concat();
    let start =
        [b"GIF89a".to_vec(), two(screen), vec![0x80, 0, 0, 0, 0, 0, 255, 255, 255, 0x2c, 0, 0, 0, 0], two(frame)];
    [start.concat(), vec![0, 2, 2, 0x4c, 1, 0, 0x3b]].concat()
}

/// A BMP of 8 bits in run lengths, with next to no data.
fn bmp(side: u32) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for field in [1082, 0, 1078, 40, side, side, 8 << 16 | 1, 1, 4, 2835, 2835, 256, 0] {
        bytes.extend(u32::to_le_bytes(field));
    }
    bytes.resize(1078, 7);
    bytes.extend([9, 1, 0, 1]);
    bytes
}

/// A grey TIFF whose strips, one for each 64 rows, are all the same deflate data of zeros.
fn tiff(side: u16) -> Vec<u8> {
    let strip = {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&vec![0; usize::from(side) * 64]).unwrap();
        encoder.finish().unwrap()
    };
    let strips = u32::from(side).div_ceil(64);
    let (lists, count) = (8 + 2 + 9 * 12 + 4, 9u16);
    let data = lists + strips * 8;
    let entries: [(u16, u16, u32, u32); 9] = [
        (256, 3, 1, side.into()),
        (257, 3, 1, side.into()),
        (258, 3, 1, 8),
        (259, 3, 1, 8),
        (262, 3, 1, 1),
        (273, 4, strips, lists),
        (277, 3, 1, 1),
        (278, 3, 1, 64),
        (279, 4, strips, lists + strips * 4),
    ];
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    bytes.extend(count.to_le_bytes());
    for (tag, kind, count, value) in entries {
        bytes.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        bytes.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    bytes.extend([0; 4]);
    (0..strips).for_each(|_| bytes.extend(data.to_le_bytes()));
    (0..strips).for_each(|_| bytes.extend((strip.len() as u32).to_le_bytes()));
    bytes.extend(strip);
    bytes
}

/// The orientation that takes a second buffer.
fn turned(png: Vec<u8>) -> Vec<u8> {
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0".to_vec();
    let named = [b"eXIf".to_vec(), exif.clone()].concat();
    let chunk =
        [(exif.len() as u32).to_be_bytes().to_vec(), named.clone(), (crc32(&named) as u32).to_be_bytes().to_vec()];
    [&png[..33], &chunk.concat(), &png[33..]].concat()
}

#[test]
fn no_file_of_five_megabytes_takes_more_than_512_mib() {
    let bomb = |keyword: &[u8]| [keyword, &zeros(700)].concat();
    let one = |chunk: (&'static [u8; 4], Vec<u8>)| {
        png((1, 1), 8, 2, false, &[chunk], {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
            encoder.write_all(&[0; 4]).unwrap();
            encoder.finish().unwrap()
        })
    };
    // Name, file, and whether it is an image.
    let files: Vec<(&str, Vec<u8>, bool)> = vec![
        ("PNG with a colour profile of 700 MiB", one((b"iCCP", bomb(b"x\0\0"))), true),
        ("PNG with a text of 700 MiB", one((b"zTXt", bomb(b"x\0\0"))), true),
        ("PNG with an international text of 700 MiB", one((b"iTXt", bomb(b"x\0\x01\0\0\0"))), true),
        ("PNG with 700 MiB behind its one pixel", png((1, 1), 8, 2, false, &[], zeros(700)), true),
        ("PNG of 64 megapixels", png((8000, 8000), 8, 2, false, &[], zeros(184)), true),
        ("PNG of 64 megapixels, turned", turned(png((8000, 8000), 8, 2, false, &[], zeros(184))), true),
        ("PNG of 64 megapixels, interlaced", png((8000, 8000), 8, 2, true, &[], zeros(184)), true),
        ("PNG of 64 megapixels with alpha", png((8000, 8000), 8, 6, false, &[], zeros(245)), true),
        ("PNG of 64 megapixels, 1 bit, interlaced", png((8000, 8000), 1, 0, true, &[], zeros(8)), true),
        ("PNG of 64 megapixels in 64 bits each", png((8000, 8000), 16, 6, false, &[], zeros(489)), false),
        ("PNG of 256 megapixels", png((16_000, 16_000), 8, 0, false, &[], zeros(245)), false),
        ("PNG of rows of one pixel", png((1, 1 << 25), 8, 2, false, &[], zeros(128)), false),
        ("PNG of one row", png((1 << 26, 1), 16, 6, true, &[], zeros(513)), false),
        ("PNG that cannot hold its size", png((8000, 8000), 8, 6, false, &[], zeros(1)), false),
        ("WebP of 30 bytes with a huge canvas", riff(&[(b"VP8X", extended(0, 16_384, 16_384))]), false),
        ("WebP of 30 bytes with a large canvas", riff(&[(b"VP8X", extended(0, 8000, 8000))]), false),
        (
            "WebP animation of a large canvas",
            riff(&[
                (b"VP8X", extended(0x12, 8000, 8000)),
                (b"ANIM", vec![0; 6]),
                (b"ANMF", [vec![0; 16], riff(&[(b"VP8 ", lossy(8000, 8000))])[12..].to_vec()].concat()),
            ]),
            false,
        ),
        (
            "WebP with a frame larger than its canvas",
            riff(&[(b"VP8X", extended(0, 31, 22)), (b"VP8 ", lossy(16_383, 16_383))]),
            false,
        ),
        ("WebP, lossy, that ends early", riff(&[(b"VP8 ", lossy(8000, 8000))]), false),
        ("WebP, lossless, of 36 megapixels", lossless(6000, 6000), true),
        ("GIF of a huge screen", gif(u16::MAX, 1), false),
        ("GIF with a frame larger than its screen", gif(1, u16::MAX), false),
        ("GIF with a large frame", gif(1, 11_000), false),
        ("GIF of 64 megapixels", gif(8000, 8000), false),
        ("BMP of 64 megapixels in 1 KB", bmp(8000), true),
        ("TIFF whose strips are all the same data", tiff(8000), true),
        (
            "TIFF with a strip of a huge JPEG",
            {
                let mut bytes = read("jpeg.tif");
                let frame = bytes.windows(2).position(|w| w == [0xff, 0xc0]).unwrap() + 5;
                bytes[frame..frame + 4].copy_from_slice(&[16_000u16.to_be_bytes(), 16_000u16.to_be_bytes()].concat());
                bytes
            },
            false,
        ),
        ("JPEG of 64 megapixels that ends early", jpeg("baseline-420.jpg", 0xc0, 8000, 8000, 1), false),
        ("progressive JPEG of 64 megapixels", jpeg("progressive-444.jpg", 0xc2, 8000, 8000, 1), false),
        ("progressive JPEG of 500 scans", jpeg("progressive-444.jpg", 0xc2, 6000, 6000, 500), false),
        ("progressive JPEG of 15 scans", jpeg("progressive-444.jpg", 0xc2, 6000, 6000, 6), false),
        ("JPEG of the largest size", jpeg("progressive-444.jpg", 0xc2, 65_500, 65_500, 1), false),
    ];
    let mut wrong = Vec::new();
    for (name, bytes, is_image) in files {
        assert!(bytes.len() <= 5_000_000, "{name}: {} bytes", bytes.len());
        for channels in [3, 1] {
            let (start, mut image) = (Instant::now(), Image::black(1, 1, channels));
            let (decoded, taken) = counting::most_of(|| {
                let mut decoder = Decoder::new(DecodeLimits::default(), channels).oriented(Orientation::Upright);
                decoder.decode(&bytes, &mut image)
            });
            let taken = taken + bytes.len();
            let said = decoded.as_ref().map_or_else(DecodeError::to_string, |()| format!("{image:?}"));
            println!("{:4} MiB {:4.1} s  {name}: {said}", taken / MIB, start.elapsed().as_secs_f64());
            if taken > ALLOWED || decoded.is_ok() != is_image {
                wrong.push(format!("{name}: {} MiB, {said}", taken / MIB));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    // A progressive JPEG of some megabytes may be a photograph of 50 megapixels. This one ends early.
    let comments = [&[0xff, 0xfe, 0xff, 0xff][..], &vec![b'x'; 65_533]].concat().repeat(76);
    let start = jpeg("progressive-444.jpg", 0xc2, 8000, 8000, 1);
    let large = [&start[..2], &comments, &start[2..]].concat();
    assert!(large.len() <= 5_000_000);
    let mut image = Image::black(1, 1, 3);
    let (error, taken) =
        counting::most_of(|| Decoder::new(DecodeLimits::default(), 3).decode(&large, &mut image).unwrap_err());
    let taken = (taken + large.len()) / MIB;
    assert!(!matches!(error, DecodeError::TooMuchMemory { .. }) && taken < 800, "{taken} MiB, {error}");
    drop(image);

    // The buffers of a large image are not kept for good.
    let (mut decoder, mut image) = (Decoder::new(DecodeLimits::default(), 3), Image::black(1, 1, 3));
    let before = counting::now();
    decoder.decode(&png((8000, 8000), 8, 6, false, &[], zeros(245)), &mut image).unwrap();
    assert!(counting::now() - before > 256 * MIB);
    decoder.decode(&read("rgb.png"), &mut image).unwrap();
    let kept = counting::now() - before;
    assert!(kept < MIB, "{} MiB are kept after a small image", kept / MIB);
}
