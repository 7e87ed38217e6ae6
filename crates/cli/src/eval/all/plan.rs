//! Which protocols there are to run, as the commands that would run each alone; and why others are not.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use data::{Orientation, Source};
use model::weights::POSITION_RULES;

use super::super::knn;
use super::super::sets::check_labels;
use super::super::shelf::Shelf;
use crate::args::{AUTO, AllArgs, BATCH_SIZE, Cli, Command, PrecisionArg, ProtocolArg};
use crate::error::CliError;

/// Images whose attention is drawn.
const PICTURES: usize = 6;

/// Why a protocol is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// `--only` or `--skip` says so.
    #[error("it was not asked for")]
    NotAsked,
    /// The images of a benchmark are elsewhere.
    #[error("no --{} FOLDER was given", .0.names().0)]
    NoFolder(Benchmark),
    /// There is nothing to classify.
    #[error("no --data was given")]
    NoData,
    /// `--data` has images of another kind.
    #[error("--data is a benchmark by its layout ({}), and has no classes", .0.names().0)]
    DataIsBenchmark(Benchmark),
    /// Images without classes, and what is wrong with their labels.
    #[error("{0}")]
    NoLabels(String),
    /// Nothing to judge by.
    #[error("no images are held out")]
    NothingHeldOut,
    /// Nothing to look at.
    #[error("there are no images of --data to look at")]
    NoImages,
}

impl LeftOut {
    /// Whether this call did not ask for the protocol, which says nothing of a result that it had from another.
    pub fn is_not_asked(&self) -> bool {
        matches!(self, Self::NotAsked | Self::NoFolder(_))
    }
}

/// Refuses a command that asks only for what needs images that it does not name, and says which.
pub fn check_possible(planned: &[(&'static str, Result<Item, LeftOut>)]) -> Result<(), CliError> {
    let asked = || planned.iter().filter(|(_, item)| !matches!(item, Err(LeftOut::NotAsked)));
    let why = |(name, item): &(&str, Result<Item, LeftOut>)| match item {
        Err(why @ (LeftOut::NoFolder(_) | LeftOut::NoData)) => Some(format!("{name}: {why}")),
        _ => None,
    };
    match asked().map(why).collect::<Option<Vec<_>>>() {
        Some(reasons) if !reasons.is_empty() => Err(CliError::NothingToEvaluate { why: reasons.join("; ") }),
        _ => Ok(()),
    }
}

/// A folder that a benchmark comes in, by its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    /// Revisited Oxford.
    Oxford,
    /// Revisited Paris.
    Paris,
    /// Copydays.
    Copydays,
    /// DAVIS-2017.
    Davis,
}

impl Benchmark {
    const ALL: [Self; 4] = [Self::Oxford, Self::Paris, Self::Copydays, Self::Davis];

    fn is(self, folder: &Path) -> bool {
        let has = |names: &[&str]| names.iter().any(|name| folder.join(name).exists());
        match self {
            Self::Oxford => has(&["gnd_roxford5k.pkl"]),
            Self::Paris => has(&["gnd_rparis6k.pkl"]),
            Self::Copydays => has(&["original"]) && has(&["strong", "jpegqual", "crops"]),
            Self::Davis => has(&["JPEGImages"]) && has(&["Annotations"]),
        }
    }

    /// What it is called: on the command line, and among the results.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Oxford => ("oxford", "retrieval-oxford"),
            Self::Paris => ("paris", "retrieval-paris"),
            Self::Copydays => ("copydays", "copies"),
            Self::Davis => ("davis", "video"),
        }
    }

    fn protocol(self) -> ProtocolArg {
        match self {
            Self::Oxford | Self::Paris => ProtocolArg::Retrieval,
            Self::Copydays => ProtocolArg::Copies,
            Self::Davis => ProtocolArg::Video,
        }
    }

    fn given(self, args: &AllArgs) -> Option<&PathBuf> {
        match self {
            Self::Oxford => args.oxford.as_ref(),
            Self::Paris => args.paris.as_ref(),
            Self::Copydays => args.copydays.as_ref(),
            Self::Davis => args.davis.as_ref(),
        }
    }
}

/// What `--data` is.
pub struct Data {
    /// Its training images; none where it is the folder of a benchmark.
    pub train: Option<Arc<dyn Source>>,
    /// Its held-out images, where there are any.
    pub test: Option<Arc<dyn Source>>,
    /// Why there is nothing to classify.
    unlabelled: Option<LeftOut>,
    benchmark: Option<(Benchmark, PathBuf)>,
    /// Those of `--other`.
    other: Option<Arc<dyn Source>>,
}

