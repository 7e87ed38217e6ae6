//! Where the time of queued work goes, kernel by kernel.

use cudarc::driver::{result, sys};

use super::Cuda;

/// Kernels of one name: how often they ran, and how long in all.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// The file of the kernel, or the library.
    pub group: &'static str,
    /// The kernel, or the shape of a matrix product.
    pub name: String,
    /// How often it ran.
    pub count: usize,
    /// Milliseconds in all.
    pub milliseconds: f64,
}

/// One piece of work between two events.
pub(super) struct Timed {
    group: &'static str,
    name: String,
    start: sys::CUevent,
    end: sys::CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Timed {}

impl Cuda {
    /// Queues work, and in a profile the events around it.
    pub(super) fn timed<R>(&self, group: &'static str, name: impl FnOnce() -> String, work: impl FnOnce() -> R) -> R {
        let mut profile = self.profile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(profile) = profile.as_mut() else { return work() };
        let event = || {
            let event = result::event::create(sys::CUevent_flags_enum::CU_EVENT_DEFAULT).ok()?;
            // SAFETY: a fresh event on our own stream.
            unsafe { result::event::record(event, self.gpu.stream) }.ok()?;
            Some(event)
        };
        let start = event();
        let done = work();
        if let (Some(start), Some(end)) = (start, event()) {
            profile.push(Timed { group, name: name(), start, end });
        }
        done
    }

    /// Times everything that a body queues. Slows it down a little.
    pub(crate) fn profile<R>(&self, body: impl FnOnce() -> R) -> (R, Vec<KernelTime>) {
        let swap =
            |new| std::mem::replace(&mut *self.profile.lock().unwrap_or_else(std::sync::PoisonError::into_inner), new);
        swap(Some(Vec::new()));
        let done = body();
        let timed = swap(None).unwrap_or_default();
        let _ = self.finish();
        let mut kernels: Vec<KernelTime> = Vec::new();
        for Timed { group, name, start, end } in timed {
            // SAFETY: both events are recorded and the stream is through; they are not used after this.
            let milliseconds = unsafe {
                let elapsed = result::event::elapsed(start, end).unwrap_or(0.0);
                let _ = (result::event::destroy(start), result::event::destroy(end));
                f64::from(elapsed)
            };
            match kernels.iter_mut().find(|k| k.group == group && k.name == name) {
                Some(kernel) => {
                    kernel.count += 1;
                    kernel.milliseconds += milliseconds;
                }
                None => kernels.push(KernelTime { group, name, count: 1, milliseconds }),
            }
        }
        kernels.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
        (done, kernels)
    }
}
