//! Runs of several processes: one folder, written by one of them, and the same training whatever their number.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Silent, desk};
use data::Source;
use data::source::Split;
use ssl::method;
use ssl::pretraining::{Extras, Pretraining, Start};
use ssl::recipe::{Facts, RawRecipe, Recipe};
use tensor::{CpuOptions, Device, ParamSet};
use train::home::{Home, Witness};
use train::reduce::threads::{self, Member};
use train::reduce::{Awaited, Group, PeerError, Peers, Recipient, Reduce, Sums, Until, Wire};
use train::run::{RunFolder, RunReader};
use train::{NoEvaluation, Outcome, Trainer};

const IMAGES: usize = 60;

/// With a checkpoint after each step.
fn recipe(more: &str) -> Recipe {
    resolved(&format!("local_crops = 2\nbatch_size = 24\ncheckpoint_minutes = 0\nhead_batch_norm = true\n{more}"))
}

fn resolved(more: &str) -> Recipe {
    let text = "arch = \"vit_nano\"\npatch_size = 8\nglobal_size = 32\nlocal_size = 16\nout_dim = 16\n\
                head_hidden = 16\nhead_bottleneck = 16\nepochs = 6\nknn_every = 0\nlog_every = 1\n\
                drop_path = 0.1\n";
    let facts = Facts { images: IMAGES, height: 32, width: 32, labelled: false, fingerprint: 1 };
    RawRecipe::from_toml(&(text.to_owned() + more), "the test").unwrap().resolve(&facts).unwrap()
}

/// What a process has in the end: its step, how the run ended, and the student's weights.
type End = (u64, Outcome, Vec<u8>);

fn run<H: Home>(mut trainer: Trainer<Pretraining, H>, stop_after: u64) -> Option<End> {
    let left = std::cell::Cell::new(stop_after.saturating_sub(trainer.step()));
    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
    let outcome = trainer.run(&mut Silent, &mut NoEvaluation, &stop).ok()?;
    let weights = trainer.trained().learner().student.iter().flat_map(|t| t.to_le_bytes().into_owned()).collect();
    Some((trainer.step(), outcome, weights))
}

/// Trains in so many processes, the last of which asks to stop after some steps.
fn train(folder: &Path, recipe: &Recipe, ranks: usize, stop_after: u64) -> Vec<End> {
    let ends = train_through(folder, recipe, ranks, stop_after, &|group| Box::new(group));
    ends.into_iter().map(Option::unwrap).collect()
}

