//! Work on several devices: batches go to them in turn, and what comes of them is taken in the order of the batches.
//!
//! Which device a batch goes to depends on its number alone, and a device computes one batch after another: with devices of one
//! kind the result has the same bits for any number of them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::error::EvalError;

/// What one device has to do, and what comes of it.
struct Lane<B, R> {
    work: SyncSender<B>,
    done: Receiver<Result<(B, R), EvalError>>,
}

/// Computes on every batch that `feed` hands over, with several devices at once, and hands it on with what came of it. Each
/// device has one batch at a time; with one device all is done by the thread that calls.
pub(crate) fn spread<B: Send, R: Send, T>(
    devices: usize,
    compute: impl Fn(usize, &B) -> Result<R, EvalError> + Sync,
    mut take: impl FnMut(B, R) -> Result<(), EvalError>,
    feed: impl FnOnce(&mut dyn FnMut(B) -> Result<(), EvalError>) -> Result<T, EvalError>,
) -> Result<T, EvalError> {
    if devices <= 1 {
        return feed(&mut |batch| {
            let result = compute(0, &batch)?;
            take(batch, result)
        });
    }
    let compute = &compute;
    thread::scope(|scope| {
        let lane = |device: usize| {
            let ((work, batches), (results, done)) = (sync_channel(1), sync_channel(1));
            let run = move || {
                for batch in batches {
                    let result = compute(device, &batch).map(|result| (batch, result));
                    // Closed: an earlier batch has ended the pass.
                    if results.send(result).is_err() {
                        return;
                    }
                }
            };
            let started = thread::Builder::new().name(format!("device {device}")).spawn_scoped(scope, run);
            started.map_err(|error| EvalError::Thread { reason: error.to_string() })?;
            Ok(Lane { work, done })
        };
        let lanes = (0..devices).map(lane).collect::<Result<Vec<Lane<B, R>>, EvalError>>()?;
        let gone = || EvalError::Thread { reason: "a thread that computes has ended".to_owned() };
        let (mut sent, mut taken) = (0, 0);
        let mut take_next = |taken: &mut usize| {
            let (batch, result) = lanes[*taken % devices].done.recv().map_err(|_| gone())??;
            *taken += 1;
            take(batch, result)
        };
        let fed = feed(&mut |batch| {
            // Its device is still at the batch before.
            if sent - taken == devices {
                take_next(&mut taken)?;
            }
            lanes[sent % devices].work.send(batch).map_err(|_| gone())?;
            sent += 1;
            Ok(())
        })?;
        while taken < sent {
            take_next(&mut taken)?;
        }
        Ok(fed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    fn squares(devices: usize, count: u64) -> Vec<(u64, u64)> {
        let mut seen = Vec::new();
        // Later batches are done sooner.
        let compute = |_, &x: &u64| {
            thread::sleep(Duration::from_millis((count - x) % 4));
            Ok(x * x)
        };
        let take = |x, square| {
            seen.push((x, square));
            Ok(())
        };
        spread(devices, compute, take, |hand| (0..count).try_for_each(hand)).unwrap();
        seen
    }

    #[test]
    fn results_come_in_the_order_of_the_batches() {
        let alone = squares(1, 20);
        assert_eq!(alone, (0..20).map(|x| (x, x * x)).collect::<Vec<_>>());
        for devices in [2, 3, 7, 32] {
            assert_eq!(squares(devices, 20), alone, "{devices} devices");
        }
        assert_eq!(squares(3, 0), []);
    }

    #[test]
    fn devices_compute_at_once_and_each_has_its_batches() {
        // Whoever comes alone to the barrier waits for ever.
        let together = Barrier::new(3);
        let compute = |device, &batch: &usize| {
            together.wait();
            assert_eq!(device, batch % 3);
            Ok(())
        };
        spread(3, compute, |_, ()| Ok(()), |hand| (0..9).try_for_each(hand)).unwrap();
    }

    #[test]
    fn the_first_failure_in_their_order_ends_the_pass() {
        for devices in [1, 4] {
            let mut taken = Vec::new();
            let compute = |_, &x: &usize| match x {
                5 | 6 => Err(EvalError::NotFinite { name: format!("image {x}") }),
                x => Ok(x),
            };
            let take = |x, _| {
                taken.push(x);
                Ok(())
            };
            let ended = spread(devices, compute, take, |hand| (0..1000).try_for_each(hand)).unwrap_err();
            assert!(matches!(ended, EvalError::NotFinite { name } if name == "image 5"));
            assert_eq!(taken, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn whoever_takes_or_hands_over_may_end_it() {
        for devices in [1, 3] {
            let take = |x: usize, _| if x == 4 { Err(EvalError::Stopped) } else { Ok(()) };
            let ended = spread(devices, |_, &x| Ok(x), take, |hand| (0..1000).try_for_each(hand));
            assert!(matches!(ended, Err(EvalError::Stopped)));
            let ended = spread(
                devices,
                |_, &x: &usize| Ok(x),
                |_, _| Ok(()),
                |hand| {
                    (0..5).try_for_each(hand)?;
                    Err::<(), _>(EvalError::Stopped)
                },
            );
            assert!(matches!(ended, Err(EvalError::Stopped)));
        }
    }
}
