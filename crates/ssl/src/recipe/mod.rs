//! Recipes: what a run trains, as a function of the data-set size, the image size and the batch.
//!
//! What was asked for is a [`RawRecipe`]: a TOML file, `--set key=value` and flags, each key possibly absent. Resolving
//! it against the [`Facts`] of the data fills every gap, by a default or by a rule whose reason is kept, and checks the
//! whole. Only the result, a [`Recipe`], can train; there is no other way to make one.
//!
//! ```
//! use ssl::recipe::{Facts, RawRecipe};
//! let mut asked = RawRecipe::from_toml("prototypes = \"vmf\"\nepochs = 100", "my.toml")?;
//! asked.set_assignment("batch_size=32")?;
//! let recipe = asked.resolve(&Facts { images: 50_000, height: 32, width: 32, labelled: true, fingerprint: 7 })?;
//! assert_eq!((recipe.patch_size(), recipe.out_dim(), recipe.steps_per_epoch()), (4, 4096, 1562));
//! # Ok::<(), ssl::recipe::RecipeError>(())
//! ```

mod adapt_rules;
mod budget;
mod check;
mod derive;
mod early;
mod error;
mod explain;
mod fields;
mod fill;
mod from_weights;
mod nearest;
mod parse;
mod retry;
mod rule;
mod values;
mod view_rules;
mod warnings;

pub use budget::{BudgetError, Fitted, fit, fit_by_count, fitted_before};
pub use check::Facts;
pub use error::RecipeError;
pub use explain::{BUILT_IN, Line, MACHINE, Origin};
pub use fields::{RawRecipe, Recipe};
pub use from_weights::HeadShape;
pub use nearest::nearest_key;
pub use parse::of_run;
pub use retry::MOST_RETRIES;
pub use values::{
    Begin, Centering, Extension, GradientWire, Interval, MaskShape, MethodName, NoSize, OnCollapse, Prototypes,
    ResidualStream, Size, WeightsDigest,
};

/// The names of all recipe keys, in the order in which they are printed.
pub fn keys() -> impl Iterator<Item = &'static str> {
    fields::KEYS.iter().map(|key| key.name)
}

/// A key of a recipe, for people.
#[derive(Clone, Debug)]
pub struct KeyHelp {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub meaning: &'static str,
    /// The values that it takes.
    pub allowed: String,
    /// The methods that it applies to, where they are not all.
    pub methods: Option<String>,
}

/// All keys of a recipe.
pub fn help() -> impl Iterator<Item = KeyHelp> {
    fields::KEYS.iter().map(|key| KeyHelp {
        name: key.name,
        meaning: key.meaning.trim(),
        allowed: (key.rule)().to_string(),
        methods: key.scope.names(),
    })
}
