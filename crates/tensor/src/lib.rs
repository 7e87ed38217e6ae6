//! Device memory and the operations of a vision transformer, forward and backward.
//!
//! There is no autograd here. The family of models is small and fixed, so each of its operations is written once,
//! with its derivative beside it, and checked to the last digit. What a caller sees:
//!
//! * [`Device`] picks where memory lives and who computes; [`Tensor`] is dense, row-major memory on it.
//! * [`Rows`] names the segments (crops) of a packed token matrix that an operation works on. Leaving a crop out of a
//!   residual branch (drop path), or keeping only class tokens, is leaving rows out.
//! * [`ops`] holds the operations. They never fail for a reason that a user could cause: wrong shapes are mistakes of
//!   the caller and panic; a failure of a device is kept by the device and reported by [`Device::finish`].
//! * [`ParamSet`] is one vector of the parameter space: student, teacher, gradient and moments are each one of them.
//!
//! A CPU device computes in f32 for speed or in f64 for verification with the same code ([`Precision`]). The number of
//! threads never changes a bit of a result: work is cut into pieces by shape alone and partial sums are added in order.

mod cpu;
mod cuda;
mod device;
pub mod ops;
mod params;
mod rows;
mod tensor;

pub use cuda::nccl::{Communicator, FoundNccl, GiveUp, ID_BYTES, NcclError, Put, nccl_library, new_nccl_id};
pub use cuda::{FoundGpu, FoundLibrary, KernelTime, UploadedPixels, cuda_libraries, found_gpus};
pub use device::{
    CpuOptions, CudaOptions, CudaPrecision, Device, DeviceError, DeviceUse, Precision, ResidualPrecision,
};
pub use params::{ParamId, ParamSet};
pub use rows::Rows;
pub use tensor::{DType, Tensor};
