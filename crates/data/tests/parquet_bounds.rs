//! Parquet files that claim or hold far more than their size allows for.

mod parquet_files;
mod support;

use data::source::fuzz;
use parquet_files::{Column, image, message, open_file, written};
use support::TempFolder;

/// A number as the footer has it.
fn int(value: u64) -> Vec<u8> {
    let mut rest = value << 1;
    let mut bytes = Vec::new();
    while rest > 127 {
        bytes.push(rest as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// A file without pages. Its one column of images has three groups, each of so many rows that take so many bytes.
fn claims(rows: u64, unpacked: u64) -> Vec<u8> {
    let schema = [&[0x29, 0x2c, 0x48, 1][..], b"r", &[0x15, 2, 0, 0x15, 12, 0x25, 0, 0x18, 5], b"image", &[0]].concat();
    let chunk = [&[0x3c, 0x56][..], &int(rows), &[0x16], &int(unpacked), &[0x16, 0, 0x26, 8, 0, 0]].concat();
    let group = [&[0x19, 0x1c][..], &chunk, &[0x26], &int(rows), &[0]].concat();
    let footer = [&schema[..], &[0x16], &int(3 * rows), &[0x19, 0x3c], &group.repeat(3), &[0]].concat();
    [b"PAR1", &footer[..], &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

fn problem(bytes: &[u8]) -> String {
    let folder = TempFolder::new();
    folder.write("x.parquet", bytes);
    message(open_file(&folder.0.join("x.parquet"), &folder.0.join("cache")))
}

#[test]
fn sizes_that_overflow_when_they_are_added_up_are_an_error() {
    let bytes = claims(0, i64::MAX as u64);
    fuzz::parquet(&bytes);
    let message = problem(&bytes);
    assert!(message.contains("none of its 0 row(s) holds an image"), "{message}");
    let bytes = claims(1, i64::MAX as u64);
    fuzz::parquet(&bytes);
    let message = problem(&bytes);
    assert!(message.contains("column image ends after 0 of 1 rows"), "{message}");
}

#[test]
fn rows_beyond_what_the_size_of_the_file_allows_are_an_error() {
    let bytes = claims(400_000, 0);
    fuzz::parquet(&bytes);
    let message = problem(&bytes);
    assert!(message.contains("x.parquet: it has more rows than 1,048,5"), "{message}");
}

#[test]
fn a_small_file_may_have_more_rows_than_bytes() {
    let folder = TempFolder::new();
    let bytes = written("optional binary image;", None, &[Column::Bytes(vec![Some(image(1)); 20_000])]);
    assert!(bytes.len() < 20_000, "{} bytes", bytes.len());
    folder.write("x.parquet", &bytes);
    let source = open_file(&folder.0.join("x.parquet"), &folder.0.join("cache")).unwrap();
    assert_eq!((source.len(), source.read(19_999).unwrap().pixels[0]), (20_000, 10));
}

#[test]
fn names_that_take_far_more_than_the_file_give_way_to_row_numbers() {
    const ROWS: usize = 30_000;
    let folder = TempFolder::new();
    let schema = "required group image { optional binary bytes; optional binary path (UTF8); }";
    let name = "\u{1f41c}".repeat(200);
    let columns = [vec![Some(image(1)); ROWS], vec![Some(name.clone().into_bytes()); ROWS]].map(Column::Bytes);
    let bytes = written(schema, None, &columns);
    folder.write("x.parquet", &bytes);
    let source = open_file(&folder.0.join("x.parquet"), &folder.0.join("cache")).unwrap();
    assert_eq!((source.name(0), source.name(ROWS - 1)), (name, format!("row {}", ROWS - 1)));
    let all: usize = (0..ROWS).map(|i| source.name(i).len()).sum();
    assert!(all < (16 << 20) + 4 * bytes.len() + 10 * ROWS, "{all} bytes");
    let kept: u64 = std::fs::read_dir(folder.0.join("cache"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "index"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert!(kept > 16 << 20 && kept < 20 << 20, "the index takes {kept} bytes");
}
