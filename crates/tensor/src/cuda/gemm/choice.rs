//! Which of cuBLASLt's algorithms a product takes.
//!
//! The first choice of cuBLASLt's heuristic for a shape, unless another algorithm gives the very same bits in less time:
//! timings differ from run to run, so they may change the speed of a run and must not change its numbers. The products of a
//! training step are known from its plan and timed before the first step, on noise; those of somewhat fewer rows take the
//! same choice, everything else takes the heuristic's.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::{result, sys};
use cudarc::driver;

use super::descriptors::{Descriptors, Preference};
use super::{Blas, Key, Operands};
use crate::cuda::{Cuda, arguments};

pub(super) type Algorithm = sys::cublasLtMatmulAlgo_t;

/// How many algorithms the heuristic is asked for, to be timed.
const CANDIDATES: usize = 12;

/// Timed runs of each, after one that is not timed.
const RUNS: u32 = 4;

/// Products with fewer multiplications are not timed: there is little to win.
const LEAST_WORK: u64 = 1 << 28;

/// Nor are those with fewer elements in their result, in single precision and rounded: a comparison of so few bits may not
/// tell one order of summation from another.
const LEAST_RESULT: (u64, u64) = (1 << 12, 1 << 19);

/// The algorithm of a product, and the heuristic's, which gives the same bits where cuBLASLt refuses the former.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub fastest: Algorithm,
    pub heuristic: Algorithm,
}

impl Choice {
    fn only(heuristic: Algorithm) -> Self {
        Self { fastest: heuristic, heuristic }
    }
}

/// What is known about products so far.
#[derive(Default)]
pub(super) struct Choices {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those of plans, in the order in which they were met.
    planned: Vec<Key>,
    /// The choice of each class of shapes.
    chosen: HashMap<Key, Choice>,
    /// What is taken instead by shapes that refused what their class takes.
    refused: HashMap<Key, Choice>,
}

impl Choices {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a product that a plan met.
    pub(super) fn plan(&self, key: &Key) {
        let (mut state, class) = (self.lock(), key.class());
        if !state.planned.contains(&class) {
            state.planned.push(class);
        }
    }

    /// The algorithms for a product.
    pub(super) fn of(&self, blas: &Blas, key: &Key) -> Result<Choice, result::CublasError> {
        let (mut state, class) = (self.lock(), key.class());
        if let Some(&known) = state.refused.get(key).or_else(|| state.chosen.get(&class)) {
            return Ok(known);
        }
        // Drop path leaves matrices with fewer rows than those of the plan.
        let like = state.planned.iter().filter(|planned| planned.covers(&class)).min_by_key(|planned| planned.rows());
        let choice = match like.and_then(|planned| state.chosen.get(planned)) {
            Some(&known) => known,
            None => Choice::only(heuristic(blas, &class)?),
        };
        state.chosen.insert(class, choice);
        Ok(choice)
    }

    /// Remembers for this very shape that what its class takes was refused.
    pub(super) fn replace(&self, key: &Key, heuristic: Algorithm) {
        self.lock().refused.insert(*key, Choice::only(heuristic));
    }
}

impl Key {
    /// The extent that is a number of rows: a left factor that is transposed is summed over them.
    fn rows(&self) -> u64 {
        if self.transposed.1 { self.k } else { self.n }
    }

    fn with_rows(&self, rows: u64) -> Self {
        if self.transposed.1 { Self { k: rows, ..*self } } else { Self { n: rows, ..*self } }
    }

    /// With rows rounded up by a sixteenth at most, so that batches of about the same size share a choice.
    fn class(&self) -> Self {
        let rows = self.rows();
        self.with_rows(rows.next_multiple_of(1 << rows.max(1).ilog2().saturating_sub(4)))
    }

    /// Whether a product of fewer rows may take what was chosen for this one.
    fn covers(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.rows(), other.rows());
        other.with_rows(ours) == *self && theirs <= ours && ours <= 2 * theirs
    }

    /// Shapes whose bits are compared: this one, and two of those that it covers, whose rows no tile divides.
    fn samples(&self) -> [Self; 3] {
        let rows = self.rows();
        [*self, self.with_rows(rows - (rows / 8 + 13).min(rows / 2)), self.with_rows((rows / 2 + 7).min(rows))]
    }

    fn result_bytes(&self, operand: u64) -> u64 {
        self.n * self.bias_bytes(operand)
    }

    /// A bias has the type of the result.
    fn bias_bytes(&self, operand: u64) -> u64 {
        self.m * if self.exact_result { 4 } else { operand }
    }

    fn is_worth_timing(&self) -> bool {
        let (result, (exact, rounded)) = (self.m * self.n, LEAST_RESULT);
        result * self.k >= LEAST_WORK && result >= if self.exact_result { exact } else { rounded }
    }
}

