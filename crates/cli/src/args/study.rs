//! The flags of `study`.

use std::path::PathBuf;

use clap::Args;

use super::DeviceArgs;

/// `study`.
#[derive(Debug, Args)]
pub struct StudyArgs {
    /// The study: TOML with data, recipes, seeds and a grid
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder for runs, logs and the table, made if it is not there [default: studies/NAME of the file]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Takes a data set of the study from another place; may be repeated
    #[arg(long, value_name = "NAME=SRC")]
    pub data: Vec<String>,
    /// Runs at a time [default: 1; on a GPU with NVIDIA's MPS as many as its memory
    /// holds, 8 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub at_once: Option<u16>,
    /// Trains only runs whose names contain TEXT, as --dry-run lists them; may be repeated.
    /// The table has what is known of the others
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Trains nothing: makes the table again from the runs that have ended
    #[arg(long, conflicts_with_all = ["only", "dry_run", "at_once"])]
    pub table: bool,
    /// Only list the runs
    #[arg(long)]
    pub dry_run: bool,
    /// Print the table as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Examples of `study`.
pub const EXAMPLES: &str = "\
Examples:
  dino-vmf study recipes/studies/synthetic.toml
      two recipes with five seeds on made-up images; needs nothing but this program
  dino-vmf study mine.toml --data photos=/data/photos --dry-run
      the runs that would be made, with another place for the data called photos
  dino-vmf study mine.toml --only seed=0 --only slow
      a part of them: on one of several machines, say
  dino-vmf study mine.toml --table
      the table of runs that were trained on several machines, once their folders are together in studies/mine/runs,
      what they printed in studies/mine/logs, and their evaluations in studies/mine/evaluations

A study is a file such as

  seeds = [0, 1, 2]
  evaluate = [\"linear\", \"prototypes\"]   # protocols of `eval all`, for columns of their own
  [data]
  photos = \"photos\"                 # name = what --data would be; a path is relative to this file
  [data.cifar10]                    # or with keys, and a grid, of its own
  source = \"cifar10\"
  other = \"photos\"                # another of these, or a path: images that `certainty` should tell from its own
  grid.epochs = [5, 20, 100]
  [common]                          # keys of every run
  local_crops = 6
  [recipes.derived]                 # nothing but what is derived from the data
  [recipes.slow]
  momentum_teacher = 0.99           # also: file = \"recipe.toml\"
  [grid]                            # every combination of these
  arch = [\"vit_tiny\", \"vit_small\"]

Every recipe is trained with every combination of the grid and every seed on every data set, each run in a folder of its own by
`pretrain`. What is finished stays: the same command again makes what is missing, also after a crash or a kill. The folder has
table.md, table.csv, runs.csv and figure.svg, made anew whenever a run ends.";
