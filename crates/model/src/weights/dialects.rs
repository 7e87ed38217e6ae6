//! The names that other programs give to the parameters of a backbone, and DINO's for the same.
//!
//! timm took over DINO's names, or DINO timm's; Hugging Face has its own, and keeps queries, keys and values apart.

use std::borrow::Cow;

/// More blocks than any network has: a larger number in a name is no block.
const MAX_BLOCKS: usize = 1024;

/// Which part of a parameter a tensor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// The rows of the queries, first in the joint projection of attention.
    Queries,
    /// Those of the keys.
    Keys,
    /// Those of the values.
    Values,
}

/// Whose way a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// DINO's, timm's, iBOT's, MSN's.
    Common,
    /// Hugging Face's `ViTModel` and `Dinov2Model`.
    HuggingFace,
}

/// A name in DINO's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Canonical<'a> {
    pub name: Cow<'a, str>,
    pub part: Part,
    pub dialect: Dialect,
}

/// What DINO calls the parameter that `name`, without what leads it, is or is a part of. A name that is nobody's stays as
/// it is.
pub(super) fn canonical(name: &str) -> Canonical<'_> {
    let whole = |name| Canonical { name, part: Part::Whole, dialect: Dialect::Common };
    if let Some((name, part)) = hugging_face(name) {
        return Canonical { name: Cow::Owned(name), part, dialect: Dialect::HuggingFace };
    }
    if name == "reg_token" {
        return whole(Cow::Borrowed("register_tokens"));
    }
    let Some((number, rest)) = numbered(name, "blocks.") else { return whole(Cow::Borrowed(name)) };
    // DINOv2 trains its blocks in chunks: `blocks.0.11.norm1.weight` is in block 11.
    let (block, rest) = numbered(rest, "").unwrap_or((number, rest));
    let rest = match rest {
        "gamma_1" => "ls1.gamma",
        "gamma_2" => "ls2.gamma",
        rest => rest,
    };
    whole(Cow::Owned(format!("blocks.{block}.{rest}")))
}

/// The same for Hugging Face's names; none for any other.
fn hugging_face(name: &str) -> Option<(String, Part)> {
    if let Some((block, rest)) = numbered(name, "layer.").or_else(|| numbered(name, "layers.")) {
        let (rest, part) = in_block(rest)?;
        return Some((format!("blocks.{block}.{rest}"), part));
    }
    let whole = |name: &str| Some((name.to_owned(), Part::Whole));
    if let Some(kind) = name.strip_prefix("layernorm.") {
        return whole(&format!("norm.{kind}"));
    }
    match name.strip_prefix("embeddings.")? {
        "cls_token" => whole("cls_token"),
        "position_embeddings" => whole("pos_embed"),
        "register_tokens" => whole("register_tokens"),
        "mask_token" => whole("mask_token"),
        rest => whole(&format!("patch_embed.proj.{}", rest.strip_prefix("patch_embeddings.projection.")?)),
    }
}

/// A name of Hugging Face within a block.
fn in_block(rest: &str) -> Option<(String, Part)> {
    const WHOLE: [(&str, &str); 12] = [
        ("layernorm_before.", "norm1."),
        ("layernorm_after.", "norm2."),
        ("norm1.", "norm1."),
        ("norm2.", "norm2."),
        ("attention.output.dense.", "attn.proj."),
        ("attention.o_proj.", "attn.proj."),
        ("intermediate.dense.", "mlp.fc1."),
        ("output.dense.", "mlp.fc2."),
        ("mlp.fc1.", "mlp.fc1."),
        ("mlp.fc2.", "mlp.fc2."),
        ("layer_scale1.lambda1", "ls1.gamma"),
        ("layer_scale2.lambda1", "ls2.gamma"),
    ];
    // The names of its files, and those of a state dict of version 5.
    const JOINT: [(&str, Part); 6] = [
        ("attention.attention.query.", Part::Queries),
        ("attention.attention.key.", Part::Keys),
        ("attention.attention.value.", Part::Values),
        ("attention.q_proj.", Part::Queries),
        ("attention.k_proj.", Part::Keys),
        ("attention.v_proj.", Part::Values),
    ];
    let joint = JOINT.iter().find_map(|(theirs, part)| Some((rest.strip_prefix(theirs)?, *part)));
    if let Some((kind, part)) = joint {
        return Some((format!("attn.qkv.{kind}"), part));
    }
    let (kind, ours) = WHOLE.iter().find_map(|(theirs, ours)| Some((rest.strip_prefix(theirs)?, ours)))?;
    Some((format!("{ours}{kind}"), Part::Whole))
}

