//! Which of cuBLASLt's algorithms a product takes.
//!
//! cuBLASLt's favourite for a shape, unless another one gives the very same bits in less time. Timings never agree twice,
//! so they have a say in the speed of a run and none in its numbers: two runs do not differ, whatever was chosen. The
//! products of a training step are known from its plan and timed before the first step, on noise; somewhat smaller ones
//! take the same choice, everything else the favourite.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::cublaslt::{result, sys};
use cudarc::driver;

use super::{Blas, Descriptors, Key, Operands, WORKSPACE};
use crate::cuda::{Cuda, arguments};

pub(super) type Algorithm = sys::cublasLtMatmulAlgo_t;

/// How many algorithms are asked for and timed.
const OFFERS: usize = 12;

/// Timed runs of each, after one that is not timed.
const RUNS: u32 = 4;

/// An extent above this is a number of rows and not the width of a layer.
const MANY: u64 = 4096;

/// What is known about products so far.
#[derive(Default)]
pub(super) struct Choices {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    chosen: HashMap<Key, Algorithm>,
    /// Those of a plan, in the order in which it met them.
    planned: Vec<Key>,
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

    /// The algorithm for a product.
    pub(super) fn algorithm(&self, blas: &Blas, key: &Key) -> Result<Algorithm, result::CublasError> {
        let (mut state, class) = (self.lock(), key.class());
        if let Some(&known) = state.chosen.get(&class) {
            return Ok(known);
        }
        // Drop path makes matrices a little smaller than those of the plan.
        let like = state.planned.iter().filter(|p| p.covers(&class)).min_by_key(|p| (p.n, p.k));
        let algorithm = match like.and_then(|p| state.chosen.get(p)) {
            Some(&known) => known,
            None => favourite(blas, &class)?,
        };
        state.chosen.insert(class, algorithm);
        Ok(algorithm)
    }
}

impl Key {
    /// Extents rounded up by a sixteenth at most, so that batches of about the same size share a choice. The widths of
    /// layers stay what they are: they have few binary digits.
    fn class(&self) -> Self {
        let rounded = |x: u64| x.next_multiple_of(1 << x.max(1).ilog2().saturating_sub(4));
        Self { n: rounded(self.n), k: rounded(self.k), ..*self }
    }

    /// Whether a smaller product may take what was chosen for this one.
    fn covers(&self, smaller: &Self) -> bool {
        let near = |large: u64, small: u64| small <= large && large <= 2 * small;
        Self { n: self.n, k: self.k, ..*smaller } == *self && near(self.n, smaller.n) && near(self.k, smaller.k)
    }

    /// The same product of an eighth fewer rows.
    fn with_fewer_rows(&self) -> Self {
        let fewer = |x: u64| if x > MANY { x * 7 / 8 } else { x };
        Self { n: fewer(self.n), k: fewer(self.k), ..*self }
    }

    fn result_bytes(&self, operand: u64) -> u64 {
        self.m * self.n * if self.exact_result { 4 } else { operand }
    }
}

/// The first that cuBLASLt's own heuristic names.
pub(super) fn favourite(blas: &Blas, key: &Key) -> Result<Algorithm, result::CublasError> {
    offered(blas, key, 1)?.first().copied().ok_or(result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED))
}

/// Algorithms for a shape, cuBLASLt's favourite first.
fn offered(blas: &Blas, key: &Key, most: usize) -> Result<Vec<Algorithm>, result::CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t as P;
    let d = Descriptors::new(blas, key, None)?;
    let preference = result::create_matmul_pref()?;
    let set = |attribute, value: *const c_void, size| {
        // SAFETY: the preference was just made; the value has the size that is named.
        unsafe { result::set_matmul_pref_attribute(preference, attribute, value, size) }
    };
    let workspace = WORKSPACE;
    set(P::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const workspace).cast(), size_of_val(&workspace))?;
    for attribute in [
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        P::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ] {
        set(attribute, (&raw const key.alignment).cast(), size_of_val(&key.alignment))?;
    }
    let [a, b, c] = d.layouts;
    // SAFETY: plain numbers and arrays of numbers, for which zero is a value.
    let mut offers: Vec<sys::cublasLtMatmulHeuristicResult_t> = vec![unsafe { std::mem::zeroed() }; most];
    let mut count = 0;
    // SAFETY: all descriptors are alive; there is room for as many results as are asked for.
    let found = unsafe {
        let (to, most) = (offers.as_mut_ptr(), most as i32);
        let handle = blas.handle;
        sys::cublasLtMatmulAlgoGetHeuristic(handle, d.product, a, b, c, c, preference, most, to, &raw mut count)
    };
    // SAFETY: not used after this.
    let _ = unsafe { result::destroy_matmul_pref(preference) };
    found.result()?;
    offers.truncate(count.max(0) as usize);
    Ok(offers.into_iter().filter(|o| o.state.result().is_ok()).map(|o| o.algo).collect())
}

/// Memory of the driver's for as long as products are timed.
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
            // SAFETY: allocated above; all work on it was waited for.
            let _ = unsafe { driver::result::free_sync(address) };
        }
    }
}

