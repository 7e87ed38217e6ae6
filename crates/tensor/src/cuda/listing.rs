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

pub(super) fn missing(reason: String) -> DeviceError {
    DeviceError::NoCuda { reason }
}

/// An error of the driver's, and what could not be done because of it.
pub(super) fn driver(what: &'static str) -> impl Fn(result::DriverError) -> DeviceError {
    move |error| missing(format!("{what}: {error}"))
}

/// Starts the driver; how many GPUs it shows.
pub(super) fn count() -> Result<i32, DeviceError> {
    // Without its library the first call to it panics.
    if let Some(library) = library::first_missing() {
        return Err(missing(format!("lib{} was not found; it comes with {}", library.name, library.source)));
    }
    result::init().map_err(driver("the driver does not start"))?;
    result::device::get_count().map_err(driver("no GPUs can be listed"))
}

/// The GPUs of this machine, in the order of their numbers; an error where none can be used.
pub fn found_gpus() -> Result<Vec<FoundGpu>, DeviceError> {
    let count = count()?;
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
