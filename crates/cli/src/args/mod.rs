//! The command line as types, one file per family of commands. Scripts rely on these names, and `--help` is the first
//! documentation that most people read.

mod attention;
mod bench;
mod eval;
mod export;
mod figure;
mod network;
mod recipe;
mod report;
mod study;
mod watch;

pub use self::eval::{
    AllArgs, AssignmentArg, CertaintyArgs, CopiesArgs, EvalCommand, FewShotArgs, FinetuneArgs, HeadArgs, KnnArgs,
    LinearArgs, MixtureArgs, PrecisionArgs, PrecisionSettings, ProtocolArg, PrototypesArg, PrototypesArgs,
    PrototypesSettings, RecipeArg, RetrievalArgs, SetsArgs, TransferArgs, VideoArgs,
};
pub use self::report::{ReportArgs, RunsArgs, SortArg};
pub use attention::AttentionArgs;
pub use bench::{BenchDataArgs, BenchKnnArgs, BenchStepArgs};
pub use export::{ExportArgs, TargetArg};
pub use figure::{
    CircleArgs, CurvesArgs, FigureCommand, FigureOut, HeadFigureArgs, NormalizerArgs, PrototypesFigureArgs,
};
pub use network::{
    BATCH_SIZE, FeaturesArgs, InferenceArgs, InputArgs, InspectArgs, NetworkArgs, NormArg, PrecisionArg, SplitArg,
};
pub use recipe::{PretrainArgs, RecipeArgs, RecipeFlags, ViewsArgs};
pub use study::StudyArgs;
pub use watch::WatchArgs;

use clap::{Args, Parser, Subcommand};
use data::Orientation;
use ssl::recipe::{NoSize, Size};

use crate::device::MAX_THREADS;

/// Pre-trains vision transformers on unlabelled images with DINO, iBOT and MSN, with or without von Mises-Fisher prototypes, and evaluates
/// them.
#[derive(Debug, Parser)]
#[command(name = "dino-vmf", version, propagate_version = true, after_help = START_HERE)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const START_HERE: &str = "\
Start here:
  dino-vmf doctor                                  what this machine offers
  dino-vmf pretrain                                train on made-up images, with nothing to download
  dino-vmf views --data photos --out sheet.png     a picture of what the network will see
  dino-vmf pretrain --data photos --out runs/mine  train on a folder; the same command again continues the run

Results go to standard output, everything else to standard error. `dino-vmf COMMAND --help` has examples.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a vision transformer on unlabelled images
    #[command(allow_negative_numbers = true, after_help = recipe::PRETRAIN_EXAMPLES)]
    #[command(after_long_help = recipe::pretrain_help())]
    Pretrain(Box<PretrainArgs>),
    /// Draw what the network will see: the views of some images, as a picture
    #[command(allow_negative_numbers = true, after_help = recipe::VIEWS_EXAMPLES)]
    #[command(after_long_help = recipe::views_help())]
    Views(Box<ViewsArgs>),
    /// Write the features of images to a file: class token, mean of the patches, both, or all patch tokens
    #[command(allow_negative_numbers = true, after_help = network::FEATURES_EXAMPLES)]
    Features(FeaturesArgs),
    /// Draw what a network looks at in images, as pictures
    #[command(allow_negative_numbers = true, after_help = attention::EXAMPLES)]
    Attention(Box<AttentionArgs>),
    /// Measure how good features are
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Write a network for timm, Hugging Face's transformers, ONNX or DINO
    #[command(allow_negative_numbers = true, after_help = export::EXAMPLES)]
    Export(ExportArgs),
    /// Say what a weights file or a run holds
    #[command(allow_negative_numbers = true, after_help = network::INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Write a page that shows a run, or several side by side
    #[command(after_help = self::report::REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// List the runs below a folder, and how they are doing
    #[command(after_help = self::report::RUNS_EXAMPLES)]
    Runs(RunsArgs),
    /// Draw a figure of the paper from your own runs, with its numbers beside it
    #[command(subcommand)]
    Figure(FigureCommand),
    /// Serve the pages of runs live, on this machine, while they train
    #[command(after_help = watch::EXAMPLES)]
    Watch(WatchArgs),
    /// Train a whole grid of recipes, data and seeds, and make a table of it
    #[command(allow_negative_numbers = true, after_help = study::EXAMPLES)]
    Study(StudyArgs),
    /// Measure how fast this machine is
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Say what this machine offers, what is missing and how to get it
    Doctor(DoctorArgs),
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Time training steps on random pixels
    #[command(allow_negative_numbers = true, after_help = bench::STEP_EXAMPLES)]
    Step(BenchStepArgs),
    /// Time the data loader: how many images a second it reads, decodes and turns into views, and where the time goes
    #[command(allow_negative_numbers = true, after_help = bench::DATA_EXAMPLES)]
    Data(BenchDataArgs),
    /// Time the nearest-neighbour classifier on random features
    #[command(allow_negative_numbers = true, after_help = bench::KNN_EXAMPLES)]
    Knn(BenchKnnArgs),
}

/// The device where none is asked for: a GPU if there is one.
pub const AUTO: &str = "auto";

/// Where and with how many threads to compute.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// Where to compute: auto, cpu or `cuda[:N]`
    #[arg(long, value_name = "DEVICE", default_value = AUTO, help_heading = "Machine")]
    pub device: String,
    /// Threads that compute; the result is the same for any number [default: RAYON_NUM_THREADS, or all cores]
    #[arg(long, value_name = "N", help_heading = "Machine", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_THREADS)))]
    pub threads: Option<u16>,
}

