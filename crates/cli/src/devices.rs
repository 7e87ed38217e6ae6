//! The GPUs that share the images of a pass.
//!
//! The first of them is the device of everything else. The others are opened when there are enough images for them.

use std::cell::OnceCell;
use std::ops::Deref;

use eval::Twin;
use tensor::{CudaOptions, Device, ParamSet, found_gpus};

use crate::device::DeviceChoiceError;
use crate::error::CliError;
use crate::output;
use crate::processes;

/// A device, and GPUs beside it.
#[derive(Debug)]
pub struct Devices {
    first: Device,
    /// How to open the others.
    others: Vec<CudaOptions>,
    /// Whether they were asked for, so that one that cannot be used is an error.
    asked: bool,
    opened: OnceCell<Vec<Device>>,
}

impl Devices {
    /// This one alone.
    pub fn alone(first: Device) -> Self {
        Self { first, others: Vec::new(), asked: false, opened: OnceCell::new() }
    }

    /// This one with those GPUs beside it that were asked for, or else with all.
    pub fn with_others(first: Device, options: CudaOptions, asked: Option<usize>) -> Result<Self, CliError> {
        let gpus = match asked {
            Some(asked) => {
                processes::own::check_found(asked)?;
                asked
            }
            None if first.is_gpu() => found_gpus().map_or(1, |found| found.len()),
            None => 1,
        };
        let others = (1..gpus).map(|index| CudaOptions { index, ..options }).collect();
        Ok(Self { others, asked: asked.is_some(), ..Self::alone(first) })
    }

    /// The first alone.
    pub fn into_first(self) -> Device {
        self.first
    }

    /// These weights on the other GPUs, of which no more are used than so many images make batches for.
    pub fn twins(&self, weights: &ParamSet, images: usize, batch_size: usize) -> Result<Vec<Twin>, CliError> {
        let batches = images.div_ceil(batch_size.max(1));
        if self.others.is_empty() || batches < 2 {
            return Ok(Vec::new());
        }
        let opened = match self.opened.get() {
            Some(opened) => opened,
            None => {
                let opened = self.open()?;
                self.opened.get_or_init(|| opened)
            }
        };
        Ok(opened.iter().take(batches - 1).map(|device| Twin::of(weights, device)).collect())
    }

    fn open(&self) -> Result<Vec<Device>, CliError> {
        let mut opened = Vec::new();
        for &options in &self.others {
            match Device::cuda(options) {
                Ok(device) => opened.push(device),
                Err(error) if self.asked => {
                    return Err(DeviceChoiceError::NoCuda { given: format!("cuda:{}", options.index), error }.into());
                }
                Err(error) => output::note(&format!("GPU {} is left out: {error}", options.index)),
            }
        }
        Ok(opened)
    }
}

impl Deref for Devices {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.first
    }
}
