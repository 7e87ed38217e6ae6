//! GPUs that compute together: sums and copies between processes, by NCCL.
//!
//! - `library`: NCCL's functions, found at run time.
//! - `link`: its communicator, which any thread can end.
//! - `operation`: which memory goes where, made from shapes alone.
//! - `staging`: memory for rounded numbers on their way.
//! - `put`: how shares become the whole.
//! - `travel`: sums, gathers and shares put together.
//!
//! Everything travels on a stream of its own. An event of the stream that computes says when what is to travel is there, and
//! another one, for which that stream waits, when it has arrived. The host waits for neither.

mod library;
mod link;
mod operation;
mod put;
mod staging;
mod travel;

#[cfg(test)]
mod played;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{result, sys};

use super::Cuda;
use crate::device::{Device, DeviceError};

pub(in crate::cuda) use link::Link;
pub use travel::Put;

use library::{UniqueId, nccl, version_in_words};
use operation::Operation;
use staging::Staging;

/// Bytes of what the processes of a communicator know each other by.
pub const ID_BYTES: usize = 128;

/// What is exchanged before the first step, so that NCCL takes its memory then: numbers of a large sum, and of a small one.
const FIRST_SUMS: [usize; 2] = [8 << 20, 256];

/// Communication between GPUs that did not come about, or ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NcclError {
    /// There is no NCCL.
    #[error(
        "NCCL was not found (libnccl.so.2), without which GPUs cannot train together. It comes with {}",
        nccl_source()
    )]
    Missing,
    /// It is too old.
    #[error("NCCL in {place} is version {version}, and 2.19 or newer is needed. It comes with {}", nccl_source())]
    Old {
        /// Its version.
        version: String,
        /// Where it is.
        place: String,
    },
    /// It is something else.
    #[error("{place} is not NCCL: it has no {function}")]
    Function {
        /// What it does not have.
        function: &'static str,
        /// Where it is.
        place: String,
    },
    /// The device is no GPU.
    #[error("NCCL is for GPUs, and this process computes on {0}")]
    NoGpu(String),
    /// Two processes have the same GPU.
    #[error(
        "two processes of this run have the same GPU, and each needs its own ({reason}). Start as many as there are GPUs"
    )]
    SameGpu {
        /// What NCCL said.
        reason: String,
    },
    /// NCCL failed.
    #[error("NCCL failed ({what}): {reason}")]
    Failed {
        /// During which work.
        what: &'static str,
        /// What it said.
        reason: String,
    },
    /// The others did not come.
    #[error("NCCL has not got through with {what} for {seconds} s: some process has not come, or cannot be reached")]
    Late {
        /// What.
        what: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// Somebody wants its calls to wait.
    #[error(
        "NCCL_COMM_BLOCKING is {0:?}: calls that wait cannot be given up when a process is gone. Unset it for this program"
    )]
    Blocking(String),
    /// It was ended on purpose.
    #[error("the exchange between the GPUs of this run was given up")]
    GivenUp,
    /// The GPU.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

fn nccl_source() -> &'static str {
    "NVIDIA's package libnccl2, or `pip install nvidia-nccl-cu13`"
}

/// NCCL as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNccl {
    /// Its version.
    pub version: String,
    /// Where it is.
    pub place: String,
}

/// Looks for NCCL, as [`cuda_libraries`](crate::cuda_libraries) does for what one GPU needs.
pub fn nccl_library() -> Result<FoundNccl, NcclError> {
    nccl().map(|nccl| FoundNccl { version: version_in_words(nccl.version), place: nccl.place.clone() })
}

/// What the processes of a new communicator know each other by: made in one of them, and handed to all.
pub fn new_nccl_id() -> Result<[u8; ID_BYTES], NcclError> {
    let nccl = nccl()?;
    let mut id = UniqueId([0; ID_BYTES]);
    // SAFETY: room for one id.
    match unsafe { (nccl.functions.get_unique_id)(&raw mut id) } {
        library::SUCCESS => Ok(id.0),
        code => {
            let reason = nccl.words(code, std::ptr::null_mut());
            Err(NcclError::Failed { what: "opening a place to meet", reason })
        }
    }
}

/// Ends what is on its way, from any thread.
#[derive(Clone)]
pub struct GiveUp(Arc<Link>);

impl GiveUp {
    /// Whatever comes later is an error. What was on its way has not arrived: it holds anything.
    pub fn give_up(&self) {
        self.0.give_up();
    }
}

impl std::fmt::Debug for GiveUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GiveUp")
    }
}

/// The GPU of this process among those of all.
pub struct Communicator {
    device: Device,
    link: Arc<Link>,
    rank: usize,
    ranks: usize,
    limit: Option<Duration>,
    road: Road,
    staging: Option<Staging>,
    /// Whether sums were begun and not completed.
    under_way: bool,
    own_bytes: u64,
}

/// The stream on which everything travels, and what orders it beside the one that computes.
struct Road {
    stream: sys::CUstream,
    /// Of the stream that computes: what is to travel is there.
    computed: sys::CUevent,
    /// Of this one: it has arrived.
    travelled: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Road {}

impl Road {
    /// The context must be current. Kept for the life of the process, as the other streams are.
    fn new() -> Result<Self, result::DriverError> {
        let event = || result::event::create(sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING);
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Self { stream, computed: event()?, travelled: event()? })
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GPU {} of {}", self.rank, self.ranks)
    }
}

