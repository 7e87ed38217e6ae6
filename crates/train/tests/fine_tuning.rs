//! The skeleton of fine-tuning: a linear layer on the class token, trained with the backbone by crate `train` alone. It
//! learns, it is killed in the middle and goes on to the bits of an unbroken run, and what ends it saves first.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use data::views::{MultiCrop, PerKind};
use data::{BadSample, DecodeLimits, LoaderConfig, ReadError, Source, Split, Stored};
use model::{Arch, Classifier, Layout, ParamSpec, Tokens, Vit, VitConfig, VitInput};
use tensor::ops::{self, AdamW, Pixels};
use tensor::{Device, ParamSet};
use train::curve::{Curve, cosine};
use train::feed::Fed;
use train::optimizer::{Clip, Optimizer, OptimizerOptions, StepValues, Treatment};
use train::reduce::{Alone, Reduce, Share, Wire};
use train::run::{Comparison, Digests, Record, RunConfig, RunFolder, RunReader};
use train::state::{SavedState, State, StateError};
use train::step::{self, StepReport, Trained};
use train::{
    Condition, Kept, LoopOptions, Monitor, NoEvaluation, NotFinite, Outcome, Position, Progress, StepError, StepRecord,
    TrainFailure, Trainable, Trainer,
};

const IMAGES: usize = 160;
const BATCH: usize = 16;
const EPOCHS: u64 = 30;
const SIDE: usize = 32;
const CLASSES: usize = 10;
/// Of the images, those that may be unreadable.
const BAD_SHARE: f64 = 0.05;
const VERDICT: &str = "nothing is wrong, but it could be";
const RARELY: Duration = Duration::from_secs(600);

struct Silent;

impl Monitor for Silent {
    fn step(&mut self, _: &Progress) {}
    fn say(&mut self, _: &str) {}
    fn skipped(&mut self, _: &BadSample) {}
}

/// The settings of this training: there is nothing to set.
struct Settings;

impl RunConfig for Settings {
    fn to_toml(&self) -> String {
        "method = \"fine-tuning\"\n".to_owned()
    }

    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn std::error::Error + Send + Sync>> {
        if saved == self.to_toml() { Ok(Comparison::Same) } else { Err("another training".into()) }
    }

    fn digests(&self) -> Digests {
        Digests { recipe: "fine-tuning".to_owned(), data: "synthetic".to_owned() }
    }

    fn total_steps(&self) -> u64 {
        EPOCHS * (IMAGES / BATCH) as u64
    }

    fn keep_checkpoints(&self) -> usize {
        2
    }
}

/// A backbone with a classifier.
struct FineTuning {
    device: Device,
    layout: Layout,
    vit: Vit,
    classifier: Classifier,
    weights: ParamSet,
    gradient: ParamSet,
    optimizer: Optimizer,
    reduce: Alone,
    source: Arc<dyn Source>,
    lr: Curve,
    last: StepReport,
}

impl FineTuning {
    fn new(source: Arc<dyn Source>) -> Self {
        let device = Device::cpu(Default::default()).unwrap();
        let mut layout = Layout::default();
        let config = VitConfig::new(Arch::Nano, 8, (SIDE, SIDE), 3).unwrap();
        let dim = config.dim;
        let vit = Vit::new(&mut layout, "backbone.", config);
        let classifier = Classifier::new(&mut layout, "head", dim, CLASSES);
        let weights = layout.initial(&device, 0);
        let gradient = weights.zeros_like();
        // Clipped by the norm of all; the patch embedding learns slower, as with layer-wise decay.
        let treatment = |spec: &ParamSpec| Treatment {
            clip: Clip::ByGlobalNorm,
            lr_factor: if spec.name.contains("patch_embed") { 0.5 } else { 1.0 },
            ..Treatment::usual(spec)
        };
        let treatments = layout.specs().iter().map(treatment).collect();
        let optimizer = Optimizer::new(
            &weights,
            treatments,
            OptimizerOptions { adam: AdamW::default(), clip: 1.0, pull: 0.0 },
            Share::WHOLE,
        );
        let total = EPOCHS * (IMAGES / BATCH) as u64;
        let (lr, last) = (cosine(3e-3, 1e-5, total, 10), StepReport::default());
        Self { device, layout, vit, classifier, weights, gradient, optimizer, reduce: Alone, source, lr, last }
    }

