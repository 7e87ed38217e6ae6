//! Features in an array of NumPy, with a table of its rows (`.csv`: `name`, `label`) and a note (`.json`) beside it where there
//! are any.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use files::csv::Records;
use files::numpy::NpyFile;
use serde_json::Value;

use super::{Found, NO_LABEL, StoredFeatures, StoredProblem};
use crate::save::FeatureFormat;

/// The longest record of a table: a row's name is one of a file.
const MAX_RECORD: u64 = 1 << 20;
/// The largest note: it has the names of classes.
const MAX_NOTE: u64 = 16 << 20;

pub(super) fn read(path: &Path) -> Result<StoredFeatures, StoredProblem> {
    let file = NpyFile::open(path)?;
    let (rows, dim) = super::rows(file.shape())?;
    let mut found = Found { dim, values: file.floats()?, ..Found::default() };
    for beside in FeatureFormat::Npy.beside(path) {
        if !beside.exists() {
            continue;
        }
        let is_table = beside.extension().is_some_and(|extension| extension == "csv");
        if is_table { table(&beside, rows, &mut found)? } else { note(&beside, rows, &mut found)? }
    }
    found.check()
}

fn beside(path: &Path, problem: impl Into<String>) -> StoredProblem {
    StoredProblem::Beside { file: shown(path), problem: problem.into() }
}

fn shown(path: &Path) -> String {
    text::shown(Path::new(path.file_name().unwrap_or_default())).to_string()
}

/// The columns that a table has of those that are of use.
struct Columns {
    all: usize,
    row: Option<usize>,
    name: Option<usize>,
    label: Option<usize>,
}

/// Names and labels of all rows, in their order.
fn table(path: &Path, rows: usize, found: &mut Found) -> Result<(), StoredProblem> {
    if !path.is_file() {
        return Err(beside(path, "not a regular file"));
    }
    let file = File::open(path).map_err(|error| beside(path, error.to_string()))?;
    let (mut records, mut fields) = (Records::new(BufReader::new(file), MAX_RECORD), Vec::new());
    let next = |records: &mut Records<_>, fields: &mut Vec<String>| {
        records.next(fields).map_err(|problem| StoredProblem::Csv { file: shown(path), problem })
    };
    if !next(&mut records, &mut fields)? {
        return Err(beside(path, "it is empty; expected a first line like `row,name,label,class`"));
    }
    let place = |name: &str| fields.iter().position(|field| field.trim() == name);
    let columns = Columns { all: fields.len(), row: place("row"), name: place("name"), label: place("label") };
    if columns.name.is_none() && columns.label.is_none() {
        return Err(beside(path, "its first line names no column `name` or `label`"));
    }
    let mut count = 0;
    while next(&mut records, &mut fields)? {
        if count == rows {
            return Err(beside(path, format!("it has more than {rows} rows, and the array has {rows}")));
        }
        record(&columns, &mut fields, count, found)
            .map_err(|problem| beside(path, format!("line {}: {problem}", records.lines())))?;
        count += 1;
    }
    if count < rows {
        return Err(beside(path, format!("it has {count} rows, and the array has {rows}")));
    }
    Ok(())
}

fn record(columns: &Columns, fields: &mut [String], row: usize, found: &mut Found) -> Result<(), String> {
    if fields.len() != columns.all {
        return Err(format!("{} fields where {} are expected", fields.len(), columns.all));
    }
    // A table that was sorted would name and label other rows.
    if let Some(said) = columns.row.map(|at| fields[at].trim()).filter(|said| said.parse() != Ok(row)) {
        return Err(format!("it is of row {}, where row {row} is expected", text::excerpt(said)));
    }
    if let Some(at) = columns.label {
        let label = match fields[at].trim() {
            "" => Some(NO_LABEL),
            label => label.parse().ok(),
        };
        found.labels.push(label.ok_or_else(|| format!("the label `{}` is no number", text::excerpt(&fields[at])))?);
    }
    if let Some(at) = columns.name {
        found.names.push(std::mem::take(&mut fields[at]));
    }
    Ok(())
}

