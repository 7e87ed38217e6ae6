//! The teacher's backbone as a file of its own: safetensors, DINO's names, 32-bit floats.

use eval::InputSpec;
use model::Layout;
use serde_json::{Map, Value, json};
use tensor::ParamSet;

/// The file's name in a run folder.
pub const FILE: &str = "backbone.safetensors";
/// What the learner puts before the names of the backbone's parameters.
const PREFIX: &str = "backbone.";

/// The bytes of the file. They depend on the weights alone.
pub fn to_safetensors(layout: &Layout, weights: &ParamSet, input: &InputSpec) -> Vec<u8> {
    let named: Vec<(&str, &[usize], Vec<f32>)> = layout
        .specs()
        .iter()
        .zip(weights.iter())
        .filter_map(|(spec, tensor)| Some((spec.name.strip_prefix(PREFIX)?, spec.shape.as_slice(), tensor.to_f32())))
        .collect();
    let (mut header, mut offset) = (Map::new(), 0);
    for (name, shape, values) in &named {
        let end = offset + values.len() * size_of::<f32>();
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [offset, end] });
        header.insert((*name).to_owned(), entry);
        offset = end;
    }
    let mut metadata = Map::new();
    // What readers of PyTorch weights look for.
    metadata.insert("format".to_owned(), "pt".into());
    metadata.extend(input.metadata().map(|(key, value)| (key.to_owned(), value.into())));
    header.insert("__metadata__".to_owned(), Value::Object(metadata));
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');

    let mut bytes = Vec::with_capacity(8 + header.len() + offset);
    bytes.extend((header.len() as u64).to_le_bytes());
    bytes.extend(header);
    for (_, _, values) in named {
        bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::weights::{LoadOptions, load_vit};
    use model::{Arch, Vit, VitConfig};
    use tensor::{Device, ParamId};

    #[test]
    fn the_file_reads_back_as_the_same_backbone() {
        let device = Device::cpu(Default::default()).unwrap();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, PREFIX, VitConfig::new(Arch::Nano, 8, (24, 16), 3).unwrap());
        let weights = layout.initial(&device, 3);
        let input = InputSpec { size: (24, 16), whole: true };
        let bytes = to_safetensors(&layout, &weights, &input);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, bytes).unwrap();
        let options = LoadOptions { image: Some((24, 16)), ..Default::default() };
        let loaded = load_vit(&path, &options, &device).unwrap();
        assert_eq!(loaded.vit.config(), vit.config());
        for i in 0..weights.len() {
            assert_eq!(loaded.weights[ParamId(i)].to_f32(), weights[ParamId(i)].to_f32());
        }
        let again = crate::weights::load(&path, &device).unwrap();
        assert_eq!(again.input, input);
    }
}
