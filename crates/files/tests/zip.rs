//! Zip archives against what Python finds in them (fixtures/zip, by tools/oracle/pickle_fixtures.py), and damaged ones.

use std::io::Cursor;
use std::ops::Range;

use files::zip::{Archive, MAX_DIRECTORY, MAX_ENTRIES, MAX_NAME, ZipError};
use serde_json::Value;

const ARCHIVES: [(&str, &[u8]); 10] = [
    ("stored", include_bytes!("fixtures/zip/stored.zip")),
    ("deflated", include_bytes!("fixtures/zip/deflated.zip")),
    ("comment", include_bytes!("fixtures/zip/comment.zip")),
    ("zip64", include_bytes!("fixtures/zip/zip64.zip")),
    ("zip64-headers", include_bytes!("fixtures/zip/zip64-headers.zip")),
    ("streamed", include_bytes!("fixtures/zip/streamed.zip")),
    ("names", include_bytes!("fixtures/zip/names.zip")),
    ("empty", include_bytes!("fixtures/zip/empty.zip")),
    ("pytorch", include_bytes!("fixtures/zip/pytorch.zip")),
    ("pytorch-no-crc", include_bytes!("fixtures/zip/pytorch-no-crc.zip")),
];

const STORED: &[u8] = ARCHIVES[0].1;
const ZIP_64: &[u8] = ARCHIVES[3].1;
const NAMES: &[u8] = ARCHIVES[6].1;

fn read(bytes: &[u8]) -> Result<Archive, ZipError> {
    Archive::read(&mut Cursor::new(bytes), bytes.len() as u64)
}

fn place(bytes: &[u8], name: &str) -> Result<Range<u64>, ZipError> {
    let archive = read(bytes)?;
    archive.place(&mut Cursor::new(bytes), archive.entry(name).unwrap())
}

/// Where a signature is for the n-th time, counted from 0.
fn find(bytes: &[u8], signature: &[u8; 4], nth: usize) -> usize {
    let places = bytes.array_windows().enumerate().filter(|(_, window)| *window == signature);
    places.map(|(place, _)| place).nth(nth).unwrap()
}

