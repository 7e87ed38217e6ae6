//! How many prototypes are in use (the paper's appendix on prototype utilisation): unique prototypes, and the largest set of
//! duplicates, over the cosine above which two are one and the same.

use serde_json::Value;

use super::result::{Malformed, Result, number, whole};
use super::{Figure, merged};
use crate::chart::{Chart, Series};

/// The evaluation whose results are drawn.
pub const EVALUATION: &str = "prototypes";

/// What there is of a network's prototypes at each threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utilisation {
    /// What the network is called.
    pub name: String,
    /// By threshold as it is written, ascending: unique prototypes, and those of the largest set of duplicates.
    thresholds: Vec<(String, u64, u64)>,
}

impl Utilisation {
    /// Out of the result of `eval prototypes --json`.
    pub fn of_result(name: String, result: &Value) -> Result<Self> {
        let counts = |key: &'static str| result[key].as_object().ok_or(Malformed { what: key });
        let (unique, largest) = (counts("unique")?, counts("largest")?);
        let mut thresholds = Vec::new();
        for (threshold, unique) in unique {
            let is_cosine = |x: &f64| *x > 0.0 && *x < 1.0;
            threshold.parse::<f64>().ok().filter(is_cosine).ok_or(Malformed { what: "a threshold" })?;
            let largest = largest.get(threshold).unwrap_or(&Value::Null);
            thresholds.push((threshold.clone(), whole(unique, "unique")?, whole(largest, "largest")?));
        }
        thresholds.sort_by(|a, b| at(a).total_cmp(&at(b)));
        match thresholds.is_empty() {
            true => Err(Malformed { what: "unique" }),
            false => Ok(Self { name, thresholds }),
        }
    }
}

/// Only numbers become thresholds.
fn at((threshold, _, _): &(String, u64, u64)) -> f64 {
    threshold.parse().unwrap_or(f64::NAN)
}

/// The figure of some networks, a line each.
pub fn figure(networks: &[Utilisation]) -> Figure {
    let series = |of: fn(&(String, u64, u64)) -> u64| -> Vec<Series> {
        let points = |network: &Utilisation| network.thresholds.iter().map(|t| (at(t), of(t) as f64)).collect();
        networks.iter().map(|network| Series::new(network.name.clone(), points(network))).collect()
    };
    let (unique, largest) = (series(|t| t.1), series(|t| t.2));
    let named = |series: &[Series], what: &str| -> Vec<Series> {
        series.iter().map(|s| Series { name: format!("{}, {what}", s.name), ..s.clone() }).collect()
    };
    let numbers = [named(&unique, "unique"), named(&largest, "largest set")].concat();
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        across: "cosine above which two prototypes are duplicates".to_owned(),
        series,
        is_count: true,
        is_cut: true,
        ..Default::default()
    };
    Figure {
        table: merged("threshold", &numbers),
        charts: vec![chart("unique prototypes", unique), chart("prototypes in the largest set of duplicates", largest)],
    }
}

/// The concentrations kappa of a network's prototypes, out of the same result: a staircase; nothing to draw where it has none.
pub fn concentrations(result: &Value) -> Result<Chart> {
    let kappa = &result["kappa"];
    let bins = kappa["histogram"].as_array().map_or(&[][..], Vec::as_slice);
    let mut points = Vec::with_capacity(2 * bins.len());
    for (i, bin) in bins.iter().enumerate() {
        let end = bins.get(i + 1).map_or(&kappa["most"], |next| &next["from"]);
        let count = whole(&bin["prototypes"], "prototypes")? as f64;
        points.extend([(number(&bin["from"], "from")?, count), (number(end, "most")?, count)]);
    }
    Ok(Chart {
        title: "prototypes by their concentration".to_owned(),
        across: "kappa = |w| / tau".to_owned(),
        series: vec![Series::new("prototypes", points)],
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_for_each_network_and_a_row_for_each_threshold() {
        let a = json!({ "unique": { "0.9": 10, "0.5": 4 }, "largest": { "0.9": 3, "0.5": 7 } });
        let b = json!({ "unique": { "0.95": 12 }, "largest": { "0.95": 1 } });
        let of = |name: &str, value| Utilisation::of_result(name.to_owned(), value).unwrap();
        let figure = figure(&[of("a", &a), of("b", &b)]);
        assert_eq!(figure.charts[0].series[0].points, [(0.5, 4.0), (0.9, 10.0)]);
        assert_eq!(figure.charts[1].series[1].points, [(0.95, 1.0)]);
        let csv = "threshold,\"a, unique\",\"b, unique\",\"a, largest set\",\"b, largest set\"\n0.5,4,,7,\n0.9,10,,3,\n0.95,,12,,1\n";
        assert_eq!(figure.table.csv(), csv);
    }

    #[test]
    fn concentrations_are_stairs() {
        let of = |kappa: Value| concentrations(&json!({ "kappa": kappa }));
        let bins = json!([{ "from": 1.0, "prototypes": 3 }, { "from": 2.0, "prototypes": 0 }]);
        let chart = of(json!({ "histogram": bins, "most": 3.0 })).unwrap();
        assert_eq!(chart.series[0].points, [(1.0, 3.0), (2.0, 3.0), (2.0, 0.0), (3.0, 0.0)]);
        assert!(of(json!(null)).unwrap().is_empty());
        assert_eq!(of(json!({ "histogram": bins })), Err(Malformed { what: "most" }));
        assert_eq!(of(json!({ "histogram": [{ "from": 1.0 }], "most": 2.0 })), Err(Malformed { what: "prototypes" }));
    }

    #[test]
    fn what_is_no_such_result_is_named() {
        for (wrong, what) in [
            (json!({}), "unique"),
            (json!({ "unique": {}, "largest": {} }), "unique"),
            (json!({ "unique": { "0.9": 1 }, "largest": {} }), "largest"),
            (json!({ "unique": { "0.9": -1 }, "largest": { "0.9": 1 } }), "unique"),
            (json!({ "unique": { "<b>": 1 }, "largest": { "<b>": 1 } }), "a threshold"),
            (json!({ "unique": { "nan": 1 }, "largest": { "nan": 1 } }), "a threshold"),
        ] {
            assert_eq!(Utilisation::of_result(String::new(), &wrong), Err(Malformed { what }), "{wrong}");
        }
    }
}
