//! The flags of the commands that show runs: `report` and `runs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folders of one run, or of several to compare
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The page to write [default: report.html in the folder of the run; of several runs, in this folder]
    #[arg(long, value_name = "F.html")]
    pub out: Option<PathBuf>,
    /// Replace the page if it exists and is a report
    #[arg(long)]
    pub force: bool,
}

/// Examples of `report`.
pub const REPORT_EXAMPLES: &str = "\
Examples:
  dino-vmf report runs/photos                           writes runs/photos/report.html
  dino-vmf report runs/dino runs/vmf --out both.html    side by side, what their recipes differ in first

The page is one file that needs nothing else: open it in any browser, send it, print it. It says first what the run is
worth, then shows its curves with values under the pointer, and the recipe with the reason for every value. A run that
is still training can be looked at too, as often as you like.";

/// `runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Where to look for runs, at any depth
    #[arg(value_name = "FOLDER", default_value = "runs")]
    pub folder: PathBuf,
    /// What the rows are sorted by
    #[arg(long, value_enum, default_value_t = SortArg::Run)]
    pub sort: SortArg,
    /// Print the list as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A column of the list of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SortArg {
    /// The path.
    Run,
    /// What became of it.
    State,
    /// Accuracy of kNN, best first.
    Knn,
    /// Loss, lowest first.
    Loss,
    /// How far it is, farthest first.
    Step,
}

/// Examples of `runs`.
pub const RUNS_EXAMPLES: &str = "\
Examples:
  dino-vmf runs                          those in runs/
  dino-vmf runs studies --sort knn       the best first
  dino-vmf runs --json                   for scripts: {\"runs\": [{\"run\", \"state\", \"method\", \"knn_top1\", ...}]}

The state of a run is running (a process is training it), finished, collapsed, stopped, killed, or unfinished where that
is not known; unreadable where its files cannot be read, with the reason.";
