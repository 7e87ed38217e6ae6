//! A safetensors file whose number of rows is known at its end: images that cannot be read have none.
//!
//! Its header stands at the beginning and has the names of all images, so room for the longest that it can be is left
//! there. A shorter one is filled up with spaces, which the format allows, and labels and numbers lie right before the
//! features:
//!
//! ```text
//! 8 bytes, header, spaces   labels, numbers     features
//! |<-------------- as long as it can be ------->| written as they come
//! ```

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use data::Source;
use files::Replacement;
use files::safetensors::MAX_HEADER;
use serde_json::json;

use super::{Failure, Image, Said, Sink};
use crate::features::Features;

/// Bytes of a label, and of a number.
const WIDE: u64 = 8;

/// The file on its way.
pub(super) struct Tensors {
    file: Replacement,
    shape: Vec<usize>,
    said: Said,
    /// The images of the rows so far.
    rows: Vec<Image>,
    /// The names of the numbers that images have, and their values, row by row.
    numbers: Vec<&'static str>,
    values: Vec<f64>,
    /// Where the features begin.
    start: u64,
}

impl Tensors {
    pub(super) fn begin(
        path: &Path,
        shape: &[usize],
        numbers: &[&'static str],
        source: &dyn Source,
        expected: Option<&Features>,
        mut said: Said,
    ) -> Result<Self, Failure> {
        said.insert("class_names", json!(source.class_names()).to_string());
        let expected: Vec<Image> = match expected {
            Some(features) => {
                features.indices.iter().zip(&features.labels).map(|(&index, &label)| Image { index, label }).collect()
            }
            None => (0..source.len()).map(|index| Image { index, label: source.label(index) }).collect(),
        };
        let mut length = Length(0);
        write_header(&mut length, source, &expected, shape, numbers, &said)?;
        if length.0.next_multiple_of(8) > MAX_HEADER {
            return Err(Failure::TooManyNames);
        }
        let before = columns(&expected, numbers) as u64 * WIDE * expected.len() as u64;
        let start = 8 + length.0.next_multiple_of(8) + before;
        let mut file = Replacement::begin(path)?;
        file.seek(SeekFrom::Start(start))?;
        let (shape, numbers) = (shape.to_vec(), numbers.to_vec());
        Ok(Self { file, shape, said, rows: Vec::new(), numbers, values: Vec::new(), start })
    }
}

impl Sink for Tensors {
    fn row(&mut self, _: &dyn Source, image: Image, values: &[f32], numbers: &[f64]) -> io::Result<()> {
        self.rows.push(image);
        self.values.extend_from_slice(numbers);
        values.iter().try_for_each(|value| self.file.write_all(&value.to_le_bytes()))
    }

    fn finish(mut self: Box<Self>, source: &dyn Source) -> Result<(), Failure> {
        let Self { file, shape, said, rows, numbers, values, start } = &mut *self;
        let length = *start - columns(rows, numbers) as u64 * WIDE * rows.len() as u64 - 8;
        if length > MAX_HEADER {
            return Err(Failure::TooManyNames);
        }
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&length.to_le_bytes())?;
        let mut header = Length(0);
        write_header(&mut Both(file, &mut header), source, rows, shape, numbers, said)?;
        let spaces = length.checked_sub(header.0).ok_or_else(|| io::Error::other("the header has grown"))?;
        (0..spaces).try_for_each(|_| file.write_all(b" "))?;
        if is_labelled(rows) {
            let mut labels = rows.iter().map(|image| image.label.map_or(-1, i64::from));
            labels.try_for_each(|label| file.write_all(&label.to_le_bytes()))?;
        }
        for column in 0..numbers.len() {
            let mut column = values.iter().skip(column).step_by(numbers.len());
            column.try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
        }
        Ok(self.file.finish()?)
    }
}

/// Whether any of these images has a label.
fn is_labelled(images: &[Image]) -> bool {
    images.iter().any(|image| image.label.is_some())
}

/// Columns that stand before the features.
fn columns(images: &[Image], numbers: &[&str]) -> usize {
    usize::from(is_labelled(images)) + numbers.len()
}

