//! One communicator of NCCL's, which may be ended from any thread.
//!
//! It never blocks: a call returns at once, and whether it is through is asked for. So the lock around the handle is held for
//! moments only, and whoever gives up takes the handle away between two calls of the thread that trains.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUstream;

use super::library::{BYTES, Config, FLOATS, Functions, Handle, IN_PROGRESS, Nccl, SUCCESS, SUM, UniqueId};
use super::{NcclError, operation::Operation};

/// How long it is asked without a rest whether a call is through: mostly it is by then.
const EAGERLY: Duration = Duration::from_micros(300);
/// How long it rests between two questions later on.
const REST: Duration = Duration::from_micros(200);
/// How long an orderly end may take.
const END: Duration = Duration::from_secs(10);

pub(in crate::cuda) struct Link {
    nccl: &'static Nccl,
    /// None once it has ended.
    handle: Mutex<Option<Open>>,
}

#[derive(Clone, Copy)]
struct Open(Handle);
// SAFETY: NCCL's communicators may be used by any thread, by one at a time: the lock sees to that.
unsafe impl Send for Open {}

impl Link {
    /// Joins the communicator of an id, which all processes do at the same time. The device's context must be current.
    pub(super) fn join(
        nccl: &'static Nccl,
        (rank, ranks): (usize, usize),
        id: UniqueId,
        limit: Option<Duration>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Self, NcclError> {
        // Kept for ever: a thread of NCCL's may look here until it has met the others or was ended.
        let place: *mut Handle = Box::into_raw(Box::new(std::ptr::null_mut()));
        let mut config = Config::not_blocking();
        let (ranks, rank) = (ranks as c_int, rank as c_int);
        // SAFETY: room for a handle; the configuration is whole and is read during the call alone.
        let code = unsafe { (nccl.functions.init_rank)(place, ranks, id, rank, &raw mut config) };
        // SAFETY: the call has written it, or left it null. No call that does not block writes it again while all is well.
        let handle = unsafe { place.read() };
        let link = Self { nccl, handle: Mutex::new((!handle.is_null()).then_some(Open(handle))) };
        let what = "meeting the other GPUs";
        let met = match code {
            SUCCESS | IN_PROGRESS if !handle.is_null() => link.await_ready(what, limit, should_stop),
            code => Err(link.failed(what, code, handle)),
        };
        // Whoever has not met the others has nothing to end in order.
        met.inspect_err(|_| link.give_up())?;
        Ok(link)
    }

    fn handle(&self) -> MutexGuard<'_, Option<Open>> {
        // Nothing behind this lock is ever half changed.
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &'static str, code: c_int, handle: Handle) -> NcclError {
        let reason = self.nccl.words(code, handle);
        if reason.contains("Duplicate GPU") {
            return NcclError::SameGpu { reason };
        }
        NcclError::Failed { what, reason }
    }

