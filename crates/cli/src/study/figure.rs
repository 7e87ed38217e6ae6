//! The table of a study as a drawing: a row for each cell, a dot for each seed, a stroke for their mean, and how far raw
//! pixels and the untrained network come.

use report::dots::{Dot, DotRow, Dots};
use study::{Cell, Summary};

/// An SVG file that reads on light and dark pages alike.
pub fn figure(summary: &Summary<'_>) -> String {
    let row = |(number, cell): (usize, &Cell)| {
        let found = &summary.cells[number];
        let runs = summary.plan.runs.iter().zip(summary.outcomes).filter(|(run, _)| run.cell == number);
        let dots = runs.filter_map(|(run, outcome)| {
            let value = outcome.knn?.trained;
            Some(Dot { value, is_bad: outcome.is_collapsed(), title: format!("seed {}: {value:.1} %", run.seed) })
        });
        DotRow {
            label: label(cell),
            dots: dots.collect(),
            mean: found.mean_of(|knn| knn.trained).map(|(mean, _)| mean),
            diamond: found.mean_of(|knn| knn.raw_pixels).map(|(raw, _)| raw),
            ring: found.mean_of(|knn| knn.untrained).map(|(untrained, _)| untrained),
        }
    };
    let legend =
        "kNN top-1, per cent. Dots: seeds (orange: collapsed), stroke: mean, ◇ raw pixels, ○ untrained".to_owned();
    let title = "kNN top-1 of every run of the study".to_owned();
    Dots { title, legend, rows: summary.plan.cells.iter().enumerate().map(row).collect() }.svg()
}

fn label(cell: &Cell) -> String {
    let varied: String = cell.varied.iter().map(|(key, value)| format!(", {key} {value}")).collect();
    format!("{}: {}{varied}", cell.data, cell.recipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use study::{Accuracies, Ended, Plan, RunOutcome, StudyFile};

    #[test]
    fn every_run_with_an_accuracy_is_a_dot_where_its_accuracy_is() {
        let text =
            "seeds = [0, 1]\n[data]\nphotos = \"p\"\n[recipes.good]\n[recipes.bad]\n[grid]\nglobal_scale = [[0.25, 1]]";
        let plan = Plan::of(&StudyFile::parse(text, "s", Path::new("")).unwrap(), "s").unwrap();
        let judged = |word: &str, trained| RunOutcome {
            ended: Ended::Judged(word.to_owned()),
            knn: Some(Accuracies { trained, untrained: 30.0, raw_pixels: 40.0 }),
            ..RunOutcome::open()
        };
        let mut outcomes = vec![
            judged("learnt", 50.0),
            judged("learnt", 52.0),
            judged("collapsed", 20.0),
            RunOutcome::failed("no memory".to_owned()),
        ];
        let svg = figure(&Summary::of(&plan, &outcomes));
        assert_eq!(svg.matches("class=\"dot\"").count(), 2);
        assert_eq!(svg.matches("class=\"bad\" ").count(), 1);
        assert!(svg.contains("cx=\"560.0\" cy=\"65\" r=\"4\"><title>seed 0: 50.0 %"), "{svg}");
        assert!(svg.contains("photos: good, global_scale [0.25, 1]"));
        outcomes[0] = RunOutcome::open();
        assert_eq!(figure(&Summary::of(&plan, &outcomes)).matches("class=\"dot\"").count(), 1);
    }
}