/// What products are timed on.
struct Bench {
    operands: Operands,
    /// The favourite's result.
    expected: u64,
    /// A word that is not zero after a comparison that found a difference.
    differs: u64,
    start: driver::sys::CUevent,
    end: driver::sys::CUevent,
}

impl Cuda {
    /// Times the products that plans have met, and keeps for each the fastest algorithm that gives the favourite's bits.
    /// Where memory does not suffice or anything fails, the favourite stays.
    pub(crate) fn choose_planned_products(&self) {
        if !self.is_well() {
            return;
        }
        self.bind();
        let choices = &self.gpu.blas.choices;
        let open: Vec<Key> = {
            let state = choices.lock();
            state.planned.iter().filter(|key| !state.chosen.contains_key(key)).copied().collect()
        };
        let size = self.dtype().size() as u64;
        let largest = |bytes: &dyn Fn(&Key) -> u64| open.iter().map(bytes).max().unwrap_or(0);
        let sizes = [
            largest(&|key| key.m * key.k * size),
            largest(&|key| key.k * key.n * size),
            largest(&|key| key.m * size),
            largest(&|key| key.result_bytes(size)),
        ];
        let Some(scratch) = Scratch::new(&[sizes[0], sizes[1], sizes[2], sizes[3], sizes[3], sizes[3], 4]) else {
            return;
        };
        let [first, second, bias, added_to, expected, result, differs] = scratch.0[..] else { return };
        for (address, bytes) in [first, second, bias, added_to].into_iter().zip(sizes) {
            let count = bytes / size;
            self.launch_flat(("elementwise", "noise"), count as usize, &arguments![address, count as i64]);
        }
        let event = || driver::result::event::create(driver::sys::CUevent_flags::CU_EVENT_DEFAULT);
        let (Ok(start), Ok(end)) = (event(), event()) else { return };
        let operands = Operands { first, second, added_to, result, bias: Some(bias), factor: 1.0 };
        let bench = Bench { operands, expected, differs, start, end };
        for key in open {
            if let Ok(algorithm) = self.fastest(&key, &bench) {
                choices.lock().chosen.insert(key, algorithm);
            }
        }
        // Work on the scratch memory ends before it goes.
        let _ = self.finish();
        for event in [start, end] {
            // SAFETY: made above and not used after this.
            let _ = unsafe { driver::result::event::destroy(event) };
        }
    }

    fn fastest(&self, key: &Key, bench: &Bench) -> Result<Algorithm, result::CublasError> {
        let offers = offered(&self.gpu.blas, key, OFFERS)?;
        let unsupported = result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED);
        let (&favourite, others) = offers.split_first().ok_or(unsupported)?;
        let mut best = (self.time(&favourite, key, bench)?, favourite);
        for &other in others {
            let Ok(time) = self.time(&other, key, bench) else { continue };
            // Only what is faster is looked at closely, also at another number of rows.
            let same = || [*key, key.with_fewer_rows()].iter().all(|key| self.agree(&favourite, &other, key, bench));
            if time < best.0 && same() {
                best = (time, other);
            }
        }
        Ok(best.1)
    }

    /// Milliseconds of a run.
    fn time(&self, algorithm: &Algorithm, key: &Key, bench: &Bench) -> Result<f32, result::CublasError> {
        let failed = |_| result::CublasError(sys::cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED);
        self.multiply_by(algorithm, key, &bench.operands)?;
        let stream = self.gpu.stream;
        // SAFETY: our stream and events that live until after the last use.
        unsafe {
            driver::result::event::record(bench.start, stream).map_err(failed)?;
            for _ in 0..RUNS {
                self.multiply_by(algorithm, key, &bench.operands)?;
            }
            driver::result::event::record(bench.end, stream).map_err(failed)?;
            driver::result::stream::synchronize(stream).map_err(failed)?;
            driver::result::event::elapsed(bench.start, bench.end).map_err(failed)
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
        done && self.download::<u32>(bench.differs, 1) == [0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(m: u64, n: u64, k: u64) -> Key {
        Key { m, n, k, transposed: (true, false), exact_result: false, adds: false, bias: false, alignment: 16 }
    }

    #[test]
    fn widths_of_layers_are_classes_of_their_own_and_numbers_of_rows_are_not() {
        for width in [192, 384, 576, 768, 1024, 1152, 1536, 2048, 2304, 3072, 3456, 4096, 65536] {
            assert_eq!(key(64, width, width).class(), key(64, width, width));
        }
        assert_eq!(key(384, 88_320, 1536).class(), key(384, 87_381, 1536).class());
    }

    #[test]
    fn a_plan_covers_somewhat_smaller_products_of_the_same_kind() {
        let planned = key(384, 90_112, 1536);
        assert!(planned.covers(&key(384, 81_920, 1536)) && planned.covers(&key(384, 45_056, 1536)));
        assert!(!planned.covers(&key(384, 40_960, 1536)) && !planned.covers(&key(384, 94_208, 1536)));
        assert!(!planned.covers(&key(768, 81_920, 1536)));
        assert!(!planned.covers(&Key { adds: true, ..key(384, 81_920, 1536) }));
    }
}
