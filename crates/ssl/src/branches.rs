//! Which residual branches the student's rows take: a function of the recipe, the epoch and the images.

use model::DropPath;
use random::{Key, Purpose};

use crate::recipe::Recipe;
use crate::view_plan::ViewPlan;

/// The drop path of a recipe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branches {
    /// Rate of the last block.
    rate: f64,
    depth: usize,
    seed: u64,
}

impl Branches {
    /// That of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        Self { rate: recipe.drop_path(), depth: recipe.arch().depth(), seed: recipe.seed() }
    }

    /// How many blocks choose; none where every branch is taken.
    pub fn blocks(&self) -> Option<usize> {
        (self.rate != 0.0).then_some(self.depth)
    }

    /// The choices of a step. Each view of each image draws from its own key: that of the image whose turn it was, as its
    /// views do.
    pub fn draw(&self, views: &ViewPlan, images: &[u64], epoch: u64) -> Option<DropPath> {
        let depth = self.blocks()?;
        let key = Key::new(self.seed, Purpose::DropPath).epoch(epoch);
        Some(DropPath::draw(self.rate, depth, views.student_keys(key, images)))
    }
}