/// An archive with other bytes at a place, counted from the n-th time that a signature is there.
fn patched(bytes: &[u8], signature: &[u8; 4], nth: usize, offset: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = find(&bytes, signature, nth) + offset;
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

const HEADER: &[u8; 4] = b"PK\x03\x04";
const DIRECTORY: &[u8; 4] = b"PK\x01\x02";
const END_64: &[u8; 4] = b"PK\x06\x06";
const LOCATOR: &[u8; 4] = b"PK\x06\x07";
const END: &[u8; 4] = b"PK\x05\x06";

#[test]
fn entries_are_where_python_finds_them() {
    let expected: Value = serde_json::from_str(include_str!("fixtures/zip/expected.json")).unwrap();
    for (file, bytes) in ARCHIVES {
        let archive = read(bytes).unwrap_or_else(|error| panic!("{file}: {error}"));
        let expected = expected[file].as_array().unwrap();
        assert_eq!(archive.entries().len(), expected.len(), "{file}");
        for (entry, expected) in archive.entries().iter().zip(expected) {
            assert_eq!(*entry.name, *expected["name"].as_str().unwrap(), "{file}");
            assert_eq!(archive.entry(&entry.name), Some(entry), "{file}");
            assert_eq!(Some(entry.size), expected["size"].as_u64(), "{file}");
            assert_eq!(Some(u64::from(entry.method)), expected["method"].as_u64(), "{file}");
            assert_eq!(entry.crc32.map(u64::from), expected["crc32"].as_u64(), "{file}");
            match (archive.place(&mut Cursor::new(bytes), entry), expected["start"].as_u64()) {
                (Ok(place), Some(start)) => assert_eq!(place, start..start + entry.size, "{file}"),
                (Err(error), None) => {
                    assert!(matches!(error, ZipError::Compressed { method: 8, .. }), "{file}: {error}");
                    assert!(error.to_string().contains("save it again with torch.save"), "{error}");
                }
                (found, expected) => panic!("{file}: {found:?} instead of {expected:?}"),
            }
        }
        assert_eq!(archive.entry("archive"), None, "{file}");
    }
}

#[test]
fn an_archive_that_ends_early_is_an_error_at_every_byte() {
    for (name, bytes) in ARCHIVES {
        for length in 0..bytes.len() {
            assert!(matches!(read(&bytes[..length]), Err(ZipError::NoEnd)), "{name}, {length} bytes");
        }
        let mut reader = Cursor::new(bytes);
        assert!(matches!(Archive::read(&mut reader, bytes.len() as u64 + 1), Err(ZipError::Io(_))), "{name}");
    }
}

#[test]
fn whatever_is_changed_entries_stay_apart_and_within_the_file() {
    for (_, bytes) in ARCHIVES {
        let mut bytes = bytes.to_vec();
        for at in 0..bytes.len() {
            let before = bytes[at];
            for new in [0, 1, before ^ 1, before ^ 0x80, 0x7f, 0xff] {
                bytes[at] = new;
                files::fuzz::zip(&bytes);
            }
            bytes[at] = before;
        }
    }
}

#[test]
fn the_end_is_known_by_its_comment() {
    let comment = b"PK\x05\x06 is not the end, and neither is PK\x05\x06";
    let mut bytes = patched(STORED, END, 0, 20, &[comment.len() as u8, 0]);
    bytes.extend(comment);
    assert_eq!(read(&bytes).unwrap().entries().len(), 3);
    bytes.push(0);
    assert!(matches!(read(&bytes), Err(ZipError::NoEnd)), "something behind the end");
    let longest = [&patched(STORED, END, 0, 20, &[0xff, 0xff])[..], &vec![b' '; 0xffff]].concat();
    assert_eq!(read(&longest).unwrap().entries().len(), 3);
}

#[test]
fn numbers_beyond_all_bounds_are_errors() {
    let huge = (1u64 << 60).to_le_bytes();
    let entries = patched(ZIP_64, END_64, 0, 24, &[huge, huge].concat());
    let entries = patched(&entries, END, 0, 8, &[0xff; 4]);
    assert!(matches!(read(&entries), Err(ZipError::TooManyEntries { found }) if found == 1 << 60));
    let size = patched(&patched(ZIP_64, END_64, 0, 40, &huge), END, 0, 12, &[0xff; 4]);
    assert!(matches!(read(&size), Err(ZipError::DirectoryTooLong { found }) if found == 1 << 60));
    let size = patched(&patched(ZIP_64, END_64, 0, 40, &MAX_DIRECTORY.to_le_bytes()), END, 0, 12, &[0xff; 4]);
    assert!(matches!(read(&size), Err(ZipError::BadEnd(_))), "before it is allocated");
    for place in [1 << 60, u64::MAX, u64::MAX - 10, ZIP_64.len() as u64].map(u64::to_le_bytes) {
        let offset = patched(&patched(ZIP_64, END_64, 0, 48, &place), END, 0, 16, &[0xff; 4]);
        assert!(matches!(read(&offset), Err(ZipError::BadEnd(_))));
        assert!(matches!(read(&patched(ZIP_64, LOCATOR, 0, 8, &place)), Err(ZipError::BadEnd(_))));
    }
    assert!(matches!(read(&patched(STORED, END, 0, 8, &[200, 0, 200, 0])), Err(ZipError::BadEnd(_))), "entries");
    let one_more = patched(NAMES, END, 0, 8, &[5, 0, 5, 0]);
    assert!(matches!(read(&one_more), Err(ZipError::BadDirectory { number: 5, .. })));
    assert!(matches!(read(&patched(STORED, END, 0, 8, &[2, 0, 2, 0])), Err(ZipError::BadEnd(_))), "one less");
    for size in [u32::MAX - 1, 1 << 31, 1000] {
        let sizes = patched(STORED, DIRECTORY, 1, 20, &[size.to_le_bytes(), size.to_le_bytes()].concat());
        assert!(matches!(read(&sizes), Err(ZipError::Overlap { name }) if name == "archive/data/0"));
    }
    let ones = patched(STORED, DIRECTORY, 1, 20, &[0xff; 4]);
    assert!(matches!(read(&ones), Err(ZipError::BadDirectory { number: 2, .. })), "zip64, and no number of it");
    let extra = find(ZIP_64, DIRECTORY, 2) + 46 + "archive/version".len();
    let mut sizes = ZIP_64.to_vec();
    sizes[extra + 4..extra + 20].fill(0xff);
    assert!(matches!(read(&sizes), Err(ZipError::Overlap { name }) if name == "archive/version"));
    let long = patched(STORED, DIRECTORY, 0, 28, &(MAX_NAME as u16 + 1).to_le_bytes());
    assert!(matches!(read(&long), Err(ZipError::NameTooLong { number: 1, .. })));
}

#[test]
fn entries_that_share_bytes_or_a_name_are_errors() {
    let same = patched(STORED, DIRECTORY, 1, 42, &[0, 0, 0, 0]);
    assert!(matches!(read(&same), Err(ZipError::Overlap { .. })));
    let within = patched(STORED, DIRECTORY, 1, 42, &[40, 0, 0, 0]);
    assert!(matches!(read(&within), Err(ZipError::Overlap { name }) if name == "archive/data.pkl"));
    let directory = patched(STORED, DIRECTORY, 2, 42, &(find(STORED, DIRECTORY, 0) as u32).to_le_bytes());
    assert!(matches!(read(&directory), Err(ZipError::Overlap { name }) if name == "archive/version"));
    let name = &STORED[find(STORED, DIRECTORY, 1) + 46..][..14];
    let mut twice = patched(STORED, DIRECTORY, 2, 46, name);
    let length = find(&twice, DIRECTORY, 2) + 28;
    // One character goes over to what follows the name.
    (twice[length], twice[length + 4]) = (14, 1);
    assert!(matches!(read(&twice), Err(ZipError::DuplicateName { name }) if name == "archive/data/0"));
    // Only the header says how much stands between it and the entry: it may not push it into the next one.
    let pushed = patched(STORED, HEADER, 1, 28, &[100, 0]);
    assert!(matches!(place(&pushed, "archive/data/0"), Err(ZipError::Overlap { .. })));
}

#[test]
fn what_cannot_be_read_says_why() {
    let encrypted = patched(STORED, DIRECTORY, 0, 8, &[1, 0]);
    assert!(matches!(place(&encrypted, "archive/data.pkl"), Err(ZipError::Encrypted { .. })));
    let bad = |bytes: &[u8]| matches!(place(bytes, "archive/data.pkl"), Err(ZipError::BadHeader { .. }));
    assert!(bad(&patched(STORED, HEADER, 0, 0, b"PK\x03\x05")));
    assert!(bad(&patched(STORED, HEADER, 0, 8, &[8, 0])), "a method that the directory does not know of");
    assert!(bad(&patched(STORED, HEADER, 0, 30, b"A")), "another name");
    assert!(bad(&patched(STORED, HEADER, 0, 26, &[0xff, 0xff])), "a name longer than any");
    assert!(bad(&patched(STORED, DIRECTORY, 0, 24, &[5])), "two sizes");
    assert!(matches!(read(&patched(STORED, DIRECTORY, 0, 46, &[0xff])), Err(ZipError::BadDirectory { number: 1, .. })));
    assert!(matches!(read(&patched(STORED, DIRECTORY, 1, 3, &[3])), Err(ZipError::BadDirectory { number: 2, .. })));
    for split in [
        patched(STORED, END, 0, 4, &[1]),
        patched(STORED, END, 0, 8, &[2]),
        patched(STORED, DIRECTORY, 0, 34, &[1]),
        patched(ZIP_64, LOCATOR, 0, 16, &[2]),
        patched(ZIP_64, END_64, 0, 16, &[1]),
    ] {
        assert!(matches!(read(&split), Err(ZipError::Split)));
    }
    assert!(
        matches!(read(&patched(ZIP_64, END, 0, 12, &[1, 0, 0, 0])), Err(ZipError::BadEnd(_))),
        "contradicting ends"
    );
    let without = patched(STORED, DIRECTORY, 0, 16, &[0; 4]);
    assert_eq!(read(&without).unwrap().entry("archive/data.pkl").unwrap().crc32, None);
}

#[test]
fn as_many_entries_as_are_allowed_are_read() {
    let archive = |count: u32| {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for number in 0..count {
            let name = format!("{number:06}");
            directory.extend([&b"PK\x01\x02"[..], &[0; 24], &[6], &[0; 13]].concat());
            directory.extend((bytes.len() as u32).to_le_bytes());
            directory.extend(name.as_bytes());
            bytes.extend([&b"PK\x03\x04"[..], &[0; 22], &[6, 0, 0, 0], name.as_bytes()].concat());
        }
        let (count, size, start) = (u64::from(count), directory.len() as u64, bytes.len() as u64);
        bytes.append(&mut directory);
        let end = bytes.len() as u64;
        bytes.extend(
            [&b"PK\x06\x06"[..], &[0; 20], &[count, count, size, start].map(u64::to_le_bytes).concat()].concat(),
        );
        bytes.extend([&b"PK\x06\x07"[..], &[0; 4], &end.to_le_bytes(), &[1, 0, 0, 0]].concat());
        bytes.extend([&b"PK\x05\x06"[..], &[0; 4], &[0xff; 12], &[0; 2]].concat());
        bytes
    };
    let bytes = archive(MAX_ENTRIES as u32);
    let read_all = read(&bytes).unwrap();
    assert_eq!(read_all.entries().len(), MAX_ENTRIES as usize);
    let entry = read_all.entry("099999").unwrap();
    assert!(read_all.place(&mut Cursor::new(&bytes), entry).unwrap().is_empty());
    let more = archive(MAX_ENTRIES as u32 + 1);
    assert!(matches!(read(&more), Err(ZipError::TooManyEntries { found: 100_001 })));
}
