//! Which tensors of a file are the parameters of a backbone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tensor::ops::Interpolation;

use super::dialects::{Part, block_number, unknown_part};
use super::error::WeightsError;
use super::file::{TensorInfo, WeightsFile};
use super::names::{self, Key, KeyLayout, NetworkRole, Role};
use super::report::LoadReport;
use crate::{Extras, Layout, Vit, VitConfig};

/// What `ViTModel` adds to a variance unless its configuration says otherwise.
const HUGGING_FACE_EPSILON: f64 = 1e-12;

/// More register tokens than any network has.
const MAX_REGISTERS: usize = 1024;

/// The tensors of one parameter: one, or queries, keys and values.
pub(super) type Pieces<'a> = BTreeMap<Part, &'a TensorInfo>;

/// The backbone's tensors in a file.
#[derive(Debug)]
pub(super) struct Matched<'a> {
    found: BTreeMap<String, Pieces<'a>>,
    /// Names of a backbone with as many blocks and the same extras as the file has.
    needed: usize,
    /// Left-over tensors that belong to the backbone all the same, and what they are.
    unknown: Vec<(String, &'static str)>,
    /// Blocks of the backbone.
    pub(super) depth: usize,
    /// What it has beyond DINO's.
    pub(super) extras: Extras,
    pub(super) report: LoadReport,
}

impl<'a> Matched<'a> {
    /// The tensors of a parameter.
    pub(super) fn pieces(&self, name: &str) -> Option<&Pieces<'a>> {
        self.found.get(name)
    }

    /// The tensor of a parameter that is in one.
    pub(super) fn tensor(&self, name: &str) -> Option<&'a TensorInfo> {
        self.found.get(name)?.get(&Part::Whole).copied()
    }

    /// An error unless every parameter has its tensors and the backbone is nothing more than those.
    pub(super) fn check_complete(&self, path: &Path) -> Result<(), WeightsError> {
        let (report, path) = (&self.report, path.to_owned());
        // First: what is missing is then what the other parts stand for.
        if let Some((_, what)) = self.unknown.first() {
            let names = self.unknown.iter().map(|(name, _)| name.clone()).collect();
            return Err(WeightsError::UnknownParts { path, what, names });
        }
        let is_missing = |name: &str| report.missing.iter().any(|missing| missing == name);
        if is_missing("cls_token") && !is_missing("pos_embed") && report.matched > 2 {
            return Err(WeightsError::NoClassToken { path });
        }
        if is_missing("pos_embed") && !is_missing("cls_token") && 2 * report.matched > self.needed {
            return Err(WeightsError::NoPositions { path });
        }
        if report.matched == 0 && report.left_over.is_empty() {
            return Err(WeightsError::NoTensors { path });
        }
        if !report.missing.is_empty() {
            return Err(WeightsError::IncompleteBackbone {
                path,
                found: report.matched,
                needed: self.needed,
                layout: report.source(),
                missing: report.missing.clone(),
                left_over: report.left_over.len(),
            });
        }
        Ok(())
    }
}

