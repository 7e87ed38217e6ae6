//! Fine-tuning as a run: it learns, it is stopped and killed and goes on to the bits of an unbroken one, on any number of
//! threads, and other settings are refused.

use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use data::{BadSample, Source, Split};
use eval::finetune::{Best, Facts, FineTuneConfig, FineTuneRecipe, FineTuning, Judge, Kind, Parts, best, open};
use eval::{InputSpec, Normalization, ReadOptions, ReadProgress};
use model::{Arch, Layout, Vit, VitConfig};
use tensor::{CpuOptions, Device};
use train::run::{RunError, RunFolder, RunReader};
use train::{Monitor, Outcome, Progress, Trainer};

const SIDE: usize = 16;

struct Silent;

impl Monitor for Silent {
    fn step(&mut self, _: &Progress) {}
    fn say(&mut self, _: &str) {}
    fn skipped(&mut self, _: &BadSample) {}
}

/// A fine-tuning of a small network whose weights are drawn.
struct Run {
    device: Device,
    layout: Layout,
    vit: Vit,
    recipe: FineTuneRecipe,
    train: Arc<dyn Source>,
    test: Arc<dyn Source>,
}

impl Run {
    fn new(kind: Kind, threads: usize, given: &[(&str, &str)]) -> Self {
        let source = |split| data::open("synthetic:train=96,test=40,size=16", split, 0).unwrap();
        let (train, test) = (source(Split::Train), source(Split::Test));
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 4, (SIDE, SIDE), 3).unwrap());
        let usual = [("epochs", "3"), ("batch_size", "24"), ("images_at_once", "16"), ("mixed_together", "8")];
        let given = usual.iter().chain(given).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let facts = Facts { images: train.len(), width: 64 };
        let recipe = FineTuneRecipe::resolve(kind, &facts, &given.collect::<Vec<_>>()).unwrap();
        let device = Device::cpu(CpuOptions { threads: Some(threads), ..CpuOptions::default() }).unwrap();
        Self { device, layout, vit, recipe, train, test }
    }

    fn input() -> InputSpec {
        InputSpec { whole: true, ..InputSpec::center((SIDE, SIDE)) }
    }

    fn folder(&self, path: &Path) -> Result<RunFolder, RunError> {
        let config = FineTuneConfig {
            recipe: self.recipe.clone(),
            weights: "drawn".to_owned(),
            input: "16x16 whole".to_owned(),
            data: (self.train.fingerprint(), self.test.fingerprint()),
            classes: 10,
            steps_per_epoch: (self.train.len() / self.recipe.batch_size) as u64,
        };
        RunFolder::open(path, &config)
    }

    fn open(&self, path: &Path) -> Trainer<FineTuning> {
        let weights = self.layout.initial(&self.device, 7);
        let parts = Parts {
            device: &self.device,
            config: self.vit.config(),
            backbone: (&self.layout, &weights),
            normalization: &Normalization::usual(3),
            input: Self::input(),
            recipe: &self.recipe,
            train: self.train.clone(),
            workers: 2,
        };
        open(parts, self.folder(path).unwrap(), &mut Silent).unwrap()
    }

    /// Trains until the end or the `steps`-th question whether to stop; the weights.
    fn train(&self, path: &Path, steps: u64) -> (Outcome, Vec<u8>) {
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= steps;
        let judged = Cell::new(0);
        let progress = |p: ReadProgress| judged.set(p.done);
        let read = ReadOptions::default();
        let mut judge = Judge::new(self.test.clone(), self.recipe.kind, Self::input(), read, &progress).unwrap();
        let mut trainer = self.open(path);
        let outcome = trainer.run(&mut Silent, &mut judge, &stop).unwrap();
        assert!(outcome != Outcome::Finished || judged.get() == self.test.len(), "all are judged, and it is told");
        let weights = trainer.trained().tuner().weights().iter().flat_map(|t| t.to_le_bytes().into_owned()).collect();
        (outcome, weights)
    }
}

/// The lines of a run's log without what depends on the clock.
fn log(path: &Path) -> Vec<serde_json::Value> {
    let mut records = RunReader::open(path).unwrap().metrics().unwrap();
    for record in &mut records {
        let record = record.as_object_mut().unwrap();
        ["images_per_second", "data_wait", "time"].iter().for_each(|key| drop(record.remove(*key)));
    }
    records
}

