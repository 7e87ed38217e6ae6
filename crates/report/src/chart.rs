//! Lines over steps or epochs, as SVG that reads on light and dark pages, on paper and by the colour-blind.
//!
//! A chart is complete without a script: axes, lines, legend and reference values are drawn. Beside it stands its data as
//! JSON, from which the script of a page shows values under the pointer and smooths.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::markup::{escape, script_data};
use crate::scale::{Scale, labels, shown};

/// Size of the drawing, and the room around the plot, in its own units.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// Points of a line that are drawn one by one, at the most.
const FEW: usize = 24;
/// Lines that differ in colour; further ones repeat it, dashed otherwise.
const COLORS: usize = 7;

/// The colours of Okabe and Ito, which differ for every kind of sight, in an order in which neighbours differ in
/// brightness too; and the ink, for pages of either kind.
pub const STYLE: &str = "\
.chart{--ink:#1f2328;--faint:#d5dae0;--muted:#59636e;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#7a6a00}\
@media (prefers-color-scheme:dark){.chart{--ink:#e6edf3;--faint:#30363d;--muted:#9198a1;--c0:#58a6ff;--c1:#ff8c42;--c2:#3fd0a4;--c3:#e5a5c8;--c4:#f2c14e;--c5:#9bd7f5;--c6:#d8cf6a}}\
@media print{.chart{--ink:#000;--faint:#ccc;--muted:#444;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#7a6a00}}\
.chart text{fill:var(--muted);font:11px system-ui,sans-serif}.chart .grid{stroke:var(--faint);stroke-width:1}\
.chart .line{fill:none;stroke-width:1.8;stroke-linejoin:round}.chart .band{stroke:none;fill-opacity:.16}\
.chart .reference{stroke:var(--muted);stroke-width:1;stroke-dasharray:5 4}\
.chart .dot{stroke:none}";

/// The same colours for a file of its own, on white. Plain rules alone: programs that draw SVG know no variables.
const FILE_COLORS: [&str; COLORS] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00"];
const FILE_STYLE: &str = "text{fill:#333;font-size:11px;font-family:'DejaVu Sans',sans-serif}.title{font-size:13px;fill:#000}\
.grid{stroke:#ccc;stroke-width:1}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}.band{stroke:none;fill-opacity:.16}\
.reference{stroke:#555;stroke-width:1;stroke-dasharray:5 4}.dot{stroke:none}";
/// Room for a panel's title in a file, and for a row of its legend.
const TITLE: f64 = 22.0;
const ROW: f64 = 16.0;

/// Where a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    /// On a page, which has [`STYLE`].
    Page,
    /// In a file of its own.
    File,
}

impl Paint {
    fn color(self, i: usize) -> String {
        match self {
            Paint::Page => format!("var(--c{})", i % COLORS),
            Paint::File => FILE_COLORS[i % COLORS].to_owned(),
        }
    }

    /// A line's colour and dashes.
    fn stroke(self, i: usize) -> String {
        let dashes = ["", ";stroke-dasharray:7 3", ";stroke-dasharray:2 3", ";stroke-dasharray:9 3 2 3"];
        let dash = match self {
            Paint::Page => i / COLORS,
            // On paper there may be no colours, nor a pointer that tells lines apart which lie upon each other.
            Paint::File => i,
        };
        format!("stroke:{}{}", self.color(i), dashes[dash % dashes.len()])
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is called.
    pub name: String,
    /// Places and values, ascending in place. A value that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// A band around the line: place, lower and upper end.
    pub band: Vec<(f64, f64, f64)>,
}

impl Series {
    /// A line without a band.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, band: Vec::new() }
    }
}

/// A value to compare with, drawn across the chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// What it is.
    pub label: String,
    /// The value.
    pub value: f64,
}