/// Writes the header for rows of these images. Its keys are sorted, so that the file depends on its content alone. Labels
/// and numbers come first: they are the wider types, and stay aligned so. Names are written one by one: all of them may be
/// 100 MB.
fn write_header(
    out: &mut dyn Write,
    source: &dyn Source,
    images: &[Image],
    shape: &[usize],
    numbers: &[&'static str],
    said: &Said,
) -> io::Result<()> {
    const NAMES: &str = "names";
    let mut keys: Vec<&str> = said.keys().copied().chain([NAMES]).collect();
    keys.sort_unstable();
    out.write_all(b"{\"__metadata__\":{")?;
    for (i, key) in keys.iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        write!(out, "{comma}{}:", json!(key))?;
        match said.get(key) {
            Some(text) => write!(out, "{}", json!(text))?,
            None => {
                out.write_all(b"\"[")?;
                for (i, image) in images.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(out, "{comma}")?;
                    serde_json::to_writer(InText(&mut *out), &source.name(image.index))?;
                }
                out.write_all(b"]\"")?;
            }
        }
    }
    let rows = images.len();
    let column = WIDE * rows as u64;
    let wide = is_labelled(images).then_some(("labels", "I64")).into_iter().chain(numbers.iter().map(|&n| (n, "F64")));
    let mut tensors = BTreeMap::new();
    for (at, (name, dtype)) in (0..).zip(wide) {
        let offsets = [at * column, (at + 1) * column];
        tensors.insert(name, json!({ "data_offsets": offsets, "dtype": dtype, "shape": [rows] }));
    }
    let before = tensors.len() as u64 * column;
    let bytes = shape.iter().fold(4 * rows as u64, |bytes, &side| bytes * side as u64);
    let sides: Vec<usize> = [rows].iter().chain(shape).copied().collect();
    let offsets = [before, before + bytes];
    tensors.insert("features", json!({ "data_offsets": offsets, "dtype": "F32", "shape": sides }));
    out.write_all(b"}")?;
    tensors.iter().try_for_each(|(name, tensor)| write!(out, ",\"{name}\":{tensor}"))?;
    out.write_all(b"}")
}

/// What a file's metadata say.
pub(super) fn description(path: &Path) -> Option<BTreeMap<String, String>> {
    Some(files::safetensors::open(path).ok()?.1.metadata)
}

/// Counts bytes.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes, and counts what was written.
struct Both<'a>(&'a mut Replacement, &'a mut Length);

impl Write for Both<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.0.write(bytes)?;
        self.1.write(&bytes[..written])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// JSON as part of a text of JSON. It has no control characters: they are escaped in it.
struct InText<'a>(&'a mut dyn Write);

impl Write for InText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'"' | b'\\')) {
            match piece.split_last() {
                Some((mark @ (b'"' | b'\\'), before)) => {
                    self.0.write_all(before)?;
                    self.0.write_all(&[b'\\', *mark])?;
                }
                _ => self.0.write_all(piece)?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FeatureFormat, FeatureWriter, save};
    use crate::features::{FeatureBatch, Features};
    use ::safetensors::SafeTensors;

    #[test]
    fn the_file_is_this_one_byte_for_byte() {
        let source = data::open("synthetic:train=10,size=16", data::Split::Train, 0).unwrap();
        let features = Features { dim: 1, values: vec![1.0, -2.0], indices: vec![1, 0], labels: vec![Some(3), None] };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.safetensors");
        save(&path, &features, &*source, &[("width", "1".to_owned())]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header = std::str::from_utf8(&bytes[8..8 + length]).unwrap();
        assert!(header.starts_with("{\"__metadata__\":{\"class_names\":\"[\\\"disks on rows\\\","), "{header}");
        let (names, source) = ("[\\\"synthetic #1\\\",\\\"synthetic #0\\\"]", source.describe());
        let metadata = format!(
            "\"format\":\"dino-vmf features\",\"names\":\"{names}\",\"source\":\"{source}\",\"width\":\"1\"}},"
        );
        assert!(header.contains(&metadata), "{header}");
        let tensors = "\"features\":{\"data_offsets\":[16,24],\"dtype\":\"F32\",\"shape\":[2,1]},\
                       \"labels\":{\"data_offsets\":[0,16],\"dtype\":\"I64\",\"shape\":[2]}}";
        assert!(header.trim_end().ends_with(tensors), "{header}");
        assert_eq!((length % 8, header.len() - header.trim_end().len() < 8), (0, true));
        let data = b"\x03\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x80\x3f\0\0\0\xc0";
        assert_eq!(&bytes[8 + length..], data);
    }

    #[test]
    fn rows_that_do_not_come_leave_a_longer_header_and_a_sound_file() {
        let source = data::open("synthetic:train=40,size=16", data::Split::Train, 0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.safetensors");
        let format = FeatureFormat::Safetensors;
        let mut file = FeatureWriter::create(format, &path, &[2, 3], &*source, &[]).unwrap();
        let values: Vec<f32> = (0..18).map(|i| i as f32).collect();
        file.add(FeatureBatch { indices: &[3, 17], labels: &[Some(3), None], values: &values[..12] }).unwrap();
        file.add(FeatureBatch { indices: &[39], labels: &[Some(9)], values: &values[12..] }).unwrap();
        file.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        let features = read.tensor("features").unwrap();
        let expected: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!((features.shape(), features.data()), (&[3, 2, 3][..], &expected[..]));
        let labels: Vec<i64> =
            read.tensor("labels").unwrap().data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
        assert_eq!(labels, [3, -1, 9]);
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let names = &header.metadata().as_ref().unwrap()["names"];
        assert_eq!(names, "[\"synthetic #3\",\"synthetic #17\",\"synthetic #39\"]");
    }
}
