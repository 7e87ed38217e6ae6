//! The memory of this machine, and whether a run fits into it: a system that has none left ends a program without a word.

use std::fs;
use std::path::Path;

use ssl::memory::{MemoryNeed, estimate_on_cpu};
use tensor::Device;
use text::bytes;

use crate::error::CliError;
use crate::output;
use crate::proc;

/// An estimate may be too high by this factor.
const DOUBT: f64 = 0.8;

/// Bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Of the machine, or of the container that this runs in.
    pub total: u64,
    /// Of that, what a program may still take.
    pub available: u64,
    /// On disk, beside it.
    pub swap: u64,
}

impl HostMemory {
    /// What this system says; nothing where it does not.
    pub fn read() -> Option<Self> {
        let info = fs::read_to_string("/proc/meminfo").ok()?;
        let group = |file: &str| fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()?.trim().parse().ok();
        Some(Self::parse(&info)?.within(group("memory.max"), group("memory.current")))
    }

    fn parse(info: &str) -> Option<Self> {
        Some(Self {
            total: proc::bytes(info, "MemTotal:")?,
            available: proc::bytes(info, "MemAvailable:")?,
            swap: proc::bytes(info, "SwapTotal:").unwrap_or(0),
        })
    }

    /// The same for a container with a limit.
    fn within(self, most: Option<u64>, used: Option<u64>) -> Self {
        let Some(most) = most.filter(|&most| most < self.total) else { return self };
        let left = most.saturating_sub(used.unwrap_or(0));
        Self { total: most, available: self.available.min(left), ..self }
    }
}

/// Warns of work on the CPU that needs more memory than there is, and refuses what cannot fit. A GPU plans its own.
pub fn check(device: &Device, need: &MemoryNeed<'_>) -> Result<(), CliError> {
    let Some(memory) = HostMemory::read().filter(|_| !device.is_gpu()) else { return Ok(()) };
    let need = estimate_on_cpu(device, need)? as u64;
    if let Some(warning) = judge(need, &memory)? {
        output::note(&warning);
    }
    Ok(())
}

fn judge(need: u64, memory: &HostMemory) -> Result<Option<String>, CliError> {
    let HostMemory { total, available, swap } = *memory;
    if DOUBT * need as f64 > (total + swap) as f64 {
        return Err(CliError::TooLittleMemory { need, total });
    }
    let (needed, free) = (bytes(need), bytes(available));
    Ok((need > available).then(|| {
        format!(
            "warning: this needs about {needed} of memory and {free} are free. If the system ends it without a word: \
             {SMALLER}"
        )
    }))
}

/// What makes it smaller.
pub const SMALLER: &str = "a smaller --batch-size or --arch, the batch in parts (--accumulate 4), or activations that are \
                           recomputed (--checkpoint-activations, a quarter more time)";

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_is_read_in_bytes_and_a_container_may_have_less() {
        let info = "MemTotal:       24577352 kB\nMemFree:        1 kB\nMemAvailable:   23000000 kB\nSwapTotal: 8 kB\n";
        let machine = HostMemory::parse(info).unwrap();
        let expected = HostMemory { total: 24_577_352 * 1024, available: 23_000_000 * 1024, swap: 8192 };
        assert_eq!(machine, expected);
        assert_eq!(HostMemory::parse("MemTotal: 3 kB"), None);
        assert_eq!(machine.within(None, Some(5)), machine);
        assert_eq!(machine.within(Some(u64::MAX), Some(5)), machine);
        assert_eq!(machine.within(Some(GIB), Some(1000)), HostMemory { total: GIB, available: GIB - 1000, swap: 8192 });
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused_and_one_that_may_not_is_warned_of() {
        let memory = HostMemory { total: 8 * GIB, available: 6 * GIB, swap: 0 };
        assert_eq!(judge(5 * GIB, &memory).unwrap(), None);
        let warning = judge(7 * GIB, &memory).unwrap().unwrap();
        assert!(warning.contains("about 7.0 GiB") && warning.contains("6.0 GiB are free"), "{warning}");
        let error = judge(11 * GIB, &memory).unwrap_err().to_string();
        assert!(error.contains("11.0 GiB") && error.contains("--batch-size"), "{error}");
        assert!(judge(11 * GIB, &HostMemory { swap: 2 * GIB, ..memory }).unwrap().is_some());
    }
}
