//! From `--device`, `--threads` and `--precision` to a device.

use tensor::{CpuOptions, CudaOptions, CudaPrecision, DType, Device};

use crate::args::{DeviceArgs, InferenceArgs, PrecisionArg};
use crate::error::CliError;

/// A device, and why it is not a GPU.
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

    /// The device that was asked for; a GPU in the precision of training.
    pub fn choose(&self) -> Result<Chosen, CliError> {
        self.choose_in(CudaPrecision::Bf16)
    }

    /// The device that was asked for; a GPU in this precision.
    fn choose_in(&self, precision: CudaPrecision) -> Result<Chosen, CliError> {
        let given = self.device.clone();
        let gpu = |index| Device::cuda(CudaOptions { index, precision });
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

impl InferenceArgs {
    /// The device that was asked for, in the precision that was asked for. An error where it does not have that one:
    /// whoever asks for bf16 wants its speed or its rounding, and a CPU offers neither.
    pub fn open(&self) -> Result<Device, CliError> {
        let precision = match self.precision {
            PrecisionArg::F32 => CudaPrecision::F32,
            PrecisionArg::Bf16 => CudaPrecision::Bf16,
        };
        let Chosen { device, no_gpu } = self.machine.choose_in(precision)?;
        match self.precision {
            PrecisionArg::Bf16 if !device.is_gpu() => Err(CliError::Bf16OnCpu { no_gpu }),
            _ => Ok(device),
        }
    }
}

/// The name of the precision that a device computes activations in.
pub fn precision(device: &Device) -> &'static str {
    match device.dtype() {
        DType::Bf16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
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
        assert_eq!(args.host(&args.choose().unwrap().device).unwrap().threads(), 3);
    }

    #[test]
    fn a_cpu_computes_in_f32_and_nothing_else() {
        let open = |precision| {
            let machine = DeviceArgs { device: "cpu".to_owned(), threads: Some(1) };
            InferenceArgs { machine, precision }.open()
        };
        assert_eq!(super::precision(&open(PrecisionArg::F32).unwrap()), "f32");
        assert!(matches!(open(PrecisionArg::Bf16), Err(CliError::Bf16OnCpu { no_gpu: None })));
    }
}