    /// Queues operations on a stream, all at once, and waits until they are queued: not until they are done.
    pub(super) fn queue(
        &self,
        what: &'static str,
        operations: &[Operation],
        stream: CUstream,
        limit: Option<Duration>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<(), NcclError> {
        if operations.is_empty() {
            return Ok(());
        }
        let handle = self.handle();
        let Some(Open(communicator)) = *handle else { return Err(NcclError::GivenUp) };
        let functions = &self.nccl.functions;
        // SAFETY: a group is begun and ended by this thread, whatever happens in between.
        let mut code = unsafe { (functions.group_start)() };
        for operation in operations {
            if matches!(code, SUCCESS | IN_PROGRESS) {
                code = call(functions, operation, communicator, stream);
            }
        }
        // SAFETY: as above.
        let ended = unsafe { (functions.group_end)() };
        for code in [code, ended] {
            if !matches!(code, SUCCESS | IN_PROGRESS) {
                return Err(self.failed(what, code, communicator));
            }
        }
        drop(handle);
        self.await_ready(what, limit, should_stop)
    }

    /// Waits until the last call is through.
    fn await_ready(
        &self,
        what: &'static str,
        limit: Option<Duration>,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<(), NcclError> {
        let began = Instant::now();
        while self.state(what)? == IN_PROGRESS {
            let waited = began.elapsed();
            if limit.is_some_and(|limit| waited >= limit) {
                return Err(NcclError::Late { what, seconds: waited.as_secs() });
            }
            if should_stop() {
                return Err(NcclError::GivenUp);
            }
            if waited < EAGERLY { std::thread::yield_now() } else { std::thread::sleep(REST) }
        }
        Ok(())
    }

    /// What NCCL says of this communicator: all is well, or it is not ready for the next call.
    fn state(&self, what: &'static str) -> Result<c_int, NcclError> {
        let handle = self.handle();
        let Some(Open(communicator)) = *handle else { return Err(NcclError::GivenUp) };
        let mut state = SUCCESS;
        // SAFETY: an open communicator, and one integer to write.
        let code = unsafe { (self.nccl.functions.get_async_error)(communicator, &raw mut state) };
        match (code, state) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => Ok(state),
            (SUCCESS, code) | (code, _) => Err(self.failed(what, code, communicator)),
        }
    }

    /// A failure of what was queued, as far as it is known. One that was given up on purpose has none: whoever did that knows.
    pub(in crate::cuda) fn check(&self) -> Result<(), NcclError> {
        match self.state("communicating with other GPUs") {
            Ok(_) | Err(NcclError::GivenUp) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An error where it was given up: what was on its way may not have arrived. For whoever is about to believe in it.
    pub(super) fn check_open(&self) -> Result<(), NcclError> {
        if self.handle().is_some() { Ok(()) } else { Err(NcclError::GivenUp) }
    }

    /// Ends everything that is on its way. Any thread may call this, once or often.
    pub(super) fn give_up(&self) {
        let taken = self.handle().take();
        if let Some(Open(communicator)) = taken {
            // Outside of the lock: it may take a while, and nobody else has the handle any more.
            // SAFETY: an open communicator, which is not used again.
            unsafe { (self.nccl.functions.abort)(communicator) };
        }
    }

    /// Ends a communicator with which all is well, for which all processes come; one that does not come is not waited for.
    pub(super) fn end(&self) {
        let handle = self.handle();
        let Some(Open(communicator)) = *handle else { return };
        // SAFETY: an open communicator.
        let code = unsafe { (self.nccl.functions.finalize)(communicator) };
        drop(handle);
        let is_quiet = matches!(code, SUCCESS | IN_PROGRESS)
            && self.await_ready("taking leave of the other GPUs", Some(END), &|| false).is_ok();
        if !is_quiet {
            return self.give_up();
        }
        let taken = self.handle().take();
        if let Some(Open(communicator)) = taken {
            // SAFETY: nothing is on its way any more, and the handle is not used again.
            unsafe { (self.nccl.functions.destroy)(communicator) };
        }
    }
}

fn call(functions: &Functions, operation: &Operation, communicator: Handle, stream: CUstream) -> c_int {
    // SAFETY: the addresses are of memory that is held until the stream is through, and as long as the operation says.
    unsafe {
        match *operation {
            Operation::Sum { at, floats } => (functions.all_reduce)(at, at, floats, FLOATS, SUM, communicator, stream),
            Operation::Gather { from, to, bytes } => {
                (functions.all_gather)(from, to, bytes, BYTES, communicator, stream)
            }
            Operation::Send { from, bytes, rank } => {
                (functions.send)(from, bytes, BYTES, rank as c_int, communicator, stream)
            }
            Operation::Receive { to, bytes, rank } => {
                (functions.receive)(to, bytes, BYTES, rank as c_int, communicator, stream)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::library::nccl;
    use super::*;

    /// A link that was never joined.
    fn unjoined() -> Option<Link> {
        let Ok(nccl) = nccl() else {
            eprintln!("skipped: no NCCL on this machine (pip install nvidia-nccl-cu13)");
            return None;
        };
        Some(Link { nccl, handle: Mutex::new(None) })
    }

    #[test]
    fn whatever_comes_after_it_was_given_up_is_an_error() {
        let Some(link) = unjoined() else { return };
        link.give_up();
        link.end();
        let sum = [Operation::Sum { at: 512, floats: 1 }];
        let stream = std::ptr::null_mut();
        assert!(matches!(link.queue("summing", &sum, stream, None, &|| false), Err(NcclError::GivenUp)));
        assert!(link.queue("nothing", &[], stream, None, &|| false).is_ok());
        assert!(matches!(link.check_open(), Err(NcclError::GivenUp)));
        assert!(link.check().is_ok(), "whoever gave up knows");
    }
}
