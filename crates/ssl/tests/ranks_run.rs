//! Runs of several processes: one folder, written by one of them, and the same training whatever their number.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::Silent;
use data::source::Split;
use data::{DecodeLimits, ReadError, Source, Stored};
use ssl::method;
use ssl::pretraining::{Extras, Pretraining, Start};
use ssl::recipe::{Facts, RawRecipe, Recipe};
use tensor::{CpuOptions, Device};
use train::home::{Home, Witness};
use train::reduce::{Peers, Reduce, Until, threads};
use train::run::{RunFolder, RunReader};
use train::{NoEvaluation, Outcome, Trainer};

const IMAGES: usize = 60;

fn recipe(more: &str) -> Recipe {
    let text = "arch = \"vit_nano\"\npatch_size = 8\nglobal_size = 32\nlocal_size = 16\nlocal_crops = 2\nout_dim = 16\n\
                head_hidden = 16\nhead_bottleneck = 16\nepochs = 6\nbatch_size = 24\nknn_every = 0\nlog_every = 1\n\
                checkpoint_minutes = 0\ndrop_path = 0.1\nhead_batch_norm = true\n";
    let facts = Facts { images: IMAGES, height: 32, width: 32, labelled: false, fingerprint: 1 };
    RawRecipe::from_toml(&(text.to_owned() + more), "the test").unwrap().resolve(&facts).unwrap()
}

/// What a process has in the end: its step, how the run ended, and the student's weights.
type End = (u64, Outcome, Vec<u8>);

fn run<H: Home>(mut trainer: Trainer<Pretraining, H>, stop_after: u64) -> End {
    let left = std::cell::Cell::new(stop_after.saturating_sub(trainer.step()));
    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
    let outcome = trainer.run(&mut Silent, &mut NoEvaluation, &stop).unwrap();
    let weights = trainer.trained().learner().student.iter().flat_map(|t| t.to_le_bytes().into_owned()).collect();
    (trainer.step(), outcome, weights)
}

/// Trains in so many processes, the last of which asks to stop after some steps.
fn train(folder: &Path, recipe: &Recipe, ranks: usize, stop_after: u64) -> Vec<End> {
    train_on(folder, recipe, ranks, stop_after, &|_, source| source)
}

