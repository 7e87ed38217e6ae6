//! A table whose rows are images.

use std::io;
use std::path::Path;

use data::Source;
use files::Replacement;
use files::parquet::{Column, TableWriter, Values};
use serde_json::json;

use super::{Failure, Image, Said, Sink};

/// The columns by number.
const NAME: usize = 0;
const LABEL: usize = 1;
const CLASS: usize = 2;
const FEATURE: usize = 3;
/// The first of the columns behind the feature.
const NUMBERS: usize = 4;

/// The table on its way.
pub(super) struct Table {
    table: TableWriter<Replacement>,
    said: Said,
}

impl Table {
    pub(super) fn begin(
        path: &Path,
        shape: &[usize],
        numbers: &[&'static str],
        source: &dyn Source,
        mut said: Said,
    ) -> Result<Self, Failure> {
        let width = shape.iter().product();
        let columns = [
            ("name", Values::Texts),
            ("label", Values::Integers),
            ("class", Values::Texts),
            ("feature", Values::Floats { width }),
        ];
        let numbers = numbers.iter().map(|&name| (name, Values::Numbers));
        let columns = columns.into_iter().chain(numbers).map(|(name, values)| Column { name, values });
        let columns: Vec<Column> = columns.collect();
        // Lists of lists are slow in every reader: a feature is one list, and this is its shape.
        said.insert("feature_shape", json!(shape).to_string());
        said.insert("class_names", json!(source.class_names()).to_string());
        Ok(Self { table: TableWriter::new(Replacement::begin(path)?, &columns)?, said })
    }
}

impl Sink for Table {
    fn row(&mut self, source: &dyn Source, image: Image, values: &[f32], numbers: &[f64]) -> io::Result<()> {
        self.table.text(NAME, Some(&source.name(image.index)))?;
        self.table.integer(LABEL, image.label.map(i64::from))?;
        self.table.text(CLASS, image.class(source))?;
        self.table.floats(FEATURE, values)?;
        (NUMBERS..).zip(numbers).try_for_each(|(at, &number)| self.table.number(at, Some(number)))?;
        self.table.end_row()
    }

    fn finish(self: Box<Self>, _: &dyn Source) -> Result<(), Failure> {
        let said: Vec<(&str, &str)> = self.said.iter().map(|(key, text)| (*key, text.as_str())).collect();
        Ok(self.table.finish(&said)?.finish()?)
    }
}
