//! The projection head beside a backbone, in DINO's names.

use super::file::{TensorInfo, WeightsFile};
use super::names::{self, NetworkRole, Role};

/// What a head's names begin with.
const HEAD: &str = "head.";

impl WeightsFile {
    /// The tensors of the head beside the backbone of this role: `mlp.0.weight`, `last_layer.weight_g` and so on. None in a
    /// file with a classifier instead, or with nothing beside the backbone.
    pub fn head(&self, role: Option<NetworkRole>) -> Vec<(String, TensorInfo)> {
        let role = role.map_or(Role::Unsaid, Role::Of);
        let keys = names::keys(self.tensors());
        let of_role = keys.iter().filter(|key| key.role == role);
        let found = of_role.filter_map(|key| Some((own_name(key.name.name.strip_prefix(HEAD)?), key.tensor.clone())));
        let found: Vec<(String, TensorInfo)> = found.collect();
        // A classifier is called `head` too, and has neither an MLP nor prototypes.
        let is_projection = found.iter().any(|(name, _)| name.starts_with("mlp.") || name.starts_with("last_layer."));
        if is_projection { found } else { Vec::new() }
    }
}

/// PyTorch has a second way to normalise weights, with names of its own.
fn own_name(name: &str) -> String {
    name.replace(".parametrizations.weight.original0", ".weight_g")
        .replace(".parametrizations.weight.original1", ".weight_v")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_normalise_weights_have_the_same_names() {
        assert_eq!(own_name("last_layer.parametrizations.weight.original1"), "last_layer.weight_v");
        assert_eq!(own_name("last_layer.weight_g"), "last_layer.weight_g");
    }
}
