//! A recipe after attempts that collapsed: what they have changed, and what is done about the next collapse.
//!
//! An attempt changes only what nobody asked for. Its values stand below those that were given and above those that are
//! derived, and each says which attempt it comes from.

use train::run::{Attempt, Change};

use super::check::{Facts, check};
use super::error::RecipeError;
use super::explain::Origin;
use super::fields::{RawRecipe, Recipe};
use super::values::OnCollapse;
use crate::health::{CollapseKind, Course, Remedy};

/// How often a run begins again by itself.
pub const MOST_RETRIES: usize = 2;

impl RawRecipe {
    /// Fills every gap for this data and checks the whole.
    pub fn resolve(self, facts: &Facts) -> Result<Recipe, RecipeError> {
        self.resolve_after(facts, &[])
    }

    /// The same after attempts that collapsed, with what they have changed.
    pub fn resolve_after(self, facts: &Facts, attempts: &[Attempt]) -> Result<Recipe, RecipeError> {
        let decides = self.on_collapse.is_some();
        let given: Vec<&str> = self.given().into_iter().map(|(key, _)| key.name).collect();
        let (mut changed, mut origins) = (RawRecipe::default(), Vec::new());
        for (attempt, number) in attempts.iter().zip(2..) {
            for Change { key, to, .. } in attempt.changes.iter().filter(|change| !given.contains(&change.key.as_str()))
            {
                let why = attempt.why(key, number).unwrap_or_default();
                changed.set_text(key, to, &why)?;
                origins.push((key, Origin::Derived(why)));
            }
        }
        let mut recipe = changed.overlaid_by(self).fill(facts)?;
        origins.into_iter().for_each(|(key, origin)| recipe.set_origin(key, origin));
        check(&recipe)?;
        if !decides {
            let (value, reason) = recipe.on_uniform(attempts.len());
            recipe.on_collapse.value = value;
            recipe.set_origin("on_collapse", Origin::Derived(reason));
        }
        Ok(recipe)
    }
}

impl Recipe {
    /// What is done about a collapse unless somebody says so, by the most frequent kind.
    fn on_uniform(&self, retries: usize) -> (OnCollapse, String) {
        if retries >= MOST_RETRIES {
            return (OnCollapse::Stop, format!("{retries} attempts have collapsed"));
        }
        let remedies = Course::of(self).remedies(CollapseKind::Uniform, None);
        let Some(first) = remedies.first() else { return (OnCollapse::Stop, "no safer value is known".to_owned()) };
        match self.first_given(first) {
            Some(key) => (OnCollapse::Stop, format!("{key} was given, and would be changed first")),
            None => (OnCollapse::Retry, format!("{} may be tried then: it was not given", first.assignments())),
        }
    }

    /// The first key of a remedy that somebody has set: it is not for the program to change.
    pub fn first_given(&self, remedy: &Remedy) -> Option<&'static str> {
        let lines = self.explain();
        let is_given = |key: &str| lines.iter().any(|l| l.key == key && matches!(l.origin, Origin::Given(_)));
        remedy.changes.iter().map(|&(key, _)| key).find(|key| is_given(key))
    }

    /// A remedy as the changes of a next attempt.
    pub fn changes_by(&self, remedy: &Remedy) -> Vec<Change> {
        let lines = self.explain();
        let now = |key: &str| lines.iter().find(|l| l.key == key).map_or(String::new(), |line| line.value.clone());
        let change =
            |(key, to): &(&'static str, String)| Change { key: (*key).to_owned(), from: now(key), to: to.clone() };
        remedy.changes.iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts { images: 8000, height: 160, width: 160, labelled: true, fingerprint: 7 };

    fn resolve(text: &str, attempts: &[Attempt]) -> Recipe {
        RawRecipe::from_toml(text, "my.toml").unwrap().resolve_after(&FACTS, attempts).unwrap()
    }

    fn origin(recipe: &Recipe, key: &str) -> String {
        recipe.explain().iter().find(|line| line.key == key).unwrap().origin.to_string()
    }

    fn attempt(changes: Vec<Change>, since: u64) -> Attempt {
        let (became, reason) = ("uniform".to_owned(), "it often helps".to_owned());
        Attempt { run: "r".to_owned(), steps: since + 100, since, healthy: None, became, changes, reason }
    }

    /// What the program does when an attempt of this recipe becomes uniform.
    fn next(recipe: &Recipe, since: u64) -> Attempt {
        let remedy = Course::of(recipe).remedies(CollapseKind::Uniform, None).remove(0);
        assert_eq!(recipe.first_given(&remedy), None);
        attempt(recipe.changes_by(&remedy), since)
    }

    #[test]
    fn each_attempt_changes_one_thing_and_says_why_and_the_third_is_the_last() {
        let first = resolve("epochs = 50", &[]);
        assert_eq!(first.on_collapse(), OnCollapse::Retry);
        assert!(origin(&first, "on_collapse").contains("momentum_teacher = 0."));
        let one = next(&first, 1240);
        let second = resolve("epochs = 50", std::slice::from_ref(&one));
        let slower = |momentum: f64| 1.0 - (1.0 - momentum) / 2.0;
        assert!((second.momentum_teacher() - slower(first.momentum_teacher())).abs() < 1e-9);
        let why = format!("derived: attempt 2: with {} it became uniform at step 1240", first.momentum_teacher());
        assert_eq!((origin(&second, "momentum_teacher"), second.on_collapse()), (why, OnCollapse::Retry));
        assert!(first.same_run(&second).is_err(), "it is another run");

        let two = next(&second, 900);
        let third = resolve("epochs = 50", &[one, two]);
        assert!((third.momentum_teacher() - slower(second.momentum_teacher())).abs() < 1e-9);
        assert!(origin(&third, "momentum_teacher").starts_with("derived: attempt 3: with 0."));
        assert_eq!(third.on_collapse(), OnCollapse::Stop);
        assert!(origin(&third, "on_collapse").contains("2 attempts have collapsed"));
    }

    #[test]
    fn what_was_given_is_not_changed_and_what_was_said_about_a_collapse_stays() {
        let recipe = resolve("head_batch_norm = false", &[]);
        assert_eq!(recipe.on_collapse(), OnCollapse::Stop);
        assert!(origin(&recipe, "on_collapse").contains("head_batch_norm was given"));
        let change = Change { key: "head_batch_norm".into(), from: "false".into(), to: "true".into() };
        let after = resolve("head_batch_norm = false", &[attempt(vec![change], 10)]);
        assert!(!after.head_batch_norm(), "so that the folder, which has another value, refuses it");
        assert_eq!(resolve("on_collapse = \"continue\"", &[]).on_collapse(), OnCollapse::Continue);
        let given = resolve("lr = 10", &[]);
        assert_eq!(given.on_collapse(), OnCollapse::Stop, "it is the lr that would be changed");
        assert_eq!(resolve("lr = 1e-3", &[]).on_collapse(), OnCollapse::Retry);
    }
}