/// The first choice of cuBLASLt's heuristic.
pub(super) fn heuristic(blas: &Blas, key: &Key) -> Result<Algorithm, result::CublasError> {
    let unsupported = result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);
    candidates(blas, key, 1)?.first().copied().ok_or(unsupported)
}

/// Algorithms for a shape in the order of cuBLASLt's heuristic.
fn candidates(blas: &Blas, key: &Key, most: usize) -> Result<Vec<Algorithm>, result::CublasError> {
    let d = Descriptors::new(blas, key, None)?;
    let preference = Preference::new(key)?;
    let [a, b, c] = d.layouts();
    // SAFETY: plain numbers and arrays of numbers, for which zero is a value.
    let mut candidates: Vec<sys::cublasLtMatmulHeuristicResult_t> = vec![unsafe { std::mem::zeroed() }; most];
    let mut count = 0;
    let (to, most, preference) = (candidates.as_mut_ptr(), most as i32, preference.raw());
    // SAFETY: all descriptors are alive; there is room for as many results as are asked for.
    unsafe {
        let handle = blas.handle;
        sys::cublasLtMatmulAlgoGetHeuristic(handle, d.product(), a, b, c, c, preference, most, to, &raw mut count)
    }
    .result()?;
    candidates.truncate(count.max(0) as usize);
    Ok(candidates.into_iter().filter(|o| o.state.result().is_ok()).map(|o| o.algo).collect())
}

/// Device memory, freed when the timing is done.
struct Scratch(Vec<u64>);

impl Scratch {
    fn new(sizes: &[u64]) -> Option<Self> {
        let mut all = Self(Vec::new());
        for &bytes in sizes {
            // SAFETY: plain allocation; the context is current.
            all.0.push(unsafe { driver::result::malloc_sync(bytes.max(512) as usize) }.ok()?);
        }
        Some(all)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for &address in &self.0 {
            // SAFETY: allocated above; the driver waits for work on it.
            let _ = unsafe { driver::result::free_sync(address) };
        }
    }
}

/// A CUDA event, for timing.
struct Event(driver::sys::CUevent);

impl Event {
    fn new() -> Option<Self> {
        driver::result::event::create(driver::sys::CUevent_flags::CU_EVENT_DEFAULT).ok().map(Self)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made above and not used after this.
        let _ = unsafe { driver::result::event::destroy(self.0) };
    }
}

/// What timing a product needs.
struct Bench {
    operands: Operands,
    /// The result of the heuristic's algorithm.
    expected: u64,
    /// A word that is not zero after a comparison that found a difference.
    differs: u64,
    start: Event,
    end: Event,
}

impl Cuda {
    /// Times the products that plans have met, and keeps for each the fastest algorithm that gives the heuristic's bits.
    /// Where memory does not suffice or anything fails, the heuristic's stays.
    pub(crate) fn choose_planned_products(&self) {
        if !self.is_usable() {
            return;
        }
        self.bind();
        let (blas, choices) = (&self.gpu.blas, &self.gpu.blas.choices);
        let mut open: Vec<(Key, Algorithm)> = Vec::new();
        {
            let mut state = choices.lock();
            for key in state.planned.clone() {
                if let Ok(heuristic) = heuristic(blas, &key)
                    && !state.chosen.contains_key(&key)
                {
                    // Before any timing: what products of fewer rows take must not depend on whether that succeeds.
                    state.chosen.insert(key, Choice::only(heuristic));
                    open.push((key, heuristic));
                }
            }
        }
        open.retain(|(key, _)| key.is_worth_timing());
        let size = self.dtype().size() as u64;
        let largest = |bytes: &dyn Fn(&Key) -> u64| open.iter().map(|(key, _)| bytes(key)).max().unwrap_or(0);
        let sizes = [
            largest(&|key| key.m * key.k * size),
            largest(&|key| key.k * key.n * size),
            largest(&|key| key.bias_bytes(size)),
            largest(&|key| key.result_bytes(size)),
        ];
        let (Some(start), Some(end)) = (Event::new(), Event::new()) else { return };
        let Some(scratch) = Scratch::new(&[sizes[0], sizes[1], sizes[2], sizes[3], sizes[3], sizes[3], 4]) else {
            return;
        };
        let [first, second, bias, added_to, expected, result, differs] = scratch.0[..] else { return };
        for (address, bytes) in [first, second, bias, added_to].into_iter().zip(sizes) {
            let count = bytes / size;
            self.launch_flat(("elementwise", "noise"), count as usize, &arguments![address, count as i64]);
        }
        let operands = Operands { first, second, added_to, result, bias: Some(bias), factor: 1.0 };
        let bench = Bench { operands, expected, differs, start, end };
        for (key, heuristic) in open {
            if let Some(fastest) = self.fastest(&key, &heuristic, &bench) {
                choices.lock().chosen.insert(key, Choice { fastest, heuristic });
            }
        }
    }

