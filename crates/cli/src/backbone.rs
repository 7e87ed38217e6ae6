//! The teacher's backbone as a file of a run.

use model::Layout;
use model::weights::WeightsError;
use tensor::ParamSet;

use crate::view::View;

/// The file's name in a run folder.
pub const FILE: &str = "backbone.safetensors";
/// What the learner puts before the names of the backbone's parameters.
const PREFIX: &str = "backbone.";

/// The bytes of the file.
pub fn to_safetensors(layout: &Layout, weights: &ParamSet, view: &View) -> Result<Vec<u8>, WeightsError> {
    model::weights::to_safetensors(layout, weights, PREFIX, view.metadata())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Arch, Vit, VitConfig};
    use tensor::Device;

    #[test]
    fn the_file_says_how_images_are_shown_to_the_network() {
        let device = Device::cpu(Default::default()).unwrap();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, PREFIX, VitConfig::new(Arch::Nano, 8, (24, 16), 3).unwrap());
        let view = View { size: (24, 16), whole: true };
        let bytes = to_safetensors(&layout, &layout.initial(&device, 3), &view).unwrap();

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, bytes).unwrap();
        let read = crate::weights::load(&path, &device).unwrap();
        assert_eq!((read.loaded.vit.config(), read.view), (vit.config(), view));
    }
}
