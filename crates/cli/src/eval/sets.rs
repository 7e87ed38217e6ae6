//! The training and test sets of a protocol: features that a network computes of labelled images, or stored ones.
//!
//! [`open`] finds out what there is, so that settings can be checked against it; [`Opened::compute`] does what takes time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use data::source::{Published, PublishedSets};
use data::{Copies, Source};
use eval::{EvalError, Features, InputSpec, Pooling, StoredFeatures, is_labelled, stored};
use serde_json::{Value, json};
use tensor::Device;

use super::shelf::Shelf;
use crate::args::{InputArgs, SetsArgs, SplitArg};
use crate::description;
use crate::device;
use crate::devices::Devices;
use crate::error::CliError;
use crate::features::Wanted;
use crate::images;
use crate::weights::Weights;

/// How a source's remark begins, or what it says, where it is about labels that cannot be used.
const REASONS: [&str; 4] = ["labels are not used", "no labels are used", "no labels:", "have no labels"];

/// What is there to be judged, before anything is computed.
pub struct Opened<'a> {
    what: What<'a>,
    shelf: &'a Shelf,
    host: Device,
    device: Devices,
}

/// A network and the images that it is to see.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The network.
    pub weights: &'a Weights,
    /// Where it computes.
    pub device: &'a Devices,
    /// What `--data` says.
    pub spec: &'a str,
    /// What it sees of an image.
    pub input: &'a InputArgs,
    /// Threads that read.
    pub workers: Option<usize>,
    /// What is learnt from.
    pub train: &'a Arc<dyn Source>,
    /// What is held out.
    pub test: Option<&'a Arc<dyn Source>>,
}

enum What<'a> {
    Images {
        weights: Rc<Weights>,
        seen: InputSpec,
        spec: &'a str,
        input: &'a InputArgs,
        workers: Option<usize>,
        train: Arc<dyn Source>,
        validation: Option<Arc<dyn Source>>,
        test: Option<Arc<dyn Source>>,
    },
    Stored {
        train: (PathBuf, Box<StoredFeatures>),
        validation: Option<(PathBuf, Box<StoredFeatures>)>,
        test: Option<(PathBuf, Box<StoredFeatures>)>,
    },
}

/// The features of one set.
#[derive(Debug)]
pub struct Set {
    /// The vectors with their labels.
    pub features: Features,
    /// The image of each row, where they are known.
    pub names: Vec<String>,
    /// The name of each class, where they are known.
    pub class_names: Vec<String>,
    /// Images that could not be read.
    pub skipped: usize,
}

impl Set {
    /// The same images, and no features.
    pub(super) fn like(&self) -> Self {
        let (names, class_names) = (self.names.clone(), self.class_names.clone());
        Self { features: Features::default(), names, class_names, skipped: self.skipped }
    }
}

/// Training and test sets.
#[derive(Debug)]
pub struct Sets {
    /// What is learnt from.
    pub train: Rc<Set>,
    /// What settings are chosen on; none where the data has nothing for that.
    pub validation: Option<Rc<Set>>,
    /// What is held out; none where the data has nothing held out.
    pub test: Option<Rc<Set>>,
    /// Where they come from.
    pub from: Provenance,
    /// Where to compute with them: the processor, with the threads that were asked for.
    pub host: Device,
    /// The device that was asked for: the same, or a GPU.
    pub device: Devices,
}