    /// The first global view of each image: a classifier needs no second one.
    fn images<'a>(&self, fed: &'a Fed) -> Pixels<'a> {
        fed.first_of(0, fed.batch.samples.len())
    }

    /// Puts the gradient into its place, and returns the mean cross-entropy.
    fn compute_gradient(&mut self, fed: &Fed) -> Result<f64, StepError> {
        self.gradient.clear();
        let images = [self.images(fed)];
        let input = VitInput::images(&images);
        let (features, saved) = self.vit.forward(&self.weights, &self.device, &input, Tokens::Class)?;
        let mut logits = self.classifier.forward(&self.weights, &features);
        let (rows, weight) = (logits.rows(), 1.0 / logits.rows() as f64);
        let mut one_hot = vec![0.0; rows * CLASSES];
        for (row, &sample) in fed.batch.samples.iter().enumerate() {
            one_hot[row * CLASSES + self.source.label(sample as usize).unwrap() as usize] = 1.0;
        }
        let targets = self.device.from_f64(&[rows, CLASSES], &one_hot);
        let no_shift = self.device.zeros_exact(&[CLASSES]);
        let own: Vec<Vec<usize>> = (0..rows).map(|row| vec![row]).collect();
        // The gradient of the logits takes their place.
        let losses = ops::cross_entropy(&mut logits, 1.0, &no_shift, &targets, &own, &vec![weight; rows]);
        let loss = losses.iter().sum::<f64>() * weight;
        if !loss.is_finite() {
            return Err(NotFinite { term: "the loss".into() }.into());
        }
        let d_features = self.classifier.backward(&self.weights, &features, &logits, &mut self.gradient);
        self.vit.backward(&self.weights, saved, &d_features, &mut self.gradient);
        Ok(loss)
    }

    fn values(&self, at: Position) -> StepValues {
        StepValues { lr: self.lr.at(at.step), weight_decay: 0.05, momentum: 1.0, frozen: false, waiting_lr: 1.0 }
    }
}

impl Trainable for FineTuning {
    fn device(&self) -> &Device {
        &self.device
    }

    fn reduce(&mut self) -> &mut dyn Reduce {
        &mut self.reduce
    }

    fn step(&mut self, fed: &Fed, at: Position) -> Result<f64, StepError> {
        let (loss, values) = (self.compute_gradient(fed), self.values(at));
        let Self { layout, weights, gradient, optimizer, device, reduce, .. } = self;
        let trained = Trained { layout, weights, gradient, teacher: None };
        self.last = step::complete(loss, trained, optimizer, &values, device, reduce, Wire::Exact)?;
        Ok(self.last.loss)
    }

    fn describe(&mut self, _: &Fed, at: Position, record: Record) -> Result<StepRecord, StepError> {
        let record = record.number("loss", self.last.loss).number("gradient_norm", self.last.gradient.norm);
        let record = record.number("lr", self.values(at).lr);
        Ok(StepRecord { record, verdict: Some(VERDICT.to_owned()), condition: Condition::Healthy })
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        state.set("network", &self.layout, &self.weights);
        self.optimizer.save(&self.layout, state);
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        saved.set("network", &self.layout, &mut self.weights)?;
        self.optimizer.restore(&self.layout, saved)
    }
}

fn synthetic() -> Arc<dyn Source> {
    data::open(&format!("synthetic:train={IMAGES},size={SIDE}"), Split::Train, 0).unwrap()
}

fn open_with(training: FineTuning, folder: &Path, save_every: Duration) -> Trainer<FineTuning> {
    open_told(training, folder, save_every, &mut Silent)
}

