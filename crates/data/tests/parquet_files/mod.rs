//! Parquet files from the writer of the `parquet` crate, and what a source has made of them.
#![allow(dead_code)] // Every test binary compiles this and uses a part of it.

use crate::support::bmp;
use data::source::open_cached;
use data::{DecodeLimits, OpenError, Source, Split, Stored};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::path::Path;
use std::sync::Arc;

/// Image number `i` of all files here.
pub fn image(i: usize) -> Vec<u8> {
    bmp(5, 4, [10 * i as u8, 20, 200 - 10 * i as u8])
}

pub fn open_file(path: &Path, cache: &Path) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(path.to_str().unwrap(), Split::Train, 0, cache)
}

pub fn stored(source: &dyn Source, i: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert_eq!(source.fetch(i, &DecodeLimits::default(), &mut bytes).unwrap(), Stored::File);
    bytes
}

pub fn names(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|i| source.name(i)).collect()
}

pub fn labels(source: &dyn Source) -> Vec<Option<u32>> {
    (0..source.len()).map(|i| source.label(i)).collect()
}

pub fn message(opened: Result<Arc<dyn Source>, OpenError>) -> String {
    match opened {
        Ok(source) => panic!("opened: {}", source.describe()),
        Err(error) => error.to_string(),
    }
}

/// Values of a column.
pub enum Column {
    Bytes(Vec<Option<Vec<u8>>>),
    Int64(Vec<Option<i64>>),
    Int32(Vec<Option<i32>>),
    Double(Vec<Option<f64>>),
}

pub fn images(count: usize) -> Column {
    Column::Bytes((0..count).map(|i| Some(image(i))).collect())
}

pub fn texts(values: &[&str]) -> Column {
    Column::Bytes(values.iter().map(|value| Some(value.as_bytes().to_vec())).collect())
}

/// A file of one group of rows. Columns of the schema have to be optional, at the top or in a required group.
pub fn written(schema: &str, features: Option<&str>, columns: &[Column]) -> Vec<u8> {
    fn put<T: DataType>(group: &mut SerializedRowGroupWriter<&mut Vec<u8>>, values: Vec<Option<T::T>>) {
        let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<T::T> = values.into_iter().flatten().collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
    }
    let about = features.map(|features| format!("{{\"info\": {{\"features\": {features}}}}}"));
    let about = about.map(|about| vec![KeyValue::new("huggingface".to_owned(), about)]);
    let properties = WriterProperties::builder().set_key_value_metadata(about).build();
    let schema = Arc::new(parse_message_type(&format!("message schema {{ {schema} }}")).unwrap());
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    let mut group = file.next_row_group().unwrap();
    for column in columns {
        match column {
            Column::Bytes(values) => {
                let values = values.iter().map(|value| value.clone().map(ByteArray::from)).collect();
                put::<ByteArrayType>(&mut group, values);
            }
            Column::Int64(values) => put::<Int64Type>(&mut group, values.clone()),
            Column::Int32(values) => put::<Int32Type>(&mut group, values.clone()),
            Column::Double(values) => put::<DoubleType>(&mut group, values.clone()),
        }
    }
    group.close().unwrap();
    file.close().unwrap();
    bytes
}
