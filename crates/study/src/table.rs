//! The table of a study as text: Markdown for people, CSV for programs.

use std::fmt::Write;

use crate::summary::{Ended, RunOutcome, Summary, mean_and_deviation};

/// Rows by data, recipe and grid: mean and standard deviation of kNN over the seeds, the references, collapses and time, and
/// what evaluations found.
pub fn markdown(summary: &Summary<'_>) -> String {
    let varied = &summary.plan.varied;
    // A column is there once a run has something in it.
    let scores = summary.plan.scores.iter().enumerate();
    let scores: Vec<_> = scores.filter(|(n, _)| summary.cells.iter().any(|cell| !cell.scores[*n].is_empty())).collect();
    let mut text = String::new();
    let mut line = |cells: Vec<String>| _ = writeln!(text, "| {} |", cells.join(" | "));
    let heads =
        ["runs", "kNN top-1", "raw pixels", "untrained", "above both", "collapsed", "training"].map(String::from);
    let of_scores = scores.iter().map(|(_, score)| score.head.to_owned());
    let names = ["data".to_owned(), "recipe".to_owned()].into_iter().chain(varied.iter().cloned());
    line(names.chain(heads).chain(of_scores).collect());
    let words = vec!["---".to_owned(); 2 + varied.len()];
    line(words.into_iter().chain(vec!["---:".to_owned(); 7 + scores.len()]).collect());
    for (cell, found) in summary.plan.cells.iter().zip(&summary.cells) {
        let of_grid = varied.iter().map(|key| cell.value(key).unwrap_or_default().replace('|', "\\|"));
        let judged = found.judged.len();
        let mean = |value| with_deviation(value, 1);
        let reference = |value: Option<(f64, Option<f64>)>| mean(value.map(|(mean, _)| (mean, None)));
        let of_scores = scores.iter().map(|(n, score)| of_some(&found.scores[*n], score.digits, found.runs));
        let numbers = [
            runs(found.runs, found.failed, found.open),
            mean(found.mean_of(|knn| knn.trained)),
            reference(found.mean_of(|knn| knn.raw_pixels)),
            reference(found.mean_of(|knn| knn.untrained)),
            if judged == 0 { String::new() } else { format!("{} of {judged}", found.above_both()) },
            collapses(found.collapsed, found.retries),
            found.seconds.map_or(String::new(), duration),
        ];
        let names = [cell.data.clone(), cell.recipe.clone()].into_iter().chain(of_grid);
        line(names.chain(numbers).chain(of_scores).collect());
    }
    text
}

/// Mean and deviation, and of how many runs where those are not all.
fn of_some(values: &[f64], digits: usize, runs: usize) -> String {
    let told = with_deviation(mean_and_deviation(values), digits);
    if values.is_empty() || values.len() == runs { told } else { format!("{told} ({} of {runs})", values.len()) }
}

fn with_deviation(value: Option<(f64, Option<f64>)>, digits: usize) -> String {
    match value {
        Some((mean, Some(deviation))) => format!("{mean:.digits$} ± {deviation:.digits$}"),
        Some((mean, None)) => format!("{mean:.digits$}"),
        None => String::new(),
    }
}

fn runs(all: usize, failed: usize, open: usize) -> String {
    let parts = [(failed, "failed"), (open, "open")];
    let words: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if words.is_empty() { all.to_string() } else { format!("{all} ({})", words.join(", ")) }
}

fn collapses(collapsed: usize, retries: u64) -> String {
    if retries == 0 { collapsed.to_string() } else { format!("{collapsed} (begun again {retries} times)") }
}

