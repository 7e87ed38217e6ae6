//! The GPU of tests that need one.

use tensor::{CudaOptions, CudaPrecision, Device};

/// The first GPU where `DINO_VMF_TEST_GPU` is set (`tools/gpu-test` sets it); elsewhere nothing, and the test says so.
pub fn gpu(precision: CudaPrecision) -> Option<Device> {
    gpu_with(CudaOptions { precision, ..CudaOptions::default() })
}

/// The same with all its options.
pub fn gpu_with(options: CudaOptions) -> Option<Device> {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return None;
    }
    Some(Device::cuda(options).unwrap())
}