/// The same, where they reach each other in this way; none in a process that ends with an error.
fn train_through(
    folder: &Path,
    recipe: &Recipe,
    ranks: usize,
    stop_after: u64,
    way: &(dyn Fn(Group<Member>) -> Box<dyn Reduce> + Sync),
) -> Vec<Option<End>> {
    std::thread::scope(|scope| {
        let start = |mut group: Group<Member>| {
            scope.spawn(move || {
                let (rank, device) =
                    (group.rank(), Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap());
                let source: Arc<dyn Source> =
                    data::open(&format!("synthetic:train={IMAGES},size=32"), Split::Train, 0).unwrap();
                let method = method::of(recipe);
                // The others look at the folder when it is there.
                let opened = (rank == 0).then(|| RunFolder::open(folder, recipe).unwrap());
                group.any(false, Until::Limit).unwrap();
                let extras = Extras::default();
                let start = Start { device: &device, recipe, method: &*method, source, extras, reduce: way(group) };
                let stop_after = if rank + 1 == ranks { stop_after } else { u64::MAX };
                match opened {
                    Some(folder) => run(start.open(folder, &mut Silent).ok()?, stop_after),
                    None => {
                        let witness = Witness::new(RunReader::open(folder).unwrap());
                        run(start.join(witness, &mut Silent).ok()?, stop_after)
                    }
                }
            })
        };
        let threads: Vec<_> = threads::group(ranks).into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A run in processes that meet at a desk.
fn train_at_a_desk(folder: &Path, recipe: &Recipe, ranks: usize, stop_after: u64) -> Vec<End> {
    let all: Vec<_> = desk::group(ranks).into_iter().map(|group| Mutex::new(Some(group))).collect();
    let way = |group: Group<Member>| -> Box<dyn Reduce> { Box::new(all[group.rank()].lock().unwrap().take().unwrap()) };
    let ends = train_through(folder, recipe, ranks, stop_after, &way);
    ends.into_iter().map(Option::unwrap).collect()
}

#[test]
fn a_run_at_a_desk_is_that_of_threads_to_the_bit_also_where_it_was_stopped() {
    for more in ["method = \"ibot\"\n", "shard_optimizer = true\n"] {
        let (recipe, folder) = (recipe(more), tempfile::tempdir().unwrap());
        let (at_desk, threads) = (folder.path().join("desk"), folder.path().join("threads"));
        let stopped = train_at_a_desk(&at_desk, &recipe, 3, 5);
        assert!(stopped.iter().all(|end| (end.0, end.1) == (5, Outcome::Stopped { step: 5 })), "{:?}", stopped[0].1);
        let ends = train_at_a_desk(&at_desk, &recipe, 3, u64::MAX);
        assert_eq!(ends, train(&threads, &recipe, 3, u64::MAX));
        assert_eq!(losses(&at_desk), losses(&threads));
        assert!(newest_checkpoint(&at_desk) == newest_checkpoint(&threads), "byte for byte");
    }
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

/// Processes that come together so many times; then one of them has not come, for all others.
struct Leaving {
    group: Group<Member>,
    meetings: usize,
    /// How often this one has come.
    come: usize,
    /// The most that any has.
    most: Arc<AtomicUsize>,
}

impl Leaving {
    fn meet(&mut self) -> Result<&mut Group<Member>, PeerError> {
        if self.come == self.meetings {
            return Err(PeerError::Late(Awaited { ranks: vec![1], seconds: 0 }));
        }
        self.come += 1;
        self.most.fetch_max(self.come, Ordering::Relaxed);
        Ok(&mut self.group)
    }
}

impl Peers for Leaving {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn ranks(&self) -> usize {
        self.group.ranks()
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        self.meet()?.gather(here)
    }
}

impl Sums for Leaving {
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.meet()?.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.meet()?.put_together(shares, to)
    }
}

impl Reduce for Leaving {
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError> {
        self.meet()?.any(here, until)
    }

    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError> {
        self.meet()?.told(word, until)
    }
}

#[test]
fn wherever_a_process_stays_away_the_run_goes_on_to_the_bit() {
    for more in ["method = \"ibot\"\n", "shard_optimizer = true\n"] {
        // Nothing is saved but at the end, whatever that is.
        let small = "local_crops = 0\nbatch_size = 2\ncheckpoint_minutes = 600\nhead_batch_norm = false\n";
        let (recipe, folder) = (resolved(&format!("{small}{more}")), tempfile::tempdir().unwrap());
        let place = |name: &str| folder.path().join(name);
        let train_with = |folder: &Path, stop_after, meetings| {
            let most = Arc::new(AtomicUsize::new(0));
            let way = |group| Box::new(Leaving { group, meetings, come: 0, most: most.clone() }) as Box<dyn Reduce>;
            let ends = train_through(folder, &recipe, 2, stop_after, &way);
            (ends.iter().filter(|end| end.is_some()).count(), most.load(Ordering::Relaxed))
        };
        let (_, first_step) = train_with(&place("first step"), 1, usize::MAX);
        let (_, both_steps) = train_with(&place("unbroken"), 2, usize::MAX);
        let unbroken = (newest_checkpoint(&place("unbroken")), losses(&place("unbroken")));
        // What was saved, after each number of meetings.
        let mut saved = Vec::new();
        for meetings in first_step - 1..both_steps {
            let broken = place(&meetings.to_string());
            assert_eq!(train_with(&broken, 2, meetings).0, 0, "{more}: all end");
            saved.push(RunReader::open(&broken).unwrap().last_saved());
            train(&broken, &recipe, 2, 2);
            let again = (newest_checkpoint(&broken), losses(&broken));
            assert!(again == unbroken, "{more}: after {meetings} meetings, with {:?} saved", saved.last());
        }
        // Between two steps all is there to be saved, unless each process has a part of it.
        assert!(more.contains("shard") || saved.contains(&Some(1)), "{more}: {saved:?}");
    }
}

#[test]
fn a_batch_that_cannot_be_shared_is_refused_with_one_that_can() {
    let refused = |batch, processes| ssl::pretraining::share_of_batch(batch, processes).unwrap_err().to_string();
    assert!(refused(10, 4).contains("--batch-size 8 can"), "{}", refused(10, 4));
    assert!(refused(2, 3).contains("--batch-size 3 can"));
    assert_eq!(ssl::pretraining::share_of_batch(12, 4).unwrap(), 3);
}
