//! From `--device`, `--threads` and `--precision` to a device.

use ssl::recipe::ResidualStream;
use tensor::{CpuOptions, CudaOptions, CudaPrecision, DType, Device, DeviceError, ResidualPrecision};

use crate::args::{AUTO, DeviceArgs, InferenceArgs, PrecisionArg};
use crate::devices::Devices;
use crate::error::CliError;

/// Why a device that was asked for is not used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceChoiceError {
    /// A GPU that cannot be used.
    #[error("--device {given}: {error}. `dino-vmf doctor` says what is there; --device cpu does without a GPU")]
    NoCuda {
        /// What was asked for.
        given: String,
        /// What is missing.
        error: DeviceError,
    },
    /// As [`DeviceChoiceError::NoCuda`], after a command that has printed the reason itself.
    #[error("--device {given}: this machine cannot do that; see above")]
    NotHere {
        /// What was asked for.
        given: String,
    },
    /// A precision that the CPU does not have.
    #[error(
        "--precision bf16: a CPU computes in f32 only{}. Leave --precision out, or choose a GPU with --device cuda",
        no_gpu.as_ref().map_or(String::new(), |reason| format!(", and {reason}"))
    )]
    Bf16OnCpu {
        /// Why there is no GPU, where one was looked for.
        no_gpu: Option<String>,
    },
    /// A number of threads that is none, or too large.
    #[error("{variable}={value}: it must be a whole number from 1 to {most}; unset it to compute on all cores")]
    Threads {
        /// The environment variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
        /// The most threads.
        most: u16,
    },
    /// No device of that name.
    #[error("--device {given}: there is no such device; use auto, cpu, cuda or cuda:N")]
    UnknownDevice {
        /// What was asked for.
        given: String,
    },
}

/// A device, and why it is not a GPU.
pub struct Chosen {
    /// The device.
    pub device: Device,
    /// Why not a GPU, where `auto` found none.
    pub no_gpu: Option<String>,
}

impl Chosen {
    /// The device in one line, with the reason why it is not a GPU.
    pub fn describe(&self) -> String {
        match &self.no_gpu {
            Some(reason) => format!("{} ({reason})", self.device.describe()),
            None => self.device.describe(),
        }
    }
}

impl DeviceArgs {
    /// A CPU device whatever `--device` says; `no_gpu` is kept as the reason.
    pub fn choose_cpu(&self, no_gpu: Option<String>) -> Result<Chosen, CliError> {
        Ok(Chosen { device: self.cpu()?, no_gpu })
    }

    /// A device for work that runs on the host even when the network is on a GPU: `device` itself if it is a CPU, else a
    /// CPU device with the threads of `--threads`.
    pub fn host(&self, device: &Device) -> Result<Device, CliError> {
        if device.is_gpu() { self.cpu() } else { Ok(device.clone()) }
    }

    fn cpu(&self) -> Result<Device, CliError> {
        Ok(Device::cpu(CpuOptions { threads: self.thread_count()?, ..Default::default() })?)
    }

    /// Opens the device of `--device`; a GPU in bf16, as for training.
    pub fn choose(&self) -> Result<Chosen, CliError> {
        self.choose_with(CudaOptions::default())
    }

    /// Opens the device of `--device` for training, or the GPU of this number: a GPU in bf16 with a residual stream of this type.
    pub fn choose_for_training(&self, residual: ResidualStream, gpu: Option<usize>) -> Result<Chosen, CliError> {
        let residual = match residual {
            ResidualStream::Bf16 => ResidualPrecision::Bf16,
            ResidualStream::F32 => ResidualPrecision::F32,
        };
        let device = gpu.map_or_else(|| self.device.clone(), |number| format!("cuda:{number}"));
        Self { device, ..self.clone() }.choose_with(CudaOptions { residual, ..CudaOptions::default() })
    }

    /// The number of the GPU that `--device` names; none where it names none.
    pub fn gpu_number(&self) -> Result<Option<usize>, CliError> {
        match self.device.strip_prefix("cuda") {
            Some("") => Ok(Some(0)),
            Some(rest) => match rest.strip_prefix(':').and_then(|n| n.parse().ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(DeviceChoiceError::UnknownDevice { given: self.device.clone() }.into()),
            },
            None if matches!(self.device.as_str(), "cpu" | AUTO) => Ok(None),
            None => Err(DeviceChoiceError::UnknownDevice { given: self.device.clone() }.into()),
        }
    }

    /// Opens the device of `--device`; a GPU in f32, as for evaluations.
    pub fn choose_exact(&self) -> Result<Chosen, CliError> {
        self.choose_with(CudaOptions { precision: CudaPrecision::F32, ..CudaOptions::default() })
    }

