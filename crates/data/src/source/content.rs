//! What is in the images, for a source's fingerprint: a photograph that was replaced by another of the same name is other
//! data.
//!
//! A fingerprint is taken at every start of a run, so it must be cheap for millions of files. Names, sizes and labels of
//! all images count; they cost no more than listing the folder. Contents cost an open and a read each, which a cold disk
//! answers in milliseconds. So up to [`LOOKED_AT`] images are looked into, and of a larger set that many, evenly spread:
//! a fifth of a second when they are in memory, two minutes on a disk that seeks, however large the set is. Of a large
//! file three pieces are read, since another photograph differs everywhere.
//!
//! Modification times do not count: a copy of a folder is the same data. So what goes unnoticed is an image of a set of
//! more than [`LOOKED_AT`], replaced by another with exactly as many bytes, unless it is among those looked into; and a
//! change of a large file that leaves its size and the three pieces as they were.

use super::{parallel, read_at};
use random::StableHash;
use std::fs::File;
use std::io;

/// Images that are looked into.
pub(super) const LOOKED_AT: usize = 16_384;
/// Images of up to this many bytes are read as a whole.
const WHOLE: u64 = 64 << 10;
/// Bytes of each piece of a larger one.
const PIECE: u64 = 16 << 10;
/// Images that a thread takes at a time.
const SHARE: usize = 32;

/// The digests of the contents of `count` images, or of some of them where they are too many. One that cannot be read
/// counts as one without content, as its size does.
pub(super) fn digests(count: usize, digest: impl Fn(usize) -> io::Result<u64> + Sync) -> Vec<u64> {
    let taken = count.min(LOOKED_AT);
    parallel::map(taken, SHARE, |i| digest(nth(i, taken, count)).unwrap_or(0))
}

/// Number `i` of `taken` images that are spread evenly over `count`.
pub(super) fn nth(i: usize, taken: usize, count: usize) -> usize {
    (i as u128 * count as u128 / taken as u128) as usize
}

/// The digest of `bytes` bytes, of which `read` gives those from a place on, so many.
pub(super) fn digest_by(bytes: u64, mut read: impl FnMut(u64, u64, &mut Vec<u8>) -> io::Result<()>) -> io::Result<u64> {
    let pieces = match bytes {
        0..=WHOLE => vec![(0, bytes)],
        _ => vec![(0, PIECE), (bytes / 2, PIECE), (bytes - PIECE, PIECE)],
    };
    let (mut hash, mut buffer) = (StableHash::new(), Vec::new());
    for (start, length) in pieces {
        read(start, length, &mut buffer)?;
        hash.write(&buffer);
    }
    Ok(hash.finish())
}

/// The digest of a file of this size.
pub(super) fn digest(file: &File, bytes: u64) -> io::Result<u64> {
    digest_by(bytes, |start, length, piece| {
        piece.resize(length as usize, 0);
        read_at::fill(file, piece, start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As images in an archive are read.
    fn of_range(file: &File, offset: u64, bytes: u64) -> io::Result<u64> {
        digest_by(bytes, |start, length, piece| {
            piece.resize(length as usize, 0);
            read_at::fill(file, piece, offset + start)
        })
    }

    #[test]
    fn of_too_many_images_some_are_taken_from_the_first_to_near_the_last() {
        let taken: Vec<usize> = (0..4).map(|i| nth(i, 4, 10)).collect();
        assert_eq!(taken, [0, 2, 5, 7]);
        assert_eq!(nth(LOOKED_AT - 1, LOOKED_AT, usize::MAX), usize::MAX - usize::MAX / LOOKED_AT - 1);
        let looked_at = std::sync::Mutex::new(Vec::new());
        let found = digests(3 * LOOKED_AT, |index| {
            looked_at.lock().unwrap().push(index);
            Ok(index as u64)
        });
        assert_eq!((found.len(), found[1]), (LOOKED_AT, 3));
        assert_eq!(looked_at.lock().unwrap().len(), LOOKED_AT, "a million images are no more work");
    }

    #[test]
    fn start_middle_and_end_of_a_large_file_count_and_what_lies_around_it_does_not() {
        let (start, length) = (1000usize, 300_000usize);
        let path = std::env::temp_dir().join(format!("dino-vmf-content-{}", std::process::id()));
        let of = |change: Option<usize>| {
            let mut bytes = vec![7; start + length + 500];
            change.into_iter().for_each(|at| bytes[at] ^= 1);
            std::fs::write(&path, bytes).unwrap();
            of_range(&File::open(&path).unwrap(), start as u64, length as u64).unwrap()
        };
        let first = of(None);
        for at in [start, start + length / 2, start + length - 1] {
            assert_ne!(of(Some(at)), first, "byte {at}");
        }
        for outside in [start - 1, start + length] {
            assert_eq!(of(Some(outside)), first, "byte {outside}");
        }
        let file = File::open(&path).unwrap();
        assert!(of_range(&file, 1000, 1 << 40).is_err(), "a range that the file does not have");
        std::fs::remove_file(path).unwrap();
    }
}
