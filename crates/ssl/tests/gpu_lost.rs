//! A GPU that is lost in the middle of a run. A program of its own: the driver gives this process no GPU afterwards.

mod gpu_device;

use std::path::Path;
use std::sync::Arc;

use data::source::{SyntheticSettings, SyntheticSource};
use data::{BadSample, Source, Split};
use gpu_device::gpu;
use ssl::method;
use ssl::pretraining::{self, Extras, Pretraining};
use ssl::recipe::{Facts, RawRecipe, Recipe};
use tensor::{CpuOptions, CudaPrecision, Device, Precision};
use train::run::RunFolder;
use train::{Monitor, NoEvaluation, Outcome, Progress, Trainer};

const LOST_AFTER: u64 = 12;

/// Loses the GPU after some steps, and keeps what was said.
#[derive(Default)]
struct Watcher {
    loses: Option<Device>,
    last_step: u64,
    said: Vec<String>,
}

impl Monitor for Watcher {
    fn step(&mut self, progress: &Progress) {
        self.last_step = progress.step;
        if let Some(device) = self.loses.as_ref().filter(|_| progress.step == LOST_AFTER) {
            device.lose();
        }
    }

    fn say(&mut self, text: &str) {
        self.said.push(text.to_owned());
    }

    fn skipped(&mut self, _: &BadSample) {}
}

fn recipe(images: usize) -> Recipe {
    let mut raw = RawRecipe::default();
    for (key, value) in [
        ("arch", "\"vit_nano\""),
        ("patch_size", "8"),
        ("global_size", "32"),
        ("local_size", "16"),
        ("local_crops", "2"),
        ("out_dim", "64"),
        ("head_hidden", "64"),
        ("head_bottleneck", "32"),
        ("epochs", "5"),
        ("batch_size", "20"),
        ("knn_every", "0"),
        // A checkpoint after every step.
        ("checkpoint_minutes", "0"),
    ] {
        let table: toml::Table = format!("{key} = {value}").parse().unwrap();
        raw.set(key, &table[key], "the test").unwrap();
    }
    raw.resolve(&Facts { images, height: 32, width: 32, labelled: false, fingerprint: 1 }).unwrap()
}

fn open(device: &Device, folder: &Path, watcher: &mut Watcher) -> Trainer<Pretraining> {
    let settings = SyntheticSettings { train: 100, test: 1, size: 32, seed: 0 };
    let source: Arc<dyn Source> = Arc::new(SyntheticSource::new(settings, Split::Train));
    let recipe = recipe(100);
    let folder = RunFolder::open(folder, &recipe).unwrap();
    let method = method::of(&recipe);
    pretraining::open(device, &recipe, &*method, folder, source, Extras::default(), watcher).unwrap()
}

#[test]
fn a_run_that_loses_its_gpu_stops_with_a_checkpoint_from_which_it_goes_on() {
    let Some(device) = gpu(CudaPrecision::Bf16) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut watcher = Watcher { loses: Some(device.clone()), ..Watcher::default() };
    let mut trainer = open(&device, folder.path(), &mut watcher);
    let error = trainer.run(&mut watcher, &mut NoEvaluation, &|| false).unwrap_err().to_string();
    drop(trainer);
    println!("{error}");
    assert!(error.contains("GPU"), "{error}");
    assert!(error.contains(&format!("The checkpoint of step {} is intact", LOST_AFTER - 1)), "{error}");
    assert_eq!(watcher.last_step, LOST_AFTER, "no step counts that was not computed");

    // This process has no GPU any more, so it goes on without one.
    let cpu = Device::cpu(CpuOptions { threads: None, precision: Precision::F32 }).unwrap();
    let mut watcher = Watcher::default();
    let mut trainer = open(&cpu, folder.path(), &mut watcher);
    // The step after which the GPU was lost could not be saved any more.
    assert_eq!(trainer.step(), LOST_AFTER - 1);
    assert_eq!(trainer.run(&mut watcher, &mut NoEvaluation, &|| false).unwrap(), Outcome::Finished);
    assert_eq!(watcher.last_step, 25);
}
