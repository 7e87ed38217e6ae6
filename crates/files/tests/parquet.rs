//! Tables that are written here, read by the crate that other programs read them with.

use std::fs::File;

use files::parquet::{Column, TableWriter, Values, metadata};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

const COLUMNS: [Column; 5] = [
    Column { name: "name", values: Values::Texts },
    Column { name: "label", values: Values::Integers },
    Column { name: "class", values: Values::Texts },
    Column { name: "feature", values: Values::Floats { width: 3 } },
    Column { name: "score", values: Values::Numbers },
];

fn name(row: usize) -> String {
    format!("é{row}.jpg")
}

fn label(row: usize) -> Option<i64> {
    (!row.is_multiple_of(3)).then_some(row as i64 - 1)
}

fn score(row: usize) -> Option<f64> {
    (row % 5 != 2).then_some(row as f64 / 7.0)
}

fn floats(row: usize, width: usize) -> Vec<f32> {
    (0..width).map(|i| (row * width + i) as f32 * 0.25 - 1.0).collect()
}

fn check(row: &Row, number: usize, width: usize) {
    let fields: Vec<(&String, &Field)> = row.get_column_iter().collect();
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["name", "label", "class", "feature", "score"]);
    assert_eq!(*fields[0].1, Field::Str(name(number)));
    assert_eq!(*fields[1].1, label(number).map_or(Field::Null, Field::Long));
    assert_eq!(*fields[2].1, label(number).map_or(Field::Null, |label| Field::Str(format!("class {label}"))));
    assert_eq!(*fields[4].1, score(number).map_or(Field::Null, Field::Double));
    let Field::ListInternal(list) = fields[3].1 else { panic!("{row}") };
    assert_eq!(list.elements(), floats(number, width).into_iter().map(Field::Float).collect::<Vec<_>>());
}

#[test]
fn another_reader_finds_every_row_and_the_texts_across_groups() {
    // A float a row, three, and so many that the rows fill several groups.
    for (rows, width, groups) in [(0, 3, 0), (1, 1, 1), (7, 3, 1), (40, 300_000, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.parquet");
        let mut columns = COLUMNS;
        columns[3].values = Values::Floats { width };
        let mut table = TableWriter::new(File::create(&path).unwrap(), &columns).unwrap();
        for row in 0..rows {
            table.text(0, Some(&name(row))).unwrap();
            table.integer(1, label(row)).unwrap();
            table.text(2, label(row).map(|label| format!("class {label}")).as_deref()).unwrap();
            table.floats(3, &floats(row, width)).unwrap();
            table.number(4, score(row)).unwrap();
            table.end_row().unwrap();
        }
        table.finish(&[("format", "test"), ("names", "\"é\"")]).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let about = reader.metadata().file_metadata();
        assert_eq!((about.num_rows(), reader.num_row_groups()), (rows as i64, groups));
        let said = about.key_value_metadata().unwrap();
        assert_eq!((said[1].key.as_str(), said[1].value.as_deref()), ("names", Some("\"é\"")));
        assert_eq!(metadata(&path).unwrap()["format"], "test");
        let found: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), rows);
        found.iter().enumerate().for_each(|(number, row)| check(row, number, width));
    }
}

#[test]
fn rows_that_are_not_of_the_table_are_refused() {
    let table = || TableWriter::new(Vec::new(), &COLUMNS).unwrap();
    assert!(table().floats(3, &[1.0]).unwrap_err().to_string().contains("`feature`"));
    assert!(table().integer(0, None).unwrap_err().to_string().contains("`name`"));
    assert!(table().text(9, None).is_err());
    let mut half = table();
    half.text(0, None).unwrap();
    assert!(half.end_row().unwrap_err().to_string().contains("a value for each"));
}
