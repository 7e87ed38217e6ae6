//! From `--device` and `--threads` to a device.

use tensor::{CpuOptions, CudaOptions, Device};

use crate::args::DeviceArgs;
use crate::error::CliError;

/// A device, and what there is to say about why it is this one.
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// Why not a GPU, where `auto` found none.
    pub no_gpu: Option<String>,
}

impl Chosen {
    /// One line for people.
    pub fn describe(&self) -> String {
        match &self.no_gpu {
            Some(reason) => format!("{} ({reason})", self.device.describe()),
            None => self.device.describe(),
        }
    }
}

impl DeviceArgs {
    /// Opens the device that was asked for.
    pub fn open(&self) -> Result<Device, CliError> {
        Ok(self.choose()?.device)
    }

    /// The CPU, whatever was asked for, and why not a GPU where one was wanted.
    pub fn choose_cpu(&self, no_gpu: Option<String>) -> Result<Chosen, CliError> {
        Ok(Chosen { device: self.cpu()?, no_gpu })
    }

    /// For work that is the host's wherever the network is: the given device where that is a CPU, or else a CPU device
    /// with as many threads as were asked for.
    pub fn host(&self, device: &Device) -> Result<Device, CliError> {
        if device.is_gpu() { self.cpu() } else { Ok(device.clone()) }
    }

    fn cpu(&self) -> Result<Device, CliError> {
        Ok(Device::cpu(CpuOptions { threads: self.thread_count(), ..Default::default() })?)
    }

    /// The device that was asked for, with the reason for the choice.
    pub fn choose(&self) -> Result<Chosen, CliError> {
        let given = self.device.clone();
        let gpu = |index| Device::cuda(CudaOptions { index, ..Default::default() });
        match self.device.as_str() {
            "cpu" => self.choose_cpu(None),
            "auto" => match gpu(0) {
                Ok(device) => Ok(Chosen { device, no_gpu: None }),
                Err(error) => self.choose_cpu(Some(error.to_string())),
            },
            other => {
                let index = match other.strip_prefix("cuda") {
                    Some("") => Some(0),
                    Some(rest) => rest.strip_prefix(':').and_then(|n| n.parse().ok()),
                    None => None,
                };
                let Some(index) = index else { return Err(CliError::UnknownDevice { given }) };
                let device = gpu(index).map_err(|error| CliError::NoCuda { given, error })?;
                Ok(Chosen { device, no_gpu: None })
            }
        }
    }

    /// Threads asked for by flag or environment; none where all cores may be used.
    pub fn thread_count(&self) -> Option<usize> {
        // As rayon reads its variable: what is no number, or zero, asks for nothing.
        let from_environment = || std::env::var("RAYON_NUM_THREADS").ok()?.trim().parse().ok().filter(|&n| n > 0);
        self.threads.map(usize::from).or_else(from_environment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_computes_with_as_many_threads_as_were_asked_for() {
        let args = DeviceArgs { device: "cpu".to_owned(), threads: Some(3) };
        // What a network on a GPU leaves to the host, and what one on the CPU does.
        assert_eq!(args.cpu().unwrap().threads(), 3);
        assert_eq!(args.host(&args.open().unwrap()).unwrap().threads(), 3);
    }
}
