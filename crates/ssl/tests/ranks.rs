//! Several processes, each with its share of every batch, train as one process does with all of it.

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::desk;
use common::parts::{BATCH, assert_same, learner, learner_of, methods, take_step, train, weights};
use ssl::learner::Learner;
use tensor::{ParamSet, Precision};
use train::StepError;
use train::reduce::{Alone, PeerError, Peers, Recipient, Reduce, Share, Sums, Until, Wire, threads};

/// Weight of KoLeo on the prototypes.
const KOLEO: f64 = 0.1;

/// What `work` gives in each process, for which it gets its share of the images.
fn in_each<R: Send>(
    ranks: usize,
    images: usize,
    make: impl Fn(usize) -> Learner,
    work: impl Fn(Learner, Range<usize>) -> R + Sync,
) -> Vec<R> {
    in_each_of(threads::group(ranks), images, make, work)
}

/// The same where they reach each other in this way.
fn in_each_of<R: Send, G: Reduce + 'static>(
    groups: Vec<G>,
    images: usize,
    make: impl Fn(usize) -> Learner,
    work: impl Fn(Learner, Range<usize>) -> R + Sync,
) -> Vec<R> {
    let ranks = groups.len();
    std::thread::scope(|scope| {
        let work = &work;
        let start = |(rank, group)| {
            let learner = make(rank).with_reduce(Box::new(group));
            scope.spawn(move || work(learner, rank * images / ranks..(rank + 1) * images / ranks))
        };
        let threads: Vec<_> = groups.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn some_processes_train_as_one_with_batch_norm_and_without() {
    for batch_norm in [false, true] {
        for method in methods(batch_norm, KOLEO) {
            let whole = train(learner(&*method, 1, Precision::F64), 0..BATCH, 4, |_| 1e-2);
            // The gradient of a bias before a batch norm is rounding and nothing else, which AdamW makes visible.
            let most = if batch_norm { 1e-6 } else { 1e-8 };
            // With one image each, some have no masked patch while the others have.
            for ranks in [2, 3, BATCH] {
                let make = |_| learner(&*method, 1, Precision::F64);
                let courses = in_each(ranks, BATCH, make, |learner, images| train(learner, images, 4, |_| 1e-2));
                for course in &courses {
                    assert_eq!(course.weights, courses[0].weights, "all hold the same weights, bit for bit");
                    assert_same(&format!("{method:?} in {ranks} processes"), course, &whole, most);
                }
            }
        }
    }
}

#[test]
fn a_process_may_take_its_share_in_parts() {
    for method in methods(false, KOLEO) {
        let whole = train(learner(&*method, 1, Precision::F64), 0..BATCH, 4, |_| 1e-2);
        let make = |rank| learner(&*method, 1 + rank, Precision::F64);
        for course in in_each(2, BATCH, make, |learner, images| train(learner, images, 4, |_| 1e-2)) {
            assert_same(&format!("{method:?}"), &course, &whole, 1e-8);
        }
    }
}

#[test]
fn fifty_steps_in_single_precision_follow_those_of_one_process() {
    const IMAGES: usize = 24;
    // As every recipe begins: with a rate that rises from zero. Without KoLeo, whose choice of a neighbour is not continuous:
    // rounding may decide it.
    let rate = |step: u64| 1e-4 * step as f64 / 50.0;
    for batch_norm in [false, true] {
        // DINO-vMF, iBOT-vMF and MSN.
        let all = methods(batch_norm, 0.0);
        for method in [&all[2], &all[4], &all[5]] {
            let make = |_| learner(&**method, 1, Precision::F32);
            let whole = train(make(0), 0..IMAGES, 50, rate);
            for ranks in [2, 4] {
                let train = || in_each(ranks, IMAGES, make, |learner, images| train(learner, images, 50, rate));
                let courses = train();
                assert_eq!(courses, train(), "the same bits twice");
                let off = |(a, b): (&f64, &f64)| ((a - b) / b).abs();
                let worst = courses[0].losses.iter().zip(&whole.losses).map(off).fold(0.0, f64::max);
                println!("{ranks} processes, batch norm {batch_norm}: {worst:.1e} of {:.12}", format!("{method:?}"));
                assert!(worst < 1e-6, "{worst:e} in {ranks} processes: {method:?}");
            }
        }
    }
}

#[test]
fn processes_at_a_desk_train_as_threads_do_to_the_bit() {
    const IMAGES: usize = 24;
    let rate = |step: u64| 1e-4 * step as f64 / 50.0;
    for batch_norm in [false, true] {
        let all = methods(batch_norm, KOLEO);
        // DINO-vMF, iBOT-vMF and MSN.
        for method in [&all[2], &all[4], &all[5]] {
            for ranks in [2, 4] {
                let make = |rank| {
                    let share = Share { number: rank, of: ranks };
                    learner_of(&**method, Precision::F32, |options| options.share = share)
                };
                let work = |learner, images| train(learner, images, 50, rate);
                let (at_desk, threads) = (desk::group(ranks), threads::group(ranks));
                let courses = in_each_of(at_desk, IMAGES, make, work);
                assert_eq!(courses, in_each_of(threads, IMAGES, make, work), "{method:?} in {ranks} processes");
            }
        }
    }
}

#[test]
fn a_value_that_is_not_finite_in_one_process_ends_the_step_of_all() {
    end_of_a_step_that_is_not_finite(threads::group);
}

#[test]
fn a_value_that_is_not_finite_ends_the_step_of_all_at_a_desk() {
    end_of_a_step_that_is_not_finite(desk::group);
}

fn end_of_a_step_that_is_not_finite<G: Reduce + 'static>(group: impl Fn(usize) -> Vec<G>) {
    for batch_norm in [false, true] {
        for method in methods(batch_norm, KOLEO) {
            let outcomes = in_each_of(
                group(3),
                BATCH,
                |_| learner(&*method, 1, Precision::F64),
                |mut learner, images| {
                    let first = take_step(&mut learner, images.clone(), 0, 1e-2, None);
                    let before = weights(&learner);
                    let broken = take_step(&mut learner, images.clone(), 1, 1e-2, Some(BATCH - 1));
                    assert_eq!(weights(&learner), before, "nothing has changed");
                    let again = take_step(&mut learner, images, 1, 1e-2, None);
                    (first.is_ok(), broken, again.unwrap())
                },
            );
            assert!(outcomes.iter().all(|(first, ..)| *first));
            let is_not_finite = |outcome: &Result<f64, StepError>| matches!(outcome, Err(StepError::NotFinite(_)));
            assert!(outcomes.iter().any(|(_, broken, _)| is_not_finite(broken)), "{method:?}");
            for (_, broken, again) in &outcomes {
                let elsewhere = matches!(broken, Err(StepError::Peers(PeerError::Elsewhere)));
                assert!(elsewhere || is_not_finite(broken), "{broken:?}");
                assert_eq!(*again, outcomes[0].2, "they go on together");
            }
        }
    }
}

#[test]
fn each_process_may_keep_the_optimizers_state_of_its_share_alone() {
    for method in methods(true, KOLEO) {
        for ranks in [2, 3] {
            let shard = |rank| {
                let share = Share { number: rank, of: ranks };
                learner_of(&*method, Precision::F32, |options| options.share = share)
            };
            let whole = |_| learner(&*method, 1, Precision::F32);
            let all = whole(0).optimizer().state_elements();
            let tensors = whole(0).layout().specs().len();
            for rank in 0..ranks {
                let kept = shard(rank).optimizer().state_elements();
                assert!(kept.abs_diff(all / ranks) <= 2 * tensors, "{kept} of {all} numbers in {ranks} processes");
            }
            let train = |make: &dyn Fn(usize) -> Learner| {
                in_each(ranks, BATCH, make, |learner, images| train(learner, images, 5, |_| 1e-2))
            };
            assert_eq!(train(&shard), train(&whole), "{method:?} in {ranks} processes, bit for bit");
        }
    }
}

/// A process alone that counts how often gradients are added up.
struct Counting(Arc<AtomicUsize>);

impl Peers for Counting {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        Alone.gather(here)
    }
}

impl Sums for Counting {
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Alone.sum(tensors, wire)
    }

    fn put_together(&mut self, shares: &ParamSet, to: Recipient<'_>) -> Result<(), PeerError> {
        Alone.put_together(shares, to)
    }
}

