//! Where tensors live and who computes on them.

use std::sync::Arc;

use crate::cpu::Cpu;
use crate::tensor::{DType, Tensor};

/// The element type that a CPU device computes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision: training.
    #[default]
    F32,
    /// Double precision: golden values and gradient checks, with the same code.
    F64,
}

/// How to set up a CPU device.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions {
    /// Worker threads; all cores where not given. Never changes a result, only its speed.
    pub threads: Option<usize>,
    /// Element type of every tensor on the device.
    pub precision: Precision,
}

/// A device could not be set up, or failed while it worked.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The operating system refused the threads.
    #[error("could not start {threads} worker threads: {reason}. Ask for fewer with --threads")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// What a device has used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Bytes held by tensors now.
    pub live_bytes: usize,
    /// The most bytes ever held by the device's memory, tensors and free buffers together.
    pub peak_bytes: usize,
}

/// A handle to a device; cheap to clone.
///
/// ```
/// use tensor::{CpuOptions, Device};
/// let device = Device::cpu(CpuOptions::default())?;
/// let x = device.from_f64(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(x.to_f64(), [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), tensor::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

/// The kinds of device. A second kind joins here, and in the `match` of each operation.
enum Inner {
    Cpu(Cpu),
}

impl Device {
    /// A device on the host's cores.
    pub fn cpu(options: CpuOptions) -> Result<Self, DeviceError> {
        Ok(Self { inner: Arc::new(Inner::Cpu(Cpu::new(options)?)) })
    }

    /// One line for people: what computes, with how many threads and which instructions.
    pub fn describe(&self) -> String {
        let Inner::Cpu(cpu) = &*self.inner;
        cpu.describe()
    }

    /// The element type of activations and parameters.
    pub fn dtype(&self) -> DType {
        let Inner::Cpu(cpu) = &*self.inner;
        cpu.dtype()
    }

    /// How many workers compute.
    pub fn threads(&self) -> usize {
        let Inner::Cpu(cpu) = &*self.inner;
        cpu.threads()
    }

    /// Memory held by this device's tensors.
    pub fn memory(&self) -> DeviceUse {
        let Inner::Cpu(cpu) = &*self.inner;
        cpu.memory_use()
    }

    /// Waits for all work and reports what went wrong in it. Work on the host is done when its call returns.
    pub fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Runs a body on the device's own threads. Operations inside it need no hand-over from the caller's thread, which for
    /// the hundreds of operations of a training step is a twentieth of its time.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        self.as_cpu().install(body)
    }

    /// A tensor whose content is not set: the caller writes all of it before reading any.
    pub fn empty(&self, shape: &[usize]) -> Tensor {
        Tensor::empty(self, shape)
    }

    /// A tensor of zeros.
    pub fn zeros(&self, shape: &[usize]) -> Tensor {
        let mut t = self.empty(shape);
        t.fill(0.0);
        t
    }

    /// A tensor from host values, rounded to the device's element type.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn from_f64(&self, shape: &[usize], values: &[f64]) -> Tensor {
        let mut t = self.empty(shape);
        t.copy_from_f64(values);
        t
    }

    /// A tensor from single-precision host values.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn from_f32(&self, shape: &[usize], values: &[f32]) -> Tensor {
        let mut t = self.empty(shape);
        t.copy_from_f32(values);
        t
    }

    pub(crate) fn as_cpu(&self) -> &Cpu {
        let Inner::Cpu(cpu) = &*self.inner;
        cpu
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}
