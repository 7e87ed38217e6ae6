//! The flags of `figure`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{PrecisionSettings, PrototypesSettings};

/// The paper's figures.
#[derive(Debug, Subcommand)]
pub enum FigureCommand {
    /// Densities of von Mises-Fisher components and their mixture on the circle
    #[command(allow_negative_numbers = true, after_help = CIRCLE_EXAMPLES)]
    Circle(CircleArgs),
    /// log C_p over kappa, and the error of the paper's approximation
    #[command(after_help = NORMALIZER_EXAMPLES)]
    Normalizer(NormalizerArgs),
    /// kNN (or any number of the log) over the epochs of several runs, with bands over seeds
    #[command(after_help = CURVES_EXAMPLES)]
    Curves(CurvesArgs),
    /// Unique prototypes and the largest set of duplicates over thresholds, of several networks
    #[command(allow_negative_numbers = true, after_help = PROTOTYPES_EXAMPLES)]
    Prototypes(Box<PrototypesFigureArgs>),
    /// kNN accuracy by the precision of the prototype that images belong to, of several networks
    #[command(allow_negative_numbers = true, after_help = PRECISION_EXAMPLES)]
    Precision(Box<HeadFigureArgs>),
    /// Errors among the most certain images (risk-coverage curves), by each measure of certainty
    #[command(allow_negative_numbers = true, after_help = CERTAINTY_EXAMPLES)]
    Certainty(Box<HeadFigureArgs>),
}

/// Where a figure goes.
#[derive(Debug, Args)]
pub struct FigureOut {
    /// File to write: .svg or .png. The numbers go beside it, as .csv
    #[arg(long, value_name = "F.svg|F.png")]
    pub out: PathBuf,
    /// Replace the files if they exist
    #[arg(long)]
    pub force: bool,
}

/// `figure circle`.
#[derive(Debug, Args)]
pub struct CircleArgs {
    /// A component: DEGREES:KAPPA, or DEGREES:KAPPA:WEIGHT; several times for several [default: the paper's two, 315:10 and
    /// 315:2]
    #[arg(long, value_name = "D:K[:W]", allow_hyphen_values = true)]
    pub component: Vec<String>,
    /// Where it goes.
    #[command(flatten)]
    pub out: FigureOut,
}

/// `figure normalizer`.
#[derive(Debug, Args)]
pub struct NormalizerArgs {
    /// Dimensions p of the sphere, widths of the bottleneck: 16 and more, for which the paper's approximation is made
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_values_t = report::figure::normalizer::WIDTHS.map(|p| p as u32),
        value_parser = clap::value_parser!(u32).range(16..=65_536))]
    pub dimensions: Vec<u32>,
    /// Where it goes.
    #[command(flatten)]
    pub out: FigureOut,
}

/// `figure curves`.
#[derive(Debug, Args)]
pub struct CurvesArgs {
    /// The folders of runs
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// The number of the log
    #[arg(long, value_name = "KEY", default_value = "knn_top1")]
    pub key: String,
    /// Where it goes.
    #[command(flatten)]
    pub out: FigureOut,
}

/// `figure prototypes`.
#[derive(Debug, Args)]
pub struct PrototypesFigureArgs {
    /// Networks with their heads, as `eval prototypes --weights` takes them; or what `eval prototypes --json` has said, in
    /// files that end in .json, or the results.json of `eval all`
    #[arg(value_name = "RUN|RESULT.json", required = true)]
    pub networks: Vec<PathBuf>,
    /// How they are looked at.
    #[command(flatten)]
    pub how: PrototypesSettings,
    /// Where it goes.
    #[command(flatten)]
    pub out: FigureOut,
}

/// `figure precision` and `figure certainty`.
#[derive(Debug, Args)]
pub struct HeadFigureArgs {
    /// Networks with their heads, as --weights of the evaluation of the same name takes them; or what it has said with --json,
    /// in files that end in .json, or the results.json of `eval all`
    #[arg(value_name = "RUN|RESULT.json", required = true)]
    pub networks: Vec<PathBuf>,
    /// The labelled images; files of results need none
    #[arg(long, value_name = "SRC")]
    pub data: Option<String>,
    /// How they are judged.
    #[command(flatten)]
    pub how: PrecisionSettings,
    /// Where it goes.
    #[command(flatten)]
    pub out: FigureOut,
}

const CIRCLE_EXAMPLES: &str = "\
Examples:
  dino-vmf figure circle --out circle.svg
  dino-vmf figure circle --component 90:20 --component 200:4:0.3 --out mixture.png

A longer prototype (a larger kappa) is higher near its direction and lower elsewhere: that is what the normaliser does.
The second chart shows the logits without it.";

const NORMALIZER_EXAMPLES: &str = "\
Examples:
  dino-vmf figure normalizer --out normalizer.svg
  dino-vmf figure normalizer --dimensions 64,256,1024 --out normalizer.png

The exact value is right to 1e-14; the approximation is what training uses (Eq. 5 of the paper, its first term).";

const CURVES_EXAMPLES: &str = "\
Examples:
  dino-vmf figure curves runs/dino runs/vmf --out knn.svg
  dino-vmf figure curves studies/mine/runs/* --out knn.png         a line for each recipe, a band over its seeds
  dino-vmf figure curves runs/vmf --key kappa_median --out kappa.svg";

const PROTOTYPES_EXAMPLES: &str = "\
Examples:
  dino-vmf figure prototypes runs/dino runs/vmf --out prototypes.svg
  dino-vmf figure prototypes runs/vmf --thresholds 0.5,0.7,0.9,0.95,0.99 --out prototypes.png
  dino-vmf eval prototypes --weights runs/vmf --json > vmf.json && dino-vmf figure prototypes vmf.json --out prototypes.svg

The numbers are those of `eval prototypes`: the same are in the .csv.";

const PRECISION_EXAMPLES: &str = "\
Examples:
  dino-vmf figure precision runs/dino runs/vmf --data photos --out precision.svg
  dino-vmf eval precision --weights runs/vmf --data photos --json > vmf.json && dino-vmf figure precision vmf.json --out precision.svg

The numbers are those of `eval precision`: the same are in the .csv. Images are sorted by |w| of the prototype of their
largest logit; where lengths mean something, as in DINO-vMF, the stairs rise (Fig. 2 of the paper).";

const CERTAINTY_EXAMPLES: &str = "\
Examples:
  dino-vmf figure certainty runs/vmf --data photos --out risk.svg              a line for each measure of certainty
  dino-vmf figure certainty runs/dino runs/vmf --data photos --out risk.png    a chart for each, with a line for each network
  dino-vmf eval certainty --weights runs/vmf --data photos --json > vmf.json && dino-vmf figure certainty vmf.json --out risk.svg

The numbers are those of `eval certainty`: the same are in the .csv. A measure that means something has few errors among the
images that it is most certain of: its curve begins low and rises to the error of all images.";
