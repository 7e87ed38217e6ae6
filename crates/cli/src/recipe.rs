//! From flags to data and recipe. Every command that speaks of a run's recipe reads it here, so that the same
//! flags mean the same run.

use std::sync::Arc;

use data::Source;
use ssl::recipe::{Facts, RawRecipe, Recipe};

use crate::args::{RecipeArgs, SplitArg};
use crate::error::CliError;
use crate::images;

/// The recipe of the built-in data: a run of minutes, where the rules for other data are made for hours.
const BUILT_IN: &str = include_str!("../../../recipes/synthetic.toml");

impl RecipeArgs {
    /// The training images, and the recipe with everything that was not asked for derived from them. [`Self::asked`] is
    /// called before, so that a typing error costs no time.
    pub fn open(&self, asked: RawRecipe) -> Result<(Arc<dyn Source>, Recipe), CliError> {
        let (train, facts) = self.data(&asked, SplitArg::Train)?;
        Ok((train, asked.resolve(&facts)?))
    }

    /// The same for somebody who only looks at images: a batch that the data cannot fill is nothing to them.
    pub fn open_for_views(&self, split: SplitArg) -> Result<(Arc<dyn Source>, Recipe), CliError> {
        let mut asked = self.asked(None)?;
        let (train, facts) = self.data(&asked, split)?;
        asked.limit_batch(facts.images);
        Ok((train, asked.resolve(&facts)?))
    }

    fn data(&self, asked: &RawRecipe, split: SplitArg) -> Result<(Arc<dyn Source>, Facts), CliError> {
        let train = images::open_chosen(&self.data, split)?;
        let facts = images::facts(&*train, asked.channels())?;
        Ok((train, facts))
    }

    /// What was asked for: the recipe file (for the built-in data, its own), above it `--set`, above that the flags.
    /// `threads` is what was said about the machine; it is below all of them.
    pub fn asked(&self, threads: Option<usize>) -> Result<RawRecipe, CliError> {
        let mut machine = RawRecipe::default();
        if let Some(threads) = threads {
            machine.set_text("workers", &threads.to_string(), "--threads or RAYON_NUM_THREADS")?;
        }
        let file = match &self.recipe {
            Some(path) => RawRecipe::from_file(path)?,
            None if self.data == "synthetic" || self.data.starts_with("synthetic:seed=") => {
                RawRecipe::from_toml(BUILT_IN, "recipes/synthetic.toml")?
            }
            None => RawRecipe::default(),
        };
        let (mut set, mut flags) = (RawRecipe::default(), RawRecipe::default());
        self.set.iter().try_for_each(|assignment| set.set_assignment(assignment))?;
        self.keys.given().try_for_each(|(key, text, flag)| flags.set_text(key, text, flag))?;
        Ok(machine.overlaid_by(file).overlaid_by(set).overlaid_by(flags))
    }
}