/// Some lines in one pair of axes.
///
/// ```
/// use report::{Chart, Series};
/// let loss = Series::new("loss", vec![(0.0, 6.2), (10.0, 5.1)]);
/// let chart = Chart { title: "Loss".into(), across: "epoch".into(), series: vec![loss], ..Default::default() };
/// assert!(chart.svg().starts_with("<svg") && chart.svg().contains("<title>Loss</title>"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What is drawn.
    pub title: String,
    /// What the places are: epochs, steps.
    pub across: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Values to compare with.
    pub references: Vec<Reference>,
    /// Whether the values are drawn by their orders of magnitude.
    pub is_logarithmic: bool,
    /// Whether the values are counts: their axis begins at zero, and its ticks are whole numbers.
    pub is_count: bool,
    /// Whether the axis of the places begins where the lines do, as that of thresholds, rather than at zero.
    pub is_cut: bool,
    /// How far apart the ticks of the places are, where round numbers are not what people count in: degrees.
    pub places_every: Option<f64>,
}

/// Both axes of a chart.
struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        (LEFT + width * self.x.place(x), TOP + height * (1.0 - self.y.place(y)))
    }
}

impl Chart {
    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        !self.series.iter().any(|series| series.points.iter().any(is_drawn))
    }

    fn axes(&self) -> Axes {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let finite = || points().filter(|point| is_drawn(point));
        let ends = finite().map(|(x, _)| *x).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        let bands = self.series.iter().flat_map(|series| &series.band).flat_map(|&(_, low, high)| [low, high]);
        let lines: Vec<f64> = finite().map(|(_, y)| *y).chain(bands).collect();
        // A reference far beyond the lines would press them flat; it is then left to the legend.
        let highest = lines.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let near = self.references.iter().map(|r| r.value).filter(|value| *value <= 2.5 * highest.abs());
        let zero = self.is_count.then_some(0.0);
        let values: Vec<f64> = lines.iter().copied().chain(near).chain(zero).collect();
        let y = if self.is_logarithmic { Scale::logarithmic(values) } else { Scale::linear(values) };
        let x = if self.is_cut && ends.0 < ends.1 {
            Scale::exact(ends.0, ends.1)
        } else if ends.0 <= ends.1 {
            Scale::exact(ends.0.min(0.0).max(ends.0 - ends.1), ends.1)
        } else {
            Scale::exact(0.0, 1.0)
        };
        Axes { x, y }
    }

    /// The drawing, which takes its colours from [`STYLE`] on the page.
    pub fn svg(&self) -> String {
        let title = escape(&self.title);
        let content = self.content(Paint::Page);
        format!(
            "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title>{content}</svg>"
        )
    }

    /// Axes, references and lines.
    fn content(&self, paint: Paint) -> String {
        let axes = self.axes();
        let mut svg = String::new();
        let places = self.places_every.map_or_else(|| axes.x.ticks(6), |step| axes.x.multiples(step));
        let mut values = axes.y.ticks(5);
        values.retain(|value| !self.is_count || value.fract() == 0.0);
        draw_axes(&mut svg, &axes, (&places, &values), &self.across);
        for reference in &self.references {
            let (from, to, _) = axes.y.ends();
            if (from..=to).contains(&reference.value) {
                let (_, y) = axes.at((0.0, reference.value));
                let (label, end) = (escape(&reference.label), WIDTH - RIGHT);
                _ = write!(svg, "<path class=\"reference\" d=\"M{LEFT} {y:.1}H{end}\"/>");
                _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", end - 2.0, y - 4.0);
            }
        }
        for (i, series) in self.series.iter().enumerate() {
            draw_series(&mut svg, &axes, paint, (i, series), self.is_cut);
        }
        svg
    }

    /// The chart as a part of a page: drawing, legend and data.
    pub(crate) fn figure(&self) -> String {
        let data = format!("<script type=\"application/json\">{}</script>", script_data(&self.data()));
        self.framed(&self.series, &data)
    }

    /// The same for a page without a script: a line alone needs no name, and where it ends is seen.
    pub(crate) fn still(&self) -> String {
        let named = if self.series.len() > 1 { &self.series[..] } else { &[] };
        self.framed(named, "")
    }

    /// Drawing and legend, which has these lines, and what else belongs to them.
    fn framed(&self, named: &[Series], more: &str) -> String {
        let mut legend = String::new();
        // A run that has not logged a number keeps its colour for the charts of others.
        for (i, series) in named.iter().enumerate().filter(|(_, series)| !series.points.is_empty()) {
            let last = series.points.iter().rev().find(|(_, y)| y.is_finite()).map_or(f64::NAN, |(_, y)| *y);
            _ = write!(
                legend,
                "<li><svg viewBox=\"0 0 18 8\"><path class=\"line\" style=\"{}\" d=\"M0 4h18\"/></svg>{} <b>{}</b></li>",
                Paint::Page.stroke(i),
                escape(&series.name),
                shown(last)
            );
        }
        for reference in &self.references {
            let (label, value) = (escape(&reference.label), shown(reference.value));
            _ = write!(legend, "<li class=\"against\">{label} <b>{value}</b></li>");
        }
        format!(
            "<figure class=\"plot chart\"><figcaption>{}</figcaption>{}<ul>{legend}</ul>{more}</figure>\n",
            escape(&self.title),
            self.svg()
        )
    }

    /// What the script of a page needs to know.
    fn data(&self) -> Value {
        let axes = self.axes();
        let of_scale = |scale: &Scale| {
            let (from, to, is_logarithmic) = scale.ends();
            json!({ "from": from, "to": to, "log": is_logarithmic })
        };
        let column = |series: &Series, of: fn(&(f64, f64)) -> f64| -> Vec<Value> {
            series.points.iter().map(|point| rounded(of(point))).collect()
        };
        let lines: Vec<Value> = self
            .series
            .iter()
            .map(|s| json!({ "name": s.name, "x": column(s, |p| p.0), "y": column(s, |p| p.1) }))
            .collect();
        json!({
            "across": self.across, "x": of_scale(&axes.x), "y": of_scale(&axes.y), "series": lines,
            "plot": [LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM], "size": [WIDTH, HEIGHT],
        })
    }
}

