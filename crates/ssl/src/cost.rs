//! What a training step costs, in floating-point operations as papers count them: the student three times its forward pass,
//! the teacher once, with nothing left out.

use model::{HeadConfig, VitConfig};

use crate::recipe::Recipe;
use crate::setup::{head_config, vit_config};

/// The views of an image: two global ones of a size, and some local ones of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Views {
    /// Height and width of the global views.
    pub global: (usize, usize),
    /// Height and width of the local views.
    pub local: (usize, usize),
    /// Number of local views.
    pub local_crops: usize,
}

/// Operations of a step, for one image.
pub fn per_image(vit: &VitConfig, head: &HeadConfig, views: &Views) -> f64 {
    let globals = 2.0 * vit.forward_flops(views.global);
    let locals = views.local_crops as f64 * vit.forward_flops(views.local);
    let (hidden, p) = (head.hidden as f64, head.bottleneck as f64);
    let row = 2.0 * (head.inputs as f64 * hidden + hidden * hidden + hidden * p + p * head.prototypes as f64);
    let student = globals + locals + (2 + views.local_crops) as f64 * row;
    3.0 * student + globals + 2.0 * row
}

/// Operations that a recipe spends on an image in a step, and those of computing its features once. None for a network
/// that does not exist.
pub(crate) fn of_recipe(recipe: &Recipe) -> Option<(f64, f64)> {
    let vit = vit_config(recipe).ok()?;
    let head = head_config(recipe);
    let size = |s: crate::recipe::Size| (s.height, s.width);
    let global = size(recipe.global_size());
    let views = Views { global, local: size(recipe.local_size()), local_crops: recipe.local_crops() };
    Some((per_image(&vit, &head, &views), vit.forward_flops(global)))
}
