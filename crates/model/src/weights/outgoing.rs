//! A backbone under the names, and in the pieces, that other programs expect.

use std::io::Write;

use files::safetensors::{Content, Dtype, TensorToWrite, WriteError, Writer};
use tensor::ParamId;

use super::LoadedVit;
use crate::VitConfig;

/// Whose names weights go out under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutLayout {
    /// DINO's, and this program's own.
    Dino,
    /// timm's `VisionTransformer`.
    Timm,
    /// Hugging Face's model of this kind.
    HuggingFace(HuggingFaceModel),
}

/// The models of Hugging Face that hold such networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HuggingFaceModel {
    /// `ViTModel`: neither LayerScale nor registers.
    Vit,
    /// `Dinov2Model`: LayerScale.
    Dinov2,
    /// `Dinov2WithRegistersModel`: both.
    Dinov2WithRegisters,
}

impl HuggingFaceModel {
    /// The model for a network of this shape.
    pub fn of(config: &VitConfig) -> Self {
        match (config.extras.registers, config.extras.layer_scale) {
            (0, false) => HuggingFaceModel::Vit,
            (0, true) => HuggingFaceModel::Dinov2,
            (_, _) => HuggingFaceModel::Dinov2WithRegisters,
        }
    }

    /// The name of its class.
    pub fn class(self) -> &'static str {
        match self {
            HuggingFaceModel::Vit => "ViTModel",
            HuggingFaceModel::Dinov2 => "Dinov2Model",
            HuggingFaceModel::Dinov2WithRegisters => "Dinov2WithRegistersModel",
        }
    }
}

/// A tensor on its way out.
pub struct Outgoing<'a> {
    /// Its name there.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    values: Box<dyn Fn() -> Vec<f32> + 'a>,
}

impl Outgoing<'_> {
    /// Its elements, fetched from the device.
    pub fn values(&self) -> Vec<f32> {
        (self.values)()
    }
}

impl LoadedVit {
    /// All parameters as a layout has them.
    pub fn outgoing(&self, to: OutLayout) -> Vec<Outgoing<'_>> {
        let mut out = Vec::new();
        for (id, spec) in self.layout.specs().iter().enumerate() {
            let whole = |name: String| Outgoing { name, shape: spec.shape.clone(), values: self.fetch(ParamId(id)) };
            match to {
                OutLayout::Dino => out.push(whole(spec.name.clone())),
                OutLayout::Timm => match spec.name.as_str() {
                    "register_tokens" => out.push(whole("reg_token".to_owned())),
                    "pos_embed" => out.push(self.positions_with_registers(ParamId(id))),
                    _ => out.push(whole(spec.name.clone())),
                },
                OutLayout::HuggingFace(model) => {
                    match spec.name.strip_suffix(".weight").or(spec.name.strip_suffix(".bias")) {
                        Some(layer) if layer.ends_with(".attn.qkv") => {
                            out.extend(["query", "key", "value"].iter().enumerate().map(|(part, name)| {
                                let full = hugging_face(&spec.name, model).replace("{part}", name);
                                self.third(ParamId(id), part, full)
                            }));
                        }
                        _ => out.push(whole(hugging_face(&spec.name, model))),
                    }
                }
            }
        }
        if let OutLayout::HuggingFace(model) = to {
            out.extend(self.constants(model));
        }
        out
    }

    /// The bytes of a safetensors file with these tensors and metadata, written one tensor at a time.
    pub fn write_outgoing<'a>(
        &self,
        to: OutLayout,
        metadata: impl IntoIterator<Item = (&'a str, String)>,
        write: &mut dyn FnMut(&Writer<'_>) -> std::io::Result<()>,
    ) -> Result<(), WriteError> {
        let out = self.outgoing(to);
        let tensors = out.iter().map(|tensor| TensorToWrite {
            name: &tensor.name,
            dtype: Dtype::F32,
            shape: &tensor.shape,
            content: Content::stream(|out: &mut dyn Write| {
                tensor.values().iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
            }),
        });
        // What readers of PyTorch weights look for.
        let format = ("format", "pt".to_owned());
        let writer = Writer::new(tensors.collect(), [format].into_iter().chain(metadata))?;
        Ok(write(&writer)?)
    }

    fn fetch(&self, id: ParamId) -> Box<dyn Fn() -> Vec<f32> + '_> {
        Box::new(move || self.weights[id].to_f32())
    }

    /// Queries, keys or values of a joint projection.
    fn third(&self, id: ParamId, part: usize, name: String) -> Outgoing<'_> {
        let mut shape = self.layout.specs()[id.0].shape.clone();
        shape[0] /= 3;
        let count: usize = shape.iter().product();
        Outgoing { name, shape, values: Box::new(move || self.weights[id].to_f32()[part * count..][..count].to_vec()) }
    }

    /// timm gives registers a position, unless it gives the class token none: here it is zero.
    fn positions_with_registers(&self, id: ParamId) -> Outgoing<'_> {
        let (dim, registers) = (self.vit.config().dim, self.vit.config().extras.registers);
        let mut shape = self.layout.specs()[id.0].shape.clone();
        shape[1] += registers;
        let values = move || {
            let mut values = self.weights[id].to_f32();
            // A register that is -0.0 stays that: x + -0.0 is x, bit for bit.
            values.splice(dim..dim, std::iter::repeat_n(-0.0, registers * dim));
            values
        };
        Outgoing { name: "pos_embed".to_owned(), shape, values: Box::new(values) }
    }

    /// What a model of Hugging Face has, and this network has not: a mask token that evaluation does not use, and factors of
    /// one where it has registers without LayerScale.
    fn constants(&self, model: HuggingFaceModel) -> Vec<Outgoing<'_>> {
        let VitConfig { dim, depth, extras, .. } = *self.vit.config();
        let constant = |name: String, shape: Vec<usize>, value: f32| {
            let count = shape.iter().product();
            Outgoing { name, shape, values: Box::new(move || vec![value; count]) }
        };
        if model == HuggingFaceModel::Vit {
            return Vec::new();
        }
        let mut out = vec![constant("embeddings.mask_token".to_owned(), vec![1, dim], 0.0)];
        if !extras.layer_scale {
            let names = (0..depth).flat_map(|i| [1, 2].map(|n| format!("encoder.layer.{i}.layer_scale{n}.lambda1")));
            out.extend(names.map(|name| constant(name, vec![dim], 1.0)));
        }
        out
    }
}

