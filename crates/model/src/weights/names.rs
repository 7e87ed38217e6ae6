//! Which tensor of a file is which parameter of a backbone.
//!
//! DINO and timm name a backbone's parameters alike; files differ in what stands before the names and beside them. Only
//! what leads a name is taken off: the reference removes `module.` and `backbone.` anywhere, which can turn one name into
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use super::error::WeightsError;
use super::file::{TensorInfo, WeightsFile};
use super::report::LoadReport;
use crate::{Extras, Layout, Vit, VitConfig};

/// One of the two networks of a training checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkRole {
    /// The moving average: the network that is evaluated.
    Teacher,
    /// The network that is trained by gradient.
    Student,
}

impl fmt::Display for NetworkRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NetworkRole::Teacher => "teacher",
            NetworkRole::Student => "student",
        })
    }
}

/// Whose habits a file's names follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// DINO: a bare backbone, or one beside a projection head.
    Dino,
    /// timm: beside a classifier.
    Timm,
    /// A checkpoint of this program.
    Checkpoint,
}

impl fmt::Display for KeyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyLayout::Dino => "DINO layout",
            KeyLayout::Timm => "timm layout",
            KeyLayout::Checkpoint => "dino-vmf checkpoint",
        })
    }
}

/// What the part before a parameter's name says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Unsaid,
    Of(NetworkRole),
    /// A moment of the optimiser: shaped like a weight, but none.
    Moment,
}

/// What may lead a name, in any number and order.
const LEADS: [(&str, Role); 12] = [
    ("module.", Role::Unsaid),
    ("backbone.", Role::Unsaid),
    ("model.", Role::Unsaid),
    ("encoder.", Role::Unsaid),
    ("state_dict.", Role::Unsaid),
    ("teacher.", Role::Of(NetworkRole::Teacher)),
    ("target_encoder.", Role::Of(NetworkRole::Teacher)),
    ("student.", Role::Of(NetworkRole::Student)),
    ("teacher/", Role::Of(NetworkRole::Teacher)),
    ("student/", Role::Of(NetworkRole::Student)),
    ("first/", Role::Moment),
    ("second/", Role::Moment),
];

/// More blocks than any network has: a larger number in a name is no block.
const MAX_BLOCKS: usize = 1024;

/// A tensor's name in its parts.
struct Key<'a> {
    tensor: &'a TensorInfo,
    name: &'a str,
    role: Role,
}

impl<'a> Key<'a> {
    fn new(tensor: &'a TensorInfo) -> Self {
        let (role, name) = split(&tensor.name);
        Self { tensor, name, role }
    }
}

fn split(full: &str) -> (Role, &str) {
    let (mut role, mut name) = (Role::Unsaid, full);
    while let Some((lead, says)) = LEADS.iter().find(|(lead, _)| name.starts_with(lead)) {
        name = &name[lead.len()..];
        // The outermost word decides.
        if role == Role::Unsaid {
            role = *says;
        }
    }
    (role, name)
}

/// What leads a tensor's name, with the network it belongs to: `teacher/backbone.`.
pub(super) fn lead(full: &str) -> &str {
    &full[..full.len() - split(full).1.len()]
}

/// The backbone's tensors in a file.
#[derive(Debug)]
pub(super) struct Matched<'a> {
    found: BTreeMap<String, &'a TensorInfo>,
    /// Names of a backbone with as many blocks as the file has.
    needed: usize,
    /// Left-over tensors that belong to the backbone all the same.
    unknown_parts: Vec<String>,
    /// Blocks of the backbone.
    pub(super) depth: usize,
    pub(super) report: LoadReport,
}

impl<'a> Matched<'a> {
    /// The tensor of a parameter.
    pub(super) fn tensor(&self, name: &str) -> Option<&'a TensorInfo> {
        self.found.get(name).copied()
    }

    /// An error unless every parameter has its tensor and the backbone is nothing more than those.
    pub(super) fn check_complete(&self, path: &Path) -> Result<(), WeightsError> {
        let report = &self.report;
        if !report.missing.is_empty() {
            return Err(WeightsError::IncompleteBackbone {
                path: path.to_owned(),
                found: report.matched,
                needed: self.needed,
                layout: report.source(),
                missing: report.missing.clone(),
                left_over: report.left_over.len(),
            });
        }
        if !self.unknown_parts.is_empty() {
            return Err(WeightsError::UnknownParts { path: path.to_owned(), names: self.unknown_parts.clone() });
        }
        Ok(())
    }
}

