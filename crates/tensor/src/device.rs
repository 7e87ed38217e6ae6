//! Where tensors live and who computes on them.

use std::sync::Arc;

use crate::cpu::Cpu;
use crate::cuda::views::can_edit;
use crate::cuda::{Cuda, KernelTime, UploadedPixels};
use crate::ops::ViewEdit;
use crate::rows::Rows;
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

/// The element type of activations on a GPU. Parameters, statistics and losses are f32 in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CudaPrecision {
    /// bfloat16 on tensor cores: training.
    #[default]
    Bf16,
    /// Single precision, several times slower: comparisons with the CPU.
    F32,
}

/// The element type of the residual stream and its gradient on a GPU, which is never smaller than that of activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResidualPrecision {
    /// bfloat16, the least memory to move.
    #[default]
    Bf16,
    /// Single precision, as PyTorch keeps the stream under autocast: sums over the blocks are not rounded to bfloat16.
    F32,
}

/// How to set up a GPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaOptions {
    /// Which GPU, from 0.
    pub index: usize,
    /// Element type of activations.
    pub precision: CudaPrecision,
    /// Element type of the residual stream; with f32 activations it is f32 in any case.
    pub residual: ResidualPrecision,
}

/// A device could not be set up, or failed while it worked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The operating system refused the threads.
    #[error("could not start {threads} worker threads: {reason}. Ask for fewer with --threads")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
    /// The environment names an instruction set that there is not.
    #[error(transparent)]
    InstructionSet(#[from] simd::UnknownLevel),
    /// There is no GPU to use.
    #[error("no GPU can be used: {reason}")]
    NoCuda {
        /// What is missing.
        reason: String,
    },
    /// The GPU's memory is not enough.
    #[error(
        "the GPU's memory is used up: {} more are needed, {} are held already and {} of {} are free. Ways out: a smaller \
         --batch-size, --accumulate 4 (the batch in four parts), --checkpoint-activations (a quarter more time)",
        Gib(*wanted), Gib(*held), Gib(*free), Gib(*total)
    )]
    OutOfMemory {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that this program holds.
        held: u64,
        /// Bytes that the GPU has left.
        free: u64,
        /// Bytes that the GPU has.
        total: u64,
    },
    /// The GPU or its libraries failed in the middle of work.
    #[error("the GPU failed ({what}): {reason}")]
    Gpu {
        /// During which work.
        what: String,
        /// What the driver said.
        reason: String,
    },
}

/// Bytes for people.
struct Gib(u64);

impl std::fmt::Display for Gib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} GiB", self.0 as f64 / (1u64 << 30) as f64)
    }
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

/// The kinds of device.
enum Inner {
    Cpu(Cpu),
    Cuda(Box<Cuda>),
}

impl Device {
    /// A device on the host's cores; an error where the environment asks for an instruction set that is not known.
    pub fn cpu(options: CpuOptions) -> Result<Self, DeviceError> {
        Ok(Self { inner: Arc::new(Inner::Cpu(Cpu::new(options)?)) })
    }

    /// A GPU of NVIDIA's; an error that names what is missing where there is none.
    pub fn cuda(options: CudaOptions) -> Result<Self, DeviceError> {
        Ok(Self { inner: Arc::new(Inner::Cuda(Box::new(Cuda::new(options)?))) })
    }