/// Finds the backbone's tensors by name.
pub(super) fn match_backbone(file: &WeightsFile, wanted: Option<NetworkRole>) -> Result<Matched<'_>, WeightsError> {
    let keys = names::keys(file.tensors());
    let chosen = names::choose(file.path(), &keys, wanted)?;
    let role = chosen.map_or(Role::Unsaid, Role::Of);
    let layout = names::layout(&keys);
    let candidates: Vec<&Key<'_>> = keys.iter().filter(|key| key.role == role).collect();
    let depth = candidates.iter().filter_map(|key| block_number(&key.name.name)).max().map_or(1, |last| last + 1);
    let extras = extras(&candidates, layout);
    let expected = parameter_names(depth, extras);

    let mut found: BTreeMap<String, Pieces<'_>> = BTreeMap::new();
    let is_taken = |key: &Key<'_>| {
        let name = key.name.name.as_ref();
        key.role == role && expected.contains(name) && (key.is_whole() || name.contains(".attn.qkv."))
    };
    for key in candidates.iter().filter(|key| is_taken(key)) {
        let pieces = found.entry(key.name.name.clone().into_owned()).or_default();
        // One tensor for each part, and no part beside the whole.
        let first = pieces.insert(key.name.part, key.tensor);
        let other = pieces.iter().find(|(part, _)| (**part == Part::Whole) != key.is_whole()).map(|(_, other)| *other);
        if let Some(first) = first.or(other) {
            let (path, name) = (file.path().to_owned(), key.name.name.clone().into_owned());
            let (first, second) = (first.name.clone(), key.tensor.name.clone());
            return Err(WeightsError::Ambiguous { path, name, first, second });
        }
    }
    found.retain(|_, pieces| pieces.contains_key(&Part::Whole) || pieces.len() == 3);
    let left = |key: &&Key<'_>| !(is_taken(key) && found.contains_key(key.name.name.as_ref()));
    let unknown = |key: &&Key<'_>| Some((key.tensor.name.clone(), unknown_part(&key.name.name)?));
    let unknown = candidates.iter().copied().filter(|key| !is_taken(key)).filter_map(|key| unknown(&key)).collect();
    let missing: Vec<String> = expected.iter().filter(|name| !found.contains_key(*name)).cloned().collect();
    let report = LoadReport {
        matched: found.len(),
        missing,
        left_over: keys.iter().filter(left).map(|key| key.tensor.name.clone()).collect(),
        layout,
        role: chosen,
        heads_from: None,
        grid_taken: None,
    };
    Ok(Matched { found, needed: expected.len(), unknown, depth, extras, report })
}

/// What a backbone has beyond DINO's, by its tensors and the program that they come from.
fn extras(candidates: &[&Key<'_>], layout: KeyLayout) -> Extras {
    let find = |test: &dyn Fn(&str) -> bool| candidates.iter().find(|key| test(&key.name.name));
    let registers = find(&|name| name == "register_tokens");
    let interpolation = match layout {
        KeyLayout::Timm => Interpolation::Antialiased,
        KeyLayout::HuggingFace if registers.is_some() => Interpolation::Antialiased,
        KeyLayout::HuggingFace | KeyLayout::Msn => Interpolation::Plain,
        // DINOv2 has changed its rule with the registers.
        KeyLayout::Dino if registers.is_some() => Interpolation::Antialiased,
        KeyLayout::Dino | KeyLayout::Ibot | KeyLayout::Checkpoint => Interpolation::Dino,
    };
    // `Dinov2Model` calls its norms as DINO does.
    let is_hugging_face_vit = candidates.iter().any(|key| key.tensor.name.contains(".layernorm_before."));
    Extras {
        // Their number is the middle extent, as of [1, R, width]; a wrong shape is told of later.
        registers: registers.map_or(0, |key| key.tensor.shape.get(1).map_or(1, |&count| count.clamp(1, MAX_REGISTERS))),
        layer_scale: find(&|name| name.starts_with("blocks.") && name.ends_with(".ls1.gamma")).is_some(),
        interpolation,
        norm_epsilon: if is_hugging_face_vit { HUGGING_FACE_EPSILON } else { Extras::NONE.norm_epsilon },
    }
}

/// The names that a backbone of this depth gives its parameters; they do not depend on its sizes.
fn parameter_names(depth: usize, extras: Extras) -> BTreeSet<String> {
    let mut layout = Layout::default();
    let extras = Extras { registers: extras.registers.min(1), ..extras };
    let sizes = VitConfig { dim: 1, depth, heads: 1, mlp_dim: 1, patch: 1, image: (1, 1), channels: 1, extras };
    Vit::new(&mut layout, "", sizes);
    layout.specs().iter().map(|spec| spec.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backbone_of_12_blocks_has_150_names() {
        assert_eq!(parameter_names(12, Extras::NONE).len(), 150);
        let extras = Extras { registers: 4, layer_scale: true, ..Extras::NONE };
        assert_eq!(parameter_names(12, extras).len(), 150 + 1 + 24);
    }
}