/// What `--data` may be.
const SOURCE: &str = "The images: a folder (searched to any depth), tar or parquet files (also as a pattern: \
                      'shard-{000..009}.tar', 'data/**/*.tar'), a folder of CIFAR or IDX files, a text file that lists images, or \
                      `synthetic` for images that the program makes";

/// A number of GPUs.
fn gpus(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(gpus @ 1..=1024) => Ok(gpus),
        _ => Err("it must be a number from 1 to 1024; --device cpu does without a GPU".to_owned()),
    }
}

/// Height and width in pixels, as recipes have them: `224`, or `40x80`.
fn pixels(text: &str) -> Result<(usize, usize), NoSize> {
    text.parse().map(|Size { height, width }| (height, width))
}

fn orientation(name: &str) -> Result<Orientation, String> {
    Orientation::of_name(name).ok_or_else(|| "it is one of upright, as-stored".to_owned())
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("it must be a number above zero".to_owned()),
    }
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Where to compute.
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn a_size_is_a_side_or_height_and_width() {
        assert_eq!([pixels("224"), pixels(" 40 X80")], [Ok((224, 224)), Ok((40, 80))]);
        assert!(["", "0", "x", "40x", "16385", "-3", "1x2x3", "40.5"].iter().all(|text| pixels(text).is_err()));
        assert!(pixels("16385").unwrap_err().to_string().starts_with("it must be a side from 1 to 16384"));
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_commands_of_the_design_parse() {
        for line in [
            "pretrain",
            "pretrain --data d --method dino --prototypes vmf --centering probability --arch vit_tiny --patch-size 16 \
             --epochs 3 --batch-size 8 --out-dim 64 --local-crops 2 --recipe r.toml --set a=b --set c=d --out o \
             --device cpu --seed 3",
            "features --weights w --data d --out f.npy --split all --precision bf16 --force",
            "features --weights w --data d --out f.parquet --tokens both --layers 4 --norm before",
            "eval finetune --weights w --data d --recipe deit --out o --epochs 3 --batch-size 8 --lr 0.1 --set a=b --seed 3 \
             --image-size 32 --device cpu --json",
            "eval knn --weights w --data d --k 10,20 --split all --precision f32 --json",
            "eval knn --train f.safetensors --test g.safetensors --k 20 --json",
            "eval linear --weights w --data d --epochs 10 --rates 0.1,1 --layers 4 --tokens both --no-augment --json",
            "eval linear --train f.safetensors --test g.safetensors --ibot-rates --step-images 256 --seed 3",
            "eval mixture --train f.safetensors --test g.safetensors --components 20 --assignment hard --shared-kappa --json",
            "bench knn --train-images 1000 --test-images 100 --dim 8 --k 5 --threads 2 --json",
            "eval video --davis d --masks m --sequences a,b --json",
            "eval video --davis d --weights w --save m --force --last-frames 7 --reach 12 --top-k 5",
            "attention --weights w --data d --out f --threshold 0.6",
            "attention --weights w --data d --out f --frames --images 9 --image-size 480x480",
            "eval fewshot --weights w --data d --shots 1,2,5 --percent 1 --splits 3 --seed 1 --strength 0.075 --json",
            "eval fewshot --train f.safetensors --test g.safetensors --lists l --json",
            "eval transfer --weights w --data d --dataset pets --select holdout --metric top1 --json",
            "eval transfer --train f.safetensors --validation v.safetensors --test g.safetensors --strengths 0.1,1 --json",
            "eval retrieval --gnd g.pkl --ranks r.npy --json",
            "eval retrieval --gnd g.pkl --weights w --data d --image-size 224 --single-scale --crop-queries --json",
            "eval copies --weights w --data d --distractors e --whiten f --json",
            "eval prototypes --weights w --json",
            "eval prototypes --weights w --data d --split all --thresholds 0.9,0.99 --prototypes vmf --tau 0.04",
            "eval precision --weights w --data d --bins 5 --k 20 --json",
            "export --weights w --to dino --out f --heads",
            "export --weights w --to onnx --out f.onnx --which student --image-size 40x80 --force",
            "inspect w",
            "inspect w --json",
            "report runs/a runs/b --out report.html --force",
            "report runs/a --images 500 --features f.safetensors --device cpu --threads 2",
            "report runs/a --no-pictures",
            "runs studies --json --sort knn",
            "figure circle --component 90:20 --component -30:4:0.3 --out c.svg",
            "figure normalizer --dimensions 64,256 --out n.png --force",
            "figure curves a b --key loss --out c.svg",
            "watch",
            "watch studies --port 8080 --host ::1 --allow-stop",
            "bench step --arch vit_tiny --patch-size 16 --batch-size 8 --local-crops 6 --out-dim 4096 --steps 5 \
             --device cpu --json",
            "bench data --data d --batch-size 8 --local-crops 6 --workers 2 --seconds 3 --json",
            "views --data d --out sheet.png --images 4 --epoch 2 --seed 3 --recipe r.toml --set a=b --split test --no-frames \
             --force",
            "study s.toml --out o --data a=b --data c=d --at-once 3 --dry-run --json --device cpu --threads 2",
            "doctor",
        ] {
            let words = std::iter::once("dino-vmf").chain(line.split_whitespace());
            assert!(Cli::try_parse_from(words).is_ok(), "{line}");
        }
    }
}