    /// One line for people: what computes, with how many threads and which instructions.
    pub fn describe(&self) -> String {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.describe(),
            Inner::Cuda(cuda) => cuda.describe(),
        }
    }

    /// The element type of activations.
    pub fn dtype(&self) -> DType {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.dtype(),
            Inner::Cuda(cuda) => cuda.dtype(),
        }
    }

    /// The element type of parameters, statistics and losses.
    pub fn exact_dtype(&self) -> DType {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.dtype(),
            Inner::Cuda(_) => DType::F32,
        }
    }

    /// The element type of the residual stream and of its gradient.
    pub fn residual_dtype(&self) -> DType {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.dtype(),
            Inner::Cuda(cuda) => cuda.residual_dtype(),
        }
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.as_cuda().is_some()
    }

    /// How many threads of the host compute.
    pub fn threads(&self) -> usize {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.threads(),
            Inner::Cuda(_) => 1,
        }
    }

    /// Memory held by this device's tensors.
    pub fn memory(&self) -> DeviceUse {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.memory_use(),
            Inner::Cuda(cuda) => cuda.memory_use(),
        }
    }

    /// Waits for all work and reports a failure in it. Work on the host is done when its call returns; images that are
    /// on their way to a GPU are waited for by what reads them.
    pub fn finish(&self) -> Result<(), DeviceError> {
        match &*self.inner {
            Inner::Cpu(_) => Ok(()),
            Inner::Cuda(cuda) => cuda.finish(),
        }
    }

    /// Reports a failure that is known already, without waiting for work that is still queued.
    pub fn check(&self) -> Result<(), DeviceError> {
        match &*self.inner {
            Inner::Cpu(_) => Ok(()),
            Inner::Cuda(cuda) => cuda.known_failure(),
        }
    }

    /// Runs a body on the device's own threads. Operations inside it need no hand-over from the caller's thread, which for
    /// the hundreds of operations of a training step is a twentieth of its time.
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu.install(body),
            Inner::Cuda(_) => body(),
        }
    }

    /// Runs a body on a device that computes nothing and counts the memory that the same work would take on this one; none
    /// for a CPU, whose memory is not planned. Results of operations are zeros on the host.
    pub fn count_memory<R>(&self, body: impl FnOnce(&Device) -> R) -> Option<(R, DeviceUse)> {
        let planner = Device { inner: Arc::new(Inner::Cuda(Box::new(self.as_cuda()?.planner()))) };
        let done = body(&planner);
        Some((done, planner.memory()))
    }

    /// The same for work that follows: the matrix products that were met are timed on this device, which takes memory for
    /// their operands for a moment.
    pub fn plan<R>(&self, body: impl FnOnce(&Device) -> R) -> Option<(R, DeviceUse)> {
        let counted = self.count_memory(body)?;
        self.as_cuda()?.choose_planned_products();
        Some(counted)
    }

    /// Whether this is the device of [`Device::count_memory`] or [`Device::plan`]: work whose size is drawn at random is
    /// then to be as large as it can be.
    pub fn is_planner(&self) -> bool {
        self.as_cuda().is_some_and(Cuda::is_planner)
    }

    /// Bytes of a GPU's memory that nobody has taken; none for a CPU, or where the driver does not say.
    pub fn free_memory(&self) -> Option<u64> {
        self.as_cuda()?.free_memory()
    }

    /// Takes memory of a GPU at once, for the tensors to come and for the pixels of batches sent to it, so that work which
    /// does not fit fails now.
    pub fn reserve(&self, tensors: usize, pixels: usize) -> Result<(), DeviceError> {
        let Some(cuda) = self.as_cuda() else { return Ok(()) };
        cuda.reserve(tensors as u64)?;
        cuda.reserve_pixels(pixels as u64)
    }

    /// Starts sending the bytes of images to a GPU, beside whatever it computes; none for a CPU, which reads them where they
    /// are.
    pub fn upload_pixels(&self, pixels: &[u8]) -> Option<UploadedPixels> {
        self.as_cuda().map(|cuda| cuda.upload_pixels(pixels, None))
    }

    /// As [`Self::upload_pixels`] for RGB views of one (height, width), to each of which something is done once it is there.
    ///
    /// # Panics
    /// When there is not one edit for each view, one changes the contrast twice, or [`Self::can_edit`] says no.
    pub fn upload_views(&self, pixels: &[u8], size: (usize, usize), edits: &[ViewEdit]) -> Option<UploadedPixels> {
        let cuda = self.as_cuda()?;
        assert_eq!(pixels.len(), edits.len() * size.0 * size.1 * 3, "one edit a view");
        assert!(self.can_edit(size, 3), "views of {size:?} are not edited on a GPU");
        assert!(edits.iter().all(|edit| edit.contrasts() <= 1), "a view has one mean luma for its contrast");
        Some(cuda.upload_pixels(pixels, Some((size, edits))))
    }

    /// Whether views of this (height, width) and number of channels can be sent with [`Self::upload_views`].
    pub fn can_edit(&self, (height, width): (usize, usize), channels: usize) -> bool {
        self.is_gpu() && can_edit(height, width, channels)
    }

    /// Makes the form of these rows that a GPU needs, all at once; otherwise each is made when an operation first asks for
    /// it. Nothing for a CPU.
    pub fn prepare_rows(&self, rows: &[&Rows]) {
        if let Some(cuda) = self.as_cuda() {
            cuda.prepare_rows(rows);
        }
    }

    /// Makes a GPU fail under a kernel, as one does that is lost: for tests. Nothing can be computed on it by this process
    /// any more. Nothing happens to a CPU.
    #[doc(hidden)]
    pub fn lose(&self) {
        if let Some(cuda) = self.as_cuda() {
            cuda.launch(("elementwise", "fail"), (1, 1, 1), (1, 1), 0, &[]);
        }
    }

    /// Runs a body and says where the GPU's time went in it; nothing for a CPU.
    pub fn profile<R>(&self, body: impl FnOnce() -> R) -> (R, Vec<KernelTime>) {
        match &*self.inner {
            Inner::Cpu(_) => (body(), Vec::new()),
            Inner::Cuda(cuda) => cuda.profile(body),
        }
    }

    /// Dense bf16 matrix products by the data sheet, in GFLOP/s; none for a CPU or a GPU that is not known.
    pub fn peak_gflops(&self) -> Option<f64> {
        self.as_cuda().and_then(Cuda::peak_gflops)
    }

    /// A tensor of activations whose content is not set: the caller writes all of it before reading any.
    pub fn empty(&self, shape: &[usize]) -> Tensor {
        Tensor::empty(self, shape, self.dtype())
    }

    /// The same for parameters, statistics and losses.
    pub fn empty_exact(&self, shape: &[usize]) -> Tensor {
        Tensor::empty(self, shape, self.exact_dtype())
    }

    /// The same for the residual stream and its gradient.
    pub fn empty_residual(&self, shape: &[usize]) -> Tensor {
        Tensor::empty(self, shape, self.residual_dtype())
    }

    /// A tensor of activations, all zero.
    pub fn zeros(&self, shape: &[usize]) -> Tensor {
        let mut t = self.empty(shape);
        t.fill(0.0);
        t
    }

    /// The same for parameters, statistics and losses.
    pub fn zeros_exact(&self, shape: &[usize]) -> Tensor {
        let mut t = self.empty_exact(shape);
        t.fill(0.0);
        t
    }

    /// A tensor of activations from host values, rounded to their type.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn from_f64(&self, shape: &[usize], values: &[f64]) -> Tensor {
        let mut t = self.empty(shape);
        t.copy_from_f64(values);
        t
    }

    /// The same for parameters, statistics and losses.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn exact_from_f64(&self, shape: &[usize], values: &[f64]) -> Tensor {
        let mut t = self.empty_exact(shape);
        t.copy_from_f64(values);
        t
    }

    /// The same for the residual stream and its gradient.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn residual_from_f64(&self, shape: &[usize], values: &[f64]) -> Tensor {
        let mut t = self.empty_residual(shape);
        t.copy_from_f64(values);
        t
    }

    /// A tensor of activations from single-precision host values.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn from_f32(&self, shape: &[usize], values: &[f32]) -> Tensor {
        let mut t = self.empty(shape);
        t.copy_from_f32(values);
        t
    }

    /// The same for the residual stream.
    ///
    /// # Panics
    /// When the number of values is not the shape's.
    pub fn residual_from_f32(&self, shape: &[usize], values: &[f32]) -> Tensor {
        let mut t = self.empty_residual(shape);
        t.copy_from_f32(values);
        t
    }

    pub(crate) fn as_cpu(&self) -> &Cpu {
        match &*self.inner {
            Inner::Cpu(cpu) => cpu,
            Inner::Cuda(_) => unreachable!("an operation of the host on a tensor of the GPU"),
        }
    }

    pub(crate) fn as_cuda(&self) -> Option<&Cuda> {
        match &*self.inner {
            Inner::Cpu(_) => None,
            Inner::Cuda(cuda) => Some(cuda),
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}