/// Finds the backbone's tensors by name.
pub(super) fn match_backbone(file: &WeightsFile, wanted: Option<NetworkRole>) -> Result<Matched<'_>, WeightsError> {
    let keys: Vec<Key<'_>> = file.tensors().iter().map(Key::new).collect();
    let chosen = choose(file.path(), &keys, wanted)?;
    let role = chosen.map_or(Role::Unsaid, Role::Of);
    let candidates: Vec<&Key<'_>> = keys.iter().filter(|key| key.role == role).collect();

    let depth = candidates.iter().filter_map(|key| block_number(key.name)).max().map_or(1, |last| last + 1);
    let expected = parameter_names(depth);
    let mut found: BTreeMap<String, &TensorInfo> = BTreeMap::new();
    for key in candidates.iter().filter(|key| expected.contains(key.name)) {
        if let Some(first) = found.insert(key.name.to_owned(), key.tensor) {
            let (path, name) = (file.path().to_owned(), key.name.to_owned());
            let (first, second) = (first.name.clone(), key.tensor.name.clone());
            return Err(WeightsError::Ambiguous { path, name, first, second });
        }
    }
    let taken = |key: &Key<'_>| key.role == role && expected.contains(key.name);
    let rest = candidates.iter().filter(|key| !taken(key));
    let unknown_parts = rest.filter(|key| is_part_of_backbone(key.name)).map(|key| key.tensor.name.clone()).collect();
    let missing: Vec<String> = expected.iter().filter(|name| !found.contains_key(*name)).cloned().collect();
    let report = LoadReport {
        matched: found.len(),
        missing,
        left_over: keys.iter().filter(|key| !taken(key)).map(|key| key.tensor.name.clone()).collect(),
        layout: layout(&keys),
        role: chosen,
        heads_from: None,
    };
    Ok(Matched { found, needed: expected.len(), unknown_parts, depth, report })
}

/// The network to take: the one asked for, or the teacher, or the only one.
fn choose(path: &Path, keys: &[Key<'_>], wanted: Option<NetworkRole>) -> Result<Option<NetworkRole>, WeightsError> {
    let there = |network: NetworkRole| keys.iter().any(|key| key.role == Role::Of(network));
    let first = [NetworkRole::Teacher, NetworkRole::Student].into_iter().find(|&network| there(network));
    match wanted {
        Some(wanted) if !there(wanted) => {
            Err(WeightsError::NoSuchNetwork { path: path.to_owned(), wanted, other: first })
        }
        Some(wanted) => Ok(Some(wanted)),
        None => Ok(first),
    }
}

/// The names that a backbone of this depth gives its parameters; they do not depend on its sizes.
fn parameter_names(depth: usize) -> BTreeSet<String> {
    let mut layout = Layout::default();
    let sizes =
        VitConfig { dim: 1, depth, heads: 1, mlp_dim: 1, patch: 1, image: (1, 1), channels: 1, extras: Extras::NONE };
    Vit::new(&mut layout, "", sizes);
    layout.specs().iter().map(|spec| spec.name.clone()).collect()
}

fn block_number(name: &str) -> Option<usize> {
    let number = name.strip_prefix("blocks.")?.split('.').next()?;
    number.parse().ok().filter(|&number| number < MAX_BLOCKS)
}

/// Whether a tensor of this name would change what a backbone computes, so that it must not be left over: LayerScale
/// and relative positions in a block, a norm of the patches or of the tokens, register and distillation tokens.
fn is_part_of_backbone(name: &str) -> bool {
    const PARTS: [&str; 8] =
        ["blocks.", "patch_embed.", "norm_pre.", "reg_token", "register_tokens", "dist_token", "rel_pos", "rope."];
    PARTS.iter().any(|part| name.starts_with(part))
}

fn layout(keys: &[Key<'_>]) -> KeyLayout {
    const CLASSIFIER: [&str; 5] =
        ["head.weight", "head.bias", "fc_norm.weight", "fc_norm.bias", "pre_logits.fc.weight"];
    if keys.iter().any(|key| lead(&key.tensor.name).contains('/')) {
        KeyLayout::Checkpoint
    } else if keys.iter().any(|key| CLASSIFIER.contains(&key.name)) {
        KeyLayout::Timm
    } else {
        KeyLayout::Dino
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_a_name_is_taken_off() {
        assert_eq!(split("module.backbone.blocks.0.norm1.weight"), (Role::Unsaid, "blocks.0.norm1.weight"));
        assert_eq!(split("head.module.weight"), (Role::Unsaid, "head.module.weight"));
        assert_eq!(split("teacher/backbone.cls_token"), (Role::Of(NetworkRole::Teacher), "cls_token"));
        assert_eq!(split("student.module.backbone.cls_token"), (Role::Of(NetworkRole::Student), "cls_token"));
        assert_eq!(split("second/backbone.cls_token"), (Role::Moment, "cls_token"));
        assert_eq!((lead("teacher/head.mlp.0.bias"), lead("cls_token")), ("teacher/", ""));
    }

    #[test]
    fn a_block_number_beyond_any_network_is_no_block() {
        assert_eq!(block_number("blocks.11.norm1.weight"), Some(11));
        for name in
            ["blocks.18446744073709551615.norm1.weight", "blocks.9999999.norm1.weight", "blocks..x", "block.1.x"]
        {
            assert_eq!(block_number(name), None, "{name}");
        }
    }

    #[test]
    fn a_backbone_of_12_blocks_has_150_names() {
        assert_eq!(parameter_names(12).len(), 150);
    }
}
