//! From `--device` and `--threads` to a device.

use tensor::{CpuOptions, Device};

use crate::args::DeviceArgs;
use crate::error::CliError;

impl DeviceArgs {
    /// Opens the device that was asked for.
    pub fn open(&self) -> Result<Device, CliError> {
        let given = self.device.clone();
        match self.device.split(':').next() {
            Some("auto" | "cpu") if !self.device.contains(':') => {}
            Some("cuda") => return Err(CliError::NoCuda { given }),
            _ => return Err(CliError::UnknownDevice { given }),
        }
        Ok(Device::cpu(CpuOptions { threads: self.thread_count(), ..Default::default() })?)
    }

    /// Threads asked for by flag or environment; none where all cores may be used.
    pub fn thread_count(&self) -> Option<usize> {
        // As rayon reads its variable: what is no number, or zero, asks for nothing.
        let from_environment = || std::env::var("RAYON_NUM_THREADS").ok()?.trim().parse().ok().filter(|&n| n > 0);
        self.threads.map(usize::from).or_else(from_environment)
    }
}
