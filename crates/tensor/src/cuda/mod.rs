//! The operations on an NVIDIA GPU.
//!
//! One stream, on which all work is queued in the order of the calls, and another that brings images and finishes them, and where
//! several GPUs train together a third, on which sums travel (`nccl`); kernels of our own (`kernels/*.cu`) and matrix products by cuBLASLt. Activations are bf16 (or f32, for comparisons), the
//! residual stream is bf16 or f32, parameters and statistics f32. No operation returns an error: the first failure is
//! kept, later work is skipped, and `Device::finish` reports it.

mod arguments;
mod gemm;
mod library;
mod listing;
mod memory;
pub(crate) mod nccl;
mod pixels;
mod profile;
mod program;
mod rows;
mod transfer;

pub(crate) mod attention;
pub(crate) mod largest;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod optimizer;
pub(crate) mod prototypes;
pub(crate) mod residual;
pub(crate) mod scale;
pub(crate) mod tokens;
pub(crate) mod views;

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use cudarc::driver::{result, sys};

use crate::device::{CudaOptions, CudaPrecision, DeviceError, DeviceUse, ResidualPrecision};
use crate::tensor::{DType, Tensor};

pub(crate) use arguments::{Argument, arguments};
pub use library::{FoundLibrary, cuda_libraries};
pub use listing::{FoundGpu, found_gpus};
use listing::{driver, missing};
pub use pixels::UploadedPixels;
pub use profile::KernelTime;
pub(crate) use rows::DeviceRows;

use memory::{Arena, Piece};
use program::Types;

/// Threads of a block of an element-wise kernel.
const THREADS: u32 = 256;

/// The most blocks of the derivative of LayerNorm, and half of those of log-sums over rows. Fixed, for the same sums on any GPU.
const REDUCTION_BLOCKS: usize = 396;

/// Properties of a GPU, as its driver gives them.
#[derive(Clone, Debug)]
pub(crate) struct Properties {
    name: String,
    capability: (i32, i32),
    driver: i32,
    most_shared: i32,
    total_bytes: usize,
}

/// One GPU, or a plan of work on it.
pub(crate) struct Cuda {
    gpu: Arc<Gpu>,
    types: Types,
    arena: Arc<Arena>,
    /// Whether nothing is computed: addresses are handed out without memory behind them, to learn how much is needed.
    plans: bool,
    failure: Mutex<Option<DeviceError>>,
    profile: Mutex<Option<Vec<profile::Timed>>>,
    /// The way to other GPUs, where there are others: its failures are this one's.
    link: Mutex<Weak<nccl::Link>>,
}

/// What a GPU and plans on it have in common.
struct Gpu {
    context: sys::CUcontext,
    stream: sys::CUstream,
    properties: Properties,
    programs: program::Programs,
    blas: gemm::Blas,
    staging: transfer::Staging,
    slots: pixels::Slots,
}

// SAFETY: the driver's handles may be used from any thread; what is ours behind them is guarded by locks.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

thread_local! {
    /// The context that is current on this thread, as far as this module has set it.
    static CURRENT: Cell<sys::CUcontext> = const { Cell::new(std::ptr::null_mut()) };
}