/// Hugging Face's name for a parameter; `{part}` in that of a joint projection stands for queries, keys or values.
fn hugging_face(name: &str, model: HuggingFaceModel) -> String {
    const OUTSIDE: [(&str, &str); 5] = [
        ("cls_token", "embeddings.cls_token"),
        ("pos_embed", "embeddings.position_embeddings"),
        ("register_tokens", "embeddings.register_tokens"),
        ("patch_embed.proj.", "embeddings.patch_embeddings.projection."),
        ("norm.", "layernorm."),
    ];
    const INSIDE: [(&str, &str); 4] = [
        ("attn.qkv.", "attention.attention.{part}."),
        ("attn.proj.", "attention.output.dense."),
        ("ls1.gamma", "layer_scale1.lambda1"),
        ("ls2.gamma", "layer_scale2.lambda1"),
    ];
    const OF_VIT: [(&str, &str); 4] = [
        ("norm1.", "layernorm_before."),
        ("norm2.", "layernorm_after."),
        ("mlp.fc1.", "intermediate.dense."),
        ("mlp.fc2.", "output.dense."),
    ];
    let translated = |name: &str, table: &[(&str, &str)]| {
        table.iter().find_map(|(ours, theirs)| Some(format!("{theirs}{}", name.strip_prefix(ours)?)))
    };
    let Some((block, rest)) = name.strip_prefix("blocks.").and_then(|rest| rest.split_once('.')) else {
        return translated(name, &OUTSIDE).unwrap_or_else(|| name.to_owned());
    };
    let of_vit = (model == HuggingFaceModel::Vit).then(|| translated(rest, &OF_VIT)).flatten();
    let rest = translated(rest, &INSIDE).or(of_vit).unwrap_or_else(|| rest.to_owned());
    format!("encoder.layer.{block}.{rest}")
}

#[cfg(test)]
mod tests {
    use super::super::{LoadOptions, WeightsFile};
    use super::*;
    use crate::{Arch, Extras};
    use crate::{Layout, Vit};
    use tensor::Device;

    fn network(extras: Extras, device: &Device) -> LoadedVit {
        let config = VitConfig { depth: 2, extras, ..VitConfig::new(Arch::Nano, 8, (24, 16), 3).unwrap() };
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", config);
        let weights = layout.initial(device, 3);
        let report = super::super::LoadReport::of_own(&layout);
        LoadedVit { vit, layout, weights, report }
    }

    #[test]
    fn a_round_trip_through_every_layout_returns_the_same_bits() {
        let device = Device::cpu(Default::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        for (registers, layer_scale) in [(0, false), (0, true), (3, true), (2, false)] {
            let network = network(Extras { registers, layer_scale, ..Extras::NONE }, &device);
            let model = HuggingFaceModel::of(network.vit.config());
            for to in [OutLayout::Dino, OutLayout::Timm, OutLayout::HuggingFace(model)] {
                let said = [("heads", "1".to_owned()), ("image_size", "24x16".to_owned())];
                network
                    .write_outgoing(to, said, &mut |writer| files::replace(&path, |file| writer.write_to(file)))
                    .unwrap();
                let read = WeightsFile::open(&path).unwrap().load_vit(&LoadOptions::default(), &device).unwrap();
                // `Dinov2WithRegistersModel` has no way without LayerScale.
                let has_factors = read.vit.config().extras.layer_scale && !layer_scale;
                assert_eq!(has_factors, registers > 0 && !layer_scale && matches!(to, OutLayout::HuggingFace(_)));
                for (id, spec) in network.layout.specs().iter().enumerate() {
                    let there = read.layout.find(&spec.name).unwrap();
                    let (got, want) = (read.weights[there].to_f32(), network.weights[ParamId(id)].to_f32());
                    assert!(got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits()), "{to:?} {}", spec.name);
                    assert_eq!(read.layout.specs()[there.0].shape, spec.shape, "{to:?}");
                }
            }
        }
    }
}