/// Seconds, minutes or hours.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5970.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The rows of the table as CSV.
pub fn cells_csv(summary: &Summary<'_>) -> String {
    let varied = &summary.plan.varied;
    let heads = "runs,knn_mean,knn_deviation,raw_pixels,untrained,above_both,collapsed,retries,failed,open,seconds";
    let of_scores: Vec<String> = summary
        .plan
        .scores
        .iter()
        .flat_map(|score| ["mean", "deviation"].map(|of| format!("{}_{of}", score.key)))
        .collect();
    let heads = varied.iter().map(String::as_str).chain(heads.split(',')).chain(of_scores.iter().map(String::as_str));
    let mut text = csv(["data", "recipe"].into_iter().chain(heads));
    let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
    for (cell, found) in summary.plan.cells.iter().zip(&summary.cells) {
        let knn = found.mean_of(|knn| knn.trained);
        let numbers = [
            found.runs.to_string(),
            number(knn.map(|(mean, _)| mean)),
            number(knn.and_then(|(_, deviation)| deviation)),
            number(found.mean_of(|knn| knn.raw_pixels).map(|(mean, _)| mean)),
            number(found.mean_of(|knn| knn.untrained).map(|(mean, _)| mean)),
            found.above_both().to_string(),
            found.collapsed.to_string(),
            found.retries.to_string(),
            found.failed.to_string(),
            found.open.to_string(),
            number(found.seconds),
        ];
        let of_scores = found.scores.iter().flat_map(|values| {
            let found = mean_and_deviation(values);
            [number(found.map(|(mean, _)| mean)), number(found.and_then(|(_, deviation)| deviation))]
        });
        let numbers: Vec<String> = numbers.into_iter().chain(of_scores).collect();
        let of_grid = varied.iter().map(|key| cell.value(key).unwrap_or_default());
        let names = [cell.data.as_str(), cell.recipe.as_str()].into_iter().chain(of_grid);
        text += &csv(names.chain(numbers.iter().map(String::as_str)));
    }
    text
}

/// Every run as CSV.
pub fn runs_csv(summary: &Summary<'_>) -> String {
    let varied = &summary.plan.varied;
    let heads = "seed,knn,raw_pixels,untrained,judgement,steps,retries,seconds,run";
    let keys = summary.plan.scores.iter().map(|score| score.key);
    let heads = varied.iter().map(String::as_str).chain(heads.split(',')).chain(keys);
    let mut text = csv(["data", "recipe"].into_iter().chain(heads));
    for (run, outcome) in summary.plan.runs.iter().zip(summary.outcomes) {
        let cell = &summary.plan.cells[run.cell];
        let RunOutcome { ended, knn, steps, retries, seconds, scores, .. } = outcome;
        let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
        let judgement = match ended {
            Ended::Judged(word) => word.clone(),
            Ended::Failed(why) => format!("failed: {why}"),
            Ended::Open => "open".to_owned(),
        };
        let fields = [
            run.seed.to_string(),
            number(knn.map(|knn| knn.trained)),
            number(knn.map(|knn| knn.raw_pixels)),
            number(knn.map(|knn| knn.untrained)),
            judgement,
            steps.to_string(),
            retries.to_string(),
            number(*seconds),
            run.name.clone(),
        ];
        let of_scores = (0..summary.plan.scores.len()).map(|n| number(scores.get(n).copied().flatten()));
        let fields: Vec<String> = fields.into_iter().chain(of_scores).collect();
        let of_grid = varied.iter().map(|key| cell.value(key).unwrap_or_default());
        let names = [cell.data.as_str(), cell.recipe.as_str()].into_iter().chain(of_grid);
        text += &csv(names.chain(fields.iter().map(String::as_str)));
    }
    text
}

