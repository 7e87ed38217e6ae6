//! Which layer of a vision transformer a parameter belongs to: what layer-wise learning rates go by.

/// The layer of a parameter, by its name without what stands before all of the backbone's: 0 for what comes before the first
/// block (tokens, positions, patches), i + 1 for block i, and `depth` + 1 for the norm and a head behind the last one.
pub fn layer_of(name: &str, depth: usize) -> usize {
    if name.starts_with("norm.") || name.starts_with("head.") {
        return depth + 1;
    }
    let block = name.strip_prefix("blocks.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    block.map_or(0, |block| block + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_from_the_pixels_on() {
        let names =
            ["pos_embed", "patch_embed.proj.bias", "blocks.0.norm1.weight", "blocks.11.mlp.fc2.bias", "norm.bias"];
        assert_eq!(names.map(|name| layer_of(name, 12)), [0, 0, 1, 12, 13]);
        assert_eq!(layer_of("head.weight", 12), 13);
    }
}