/// Where features come from.
#[derive(Debug)]
pub struct Provenance {
    entries: Vec<(&'static str, Value)>,
    /// The arithmetic that features were computed in; none where a file does not say.
    pub precision: Option<String>,
    /// The files that they were read from, with what each says of itself.
    files: Vec<(PathBuf, BTreeMap<String, String>)>,
}

impl Provenance {
    /// Of anything else, by what there is to say of it.
    pub fn new(entries: Vec<(&'static str, Value)>) -> Self {
        Self { entries, precision: None, files: Vec::new() }
    }

    /// Of images that a network sees, by what the sources are called and hold.
    pub fn of_network(weights: &Weights, device: &Device, spec: &str, sources: &[(&str, &dyn Source)]) -> Self {
        let digests: serde_json::Map<String, Value> =
            sources.iter().map(|(name, source)| ((*name).to_owned(), digest(source.fingerprint()))).collect();
        let precision = device::precision(device);
        let entries = vec![
            ("weights", json!(text::shown(&weights.path).to_string())),
            ("weights_digest", json!(description::weights_digest(weights))),
            ("data", json!(spec)),
            ("data_digest", Value::Object(digests)),
            ("precision", json!(precision)),
        ];
        Self { entries, precision: Some(precision.to_owned()), files: Vec::new() }
    }

    /// Of stored features, by what they are taken as: their files, what they hold, and what the first says of its weights.
    pub fn of_files(files: &[(&str, &Path, &StoredFeatures)]) -> Self {
        let paths: serde_json::Map<String, Value> =
            files.iter().map(|(name, path, _)| ((*name).to_owned(), json!(text::shown(path).to_string()))).collect();
        let digests: serde_json::Map<String, Value> =
            files.iter().map(|(name, _, stored)| ((*name).to_owned(), digest(stored.digest))).collect();
        let said = |key: &str| files.first().and_then(|(.., stored)| stored.metadata.get(key).cloned());
        let entries = vec![
            ("weights", Value::Null),
            ("weights_digest", json!(said("weights_hash"))),
            ("data", Value::Object(paths)),
            ("data_digest", Value::Object(digests)),
            ("precision", json!(said("precision"))),
        ];
        let own = |(_, path, stored): &(&str, &Path, &StoredFeatures)| (path.to_path_buf(), stored.metadata.clone());
        Self { entries, precision: said("precision"), files: files.iter().map(own).collect() }
    }

    /// The same of stored features, beside these weights, whose network has to be the one that computed them; a file need not say.
    pub fn by(mut self, weights: &Weights) -> Result<Self, CliError> {
        let digest = description::weights_digest(weights);
        for (path, said) in &self.files {
            let wrong = |what: &str| Err(CliError::OtherFeatures { path: path.clone(), what: what.to_owned() });
            if said.get("weights_hash").is_some_and(|hash| *hash != digest) {
                return wrong("these features are not of the weights: another network computed them");
            }
            if said.get("tokens").is_some_and(|tokens| tokens != "class") {
                return wrong("these features are not of class tokens, which is what a head takes");
            }
        }
        for (key, value) in &mut self.entries {
            match *key {
                "weights" => *value = json!(text::shown(&weights.path).to_string()),
                "weights_digest" => *value = json!(digest),
                _ => {}
            }
        }
        Ok(self)
    }

    pub(super) fn to_json(&self) -> Value {
        Value::Object(self.entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
    }
}

fn digest(digest: u64) -> Value {
    json!(format!("{digest:016x}"))
}

/// Opens what is to be judged. With a `split` those images alone, and nothing held out; otherwise training images, and the
/// held-out ones where there are any.
pub fn open<'a>(args: &'a SetsArgs, split: Option<SplitArg>, shelf: &'a Shelf) -> Result<Opened<'a>, CliError> {
    let machine = &args.inference.machine;
    let (Some(path), Some(spec)) = (&args.weights, &args.data) else {
        // One of the two pairs is given: the command line is refused otherwise.
        let read = |path: &PathBuf| Ok::<_, EvalError>((path.clone(), Box::new(stored::read(path)?)));
        let train = read(args.train.as_ref().unwrap_or(&PathBuf::new()))?;
        let test = args.test.as_ref().map(read).transpose()?;
        let device = args.inference.open()?;
        let host = machine.host(&device)?;
        return Ok(Opened { what: What::Stored { train, validation: None, test }, shelf, host, device });
    };
    let device = args.inference.open()?;
    let weights = shelf.weights(path, &args.input.network, &device)?;
    let (train, test) = match split {
        Some(split) => (shelf.images(spec, split)?, None),
        None => shelf.both(spec)?,
    };
    // Checked before the features are computed, which is what takes the time.
    for (which, source) in [("training", Some(&train)), ("test", test.as_ref())] {
        if let Some(source) = source {
            check_labels(&**source, which)?;
        }
    }
    let (workers, host) = (machine.thread_count()?, machine.host(&device)?);
    let (input, seen) = (&args.input, weights.input);
    let what = What::Images { weights, seen, spec, input, workers, train, validation: None, test };
    Ok(Opened { what, shelf, host, device })
}

/// Opens a data set with splits of its own, in the folder that `--data` names; none for stored features.
pub fn open_published<'a>(
    args: &'a SetsArgs,
    set: Published,
    seed: u64,
    shelf: &'a Shelf,
) -> Result<Option<Opened<'a>>, CliError> {
    let (Some(path), Some(spec)) = (&args.weights, &args.data) else { return Ok(None) };
    let machine = &args.inference.machine;
    let PublishedSets { train, validation, test } = set.open(Path::new(spec), seed)?;
    let device = args.inference.open()?;
    let weights = shelf.weights(path, &args.input.network, &device)?;
    let (workers, host) = (machine.thread_count()?, machine.host(&device)?);
    let (input, seen, test) = (&args.input, weights.input, Some(test));
    let what = What::Images { weights, seen, spec, input, workers, train, validation, test };
    Ok(Some(Opened { what, shelf, host, device }))
}

pub(super) fn check_labels(source: &dyn Source, which: &'static str) -> Result<(), CliError> {
    if is_labelled(source) {
        return Ok(());
    }
    // Where the data has labels that cannot be used, that is the reason, and not where labels would go.
    let is_reason = |remark: &&String| REASONS.iter().any(|words| remark.contains(words));
    let images = source.len();
    Err(match source.remarks().iter().find(is_reason) {
        Some(why) => CliError::Unlabelled { which, why: why.clone() },
        None => EvalError::NoLabels { which, unlabelled: images, images }.into(),
    })
}

/// Two files that were computed apart may count their classes differently, and accuracies would be of chance.
fn same_classes(train: &Set, test: Option<&Set>) -> Result<(), CliError> {
    let Some(test) = test.filter(|test| !test.class_names.is_empty() && !train.class_names.is_empty()) else {
        return Ok(());
    };
    let longest = train.class_names.len().max(test.class_names.len());
    let name = |names: &[String], class| names.get(class).cloned().unwrap_or_else(|| "no class".to_owned());
    let pair = |class| (name(&train.class_names, class), name(&test.class_names, class));
    match (0..longest).map(|class| (class, pair(class))).find(|(_, (train, test))| train != test) {
        Some((class, (train, test))) => Err(CliError::OtherClasses { class, train, test }),
        None => Ok(()),
    }
}

impl Opened<'_> {
    /// Adds stored features of images that settings are chosen on. Data says for itself whether it has such images.
    pub fn with_validation(mut self, path: Option<&PathBuf>) -> Result<Self, CliError> {
        if let (What::Stored { validation, .. }, Some(path)) = (&mut self.what, path) {
            *validation = Some((path.clone(), Box::new(stored::read(path)?)));
        }
        Ok(self)
    }

