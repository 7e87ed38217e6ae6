//! A run as one row of the list.

use std::fmt::Write;

use train::run::RunReader;

use super::log;
use super::place;
use super::signature::Signature;
use crate::account::Account;
use crate::history::History;
use crate::markup::escape;
use crate::scale::{Scale, shown};

/// Points of the small line.
const POINTS: usize = 40;
/// Size of the small line, in its own units.
const WIDTH: f64 = 132.0;
const HEIGHT: f64 = 30.0;
/// Where a name or a verdict is cut: a row is read at a glance, and the whole stands on the page of the run.
const NAME_LETTERS: usize = 120;
const VERDICT_LETTERS: usize = 160;

/// What a row shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    /// Of a run that can be read.
    Told(Box<Told>),
    /// Why it cannot.
    Unreadable(String),
}

/// What a row tells of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    state: &'static str,
    tone: &'static str,
    verdict: String,
    method: String,
    network: String,
    epoch: f64,
    epochs: usize,
    progress: f64,
    knn: Option<f64>,
    loss: Option<f64>,
    curve: Vec<(f64, f64)>,
}

impl Row {
    /// Looks at a run.
    pub(super) fn of(run: &RunReader, signature: &Signature) -> Self {
        match told(run, signature) {
            Ok(told) => Row::Told(Box::new(told)),
            Err(why) => Row::Unreadable(text::shortened(&why, VERDICT_LETTERS).into_owned()),
        }
    }

    /// The row as a part of a table.
    pub(super) fn html(&self, name: &str) -> String {
        let mut row = String::new();
        let shown_name = escape(&text::shortened(name, NAME_LETTERS)).into_owned();
        _ = write!(
            row,
            "<tr data-run=\"{0}\"><td class=\"tick\"><input type=\"checkbox\" name=\"run\" value=\"{0}\" aria-label=\"compare {0}\"></td>\
             <td class=\"name\" data-key=\"name\"><a href=\"/run/{1}\"><bdi>{shown_name}</bdi></a></td>",
            escape(name),
            place::encoded(name)
        );
        match self {
            Row::Unreadable(why) => {
                _ = write!(
                    row,
                    "<td data-key=\"state\"><span class=\"state bad\">unreadable</span></td><td colspan=\"5\"></td><td class=\"words\">{}</td>",
                    escape(why)
                );
            }
            Row::Told(told) => told.cells(&mut row),
        }
        row + "</tr>\n"
    }
}

/// The row of a run that was not looked at yet.
pub(super) fn waiting(name: &str) -> String {
    Row::Unreadable(String::new()).html(name).replace("state bad\">unreadable", "state\">reading")
}

impl Told {
    fn cells(&self, row: &mut String) {
        let number = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        let knn = |knn: f64| if knn.is_finite() { format!("{knn:.1}") } else { shown(knn) };
        // What the script sorts by.
        let exact = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        _ = write!(
            row,
            "<td data-key=\"state\"><span class=\"state {}\">{}</span></td><td class=\"curve\">{}</td>\
             <td class=\"number\" data-key=\"knn\" data-value=\"{}\">{}</td><td class=\"number\" data-key=\"loss\" data-value=\"{}\">{}</td>\
             <td class=\"epoch\" data-key=\"epoch\" data-value=\"{}\">{:.0} of {}<progress max=\"1\" value=\"{:.3}\"></progress></td>\
             <td class=\"method\" data-key=\"method\">{} <span class=\"muted\">{}</span></td><td class=\"words {}\">{}</td>",
            self.state,
            self.state,
            sparkline(&self.curve),
            exact(self.knn),
            number(self.knn, knn),
            exact(self.loss),
            number(self.loss, shown),
            self.epoch,
            self.epoch,
            self.epochs,
            self.progress,
            escape(&self.method),
            escape(&self.network),
            self.tone,
            escape(&self.verdict)
        );
    }
}

fn told(run: &RunReader, signature: &Signature) -> Result<Told, String> {
    signature.is_contained()?;
    let (mut history, mut last, mut waiting) = (History::keeping(POINTS), None, None);
    let glance = log::glance(&run.log_file(), |record, is_end| {
        let has_loss = record.get("loss").is_some();
        // Of a long log, the end would weigh more than all before it: its last record stands for it.
        if is_end && has_loss {
            waiting = Some(record);
        } else {
            history.add(&record);
            last = if has_loss { Some(record) } else { last.take() };
        }
    });
    glance.map_err(|error| format!("its log cannot be read: {error}"))?;
    if let Some(record) = waiting {
        history.add(&record);
        last = Some(record);
    }
    let account = Account::with_log(run, signature.activity.clone(), history, last.as_ref());
    Ok(Told::of(&account.map_err(|error| error.to_string())?))
}

impl Told {
    fn of(run: &Account) -> Self {
        let loss = run.history.column("loss");
        Self {
            state: run.state.word(),
            tone: run.verdict.tone.word(),
            verdict: text::shortened(&run.verdict.words, VERDICT_LETTERS).into_owned(),
            method: run.method(),
            network: format!("{}/{}", run.recipe.arch(), run.recipe.patch_size()),
            epoch: run.step as f64 / run.steps_per_epoch(),
            epochs: run.recipe.epochs(),
            progress: run.progress(),
            knn: run.knn(),
            loss: loss.and_then(|column| column.last()),
            curve: loss.map(|column| column.points()).unwrap_or_default(),
        }
    }
}

/// The loss as a line of a word's size, between its least and its largest value.
fn sparkline(points: &[(f64, f64)]) -> String {
    let finite = || points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    let range = |of: fn(&(f64, f64)) -> f64| {
        let ends = finite().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        Scale::exact(ends.0, ends.1)
    };
    if finite().count() < 2 {
        return String::new();
    }
    let (across, up) = (range(|point| point.0), range(|point| point.1));
    let mut path = String::new();
    let mut is_down = false;
    for &(x, y) in points {
        if !(x.is_finite() && y.is_finite()) {
            is_down = false;
            continue;
        }
        let at = (WIDTH * across.place(x), 2.0 + (HEIGHT - 4.0) * (1.0 - up.place(y)));
        _ = write!(path, "{}{:.1} {:.1}", if is_down { "L" } else { "M" }, at.0, at.1);
        is_down = true;
    }
    format!(
        "<svg class=\"chart spark\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"loss\" \
         preserveAspectRatio=\"none\"><path class=\"line\" style=\"stroke:var(--c0)\" d=\"{path}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_line_is_drawn_from_its_least_to_its_largest_value() {
        let svg = sparkline(&[(10.0, 6.0), (20.0, f64::NAN), (30.0, 4.0), (40.0, 5.0)]);
        assert!(svg.contains("d=\"M0.0 2.0M88.0 28.0L132.0 15.0\""), "{svg}");
        assert_eq!(sparkline(&[(1.0, 2.0), (2.0, f64::INFINITY)]), "");
    }

    #[test]
    fn hostile_names_are_text_in_a_row() {
        let name = "a\"><script>alert(1)</script>\u{202e}'&";
        for html in [Row::Unreadable(name.into()).html(name), waiting(name)] {
            assert!(!html.contains("<script") && !html.contains("\">alert") && !html.contains('\u{202e}'), "{html}");
        }
        assert!(Row::Unreadable("x".into()).html(&"n".repeat(300)).contains(&"n".repeat(300)), "its address is whole");
    }
}