impl Data {
    /// Opens the images, or sees which benchmark they are.
    pub fn open(args: &AllArgs, shelf: &Shelf) -> Result<Self, CliError> {
        let other = args.other.as_ref().map(|other| shelf.judged(other)).transpose()?;
        let nothing =
            |why| Self { train: None, test: None, unlabelled: Some(why), benchmark: None, other: other.clone() };
        let Some(spec) = &args.data else { return Ok(nothing(LeftOut::NoData)) };
        let folder = Path::new(spec);
        if let Some(benchmark) = Benchmark::ALL.into_iter().find(|benchmark| benchmark.is(folder)) {
            let why = LeftOut::DataIsBenchmark(benchmark);
            return Ok(Self { benchmark: Some((benchmark, folder.to_owned())), ..nothing(why) });
        }
        let (train, test) = shelf.both(spec)?;
        let unlabelled = check_labels(&*train, "training").err().map(|error| LeftOut::NoLabels(error.to_string()));
        Ok(Self { train: Some(train), test, unlabelled, benchmark: None, other })
    }

    /// Refuses numbers of neighbours that these images do not have, as `eval knn` does.
    pub fn check_neighbors(&self, args: &AllArgs) -> Result<(), CliError> {
        let Some(train) = self.train.as_ref().filter(|_| self.unlabelled.is_none()) else { return Ok(()) };
        if !args.k.is_empty() && !is_left_out(ProtocolArg::Knn, args) {
            knn::check_asked(&args.k, train.len(), self.test.is_none())?;
        }
        Ok(())
    }
}

/// A protocol, as the command that runs it alone.
pub struct Item {
    /// Its name among the results.
    pub name: &'static str,
    /// `eval knn`.
    command: Vec<OsString>,
    /// What it is run on.
    place: Vec<OsString>,
    /// What changes its result.
    pub settings: Vec<OsString>,
    /// Whether this call says what its command would otherwise choose to suit the data: that has to be possible.
    pub is_chosen: bool,
    /// What does not: where to compute.
    machine: Vec<OsString>,
    /// The folder of its benchmark, where it is none of `--data`.
    pub folder: Option<PathBuf>,
    /// The fingerprint of the images of another kind that it looks at.
    pub other: Option<u64>,
}

impl Item {
    /// Whether it looks at the head of a network, too.
    pub fn needs_head(&self) -> bool {
        matches!(self.name, "prototypes" | "precision" | "certainty")
    }

    /// The words of the command, behind the program's name.
    pub fn words(&self) -> impl Iterator<Item = &OsString> {
        self.command.iter().chain(&self.place).chain(&self.settings).chain(&self.machine)
    }

    /// The command, read as from a terminal.
    pub fn parsed(&self) -> Result<Command, CliError> {
        let words = std::iter::once(OsString::from("dino-vmf")).chain(self.words().cloned());
        let parsed = Cli::try_parse_from(words).map_err(|error| CliError::Protocol {
            name: self.name,
            why: error.to_string().lines().next().unwrap_or_default().to_owned(),
        });
        parsed.map(|cli| cli.command)
    }
}

/// Every protocol with its command, or with the reason why it is left out.
pub fn plan(args: &AllArgs, data: &Data) -> Vec<(&'static str, Result<Item, LeftOut>)> {
    ProtocolArg::value_variants().iter().flat_map(|protocol| of_protocol(*protocol, args, data)).collect()
}

fn is_left_out(protocol: ProtocolArg, args: &AllArgs) -> bool {
    args.skip.contains(&protocol) || (!args.only.is_empty() && !args.only.contains(&protocol))
}

