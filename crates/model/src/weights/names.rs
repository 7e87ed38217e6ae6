//! What leads a tensor's name in a file: which network it belongs to, and in which program's way.
//!
//! DINO and timm name a backbone's parameters alike; files differ in what stands before the names and beside them. Only
//! what leads a name is taken off: the reference removes `module.` and `backbone.` anywhere, which can turn one name into
//! another.

use std::fmt;
use std::path::Path;

use super::dialects::{Canonical, Dialect, Part, canonical};
use super::error::WeightsError;
use super::file::TensorInfo;

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
    /// DINO and DINOv2: a bare backbone, or one beside a projection head.
    Dino,
    /// iBOT: beside a mask token or a second head.
    Ibot,
    /// MSN: with the projection head inside the backbone.
    Msn,
    /// timm, DeiT and BEiT: beside a classifier.
    Timm,
    /// Hugging Face's `ViTModel`, `Dinov2Model` and `Dinov2WithRegistersModel`.
    HuggingFace,
    /// A checkpoint of this program.
    Checkpoint,
}

impl fmt::Display for KeyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyLayout::Dino => "DINO layout",
            KeyLayout::Ibot => "iBOT layout",
            KeyLayout::Msn => "MSN layout",
            KeyLayout::Timm => "timm layout",
            KeyLayout::HuggingFace => "Hugging Face layout",
            KeyLayout::Checkpoint => "dino-vmf checkpoint",
        })
    }
}

/// What the part before a parameter's name says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Unsaid,
    Of(NetworkRole),
    /// A moment of the optimiser: shaped like a weight, but none.
    Moment,
}

const TEACHER: Role = Role::Of(NetworkRole::Teacher);
const STUDENT: Role = Role::Of(NetworkRole::Student);

/// What may lead a name, in any number and order.
const LEADS: [(&str, Role); 20] = [
    ("module.", Role::Unsaid),
    // What torch.compile puts before every name.
    ("_orig_mod.", Role::Unsaid),
    ("backbone.", Role::Unsaid),
    ("model.", Role::Unsaid),
    ("encoder.", Role::Unsaid),
    ("state_dict.", Role::Unsaid),
    ("vit.", Role::Unsaid),
    ("dinov2.", Role::Unsaid),
    ("dinov2_with_registers.", Role::Unsaid),
    ("teacher.", TEACHER),
    (MSN_TEACHER, TEACHER),
    ("state_dict_ema.", TEACHER),
    ("model_ema.", TEACHER),
    // MoCo v3's names for its two networks.
    ("momentum_encoder.", TEACHER),
    ("base_encoder.", STUDENT),
    ("student.", STUDENT),
    ("teacher/", TEACHER),
    ("student/", STUDENT),
    ("first/", Role::Moment),
    ("second/", Role::Moment),
];

/// MSN's names for its two networks. The second leads the names of other files too.
const MSN_TEACHER: &str = "target_encoder.";
const MSN_STUDENT: &str = "encoder.";

/// A tensor and its name in its parts.
pub(super) struct Key<'a> {
    pub tensor: &'a TensorInfo,
    pub role: Role,
    pub name: Canonical<'a>,
}

impl Key<'_> {
    pub fn is_whole(&self) -> bool {
        self.name.part == Part::Whole
    }
}

/// The names of all tensors in their parts.
pub(super) fn keys(tensors: &[TensorInfo]) -> Vec<Key<'_>> {
    let is_msn = tensors.iter().any(|tensor| tensor.name.starts_with(MSN_TEACHER));
    let mut keys = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let (role, name) = split(&tensor.name);
        let role = if is_msn && tensor.name.starts_with(MSN_STUDENT) { STUDENT } else { role };
        keys.push(Key { tensor, role, name: canonical(name) });
    }
    keys
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

/// The network to take: the one asked for, or the teacher, or the only one.
pub(super) fn choose(
    path: &Path,
    keys: &[Key<'_>],
    wanted: Option<NetworkRole>,
) -> Result<Option<NetworkRole>, WeightsError> {
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

/// Whose habits these names follow.
pub(super) fn layout(keys: &[Key<'_>]) -> KeyLayout {
    const MSN: [&str; 2] = ["fc.fc1.weight", "fc.fc3.weight"];
    const IBOT: [&str; 3] = ["masked_embed", "head.last_layer2.weight_g", "head.last_layer2.weight_v"];
    const TIMM: [&str; 6] =
        ["head.weight", "head.bias", "fc_norm.weight", "fc_norm.bias", "pre_logits.fc.weight", "reg_token"];
    let has = |names: &[&str]| keys.iter().any(|key| names.contains(&split(&key.tensor.name).1));
    if keys.iter().any(|key| lead(&key.tensor.name).contains('/')) {
        KeyLayout::Checkpoint
    } else if keys.iter().any(|key| key.name.dialect == Dialect::HuggingFace) {
        KeyLayout::HuggingFace
    } else if has(&MSN) {
        KeyLayout::Msn
    } else if has(&IBOT) {
        KeyLayout::Ibot
    } else if has(&TIMM) {
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
        assert_eq!(split("_orig_mod.module.cls_token"), (Role::Unsaid, "cls_token"));
        assert_eq!(split("module.base_encoder.cls_token"), (STUDENT, "cls_token"));
        assert_eq!(split("module.momentum_encoder.cls_token"), (Role::Of(NetworkRole::Teacher), "cls_token"));
        assert_eq!(split("head.module.weight"), (Role::Unsaid, "head.module.weight"));
        assert_eq!(split("teacher/backbone.cls_token"), (TEACHER, "cls_token"));
        assert_eq!(split("student.module.backbone.cls_token"), (STUDENT, "cls_token"));
        assert_eq!(split("second/backbone.cls_token"), (Role::Moment, "cls_token"));
        assert_eq!(split("dinov2.embeddings.cls_token"), (Role::Unsaid, "embeddings.cls_token"));
        assert_eq!((lead("teacher/head.mlp.0.bias"), lead("cls_token")), ("teacher/", ""));
    }
}