/// Six digits are more than anybody sees; what is not finite is null.
fn rounded(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    format!("{value:.6e}").parse::<f64>().map_or(Value::Null, |value| json!(value))
}

fn is_drawn((x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

/// Charts one below the other as a file of its own, on white, each with its title and legend.
pub fn svg_file(charts: &[Chart]) -> String {
    let height_of = |chart: &Chart| TITLE + HEIGHT + ROW * (chart.series.len() as f64 + 0.5);
    let height: f64 = charts.iter().map(height_of).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <style>{FILE_STYLE}</style><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    let mut top = 0.0;
    for chart in charts {
        let (title, content) = (escape(&chart.title), chart.content(Paint::File));
        _ = write!(
            svg,
            "<g transform=\"translate(0 {top:.1})\"><text class=\"title\" x=\"{LEFT}\" y=\"16\">{title}</text>"
        );
        _ = write!(svg, "<g transform=\"translate(0 {TITLE})\">{content}</g>");
        for (i, series) in chart.series.iter().enumerate() {
            let y = TITLE + HEIGHT + ROW * (i as f64 + 0.5);
            let stroke = Paint::File.stroke(i);
            _ = write!(svg, "<path class=\"line\" style=\"{stroke}\" d=\"M{LEFT} {:.1}h18\"/>", y - 4.0);
            _ = write!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", LEFT + 24.0, escape(&series.name));
        }
        svg += "</g>\n";
        top += height_of(chart);
    }
    svg + "</svg>\n"
}

fn draw_axes(svg: &mut String, axes: &Axes, (places, values): (&[f64], &[f64]), across: &str) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (&tick, text) in values.iter().zip(labels(values)) {
        let (_, y) = axes.at((0.0, tick));
        _ = write!(svg, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>");
        _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 6.0, y + 4.0);
    }
    for (&tick, text) in places.iter().zip(labels(places)) {
        let (x, _) = axes.at((tick, 0.0));
        _ = write!(svg, "<path class=\"grid\" d=\"M{x:.1} {bottom}v4\"/>");
        _ = write!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>", bottom + 16.0);
    }
    let (middle, below) = ((LEFT + right) / 2.0, HEIGHT - 4.0);
    _ = write!(svg, "<text x=\"{middle:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", escape(across));
}

fn draw_series(svg: &mut String, axes: &Axes, paint: Paint, (i, series): (usize, &Series), is_cut: bool) {
    if series.band.len() > 1 {
        let edge = |of: fn(&(f64, f64, f64)) -> f64| series.band.iter().map(move |point| (point.0, of(point)));
        let upper = edge(|p| p.2).map(|p| axes.at(p));
        let lower: Vec<(f64, f64)> = edge(|p| p.1).map(|p| axes.at(p)).collect();
        let around: Vec<String> = upper.chain(lower.into_iter().rev()).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let color = paint.color(i);
        _ = write!(svg, "<path class=\"band\" style=\"fill:{color}\" d=\"M{}Z\"/>", around.join("L"));
    }
    let mut path = String::new();
    let mut is_down = false;
    for &(x, y) in &series.points {
        if !is_drawn(&(x, y)) {
            is_down = false;
            continue;
        }
        let (x, y) = axes.at((x, y));
        _ = write!(path, "{}{x:.1} {y:.1}", if is_down { "L" } else { "M" });
        is_down = true;
    }
    _ = write!(svg, "<path class=\"line\" data-line=\"{i}\" style=\"{}\" d=\"{path}\"/>", paint.stroke(i));
    // A line of one point has no length; and where a few places were computed, they are seen.
    let drawn: Vec<&(f64, f64)> = series.points.iter().filter(|point| is_drawn(point)).collect();
    if drawn.len() == 1 || (is_cut && drawn.len() <= FEW) {
        let color = paint.color(i);
        for point in drawn {
            let (x, y) = axes.at(*point);
            _ = write!(svg, "<circle class=\"dot\" style=\"fill:{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            title: "t".into(),
            across: "epoch".into(),
            series: vec![Series::new("s", points)],
            ..Default::default()
        }
    }

    #[test]
    fn a_line_goes_from_corner_to_corner_and_breaks_at_a_gap() {
        let svg = chart(vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 4.0), (4.0, 8.0)]).svg();
        let bottom = HEIGHT - BOTTOM;
        let right = WIDTH - RIGHT;
        assert!(svg.contains(&format!("d=\"M{LEFT:.1} {bottom:.1}M")), "{svg}");
        assert!(svg.contains(&format!("L{right:.1} {TOP:.1}\"")), "{svg}");
    }

    #[test]
    fn places_far_from_zero_have_the_whole_width() {
        let svg = Chart { is_cut: true, ..chart(vec![(0.9, 0.0), (0.99, 8.0)]) }.svg();
        assert_eq!(svg.matches("<circle").count(), 2, "each threshold is seen");
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        assert!(svg.contains(&format!("d=\"M{LEFT:.1} {bottom:.1}L{right:.1} {TOP:.1}\"")), "{svg}");
        assert!(chart(vec![(9.0, 6.1), (10.0, 6.3)]).svg().contains(">0</text>"), "others begin at zero");
        let counts = Chart { is_count: true, ..chart(vec![(0.0, 1.0), (10.0, 1.0)]) }.svg();
        assert!(
            counts.contains(">0</text>") && !counts.contains(">0.5</text>") && !counts.contains(">0.2</text>"),
            "{counts}"
        );
    }

    #[test]
    fn a_reference_is_drawn_where_it_is_and_one_far_beyond_does_not_press_the_lines_flat() {
        let mut chart = chart(vec![(0.0, 1.0), (1.0, 8.0)]);
        chart.references =
            vec![Reference { label: "ln K".into(), value: 8.3 }, Reference { label: "far".into(), value: 4096.0 }];
        let svg = chart.svg();
        assert!(svg.contains("ln K") && !svg.contains("far"), "{svg}");
        assert!(chart.figure().contains("far <b>4096</b>"), "the legend has both");
    }

    #[test]
    fn hostile_names_and_numbers_are_text() {
        let mut chart = chart(vec![(0.0, f64::INFINITY), (f64::NAN, 1.0), (1.0, 2.0)]);
        chart.title = "<script>alert(1)</script>".into();
        chart.series[0].name = "\"/><script>".into();
        let figure = chart.figure();
        assert_eq!(figure.matches("<script").count(), 1, "its own data alone: {figure}");
        assert!(figure.contains("null"), "what is not finite");
        let still = chart.still();
        assert!(!still.contains("<script") && !still.contains("<li>") && still.contains("<svg"), "{still}");
        let empty = Chart::default();
        assert!(empty.is_empty() && empty.svg().ends_with("</svg>"));
        let file = svg_file(&[chart.clone(), chart]);
        assert!(!file.contains("NaN") && !file.contains("<script") && !file.contains("var("), "{file}");
    }
}