fn of_protocol(protocol: ProtocolArg, args: &AllArgs, data: &Data) -> Vec<(&'static str, Result<Item, LeftOut>)> {
    use ProtocolArg::{
        Attention, Certainty, Copies, Fewshot, Knn, Linear, Mixture, Precision, Prototypes, Retrieval, Transfer, Video,
    };
    let is_left_out = is_left_out(protocol, args);
    let name = match protocol {
        Knn => "knn",
        Linear => "linear",
        Fewshot => "fewshot",
        Transfer => "transfer",
        Mixture => "mixture",
        Prototypes => "prototypes",
        Precision => "precision",
        Certainty => "certainty",
        Attention => "attention",
        Retrieval | Copies | Video => "",
    };
    if name.is_empty() {
        let benchmarks = Benchmark::ALL.into_iter().filter(|benchmark| benchmark.protocol() == protocol);
        return benchmarks
            .map(|benchmark| (benchmark.names().1, of_benchmark(benchmark, is_left_out, args, data)))
            .collect();
    }
    if is_left_out {
        return vec![(name, Err(LeftOut::NotAsked))];
    }
    let labels = data.unlabelled.as_ref().map_or(Ok(()), |why| Err(why.clone()));
    let held_out = || data.test.as_ref().map(|_| ()).ok_or(LeftOut::NothingHeldOut);
    let (possible, mut settings) = match protocol {
        Linear => (labels.and_then(|()| held_out()), vec!["--no-augment".into()]),
        Fewshot | Transfer => (labels.and_then(|()| held_out()), Vec::new()),
        Knn | Mixture | Precision | Certainty => (labels, Vec::new()),
        // Without images there is still something to be seen of prototypes.
        _ => (Ok(()), Vec::new()),
    };
    let is_chosen = match protocol {
        Knn => !args.k.is_empty(),
        Linear => args.epochs.is_some(),
        _ => false,
    };
    match protocol {
        Knn if is_chosen => {
            let ks: Vec<String> = args.k.iter().map(u32::to_string).collect();
            settings.push(flag("k", ks.join(",")));
        }
        Certainty => settings.extend(args.other.as_ref().map(|other| flag("other", other))),
        Linear => settings.extend(args.epochs.map(|epochs| flag("epochs", epochs.to_string()))),
        Attention => {
            settings.extend([flag("images", PICTURES.to_string()), "--force".into()]);
            settings.extend(data.test.as_ref().map(|_| flag("split", "test")));
            settings.push(flag("out", args.out.join("attention")));
        }
        _ => {}
    }
    if protocol == Attention && data.train.is_none() {
        return vec![(name, Err(LeftOut::NoImages))];
    }
    let command = if protocol == Attention { vec![name.into()] } else { vec!["eval".into(), name.into()] };
    let mut place = vec![flag("weights", &args.weights)];
    place.extend(args.data.as_ref().filter(|_| data.train.is_some()).map(|data| flag("data", data)));
    settings.extend(
        args.judging.input.network.image_size.map(|(height, width)| flag("image-size", format!("{height}x{width}"))),
    );
    settings.extend(orientation(args));
    settings.extend(network(args));
    let mut machine = machine(args);
    if protocol != Attention && args.judging.input.batch_size != BATCH_SIZE {
        machine.push(flag("batch-size", args.judging.input.batch_size.to_string()));
    }
    let other = data.other.as_ref().filter(|_| protocol == Certainty).map(|source| source.fingerprint());
    let item = || Item { name, command, place, settings, is_chosen, machine, folder: None, other };
    vec![(name, possible.map(|()| item()))]
}

fn of_benchmark(benchmark: Benchmark, is_left_out: bool, args: &AllArgs, data: &Data) -> Result<Item, LeftOut> {
    if is_left_out {
        return Err(LeftOut::NotAsked);
    }
    let name = benchmark.names().1;
    let known = data.benchmark.as_ref().filter(|(known, _)| *known == benchmark).map(|(_, folder)| folder);
    let folder = benchmark.given(args).or(known).ok_or(LeftOut::NoFolder(benchmark))?;
    let ground_truth = |file: &str| vec![flag("gnd", folder.join(file)), flag("data", folder)];
    // Oxford and Paris with the settings that the paper has for each.
    let (command, place, mut settings) = match benchmark {
        Benchmark::Oxford => {
            let settings = vec![flag("image-size", "224"), OsString::from("--single-scale")];
            ("retrieval", ground_truth("gnd_roxford5k.pkl"), settings)
        }
        Benchmark::Paris => ("retrieval", ground_truth("gnd_rparis6k.pkl"), Vec::new()),
        Benchmark::Copydays => ("copies", vec![flag("data", folder)], orientation(args).into_iter().collect()),
        Benchmark::Davis => ("video", vec![flag("davis", folder)], Vec::new()),
    };
    settings.extend(network(args));
    let place = std::iter::once(flag("weights", &args.weights)).chain(place).collect();
    let command = vec!["eval".into(), command.into()];
    let (is_chosen, machine) = (false, machine(args));
    Ok(Item { name, command, place, settings, is_chosen, machine, folder: Some(folder.clone()), other: None })
}

/// A flag with its value as one word, whatever that begins with.
fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value.into());
    word
}

fn orientation(args: &AllArgs) -> Option<OsString> {
    let name = |orientation: Orientation| orientation.name().replace(' ', "-");
    args.judging.input.orientation.map(|orientation| flag("orientation", name(orientation)))
}

/// What was asked for of the network.
fn network(args: &AllArgs) -> Vec<OsString> {
    let asked = &args.judging.input.network;
    let mut words = Vec::new();
    words.extend(asked.heads.map(|heads| flag("heads", heads.to_string())));
    words.extend(asked.which.map(|which| flag("which", which.to_string())));
    let rule = asked.positions.and_then(|asked| POSITION_RULES.iter().find(|(_, rule)| *rule == asked));
    words.extend(rule.map(|(name, _)| flag("positions", *name)));
    if args.judging.inference.precision == PrecisionArg::Bf16 {
        words.push(flag("precision", "bf16"));
    }
    words
}

fn machine(args: &AllArgs) -> Vec<OsString> {
    let machine = &args.judging.inference.machine;
    let mut words = Vec::new();
    if machine.device != AUTO {
        words.push(flag("device", &machine.device));
    }
    words.extend(machine.threads.map(|threads| flag("threads", threads.to_string())));
    words
}
