//! Unpacking the pages of a parquet file: all codecs in plain Rust, none of them beyond the size that was announced.

use super::thrift::damage;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A page may always unpack to this size, whatever it was packed to. What many such pages come to is not counted here
/// but in [`super::budget`].
const FREE: usize = 4 << 20;

/// Beyond that, it may grow so many times. Images barely shrink when packed; a bomb does.
const MOST_FOLD: usize = 200;

/// The window that zstd takes at its highest ordinary level.
const ZSTD_WINDOW: usize = 8 << 20;

/// Appends what `packed` unpacks to, which has to be `size` bytes.
///
/// Unpacking is the only foreign code that a page goes through, and damaged data the most likely to make it hit a bounds
/// check; that is an error like others. Nobody looks at `out` after one.
pub(super) fn unpack(codec: i64, packed: &[u8], size: usize, out: &mut Vec<u8>) -> io::Result<()> {
    if size > FREE && size / MOST_FOLD > packed.len() {
        return Err(damage(format!("a page of {} bytes claims to unpack to {size}", packed.len())));
    }
    catch_unwind(AssertUnwindSafe(|| append(codec, packed, size, out)))
        .unwrap_or_else(|_| Err(damage("a page cannot be unpacked: the decoder gave up on it")))
}

fn append(codec: i64, packed: &[u8], size: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    let end = start + size;
    let name = match codec {
        0 => {
            out.extend_from_slice(packed);
            "plain"
        }
        1 => {
            if snap::raw::decompress_len(packed).ok() != Some(size) {
                return Err(damage("a Snappy page of another size than announced"));
            }
            out.resize(end, 0);
            snap::raw::Decoder::new()
                .decompress(packed, &mut out[start..])
                .map_err(|e| damage(format!("Snappy: {e}")))?;
            "Snappy"
        }
        2 => read("gzip", MultiGzDecoder::new(packed), size, out)?,
        6 => {
            let window = size.max(ZSTD_WINDOW) as u64;
            let decoder = StreamingDecoder::new_with_max_window_size(packed, window);
            read("zstd", decoder.map_err(|e| damage(format!("zstd: {e}")))?, size, out)?
        }
        7 => {
            out.resize(end, 0);
            let written = lz4_flex::block::decompress_into(packed, &mut out[start..]);
            out.truncate(start + written.map_err(|e| damage(format!("LZ4: {e}")))?);
            "LZ4"
        }
        other => {
            let name = match other {
                3 => "LZO",
                4 => "Brotli",
                5 => "the old LZ4 framing",
                _ => "an unknown codec",
            };
            return Err(damage(format!("packed with {name}; write it again with snappy, gzip, zstd or lz4_raw")));
        }
    };
    if out.len() != end {
        return Err(damage(format!("a {name} page of {} bytes, where {size} were announced", out.len() - start)));
    }
    Ok(())
}

/// Reads to the end, and at most a byte more than there should be.
fn read(name: &'static str, from: impl Read, size: usize, out: &mut Vec<u8>) -> io::Result<&'static str> {
    out.reserve_exact(size + 1);
    from.take(size as u64 + 1).read_to_end(out).map_err(|error| damage(format!("{name}: {error}")))?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_codec_gives_back_what_went_in_and_no_byte_more() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i / 77) as u8).collect();
        let packed = [
            (0, bytes.clone()),
            (1, snap::raw::Encoder::new().compress_vec(&bytes).unwrap()),
            (2, gzip(&bytes)),
            (6, ruzstd::encoding::compress_to_vec(&bytes[..], ruzstd::encoding::CompressionLevel::Fastest)),
            (7, lz4_flex::block::compress(&bytes)),
        ];
        for (codec, packed) in packed {
            let mut out = b"levels".to_vec();
            unpack(codec, &packed, bytes.len(), &mut out).unwrap();
            assert_eq!(out, [b"levels", &bytes[..]].concat(), "codec {codec}");
            for size in [0, 1, bytes.len() - 1, bytes.len() + 1, 2 * bytes.len()] {
                let mut out = Vec::new();
                assert!(unpack(codec, &packed, size, &mut out).is_err(), "codec {codec}, size {size}");
                assert!(out.len() <= size.max(bytes.len()) + 1);
            }
            for end in 0..packed.len() {
                assert!(
                    unpack(codec, &packed[..end], bytes.len(), &mut Vec::new()).is_err(),
                    "codec {codec}, end {end}"
                );
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_before_memory_is_taken_for_it() {
        let packed = gzip(&vec![0; 32 << 20]);
        let mut out = Vec::new();
        let error = unpack(2, &packed, 32 << 20, &mut out).unwrap_err();
        assert!(error.to_string().contains("claims to unpack to 33554432"), "{error}");
        // A size that is a lie is no way round it.
        assert!(unpack(2, &packed, 1000, &mut out).is_err());
        assert!(out.capacity() < 1 << 20);
    }
}
