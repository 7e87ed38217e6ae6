//! The numbers of a log, however long, as a bounded number of points.

use std::collections::BTreeMap;

use serde_json::Value;

/// No run has more numbers in a record; a log that has is not ours.
const MOST_COLUMNS: usize = 128;
/// Keys that are places, not measurements.
const PLACES: [&str; 2] = ["step", "epoch"];

/// What became of every number of a log over the steps.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    columns: BTreeMap<String, Column>,
    most: usize,
    last_step: Option<u64>,
}

/// One number over the steps. Where there are more than twice as many records as points are kept, a point is the mean of
/// several, all of which are finite: one that is not makes the whole point a gap, so that it is seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    points: Vec<(f64, f64)>,
    /// Records of a point.
    stride: usize,
    /// Those of the next one so far: their number and sum, and the last step.
    open: (usize, f64, f64),
    last: Option<f64>,
}

impl History {
    /// An empty history that keeps `most` to twice as many points of each number.
    pub fn keeping(most: usize) -> Self {
        Self { columns: BTreeMap::new(), most: most.max(2), last_step: None }
    }

    /// Adds a record of a log.
    pub fn add(&mut self, record: &Value) {
        let (Some(step), Some(fields)) = (record.get("step").and_then(Value::as_u64), record.as_object()) else {
            return;
        };
        self.last_step = self.last_step.max(Some(step));
        for (key, value) in fields.iter().filter(|(key, _)| !PLACES.contains(&key.as_str())) {
            let number = match value {
                Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
                // How a log writes what is not finite.
                Value::String(text) => match text.as_str() {
                    "NaN" => f64::NAN,
                    "inf" => f64::INFINITY,
                    "-inf" => f64::NEG_INFINITY,
                    _ => continue,
                },
                _ => continue,
            };
            if self.columns.len() >= MOST_COLUMNS && !self.columns.contains_key(key) {
                continue;
            }
            self.columns.entry(key.clone()).or_default().add(step as f64, number, self.most);
        }
    }

    /// What became of one number.
    pub fn column(&self, key: &str) -> Option<&Column> {
        self.columns.get(key)
    }

    /// The names of all numbers.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// The last step that it tells of.
    pub fn last_step(&self) -> Option<u64> {
        self.last_step
    }
}

impl Column {
    fn add(&mut self, step: f64, value: f64, most: usize) {
        self.last = Some(value);
        let (count, sum, _) = self.open;
        self.open = (count + 1, sum + value, step);
        if self.open.0 >= self.stride.max(1) {
            self.points.push((step, self.open.1 / self.open.0 as f64));
            self.open = (0, 0.0, step);
        }
        if self.points.len() >= 2 * most {
            self.points = self.points.chunks(2).map(|pair| (pair[pair.len() - 1].0, mean(pair))).collect();
            self.stride = 2 * self.stride.max(1);
        }
    }

    /// Steps and values, ascending. A value that is not finite is a gap.
    pub fn points(&self) -> Vec<(f64, f64)> {
        let (count, sum, step) = self.open;
        let open = (count > 0).then(|| (step, sum / count as f64));
        self.points.iter().copied().chain(open).map(|(x, y)| (x, if y.is_finite() { y } else { f64::NAN })).collect()
    }

    /// The last value, finite or not.
    pub fn last(&self) -> Option<f64> {
        self.last
    }
}

fn mean(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|(_, y)| y).sum::<f64>() / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_short_log_is_kept_as_it_is_and_a_gap_stays_one() {
        let mut history = History::keeping(100);
        for (step, loss) in [(10, json!(3.0)), (20, json!("NaN")), (30, json!(2.0))] {
            history.add(&json!({ "step": step, "epoch": 0, "loss": loss, "note": [1] }));
        }
        history.add(&json!({ "step": 30, "knn_top1": 40.0 }));
        history.add(&json!({ "no": "step" }));
        let loss = history.column("loss").unwrap().points();
        assert_eq!((loss[0], loss[2]), ((10.0, 3.0), (30.0, 2.0)));
        assert!(loss[1].1.is_nan());
        assert_eq!(history.column("knn_top1").unwrap().points(), [(30.0, 40.0)]);
        assert!(history.column("epoch").is_none() && history.column("note").is_none());
        assert_eq!(history.last_step(), Some(30));
    }

    #[test]
    fn a_million_records_take_the_memory_of_a_few_points_and_keep_their_mean() {
        let mut history = History::keeping(50);
        let records = 100_003;
        (1..=records).for_each(|step| history.add(&json!({ "step": step, "loss": step as f64 })));
        let points = history.column("loss").unwrap().points();
        assert!((50..=101).contains(&points.len()), "{}", points.len());
        assert_eq!(points.last().unwrap().0, records as f64, "the end is never left out");
        // Each point is the mean of the records up to its step, and so lies half of its width below.
        let widths = points.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].0 - pair[1].1));
        widths.for_each(|(width, below)| assert!((below - (width - 1.0) / 2.0).abs() < 1e-6, "{width} {below}"));
        assert_eq!(history.column("loss").unwrap().last(), Some(records as f64));
    }

    #[test]
    fn a_log_with_any_number_of_keys_has_a_bounded_number_of_columns() {
        let mut history = History::keeping(2);
        (0..1000).for_each(|key| history.add(&json!({ "step": 1, format!("k{key}"): 1.0 })));
        assert_eq!(history.columns.len(), MOST_COLUMNS);
    }
}
