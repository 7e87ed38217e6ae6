//! What every way of exchanging numbers must do: one list of tests, for each of them.

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use tensor::{CpuOptions, Device, ParamSet, Tensor};

use super::desk::FEW;
use super::{Exchange, Group, PeerError, Peers, Recipient, Reduce, Share, Sums, Until, Waiting, Wire, wire};

/// The tests below for groups that a function starts, given how many and how they wait.
macro_rules! of_every_group {
    ($start:expr) => {
        $crate::reduce::group_tests::of_every_group!(
            $start,
            numbers_decisions_and_sums_are_those_of_all,
            numbers_of_any_length_are_those_of_all,
            who_fails_in_the_middle_of_a_step_ends_it_for_all,
            who_ends_leaves_nobody_waiting,
            who_is_elsewhere_in_the_run_is_noticed,
            who_does_not_come_is_named_and_ends_the_waiting_of_all,
            whatever_one_of_them_does_alone_is_waited_for,
            shares_put_together_are_the_whole_in_all_or_in_the_first,
            gradients_may_travel_rounded_and_all_have_the_same_sum
        );
    };
    ($start:expr, $($test:ident),*) => {
        $(
            #[test]
            fn $test() {
                $crate::reduce::group_tests::$test($start);
            }
        )*
    };
}
pub(super) use of_every_group;

/// What `work` gives in each process of a group.
fn in_each<E: Exchange, R: Send>(groups: Vec<Group<E>>, work: impl Fn(Group<E>) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = groups.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap()
}

pub(super) fn numbers_decisions_and_sums_are_those_of_all<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    for ranks in [2, 3, 8] {
        let seen = in_each(start(ranks, &Waiting::default()), |mut rank| {
            let mut sums = Vec::new();
            for round in 0..200 {
                let here: Vec<f64> = (0..rank.rank()).map(|i| f64::from(round) + i as f64).collect();
                sums.push(rank.gather(&here).unwrap());
                assert_eq!(rank.any(rank.rank() == 1 && round % 2 == 0, Until::Limit).unwrap(), round % 2 == 0);
            }
            assert_eq!(rank.told(rank.rank() as f64 + 7.0, Until::Limit).unwrap(), 7.0);
            let mut set = ParamSet::zeros(&device(), [&[2][..], &[1]]);
            for tensor in set.tensors_mut() {
                tensor.copy_from_f64(&vec![1.0 + rank.rank() as f64; tensor.len()]);
            }
            rank.sum(&mut set, Wire::Exact).unwrap();
            let expected = (ranks * (ranks + 1) / 2) as f64;
            assert!(set.iter().all(|tensor| tensor.to_f64().iter().all(|&x| x == expected)));
            sums
        });
        let expected: Vec<Vec<f64>> = (0..ranks).map(|rank| (0..rank).map(|i| 7.0 + i as f64).collect()).collect();
        assert_eq!(seen[0][7], expected);
        assert!(seen.iter().all(|sums| *sums == seen[0]));
    }
}

pub(super) fn numbers_of_any_length_are_those_of_all<E: Exchange>(start: impl Fn(usize, &Waiting) -> Vec<Group<E>>) {
    in_each(start(3, &Waiting::default()), |mut rank| {
        for lengths in [[FEW; 3], [FEW, FEW + 1, 0], [0, 5 * FEW + 3, 3 * FEW], [1, 2, 3], [9 * FEW, 9 * FEW, 9 * FEW]]
        {
            let of = |rank: usize| -> Vec<f64> { (0..lengths[rank]).map(|i| (i * 3 + rank) as f64 + 0.1).collect() };
            let all = rank.gather(&of(rank.rank())).unwrap();
            assert!(all.iter().enumerate().all(|(rank, numbers)| *numbers == of(rank)), "{lengths:?}");
        }
    });
}

pub(super) fn who_fails_in_the_middle_of_a_step_ends_it_for_all<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    // With few numbers and with many, which may travel in another way.
    for count in [1, FEW + 1] {
        let seen = in_each(start(3, &Waiting::default()), |mut rank| {
            let (mut outcomes, numbers) = (Vec::new(), vec![0.5; count]);
            for step in 0..3 {
                let failed = step == 1 && rank.rank() == 2;
                // Numbers are shared twice in a step, and decided on once at its end.
                let shared = if failed { Err(PeerError::Elsewhere) } else { rank.gather(&numbers) };
                let shared = shared.and_then(|_| rank.gather(&numbers));
                outcomes.push(rank.any(shared.is_err(), Until::Limit).unwrap());
            }
            outcomes
        });
        assert!(seen.iter().all(|outcomes| *outcomes == [false, true, false]), "{seen:?}");
    }
}

pub(super) fn who_ends_leaves_nobody_waiting<E: Exchange>(start: impl Fn(usize, &Waiting) -> Vec<Group<E>>) {
    for leaving in 0..3 {
        let seen = in_each(start(3, &Waiting::default()), |mut rank| {
            rank.any(false, Until::Limit).unwrap();
            if rank.rank() == leaving { Ok(vec![]) } else { rank.gather(&[1.0]) }
        });
        for rank in (0..3).filter(|&rank| rank != leaving) {
            let error = seen[rank].as_ref().unwrap_err().to_string();
            let expected = format!("the processes of this run have lost each other: process {leaving} has ended");
            assert_eq!(error, expected);
        }
    }
}