#[test]
fn a_run_that_is_stopped_ends_with_the_bits_and_the_log_of_an_unbroken_one() {
    for kind in [Kind::Beit, Kind::Deit] {
        let folder = tempfile::tempdir().unwrap();
        let (broken, whole) = (folder.path().join("broken"), folder.path().join("whole"));
        // Steps 0 to 11, four an epoch: in the middle of one, and at the end of one.
        for (threads, steps, expected) in [(1, 3, 3), (3, 5, 8)] {
            let (outcome, _) = Run::new(kind, threads, &[]).train(&broken, steps);
            assert_eq!(outcome, Outcome::Stopped { step: expected });
        }
        let (outcome, resumed) = Run::new(kind, 2, &[]).train(&broken, u64::MAX);
        let (_, unbroken) = Run::new(kind, 2, &[]).train(&whole, u64::MAX);
        assert_eq!(outcome, Outcome::Finished);
        assert!(resumed == unbroken, "{kind:?}: other weights");
        assert_eq!(log(&broken), log(&whole), "{kind:?}");
        let Best { top1, last_epoch, .. } = best(&RunReader::open(&whole).unwrap()).unwrap().unwrap();
        assert!(last_epoch == 3 && (0.0..=100.0).contains(&top1));
    }
}

/// The other half of the test below: trains in a process that is killed. Does nothing unless asked to.
#[test]
fn child() {
    if let Some(folder) = std::env::var_os("FINE_TUNED_FOLDER") {
        let run = Run::new(Kind::Deit, 1, &[("epochs", "4000")]);
        run.train(Path::new(&folder), u64::MAX);
    }
}

#[test]
fn a_run_that_is_killed_goes_on_from_its_last_checkpoint_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, whole) = (folder.path().join("broken"), folder.path().join("whole"));
    // The first checkpoint comes with a stop; what is trained after it is lost with the process.
    let run = |threads| Run::new(Kind::Deit, threads, &[("epochs", "4000")]);
    assert_eq!(run(2).train(&broken, 6).0, Outcome::Stopped { step: 6 });
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("FINE_TUNED_FOLDER", &broken)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let last = || RunReader::open(&broken).ok().and_then(|run| run.last_step());
    while last().is_none_or(|step| step < 9) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run(1).open(&broken).step(), 6);
    let (stopped, resumed) = run(3).train(&broken, 10);
    let (_, unbroken) = run(1).train(&whole, 16);
    assert_eq!(stopped, Outcome::Stopped { step: 16 });
    assert!(resumed == unbroken);
}

#[test]
fn a_classifier_learns_and_its_best_epoch_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let plain = [
        ("epochs", "60"),
        ("lr", "0.003"),
        ("smoothing", "0"),
        ("mixup", "0"),
        ("cutmix", "0"),
        ("erase", "0"),
        ("magnitude", "0"),
    ];
    let gentle = [("least_crop", "0.8"), ("drop_path", "0"), ("layer_decay", "1"), ("head_scale", "1")];
    let given: Vec<_> = plain.into_iter().chain(gentle).collect();
    Run::new(Kind::Beit, 2, &given).train(folder.path(), u64::MAX);
    let losses: Vec<f64> = log(folder.path()).iter().filter_map(|record| record["loss"].as_f64()).collect();
    let (first, last) = (losses[0], losses[losses.len() - 4..].iter().sum::<f64>() / 4.0);
    assert!((first - 10f64.ln()).abs() < 0.5 && last < 0.75 * first, "the loss went from {first:.3} to {last:.3}");
    let tops: Vec<f64> = log(folder.path()).iter().filter_map(|record| record["top1"].as_f64()).collect();
    let Best { top1, epoch, last_top1, .. } = best(&RunReader::open(folder.path()).unwrap()).unwrap().unwrap();
    assert_eq!((tops.len(), top1), (60, tops.iter().copied().fold(0.0, f64::max)));
    assert_eq!(
        (tops.iter().position(|&t| t == top1).map(|i| i as u64 + 1), tops.last()),
        (Some(epoch), Some(&last_top1))
    );
    assert!(top1 > 20.0, "ten classes: {top1}");
}

#[test]
fn other_settings_do_not_go_on_with_a_run() {
    let folder = tempfile::tempdir().unwrap();
    Run::new(Kind::Beit, 1, &[]).train(folder.path(), 2);
    let other = Run::new(Kind::Beit, 1, &[("lr", "0.01")]).folder(folder.path()).unwrap_err();
    assert!(matches!(&other, RunError::OtherRun { differences, .. } if differences.len() == 1), "{other}");
}