fn open_told(training: FineTuning, folder: &Path, save_every: Duration, to: &mut dyn Monitor) -> Trainer<FineTuning> {
    // Mild distortions: what tells the classes apart is small and in the colours' places.
    let never = PerKind { global1: 0.0, global2: 0.0, local: 0.0 };
    let views = MultiCrop {
        global_size: (SIDE, SIDE),
        local_crops: 0,
        global_scale: (0.8, 1.0),
        jitter_probability: 0.0,
        grayscale_probability: 0.0,
        blur_probability: never,
        solarize_probability: never,
        ..MultiCrop::dino()
    };
    let loader = LoaderConfig { batch_size: BATCH, views, max_bad_share: BAD_SHARE, ..LoaderConfig::default() };
    let options = LoopOptions {
        loader,
        epochs: EPOCHS,
        log_every: 1,
        evaluate_every: 0,
        evaluate_start: false,
        save_every,
        patience: None,
    };
    let folder = RunFolder::open(folder, &Settings).unwrap();
    let source = training.source.clone();
    Trainer::open(training, options, folder, source, to).unwrap()
}

fn open(folder: &Path, source: Arc<dyn Source>, save_every: Duration) -> Trainer<FineTuning> {
    open_with(FineTuning::new(source), folder, save_every)
}

fn finish(trainer: &mut Trainer<FineTuning>) -> Vec<u8> {
    assert_eq!(trainer.run(&mut Silent, &mut NoEvaluation, &|| false).unwrap(), Outcome::Finished);
    trainer.trained().weights.iter().flat_map(|t| t.to_le_bytes().into_owned()).collect()
}

/// The other half of the test below: trains in a process that is killed. Does nothing unless asked to.
#[test]
fn child() {
    if let Some(folder) = std::env::var_os("FINE_TUNING_FOLDER") {
        finish(&mut open(Path::new(&folder), synthetic(), Duration::ZERO));
    }
}

#[test]
fn a_classifier_on_the_class_token_learns_and_survives_a_kill_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, unbroken) = (folder.path().join("broken"), folder.path().join("unbroken"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("FINE_TUNING_FOLDER", &broken)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let saved = || RunReader::open(&broken).and_then(|run| run.checkpoints()).ok()?.first().map(|c| c.0);
    while saved().is_none_or(|step| step < 30) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let mut trainer = open(&broken, synthetic(), RARELY);
    let resumed_at = trainer.step();
    assert!((30..300).contains(&resumed_at), "killed after step {resumed_at}");
    let weights = finish(&mut trainer);
    assert!(weights == finish(&mut open(&unbroken, synthetic(), RARELY)));

    let records = RunReader::open(&unbroken).unwrap().metrics().unwrap();
    let losses: Vec<f64> = records.iter().map(|record| record["loss"].as_f64().unwrap()).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&losses[..10]), mean(&losses[losses.len() - 10..]));
    assert!(last < 0.8 * first, "the loss fell from {first:.3} to {last:.3}");
}

/// A source of which every `each`th image cannot be read once a file is gone.
struct Unplugged {
    source: Arc<dyn Source>,
    switch: PathBuf,
    each: usize,
}

impl Source for Unplugged {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        // There is no image behind the last one, which is as good a reason as any.
        let is_gone = index.is_multiple_of(self.each) && !self.switch.exists();
        let index = if is_gone { self.len() } else { index };
        self.source.fetch(index, limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.source.label(index)
    }

    fn class_names(&self) -> &[String] {
        self.source.class_names()
    }

    fn name(&self, index: usize) -> String {
        self.source.name(index)
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn fingerprint(&self) -> u64 {
        self.source.fingerprint()
    }
}

/// Takes the data away after some steps, and keeps what it is told.
struct Unplugs {
    switch: PathBuf,
    after: u64,
    told: Vec<String>,
}

impl Monitor for Unplugs {
    fn step(&mut self, progress: &Progress) {
        if progress.step == self.after {
            fs::remove_file(&self.switch).unwrap();
        }
    }

    fn say(&mut self, text: &str) {
        self.told.push(text.to_owned());
    }

