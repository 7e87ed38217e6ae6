//! Files of every format against Pillow, and files that are out to do harm.
//!
//! The files and checksums come from tools/oracle/decode_fixtures.py.

mod support;

use data::decode::{DecodeError, DecodeLimits, Decoder, decode};
use std::collections::BTreeMap;
use support::{bmp, crc32, fixtures};

fn read(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join("decode").join(name)).unwrap()
}

/// {file name: [width, height, checksum]}
fn expected() -> BTreeMap<String, [u64; 3]> {
    let expected: BTreeMap<String, [u64; 3]> = serde_json::from_slice(&read("expected.json")).unwrap();
    assert!(expected.len() >= 40);
    expected
}

fn decode_default(bytes: &[u8]) -> Result<data::Image, DecodeError> {
    decode(bytes, &DecodeLimits::default())
}

#[test]
fn every_format_decodes_to_the_bytes_of_pillow() {
    let mut wrong = Vec::new();
    for (name, expected) in expected() {
        match decode_default(&read(&name)) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(image) => {
                let got = [image.width as u64, image.height as u64, crc32(&image.pixels)];
                if got != expected {
                    wrong.push(format!("{name}: {got:?} is not {expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_kind_that_is_not_supported_is_refused_in_so_many_words() {
    let error = decode_default(&read("palette.tif")).unwrap_err();
    assert!(matches!(error, DecodeError::Unsupported { format: "TIFF", .. }), "{error}");
    assert!(error.to_string().contains("convert it"));
}

#[test]
fn a_tiff_of_jpeg_data_is_decoded() {
    let image = decode_default(&read("jpeg.tif")).unwrap();
    assert_eq!((image.width, image.height), (23, 14));
}

#[test]
fn what_is_not_an_image_is_called_that() {
    for bytes in [&b""[..], b"B", b"hello, world", b"\x7fELF\x02\x01\x01", b"RIFF\0\0\0\0AVI ", b"<svg/>"] {
        let error = decode_default(bytes).unwrap_err();
        assert!(!matches!(error, DecodeError::Unsupported { .. }), "{error}");
        assert!(bytes.len() < 2 || matches!(error, DecodeError::UnknownFormat { .. }), "{error}");
    }
}

#[test]
fn a_truncated_jpeg_is_an_error_as_in_pillow() {
    for name in ["baseline-420.jpg", "progressive-444.jpg", "gray.jpg", "restart.jpg", "cmyk.jpg"] {
        let whole = read(name);
        for share in [30, 60, 80, 95] {
            let error = decode_default(&whole[..whole.len() * share / 100]).unwrap_err();
            let said = matches!(error, DecodeError::Truncated { .. } | DecodeError::Damaged { .. });
            assert!(said, "{name} at {share} %: {error}");
        }
    }
}

#[test]
fn half_a_file_of_any_format_is_called_cut_short() {
    for name in ["rgb.png", "palette.gif", "rgb.bmp", "rgb.tiff", "lossless.webp", "lossy.webp", "baseline-420.jpg"] {
        let whole = read(name);
        for length in [16, whole.len() / 2] {
            let error = decode_default(&whole[..length]).unwrap_err();
            // The directory of a TIFF may be at its end, and without it there is nothing to go by.
            let is_said = matches!(error, DecodeError::Truncated { .. }) || name == "rgb.tiff";
            assert!(is_said, "{name}, {length} of {} bytes: {error}", whole.len());
        }
    }
}

/// Overwrites bytes at a place.
fn patched(mut bytes: Vec<u8>, at: usize, with: &[u8]) -> Vec<u8> {
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn a_header_that_claims_60000_by_60000_pixels_is_refused_before_memory_is_taken() {
    let side = 60_000u32;
    let jpeg = read("baseline-420.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap() + 5;
    let progressive = read("progressive-420.jpg");
    let progressive_frame = progressive.windows(2).position(|w| w == [0xff, 0xc2]).unwrap() + 5;
    let (low, high) = (side as u16, side);
    let jpeg_size = [low.to_be_bytes(), low.to_be_bytes()].concat();
    let files = [
        ("JPEG", patched(jpeg, frame, &jpeg_size)),
        ("progressive JPEG", patched(progressive, progressive_frame, &jpeg_size)),
        ("PNG", png_header(side, side)),
        ("BMP", patched(bmp(4, 4, [1, 2, 3]), 18, &[high.to_le_bytes(), high.to_le_bytes()].concat())),
        ("GIF", patched(read("palette.gif"), 6, &[low.to_le_bytes(), low.to_le_bytes()].concat())),
    ];
    for (name, bytes) in files {
        let error = decode_default(&bytes).unwrap_err();
        let refused = matches!(error, DecodeError::TooManyPixels { width: 60_000, height: 60_000, .. });
        assert!(refused, "{name}: {error}");
    }
    // The strips of this one contradict the claim, which is noticed even earlier.
    assert!(decode_default(&tiff_of(side)).is_err());
}

/// A PNG that ends after its header.
fn png_header(width: u32, height: u32) -> Vec<u8> {
    let mut header = b"IHDR".to_vec();
    header.extend([width.to_be_bytes(), height.to_be_bytes()].concat());
    header.extend([8, 2, 0, 0, 0]);
    let crc = crc32(&header) as u32;
    [b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec(), header, crc.to_be_bytes().to_vec(), b"\0\0\0\0IDAT".to_vec()].concat()
}

/// The fixture rgb.tiff with its size entries (tags 256 and 257) rewritten.
fn tiff_of(side: u32) -> Vec<u8> {
    let mut bytes = read("rgb.tiff");
    let directory = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let entries = u16::from_le_bytes(bytes[directory..directory + 2].try_into().unwrap());
    for entry in 0..usize::from(entries) {
        let at = directory + 2 + entry * 12;
        let tag = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        if tag == 256 || tag == 257 {
            // A long instead of whatever it was.
            bytes = patched(bytes, at + 2, &4u16.to_le_bytes());
            bytes = patched(bytes, at + 8, &side.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn a_side_of_zero_is_an_error() {
    let jpeg = read("cmyk.jpg");
    let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap() + 5;
    for bytes in [patched(jpeg, frame, &[0; 4]), png_header(0, 5), patched(bmp(4, 4, [0; 3]), 18, &[0; 4])] {
        assert!(decode_default(&bytes).is_err());
    }
}

#[test]
fn limits_are_those_that_were_given() {
    let limits = DecodeLimits { pixels: 28 * 23, ..Default::default() };
    let error = decode(&read("baseline-420.jpg"), &limits).unwrap_err();
    assert!(matches!(error, DecodeError::TooManyPixels { limit: 644, .. }), "{error}");
    assert!(decode(&read("gray.jpg"), &limits).is_ok());
    for name in ["baseline-420.jpg", "rgb.png"] {
        let limits = DecodeLimits { memory: 400, ..Default::default() };
        let error = decode(&read(name), &limits).unwrap_err();
        assert!(matches!(error, DecodeError::TooMuchMemory { .. }), "{name}: {error}");
    }
}

#[test]
fn no_damage_gets_past_as_anything_but_an_error_or_an_image() {
    let limits = DecodeLimits { pixels: 1 << 20, memory: 64 << 20, ..Default::default() };
    // A panic inside a decoder is caught and becomes an error. Counting them keeps an eye on the decoders' health.
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let (mut images, mut errors, mut gave_up) = (0, 0, Vec::new());
    for (name, _) in expected() {
        let whole = read(&name);
        for round in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random() % 4 {
                let reach = if round % 2 == 0 { bytes.len() } else { bytes.len().min(200) };
                let at = random() % reach;
                bytes[at] = [0, 0xff, bytes[at] ^ (1 << (random() % 8)), random() as u8][random() % 4];
            }
            if round % 5 == 0 {
                bytes.truncate(random() % bytes.len());
            }
            match decode(&bytes, &limits) {
                Ok(image) => {
                    assert_eq!(image.pixels.len(), image.width * image.height * 3, "{name}");
                    images += 1;
                }
                Err(DecodeError::Damaged { reason, .. }) if reason.contains("gave up") => gave_up.push(name.clone()),
                Err(_) => errors += 1,
            }
        }
    }
    println!("{images} images, {errors} errors, caught panics: {gave_up:?}");
    assert!(images > 500 && errors > 500);
    assert!(gave_up.len() < 20, "{gave_up:?}");
}

#[test]
fn an_empty_file_is_called_empty() {
    let error = decode(&[], &DecodeLimits::default()).unwrap_err();
    assert_eq!(error.to_string(), "the file is empty");
}

/// An uncompressed TIFF of `bands` bands of 8 bits, one strip.
fn tiff(width: u16, height: u16, bands: u16) -> Vec<u8> {
    let pixels: Vec<u8> = (0..u32::from(width) * u32::from(height) * u32::from(bands)).map(|i| (i * 7) as u8).collect();
    let mut bytes = b"II\x2a\0\x08\0\0\0".to_vec();
    // Lists of one number for each band lie behind the directory, and the pixels behind those.
    let lists = 8 + 2 + 11 * 12 + 4;
    let data = lists + 2 * u32::from(bands) * 2;
    let (short, long) = (3u16, 4u16);
    let entries = [
        (256, short, 1, u32::from(width)),
        (257, short, 1, u32::from(height)),
        (258, short, u32::from(bands), lists),
        (259, short, 1, 1),
        (262, short, 1, 1),
        (273, long, 1, data),
        (277, short, 1, u32::from(bands)),
        (278, short, 1, u32::from(height)),
        (279, long, 1, pixels.len() as u32),
        (284, short, 1, 1),
        (338, short, u32::from(bands - 1), lists + 2 * u32::from(bands)),
    ];
    bytes.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        bytes.extend((tag as u16).to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(u32::to_le_bytes(count));
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend([0; 4]);
    (0..bands).for_each(|_| bytes.extend(8u16.to_le_bytes()));
    (0..bands).for_each(|_| bytes.extend(0u16.to_le_bytes()));
    bytes.extend(pixels);
    bytes
}

#[test]
fn any_number_of_channels_can_be_asked_for() {
    let decode_to = |bytes: &[u8], channels| {
        let mut image = data::Image::black(1, 1, 1);
        Decoder::new(DecodeLimits::default(), channels).decode(bytes, &mut image).map(|()| image)
    };
    let bands = tiff(4, 3, 5);
    let image = decode_to(&bands, 5).unwrap();
    assert_eq!((image.width, image.height, image.channels), (4, 3, 5));
    assert_eq!(image.pixels[..6], [0, 7, 14, 21, 28, 35]);
    assert!(matches!(decode_to(&bands, 7), Err(DecodeError::Channels { have: 5, want: 7, .. })));
    for cut in 0..bands.len() {
        _ = decode_to(&bands[..cut], 5);
    }

    let rgba = decode_to(&read("rgba.png"), 4).unwrap();
    let rgb = decode_default(&read("rgba.png")).unwrap();
    assert_eq!(rgba.pixels.as_chunks::<4>().0[7][..3], rgb.pixels[21..24]);
    for name in ["rgb.png", "baseline-420.jpg", "cmyk.jpg", "gray.jpg", "gray.png"] {
        let gray = decode_to(&read(name), 1).unwrap();
        let mut rgb = decode_default(&read(name)).unwrap();
        data::augment::grayscale(&mut rgb);
        let first: Vec<u8> = rgb.pixels.iter().step_by(3).copied().collect();
        assert_eq!((gray.channels, gray.pixels), (1, first), "{name}");
    }
    let error = decode_to(&read("rgb.png"), 4).unwrap_err();
    assert_eq!(error.to_string(), "PNG data with 3 channel(s) where 4 are wanted");
}
