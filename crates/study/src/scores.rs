//! What evaluations add to a study's table: some numbers of each protocol, out of what `eval all` stores.

use serde_json::Value;

/// A number of a protocol: a column of the table.
#[derive(Debug)]
pub struct Score {
    /// The protocol, as `eval all --only` calls it.
    pub protocol: &'static str,
    /// Its name for programs.
    pub key: &'static str,
    /// Its name for people.
    pub head: &'static str,
    /// Digits behind the point in the table for people.
    pub digits: usize,
    /// The number in what the protocol found.
    of: fn(&Value) -> Option<f64>,
}

impl Eq for Score {}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

const fn score(
    protocol: &'static str,
    key: &'static str,
    head: &'static str,
    digits: usize,
    of: fn(&Value) -> Option<f64>,
) -> Score {
    Score { protocol, key, head, digits, of }
}

/// k and top-1 of a kNN evaluation with the number of neighbours that the literature has, or with the largest there is: not the
/// best of several, which would be chosen by the images that judge.
pub fn knn_of_literature(found: &Value) -> Option<(&Value, f64)> {
    let rows = found["results"].as_array()?;
    let row = rows.iter().find(|row| row["k"] == 20).or(rows.iter().max_by_key(|row| row["k"].as_u64()))?;
    Some((&row["k"], row["top1"].as_f64()?))
}

/// All columns, in their order.
static SCORES: [Score; 16] = [
    score("knn", "knn_all", "kNN, all images", 1, |found| knn_of_literature(found).map(|(_, top1)| top1)),
    score("linear", "linear", "linear", 1, |found| found["top1"].as_f64()),
    score("fewshot", "fewshot", "few-shot", 1, |found| found["results"].as_array()?.last()?["top1"].as_f64()),
    score("transfer", "transfer", "transfer", 1, |found| found["accuracy"].as_f64()),
    score("mixture", "nmi", "NMI", 3, |found| {
        let row = found["results"].as_array()?.first()?;
        let on = if row["test"].is_object() { &row["test"] } else { &row["train"] };
        on["nmi"].as_f64()
    }),
    score("prototypes", "prototypes_used", "prototypes used", 0, |found| found["used"].as_f64()),
    score("prototypes", "prototypes_unique", "unique", 0, |found| of_least_threshold(&found["unique"])),
    score("prototypes", "largest_set", "largest set", 0, |found| of_least_threshold(&found["largest"])),
    score("prototypes", "void_set", "void set", 0, |found| match found["void"]["is_void"].as_bool()? {
        true => found["void"]["members"].as_f64(),
        false => Some(0.0),
    }),
    score("precision", "rank_correlation", "rank correlation", 3, |found| found["rank_correlation"].as_f64()),
    score("certainty", "aurc_density", "AURC, density", 3, |found| found["scores"]["log_density"]["aurc"].as_f64()),
    score("certainty", "aurc_precision", "AURC, precision", 3, |found| found["scores"]["precision"]["aurc"].as_f64()),
    score("certainty", "aurc_entropy", "AURC, entropy", 3, |found| found["scores"]["entropy"]["aurc"].as_f64()),
    score("certainty", "auroc_density", "AUROC, density", 3, |found| found["scores"]["log_density"]["auroc"].as_f64()),
    score("certainty", "auroc_precision", "AUROC, precision", 3, |found| {
        found["scores"]["precision"]["auroc"].as_f64()
    }),
    score("certainty", "auroc_entropy", "AUROC, entropy", 3, |found| found["scores"]["entropy"]["auroc"].as_f64()),
];

/// Of numbers by the cosine from which prototypes are duplicates, that of the smallest.
fn of_least_threshold(by_threshold: &Value) -> Option<f64> {
    let entries = by_threshold.as_object()?.iter();
    let number = |(threshold, value): (&String, &Value)| Some((threshold.parse::<f64>().ok()?, value.as_f64()?));
    let least = entries.filter_map(number).min_by(|(a, _), (b, _)| a.total_cmp(b));
    least.map(|(_, value)| value)
}

impl Score {
    /// The columns of these protocols.
    pub fn of_protocols(protocols: &[String]) -> Vec<&'static Self> {
        SCORES.iter().filter(|score| protocols.iter().any(|name| name == score.protocol)).collect()
    }

    /// The protocols that have one, each once.
    pub fn protocols() -> Vec<&'static str> {
        let mut names: Vec<&str> = SCORES.iter().map(|score| score.protocol).collect();
        names.dedup();
        names
    }

    /// The number, out of the object that `eval all` writes; none where that protocol has none.
    pub fn read(&self, evaluated: &Value) -> Option<f64> {
        (self.of)(&evaluated["results"][self.protocol]).filter(|number| number.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_number_is_found_in_what_its_protocol_writes() {
        let certainty = json!({
            "entropy": { "aurc": 0.5, "auroc": 0.6 }, "log_density": { "aurc": 0.4, "auroc": null }, "precision": { "aurc": 0.45, "auroc": 0.55 },
        });
        let evaluated = json!({ "results": {
            "knn": { "results": [{ "k": 10, "top1": 50.0 }, { "k": 20, "top1": 52.0 }, { "k": 200, "top1": 49.0 }] },
            "linear": { "top1": 61.5 },
            "fewshot": { "results": [{ "top1": 20.0 }, { "top1": 30.0 }] },
            "transfer": { "accuracy": 60.25 },
            "mixture": { "results": [{ "test": { "nmi": 0.25 }, "train": { "nmi": 0.5 } }] },
            "prototypes": {
                "used": 90, "unique": { "0.9": 100, "0.95": 110 }, "largest": { "0.9": 7, "0.95": 6 },
                "void": { "is_void": true, "members": 7 },
            },
            "precision": { "rank_correlation": 0.125 },
            "certainty": { "scores": certainty },
        } });
        let all: Vec<String> = Score::protocols().into_iter().map(str::to_owned).collect();
        let found: Vec<Option<f64>> = Score::of_protocols(&all).iter().map(|score| score.read(&evaluated)).collect();
        let expected = [52.0, 61.5, 30.0, 60.25, 0.25, 90.0, 100.0, 7.0, 7.0, 0.125, 0.4, 0.45, 0.5];
        assert_eq!(found[..13], expected.map(Some));
        assert_eq!(found[13..], [None, Some(0.55), Some(0.6)]);
    }

    #[test]
    fn a_set_that_images_choose_is_no_void_and_what_is_not_there_is_no_number() {
        let prototypes = ["prototypes".to_owned()];
        let void = Score::of_protocols(&prototypes)[3];
        let of = |void: Value| json!({ "results": { "prototypes": { "void": void } } });
        assert_eq!(void.key, "void_set");
        assert_eq!(void.read(&of(json!({ "is_void": false, "members": 7 }))), Some(0.0));
        assert_eq!(void.read(&of(Value::Null)), None);
        assert!(Score::of_protocols(&prototypes).iter().all(|score| score.read(&json!([])).is_none()));
    }
}
