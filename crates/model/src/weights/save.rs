//! A backbone as a file of its own: safetensors, DINO's names, 32-bit floats.

use files::safetensors::{Content, Dtype, TensorToWrite, Writer};
use tensor::ParamSet;

use super::error::WeightsError;
use crate::Layout;

/// The bytes of a safetensors file with the parameters whose names begin with `prefix`, named without it, and these
/// metadata. They depend on values and metadata alone.
///
/// Bytes rather than a file: a device reports its errors after it was read from, and weights that it failed to hand over
/// must not replace a good file.
pub fn to_safetensors<'a>(
    layout: &Layout,
    weights: &ParamSet,
    prefix: &str,
    metadata: impl IntoIterator<Item = (&'a str, String)>,
) -> Result<Vec<u8>, WeightsError> {
    let named = layout.specs().iter().zip(weights.iter());
    let tensors = named.filter_map(|(spec, tensor)| {
        // One tensor at a time comes from the device.
        let content =
            Content::stream(|out| tensor.to_f32().iter().try_for_each(|value| out.write_all(&value.to_le_bytes())));
        Some(TensorToWrite { name: spec.name.strip_prefix(prefix)?, dtype: Dtype::F32, shape: &spec.shape, content })
    });
    // What readers of PyTorch weights look for.
    let format = ("format", "pt".to_owned());
    Ok(Writer::new(tensors.collect(), [format].into_iter().chain(metadata))?.to_bytes()?)
}

#[cfg(test)]
mod tests {
    use super::super::{LoadOptions, describe, load_vit};
    use super::*;
    use crate::{Arch, Vit, VitConfig};
    use tensor::{Device, ParamId};

    #[test]
    fn a_saved_backbone_reads_back_as_the_same_network() {
        let device = Device::cpu(Default::default()).unwrap();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "backbone.", VitConfig::new(Arch::Nano, 8, (24, 16), 3).unwrap());
        let weights = layout.initial(&device, 3);
        let bytes = to_safetensors(&layout, &weights, "backbone.", describe(vit.config())).unwrap();

        let header = String::from_utf8_lossy(&bytes[8..]).into_owned();
        let metadata = "{\"__metadata__\":{\"architecture\":\"vit_nano\",\"channels\":\"3\",\"depth\":\"4\",\"format\":\"pt\",\
                        \"heads\":\"1\",\"image_size\":\"24x16\",\"patch_size\":\"8\",\"width\":\"64\"},\
                        \"blocks.0.attn.proj.bias\":";
        assert!(header.starts_with(metadata), "{header:.200}");
        let reference = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let first: Vec<u8> = weights[ParamId(0)].to_f32().iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(layout.specs()[0].name, "backbone.cls_token");
        assert_eq!(reference.tensor("cls_token").unwrap().data(), first);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backbone.safetensors");
        std::fs::write(&path, bytes).unwrap();
        let loaded = load_vit(&path, &LoadOptions::default(), &device).unwrap();
        assert_eq!(loaded.vit.config(), vit.config());
        for i in 0..weights.len() {
            assert_eq!(loaded.weights[ParamId(i)].to_f32(), weights[ParamId(i)].to_f32());
        }
    }

    #[test]
    fn parameters_without_the_prefix_are_left_out() {
        let device = Device::cpu(Default::default()).unwrap();
        let mut layout = Layout::default();
        Vit::new(&mut layout, "backbone.", VitConfig::new(Arch::Nano, 8, (16, 16), 3).unwrap());
        let bytes = to_safetensors(&layout, &layout.zeros(&device), "head.", []).unwrap();
        let header = b"{\"__metadata__\":{\"format\":\"pt\"}}";
        assert_eq!(bytes, [&[32, 0, 0, 0, 0, 0, 0, 0], &header[..]].concat());
    }
}
