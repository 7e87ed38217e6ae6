//! Every way to write a value that the source reads, from the writer of the `parquet` crate: what went in comes out.
//!
//! zstd is not among its codecs here; `tests/parquet.rs` has a file of pyarrow's for that.

mod support;

use data::source::{fuzz, open_cached};
use data::{DecodeLimits, Source, Split};
use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::column::page::Page;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::sync::Arc;
use support::TempFolder;

const GROUPS: usize = 3;
const ROWS: usize = 150;

/// What the three columns of a row hold. The outer level is the struct, the inner its member.
type Row = (Option<(Option<Vec<u8>>, Option<String>)>, Option<i64>);

/// Images of very different sizes, some of them again and again, and nulls at both levels.
fn row(i: usize) -> Row {
    let bytes = match i % 20 {
        0 => vec![i as u8; 3000],
        n @ 1..6 => vec![n as u8; n],
        n => (0..n * 7).map(|k| (i * 31 + k * k) as u8).collect(),
    };
    let path = (i % 5 != 2).then(|| format!("folder/{}.jpg", i / 3));
    let image = (i % 11 != 4).then(|| ((i % 7 != 5).then_some(bytes), path));
    (image, Some((i * i % 900) as i64))
}

fn put<T: DataType>(group: &mut SerializedRowGroupWriter<&mut Vec<u8>>, values: &[(i16, Option<T::T>)]) {
    let levels: Vec<i16> = values.iter().map(|&(level, _)| level).collect();
    let values: Vec<T::T> = values.iter().filter_map(|(_, value)| value.clone()).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(&values, Some(&levels), None).unwrap();
    column.close().unwrap();
}

/// A file of the rows in several groups, with labels of a type of this name.
fn written(rows: &[Row], number: &str, properties: WriterProperties) -> Vec<u8> {
    let image = "optional group image { optional binary bytes; optional binary path (UTF8); }";
    let schema = parse_message_type(&format!("message schema {{ {image} optional {number} label; }}")).unwrap();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties)).unwrap();
    for rows in rows.chunks(ROWS) {
        let mut group = file.next_row_group().unwrap();
        let level = |row: &Row, is_there: bool| i16::from(row.0.is_some()) + i16::from(is_there);
        let images = rows.iter().map(|row| {
            let bytes = row.0.as_ref().and_then(|(bytes, _)| bytes.clone());
            (level(row, bytes.is_some()), bytes.map(ByteArray::from))
        });
        put::<ByteArrayType>(&mut group, &images.collect::<Vec<_>>());
        let paths = rows.iter().map(|row| {
            let path = row.0.as_ref().and_then(|(_, path)| path.as_deref());
            (level(row, path.is_some()), path.map(ByteArray::from))
        });
        put::<ByteArrayType>(&mut group, &paths.collect::<Vec<_>>());
        let labels = rows.iter().map(|&(_, label)| (i16::from(label.is_some()), label));
        if number == "int32" {
            let labels = labels.map(|(level, label)| (level, label.map(|label| label as i32)));
            put::<Int32Type>(&mut group, &labels.collect::<Vec<_>>());
        } else {
            put::<Int64Type>(&mut group, &labels.collect::<Vec<_>>());
        }
        group.close().unwrap();
    }
    file.close().unwrap();
    bytes
}

/// Every so many rows a new page.
fn small_pages() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_write_batch_size(4).set_data_page_row_count_limit(16)
}

/// Pages of a column of the first group, as the crate itself reads them: dictionaries, older and newer, and how the
/// values of the latter two are written.
fn pages(file: &[u8], column: usize) -> ([usize; 3], Vec<Encoding>) {
    let folder = TempFolder::new();
    folder.write("x.parquet", file);
    let reader = SerializedFileReader::new(File::open(folder.0.join("x.parquet")).unwrap()).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let (mut counts, mut encodings) = ([0; 3], Vec::new());
    for page in group.get_column_page_reader(column).unwrap() {
        let page = page.unwrap();
        let kind = match page {
            Page::DictionaryPage { .. } => 0,
            Page::DataPage { .. } => 1,
            Page::DataPageV2 { .. } => 2,
        };
        counts[kind] += 1;
        if kind > 0 && !encodings.contains(&page.encoding()) {
            encodings.push(page.encoding());
        }
    }
    (counts, encodings)
}

fn opened(folder: &TempFolder, file: &[u8]) -> Arc<dyn Source> {
    folder.write("x.parquet", file);
    open_cached(folder.0.join("x.parquet").to_str().unwrap(), Split::Train, 0, &folder.0.join("cache")).unwrap()
}

