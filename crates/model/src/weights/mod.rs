//! Weights in and out: a backbone of DINO, iBOT, MSN, timm or Hugging Face, in safetensors or as PyTorch saves it, or one of
//! our own checkpoints, into a [`Vit`]; and a backbone into a file of its own.
//!
//! The shape of the network is read from the shapes of the tensors. Loading is all or nothing: a backbone that misses a
//! tensor, has one of another shape, or has parts that [`Vit`] does not know is an error, because its features would look
//! plausible and be wrong.
//!
//! - `file`: what a file holds, without trusting it; `torch`, `shards` and `configuration`: PyTorch's files, several files
//!   with an index, and what lies beside them.
//! - `names`: which network a tensor belongs to, and `dialects`: what DINO calls it.
//! - `matching`: which tensors of the file are the backbone's, and `origin`: how its parameters are made of them.
//! - `infer`: the network that the shapes describe.
//! - `heads`: what lies beside a backbone for a training that goes on, and `load_head`: the projection head out of it.
//! - `described`: what a file says of its network, which shapes do not tell.
//! - `save`: a backbone as a file, and `outgoing`: under the names of other programs.

mod configuration;
mod described;
mod dialects;
mod error;
mod file;
mod heads;
mod infer;
mod load_head;
mod matching;
mod names;
mod origin;
mod outgoing;
mod report;
mod save;
mod shards;
mod small_json;
mod torch;
mod values;

use std::path::Path;

use tensor::ops::Interpolation;
use tensor::{Device, ParamSet};

use self::origin::Origin;

pub use described::{ARCHITECTURE, HOW_IT_COMPUTES, HeadsFrom, POSITION_RULES, describe};
pub use error::WeightsError;
pub use file::{Packing, TensorInfo, WeightsFile};
pub use load_head::LoadedHead;
pub use names::{KeyLayout, NetworkRole};
pub use outgoing::{HuggingFaceModel, OutLayout, Outgoing};
pub use report::{LoadReport, Summary, TensorGroup};
pub use save::to_safetensors;
pub use values::{Element, Values};

use crate::{Layout, Vit, VitConfig};

/// What a file does not say about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadOptions {
    /// Which network of a training checkpoint. Where not given: the teacher, or the only one there is.
    pub role: Option<NetworkRole>,
    /// Rows and columns in pixels of the images that the position embeddings were learnt for. Where neither given nor in
    /// the file's metadata, the grid of patches is taken to be square.
    pub image: Option<(usize, usize)>,
    /// Attention heads of a block. Where neither given nor in the file's metadata, those of the network of the
    /// literature with the same width and depth; an error where there is none.
    pub heads: Option<usize>,
    /// How positions are interpolated for images of another size. Where neither given nor in the file's metadata, as in
    /// the program whose names the file has.
    pub interpolation: Option<Interpolation>,
    /// What LayerNorm adds to a variance. Where neither given nor in the file's metadata, as in the program whose names the
    /// file has.
    pub norm_epsilon: Option<f64>,
}

/// A backbone with its weights.
#[derive(Debug)]
pub struct LoadedVit {
    /// The network.
    pub vit: Vit,
    /// Its parameters by name.
    pub layout: Layout,
    /// Their values.
    pub weights: ParamSet,
    /// What was found in the file.
    pub report: LoadReport,
}

/// Loads the backbone of a weights file onto a device.
///
/// ```no_run
/// use model::weights::{LoadOptions, load_vit};
/// let device = tensor::Device::cpu(Default::default())?;
/// let loaded = load_vit("dino_vits16.safetensors".as_ref(), &LoadOptions::default(), &device)?;
/// // matched 150 of 150 backbone tensors (DINO layout); missing: 0; left over: 0
/// println!("{}", loaded.report);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load_vit(path: &Path, options: &LoadOptions, device: &Device) -> Result<LoadedVit, WeightsError> {
    WeightsFile::open(path)?.load_vit(options, device)
}

/// A network and where in a file the values of its parameters are.
struct Plan {
    vit: Vit,
    layout: Layout,
    /// One for each parameter of the layout, in its order and of its shape.
    origins: Vec<Origin>,
    report: LoadReport,
}

impl WeightsFile {
    /// The backbone in this file and what else it holds, from the header alone.
    pub fn vit_config(&self, options: &LoadOptions) -> Result<(VitConfig, LoadReport), WeightsError> {
        self.plan(options).map(|plan| (plan.vit.config().clone(), plan.report))
    }

    /// How the names in this file match those of a backbone, which need not be complete. An error only where it cannot
    /// be told which network is meant.
    pub fn match_report(&self, role: Option<NetworkRole>) -> Result<LoadReport, WeightsError> {
        Ok(matching::match_backbone(self, role)?.report)
    }

    /// Loads the backbone onto a device.
    pub fn load_vit(&mut self, options: &LoadOptions, device: &Device) -> Result<LoadedVit, WeightsError> {
        let Plan { vit, layout, origins, report } = self.plan(options)?;
        let mut weights = ParamSet::empty(device, layout.specs().iter().map(|spec| spec.shape.as_slice()));
        let (width, registers) = (vit.config().dim, vit.config().extras.registers);
        for (parameter, origin) in weights.tensors_mut().iter_mut().zip(&origins) {
            match origin {
                Origin::Whole(tensor) => self.read_into(tensor, parameter)?,
                origin => origin.read(self, width, registers)?.copy_to(parameter),
            }
        }
        Ok(LoadedVit { vit, layout, weights, report })
    }

    fn plan(&self, options: &LoadOptions) -> Result<Plan, WeightsError> {
        let matched = matching::match_backbone(self, options.role)?;
        matched.check_complete(self.path())?;
        let described = infer::config(self, &matched, options)?;
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", described.config.clone());
        let origins = infer::origins(self.path(), &matched, &layout, &described)?;
        // Tensors may share their bytes, and a network that takes more than there are would have no bound.
        if origins.iter().map(Origin::bytes).sum::<u64>() > self.file_bytes() {
            let reason = "its tensors share their bytes, which weights do not".to_owned();
            return Err(WeightsError::Damaged { path: self.path().to_owned(), reason });
        }
        let report =
            LoadReport { heads_from: Some(described.heads_from), grid_taken: described.grid_taken, ..matched.report };
        Ok(Plan { vit, layout, origins, report })
    }
}