    fn skipped(&mut self, _: &BadSample) {}
}

#[test]
fn a_run_whose_data_is_gone_is_saved_and_goes_on_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let (switch, run) = (folder.path().join("plugged in"), folder.path().join("run"));
    fs::write(&switch, "").unwrap();
    let source = || Arc::new(Unplugged { source: synthetic(), switch: switch.clone(), each: 1 });
    let mut monitor = Unplugs { switch: switch.clone(), after: 7, told: Vec::new() };
    let mut trainer = open(&run, source(), RARELY);
    let error = trainer.run(&mut monitor, &mut NoEvaluation, &|| false).unwrap_err();
    assert!(matches!(error.cause, TrainFailure::Data(_)), "{error}");
    let step = trainer.step();
    // Batches that were prepared ahead are still trained on.
    assert!(step >= 7, "{step}");
    assert_eq!(error.kept, Kept::All { step });
    assert!(error.to_string().ends_with(&format!("The run was saved after step {step}")), "{error}");
    drop(trainer);

    fs::write(&switch, "").unwrap();
    let mut trainer = open(&run, source(), RARELY);
    assert_eq!(trainer.step(), step, "nothing of what was learnt is lost");
    let weights = finish(&mut trainer);
    assert!(weights == finish(&mut open(&folder.path().join("unbroken"), synthetic(), RARELY)));
}

/// A run that is stopped after five steps and goes on until too many of its images are gone. How it failed, what it says
/// when it goes on with all of them back, and whether it then ends as an unbroken one.
fn lose_some_images(save_every: Duration) -> (Kept, Vec<String>, bool) {
    let folder = tempfile::tempdir().unwrap();
    let (switch, run) = (folder.path().join("plugged in"), folder.path().join("run"));
    fs::write(&switch, "").unwrap();
    // Twice as many as may be unreadable: some are substituted before there are too many.
    let source = || Arc::new(Unplugged { source: synthetic(), switch: switch.clone(), each: 10 });
    let mut trainer = open(&run, source(), RARELY);
    let calls = Cell::new(0);
    let after_five = || calls.replace(calls.get() + 1) == 5;
    let stopped = trainer.run(&mut Silent, &mut NoEvaluation, &after_five).unwrap();
    assert_eq!(stopped, Outcome::Stopped { step: 5 });
    drop(trainer);

    let mut monitor = Unplugs { switch: switch.clone(), after: 7, told: Vec::new() };
    let mut trainer = open(&run, source(), save_every);
    let error = trainer.run(&mut monitor, &mut NoEvaluation, &|| false).unwrap_err();
    assert!(matches!(error.cause, TrainFailure::Data(_)), "{error}");
    assert!(trainer.substitutes().images > 0, "the images went too quickly for this test");
    drop(trainer);

    fs::write(&switch, "").unwrap();
    let mut trainer = open_told(FineTuning::new(source()), &run, RARELY, &mut monitor);
    let weights = finish(&mut trainer);
    let is_same = weights == finish(&mut open(&folder.path().join("unbroken"), synthetic(), RARELY));
    (error.kept, monitor.told, is_same)
}

#[test]
fn steps_on_substitutes_are_not_saved_when_unreadable_images_end_the_run() {
    let (kept, told, is_same) = lose_some_images(RARELY);
    assert!(matches!(kept, Kept::BeforeSubstitutes { saved: Some(5), .. }), "{kept:?}");
    assert!(kept.to_string().contains("the same command goes on after step 5"), "{kept}");
    assert!(is_same, "with its images back, the run is what it would have been");
    assert!(!told.iter().any(|text| text.contains("stood in")), "{told:?}");
}

#[test]
fn a_run_that_has_saved_steps_on_substitutes_says_so_when_it_goes_on() {
    let (_, told, is_same) = lose_some_images(Duration::ZERO);
    assert!(!is_same, "nothing to tell");
    assert!(told.iter().any(|text| text.contains("another image stood in for one that could not be read")), "{told:?}");
}

#[test]
fn weights_that_are_not_finite_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let training = FineTuning { lr: Curve::Constant(1e300), ..FineTuning::new(synthetic()) };
    let mut trainer = open_with(training, folder.path(), Duration::ZERO);
    let error = trainer.run(&mut Silent, &mut NoEvaluation, &|| false).unwrap_err();
    assert!(matches!(error.cause, TrainFailure::State { step: 1, .. }), "{error}");
    assert_eq!(error.kept, Kept::Nothing);
    let run = RunReader::open(folder.path()).unwrap();
    assert!(run.checkpoints().unwrap().is_empty(), "nothing that cannot be used was written");
}
