//! Finds the EXIF data of a file, and the orientation in it.
//!
//! Only headers are looked at, each once, and a file without EXIF data costs no more than a few of them. Whatever is
//! malformed counts as not being there: a photograph is not lost for a wrong tag.

use image::metadata::Orientation;

/// Before the data in a JPEG; some programs also write it elsewhere.
const PREFIX: &[u8] = b"Exif\0\0";

/// The orientation that EXIF data has: 1 to 8.
pub(super) fn orientation(exif: &[u8]) -> Option<u8> {
    let exif = exif.strip_prefix(PREFIX).unwrap_or(exif);
    Orientation::from_exif_chunk(exif).map(Orientation::to_exif)
}

/// The first EXIF segment of a JPEG.
pub(super) fn of_jpeg(bytes: &[u8]) -> Option<&[u8]> {
    const EXIF: u8 = 0xe1;
    segments(bytes).find(|(marker, body)| *marker == EXIF && body.starts_with(PREFIX)).map(|(_, body)| body)
}

/// The segments of a JPEG with their markers, up to where the compressed data begins.
pub(super) fn segments(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    const SCAN: u8 = 0xda;
    const END: u8 = 0xd9;
    let mut rest = bytes.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            // Any number of 0xff may stand before a marker.
            let (&0xff, after) = rest.split_first()? else { return None };
            let (&marker, after) = after.split_first()?;
            match marker {
                0xff => rest = &rest[1..],
                SCAN | END => return None,
                // Markers without a length.
                0x01 | 0xd0..=0xd8 => rest = after,
                _ => {
                    let length = usize::from(u16::from_be_bytes(*after.first_chunk()?));
                    let body = after.get(2..length)?;
                    rest = &after[length..];
                    return Some((marker, body));
                }
            }
        }
    })
}

/// The EXIF chunk of a PNG, which may lie behind the image.
pub(super) fn of_png(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        match name {
            b"eXIf" => return after.get(..length),
            b"IEND" => return None,
            // Behind the chunk stands a checksum.
            _ => rest = after.get(length.checked_add(4)?..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EXIF data with an orientation and an entry before it, in either byte order.
    fn data(orientation: u16, big_endian: bool) -> Vec<u8> {
        let short = |n: u16| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let long = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let mut data = if big_endian { b"MM\0\x2a".to_vec() } else { b"II\x2a\0".to_vec() };
        data.extend(long(8));
        data.extend(short(2));
        for (tag, value) in [(0x100, 77), (0x112, orientation)] {
            data.extend([short(tag), short(3)].concat());
            data.extend(long(1));
            data.extend([short(value), short(0)].concat());
        }
        data.extend(long(0));
        data
    }

    fn jpeg(segments: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xff, 0xd8];
        for (marker, body) in segments {
            bytes.extend([0xff, *marker]);
            bytes.extend((body.len() as u16 + 2).to_be_bytes());
            bytes.extend(*body);
        }
        bytes
    }

    #[test]
    fn both_byte_orders_are_read_with_and_without_the_prefix() {
        for big_endian in [false, true] {
            for value in 1..=8 {
                let data = data(value, big_endian);
                assert_eq!(orientation(&data), Some(value as u8));
                assert_eq!(orientation(&[PREFIX, &data].concat()), Some(value as u8));
            }
            assert_eq!(orientation(&data(0, big_endian)), None);
            assert_eq!(orientation(&data(9, big_endian)), None);
            assert_eq!(orientation(&data(0x600, big_endian)), None);
        }
    }

    #[test]
    fn the_segment_is_found_behind_others_and_not_inside_the_compressed_data() {
        let exif = [PREFIX, &data(6, true)].concat();
        let found = |bytes: &[u8]| of_jpeg(bytes).and_then(orientation);
        assert_eq!(found(&jpeg(&[(0xe0, b"JFIF\0"), (0xe1, b"http://ns.adobe"), (0xe1, &exif)])), Some(6));
        assert_eq!(found(&jpeg(&[(0xda, b"scan"), (0xe1, &exif)])), None);
        assert_eq!(found(&jpeg(&[(0xe0, &exif)])), None);
    }

    #[test]
    fn no_length_and_no_end_leads_astray() {
        let exif = [PREFIX, &data(6, false)].concat();
        let whole = jpeg(&[(0xe0, b"JFIF\0"), (0xe1, &exif)]);
        let mut chunk = b"\x89PNG\r\n\x1a\n".to_vec();
        for (name, body) in [(b"IHDR", &[0u8; 13][..]), (b"eXIf", &data(6, false)), (b"IEND", b"")] {
            chunk.extend((body.len() as u32).to_be_bytes());
            chunk.extend(name);
            chunk.extend(body);
            chunk.extend([0; 4]);
        }
        assert_eq!(of_png(&chunk).and_then(orientation), Some(6));
        for bytes in [whole, chunk] {
            for cut in 0..bytes.len() {
                _ = of_jpeg(&bytes[..cut]).and_then(orientation);
                _ = of_png(&bytes[..cut]).and_then(orientation);
            }
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bytes = bytes.clone();
                    bytes[at] = value;
                    _ = of_jpeg(&bytes).and_then(orientation);
                    _ = of_png(&bytes).and_then(orientation);
                }
            }
        }
        // A length of less than its own two bytes.
        assert_eq!(of_jpeg(b"\xff\xd8\xff\xe0\0\0\xff\xe0\0\0"), None);
    }
}