/// A line of CSV (RFC 4180).
fn csv<'a>(fields: impl Iterator<Item = &'a str>) -> String {
    let quoted = |field: &str| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    };
    fields.map(quoted).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Accuracies, Plan, StudyFile};

    /// Two recipes with two seeds: one learns, of the other one seed collapsed and one failed.
    fn example() -> (Plan, Vec<RunOutcome>) {
        let text =
            "seeds = [0, 1]\n[data]\nphotos = \"p\"\n[recipes.good]\n[recipes.bad]\n[grid]\nglobal_scale = [[0.25, 1]]";
        let plan = Plan::of(&StudyFile::parse(text, "s", Path::new("")).unwrap(), "s").unwrap();
        let judged = |word: &str, trained, seconds| RunOutcome {
            ended: Ended::Judged(word.to_owned()),
            knn: Some(Accuracies { trained, untrained: 30.0, raw_pixels: 40.0 }),
            steps: 100,
            seconds: Some(seconds),
            ..RunOutcome::open()
        };
        let collapsed = RunOutcome { retries: 2, ..judged("collapsed", 20.0, 7200.0) };
        let failed = RunOutcome::failed("no \"memory\", none".to_owned());
        (plan, vec![judged("learnt", 50.0, 100.0), judged("learnt", 52.0, 140.0), collapsed, failed])
    }

    #[test]
    fn a_table_has_a_row_for_each_cell() {
        let (plan, outcomes) = example();
        let text = markdown(&Summary::of(&plan, &outcomes));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "| data | recipe | global_scale | runs | kNN top-1 | raw pixels | untrained | above both | collapsed | training |"
        );
        assert_eq!(lines[1], "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
        assert_eq!(lines[2], "| photos | good | [0.25, 1] | 2 | 51.0 ± 1.4 | 40.0 | 30.0 | 2 of 2 | 0 | 2.0 min |");
        let bad = "| photos | bad | [0.25, 1] | 2 (1 failed) | 20.0 | 40.0 | 30.0 | 0 of 1 | 1 (begun again 2 times) | 2.0 h |";
        assert_eq!(lines[3], bad);
    }

    #[test]
    fn evaluations_have_columns_once_a_run_has_their_numbers() {
        let text = "seeds = [0, 1]\nevaluate = [\"linear\", \"certainty\"]\n[data]\nphotos = \"p\"";
        let plan = Plan::of(&StudyFile::parse(text, "s", Path::new("")).unwrap(), "s").unwrap();
        let mut outcomes = vec![RunOutcome::open(), RunOutcome::open()];
        assert!(markdown(&Summary::of(&plan, &outcomes)).starts_with(
            "| data | recipe | runs | kNN top-1 | raw pixels | untrained | above both | collapsed | training |\n"
        ));
        outcomes[0].scores = vec![Some(50.0), None, None, Some(0.25), None, None, None];
        outcomes[1].scores = vec![Some(54.0), None, None, None, None, None, None];
        let summary = Summary::of(&plan, &outcomes);
        let table = markdown(&summary);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].ends_with("| training | linear | AURC, entropy |"), "{}", lines[0]);
        assert_eq!(lines[1].matches("---:").count(), 9);
        assert!(lines[2].ends_with("|  | 52.0 ± 2.8 | 0.250 (1 of 2) |"), "{}", lines[2]);
        let cells = cells_csv(&summary);
        assert!(cells.lines().next().unwrap().contains("seconds,linear_mean,linear_deviation,aurc_density_mean"));
        assert!(cells.lines().nth(1).unwrap().ends_with(",52,2.8284271247461903,,,,,0.25,,,,,,,"), "{cells}");
        let runs = runs_csv(&summary);
        assert!(runs.lines().nth(1).unwrap().ends_with("photos+derived+seed=0,50,,,0.25,,,"), "{runs}");
    }

    #[test]
    fn fields_of_csv_can_be_told_apart() {
        let (plan, outcomes) = example();
        let summary = Summary::of(&plan, &outcomes);
        let runs = runs_csv(&summary);
        let lines: Vec<&str> = runs.lines().collect();
        assert_eq!(lines.len(), 5);
        let first = "photos,good,\"[0.25, 1]\",0,50,40,30,learnt,100,0,100,photos+good+global_scale=0.25_1+seed=0";
        assert_eq!(lines[1], first);
        assert!(lines[4].contains(",\"failed: no \"\"memory\"\", none\","), "{}", lines[4]);
        let cells = cells_csv(&summary);
        assert_eq!(cells.lines().count(), 3);
        assert!(cells.lines().nth(2).unwrap().ends_with(",2,20,,40,30,0,1,2,1,0,7200"), "{cells}");
    }
}
