//! From flags to data and recipe. Every command that speaks of a run's recipe reads it here, so that the same
//! flags mean the same run.

use std::sync::Arc;

use data::Source;
use ssl::recipe::{BUILT_IN, Facts, MACHINE, MethodName, RawRecipe, Recipe};
use train::run::Attempt;

use crate::args::{RecipeArgs, SplitArg};
use crate::error::CliError;
use crate::images;

/// The recipes of the built-in data, with their places: runs of minutes, where the rules for other data are made for hours.
fn built_in(method: MethodName) -> (&'static str, String) {
    let (text, name) = match method {
        MethodName::Dino => (include_str!("../../../recipes/synthetic.toml"), "synthetic"),
        MethodName::Ibot => (include_str!("../../../recipes/synthetic-ibot.toml"), "synthetic-ibot"),
        MethodName::Msn => (include_str!("../../../recipes/synthetic-msn.toml"), "synthetic-msn"),
    };
    (text, format!("{BUILT_IN}recipes/{name}.toml"))
}

impl RecipeArgs {
    /// The training images of a run and what they are. [`Self::asked`] is called before, so that a typing error costs no
    /// time.
    pub fn open(&self, asked: &RawRecipe) -> Result<(Arc<dyn Source>, Facts), CliError> {
        let (train, facts) = self.data(asked, SplitArg::Train)?;
        let facts = Facts { fingerprint: train.fingerprint(), ..facts };
        Ok((train, facts))
    }

    /// The recipe with everything that was not asked for derived from the data, or changed by attempts that collapsed.
    pub fn resolve(&self, asked: RawRecipe, facts: &Facts, attempts: &[Attempt]) -> Result<Recipe, CliError> {
        Ok(asked.resolve_after(facts, attempts)?.with_source(images::absolute(&self.data)))
    }

    /// The same for somebody who only looks at images: a batch that the data cannot fill is nothing to them.
    pub fn open_for_views(&self, split: SplitArg) -> Result<(Arc<dyn Source>, Recipe), CliError> {
        let mut asked = self.asked(None)?;
        let (train, facts) = self.data(&asked, split)?;
        asked.limit_batch(facts.images);
        Ok((train, asked.resolve(&facts)?))
    }

    /// The images of a split and what they are, but for their fingerprint.
    pub fn data(&self, asked: &RawRecipe, split: SplitArg) -> Result<(Arc<dyn Source>, Facts), CliError> {
        let train = images::open_chosen(&self.data, split)?;
        let facts = images::facts(&*train, asked.channels(), asked.orientation())?;
        Ok((train, facts))
    }

    /// What was asked for: the recipe file (for the built-in data, its own), above it `--set` and the flags, which must not
    /// contradict each other. `threads` is what was said about the machine; it is below all of them.
    pub fn asked(&self, threads: Option<usize>) -> Result<RawRecipe, CliError> {
        let mut machine = RawRecipe::default();
        if let Some(threads) = threads {
            machine.set_text("workers", &threads.to_string(), MACHINE)?;
        }
        let mut command_line = RawRecipe::default();
        self.keys.given().try_for_each(|(key, text, flag)| command_line.set_text(key, text, flag))?;
        for assignment in &self.set {
            let mut one = RawRecipe::default();
            one.set_assignment(assignment)?;
            command_line = command_line.beside(one)?;
        }
        let file = match &self.recipe {
            Some(path) => RawRecipe::from_file(path)?,
            None if self.data == "synthetic" || self.data.starts_with("synthetic:seed=") => {
                let (text, place) = built_in(command_line.method());
                RawRecipe::from_toml(text, &place)?
            }
            None => RawRecipe::default(),
        };
        Ok(machine.overlaid_by(file).overlaid_by(command_line))
    }
}

#[cfg(test)]
mod tests {
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn only_a_run_looks_into_the_images() {
        let data = "--data=synthetic:train=24,size=16";
        let views = Cli::try_parse_from(["dino-vmf", "views", data, "--out=x.png"]).unwrap();
        let Command::Views(views) = views.command else { panic!("another command") };
        assert_eq!(views.recipe.open_for_views(views.split).unwrap().1.facts().fingerprint, 0);
        let run = Cli::try_parse_from(["dino-vmf", "pretrain", data, "--batch-size=8"]).unwrap();
        let Command::Pretrain(run) = run.command else { panic!("another command") };
        let (source, facts) = run.recipe.open(&run.recipe.asked(None).unwrap()).unwrap();
        assert_eq!(facts.fingerprint, source.fingerprint());
    }
}