impl Cuda {
    pub(crate) fn new(options: CudaOptions) -> Result<Self, DeviceError> {
        let count = listing::count()?;
        let index = match i32::try_from(options.index) {
            Ok(index) if index < count => index,
            _ => return Err(missing(format!("there is no GPU {}; this machine has {count}", options.index))),
        };
        let device = result::device::get(index).map_err(driver("the GPU does not answer"))?;
        let properties = properties(device).map_err(driver("the GPU's properties cannot be read"))?;
        if properties.capability < (8, 0) {
            let (major, minor) = properties.capability;
            return Err(missing(format!(
                "{} has compute capability {major}.{minor}; 8.0 or newer is needed",
                properties.name
            )));
        }
        // SAFETY: a valid device; the context is kept for the life of the process.
        let context = unsafe { result::primary_ctx::retain(device) }.map_err(driver("the GPU cannot be used"))?;
        // SAFETY: the context was just made.
        unsafe { result::ctx::set_current(context) }.map_err(driver("the GPU cannot be used"))?;
        CURRENT.set(context);
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(driver("no stream could be made on the GPU"))?;
        let arena = Arena::new();
        let cache = Some(files::cache_folder().join("kernels"));
        let types = match (options.precision, options.residual) {
            (CudaPrecision::F32, _) => Types::F32,
            (CudaPrecision::Bf16, ResidualPrecision::F32) => Types::Bf16WithF32Residual,
            (CudaPrecision::Bf16, ResidualPrecision::Bf16) => Types::Bf16,
        };
        let programs = program::Programs::new(&properties, types, cache);
        let blas = gemm::Blas::new(&arena, options.precision).map_err(missing)?;
        let staging = transfer::Staging::new().map_err(driver("no memory for copies to the GPU"))?;
        let slots = pixels::Slots::new().map_err(driver("no stream could be made on the GPU"))?;
        let gpu = Gpu { context, stream, properties, programs, blas, staging, slots };
        let (failure, profile, link) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { gpu: Arc::new(gpu), types, arena, plans: false, failure, profile, link })
    }

    /// The same GPU for a plan: operations take addresses without memory behind them, and nothing is computed.
    pub(crate) fn planner(&self) -> Self {
        let (failure, profile, link) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (gpu, arena) = (self.gpu.clone(), Arena::for_plan());
        Self { gpu, types: self.types, arena, plans: true, failure, profile, link }
    }

    /// Whether nothing is computed.
    pub(crate) fn is_planner(&self) -> bool {
        self.plans
    }

    /// Takes this much memory of the GPU at once, for the tensors to come.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), DeviceError> {
        self.bind();
        self.arena.reserve(bytes).map_err(|e| self.out_of_memory(&e))
    }

    /// Bytes of the GPU's memory that nobody has taken.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.bind();
        result::mem_get_info().ok().map(|(free, _)| free as u64)
    }

    fn out_of_memory(&self, e: &memory::Exhausted) -> DeviceError {
        let (free, total) = result::mem_get_info().unwrap_or((0, self.gpu.properties.total_bytes));
        DeviceError::OutOfMemory { wanted: e.wanted, held: e.held, free: free as u64, total: total as u64 }
    }

    pub(crate) fn describe(&self) -> String {
        let bits = match self.types {
            Types::Bf16 => "bf16",
            Types::Bf16WithF32Residual => "bf16 with an f32 residual stream",
            Types::F32 => "f32",
        };
        let gib = self.gpu.properties.total_bytes as f64 / (1u64 << 30) as f64;
        format!("cuda, {}, {gib:.0} GiB, {bits}", self.gpu.properties.name)
    }

    /// The type of activations.
    pub(crate) fn dtype(&self) -> DType {
        match self.types {
            Types::Bf16 | Types::Bf16WithF32Residual => DType::Bf16,
            Types::F32 => DType::F32,
        }
    }

    /// The type of the residual stream and its gradient.
    pub(crate) fn residual_dtype(&self) -> DType {
        match self.types {
            Types::Bf16 => DType::Bf16,
            Types::Bf16WithF32Residual | Types::F32 => DType::F32,
        }
    }

    pub(crate) fn memory_use(&self) -> DeviceUse {
        let tensors = self.arena.in_use();
        if self.plans {
            return tensors;
        }
        let pixels = self.gpu.slots.in_use();
        DeviceUse {
            live_bytes: tensors.live_bytes + pixels.live_bytes,
            peak_bytes: tensors.peak_bytes + pixels.peak_bytes,
        }
    }

    /// Dense bf16 matrix products by the data sheet, in GFLOP/s, where it is known.
    pub(crate) fn peak_gflops(&self) -> Option<f64> {
        let name = &self.gpu.properties.name;
        // Cards of the same chip for other slots have other clocks.
        let is = |part: &str| name.contains(part) && !name.contains("PCIe") && !name.contains("NVL");
        if is("H200") || is("H100") {
            Some(989_400.0)
        } else if is("A100") {
            Some(312_000.0)
        } else {
            None
        }
    }

    /// Makes this device's context current on the calling thread.
    pub(crate) fn bind(&self) {
        if !self.plans && CURRENT.get() != self.gpu.context {
            // SAFETY: the context lives as long as the process.
            let done = unsafe { result::ctx::set_current(self.gpu.context) };
            self.check("making the GPU current", done);
            CURRENT.set(self.gpu.context);
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether work is to be queued: not for a plan, and not after a failure.
    fn is_usable(&self) -> bool {
        !self.plans && self.failure().is_none()
    }

    /// Keeps the first failure.
    fn fail(&self, error: DeviceError) {
        self.failure().get_or_insert(error);
    }

    fn check(&self, what: &str, done: Result<(), result::DriverError>) {
        if let Err(e) = done {
            self.fail(DeviceError::Gpu { what: what.into(), reason: e.to_string() });
        }
    }

    /// Waits for all queued work. A failure stays after it was reported: the GPU is not used again.
    pub(crate) fn finish(&self) -> Result<(), DeviceError> {
        self.bind();
        if self.is_usable() {
            // SAFETY: our stream.
            let done = unsafe { result::stream::synchronize(self.gpu.stream) };
            self.check("waiting for the GPU", done);
        }
        self.known_failure()
    }

    /// The failure that is known without waiting.
    pub(crate) fn known_failure(&self) -> Result<(), DeviceError> {
        let link = self.link.lock().unwrap_or_else(std::sync::PoisonError::into_inner).upgrade();
        if let Some(Err(error)) = link.map(|link| link.check()) {
            self.fail(DeviceError::Gpu { what: "sums with other GPUs".into(), reason: error.to_string() });
        }
        self.failure().clone().map_or(Ok(()), Err)
    }

    /// Counts failures on the way to other GPUs as this one's.
    fn follow(&self, link: &Arc<nccl::Link>) {
        *self.link.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::downgrade(link);
    }

    /// Device memory; after a failure an empty piece that no kernel will touch.
    pub(crate) fn allocate(&self, len: usize, dtype: DType) -> CudaBuffer {
        CudaBuffer { piece: self.allocate_piece(len * dtype.size()), dtype, len, copy: OnceLock::new(), sums: None }
    }

    fn allocate_piece(&self, bytes: usize) -> Option<Piece> {
        self.bind();
        match self.arena.take(bytes) {
            Ok(piece) => Some(piece),
            Err(e) => {
                self.fail(self.out_of_memory(&e));
                None
            }
        }
    }

    /// The most shared memory that a kernel may ask for, beside a little that it declares.
    fn most_shared(&self) -> usize {
        (self.gpu.properties.most_shared as usize).saturating_sub(1024)
    }

    /// Whether a block may have this much shared memory.
    fn fits_shared(&self, bytes: usize) -> bool {
        bytes <= self.most_shared()
    }

    /// Scratch memory of raw bytes.
    fn scratch(&self, bytes: usize) -> CudaBuffer {
        self.allocate(bytes.div_ceil(4), DType::F32)
    }

    /// Queues a kernel.
    pub(crate) fn launch(
        &self,
        kernel: (&'static str, &'static str),
        grid: (u32, u32, u32),
        block: (u32, u32),
        shared: usize,
        arguments: &[Argument],
    ) {
        self.launch_on(self.gpu.stream, kernel, grid, block, shared, arguments);
    }

    /// Queues a kernel on one of our streams.
    fn launch_on(
        &self,
        stream: sys::CUstream,
        (file, name): (&'static str, &'static str),
        grid: (u32, u32, u32),
        block: (u32, u32),
        shared: usize,
        arguments: &[Argument],
    ) {
        if grid.0 == 0 || grid.1 == 0 || grid.2 == 0 || !self.is_usable() {
            return;
        }
        self.bind();
        let function = match self.gpu.programs.function(file, name) {
            Ok(function) => function,
            Err(e) => {
                return self.fail(DeviceError::Gpu { what: "making a kernel ready".into(), reason: e.to_string() });
            }
        };
        let mut pointers: Vec<_> = arguments.iter().map(Argument::pointer).collect();
        let block = (block.0, block.1, 1);
        // SAFETY: the arguments are those of the kernel of this name, and outlive the call; memory that they point to is
        // held by tensors or scratch that live until later work is queued, or by a slot, whose events order its use.
        let mut launch =
            || unsafe { result::launch_kernel(function.0, grid, block, shared as u32, stream, &mut pointers) };
        // A profile is of the stream that computes.
        let done = if stream == self.gpu.stream { self.timed(file, || name.to_owned(), launch) } else { launch() };
        self.check(name, done);
    }

    /// Queues a kernel with one thread an element.
    pub(crate) fn launch_flat(&self, kernel: (&'static str, &'static str), threads: usize, arguments: &[Argument]) {
        let blocks = threads.div_ceil(THREADS as usize);
        self.launch(kernel, (blocks as u32, 1, 1), (THREADS, 1), 0, arguments);
    }

    /// Queues a kernel with one warp a row.
    pub(crate) fn launch_rows(&self, kernel: (&'static str, &'static str), rows: usize, arguments: &[Argument]) {
        self.launch_flat(kernel, rows * 32, arguments);
    }

    /// Sets elements.
    pub(crate) fn fill(&self, buffer: &mut CudaBuffer, value: f64) {
        let address = buffer.address_mut();
        if value == 0.0 {
            return self.clear(address, buffer.len * buffer.dtype.size());
        }
        let kernel = if buffer.dtype == self.dtype() { "fill_act" } else { "fill_f32" };
        self.launch_flat(("elementwise", kernel), buffer.len, &arguments![address, buffer.len as i64, value as f32]);
    }

    /// The copy of an f32 tensor in the type of activations, for a matrix product to read; made when first asked for.
    pub(crate) fn for_product(&self, tensor: &Tensor) -> u64 {
        let buffer = tensor.cuda_buffer();
        if buffer.dtype == self.dtype() {
            return buffer.address();
        }
        let copy = buffer.copy.get_or_init(|| {
            let copy = self.allocate(buffer.len, self.dtype());
            let arguments = arguments![buffer.address(), buffer.len as i64, copy.address()];
            self.launch_flat(("elementwise", "f32_to_act"), buffer.len, &arguments);
            Box::new(copy)
        });
        copy.address()
    }
}

/// Memory of a tensor.
pub(crate) struct CudaBuffer {
    piece: Option<Piece>,
    pub dtype: DType,
    pub len: usize,
    /// The same values in the type of activations, where a matrix product has asked for them.
    copy: OnceLock<Box<CudaBuffer>>,
    /// Partial sums [chunks, columns] over the rows, where the kernel that wrote the values made them on the way.
    sums: Option<Box<CudaBuffer>>,
}

impl CudaBuffer {
    /// Its address; 0 after a failed allocation.
    pub(crate) fn address(&self) -> u64 {
        self.piece.as_ref().map_or(0, Piece::address)
    }

    /// Its address, for writing: forgets the copy and the sums of the old values.
    pub(crate) fn address_mut(&mut self) -> u64 {
        self.copy = OnceLock::new();
        self.sums = None;
        self.address()
    }

    /// Partial sums over the rows, if they are known.
    pub(crate) fn column_sums(&self) -> Option<&CudaBuffer> {
        self.sums.as_deref()
    }

    pub(crate) fn keep_column_sums(&mut self, sums: CudaBuffer) {
        self.sums = Some(Box::new(sums));
    }

    /// The copy for matrix products if there is one, for a kernel that writes both.
    pub(crate) fn copy_address(&self) -> u64 {
        self.copy.get().map_or(0, |c| c.address())
    }
}

fn properties(device: sys::CUdevice) -> Result<Properties, result::DriverError> {
    use sys::CUdevice_attribute_enum as A;
    // SAFETY: a valid device.
    let attribute = |a| unsafe { result::device::get_attribute(device, a) };
    let mut driver = 0;
    // SAFETY: one integer to write.
    unsafe { sys::cuDriverGetVersion(&raw mut driver) }.result()?;
    Ok(Properties {
        name: result::device::get_name(device)?,
        capability: (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver,
        most_shared: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        // SAFETY: a valid device.
        total_bytes: unsafe { result::device::total_mem(device)? },
    })
}