/// Fails unless the source of a file has all of the rows.
fn check(rows: &[Row], file: &[u8], case: &str) {
    let folder = TempFolder::new();
    let source = opened(&folder, file);
    assert_eq!(source.len(), rows.len(), "{case}");
    let mut stored = Vec::new();
    for (i, (image, label)) in rows.iter().enumerate() {
        let (bytes, path) = image.clone().unwrap_or_default();
        source.fetch(i, &DecodeLimits::default(), &mut stored).unwrap();
        assert_eq!(stored, bytes.unwrap_or_default(), "{case}, row {i}");
        // Of rows that have the same path, all but the first also have a number.
        let name = source.name(i);
        let name = name.split_once(" (").map_or(&*name, |(name, _)| name);
        assert_eq!(name, path.unwrap_or_else(|| format!("x.parquet row {i}")), "{case}");
        assert_eq!(source.label(i).map(i64::from), *label, "{case}, row {i}");
    }
}

#[test]
fn rows_come_back_from_all_kinds_of_pages_encodings_codecs_and_numbers() {
    let rows: Vec<Row> = (0..GROUPS * ROWS).map(row).collect();
    let codecs =
        [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(GzipLevel::default()), Compression::LZ4_RAW];
    let encodings = [Encoding::RLE_DICTIONARY, Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED];
    for (version, kind) in [(WriterVersion::PARQUET_1_0, 1), (WriterVersion::PARQUET_2_0, 2)] {
        for encoding in encodings {
            for codec in codecs {
                for number in ["int32", "int64"] {
                    let case = format!("{version:?} {encoding} {codec:?} {number}");
                    let is_dictionary = encoding == Encoding::RLE_DICTIONARY;
                    let properties = small_pages()
                        .set_writer_version(version)
                        .set_compression(codec)
                        .set_dictionary_enabled(is_dictionary)
                        .set_encoding(Encoding::PLAIN);
                    let properties = match encoding {
                        Encoding::DELTA_BINARY_PACKED => properties.set_column_encoding("label".into(), encoding),
                        _ => properties,
                    };
                    let file = written(&rows, number, properties.build());
                    for (column, expected) in [Encoding::PLAIN, Encoding::PLAIN, encoding].into_iter().enumerate() {
                        let (counts, found) = pages(&file, column);
                        assert!(counts[kind] >= 9 && counts[3 - kind] == 0, "{case}: {counts:?}");
                        assert_eq!(counts[0], usize::from(is_dictionary), "{case}");
                        let expected = if is_dictionary { Encoding::RLE_DICTIONARY } else { expected };
                        assert_eq!(found, [expected], "{case}");
                    }
                    check(&rows, &file, &case);
                }
            }
        }
    }
}

#[test]
fn a_dictionary_that_grew_too_large_is_followed_by_plain_pages() {
    let rows: Vec<Row> = (0..GROUPS * ROWS).map(row).collect();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let properties = small_pages()
            .set_writer_version(version)
            .set_encoding(Encoding::PLAIN)
            .set_dictionary_page_size_limit(600)
            .set_data_page_size_limit(400);
        let file = written(&rows, "int64", properties.build());
        assert_eq!(pages(&file, 0).1, [Encoding::RLE_DICTIONARY, Encoding::PLAIN], "{version:?}");
        check(&rows, &file, &format!("{version:?}"));
    }
}

#[test]
fn pages_of_nothing_but_nulls_hold_no_values() {
    let mut rows: Vec<Row> = (0..2 * ROWS).map(row).collect();
    rows[10..90].iter_mut().for_each(|row| row.0 = None);
    rows[ROWS..].iter_mut().for_each(|row| row.0 = Some((None, None)));
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for is_dictionary in [true, false] {
            let properties = small_pages().set_writer_version(version).set_dictionary_enabled(is_dictionary);
            let properties = properties.set_encoding(Encoding::PLAIN).set_compression(Compression::SNAPPY);
            check(&rows, &written(&rows, "int64", properties.build()), &format!("{version:?} {is_dictionary}"));
        }
    }
}

#[test]
fn every_null_among_the_labels_is_counted() {
    let mut rows: Vec<Row> = (0..ROWS).map(row).collect();
    rows.iter_mut().step_by(3).for_each(|row| row.1 = None);
    for encoding in [Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED] {
        let properties = small_pages().set_dictionary_enabled(false).set_encoding(Encoding::PLAIN);
        let properties = properties.set_column_encoding("label".into(), encoding);
        let folder = TempFolder::new();
        let source = opened(&folder, &written(&rows, "int32", properties.build()));
        let remarks = source.remarks().join("\n");
        assert!(remarks.contains("column label has none for 50 of 150 images"), "{remarks}");
    }
}

#[test]
fn damage_to_pages_that_are_not_packed_never_is_a_panic() {
    let rows: Vec<Row> = (1..20).map(row).collect();
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for is_dictionary in [true, false] {
            let properties = small_pages().set_writer_version(version).set_dictionary_enabled(is_dictionary);
            let properties = properties.set_encoding(Encoding::PLAIN);
            let properties = properties.set_column_encoding("label".into(), Encoding::DELTA_BINARY_PACKED);
            let mut file = written(&rows, "int32", properties.build());
            for i in 0..file.len() {
                let good = file[i];
                for bad in [good ^ 1, good ^ 0x80, good.wrapping_add(1), !good, 0, 0x7f, 0xff] {
                    file[i] = bad;
                    fuzz::parquet(&file);
                }
                file[i] = good;
            }
        }
    }
}
