//! One self-contained HTML file for a run, or for several side by side.
//!
//! The page asks for nothing: no other file, no network. It reads without a script, which only adds values under the pointer
//! and smoothing, in light and dark and on paper.

use std::fmt::Write;

use crate::account::{Account, ReportError, are_of_same_images};
use crate::chart::{self, Chart};
use crate::curves;
use crate::machine;
use crate::markup::{escape, prose};
use crate::pictures;
use crate::scale::shown;
use crate::settings::{From, Setting};

pub(crate) const STYLE: &str = include_str!("assets/page.css");
pub(crate) const SCRIPT: &str = include_str!("assets/page.js");
/// How a page of this program begins, by which it is known from any other.
pub const FIRST_LINE: &str = "<!doctype html><!-- dino-vmf report -->";
/// Nothing is fetched, whatever stands in a page.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// What begins a box for a table that may be wider than the page. It takes the focus, so that keys can move it.
pub(crate) const SCROLL: &str = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"table\">";

/// A part of a page beside what follows from the run's log: pictures, for instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its content as HTML, in which every text is escaped.
    pub(crate) html: String,
}

/// The page of the given runs, with further sections behind the curves.
pub fn page(runs: &[Account], sections: &[Section]) -> Result<String, ReportError> {
    let body = match runs {
        [] => return Err(ReportError::NoRun),
        [run] => of_run(run, sections),
        several => of_runs(several, sections),
    };
    let title = match runs {
        [run] => run.name.clone(),
        several => format!("{} runs", several.len()),
    };
    Ok(format!(
        "{FIRST_LINE}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} - dino-vmf</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}{}{}</style></head>\n<body>\n{body}\
         <script>{SCRIPT}{}</script></body></html>\n",
        escape(&title),
        chart::STYLE,
        pictures::STYLE,
        pictures::SCRIPT
    ))
}

fn of_run(run: &Account, sections: &[Section]) -> String {
    let mut html = head(run, "h1");
    html += &tiles(run);
    html += &charts(&figures(&curves::of_run(run)));
    for section in sections {
        _ = write!(html, "<h2>{}</h2>\n{}", escape(&section.title), section.html);
    }
    html + &recipe(run) + &machine::table(run)
}

fn of_runs(runs: &[Account], sections: &[Section]) -> String {
    let mut html = format!("<h1>{} runs side by side</h1>\n", runs.len());
    html += &differences(runs);
    html += &summary(runs);
    html += &charts(&figures(&curves::of_runs(runs)));
    for section in sections {
        _ = write!(html, "<h2>{}</h2>\n{}", escape(&section.title), section.html);
    }
    html += "<h2>Each of them</h2>\n";
    runs.iter().for_each(|run| html += &head(run, "h3"));
    html
}

/// What a run is, and first of all how it did.
pub(crate) fn head(run: &Account, heading: &str) -> String {
    let (tone, words) = (run.verdict.tone.word(), prose(&run.verdict.words));
    let facts = run.recipe.facts();
    let source = run.recipe.source().unwrap_or("images that are not named");
    let mut html = format!("<{heading}>{}</{heading}>\n", escape(&run.name));
    _ = writeln!(html, "<p class=\"verdict {tone}\"><b>{}</b><br>{words}</p>", run.state.word());
    if let Some(command) = run.longer() {
        _ = writeln!(html, "<p>The longer run: <code class=\"command\">{}</code></p>", escape(&command));
    }
    _ = writeln!(
        html,
        "<p class=\"muted\">{} of {}/{} on {} of {} x {} pixels ({}), step {} of {}</p>",
        escape(&run.method()),
        run.recipe.arch(),
        run.recipe.patch_size(),
        text::count(facts.images, "image"),
        facts.height,
        facts.width,
        escape(source),
        text::thousands(run.step),
        text::thousands(run.recipe.total_steps())
    );
    for (number, attempt) in run.attempts.iter().enumerate() {
        let became = escape(&attempt.became);
        _ = writeln!(html, "<p>Attempt {} became {became} at step {} and was given up.</p>", number + 1, attempt.since);
    }
    html
}

pub(crate) fn tiles(run: &Account) -> String {
    let mut tiles: Vec<(String, String)> = Vec::new();
    let percent = |value: f64| format!("{value:.1} %");
    match run.result.as_ref().and_then(|result| result.knn.as_ref()) {
        Some(knn) => {
            let start = if knn.is_given { "at the start" } else { "untrained network" };
            tiles.push((percent(knn.trained), format!("kNN (k = {})", knn.k)));
            tiles.push((percent(knn.untrained), start.to_owned()));
            tiles.push((percent(knn.raw_pixels), "raw pixels".to_owned()));
        }
        None => tiles.extend(run.knn().map(|knn| (percent(knn), "kNN so far".to_owned()))),
    }
    let last = |key: &str| run.history.column(key).and_then(|column| column.last());
    tiles.extend(last("loss").map(|loss| (shown(loss), "loss".to_owned())));
    let of = text::thousands(run.recipe.out_dim() as u64);
    let used = last("prototypes_in_use");
    tiles.extend(used.map(|used| (shown(used), format!("of {of} prototypes chosen of late by the teacher"))));
    tiles.extend(
        last("images_per_second").map(|speed| (shown(speed.round()), "images a second, at the last record".to_owned())),
    );
    tiles.push((format!("{:.0} %", 100.0 * run.progress()), "of its steps".to_owned()));
    let tile =
        |(value, label): &(String, String)| format!("<li><b>{}</b><span>{}</span></li>", escape(value), escape(label));
    format!("<ul class=\"tiles\">{}</ul>\n", tiles.iter().map(tile).collect::<String>())
}