/// The same, where each process may see its images in its own way.
fn train_on(
    folder: &Path,
    recipe: &Recipe,
    ranks: usize,
    stop_after: u64,
    seen_by: &(dyn Fn(usize, Arc<dyn Source>) -> Arc<dyn Source> + Sync),
) -> Vec<End> {
    std::thread::scope(|scope| {
        let start = |mut group: train::reduce::Group<threads::Member>| {
            scope.spawn(move || {
                let (rank, device) =
                    (group.rank(), Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap());
                let source: Arc<dyn Source> =
                    data::open(&format!("synthetic:train={IMAGES},size=32"), Split::Train, 0).unwrap();
                let source = seen_by(rank, source);
                let method = method::of(recipe);
                // The others look at the folder when it is there.
                let opened = (rank == 0).then(|| RunFolder::open(folder, recipe).unwrap());
                group.any(false, Until::Limit).unwrap();
                let extras = Extras::default();
                let start =
                    Start { device: &device, recipe, method: &*method, source, extras, reduce: Box::new(group) };
                let stop_after = if rank + 1 == ranks { stop_after } else { u64::MAX };
                match opened {
                    Some(folder) => run(start.open(folder, &mut Silent).unwrap(), stop_after),
                    None => {
                        let witness = Witness::new(RunReader::open(folder).unwrap());
                        run(start.join(witness, &mut Silent).unwrap(), stop_after)
                    }
                }
            })
        };
        let threads: Vec<_> = threads::group(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The losses in a run's log, by step.
fn losses(folder: &Path) -> BTreeMap<u64, f64> {
    let records = RunReader::open(folder).unwrap().metrics().unwrap();
    records.iter().map(|r| (r["step"].as_u64().unwrap(), r["loss"].as_f64().unwrap())).collect()
}

#[test]
fn the_log_of_several_processes_is_that_of_one() {
    for method in ["method = \"dino\"", "method = \"ibot\"", "method = \"msn\""] {
        let (recipe, folder) = (recipe(method), tempfile::tempdir().unwrap());
        let place = |ranks: usize| folder.path().join(ranks.to_string());
        let ends: Vec<Vec<End>> = [1, 2, 3].map(|ranks| train(&place(ranks), &recipe, ranks, u64::MAX)).into();
        assert!(ends.iter().flatten().all(|(_, outcome, _)| *outcome == Outcome::Finished));
        for end in &ends {
            assert!(end.iter().all(|(.., weights)| *weights == end[0].2), "all processes hold the same weights");
        }
        let whole = losses(&place(1));
        assert_eq!(whole.len() as u64, recipe.total_steps());
        for ranks in [2, 3] {
            let shared = losses(&place(ranks));
            assert_eq!(shared.len(), whole.len(), "every step is logged once");
            let off = |(step, loss): (&u64, &f64)| ((shared[step] - loss) / loss).abs();
            let worst = whole.iter().map(off).fold(0.0, f64::max);
            assert!(worst < 1e-6, "{method}: {worst:e} in {ranks} processes");
            let files = |ranks| fs::read_dir(place(ranks).join("checkpoints")).unwrap().count();
            assert_eq!(files(ranks), files(1), "one process writes");
        }
    }
}

#[test]
fn what_one_process_stops_all_of_them_go_on_with_to_the_bit() {
    let (recipe, folder) = (recipe(""), tempfile::tempdir().unwrap());
    let (broken, unbroken) = (folder.path().join("broken"), folder.path().join("unbroken"));
    let stopped = train(&broken, &recipe, 3, 5);
    assert!(stopped.iter().all(|end| (end.0, end.1) == (5, Outcome::Stopped { step: 5 })), "{:?}", stopped[0].1);
    let again = train(&broken, &recipe, 3, u64::MAX);
    assert_eq!(again, train(&unbroken, &recipe, 3, u64::MAX));
    assert_eq!(losses(&broken), losses(&unbroken));
}

#[test]
fn another_number_of_processes_goes_on_with_a_run() {
    let (recipe, folder) = (recipe(""), tempfile::tempdir().unwrap());
    let (changed, whole) = (folder.path().join("changed"), folder.path().join("whole"));
    train(&changed, &recipe, 2, 5);
    train(&changed, &recipe, 3, 9);
    train(&changed, &recipe, 1, u64::MAX);
    train(&whole, &recipe, 1, u64::MAX);
    let (changed, whole) = (losses(&changed), losses(&whole));
    assert_eq!(changed.len(), whole.len());
    for (step, loss) in whole {
        assert!(((changed[&step] - loss) / loss).abs() < 1e-6, "step {step}: {} is not {loss}", changed[&step]);
    }
}

/// The name, shape and bytes of a tensor.
type SavedTensor = (String, Vec<usize>, Vec<u8>);

/// What a run's newest checkpoint holds: its values, and its tensors.
fn newest_checkpoint(folder: &Path) -> (String, Vec<SavedTensor>) {
    let found = RunReader::open(folder).unwrap().latest_checkpoint().unwrap().checkpoint.unwrap();
    let tensors = found.tensors().map(|t| (t.name.to_owned(), t.shape.to_vec(), t.bytes.to_vec()));
    (found.state().to_owned(), tensors.collect())
}

#[test]
fn shared_optimizer_state_is_saved_whole_and_restored_in_any_number_of_processes() {
    let (plain, shard) = (recipe(""), recipe("shard_optimizer = true\n"));
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    train(&place("plain"), &plain, 3, u64::MAX);
    train(&place("shard"), &shard, 3, u64::MAX);
    assert!(newest_checkpoint(&place("shard")) == newest_checkpoint(&place("plain")), "byte for byte");
    // Stopped and gone on with the state in parts and whole by turns: the same run.
    for (of, stop_after) in [(&shard, 4), (&plain, 7), (&shard, u64::MAX)] {
        train(&place("turns"), of, 3, stop_after);
    }
    assert!(newest_checkpoint(&place("turns")) == newest_checkpoint(&place("plain")), "byte for byte");
    // And in another number of processes: the same up to the order of sums.
    for (ranks, stop_after) in [(2, 4), (3, 8), (1, u64::MAX)] {
        train(&place("numbers"), &shard, ranks, stop_after);
    }
    let (changed, whole) = (losses(&place("numbers")), losses(&place("plain")));
    assert_eq!(changed.len(), whole.len());
    for (step, loss) in whole {
        assert!(((changed[&step] - loss) / loss).abs() < 1e-6, "step {step}: {} is not {loss}", changed[&step]);
    }
}

/// Images that take long to read.
struct Slow(Arc<dyn Source>);

impl Source for Slow {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        std::thread::sleep(Duration::from_millis(60));
        self.0.fetch(index, limits, bytes)
    }

    fn label(&self, index: usize) -> Option<u32> {
        self.0.label(index)
    }

    fn class_names(&self) -> &[String] {
        self.0.class_names()
    }

    fn name(&self, index: usize) -> String {
        self.0.name(index)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

#[test]
fn a_process_whose_images_come_slowly_is_named_in_the_log() {
    let (recipe, folder) = (recipe("workers = 1\n"), tempfile::tempdir().unwrap());
    train_on(folder.path(), &recipe, 3, u64::MAX, &|rank, source| {
        if rank == 2 { Arc::new(Slow(source)) } else { source }
    });
    let records = RunReader::open(folder.path()).unwrap().metrics().unwrap();
    let named: Vec<_> = records.iter().filter(|record| record["slowest_process"].as_u64() == Some(2)).collect();
    assert!(!named.is_empty(), "nobody is named: {records:?}");
    let share = |key: &str| named[0][key].as_f64().unwrap();
    assert!(share("slowest_data_wait") > share("slowest_compute") && share("wait_for_slowest") > 0.1, "{:?}", named[0]);
}

#[test]
fn a_batch_that_cannot_be_shared_is_refused_with_one_that_can() {
    let refused = |batch, processes| ssl::pretraining::share_of_batch(batch, processes).unwrap_err().to_string();
    assert!(refused(10, 4).contains("--batch-size 8 can"), "{}", refused(10, 4));
    assert!(refused(2, 3).contains("--batch-size 3 can"));
    assert_eq!(ssl::pretraining::share_of_batch(12, 4).unwrap(), 3);
}