    /// Lets the network see images from edge to edge of their shorter side, rather than the centre of a somewhat larger one.
    pub fn seen_whole(mut self) -> Self {
        if let What::Images { seen, .. } = &mut self.what {
            seen.whole = true;
        }
        self
    }

    /// Images that are learnt from, some of which may turn out to be unreadable.
    pub fn train_images(&self) -> usize {
        match &self.what {
            What::Images { train, .. } => train.len(),
            What::Stored { train, .. } => train.1.features.len(),
        }
    }

    /// Whether anything is held out.
    pub fn has_test(&self) -> bool {
        match &self.what {
            What::Images { test, .. } => test.is_some(),
            What::Stored { test, .. } => test.is_some(),
        }
    }

    /// Looks for held-out images that are training images too, and warns of them. Stored features do not tell.
    pub fn warn_of_copies(&self) -> Option<Copies> {
        match &self.what {
            What::Images { train, test, .. } => Some(images::warn_of_copies(&**train, test.as_deref())),
            What::Stored { .. } => None,
        }
    }

    /// The network and its images; none of stored features.
    pub fn seen(&self) -> Option<Seen<'_>> {
        match &self.what {
            What::Images { weights, spec, input, workers, train, test, .. } => {
                Some(Seen { weights, device: &self.device, spec, input, workers: *workers, train, test: test.as_ref() })
            }
            What::Stored { .. } => None,
        }
    }

    /// Where to compute with features: the host, and the device that was asked for.
    pub fn devices(&self) -> (&Device, &Device) {
        (&self.host, &self.device)
    }

    /// Computes the features, with a progress bar.
    pub fn compute(self) -> Result<Sets, CliError> {
        self.compute_pooled(Pooling::default())
    }

    /// The same of these tokens. Stored features are what they are.
    pub fn compute_pooled(self, pooling: Pooling) -> Result<Sets, CliError> {
        let Self { what, shelf, host, device } = self;
        match what {
            What::Stored { train, validation, test } => {
                let files = [("train", Some(&train)), ("validation", validation.as_ref()), ("test", test.as_ref())];
                let there = files.into_iter().filter_map(|(name, set)| Some((name, set?)));
                let files: Vec<(&str, &Path, &StoredFeatures)> =
                    there.map(|(name, (path, stored))| (name, path.as_path(), &**stored)).collect();
                let from = Provenance::of_files(&files);
                let set = |(_, stored): (PathBuf, Box<StoredFeatures>)| {
                    let StoredFeatures { features, names, class_names, .. } = *stored;
                    Rc::new(Set { features, names, class_names, skipped: 0 })
                };
                let (train, validation, test) = (set(train), validation.map(set), test.map(set));
                same_classes(&train, validation.as_deref())?;
                same_classes(&train, test.as_deref())?;
                Ok(Sets { train, validation, test, from, host, device })
            }
            What::Images { weights, seen, spec, input, workers, train, validation, test } => {
                let wanted = Wanted { weights: &weights, seen, input, workers, device: &device };
                let set = |source: &dyn Source| shelf.set(&wanted, source, pooling);
                let of = |source: &Option<Arc<dyn Source>>| source.as_deref().map(set).transpose();
                let sets = (set(&*train)?, of(&validation)?, of(&test)?);
                let sources =
                    [("train", Some(&*train)), ("validation", validation.as_deref()), ("test", test.as_deref())];
                let sources: Vec<_> = sources.into_iter().filter_map(|(name, s)| Some((name, s?))).collect();
                let from = Provenance::of_network(&weights, &device, spec, &sources);
                Ok(Sets { train: sets.0, validation: sets.1, test: sets.2, from, host, device })
            }
        }
    }
}

impl Sets {
    /// Images that are judged: those that are held out, or each by the others.
    pub fn judged(&self) -> usize {
        self.test.as_ref().unwrap_or(&self.train).features.len()
    }

    /// Images that could not be read.
    pub fn skipped(&self) -> usize {
        let others = self.validation.iter().chain(&self.test);
        self.train.skipped + others.map(|set| set.skipped).sum::<usize>()
    }

    /// How the features were computed, in words that follow a comma.
    pub fn precision(&self) -> String {
        match &self.from.precision {
            Some(precision) => format!("features in {precision}"),
            None => "stored features".to_owned(),
        }
    }
}
