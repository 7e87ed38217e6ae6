//! The flags of the commands that show runs: `report` and `runs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::InferenceArgs;

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folders of one run, or of several to compare
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The page to write, which ends in .html [default: report.html in the folder of the run; of several runs, in this folder]
    #[arg(long, value_name = "F.html")]
    pub out: Option<PathBuf>,
    /// Replace a page of --out that is there already; the report in a run's own folder is always replaced
    #[arg(long)]
    pub force: bool,
    /// No pictures, which need the run's images and network; pages of several runs have none
    #[arg(long)]
    pub no_pictures: bool,
    /// Training images that the pictures are made of, and a quarter as many that are held out [default: 2000, and fewer where
    /// that takes longer than about 15 seconds]
    #[arg(long, value_name = "N", conflicts_with = "no_pictures", value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    pub images: Option<u32>,
    /// Features of the run's training images or of its held-out ones, as `features` writes them: they are taken as
    /// they are, all of them
    #[arg(long, value_name = "FILE", conflicts_with = "no_pictures")]
    pub features: Option<PathBuf>,
    /// Where pictures are computed.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

/// Examples of `report`.
pub const REPORT_EXAMPLES: &str = "\
Examples:
  dino-vmf report runs/photos                           writes runs/photos/report.html
  dino-vmf report runs/dino runs/vmf --out both.html    side by side, what their recipes differ in first
  dino-vmf report runs/photos --images 8000             pictures of more images
  dino-vmf report runs/photos --features train.safetensors    of all of them, whose features are there already

The page is one file that needs nothing else: open it in any browser, send it, print it. It says first what the run is
worth, then shows its curves with values under the pointer, pictures (views, a map of the features, what the prototypes
stand for, nearest neighbours, where the network looks), and the recipe with the reason for every value. A run that is
still training can be looked at too, as often as you like.";

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
  dino-vmf runs --json                   for scripts: {\"runs\": [{\"run\", \"path\", \"state\", \"method\", \"knn_top1\", ...}]}

The state of a run is running (a process is training it), finished, collapsed, stopped, killed, or unfinished where that
is not known; unreadable where its files cannot be read, with the reason.";
