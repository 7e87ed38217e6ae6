//! Every error that can end a command, with the message that the user reads.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use data::BadSample;
use text::bytes;

use crate::device::DeviceChoiceError;
use crate::processes::{GpusError, LaunchError, ProcessesError};
use crate::weights::GivenWeightsError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The images.
    #[error(transparent)]
    Open(#[from] data::OpenError),
    /// Loading the images.
    #[error(transparent)]
    Load(#[from] data::LoaderError),
    /// The recipe.
    #[error(transparent)]
    Recipe(#[from] ssl::recipe::RecipeError),
    /// The settings of a fine-tuning.
    #[error(transparent)]
    FineTuneRecipe(#[from] eval::finetune::RecipeError),
    /// A fine-tuning.
    #[error(transparent)]
    FineTune(#[from] eval::finetune::FineTuneError),
    /// A checkpoint of a fine-tuning, which holds no network that stands by itself.
    #[error("{}: is the checkpoint of a fine-tuning. The network is {}", text::shown(path), text::shown(weights))]
    OfFineTuning {
        /// The checkpoint.
        path: PathBuf,
        /// Where the run puts its network.
        weights: PathBuf,
    },
    /// The file of a study.
    #[error(transparent)]
    Study(#[from] study::StudyError),
    /// The folder of a study.
    #[error("{}: {what}", text::shown(.path))]
    StudyFolder {
        /// The folder, or a file in it.
        path: std::path::PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// An export.
    #[error(transparent)]
    Export(#[from] crate::export::ExportError),
    /// A recipe for a time.
    #[error(transparent)]
    Budget(#[from] ssl::recipe::BudgetError<ssl::pretraining::PretrainError>),
    /// The run folder.
    #[error(transparent)]
    Run(#[from] train::run::RunError),
    /// A longer run in the folder of a shorter one, without a word on what becomes of its schedules.
    #[error("{}: this run has {from}, and --epochs {to} asks for more. {ways}", text::shown(path))]
    NotExtended {
        /// The run.
        path: PathBuf,
        /// Its epochs, in words.
        from: String,
        /// Epochs that were asked for.
        to: usize,
        /// What can be done.
        ways: String,
    },
    /// A run that cannot be made longer.
    #[error("{}: --extend makes a run longer, and {why}", text::shown(path))]
    CannotExtend {
        /// The folder.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A run on other images, with which of them differ.
    #[error("{source}\nOf the images that the run was begun with: {changes}")]
    OtherData {
        /// What differs in general.
        source: train::run::RunError,
        /// Which images.
        changes: String,
    },
    /// Training.
    #[error(transparent)]
    Train(#[from] train::TrainError),
    /// Setting up a training.
    #[error(transparent)]
    Pretrain(#[from] ssl::pretraining::PretrainError),
    /// The processes that train together.
    #[error(transparent)]
    Peers(#[from] train::reduce::PeerError),
    /// What a launcher has left in the environment.
    #[error(
        "the environment cannot be right: {0}. Start the processes with mpirun, srun or torchrun, or unset the variable"
    )]
    Launch(#[from] LaunchError),
    /// Several GPUs.
    #[error(transparent)]
    Gpus(Box<GpusError>),
    /// Processes that cannot train together.
    #[error(transparent)]
    Processes(#[from] ProcessesError),
    /// A training step outside a run.
    #[error(transparent)]
    Learn(#[from] ssl::learner::LearnError),
    /// The device.
    #[error(transparent)]
    Device(#[from] tensor::DeviceError),
    /// What was asked for of devices.
    #[error(transparent)]
    DeviceChoice(#[from] DeviceChoiceError),
    /// The network's shape.
    #[error(transparent)]
    Config(#[from] model::ConfigError),
    /// A weights file.
    #[error(transparent)]
    Weights(#[from] model::weights::WeightsError),
    /// What was given as weights.
    #[error(transparent)]
    GivenWeights(#[from] GivenWeightsError),
    /// A network that no recipe can name.
    #[error(
        "{}: a network of {dim} columns, {depth} blocks, {heads} heads and {hidden} hidden columns cannot be trained here: \
         those that can have the sizes of vit_nano, vit_tiny, vit_small, vit_base and vit_large, whose heads have 64 columns \
         and whose MLPs are four times as wide",
        text::shown(path)
    )]
    UnnamedNetwork {
        /// The weights.
        path: PathBuf,
        /// Width.
        dim: usize,
        /// Blocks.
        depth: usize,
        /// Heads of a block.
        heads: usize,
        /// Hidden width of an MLP.
        hidden: usize,
    },
    /// A recipe of a run that began with given weights, without them.
    #[error(
        "the recipe says begin = \"{begin}\", and no weights are given: give --{begin} W, or leave out begin and \
         begin_weights to begin with drawn ones"
    )]
    NoBeginning {
        /// How the run is to begin.
        begin: ssl::recipe::Begin,
    },
    /// An evaluation.
    #[error(transparent)]
    Eval(#[from] eval::EvalError),
    /// Images without labels where a protocol needs them, for a reason that the source knows.
    #[error("the {which} images have no labels, which this evaluation needs. Of the data: {why}")]
    Unlabelled {
        /// Which images.
        which: &'static str,
        /// Why, as the source says it.
        why: String,
    },
    /// Stored features whose labels mean different classes.
    #[error(
        "label {class} is `{}` in the training features and `{}` in the test features: the two files count their classes \
         differently, and no accuracy would mean anything. Compute both from one data set, or with the same folders of classes",
        text::excerpt(train),
        text::excerpt(test)
    )]
    OtherClasses {
        /// The label.
        class: usize,
        /// Its name in the training features.
        train: String,
        /// Its name in the test features.
        test: String,
    },
    /// Training and test images of one data set whose classes are not the same.
    #[error(
        "class {class} is `{}` in the training images and `{}` in the test images: a classifier of the ones says nothing about \
         the others. Both need the same folders of classes",
        text::excerpt(train),
        text::excerpt(test)
    )]
    OtherSplitClasses {
        /// The number of the class.
        class: usize,
        /// Its name in the training images.
        train: String,
        /// Its name in the test images.
        test: String,
    },
    /// A protocol whose command line makes no sense, which only flags of `eval all` can have caused.
    #[error("{name}: {why}")]
    Protocol {
        /// Its name.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The folder of `eval all`.
    #[error("{}: cannot be written: {source}. Give an --out where you may write", text::shown(path))]
    Results {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Results of something else in it.
    #[error("{}: {what}, and is left as it is. {way}", text::shown(path))]
    OtherResults {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What can be done.
        way: &'static str,
    },
    /// Weights without a head where a protocol looks at one.
    #[error(
        "{}: holds a backbone and no projection head with prototypes; give the folder of a run, one of its checkpoints, or the \
         full checkpoint of a training",
        text::shown(path)
    )]
    NoHead {
        /// The weights.
        path: PathBuf,
    },
    /// Images whose certainty cannot be told.
    #[error("{}: no certainty: {why}", text::shown(path))]
    NoCertainty {
        /// The weights.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// The work needs more memory than there is.
    #[error("this needs about {} of memory, and there is {total}. Ways out: {smaller}", bytes(*need))]
    TooLittleMemory {
        /// Bytes that it needs.
        need: u64,
        /// What there is, and who set that limit.
        total: String,
        /// What makes it smaller.
        smaller: &'static str,
    },
    /// Every image of the sample that sizes are measured on is unreadable.
    #[error("none of the {looked_at} images looked at in {source_name} can be read. The first:{}", list(first))]
    NothingReadable {
        /// Size of the sample.
        looked_at: usize,
        /// The source's description.
        source_name: String,
        /// The first few.
        first: Vec<BadSample>,
    },
    /// A mixture of so many components as there are classes, where there are none.
    #[error("the images have no classes to take the number of components from; say it with --components K")]
    NoComponents,
    /// Something is said of weights, and none are given.
    #[error("{flag} is about the weights that a run begins with: give them with --init W or --adapt W")]
    OfNoWeights {
        /// The flag.
        flag: &'static str,
    },
    /// All that was asked for needs images that the command does not name.
    #[error("there is nothing to evaluate. {why}")]
    NothingToEvaluate {
        /// Of each protocol what it lacks.
        why: String,
    },
    /// The output file must not be written.
    #[error(transparent)]
    OutputFile(#[from] crate::output_file::OutputFileError),
    /// Pictures must not be written there.
    #[error(transparent)]
    Pictures(#[from] crate::pictures::PicturesError),
    /// The picture's name does not end in .png.
    #[error("{}: the picture is a PNG file; give it a name that ends in .png", text::shown(path))]
    NotPngName {
        /// The file to be written.
        path: PathBuf,
    },
    /// The picture could not be written.
    #[error("{}: the picture cannot be written: {source}", text::shown(path))]
    Picture {
        /// The file to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The weights that a run begins with could not be written.
    #[error("{}: the weights cannot be written: {source}", text::shown(path))]
    Initial {
        /// The file to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Pictures of a report that cannot be made.
    #[error("{why}")]
    NoPictures {
        /// In a sentence.
        why: String,
    },
    /// Features that are not those of a run's images.
    #[error("{}: {what}", text::shown(path))]
    OtherFeatures {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A run of which nothing can be shown.
    #[error(transparent)]
    Report(#[from] report::ReportError),
    /// Runs cannot be watched.
    #[error(transparent)]
    Watch(#[from] report::watch::WatchError),
    /// The address that was asked for is taken, or not this machine's.
    #[error("{source}. {advice}")]
    Address {
        /// What to give instead.
        advice: &'static str,
        /// What the system said.
        source: report::watch::WatchError,
    },
    /// No folder to watch.
    #[error(
        "{}: there is no such folder. `pretrain` makes runs/ by itself; name another one if your runs are elsewhere",
        text::shown(path)
    )]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The page could not be written.
    #[error("{}: the page cannot be written: {source}. Nothing was changed", text::shown(path))]
    Page {
        /// The file to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A page that browsers do not know by its name.
    #[error("--out {}: must end in .html or .htm, by which browsers know a page", text::shown(path))]
    PageName {
        /// The name.
        path: PathBuf,
    },
    /// A figure's name says no format.
    #[error("{}: figures are written as .svg or .png; give a name that ends so", text::shown(path))]
    FigureName {
        /// The file to be written.
        path: PathBuf,
    },
    /// A component of a mixture on the circle.
    #[error(
        "--component {}: expected DEGREES:KAPPA or DEGREES:KAPPA:WEIGHT, as in 315:10, with kappa from 0 to 1e6 and a weight \
         above zero",
        text::excerpt(given)
    )]
    FigureComponent {
        /// What was given.
        given: String,
    },
    /// No run has logged this number.
    #[error(
        "no run has logged `{}`; --key takes what they have logged: {}",
        text::excerpt(key),
        if known.is_empty() { "nothing yet" } else { known }
    )]
    NoSuchNumber {
        /// Its name.
        key: String,
        /// The names that there are.
        known: String,
    },
    /// A file is no result of the evaluation that a figure draws.
    #[error("{}: no result of `eval {evaluation} --json`: {why}", text::shown(path))]
    FigureResult {
        /// The file.
        path: PathBuf,
        /// The evaluation.
        evaluation: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A network has to be judged, and nothing says on what.
    #[error(
        "{}: --data SRC says which labelled images it is judged on; a .json file of `eval precision --json` needs none",
        text::shown(path)
    )]
    FigureData {
        /// The network.
        path: PathBuf,
    },
    /// A figure of the distribution with parameters that it does not have.
    #[error(transparent)]
    Distribution(#[from] vmf::Error),
    /// A drawing did not become a picture.
    #[error(transparent)]
    Raster(#[from] report::figure::RasterError),
    /// The picture could not be drawn.
    #[error(transparent)]
    Sheet(#[from] data::sheet::SheetError),
    /// The result could not be printed.
    #[error("the result could not be written to standard output: {source}")]
    Output {
        /// What the system said.
        source: io::Error,
    },
    /// The signals that stop a run could not be set up.
    #[error("the system refused to set up signals or a thread for them: {source}")]
    Signals {
        /// What it said.
        source: io::Error,
    },
}

fn list(samples: &[BadSample]) -> String {
    samples.iter().map(|s| format!("\n  {}: {}", s.name, s.reason)).collect()
}

impl From<GpusError> for CliError {
    fn from(error: GpusError) -> Self {
        Self::Gpus(Box::new(error))
    }
}

/// The message of an error, followed by those of its causes that it does not contain.
pub fn message(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text += &format!("\n  because: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not look")]
    struct Silent {
        source: io::Error,
    }

    #[test]
    fn a_cause_is_told_once() {
        let source = || io::Error::other("the disk caught fire");
        assert_eq!(message(&CliError::Output { source: source() }).matches("caught fire").count(), 1);
        assert_eq!(message(&Silent { source: source() }), "could not look\n  because: the disk caught fire");
    }
}