pub(crate) fn charts(figures: &str) -> String {
    format!(
        "<h2>Curves</h2>\n<p class=\"tools\" hidden><label>Smoothing <input type=\"range\" min=\"1\" max=\"40\" value=\"1\"></label></p>\n\
         <div class=\"charts\" data-part=\"charts\">\n{figures}</div>\n"
    )
}

/// The charts alone.
pub(crate) fn figures(charts: &[Chart]) -> String {
    charts.iter().map(Chart::figure).collect()
}

/// The settings: what was given and derived, with reasons; what is as always, folded away.
pub(crate) fn recipe(run: &Account) -> String {
    let row = |setting: &Setting| {
        let (key, value, why) = (escape(&setting.key), escape(&setting.value), escape(&setting.why));
        format!("<tr><td><code>{key}</code></td><td class=\"value\">{value}</td><td>{why}</td></tr>\n")
    };
    let rows = |is_usual: bool| -> String {
        run.settings.iter().filter(|setting| (setting.from == From::Default) == is_usual).map(row).collect()
    };
    let (chosen, usual) = (rows(false), rows(true));
    format!(
        "<h2>Recipe</h2>\n{SCROLL}<table><tr><th>key</th><th>value</th><th>why</th></tr>\n{chosen}</table></div>\n\
         <details><summary>What is as always</summary>{SCROLL}<table>{usual}</table></div></details>\n"
    )
}

/// The settings in which runs differ, which is what a comparison is about.
pub(crate) fn differences(runs: &[Account]) -> String {
    let mut keys: Vec<&str> = Vec::new();
    runs.iter().flat_map(|run| &run.settings).for_each(|setting| {
        if !keys.contains(&setting.key.as_str()) {
            keys.push(&setting.key);
        }
    });
    let value = |run: &Account, key: &str| {
        run.settings.iter().find(|setting| setting.key == key).map(|setting| setting.value.clone())
    };
    let mut rows = String::new();
    let mut row = |name: &str, values: Vec<Option<String>>| {
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            let cell = |value: &Option<String>| {
                format!("<td class=\"value\">{}</td>", escape(value.as_deref().unwrap_or("-")))
            };
            let cells: String = values.iter().map(cell).collect();
            _ = writeln!(rows, "<tr><td>{name}</td>{cells}</tr>");
        }
    };
    // What was learnt from comes first: without the same images, accuracies are not of the same task.
    let data = |run: &Account| {
        let source = run.recipe.source().unwrap_or("not named");
        format!("{source}: {}", text::count(run.recipe.facts().images, "image"))
    };
    row("images", runs.iter().map(|run| Some(data(run))).collect());
    keys.into_iter().for_each(|key| {
        row(&format!("<code>{}</code>", escape(key)), runs.iter().map(|run| value(run, key)).collect())
    });
    let other_images = if !are_of_same_images(runs) {
        "<p class=\"verdict open\">These runs were not trained on the same images: their accuracies and losses are of different tasks.</p>\n"
    } else {
        ""
    };
    if rows.is_empty() {
        return format!("{other_images}<p>Their recipes are the same in every key.</p>\n");
    }
    let names: String = runs.iter().map(|run| format!("<th>{}</th>", escape(&run.name))).collect();
    format!(
        "{other_images}<h2>Where their recipes differ</h2>\n\
         {SCROLL}<table><tr><th>key</th>{names}</tr>\n{rows}</table></div>\n"
    )
}

/// The last numbers of several runs, a row each.
pub(crate) fn summary(runs: &[Account]) -> String {
    let mut rows = String::new();
    for run in runs {
        let last = |key: &str| run.history.column(key).and_then(|column| column.last()).map_or("-".to_owned(), shown);
        let knn = run.knn().map_or("-".to_owned(), |knn| format!("{knn:.1}"));
        _ = writeln!(
            rows,
            "<tr><td data-label=\"run\">{}</td><td data-label=\"state\">{}</td><td class=\"number\" data-label=\"kNN top-1, %\">{knn}</td>\
             <td class=\"number\" data-label=\"loss\">{}</td><td class=\"number\" data-label=\"prototypes chosen\">{}</td>\
             <td class=\"number\" data-label=\"rank\">{}</td><td data-label=\"verdict\">{}</td></tr>",
            escape(&run.name),
            run.state.word(),
            last("loss"),
            last("prototypes_in_use"),
            last("feature_rank"),
            escape(&run.verdict.words)
        );
    }
    format!(
        "<h2>Where they are</h2>\n{SCROLL}<table class=\"summary\"><tr><th>run</th><th>state</th><th class=\"number\">kNN top-1, %</th>\
         <th class=\"number\">loss</th><th class=\"number\">prototypes chosen</th><th class=\"number\">rank</th><th>verdict</th></tr>\n\
         {rows}</table></div>\n"
    )
}
