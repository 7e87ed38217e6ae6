//! The one number of a result that people quote, out of the object that holds all of them.

use serde_json::Value;
use study::knn_of_literature;

/// What a protocol gave, in a few words.
pub fn headline(record: &Value) -> String {
    let percent = |value: &Value| value.as_f64().map(|value| format!("{value:.2} %"));
    let share = |value: &Value| value.as_f64().map(|value| format!("{:.2} %", 100.0 * value));
    let found = match record["evaluation"]["name"].as_str().unwrap_or_default() {
        "knn" => knn_of_literature(record).map(|(k, top1)| format!("top-1 {top1:.2} % (k = {k})")),
        "linear" => percent(&record["top1"]).map(|top1| format!("top-1 {top1}")),
        "fewshot" => record["results"].as_array().and_then(|rows| rows.last()).and_then(|row| {
            let learnt = match row["shots"].as_u64() {
                Some(shots) => format!("{shots} a class"),
                None => format!("{} %", row["percent"]),
            };
            Some(format!("top-1 {} ({learnt})", percent(&row["top1"])?))
        }),
        "transfer" => percent(&record["accuracy"]).map(|accuracy| {
            let metric =
                record["settings"]["metric"].as_str().unwrap_or("top1").replace("top1", "top-1").replace('_', " ");
            format!("{metric} {accuracy}")
        }),
        "mixture" => record["results"].as_array().and_then(|rows| rows.first()).and_then(|row| {
            let on = if row["test"].is_object() { &row["test"] } else { &row["train"] };
            Some(format!("NMI {:.3}, log-likelihood {:.3}", on["nmi"].as_f64()?, on["log_likelihood"].as_f64()?))
        }),
        "prototypes" => record["unique"].as_object().and_then(|unique| {
            let (threshold, unique) = unique.iter().next()?;
            Some(format!("{unique} unique of {} (cosine above {threshold})", record["prototypes"]))
        }),
        "precision" => {
            record["rank_correlation"].as_f64().map(|r| format!("rank correlation of |w| and being right {r:.3}"))
        }
        "certainty" => {
            let aurc = |score: &str| {
                let aurc = record["scores"][score]["aurc"].as_f64()?;
                Some(format!("{} {aurc:.4}", score.replace('_', "-")))
            };
            let told: Vec<String> = ["log_density", "precision", "entropy"].into_iter().filter_map(aurc).collect();
            (!told.is_empty()).then(|| format!("AURC by {}", told.join(", ")))
        }
        "retrieval" => share(&record["medium"]["map"]).map(|map| format!("mAP medium {map}")),
        "copies" => share(&record["strong"]).map(|map| format!("mAP strong {map}")),
        "video" => share(&record["jf"]).map(|jf| format!("J&F {jf}")),
        _ => None,
    };
    found.unwrap_or_else(|| "see its table".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_protocol_has_its_number() {
        let of = |name: &str, rest: Value| {
            let mut record = json!({ "evaluation": { "name": name, "version": 1 } });
            if let (Value::Object(record), Value::Object(rest)) = (&mut record, rest) {
                record.extend(rest);
            }
            headline(&record)
        };
        let rows = json!([{ "k": 10, "top1": 55.0 }, { "k": 20, "top1": 53.0 }, { "k": 30, "top1": 54.0 }]);
        assert_eq!(of("knn", json!({ "results": rows })), "top-1 53.00 % (k = 20)");
        let rows = json!([{ "k": 10, "top1": 52.0 }, { "k": 5, "top1": 55.0 }]);
        assert_eq!(of("knn", json!({ "results": rows })), "top-1 52.00 % (k = 10)");
        assert_eq!(of("linear", json!({ "top1": 61.237 })), "top-1 61.24 %");
        let rows = json!([{ "shots": 1, "top1": 2.0 }, { "shots": 5, "top1": 3.0 }]);
        assert_eq!(of("fewshot", json!({ "results": rows })), "top-1 3.00 % (5 a class)");
        let transfer = json!({ "accuracy": 7.0, "settings": { "metric": "mean_per_class" } });
        assert_eq!(of("transfer", transfer), "mean per class 7.00 %");
        let mixture = json!({ "results": [{ "train": { "nmi": 0.5, "log_likelihood": 1.0 }, "test": null }] });
        assert_eq!(of("mixture", mixture), "NMI 0.500, log-likelihood 1.000");
        let prototypes = json!({ "unique": { "0.9": 30, "0.95": 31 }, "prototypes": 32 });
        assert_eq!(of("prototypes", prototypes), "30 unique of 32 (cosine above 0.9)");
        assert_eq!(of("precision", json!({ "rank_correlation": null })), "see its table");
        let certainty = json!({ "scores": { "entropy": { "aurc": 0.25 }, "log_density": { "aurc": 0.125 } } });
        assert_eq!(of("certainty", certainty), "AURC by log-density 0.1250, entropy 0.2500");
        assert_eq!(of("retrieval", json!({ "medium": { "map": 0.25 } })), "mAP medium 25.00 %");
        assert_eq!(of("copies", json!({ "strong": 1.0 })), "mAP strong 100.00 %");
        assert_eq!(of("video", json!({ "jf": 0.6 })), "J&F 60.00 %");
    }
}