    fn fastest(&self, key: &Key, heuristic: &Algorithm, bench: &Bench) -> Option<Algorithm> {
        let mut best = (self.time(heuristic, key, bench).ok()?, *heuristic);
        for other in candidates(&self.gpu.blas, key, CANDIDATES).ok()? {
            let Ok(time) = self.time(&other, key, bench) else { continue };
            // Only what is faster is looked at closely.
            if time < best.0 && key.samples().iter().all(|key| self.agree(heuristic, &other, key, bench)) {
                best = (time, other);
            }
        }
        Some(best.1)
    }

    /// Milliseconds of some runs.
    fn time(&self, algorithm: &Algorithm, key: &Key, bench: &Bench) -> Result<f32, result::CublasError> {
        let failed = |_| result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED);
        self.multiply_by(algorithm, key, &bench.operands)?;
        let (stream, start, end) = (self.gpu.stream, bench.start.0, bench.end.0);
        // SAFETY: our stream, and events that live until after the last use.
        unsafe {
            driver::result::event::record(start, stream).map_err(failed)?;
            for _ in 0..RUNS {
                self.multiply_by(algorithm, key, &bench.operands)?;
            }
            driver::result::event::record(end, stream).map_err(failed)?;
            driver::result::stream::synchronize(stream).map_err(failed)?;
            driver::result::event::elapsed(start, end).map_err(failed)
        }
    }

    /// Whether two algorithms give the same bits.
    fn agree(&self, one: &Algorithm, other: &Algorithm, key: &Key, bench: &Bench) -> bool {
        let first = Operands { result: bench.expected, ..bench.operands };
        let words = key.result_bytes(self.dtype().size() as u64) / 4;
        self.launch_flat(("elementwise", "fill_f32"), 1, &arguments![bench.differs, 1i64, 0.0f32]);
        let done = self.multiply_by(one, key, &first).is_ok() && self.multiply_by(other, key, &bench.operands).is_ok();
        let compared = arguments![bench.expected, bench.operands.result, words as i64, bench.differs];
        self.launch_flat(("elementwise", "compare_bits"), words as usize, &compared);
        done && self.download::<u32>(bench.differs, 1) == [0] && self.is_usable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some rows of a layer of 384 inputs and 1536 outputs, forward, and the gradient of its weight.
    fn forward(rows: u64) -> Key {
        let (m, n, k) = (1536, rows, 384);
        Key { m, n, k, transposed: (true, false), exact_result: false, adds: false, bias: false, alignment: 16 }
    }

    fn gradient(rows: u64) -> Key {
        Key { m: 384, n: 1536, k: rows, transposed: (false, true), exact_result: true, adds: true, ..forward(rows) }
    }

    #[test]
    fn only_rows_are_rounded_and_by_little() {
        for rows in [1, 7, 64, 1280, 50_432, 87_381, 88_320] {
            for key in [forward(rows), gradient(rows)] {
                let class = key.class();
                assert_eq!(class.with_rows(rows), key);
                assert!((rows..=rows + rows / 16).contains(&class.rows()), "{rows} became {}", class.rows());
                assert_eq!(class.class(), class);
            }
        }
        assert_eq!(forward(88_320).class(), forward(87_381).class());
    }

    #[test]
    fn a_plan_covers_products_of_the_same_kind_with_fewer_rows() {
        for kind in [forward, gradient] {
            let planned = kind(90_112);
            assert!(planned.covers(&kind(90_112)) && planned.covers(&kind(81_920)) && planned.covers(&kind(45_056)));
            assert!(!planned.covers(&kind(40_960)) && !planned.covers(&kind(94_208)));
            assert!(!planned.covers(&Key { m: 768, ..kind(81_920) }));
            assert!(!planned.covers(&Key { bias: true, ..kind(81_920) }));
        }
        assert!(!forward(90_112).covers(&gradient(81_920)));
    }

    #[test]
    fn bits_are_compared_where_they_will_be_used() {
        let planned = forward(90_112);
        assert!(planned.samples().iter().all(|sample| planned.covers(sample)));
        assert!(planned.samples()[1..].iter().all(|sample| sample.rows() % 2 == 1));
    }
}
