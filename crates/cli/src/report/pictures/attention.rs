//! Where the network looks in some images that it was not trained on.

use std::ops::ControlFlow;
use std::sync::Arc;

use data::Source;
use eval::attention::{Colors, SHORT, Seen, heat, looks};
use eval::subset::Subset;
use report::page::Section;
use report::pictures::attention::{self, IMAGES, Looked};
use text::count;

use super::material::Material;
use crate::error::CliError;

/// Patches along the shorter side, at most: attention weighs every pair of them.
const PATCHES: usize = 30;

/// The section of some images.
pub fn section(material: &Material<'_>) -> Result<Section, CliError> {
    let weights = &material.weights;
    let (set, what) = material.unseen();
    let patch = weights.loaded.vit.config().patch;
    let seen = match weights.input.whole {
        true => Seen::Stretched(weights.input.size),
        false => Seen::Short(SHORT.min(PATCHES * patch)),
    };
    let source: Arc<dyn Source> = Arc::new(Subset::sample(set.source.clone(), IMAGES));
    let mut shown = Vec::new();
    let mut is_stopped = false;
    let looked = looks(material.network(), &*source, seen, weights.input.orientation, IMAGES, &mut |look| {
        let grid = look.attention.grid;
        let map = |weights: &[f64]| heat(weights, grid, 1, Colors::Viridis);
        let class = source.label(look.index).and_then(|label| source.class_names().get(label as usize).cloned());
        let (mean, heads) = (map(&look.attention.mean()), look.attention.heads().map(map).collect());
        shown.push(Looked { image: look.image, name: source.name(look.index), class, mean, heads });
        is_stopped = (material.request.should_stop)();
        Ok(if is_stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    // Those that were drawn before somebody wanted it to end are shown.
    if let Err(error) = looked
        && !is_stopped
    {
        return Err(error.into());
    }
    let heads = match weights.loaded.vit.config().heads {
        1 => "",
        _ => ": the mean over its heads beside the image, heads below it",
    };
    let about = format!(
        "{} and what the class token of the last block attends to{heads}. Bright is much, dark little; a square is a patch.",
        count(shown.len(), what)
    );
    Ok(attention::section(&about, &shown)?)
}
