//! What a page shows, at first as a whole and then as the parts that have changed.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};
use train::run::RunState;

use super::live::Live;
use super::place;
use super::row;
use super::state::{SharedLive, State, held};
use crate::account::Account;
use crate::markup::escape;
use crate::{chart, curves, machine, page};

const STYLE: &str = include_str!("../assets/watch.css");

/// What somebody looks at, and what he has seen of it.
#[derive(Debug)]
pub(super) enum Sight {
    /// All runs: the version of the list that was sent last.
    List { seen: Option<u64> },
    /// One run or several side by side, by name, with the versions that were sent last.
    Runs { runs: Vec<(String, SharedLive)>, seen: Vec<u64> },
}

/// What a page is told.
#[derive(Debug)]
pub(super) struct Change {
    /// What kind it is: `rows` or `parts`.
    pub(super) name: &'static str,
    /// JSON for the script of the page.
    pub(super) data: String,
}

/// What a look has found.
#[derive(Debug)]
pub(super) struct Round {
    /// What is new, if anything.
    pub(super) change: Option<Change>,
    /// Whether there is more to read.
    pub(super) is_behind: bool,
}

/// Parts of a page by name, as HTML.
type Parts = Vec<(&'static str, String)>;

impl Sight {
    pub(super) fn of_list() -> Self {
        Sight::List { seen: None }
    }

    /// None where one of the names is not in the list.
    pub(super) fn of_runs(state: &State, places: &[String]) -> Option<Self> {
        let run = |place: &String| Some((place.clone(), state.live(place)?));
        let runs: Vec<_> = places.iter().map(run).collect::<Option<_>>()?;
        Some(Sight::Runs { runs, seen: Vec::new() })
    }

    /// Looks at the files, and renders what has changed since the last look.
    pub(super) fn look(&mut self, state: &State) -> Round {
        match self {
            Sight::List { seen } => look_at_list(state, seen),
            Sight::Runs { runs, seen } => {
                refresh(runs);
                let versions = runs.iter().map(|(_, live)| held(live).version()).collect();
                let change = (*seen != versions).then(|| {
                    let parts: Map<String, Value> =
                        parts(runs).into_iter().map(|(name, html)| (name.to_owned(), html.into())).collect();
                    let data = json!({ "parts": parts, "running": is_running(runs) }).to_string();
                    Change { name: "parts", data }
                });
                *seen = versions;
                Round { change, is_behind: runs.iter().any(|(_, live)| held(live).is_behind()) }
            }
        }
    }

    /// The whole page.
    pub(super) fn page(&mut self, state: &State) -> String {
        match self {
            Sight::List { .. } => list_page(state),
            Sight::Runs { runs, .. } => runs_page(state, runs),
        }
    }
}

fn look_at_list(state: &State, seen: &mut Option<u64>) -> Round {
    let mut list = state.list();
    list.refresh();
    let (version, is_behind) = (list.version(), list.is_behind());
    if *seen == Some(version) {
        return Round { change: None, is_behind };
    }
    let is_new = |changed: u64| seen.is_none_or(|seen| changed > seen);
    let rows: Map<String, Value> = (list.entries().iter())
        .filter(|entry| is_new(entry.version))
        .filter_map(|entry| Some((entry.place.clone(), entry.row.as_ref()?.html(&entry.place).into())))
        .collect();
    let order = is_new(list.order()).then(|| list.entries().iter().map(|entry| &entry.place).collect::<Vec<_>>());
    let data = json!({ "rows": rows, "order": order }).to_string();
    *seen = Some(version);
    Round { change: Some(Change { name: "rows", data }), is_behind }
}

/// The page of all runs.
pub(super) fn list_page(state: &State) -> String {
    let mut list = state.list();
    list.refresh();
    let mut rows = String::new();
    for entry in list.entries() {
        rows += &entry.row.as_ref().map_or_else(|| row::waiting(&entry.place), |row| row.html(&entry.place));
    }
    let empty = if rows.is_empty() { "" } else { " hidden" };
    let body = format!(
        "<h1>Runs in <bdi>{}</bdi></h1>\n<form action=\"/compare\" method=\"get\">\n\
         <p class=\"list-tools\"><button type=\"submit\" id=\"compare\">Compare</button>\
         <input type=\"search\" id=\"filter\" placeholder=\"Filter by name\" aria-label=\"Filter by name\" hidden>\
         <span class=\"muted\" id=\"ticked\">Tick two runs or more to see them side by side.</span></p>\n\
         <table class=\"runs\"><thead><tr><th></th><th data-sort=\"name\">run</th><th data-sort=\"state\">state</th><th>loss</th>\
         <th class=\"number\" data-sort=\"knn\" data-first=\"descending\">kNN, %</th><th class=\"number\" data-sort=\"loss\">loss</th>\
         <th data-sort=\"epoch\" data-first=\"descending\">epoch</th><th data-sort=\"method\">method</th><th>verdict</th></tr></thead>\n\
         <tbody id=\"rows\">{rows}</tbody></table></form>\n\
         <p id=\"empty\"{empty}>There is no run below this folder yet. It appears here as soon as one begins.</p>\n",
        escape(&shortened(state.folder()))
    );
    shell("runs", "data-events=\"/events/list\"", "", &body)
}

fn shortened(folder: &Path) -> String {
    text::shortened(&text::shown(folder), 200).into_owned()
}

fn refresh(runs: &[(String, SharedLive)]) {
    runs.iter().for_each(|(_, live)| held(live).refresh());
}

fn is_running(runs: &[(String, SharedLive)]) -> bool {
    runs.iter()
        .any(|(_, live)| held(live).account().is_ok_and(|account| matches!(account.state, RunState::Running { .. })))
}

fn runs_page(state: &State, runs: &[(String, SharedLive)]) -> String {
    refresh(runs);
    let names: Vec<String> = runs.iter().map(|(name, _)| format!("run={}", place::encoded(name))).collect();
    let mut attributes = format!("data-events=\"/events/runs?{}\"", names.join("&amp;"));
    let (mut title, mut tools) = (format!("{} runs", runs.len()), String::new());
    if let [(name, _)] = runs {
        title.clone_from(name);
        if state.token().is_some() {
            _ = write!(
                attributes,
                " data-stop=\"/stop/{}\" data-running=\"{}\"",
                place::encoded(name),
                is_running(runs)
            );
            tools += "<button type=\"button\" id=\"stop\" hidden>Save and stop</button><span id=\"said\" role=\"status\"></span>";
        }
    }
    let mut body = String::new();
    for (name, html) in parts(runs) {
        match name {
            // Its slider stays when the charts are replaced.
            "charts" => body += &page::charts(&html),
            _ => _ = writeln!(body, "<div data-part=\"{name}\">{html}</div>"),
        }
    }
    shell(&title, &attributes, &tools, &body)
}

/// The parts of the page of one run or of several, in their order.
fn parts(runs: &[(String, SharedLive)]) -> Parts {
    match runs {
        [(name, live)] => parts_of_run(name, &held(live)),
        several => parts_of_runs(several),
    }
}

fn parts_of_run(name: &str, live: &Live) -> Parts {
    match live.account() {
        // The other parts are there all the same: it may become readable.
        Err(why) => {
            let empty = ["tiles", "charts", "recipe", "machine"].map(|part| (part, String::new()));
            std::iter::once(("head", unreadable(name, why))).chain(empty).collect()
        }
        Ok(run) => vec![
            ("head", page::head(run, "h1") + &pictures(name, live) + &reading(live)),
            ("tiles", page::tiles(run)),
            ("charts", page::figures(&curves::of_run(run))),
            ("recipe", page::recipe(run)),
            ("machine", machine::table(run)),
        ],
    }
}

fn parts_of_runs(runs: &[(String, SharedLive)]) -> Parts {
    let (mut accounts, mut problems): (Vec<Account>, String) = (Vec::new(), String::new());
    for (name, live) in runs {
        let live = held(live);
        match live.account() {
            Ok(account) => accounts.push(account.clone()),
            Err(why) => problems += &unreadable(name, why),
        }
        problems += &reading(&live);
    }
    let each = accounts.iter().map(|run| page::head(run, "h3")).collect();
    vec![
        ("head", format!("<h1>{} runs side by side</h1>\n{problems}", runs.len())),
        ("differences", page::differences(&accounts)),
        ("summary", page::summary(&accounts)),
        ("charts", page::figures(&curves::of_runs(&accounts))),
        ("each", each),
    ]
}

fn unreadable(name: &str, why: &str) -> String {
    let (name, why) = (escape(name), escape(why));
    format!("<h1>{name}</h1>\n<p class=\"verdict bad\"><b>unreadable</b><br>{why}</p>\n")
}

/// Where its pictures are: they need the network and the images, so a live page makes none.
fn pictures(name: &str, live: &Live) -> String {
    match live.has_report() {
        true => format!(
            "<p><a href=\"/report/{}\">Its report</a>, as it was written last, with the pictures that it has.</p>\n",
            place::encoded(name)
        ),
        false => "<p class=\"muted\">Pictures are in the report, which is written at the end of a run, or by <code>dino-vmf report RUN</code>.</p>\n"
            .to_owned(),
    }
}

/// That a long log is still being read, where it is.
fn reading(live: &Live) -> String {
    match live.is_behind() {
        true => format!("<p class=\"muted\">Its log is being read: {:.0} %.</p>\n", 100.0 * live.share_read()),
        false => String::new(),
    }
}

/// A page of a few words.
pub(super) fn notice(words: &str) -> String {
    shell("dino-vmf", "", "", &format!("<p class=\"verdict bad\">{}</p>\n", escape(words)))
}

fn shell(title: &str, attributes: &str, tools: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} - dino-vmf</title><link rel=\"icon\" href=\"data:,\"><style>{}{}{STYLE}</style></head>\n<body>\n\
         <nav><a href=\"/\">All runs</a><span class=\"tools-of-run\">{tools}</span><span id=\"live\" role=\"status\"></span></nav>\n\
         <main {attributes}>\n{body}</main>\n<script src=\"/page.js\"></script><script src=\"/watch.js\"></script></body></html>\n",
        escape(title),
        page::STYLE,
        chart::STYLE
    )
}
