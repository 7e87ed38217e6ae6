//! The paper's figures: drawings with their numbers beside them.
//!
//! - [`circle`]: the density of a mixture on the circle, with and without the normaliser.
//! - [`normalizer`]: log C_p and how far the paper's approximation is from it.
//! - [`curves`]: accuracies over the epochs of several runs, with bands over seeds.
//! - [`prototypes`]: unique prototypes and the largest set of duplicates, over the threshold.
//! - [`precision`]: accuracy by the precision of the component that images belong to.
//! - [`certainty`]: errors among the most certain images, by each measure of certainty.
//! - `raster`: a drawing as PNG.

pub mod certainty;
pub mod circle;
pub mod curves;
pub mod normalizer;
pub mod precision;
pub mod prototypes;
mod raster;
mod result;

pub use raster::{RasterError, png};
pub use result::Malformed;

use crate::chart::{self, Chart};

/// Charts, and the numbers that they are drawn from.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// One below the other.
    pub charts: Vec<Chart>,
    /// The numbers.
    pub table: Table,
}

/// Numbers in columns; an entry is missing where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, of as many entries.
    pub rows: Vec<Vec<Option<f64>>>,
}

impl Figure {
    /// As an SVG file.
    pub fn svg(&self) -> String {
        chart::svg_file(&self.charts)
    }
}

impl Table {
    /// As CSV, with every digit that a number has.
    ///
    /// ```
    /// let table = report::figure::Table { columns: vec!["a, b".into()], rows: vec![vec![Some(0.1)], vec![None]] };
    /// assert_eq!(table.csv(), "\"a, b\"\n0.1\n\n");
    /// ```
    pub fn csv(&self) -> String {
        let quoted = |text: &String| match text.contains([',', '"', '\n', '\r']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.clone(),
        };
        let number = |entry: &Option<f64>| entry.map_or(String::new(), |number| number.to_string());
        let mut csv = self.columns.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            csv += &(row.iter().map(number).collect::<Vec<_>>().join(",") + "\n");
        }
        csv
    }
}

/// Columns of numbers that share their places.
fn table(across: &str, places: &[f64], series: &[chart::Series]) -> Table {
    let columns = std::iter::once(across.to_owned()).chain(series.iter().map(|s| s.name.clone())).collect();
    let row = |(i, &place): (usize, &f64)| {
        let entries = series.iter().map(|s| s.points.get(i).map(|point| point.1).filter(|y| y.is_finite()));
        std::iter::once(Some(place)).chain(entries).collect()
    };
    Table { columns, rows: places.iter().enumerate().map(row).collect() }
}

/// Columns of numbers at places of their own, ascending: a row for each place that any of them has.
fn merged(across: &str, series: &[chart::Series]) -> Table {
    let mut places: Vec<f64> = series.iter().flat_map(|s| &s.points).map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let entry = |s: &chart::Series, place: f64| {
        let at = s.points.partition_point(|point| point.0 < place);
        s.points.get(at).filter(|point| point.0 == place).map(|point| point.1)
    };
    let row = |&place: &f64| std::iter::once(Some(place)).chain(series.iter().map(|s| entry(s, place))).collect();
    let columns = std::iter::once(across.to_owned()).chain(series.iter().map(|s| s.name.clone())).collect();
    Table { columns, rows: places.iter().map(row).collect() }
}