/// The number of the block that a name in DINO's words belongs to.
pub(super) fn block_number(name: &str) -> Option<usize> {
    numbered(name, "blocks.").map(|(number, _)| number)
}

/// `prefix` N `.` rest: N and the rest.
fn numbered<'a>(name: &'a str, prefix: &str) -> Option<(usize, &'a str)> {
    let (number, rest) = name.strip_prefix(prefix)?.split_once('.')?;
    let number = number.parse().ok().filter(|&number| number < MAX_BLOCKS)?;
    Some((number, rest))
}

/// A part of a backbone that this program does not compute, by the name of its tensor in DINO's words; none where the
/// tensor is none of the backbone's.
pub(super) fn unknown_part(name: &str) -> Option<&'static str> {
    const ANYWHERE: [(&str, &str); 10] = [
        ("relative_position", "relative positions"),
        ("rel_pos", "relative positions"),
        ("rope", "rotary positions"),
        ("mlp.w12.", "a SwiGLU MLP"),
        ("mlp.w3.", "a SwiGLU MLP"),
        ("mlp.weights_in.", "a SwiGLU MLP"),
        ("mlp.weights_out.", "a SwiGLU MLP"),
        ("mlp.gate_proj.", "a gated MLP"),
        ("mlp.down_proj.", "an MLP of another kind"),
        ("q_norm.", "norms of queries and keys"),
    ];
    const LEADING: [(&str, &str); 7] = [
        ("dist_token", "a distillation token"),
        ("embeddings.distillation_token", "a distillation token"),
        ("norm_pre.", "a norm before the blocks"),
        ("fc_norm.", "a norm over the mean of its patches"),
        ("patch_embed.", "a patch embedding of another kind"),
        ("blocks.", "blocks of another kind"),
        ("layer.", "blocks of another kind"),
    ];
    let anywhere = ANYWHERE.iter().find(|(part, _)| name.contains(part));
    anywhere.or_else(|| LEADING.iter().find(|(part, _)| name.starts_with(part))).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> (String, Part) {
        let Canonical { name, part, .. } = canonical(name);
        (name.into_owned(), part)
    }

    #[test]
    fn names_of_all_dialects_are_told_in_dinos_words() {
        let whole = [
            ("blocks.3.norm1.weight", "blocks.3.norm1.weight"),
            ("blocks.0.11.mlp.fc1.bias", "blocks.11.mlp.fc1.bias"),
            ("blocks.2.gamma_1", "blocks.2.ls1.gamma"),
            ("reg_token", "register_tokens"),
            ("embeddings.cls_token", "cls_token"),
            ("embeddings.position_embeddings", "pos_embed"),
            ("embeddings.patch_embeddings.projection.weight", "patch_embed.proj.weight"),
            ("layer.7.layernorm_before.bias", "blocks.7.norm1.bias"),
            ("layer.7.norm2.bias", "blocks.7.norm2.bias"),
            ("layer.7.attention.output.dense.weight", "blocks.7.attn.proj.weight"),
            ("layer.7.intermediate.dense.weight", "blocks.7.mlp.fc1.weight"),
            ("layer.7.output.dense.weight", "blocks.7.mlp.fc2.weight"),
            ("layer.7.layer_scale2.lambda1", "blocks.7.ls2.gamma"),
            ("layernorm.weight", "norm.weight"),
            ("head.mlp.0.weight", "head.mlp.0.weight"),
            ("embeddings.other", "embeddings.other"),
        ];
        for (theirs, ours) in whole {
            assert_eq!(of(theirs), (ours.to_owned(), Part::Whole), "{theirs}");
        }
        assert_eq!(of("layer.1.attention.attention.key.bias"), ("blocks.1.attn.qkv.bias".to_owned(), Part::Keys));
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
    fn parts_that_are_not_computed_are_told_by_name() {
        assert_eq!(unknown_part("blocks.3.mlp.w12.weight"), Some("a SwiGLU MLP"));
        assert_eq!(unknown_part("blocks.3.attn.relative_position_bias_table"), Some("relative positions"));
        assert_eq!(unknown_part("rope_embed.periods"), Some("rotary positions"));
        assert_eq!(unknown_part("blocks.3.something"), Some("blocks of another kind"));
        assert_eq!(unknown_part("head.weight"), None);
    }
}
