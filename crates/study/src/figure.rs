//! The table of a study as a drawing: a row for each cell, a dot for each seed, a stroke for their mean, and how far raw
//! pixels and the untrained network come.

use std::fmt::Write;

use crate::plan::Cell;
use crate::summary::Summary;

const ROW: f64 = 22.0;
const TOP: f64 = 54.0;
const LABELS: f64 = 320.0;
const PLOT: f64 = 480.0;
const WIDTH: f64 = LABELS + PLOT + 30.0;
/// Longer labels are cut: they would run into the dots.
const LABEL_CHARACTERS: usize = 46;

/// An SVG file that reads on light and dark pages alike.
pub fn figure(summary: &Summary<'_>) -> String {
    let height = TOP + ROW * summary.cells.len() as f64 + 36.0;
    let x = |percent: f64| LABELS + PLOT * (percent / 100.0).clamp(0.0, 1.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<style>.ink{{fill:#24292f}}.line{{stroke:#8c959f}}.dot{{fill:#0969da}}\
         .bad{{fill:#cf222e}}.mean{{stroke:#24292f}}@media (prefers-color-scheme:dark){{.ink{{fill:#e6edf3}}\
         .mean{{stroke:#e6edf3}}.dot{{fill:#58a6ff}}.bad{{fill:#ff7b72}}}}</style>\n\
         <title>kNN top-1 of every run of the study</title>\n"
    );
    let mut put = |text: String| _ = writeln!(svg, "{text}");
    put(format!(
        "<text class=\"ink\" x=\"{LABELS}\" y=\"16\">kNN top-1, per cent. Dots: seeds (red: collapsed), stroke: mean, ◇ raw pixels, ○ untrained</text>"
    ));
    let bottom = TOP + ROW * summary.cells.len() as f64;
    for percent in (0..=100).step_by(20) {
        let at = x(f64::from(percent));
        put(format!("<path class=\"line\" stroke-width=\"0.5\" d=\"M{at:.1} {} V{bottom}\"/>", TOP - 10.0));
        put(format!("<text class=\"ink\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{percent}</text>", TOP - 16.0));
    }
    for (row, (cell, found)) in summary.plan.cells.iter().zip(&summary.cells).enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let label = escaped(&text::shortened(&label(cell), LABEL_CHARACTERS));
        put(format!(
            "<text class=\"ink\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{label}</text>",
            LABELS - 12.0,
            y + 4.0
        ));
        if let Some((raw, _)) = found.mean_of(|knn| knn.raw_pixels) {
            let at = x(raw);
            put(format!("<path class=\"line\" fill=\"none\" d=\"M{:.1} {y} l5 -5 l5 5 l-5 5 z\"/>", at - 5.0));
        }
        if let Some((untrained, _)) = found.mean_of(|knn| knn.untrained) {
            put(format!("<circle class=\"line\" fill=\"none\" cx=\"{:.1}\" cy=\"{y}\" r=\"4\"/>", x(untrained)));
        }
        let runs = summary.plan.runs.iter().zip(summary.outcomes).filter(|(run, _)| run.cell == row);
        for (run, outcome) in runs {
            let Some(knn) = outcome.knn else { continue };
            let class = if outcome.is_collapsed() { "bad" } else { "dot" };
            let (at, seed, value) = (x(knn.trained), run.seed, knn.trained);
            put(format!(
                "<circle class=\"{class}\" fill-opacity=\"0.7\" cx=\"{at:.1}\" cy=\"{y}\" r=\"4\"><title>seed {seed}: {value:.1} %</title></circle>"
            ));
        }
        if let Some((mean, _)) = found.mean_of(|knn| knn.trained) {
            put(format!("<path class=\"mean\" stroke-width=\"2\" d=\"M{:.1} {:.1} v14\"/>", x(mean), y - 7.0));
            put(format!("<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\">{mean:.1}</text>", x(mean) + 8.0, y + 4.0));
        }
    }
    svg + "</svg>\n"
}

fn label(cell: &Cell) -> String {
    let varied: String = cell.varied.iter().map(|(key, value)| format!(", {key} {value}")).collect();
    format!("{}: {}{varied}", cell.data, cell.recipe)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::example;

    #[test]
    fn every_run_with_an_accuracy_is_a_dot_where_its_accuracy_is() {
        let (plan, mut outcomes) = example();
        let svg = figure(&Summary::of(&plan, &outcomes));
        assert_eq!(svg.matches("class=\"dot\"").count(), 2);
        assert_eq!(svg.matches("class=\"bad\" ").count(), 1);
        assert!(svg.contains("cx=\"560.0\" cy=\"65\" r=\"4\"><title>seed 0: 50.0 %"), "{svg}");
        assert!(svg.contains("photos: good, global_scale [0.25, 1]"));
        outcomes[0] = RunOutcome::open();
        assert_eq!(figure(&Summary::of(&plan, &outcomes)).matches("class=\"dot\"").count(), 1);
    }

    use crate::RunOutcome;

    #[test]
    fn nothing_in_a_label_is_read_as_markup() {
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
