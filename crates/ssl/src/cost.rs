//! What a training step costs, in floating-point operations as papers count them: the student three times its forward pass,
//! the teacher once, with nothing left out.

use model::VitConfig;

use crate::method;
use crate::recipe::{MethodName, Recipe};
use crate::setup::{head_config, vit_config};
use crate::view_plan::Viewer;

/// Operations that a recipe spends on an image in a step, and those of computing its features once. None for a network
/// that does not exist.
pub fn of_recipe(recipe: &Recipe) -> Option<(f64, f64)> {
    let (vit, head) = (vit_config(recipe).ok()?, head_config(recipe));
    let (hidden, p) = (head.hidden as f64, head.bottleneck as f64);
    let row = 2.0 * (head.inputs as f64 * hidden + hidden * hidden + hidden * p + p * head.prototypes as f64);
    let views = method::of(recipe).views();
    let of = |viewer| views.sizes_seen_by(viewer).map(|size| vit.forward_flops(size) + row).sum::<f64>();
    let (student, teacher) = of_patches(recipe, &vit);
    let all = 3.0 * (of(Viewer::Student) + student * row) + of(Viewer::Teacher) + teacher * row;
    let size = recipe.global_size();
    Some((all, vit.forward_flops((size.height, size.width))))
}

/// Patches of an image that go through the heads of student and teacher, in the mean.
fn of_patches(recipe: &Recipe, vit: &VitConfig) -> (f64, f64) {
    match recipe.method() {
        MethodName::Dino | MethodName::Msn => return (0.0, 0.0),
        MethodName::Ibot => {}
    }
    let (rows, columns) = vit.grid();
    let seen = 2.0 * (rows * columns) as f64;
    let ratio = recipe.mask_ratio();
    (seen * recipe.masked_views() * 0.5 * (ratio.low + ratio.high), seen)
}
