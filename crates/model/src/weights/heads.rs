//! What lies beside a backbone in the checkpoint of a training: heads, a mask token, centres. A training that goes on with the
//! backbone can go on with these, where they fit.

use std::collections::BTreeMap;

use super::file::{TensorInfo, WeightsFile};
use super::names::{self, NetworkRole, Role};

/// The parts of a head as DINO names them; a classifier, which timm calls `head.weight`, is none.
const PARTS: [&str; 4] = ["head.mlp.", "head.last_layer.", "head.last_layer2.", PROTOTYPES_OF_MSN];
/// What the names of MSN's prototypes begin with, which are beside the head.
const PROTOTYPES_OF_MSN: &str = "prototypes.";
/// Names of other programs, from their beginnings on, and DINO's for the same.
const BEGINNINGS: [(&str, &str); 10] = [
    ("dino_head.", "head."),
    ("fc.fc1.", "head.mlp.0."),
    ("fc.bn1.", "head.mlp.1."),
    ("fc.fc2.", "head.mlp.3."),
    ("fc.bn2.", "head.mlp.4."),
    ("fc.fc3.", "head.mlp.6."),
    ("masked_embed", "mask_token"),
    ("dino_loss.center", "center"),
    ("ibot_loss.center2", "patch_center"),
    ("ibot_loss.center", "center"),
];
/// PyTorch's later names for the length and the direction of a weight.
const ENDS: [(&str, &str); 2] =
    [(".parametrizations.weight.original0", ".weight_g"), (".parametrizations.weight.original1", ".weight_v")];
/// Buffers of batch normalisation, which are no parameters.
const BUFFERS: [&str; 3] = [".running_mean", ".running_var", ".num_batches_tracked"];

impl WeightsFile {
    /// The heads, the mask token and the centres that belong to a network of the file, or to no network in particular, by
    /// DINO's names for them: `head.mlp.0.weight`, `head.last_layer.weight_v`, `mask_token`, `center`.
    pub fn beside_backbone(&self, role: Option<NetworkRole>) -> BTreeMap<String, TensorInfo> {
        let own = role.map_or(Role::Unsaid, Role::Of);
        let mut found = BTreeMap::new();
        // What is said to be the network's counts more than what is nobody's.
        for wanted in [Role::Unsaid, own] {
            let keys = names::keys(self.tensors());
            let of_role = keys.iter().filter(|key| key.role == wanted && key.is_whole());
            found.extend(of_role.filter_map(|key| Some((part_of_head(&key.name.name)?, key.tensor.clone()))));
        }
        found
    }

    /// The same where MSN's prototypes are those that were trained: they are no part of a network, and the student's are taken for
    /// both.
    pub fn beside_backbone_as_trained(&self, role: Option<NetworkRole>) -> BTreeMap<String, TensorInfo> {
        let mut found = self.beside_backbone(role);
        if self.has_network(NetworkRole::Student) {
            let trained = self.beside_backbone(Some(NetworkRole::Student)).into_iter();
            found.extend(trained.filter(|(name, _)| name.starts_with(PROTOTYPES_OF_MSN)));
        }
        found
    }

    /// Whether the file has tensors of this network.
    pub fn has_network(&self, role: NetworkRole) -> bool {
        names::keys(self.tensors()).iter().any(|key| key.role == Role::Of(role))
    }
}

/// DINO's name for a part of a head; none for anything else.
fn part_of_head(name: &str) -> Option<String> {
    // MSN's prototypes are one matrix, whose rows are directions.
    if name == "prototypes" {
        return Some("prototypes.weight_v".to_owned());
    }
    let begun = BEGINNINGS.iter().find_map(|(theirs, ours)| Some(format!("{ours}{}", name.strip_prefix(theirs)?)));
    let name = begun.unwrap_or_else(|| name.to_owned());
    let ended = ENDS.iter().find_map(|(theirs, ours)| Some(format!("{}{ours}", name.strip_suffix(theirs)?)));
    let name = ended.unwrap_or(name);
    let is_single = ["mask_token", "center", "patch_center"].contains(&name.as_str());
    let is_part = PARTS.iter().any(|part| name.starts_with(part)) && BUFFERS.iter().all(|end| !name.ends_with(end));
    (is_single || is_part).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_other_programs_get_dinos_names() {
        for (theirs, ours) in [
            ("head.mlp.0.weight", Some("head.mlp.0.weight")),
            ("dino_head.last_layer.weight_v", Some("head.last_layer.weight_v")),
            ("head.last_layer.parametrizations.weight.original0", Some("head.last_layer.weight_g")),
            ("head.last_layer2.weight_g", Some("head.last_layer2.weight_g")),
            ("fc.bn2.bias", Some("head.mlp.4.bias")),
            ("fc.bn2.running_mean", None),
            ("prototypes", Some("prototypes.weight_v")),
            ("masked_embed", Some("mask_token")),
            ("ibot_loss.center2", Some("patch_center")),
            ("dino_loss.center", Some("center")),
            ("head.weight", None),
            ("ibot_head.mlp.0.weight", None),
            ("blocks.0.mlp.fc1.weight", None),
        ] {
            assert_eq!(part_of_head(theirs).as_deref(), ours, "{theirs}");
        }
    }
}
