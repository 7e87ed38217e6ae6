//! The operations on the host's cores.
//!
//! One file an operation: its fast form, its plain form (the oracle of its tests), its derivative. Every kernel is
//! generic over [`Real`], so the f64 of golden values and gradient checks runs the code that trains in f32.

mod gemm;
mod memory;
mod panels;
mod real;
mod vector;

pub(crate) mod attention;
pub(crate) mod batch_norm;
pub(crate) mod cross_entropy;
pub(crate) mod gelu;
pub(crate) mod largest;
pub(crate) mod layer_norm;
pub(crate) mod linear;
pub(crate) mod normalize;
pub(crate) mod optimizer;
pub(crate) mod patchify;
pub(crate) mod prototypes;
pub(crate) mod reduce;
pub(crate) mod residual;
pub(crate) mod scale;
pub(crate) mod softmax;
pub(crate) mod tokens;

#[cfg(test)]
pub(crate) mod testing;

use rayon::ThreadPool;
use rayon::prelude::*;

use crate::device::{CpuOptions, DeviceError, DeviceUse, Precision};
use crate::tensor::DType;

pub(crate) use memory::Buffer;
pub(crate) use real::Real;

/// Runs a body with `T` bound to the element type of a tensor on the host.
macro_rules! on_cpu {
    ($tensor:expr, $T:ident => $body:expr) => {
        match $tensor.dtype() {
            $crate::tensor::DType::F32 => {
                type $T = f32;
                #[allow(unused_imports)]
                use $crate::cpu::Real as _;
                $body
            }
            $crate::tensor::DType::F64 => {
                type $T = f64;
                #[allow(unused_imports)]
                use $crate::cpu::Real as _;
                $body
            }
            $crate::tensor::DType::Bf16 => unreachable!("the host computes in f32 or f64"),
        }
    };
}
pub(crate) use on_cpu;

/// Runs one body for a tensor on the host, with `T` bound to its element type, and another for a tensor on a GPU.
macro_rules! on_device {
    ($tensor:expr, $T:ident => $body:expr, $cuda:ident => $gpu:expr $(,)?) => {{
        let device = $tensor.device().clone();
        if let Some($cuda) = device.as_cuda() {
            $gpu
        } else {
            $crate::cpu::on_cpu!($tensor, $T => $body)
        }
    }};
}
pub(crate) use on_device;

/// Rows that one task of an element-wise or row-wise operation takes. Fixed, so that the number of threads cannot
/// change how partial sums are grouped; small enough that a task's rows stay in the second-level cache.
pub(crate) const ROWS_PER_TASK: usize = 64;

/// Elements that one task of a flat operation takes; fixed for the same reason.
pub(crate) const ELEMENTS_PER_TASK: usize = 1 << 15;

/// Threads and memory of the host.
pub(crate) struct Cpu {
    pool: ThreadPool,
    memory: memory::Memory,
    precision: Precision,
}

impl Cpu {
    pub(crate) fn new(options: CpuOptions) -> Result<Self, DeviceError> {
        simd::requested()?;
        let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("compute-{i}"))
            .build()
            .map_err(|e| DeviceError::Threads { threads, reason: e.to_string() })?;
        Ok(Self { pool, memory: memory::Memory::default(), precision: options.precision })
    }

    pub(crate) fn dtype(&self) -> DType {
        match self.precision {
            Precision::F32 => DType::F32,
            Precision::F64 => DType::F64,
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    pub(crate) fn memory_use(&self) -> DeviceUse {
        self.memory.in_use()
    }

    pub(crate) fn describe(&self) -> String {
        let threads = text::count(self.threads(), "thread");
        let bits = if self.precision == Precision::F32 { "f32" } else { "f64" };
        format!("cpu, {threads}, {}, {bits}", simd::level().name())
    }

    pub(crate) fn allocate<T: Real>(&self, len: usize) -> Buffer<T> {
        self.memory.take(len)
    }

    pub(crate) fn fill<T: Real>(&self, slice: &mut [T], value: T) {
        self.install(|| slice.par_chunks_mut(ELEMENTS_PER_TASK).for_each(|part| part.fill(value)));
    }

    /// Runs a body with this device's threads as rayon's current pool.
    pub(crate) fn install<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.pool.install(body)
    }
}

/// The pieces with their numbers, each a task that any thread can take. Rayon left alone makes few large tasks at first,
/// and the first segments of a batch, those of the large views, hold most of the work.
pub(crate) fn one_task_each<I>(pieces: I) -> impl IndexedParallelIterator<Item = (usize, I::Item)>
where
    I: IntoParallelIterator<Iter: IndexedParallelIterator>,
{
    pieces.into_par_iter().enumerate().with_max_len(1)
}

/// The same for large tasks: a thread takes the next as soon as it is free. Where the caller's largest come first, none
/// is left with a large one at the end.
pub(crate) fn taken_in_order<P: Send>(
    pieces: impl Iterator<Item = P> + Send,
) -> impl ParallelIterator<Item = (usize, P)> {
    pieces.enumerate().par_bridge()
}

/// Cuts a slice into consecutive pieces of the given lengths, to be written by different tasks.
pub(crate) fn split_mut<T>(mut slice: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = slice.split_at_mut(length);
        pieces.push(piece);
        slice = rest;
    }
    pieces
}

/// Where each of some consecutive pieces begins.
pub(crate) fn starts(lengths: &[usize]) -> Vec<usize> {
    lengths
        .iter()
        .scan(0, |at, length| {
            let start = *at;
            *at += length;
            Some(start)
        })
        .collect()
}