impl Reduce for Counting {
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError> {
        Alone.any(here, until)
    }

    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError> {
        Alone.told(word, until)
    }
}

#[test]
fn gradients_travel_once_a_step_in_however_many_parts_it_is_taken() {
    for method in methods(false, KOLEO) {
        for parts in [1, 3] {
            let count = Arc::new(AtomicUsize::new(0));
            let learner = learner(&*method, parts, Precision::F32).with_reduce(Box::new(Counting(count.clone())));
            train(learner, 0..BATCH, 4, |_| 1e-3);
            assert_eq!(count.load(Ordering::Relaxed), 4, "{parts} parts: {method:?}");
        }
    }
}

#[test]
fn rounded_gradients_change_the_course_a_little_and_in_all_processes_alike() {
    const IMAGES: usize = 24;
    let rate = |step: u64| 1e-4 * step as f64 / 50.0;
    let all = methods(false, 0.0);
    // DINO-vMF, iBOT-vMF and MSN.
    for method in [&all[2], &all[4], &all[5]] {
        for ranks in [2, 4] {
            let of = |wire| {
                let make = |_| learner_of(&**method, Precision::F32, |options| options.wire = wire);
                in_each(ranks, IMAGES, make, |learner, images| train(learner, images, 50, rate))
            };
            let (exact, rounded) = (of(Wire::Exact), of(Wire::Bf16));
            assert!(rounded.iter().all(|course| *course == rounded[0]), "all hold the same weights, bit for bit");
            assert_ne!(rounded[0].weights, exact[0].weights, "they were rounded");
            let off = |(a, b): (&f64, &f64)| ((a - b) / b).abs();
            let worst = rounded[0].losses.iter().zip(&exact[0].losses).map(off).fold(0.0, f64::max);
            println!("{ranks} processes, gradients in bf16: losses within {worst:.1e}, {:.12}", format!("{method:?}"));
            assert!(worst < 1e-3, "{worst:e} in {ranks} processes: {method:?}");
        }
    }
}