pub(super) fn who_is_elsewhere_in_the_run_is_noticed<E: Exchange>(start: impl Fn(usize, &Waiting) -> Vec<Group<E>>) {
    for numbers in [0, FEW + 1] {
        let seen = in_each(start(2, &Waiting::default()), |mut rank| {
            let numbers = vec![0.0; numbers];
            if rank.rank() == 0 { rank.any(false, Until::Limit).map(|_| ()) } else { rank.gather(&numbers).map(|_| ()) }
        });
        assert!(seen.iter().all(|seen| seen.as_ref().unwrap_err().to_string().contains("not at the same place")));
    }
}

pub(super) fn who_does_not_come_is_named_and_ends_the_waiting_of_all<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    for late in [0, 1] {
        let said = Arc::new(Mutex::new(Vec::new()));
        let say = {
            let said = said.clone();
            Arc::new(move |words: &str| said.lock().unwrap().push(words.to_owned()))
        };
        // Long enough for all of them to begin together on a busy machine.
        let short = Duration::from_millis(400);
        let waiting = Waiting { limit: Some(4 * short), notice: short, say };
        // Whoever gives up lets the late one go on, which comes after all: for it too the meeting is over.
        let gave_up = Barrier::new(3);
        let seen = in_each(start(3, &waiting), |mut rank| {
            if rank.rank() == late {
                gave_up.wait();
                return rank.gather(&[1.0]).unwrap_err();
            }
            let error = rank.gather(&[1.0]).unwrap_err();
            gave_up.wait();
            error
        });
        for error in seen {
            assert!(matches!(&error, PeerError::Late(awaited) if awaited.ranks == [late]), "{error}");
            assert!(error.to_string().starts_with(&format!("process {late} has not come for ")), "{error}");
        }
        let said = said.lock().unwrap();
        let is_of_one = |words: &String| words.starts_with(&format!("waiting: process {late} has not come for "));
        assert!(!said.is_empty() && said.iter().all(is_of_one), "{said:?}");
    }
}

pub(super) fn whatever_one_of_them_does_alone_is_waited_for<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    let waiting = Waiting { limit: Some(Duration::ZERO), ..Waiting::default() };
    let entered = Barrier::new(2);
    let seen = in_each(start(2, &waiting), |mut rank| {
        entered.wait();
        // Somebody is here first, and has no time to wait otherwise.
        rank.any(rank.rank() == 0, Until::Done).unwrap()
    });
    assert_eq!(seen, [true, true]);
}

/// Tensors of some lengths whose elements are all different.
fn set(device: &Device, lengths: &[usize], from: f64) -> ParamSet {
    let shapes: Vec<[usize; 1]> = lengths.iter().map(|&length| [length]).collect();
    let mut set = ParamSet::zeros(device, shapes.iter().map(|shape| &shape[..]));
    let mut next = from;
    for tensor in set.tensors_mut() {
        let values: Vec<f64> = (0..tensor.len()).map(|i| next + i as f64).collect();
        next += values.len() as f64;
        tensor.copy_from_f64(&values);
    }
    set
}

fn elements(set: &ParamSet) -> Vec<f64> {
    set.iter().flat_map(Tensor::to_f64).collect()
}

pub(super) fn shares_put_together_are_the_whole_in_all_or_in_the_first<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    let lengths = [1, 7, 2, 30];
    in_each(start(3, &Waiting::default()), |mut rank| {
        let whole = set(&device(), &lengths, 1.0);
        let shares = Share { number: rank.rank(), of: 3 }.copy_of(&whole);
        assert!(shares.iter().map(Tensor::len).sum::<usize>() <= 40 / 3 + lengths.len());
        let mut everywhere = whole.zeros_like();
        rank.put_together(&shares, Recipient::Everyone(&mut everywhere)).unwrap();
        assert_eq!(elements(&everywhere), elements(&whole));
        let mut first = whole.zeros_like();
        let to = if rank.rank() == 0 { Recipient::First(&mut first) } else { Recipient::Another };
        rank.put_together(&shares, to).unwrap();
        assert_eq!(elements(&first) == elements(&whole), rank.rank() == 0);
    });
}

pub(super) fn gradients_may_travel_rounded_and_all_have_the_same_sum<E: Exchange>(
    start: impl Fn(usize, &Waiting) -> Vec<Group<E>>,
) {
    let sums = in_each(start(3, &Waiting::default()), |mut rank| {
        let mut gradient = set(&device(), &[5, 300], 1.0 + rank.rank() as f64 / 3.0);
        rank.sum(&mut gradient, Wire::Bf16).unwrap();
        elements(&gradient)
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    for (i, sum) in sums[0].iter().enumerate() {
        let exact = 3.0 * (1.0 + i as f64) + 1.0;
        assert!((sum - exact).abs() <= exact / 128.0, "{sum} is not {exact}");
        assert_eq!(wire::number(wire::rounded([*sum].into_iter())[0]), *sum, "it has travelled");
    }
}