/// What the note says: texts by key, and the names of classes.
fn note(path: &Path, rows: usize, found: &mut Found) -> Result<(), StoredProblem> {
    let bytes = files::read_bounded(path, MAX_NOTE).map_err(|error| beside(path, error.to_string()))?;
    let note: BTreeMap<String, Value> =
        serde_json::from_slice(&bytes).map_err(|error| beside(path, format!("it is no JSON object: {error}")))?;
    if let Some(said) = note.get("rows").filter(|said| said.as_u64() != Some(rows as u64)) {
        let said = text::excerpt(&said.to_string()).to_string();
        return Err(beside(path, format!("it is of an array of {said} rows, and this one has {rows}")));
    }
    if let Some(names) = note.get("class_names") {
        let names = names.as_array().and_then(|names| {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<String>>>()
        });
        found.class_names = names.ok_or_else(|| beside(path, "its `class_names` are no list of texts"))?;
    }
    let texts = note.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned())));
    found.metadata = texts.collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored;

    /// An array of so many rows of one value, and what is beside it.
    fn said(shape: &str, descr: &str, data: &[u8], table: Option<&str>, note: Option<&str>) -> Result<Found, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.npy");
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        std::fs::write(&path, [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()).unwrap();
        for (name, text) in [("f.csv", table), ("f.json", note)] {
            if let Some(text) = text {
                std::fs::write(folder.path().join(name), text).unwrap();
            }
        }
        let read = stored::read(&path).map_err(|error| error.to_string().split_once("f.npy: ").unwrap().1.to_owned());
        read.map(|stored| Found {
            labels: stored.features.labels.iter().map(|label| label.map_or(-1, i64::from)).collect(),
            values: stored.features.values,
            dim: stored.features.dim,
            names: stored.names,
            class_names: stored.class_names,
            metadata: stored.metadata,
        })
    }

    fn of_table(table: &str) -> Result<Found, String> {
        said("(2, 1)", "<f4", &[0, 0, 0, 0, 0, 0, 128, 63], Some(table), None)
    }

    #[test]
    fn arrays_of_other_programs_are_read_with_what_is_beside_them() {
        let found = said("(2, 1)", "<f2", &[0, 0x3c, 0, 0xc0], None, None).unwrap();
        assert_eq!((found.values, found.labels, found.names.len()), (vec![1.0, -2.0], vec![-1, -1], 0));
        let found = of_table("label,path,name\n3,x,\"a, b\"\n,y,c\n").unwrap();
        assert_eq!((found.labels, found.names), (vec![3, -1], vec!["a, b".to_owned(), "c".to_owned()]));
        let note = "{\"class_names\":[\"cat\",\"dog\"],\"rows\":2,\"tokens\":\"class\",\"other\":1}";
        let found = said("(2, 1)", "<f8", &[0; 16], None, Some(note)).unwrap();
        assert_eq!((found.class_names.len(), found.metadata.len()), (2, 1));
    }

    #[test]
    fn each_way_not_to_belong_together_is_named() {
        for (table, expected) in [
            ("", "f.csv beside it: it is empty"),
            ("a,b\n", "f.csv beside it: its first line names no column `name` or `label`"),
            ("row,label\n0,1\n", "f.csv beside it: it has 1 rows, and the array has 2"),
            ("label\n1\n1\n1\n", "f.csv beside it: it has more than 2 rows"),
            ("row,label\n1,1\n0,1\n", "f.csv beside it: line 2: it is of row 1, where row 0 is expected"),
            ("label,name\n1,a\n1\n", "f.csv beside it: line 3: 1 fields where 2 are expected"),
            ("label\n1\ncat\n", "f.csv beside it: line 3: the label `cat` is no number"),
            ("label\n1\n-7\n", "row 1 has the label -7: expected -1 for none"),
            ("label\n1\n\"2\n", "f.csv beside it: line 3: a quotation mark is never closed"),
        ] {
            let said = of_table(table).map(|_| ()).unwrap_err();
            assert!(said.starts_with(expected), "{table:?}: {said}");
        }
        let note = |text: &str| said("(1, 1)", "<f4", &[0; 4], None, Some(text)).map(|_| ()).unwrap_err();
        assert_eq!(note("{\"rows\":3}"), "f.json beside it: it is of an array of 3 rows, and this one has 1");
        assert!(note("[]").starts_with("f.json beside it: it is no JSON object"));
        assert!(note("{\"class_names\":[1]}").ends_with("its `class_names` are no list of texts"));
    }

    #[test]
    fn arrays_that_are_no_features_are_refused() {
        let array =
            |shape: &str, descr: &str, data: &[u8]| said(shape, descr, data, None, None).map(|_| ()).unwrap_err();
        assert!(array("(1, 1, 1)", "<f4", &[0; 4]).starts_with("`features` has the shape [1, 1, 1]"));
        assert!(array("(4,)", "<f4", &[0; 16]).starts_with("`features` has the shape [4]"));
        assert!(array("(1000000000000, 0)", "<f4", &[]).starts_with("`features` has the shape"), "a claim of rows");
        assert!(array("(1, 1)", "<i4", &[0; 4]).contains("whole numbers where floats are needed"));
        assert!(array("(1, 1)", "|O", &[0; 4]).contains("not plain numbers"));
        assert!(array("(2, 1)", "<f4", &[0; 4]).contains("it has 4 bytes of elements, and its shape says 8"));
        assert_eq!(array("(2, 1)", "<f4", &[0, 0, 0, 0, 0, 0, 0xc0, 0x7f]), "the feature of row 1 is not finite");
        let named = said("(1, 1)", "<f4", &[0, 0, 0x80, 0x7f], Some("name\na.jpg\n"), None).map(|_| ()).unwrap_err();
        assert_eq!(named, "the feature of row 0, a.jpg, is not finite");
    }
}
