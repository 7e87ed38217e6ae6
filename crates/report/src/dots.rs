//! Shares in per cent as dots, a row for each thing that was tried: what a study has found.
//!
//! A file of its own, which reads on light and dark pages alike.

use std::fmt::Write;

use crate::markup::escape;

const ROW: f64 = 22.0;
const TOP: f64 = 54.0;
const LABELS: f64 = 320.0;
const PLOT: f64 = 480.0;
const WIDTH: f64 = LABELS + PLOT + 30.0;
/// Longer labels are cut: they would run into the dots.
const LABEL_CHARACTERS: usize = 46;
/// The colours of [`chart::STYLE`](crate::chart::STYLE), as plain rules: programs that draw SVG know no variables.
const STYLE: &str = ".ink{fill:#1f2328}.line{stroke:#8c959f}.dot{fill:#0072b2}.bad{fill:#d55e00}.mean{stroke:#1f2328}\
@media (prefers-color-scheme:dark){.ink{fill:#e6edf3}.mean{stroke:#e6edf3}.dot{fill:#58a6ff}.bad{fill:#ff8c42}}";

/// Rows of dots between 0 and 100 per cent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dots {
    /// What is drawn.
    pub title: String,
    /// What the signs mean, above them.
    pub legend: String,
    /// From the top down.
    pub rows: Vec<DotRow>,
}

/// What belongs together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DotRow {
    /// What it is called.
    pub label: String,
    /// Single results.
    pub dots: Vec<Dot>,
    /// Their mean: a stroke with its value.
    pub mean: Option<f64>,
    /// A value to compare with: a diamond.
    pub diamond: Option<f64>,
    /// Another one: a ring.
    pub ring: Option<f64>,
}

/// A single result.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// In per cent.
    pub value: f64,
    /// Whether it went wrong.
    pub is_bad: bool,
    /// What is shown when somebody points at it.
    pub title: String,
}

impl Dots {
    /// As an SVG file.
    ///
    /// ```
    /// use report::dots::{Dot, DotRow, Dots};
    /// let dot = Dot { value: 50.0, is_bad: false, title: "seed 0".into() };
    /// let row = DotRow { label: "a < b".into(), dots: vec![dot], ..Default::default() };
    /// let svg = Dots { rows: vec![row], ..Default::default() }.svg();
    /// assert!(svg.contains("cx=\"560.0\"") && svg.contains("a &lt; b"));
    /// ```
    pub fn svg(&self) -> String {
        let (title, legend) = (escape(&self.title), escape(&self.legend));
        let bottom = TOP + ROW * self.rows.len() as f64;
        let height = bottom + 36.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"'DejaVu Sans',sans-serif\" font-size=\"12\">\n<style>{STYLE}</style>\n<title>{title}</title>\n\
             <text class=\"ink\" x=\"{LABELS}\" y=\"16\">{legend}</text>\n"
        );
        for percent in (0..=100).step_by(20) {
            let at = place(f64::from(percent));
            _ = writeln!(svg, "<path class=\"line\" stroke-width=\"0.5\" d=\"M{at:.1} {} V{bottom}\"/>", TOP - 10.0);
            _ = writeln!(
                svg,
                "<text class=\"ink\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{}\">{percent}</text>",
                TOP - 16.0
            );
        }
        for (number, row) in self.rows.iter().enumerate() {
            draw_row(&mut svg, row, TOP + ROW * (number as f64 + 0.5));
        }
        svg + "</svg>\n"
    }
}

/// Where a share is across the drawing.
fn place(percent: f64) -> f64 {
    LABELS + PLOT * (percent / 100.0).clamp(0.0, 1.0)
}

fn draw_row(svg: &mut String, row: &DotRow, y: f64) {
    let label = text::shortened(&row.label, LABEL_CHARACTERS);
    _ = writeln!(
        svg,
        "<text class=\"ink\" text-anchor=\"end\" x=\"{}\" y=\"{:.1}\">{}</text>",
        LABELS - 12.0,
        y + 4.0,
        escape(&label)
    );
    // What is not finite has no place.
    let drawn = |value: Option<f64>| value.filter(|value| value.is_finite());
    if let Some(value) = drawn(row.diamond) {
        let from = place(value) - 5.0;
        _ = writeln!(svg, "<path class=\"line\" fill=\"none\" d=\"M{from:.1} {y} l5 -5 l5 5 l-5 5 z\"/>");
    }
    if let Some(value) = drawn(row.ring) {
        _ = writeln!(svg, "<circle class=\"line\" fill=\"none\" cx=\"{:.1}\" cy=\"{y}\" r=\"4\"/>", place(value));
    }
    for dot in row.dots.iter().filter(|dot| dot.value.is_finite()) {
        let (class, at, title) = (if dot.is_bad { "bad" } else { "dot" }, place(dot.value), escape(&dot.title));
        _ = writeln!(
            svg,
            "<circle class=\"{class}\" fill-opacity=\"0.7\" cx=\"{at:.1}\" cy=\"{y}\" r=\"4\"><title>{title}</title></circle>"
        );
    }
    if let Some(mean) = drawn(row.mean) {
        let at = place(mean);
        _ = writeln!(svg, "<path class=\"mean\" stroke-width=\"2\" d=\"M{at:.1} {:.1} v14\"/>", y - 7.0);
        _ = writeln!(svg, "<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\">{mean:.1}</text>", at + 8.0, y + 4.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::png;

    #[test]
    fn hostile_texts_are_text_and_numbers_without_a_place_are_left_out() {
        let dot = |value| Dot { value, is_bad: true, title: "</title><script>".into() };
        let row = DotRow {
            label: "<script>alert(1)</script>\u{202e}".into(),
            dots: vec![dot(1e9), dot(f64::NAN)],
            mean: Some(f64::NAN),
            diamond: Some(-5.0),
            ring: Some(f64::INFINITY),
        };
        let svg = Dots { title: "a & b".into(), legend: "<".into(), rows: vec![row] }.svg();
        assert!(!svg.contains("<script") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!((svg.matches("class=\"bad\"").count(), svg.matches("<title>").count()), (1, 2), "{svg}");
        assert!(svg.contains("cx=\"800.0\""), "beyond the end is at the end: {svg}");
        assert!(png(&svg, 1.0).is_ok(), "it can be drawn");
    }
}
