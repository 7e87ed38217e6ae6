//! `runs`: the runs below a folder as a list.

use std::io::{self, IsTerminal};

use report::account::Account;
use report::listing::{self, Listed};
use serde_json::{Value, json};

use crate::args::{RunsArgs, SortArg};
use crate::error::CliError;
use crate::output;

/// Where the list of runs cuts a verdict, and the name of the data, on a terminal: it is one line each.
const TERMINAL: Letters = Letters { verdict: 60, data: 20 };
/// Elsewhere, where somebody looks for words in it.
const WHOLE: Letters = Letters { verdict: usize::MAX, data: usize::MAX };

/// How many letters of a text are shown.
#[derive(Clone, Copy)]
struct Letters {
    verdict: usize,
    data: usize,
}

/// Prints the list of the runs below a folder.
pub fn list(args: &RunsArgs) -> Result<(), CliError> {
    if !args.folder.is_dir() {
        return Err(CliError::NoFolder { path: args.folder.clone() });
    }
    let mut runs = listing::runs(&args.folder);
    sort(&mut runs, args.sort);
    if args.json {
        return output::json(&json!({ "runs": runs.iter().map(Listed::to_json).collect::<Vec<Value>>() }));
    }
    if runs.is_empty() {
        let folder = text::shown(&args.folder);
        output::note(&format!("{folder}: no run below this folder yet; `dino-vmf runs FOLDER` looks in another one"));
        return Ok(());
    }
    output::result(&table(&runs, if io::stdout().is_terminal() { TERMINAL } else { WHOLE }))
}

fn sort(runs: &mut [Listed], by: SortArg) {
    let number = |listed: &Listed, of: fn(&Account) -> Option<f64>| listed.account.as_ref().ok().and_then(of);
    // Runs without the number come last; equals stay in order of their paths.
    let ascending = |runs: &mut [Listed], of: fn(&Account) -> Option<f64>| {
        runs.sort_by(|a, b| {
            let key = |listed: &Listed| number(listed, of).unwrap_or(f64::INFINITY);
            key(a).total_cmp(&key(b))
        });
    };
    match by {
        SortArg::Run => {}
        SortArg::State => {
            runs.sort_by_key(|listed| listed.account.as_ref().map_or("unreadable", |run| run.state.word()))
        }
        SortArg::Knn => ascending(runs, |run| run.knn().map(|knn| -knn)),
        SortArg::Loss => ascending(runs, |run| run.history.column("loss")?.last()),
        SortArg::Step => ascending(runs, |run| Some(-(run.step as f64))),
    }
}

fn table(runs: &[Listed], letters: Letters) -> String {
    const TITLES: [&str; 9] = ["run", "state", "method", "network", "data", "epoch", "kNN %", "loss", "verdict"];
    let rows: Vec<[String; 9]> = runs.iter().map(|run| row(run, letters)).collect();
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(TITLES[column].chars().count())
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&TITLES.map(str::to_owned));
    rows.iter().for_each(|row| text += &line(row));
    text
}

fn row(listed: &Listed, letters: Letters) -> [String; 9] {
    let none = || "-".to_owned();
    match &listed.account {
        Err(error) => {
            let why = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            let why = text::shortened(&why, letters.verdict).into_owned();
            [listed.place.clone(), "unreadable".to_owned(), none(), none(), none(), none(), none(), none(), why]
        }
        Ok(run) => {
            let loss = run.history.column("loss").and_then(|column| column.last());
            [
                listed.place.clone(),
                run.state.word().to_owned(),
                run.method(),
                format!("{}/{}", run.recipe.arch(), run.recipe.patch_size()),
                text::shortened(&run.data(), letters.data).into_owned(),
                format!("{:.0}/{}", run.step as f64 / run.steps_per_epoch(), run.recipe.epochs()),
                run.knn().map_or_else(none, |knn| format!("{knn:.1}")),
                loss.map_or_else(none, |loss| format!("{loss:.3}")),
                text::shortened(&run.verdict.words, letters.verdict).into_owned(),
            ]
        }
    }
}
