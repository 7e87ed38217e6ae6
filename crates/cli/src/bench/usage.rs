//! What this process takes of the machine, as the system tells it.

use crate::proc;

/// The most resident memory in bytes that this process has had; 0 where the system does not tell.
pub fn peak_memory() -> u64 {
    status("VmHWM:")
}

/// The resident memory in bytes now; 0 where the system does not tell.
pub fn resident_memory() -> u64 {
    status("VmRSS:")
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    proc::bytes(&status, field).unwrap_or(0)
}

/// Processor time that all threads of this process have had, in seconds. Other programs do not add to it.
#[cfg(unix)]
pub fn processor_seconds() -> Option<f64> {
    Some(clock(rustix::time::ClockId::ProcessCPUTime))
}

/// Processor time of this process: not known here.
#[cfg(not(unix))]
pub fn processor_seconds() -> Option<f64> {
    None
}

/// Processor time that this thread has had, in seconds.
#[cfg(unix)]
pub fn thread_seconds() -> f64 {
    clock(rustix::time::ClockId::ThreadCPUTime)
}

/// Seconds on the clock, where the system does not tell the processor time of a thread.
#[cfg(not(unix))]
pub fn thread_seconds() -> f64 {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed().as_secs_f64()
}

#[cfg(unix)]
fn clock(id: rustix::time::ClockId) -> f64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
