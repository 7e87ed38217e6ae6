//! Risk-coverage curves: of the most certain images, how many are classified wrongly, by each measure of certainty.
//!
//! Of one network a chart with a line for each measure; of several a chart for each measure with a line for each network.

use serde_json::Value;

use super::result::{Malformed, Result, number};
use super::{Figure, merged};
use crate::chart::{Chart, Series};

/// The evaluation whose results are drawn.
pub const EVALUATION: &str = "certainty";
/// The measures, as a result and as a chart call them.
const MEASURES: [(&str, &str); 5] = [
    ("precision", "precision"),
    ("entropy", "entropy"),
    ("log_density", "log-density"),
    ("neighbor", "nearest neighbour"),
    ("vote", "vote"),
];
/// Points of a curve, at most: a result has a hundred.
const MOST_POINTS: usize = 1000;

/// The curves of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Risks {
    /// What the network is called.
    pub name: String,
    /// Of each measure that it has: what it is called, and coverage and risk in per cent.
    measures: Vec<(&'static str, Vec<(f64, f64)>)>,
}

impl Risks {
    /// Out of the result of `eval certainty --json`.
    pub fn of_result(name: String, result: &Value) -> Result<Self> {
        let scores = result["scores"].as_object().ok_or(Malformed { what: "scores" })?;
        let mut measures = Vec::new();
        for (key, shown) in MEASURES {
            if let Some(score) = scores.get(key) {
                measures.push((shown, curve(&score["risk_coverage"])?));
            }
        }
        match measures.is_empty() {
            true => Err(Malformed { what: "scores" }),
            false => Ok(Self { name, measures }),
        }
    }
}

fn curve(points: &Value) -> Result<Vec<(f64, f64)>> {
    const WHAT: &str = "risk_coverage";
    let points = points.as_array().filter(|points| !points.is_empty() && points.len() <= MOST_POINTS);
    let share = |value: &Value| number(value, WHAT).map(|share| 100.0 * share);
    let point = |point: &Value| Ok((share(&point[0])?, share(&point[1])?));
    points.ok_or(Malformed { what: WHAT })?.iter().map(point).collect()
}

/// The figure of some networks.
pub fn figure(networks: &[Risks]) -> Figure {
    let chart = |title: String, series: Vec<Series>| Chart {
        title,
        across: "coverage: per cent of the images, the most certain first".to_owned(),
        series,
        ..Default::default()
    };
    let title = "risk: per cent wrong in kNN";
    let charts = match networks {
        [network] => {
            let line = |(measure, points): &(&str, Vec<(f64, f64)>)| Series::new((*measure).to_owned(), points.clone());
            vec![chart(title.to_owned(), network.measures.iter().map(line).collect())]
        }
        _ => {
            let of = |shown: &'static str| {
                let line = |network: &Risks| {
                    let (_, points) = network.measures.iter().find(|(measure, _)| *measure == shown)?;
                    Some(Series::new(network.name.clone(), points.clone()))
                };
                let lines: Vec<Series> = networks.iter().filter_map(line).collect();
                (!lines.is_empty()).then(|| chart(format!("{title}, by {shown}"), lines))
            };
            MEASURES.into_iter().filter_map(|(_, shown)| of(shown)).collect()
        }
    };
    let column = |network: &Risks| {
        let name = network.name.clone();
        let line = move |(measure, points): &(&str, Vec<(f64, f64)>)| {
            Series::new(format!("{name}, {measure}"), points.clone())
        };
        network.measures.iter().map(line).collect::<Vec<_>>()
    };
    let columns: Vec<Series> = networks.iter().flat_map(column).collect();
    Figure { charts, table: merged("coverage", &columns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(measures: &[&str]) -> Value {
        let curve = json!({ "risk_coverage": [[0.5, 0.125], [1.0, 0.25]] });
        json!({ "scores": measures.iter().map(|m| ((*m).to_owned(), curve.clone())).collect::<serde_json::Map<_, _>>() })
    }

    #[test]
    fn one_network_has_its_measures_in_a_chart_and_several_share_one_of_each() {
        let of = |name: &str, measures: &[&str]| Risks::of_result(name.to_owned(), &result(measures)).unwrap();
        let vmf = of("vmf", &["precision", "entropy"]);
        let alone = figure(std::slice::from_ref(&vmf));
        assert_eq!((alone.charts.len(), alone.charts[0].series.len()), (1, 2));
        assert_eq!(alone.charts[0].series[0].points, [(50.0, 12.5), (100.0, 25.0)]);
        let both = figure(&[vmf, of("dino", &["entropy"])]);
        assert_eq!(both.charts.iter().map(|chart| chart.series.len()).collect::<Vec<_>>(), [1, 2]);
        assert!(both.charts[1].title.ends_with("by entropy"));
        let csv = both.table.csv();
        assert!(
            csv.starts_with("coverage,\"vmf, precision\",\"vmf, entropy\",\"dino, entropy\"\n50,12.5,12.5,12.5\n"),
            "{csv}"
        );
    }

    #[test]
    fn what_is_no_such_result_is_named() {
        let mut hostile = result(&["vote"]);
        hostile["scores"]["vote"]["risk_coverage"][0][1] = json!("<script>");
        let long = json!({ "scores": { "vote": { "risk_coverage": vec![[0.5, 0.5]; MOST_POINTS + 1] } } });
        for (wrong, what) in [
            (json!({}), "scores"),
            (json!({ "scores": { "unknown": {} } }), "scores"),
            (json!({ "scores": { "vote": {} } }), "risk_coverage"),
            (json!({ "scores": { "vote": { "risk_coverage": [] } } }), "risk_coverage"),
            (json!({ "scores": { "vote": { "risk_coverage": [1] } } }), "risk_coverage"),
            (long, "risk_coverage"),
            (hostile, "risk_coverage"),
        ] {
            assert_eq!(Risks::of_result(String::new(), &wrong), Err(Malformed { what }), "{wrong}");
        }
    }
}