    /// Opens the device of `--device`; a GPU with these options but for its number.
    fn choose_with(&self, options: CudaOptions) -> Result<Chosen, CliError> {
        let given = self.device.clone();
        let gpu = |index| Device::cuda(CudaOptions { index, ..options });
        match self.device.as_str() {
            "cpu" => self.choose_cpu(None),
            AUTO => match gpu(0) {
                Ok(device) => Ok(Chosen { device, no_gpu: None }),
                Err(error) => self.choose_cpu(Some(error.to_string())),
            },
            _ => {
                let Some(index) = self.gpu_number()? else {
                    return Err(DeviceChoiceError::UnknownDevice { given }.into());
                };
                let device = gpu(index).map_err(|error| DeviceChoiceError::NoCuda { given, error })?;
                Ok(Chosen { device, no_gpu: None })
            }
        }
    }

    /// The number of threads from `--threads` or RAYON_NUM_THREADS; none for all cores.
    pub fn thread_count(&self) -> Result<Option<usize>, CliError> {
        match self.threads {
            Some(threads) => Ok(Some(threads.into())),
            None => threads_of_environment(),
        }
    }
}

/// The most threads that can be asked for: beyond that a system is busy with starting them.
pub const MAX_THREADS: u16 = 1024;
/// The variable that says how many threads compute.
const THREADS_VARIABLE: &str = "RAYON_NUM_THREADS";

/// The number of threads from RAYON_NUM_THREADS; none where it is not set, empty, or zero, which is rayon's word for all
/// cores. Anything else that is not a number of threads is an error: whoever sets the variable does not want all cores.
pub fn threads_of_environment() -> Result<Option<usize>, CliError> {
    let Some(value) = std::env::var_os(THREADS_VARIABLE) else { return Ok(None) };
    threads_of(&value.to_string_lossy())
}

fn threads_of(value: &str) -> Result<Option<usize>, CliError> {
    match value.trim() {
        "" | "0" => Ok(None),
        number => match number.parse() {
            Ok(threads @ 1..=MAX_THREADS) => Ok(Some(threads.into())),
            _ => Err(DeviceChoiceError::Threads {
                variable: THREADS_VARIABLE,
                value: value.to_owned(),
                most: MAX_THREADS,
            }
            .into()),
        },
    }
}

impl InferenceArgs {
    /// Opens the device of `--device` in the precision of `--precision`. bf16 on a CPU is an error rather than f32 with a
    /// warning: a script that asks for it compares either its speed or its rounding.
    pub fn open(&self) -> Result<Devices, CliError> {
        let precision = match self.precision {
            PrecisionArg::F32 => CudaPrecision::F32,
            PrecisionArg::Bf16 => CudaPrecision::Bf16,
        };
        let options = CudaOptions { precision, ..CudaOptions::default() };
        let Chosen { device, no_gpu } = self.machine.choose_with(options)?;
        if self.precision == PrecisionArg::Bf16 && !device.is_gpu() {
            return Err(DeviceChoiceError::Bf16OnCpu { no_gpu }.into());
        }
        match self.machine.device.as_str() {
            AUTO => Devices::with_others(device, options, self.gpus),
            _ => Ok(Devices::alone(device)),
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
        // The host's device beside a GPU, and the network's own where there is none.
        assert_eq!(args.cpu().unwrap().threads(), 3);
        assert_eq!(args.host(&args.choose().unwrap().device).unwrap().threads(), 3);
    }

    #[test]
    fn the_variable_is_a_number_of_threads_or_an_error() {
        assert!(matches!(threads_of(" 8 "), Ok(Some(8))));
        for unset in ["", "0", " "] {
            assert!(matches!(threads_of(unset), Ok(None)), "{unset:?}");
        }
        for wrong in ["x", "-1", "2.5", "1025", "100000", "99999999999999999999"] {
            let error = threads_of(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("RAYON_NUM_THREADS={wrong}:")) && error.contains("1 to 1024"), "{error}");
        }
    }

    #[test]
    fn a_cpu_computes_in_f32_and_nothing_else() {
        let open = |precision| {
            let machine = DeviceArgs { device: "cpu".to_owned(), threads: Some(1) };
            InferenceArgs { machine, precision, gpus: None }.open()
        };
        assert_eq!(super::precision(&open(PrecisionArg::F32).unwrap()), "f32");
        assert!(matches!(
            open(PrecisionArg::Bf16),
            Err(CliError::DeviceChoice(DeviceChoiceError::Bf16OnCpu { no_gpu: None }))
        ));
    }
}