impl Communicator {
    /// Joins the communicator of an id as the process `rank` of `ranks`, for which all of them come. Something small and
    /// something large is exchanged right away, so that NCCL takes its memory now. Nothing waits for longer than `limit`, and
    /// this not any more once it should stop.
    pub fn join(
        device: &Device,
        (rank, ranks): (usize, usize),
        id: &[u8; ID_BYTES],
        limit: Option<Duration>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Self, NcclError> {
        let nccl = nccl()?;
        // It stands above what a communicator is asked for.
        if let Some(value) = std::env::var("NCCL_COMM_BLOCKING").ok().filter(|value| value != "0") {
            return Err(NcclError::Blocking(value));
        }
        let cuda = device.as_cuda().ok_or_else(|| NcclError::NoGpu(device.describe()))?;
        cuda.bind();
        cuda.known_failure()?;
        let before = device.free_memory();
        let link = Arc::new(Link::join(nccl, (rank, ranks), UniqueId(*id), limit, should_stop)?);
        let road = Road::new().map_err(|e| driver_error("a stream for what travels", &e))?;
        let device = device.clone();
        let (staging, under_way, own_bytes) = (None, false, 0);
        let mut communicator = Self { device, link, rank, ranks, limit, road, staging, under_way, own_bytes };
        communicator.exchange_something(should_stop)?;
        let after = communicator.device.free_memory();
        communicator.own_bytes = before.zip(after).map_or(0, |(before, after)| before.saturating_sub(after));
        communicator.cuda().follow(&communicator.link);
        Ok(communicator)
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of the GPU's memory that NCCL has taken.
    pub fn own_bytes(&self) -> u64 {
        self.own_bytes
    }

    /// What ends everything that is on its way.
    pub fn give_up(&self) -> GiveUp {
        GiveUp(self.link.clone())
    }

    fn cuda(&self) -> &Cuda {
        self.device.as_cuda().unwrap_or_else(|| unreachable!("a communicator is made for a GPU"))
    }

    /// One operation of every kind and size that is used later, and waits for it: NCCL makes its connections when they are first
    /// needed, and takes memory for them.
    fn exchange_something(&self, should_stop: &dyn Fn() -> bool) -> Result<(), NcclError> {
        let bytes = FIRST_SUMS[0] * size_of::<f32>();
        // Memory of the driver's own: that of tensors is cut up in the order of another stream.
        // SAFETY: plain memory, set before it is read, and given back below once nothing uses it any more.
        let at = unsafe { result::malloc_sync(bytes) }.map_err(|e| driver_error("memory for a first exchange", &e))?;
        // SAFETY: as above.
        let cleared = unsafe { result::memset_d8_sync(at, 0, bytes) };
        let exchanged = cleared.map_err(|e| driver_error("a first exchange", &e)).and_then(|()| {
            let half = (bytes / 2) as u64;
            let share = bytes / 2 / self.ranks;
            let chunk =
                operation::RoundedChunk { all: at, parts: at + half, sum: at, share: share / operation::ROUNDED };
            let sums = FIRST_SUMS.map(|floats| vec![Operation::Sum { at, floats }]);
            let gather = vec![Operation::Gather { from: at, to: at + half, bytes: share }];
            for operations in sums.into_iter().chain([gather, chunk.scatter(self.ranks)]) {
                self.link.queue("a first exchange", &operations, self.road.stream, self.limit, should_stop)?;
            }
            self.await_road("a first exchange", should_stop)
        });
        if exchanged.is_err() {
            // Whatever still uses the memory ends.
            self.link.give_up();
        }
        // SAFETY: nothing uses it any more.
        let freed = unsafe { result::free_sync(at) };
        exchanged.and(freed.map_err(|e| driver_error("a first exchange", &e)))
    }

    /// Waits on the host until everything has arrived: before the first step, and before a checkpoint.
    fn await_road(&self, what: &'static str, should_stop: &dyn Fn() -> bool) -> Result<(), NcclError> {
        let began = Instant::now();
        // SAFETY: our own event and stream.
        unsafe { result::event::record(self.road.travelled, self.road.stream) }.map_err(|e| driver_error(what, &e))?;
        loop {
            // SAFETY: our own event.
            match unsafe { result::event::query(self.road.travelled) } {
                Ok(()) => return self.link.check(),
                Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => self.link.check()?,
                Err(e) => return Err(driver_error(what, &e)),
            }
            let waited = began.elapsed();
            if self.limit.is_some_and(|limit| waited >= limit) {
                return Err(NcclError::Late { what, seconds: waited.as_secs() });
            }
            if should_stop() {
                return Err(NcclError::GivenUp);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn driver_error(what: &str, error: &result::DriverError) -> NcclError {
    DeviceError::Gpu { what: what.to_owned(), reason: error.to_string() }.into()
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // An orderly end takes all processes. Where this one has failed, or ends in the middle of something, it does not wait.
        if std::thread::panicking() || self.cuda().known_failure().is_err() || self.is_under_way() {
            self.link.give_up();
        } else {
            self.link.end();
        }
    }
}
