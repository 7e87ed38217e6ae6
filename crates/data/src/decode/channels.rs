//! From the channels that a file has to those that are wanted.
//!
//! Colour from grey is three equal channels, grey from colour is the luma, and an alpha channel that was not asked for is
//! dropped without blending: all as Pillow converts. Any other number of channels must be in the file as it is.

use super::{DecodeError, make_room};
use crate::augment::color::luma;

/// Puts `pixels`, interleaved with `have` channels, into `out` with `want`.
pub(super) fn convert(
    format: &'static str,
    pixels: &[u8],
    have: usize,
    want: usize,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    let is_known = (have == want && have > 0) || matches!((have, want), (1 | 2 | 4, 3) | (2..=4, 1));
    if !is_known {
        return Err(DecodeError::Channels { format, have, want });
    }
    make_room(format, out, pixels.len() / have * want)?;
    match (have, want) {
        _ if have == want => out.extend_from_slice(pixels),
        (1, 3) => out.extend(pixels.iter().flat_map(|&v| [v; 3])),
        (2, 3) => out.extend(pixels.as_chunks::<2>().0.iter().flat_map(|&[v, _]| [v; 3])),
        (4, 3) => out.extend(pixels.as_chunks::<4>().0.iter().flat_map(|&[r, g, b, _]| [r, g, b])),
        (2, 1) => out.extend(pixels.as_chunks::<2>().0.iter().map(|&[v, _]| v)),
        (3, 1) => out.extend(pixels.as_chunks::<3>().0.iter().map(|&[r, g, b]| luma(r, g, b))),
        (4, 1) => out.extend(pixels.as_chunks::<4>().0.iter().map(|&[r, g, b, _]| luma(r, g, b))),
        _ => return Err(DecodeError::Channels { format, have, want }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_become_those_that_are_wanted_or_an_error_that_counts_them() {
        let convert = |pixels: &[u8], have, want| {
            let mut out = vec![9];
            convert("PNG", pixels, have, want, &mut out).map(|()| out)
        };
        assert_eq!(convert(&[7, 8], 1, 3).unwrap(), [7, 7, 7, 8, 8, 8]);
        assert_eq!(convert(&[7, 255], 2, 3).unwrap(), [7, 7, 7]);
        assert_eq!(convert(&[1, 2, 3, 4], 4, 3).unwrap(), [1, 2, 3]);
        assert_eq!(convert(&[255, 0, 0, 9], 4, 1).unwrap(), [76]);
        assert_eq!(convert(&[1, 2, 3, 4, 5], 5, 5).unwrap(), [1, 2, 3, 4, 5]);
        assert!(matches!(convert(&[1, 2, 3], 3, 4), Err(DecodeError::Channels { have: 3, want: 4, .. })));
        for want in [0, 1, 3] {
            assert!(matches!(convert(&[], 0, want), Err(DecodeError::Channels { have: 0, .. })));
        }
    }

    #[test]
    fn channels_that_cannot_be_had_take_no_memory() {
        let mut out = Vec::new();
        convert("TIFF", &[0; 6], 2, 1 << 40, &mut out).unwrap_err();
        assert_eq!(out.capacity(), 0);
    }
}
