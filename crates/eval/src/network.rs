//! A backbone as an evaluation uses it, on one device or on several.

use model::Vit;
use tensor::{Device, ParamSet};

use crate::normalization::Normalization;
use crate::pooling::Pooling;

/// A backbone with its weights on a device.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The architecture.
    pub vit: &'a Vit,
    /// Its parameters.
    pub weights: &'a ParamSet,
    /// Where it computes, and in which precision.
    pub device: &'a Device,
    /// Itself on other devices of the same kind, which share the images of a pass with the first.
    pub twins: &'a [Twin],
    /// How its pixels are normalised; none for the usual values of its number of channels.
    pub normalization: Option<&'a Normalization>,
    /// Which of its tokens make a feature.
    pub pooling: Pooling,
}

/// The weights of a network on another device.
#[derive(Debug)]
pub struct Twin {
    /// The parameters.
    pub weights: ParamSet,
    /// Where they are.
    pub device: Device,
}

impl Twin {
    /// The same weights on this device.
    pub fn of(weights: &ParamSet, device: &Device) -> Self {
        let mut twin = ParamSet::empty(device, weights.iter().map(|tensor| tensor.shape()));
        for (twin, tensor) in twin.tensors_mut().iter_mut().zip(weights.iter()) {
            twin.copy_from_f32(&tensor.as_f32());
        }
        Self { weights: twin, device: device.clone() }
    }
}

impl<'a> Network<'a> {
    /// A network that sees pixels as those of this program do, and whose class token after the last norm is the feature.
    pub fn new(vit: &'a Vit, weights: &'a ParamSet, device: &'a Device) -> Self {
        Self { vit, weights, device, twins: &[], normalization: None, pooling: Pooling::default() }
    }

    /// How its pixels are normalised.
    pub(crate) fn normalization_or_usual(&self) -> Normalization {
        self.normalization.cloned().unwrap_or_else(|| Normalization::usual(self.vit.config().channels))
    }

    /// How many devices it computes on.
    pub(crate) fn devices(&self) -> usize {
        1 + self.twins.len()
    }

    /// The same on one of its devices alone, the first being number 0.
    pub(crate) fn on(self, number: usize) -> Self {
        match number.checked_sub(1).map(|twin| &self.twins[twin]) {
            None => Self { twins: &[], ..self },
            Some(Twin { weights, device }) => Self { weights, device, twins: &[], ..self },
        }
    }
}
