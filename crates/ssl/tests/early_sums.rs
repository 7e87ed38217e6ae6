//! Gradients that leave for the other processes while the backward pass still computes give the same bits as gradients that
//! are summed at the end of a step.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::parts::{BATCH, Course, learner_of, methods, take_step, take_step_of, usual, weights};
use model::Extras;
use ssl::layer_decay::BackboneLearning;
use ssl::learner::{Learner, LearnerOptions};
use ssl::method::MethodSpec;
use tensor::{ParamSet, Precision};
use train::StepError;
use train::optimizer::StepValues;
use train::reduce::{Group, PeerError, Peers, Recipient, Reduce, Sums, Until, Wire, threads};

const RANKS: usize = 2;
const KOLEO: f64 = 0.1;

/// A process that notes which sums begin early, and lets them, or leaves all to the end.
struct Way {
    group: Group<threads::Member>,
    early: bool,
    begun: &'static AtomicUsize,
}

impl Peers for Way {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn ranks(&self) -> usize {
        self.group.ranks()
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        self.group.gather(here)
    }
}

impl Sums for Way {
    fn least_to_begin(&self) -> Option<usize> {
        self.early.then(|| self.group.least_to_begin()).flatten()
    }

    fn begin_sum(&mut self, tensors: &mut ParamSet, which: Range<usize>, wire: Wire) -> Result<(), PeerError> {
        self.begun.fetch_add(which.len(), Ordering::Relaxed);
        self.group.begin_sum(tensors, which, wire)
    }

    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.group.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        self.group.put_together(shares, to)
    }
}

impl Reduce for Way {
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError> {
        self.group.any(here, until)
    }

    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError> {
        self.group.told(word, until)
    }
}

/// What each of some processes does with a learner and its share of the images; how many tensors have left early in all.
fn in_each<R: Send>(
    make: &dyn Fn() -> Learner,
    early: bool,
    work: impl Fn(Learner, Range<usize>) -> R + Sync,
) -> (Vec<R>, usize) {
    let begun: &'static AtomicUsize = Box::leak(Box::default());
    let all = std::thread::scope(|scope| {
        let work = &work;
        let start = |(rank, group)| {
            let learner = make().with_reduce(Box::new(Way { group, early, begun }));
            scope.spawn(move || work(learner, rank * BATCH / RANKS..(rank + 1) * BATCH / RANKS))
        };
        let threads: Vec<_> = threads::group(RANKS).into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (all, begun.load(Ordering::Relaxed))
}

/// Trains in both ways; the numbers of tensors that leave early in a step of a process.
#[track_caller]
fn compare(
    what: &str,
    method: &dyn MethodSpec,
    values: &(dyn Fn(u64) -> StepValues + Sync),
    change: &dyn Fn(&mut LearnerOptions),
) -> usize {
    const STEPS: u64 = 3;
    let make = || learner_of(method, Precision::F32, change);
    let train = |mut learner: Learner, images: Range<usize>| {
        let step = |step| take_step_of(&mut learner, images.clone(), step, values(step), None).unwrap();
        let losses = (0..STEPS).map(step).collect();
        Course { losses, weights: weights(&learner) }
    };
    let (early, begun) = in_each(&make, true, train);
    let (late, none) = in_each(&make, false, train);
    assert_eq!(none, 0, "nothing leaves early");
    assert_eq!(early, late, "{what}: {method:?}");
    begun / (STEPS as usize * RANKS)
}

/// Tensors of the last norm and of three blocks.
const OF_BLOCKS: usize = 2 + 3 * 12;

#[test]
fn every_method_has_the_same_bits_with_batch_norm_and_without() {
    for batch_norm in [false, true] {
        for method in methods(batch_norm, KOLEO) {
            let left = compare("usual", &*method, &|_| usual(1e-2), &|_| ());
            let all = learner_of(&*method, Precision::F32, |_| ()).layout().specs().len();
            // Tokens, positions and patches come at the very end, and the token that stands for masked patches.
            let at_the_end = 4 + usize::from(format!("{method:?}").starts_with("Ibot"));
            assert_eq!(left, all - at_the_end, "{method:?}");
        }
    }
}

#[test]
fn only_the_last_part_of_a_step_sends_gradients_on() {
    for method in methods(false, KOLEO) {
        let whole = compare("one part", &*method, &|_| usual(1e-2), &|_| ());
        for parts in [2, 3] {
            let left = compare("parts", &*method, &|_| usual(1e-2), &|options| options.accumulate = parts);
            assert_eq!(left, whole, "each tensor leaves once");
        }
    }
}

#[test]
fn networks_of_every_kind_have_the_same_bits() {
    let all = methods(false, 0.0);
    for method in [&all[2], &all[4], &all[5]] {
        let registers = |options: &mut LearnerOptions| {
            options.vit.extras = Extras { registers: 2, layer_scale: true, ..Extras::NONE };
        };
        let left = compare("registers and layer scale", &**method, &|_| usual(1e-2), &registers);
        assert!(left > OF_BLOCKS + 3 * 2, "two scales more in each block: {left}");
        compare("rounded", &**method, &|_| usual(1e-2), &|options| options.wire = Wire::Bf16);
        compare("recomputed", &**method, &|_| usual(1e-2), &|options| options.checkpoint_activations = true);
        let decay = |options: &mut LearnerOptions| options.backbone.layer_decay = 0.7;
        compare("layer decay", &**method, &|_| usual(1e-2), &decay);
    }
}

#[test]
fn a_backbone_that_waits_sends_nothing_until_it_learns() {
    let all = methods(false, 0.0);
    for method in [&all[2], &all[4], &all[5]] {
        let waits = |options: &mut LearnerOptions| options.backbone = BackboneLearning { lr: 0.5, layer_decay: 0.9 };
        let still = |_: u64| StepValues { waiting_lr: 0.0, ..usual(1e-2) };
        assert_eq!(compare("held still", &**method, &still, &waits), 0);
        // Held still for a step, and then not.
        let begins = |step: u64| StepValues { waiting_lr: if step == 0 { 0.0 } else { 1.0 }, ..usual(1e-2) };
        assert!(compare("begins to learn", &**method, &begins, &waits) > 0);
    }
}

#[test]
fn a_process_that_fails_before_anything_leaves_ends_the_step_of_all_and_they_go_on() {
    for method in methods(true, KOLEO) {
        let make = || learner_of(&*method, Precision::F64, |_| ());
        let (outcomes, _) = in_each(&make, true, |mut learner, images| {
            let broken = take_step(&mut learner, images.clone(), 0, 1e-2, Some(BATCH - 1));
            let again = take_step(&mut learner, images, 1, 1e-2, None).unwrap();
            (broken, again)
        });
        let failed = |outcome: &Result<f64, StepError>| match outcome {
            Err(StepError::NotFinite(_)) => true,
            Err(StepError::Peers(PeerError::Elsewhere)) => false,
            other => panic!("{other:?}"),
        };
        assert!(outcomes.iter().map(|(broken, _)| failed(broken)).collect::<Vec<_>>().contains(&true), "{method:?}");
        assert!(outcomes.iter().all(|(_, again)| *again == outcomes[0].1), "they go on together");
    }
}
