//! Accuracy by precision (Fig. 2 of the paper): are images that fall to concentrated components classified better?
//!
//! Images are sorted by |w| of the component that they belong to and cut into ranges of equally many; each range has its own
//! kNN accuracy.

use std::collections::HashMap;

use serde_json::Value;

use super::result::{Malformed, Result, number, whole};
use super::{Figure, Table};
use crate::chart::{Chart, Reference, Series};

/// The evaluation whose results are drawn.
pub const EVALUATION: &str = "precision";
/// Columns of a network in the table.
const COLUMNS: [&str; 4] = ["top-1", "|w| from", "|w| to", "images"];

/// The accuracy of a network in ranges of precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Accuracy {
    /// What the network is called.
    pub name: String,
    /// Per cent of all images that are classified rightly.
    top1: f64,
    ranges: Vec<Range>,
}

#[derive(Clone, Debug, PartialEq)]
struct Range {
    /// The percentiles of |w| between which its images are.
    percentiles: (f64, f64),
    /// As [`COLUMNS`] has them.
    values: [f64; COLUMNS.len()],
}

impl Accuracy {
    /// Out of the result of `eval precision --json`.
    pub fn of_result(name: String, result: &Value) -> Result<Self> {
        let bins = result["bins"].as_array().filter(|bins| !bins.is_empty()).ok_or(Malformed { what: "bins" })?;
        let counts = bins.iter().map(|bin| whole(&bin["images"], "images")).collect::<Result<Vec<_>>>()?;
        // In floating point: the counts of a file may be anything.
        let images: f64 = counts.iter().map(|&count| count as f64).sum();
        let (mut ranges, mut before) = (Vec::with_capacity(bins.len()), 0.0);
        for (bin, &count) in bins.iter().zip(&counts) {
            let after = before + count as f64;
            let percentile = |done: f64| if images > 0.0 { 100.0 * done / images } else { 0.0 };
            let of = |key: &'static str| number(&bin[key], key);
            let values = [of("top1")?, of("from")?, of("to")?, count as f64];
            ranges.push(Range { percentiles: (percentile(before), percentile(after)), values });
            before = after;
        }
        Ok(Self { name, top1: number(&result["top1"], "top1")?, ranges })
    }
}

/// The figure of some networks, a staircase each; of one alone with the accuracy of all its images.
pub fn figure(networks: &[Accuracy]) -> Figure {
    let stairs = |network: &Accuracy| {
        let step = |range: &Range| [range.percentiles.0, range.percentiles.1].map(|at| (at, range.values[0]));
        Series::new(network.name.clone(), network.ranges.iter().flat_map(step).collect())
    };
    let references = match networks {
        [network] => vec![Reference { label: "all images".to_owned(), value: network.top1 }],
        _ => Vec::new(),
    };
    let chart = Chart {
        title: "kNN top-1 by precision, per cent".to_owned(),
        across: "percentile of |w| of the assigned component".to_owned(),
        series: networks.iter().map(stairs).collect(),
        references,
        ..Default::default()
    };
    Figure { charts: vec![chart], table: table(networks) }
}

/// A row for each range; networks that were cut alike share theirs.
fn table(networks: &[Accuracy]) -> Table {
    let mut columns: Vec<String> = ["percentile from", "percentile to"].map(str::to_owned).to_vec();
    columns.extend(networks.iter().flat_map(|n| COLUMNS.map(|column| format!("{}, {column}", n.name))));
    let mut rows: Vec<Vec<Option<f64>>> = Vec::new();
    let mut known: HashMap<(u64, u64), usize> = HashMap::new();
    for (i, network) in networks.iter().enumerate() {
        for Range { percentiles: (from, to), values } in &network.ranges {
            let place = [Some(*from), Some(*to)];
            let row = *known.entry((from.to_bits(), to.to_bits())).or_insert_with(|| {
                rows.push(place.into_iter().chain(vec![None; columns.len() - 2]).collect());
                rows.len() - 1
            });
            let first = 2 + i * COLUMNS.len();
            rows[row][first..first + COLUMNS.len()].copy_from_slice(&values.map(Some));
        }
    }
    Table { columns, rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(top1: &[f64], images: &[u64]) -> Value {
        let bin = |(top1, images)| json!({ "from": 1.0, "to": 1.5, "top1": top1, "images": images });
        json!({ "top1": 60.0, "bins": top1.iter().zip(images).map(bin).collect::<Vec<_>>() })
    }

    #[test]
    fn ranges_are_stairs_over_percentiles_and_share_rows_where_they_agree() {
        let of = |name: &str, value| Accuracy::of_result(name.to_owned(), &value).unwrap();
        let a = of("a", result(&[50.0, 70.0], &[5, 5]));
        let alone = figure(std::slice::from_ref(&a));
        assert_eq!(alone.charts[0].series[0].points, [(0.0, 50.0), (50.0, 50.0), (50.0, 70.0), (100.0, 70.0)]);
        assert_eq!(alone.charts[0].references[0].value, 60.0);
        let both = figure(&[a, of("b", result(&[10.0, 20.0, 30.0], &[2, 1, 1]))]);
        let csv = both.table.csv();
        assert!(csv.contains("\n0,50,50,1,1.5,5,10,1,1.5,2\n50,100,70,1,1.5,5,,,,\n50,75,,,,,20,1,1.5,1\n"), "{csv}");
        assert!(both.charts[0].references.is_empty());
    }

    #[test]
    fn what_is_no_such_result_is_named() {
        let mut hostile = result(&[1.0], &[u64::MAX]);
        assert!(Accuracy::of_result(String::new(), &hostile).is_ok());
        hostile["bins"][0]["from"] = json!("<script>");
        for (wrong, what) in [
            (json!({}), "bins"),
            (json!({ "bins": [] }), "bins"),
            (json!({ "bins": [1] }), "images"),
            (hostile, "from"),
            (json!({ "bins": result(&[1.0], &[1])["bins"] }), "top1"),
        ] {
            assert_eq!(Accuracy::of_result(String::new(), &wrong), Err(Malformed { what }), "{wrong}");
        }
    }
}
