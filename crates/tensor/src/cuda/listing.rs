//! Which GPUs the driver shows, without using one.

use cudarc::driver::result;

use super::library;
use crate::device::DeviceError;

/// A GPU that the driver shows: `CUDA_VISIBLE_DEVICES` may hide others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGpu {
    /// What it is called.
    pub name: String,
    /// What no other GPU of the world has.
    pub uuid: String,
}

/// The GPUs of this machine, in the order of their numbers; an error where none can be used.
pub fn found_gpus() -> Result<Vec<FoundGpu>, DeviceError> {
    let missing = |reason: String| DeviceError::NoCuda { reason };
    // Without the driver the first call to it panics.
    if let Some(library) = library::first_missing() {
        return Err(missing(format!("lib{} was not found; it comes with {}", library.name, library.source)));
    }
    let driver = |what: &'static str| move |e: result::DriverError| missing(format!("{what}: {e}"));
    result::init().map_err(driver("the driver does not start"))?;
    let count = result::device::get_count().map_err(driver("no GPUs can be listed"))?;
    if count == 0 {
        return Err(missing("this machine shows none".to_owned()));
    }
    let find = |index| -> Result<FoundGpu, result::DriverError> {
        let device = result::device::get(index)?;
        let uuid = result::device::get_uuid(device)?.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
        Ok(FoundGpu { name: result::device::get_name(device)?, uuid })
    };
    (0..count).map(find).collect::<Result<_, _>>().map_err(driver("a GPU does not answer"))
}
