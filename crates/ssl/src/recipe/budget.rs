//! A recipe for the minutes that there are, for people who want to see something today.
//!
//! The rules of [`derive`](super::derive) are made for hours. Where there are only minutes, a smaller network on smaller views
//! learns more than a large one that has seen each image twice. So the recipe is made cheaper, rung by rung, until enough
//! steps fit; what a rung costs is measured, not guessed. What was asked for stays as it is.

use std::time::Instant;

use model::Arch;
use toml::Value;

use super::check::Facts;
use super::error::RecipeError;
use super::fields::{Given, RawRecipe, Recipe};
use crate::cost;

/// Steps after which runs on a few thousand images had left raw pixels behind: 620 of batch 128 on Imagenette, 1,500 of
/// batch 64 on `synthetic`, with some to spare.
const ENOUGH_STEPS: f64 = 2000.0;
/// The share of the time that evaluations between the epochs may take.
const FOR_EVALUATIONS: f64 = 0.1;
/// The share that is planned with: no step is as fast as the steps of a trial all the time.
const PLANNED: f64 = 0.93;
/// Evaluations at the end beside the last one: raw pixels, which cost no less, and the untrained network.
const LAST_EVALUATIONS: f64 = 2.0;
/// The most evaluations between the epochs.
const MOST_EVALUATIONS: f64 = 20.0;

/// How much better a dear recipe may use the machine than the cheapest, which waits for its images.
const OPTIMISM: f64 = 2.0;

/// A way to make a recipe cheaper: each thing is changed where nobody asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    arch: Option<Arch>,
    /// Side of the global views and of a patch.
    view: Option<(usize, usize)>,
    local_crops: Option<usize>,
}

/// From the derived recipe down, for images of this short side.
fn changes(short: usize) -> Vec<Change> {
    let change = |arch, view, crops| Change { arch: Some(arch), view: Some(view), local_crops: Some(crops) };
    let derived = Change { arch: None, view: None, local_crops: None };
    let fewer = |crops| Change { local_crops: Some(crops), ..derived };
    let mut all = vec![derived, fewer(4)];
    match short {
        128.. => all.extend([
            change(Arch::Tiny, (160, 16), 4),
            change(Arch::Tiny, (128, 16), 4),
            change(Arch::Nano, (128, 16), 4),
            change(Arch::Nano, (64, 8), 4),
            change(Arch::Nano, (64, 8), 2),
            change(Arch::Nano, (48, 8), 2),
        ]),
        48.. => {
            all.extend([change(Arch::Nano, (64, 8), 4), change(Arch::Nano, (64, 8), 2), change(Arch::Nano, (48, 8), 2)])
        }
        16.. => all.extend([fewer(2), change(Arch::Nano, (short.min(32) / 8 * 8, 8), 2)]),
        _ => all.push(fewer(2)),
    }
    all.retain(|change| change.view.is_none_or(|(side, _)| side <= short));
    all
}

/// A recipe that fits.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// What was asked for, and what the time allows beside it.
    pub asked: RawRecipe,
    /// What was decided, for people.
    pub summary: String,
}

/// Why no recipe fits. `E` is what a trial may fail with.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError<E: std::error::Error + 'static> {
    /// What was asked for is no recipe.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// A trial failed.
    #[error(transparent)]
    Trial(E),
    /// A run is made of whole passes over the data.
    #[error(
        "{minutes} minutes are too short: one pass over {images} images takes {needed:.1} minutes here, at {rate:.0} images a \
         second with the cheapest recipe. Give --minutes {enough:.0} or more, or fewer images"
    )]
    NoEpoch {
        /// What was asked for.
        minutes: f64,
        /// Images of the data.
        images: usize,
        /// Minutes of a pass.
        needed: f64,
        /// Images a second.
        rate: f64,
        /// Minutes with which it would go.
        enough: f64,
    },
}

/// Fills in what makes a run end within `minutes` from now. `seconds_per_step` is asked for the speed of a recipe here.
pub fn fit<E: std::error::Error + 'static>(
    asked: &RawRecipe,
    facts: &Facts,
    minutes: f64,
    mut seconds_per_step: impl FnMut(&Recipe) -> Result<f64, E>,
) -> Result<Fitted, BudgetError<E>> {
    fit_all(&without_epochs(asked, minutes)?, facts, minutes, &mut seconds_per_step)
}

/// The same where nothing is said of epochs.
fn fit_all<E: std::error::Error + 'static>(
    asked: &RawRecipe,
    facts: &Facts,
    minutes: f64,
    seconds_per_step: &mut dyn FnMut(&Recipe) -> Result<f64, E>,
) -> Result<Fitted, BudgetError<E>> {
    let begun = Instant::now();
    let place = format!("--minutes {minutes}");
    let mut rungs = costs(asked, facts, &place)?;
    rungs.sort_by(|a, b| b.cost.total_cmp(&a.cost));
    let Some(cheapest) = rungs.pop() else { return Err(RecipeError::NoImages.into()) };
    let plan = |rung: &Rung, step: f64| Plan::new(rung, 60.0 * minutes - begun.elapsed().as_secs_f64(), step);
    let mut measure = |rung: &Rung| seconds_per_step(&rung.recipe).map_err(BudgetError::Trial);
    // The cheapest is tried first: it takes a moment, and tells about how far up others are worth a trial.
    let step = measure(&cheapest)?;
    let mut rate = OPTIMISM * cheapest.cost / step;
    for rung in rungs.into_iter().filter(|rung| rung.cost > cheapest.cost) {
        if !plan(&rung, rung.cost / rate).is_enough(&rung) {
            continue;
        }
        let step = measure(&rung)?;
        let plan = plan(&rung, step);
        if plan.is_enough(&rung) {
            return plan.finish(rung, minutes, &place);
        }
        rate = rung.cost / step;
    }
    plan(&cheapest, step).finish(cheapest, minutes, &place)
}

/// The same without a trial, by the count of operations, where it is known how fast one recipe trains here.
pub fn fit_by_count(
    asked: &RawRecipe,
    facts: &Facts,
    minutes: f64,
    (known, images_per_second): (&Recipe, f64),
) -> Option<Fitted> {
    let (known, _) = cost::of_recipe(known)?;
    let rate = known * images_per_second;
    let guess = |recipe: &Recipe| {
        let cost = cost::of_recipe(recipe).map_or(known, |(cost, _)| cost);
        Ok::<f64, std::convert::Infallible>(recipe.batch_size() as f64 * cost / rate)
    };
    // Whoever follows this advice leaves --epochs out.
    let asked = RawRecipe { epochs: None, ..asked.clone() };
    fit_all(&asked, facts, minutes, &mut { guess }).ok()
}

/// A time decides the number of epochs. One in a recipe's file gives way to it, as it does to any flag; one on the command
/// line contradicts it.
fn without_epochs(asked: &RawRecipe, minutes: f64) -> Result<RawRecipe, RecipeError> {
    if let Some(Given { value, place }) = asked.epochs.as_ref().filter(|given| given.place.starts_with("--")) {
        let first = if place == "--set" { format!("--set epochs={value}") } else { format!("{place} {value}") };
        return Err(RecipeError::GivenTwice { key: "epochs", first, second: format!("--minutes {minutes}") });
    }
    Ok(RawRecipe { epochs: None, ..asked.clone() })
}

/// What a time decides where nobody asked for it.
const FITTED: [&str; 6] = ["arch", "patch_size", "global_size", "local_crops", "epochs", "knn_every"];

/// What the time decided when a run was begun: a resumed run takes that, and tries nothing again.
pub fn fitted_before(asked: &RawRecipe, begun: &Recipe, minutes: f64) -> Result<RawRecipe, RecipeError> {
    let mut decided = RawRecipe::default();
    for line in begun.explain().iter().filter(|line| FITTED.contains(&line.key)) {
        decided.set_text(line.key, &line.value, &format!("--minutes {minutes}"))?;
    }
    Ok(decided.overlaid_by(without_epochs(asked, minutes)?))
}

/// A recipe that might fit.
struct Rung {
    asked: RawRecipe,
    recipe: Recipe,
    /// Operations of a step.
    cost: f64,
    /// What computing the features of an image costs, in images of a step.
    reading: f64,
}

fn costs(asked: &RawRecipe, facts: &Facts, place: &str) -> Result<Vec<Rung>, RecipeError> {
    let mut rungs = Vec::new();
    for change in changes(facts.size().short()) {
        let mut asked = asked.clone();
        let (is_arch, is_crops) = (asked.arch.is_some(), asked.local_crops.is_some());
        let is_view = asked.global_size.is_some() || asked.patch_size.is_some() || asked.local_size.is_some();
        if let Some(arch) = change.arch.filter(|_| !is_arch) {
            asked.set("arch", &Value::String(arch.name().to_owned()), place)?;
        }
        if let Some((side, patch)) = change.view.filter(|_| !is_view) {
            asked.set("global_size", &Value::Integer(side as i64), place)?;
            asked.set("patch_size", &Value::Integer(patch as i64), place)?;
        }
        if let Some(crops) = change.local_crops.filter(|_| !is_crops) {
            asked.set("local_crops", &Value::Integer(crops as i64), place)?;
        }
        let recipe = match asked.clone().resolve(facts) {
            Ok(recipe) => recipe,
            // What was asked for is the user's to mend; what is tried instead may not suit everything that was.
            Err(error) if rungs.is_empty() => return Err(error),
            Err(_) => continue,
        };
        if let Some((image, features)) = cost::of_recipe(&recipe) {
            let cost = image * recipe.batch_size() as f64;
            rungs.push(Rung { asked, recipe, cost, reading: features / image });
        }
    }
    Ok(rungs)
}

/// What fits into a time.
struct Plan {
    images_per_second: f64,
    seconds_per_epoch: f64,
    epochs: f64,
    steps: f64,
    evaluations: f64,
}

impl Plan {
    fn new(&Rung { ref recipe, reading, .. }: &Rung, seconds: f64, step: f64) -> Self {
        let images_per_second = recipe.batch_size() as f64 / step;
        let judged = recipe.facts.images.min(recipe.knn_voters()) + recipe.knn_queries();
        let is_judged = recipe.knn_every() > 0;
        let evaluation = if is_judged { judged as f64 * reading / images_per_second } else { 0.0 };
        let left = (PLANNED * seconds - LAST_EVALUATIONS * evaluation).max(0.0);
        let evaluations = if is_judged {
            (FOR_EVALUATIONS * left / evaluation.max(1e-9)).floor().clamp(1.0, MOST_EVALUATIONS)
        } else {
            0.0
        };
        let seconds_per_epoch = step * recipe.steps_per_epoch() as f64;
        let epochs = ((left - evaluations * evaluation).max(0.0) / seconds_per_epoch).floor();
        let epochs = epochs.min(recipe.epochs() as f64);
        let steps = epochs * recipe.steps_per_epoch() as f64;
        Self { images_per_second, seconds_per_epoch, epochs, steps, evaluations }
    }

    fn is_enough(&self, rung: &Rung) -> bool {
        self.steps >= ENOUGH_STEPS || self.epochs >= rung.recipe.epochs() as f64
    }

    fn finish<E: std::error::Error + 'static>(
        self,
        rung: Rung,
        minutes: f64,
        place: &str,
    ) -> Result<Fitted, BudgetError<E>> {
        let is_enough = self.is_enough(&rung);
        let Rung { asked: mut raw, recipe, .. } = rung;
        let (images, rate) = (recipe.facts.images, self.images_per_second);
        if self.epochs < 1.0 {
            let needed = self.seconds_per_epoch / 60.0;
            return Err(BudgetError::NoEpoch { minutes, images, needed, rate, enough: (1.5 * needed).ceil() + 1.0 });
        }
        let epochs = self.epochs as usize;
        raw.set("epochs", &Value::Integer(epochs as i64), place)?;
        if raw.knn_every.is_none() && self.evaluations > 0.0 {
            let every = (self.epochs / self.evaluations).ceil().max(1.0);
            raw.set("knn_every", &Value::Integer(every as i64), place)?;
        }
        let (arch, size) = (recipe.arch(), recipe.global_size());
        let mut summary = format!(
            "--minutes {minutes}: {rate:.0} images a second here with {arch} on views of {size}, so {} of {} fit",
            text::count(epochs, "epoch"),
            text::count(recipe.steps_per_epoch() as usize, "step"),
        );
        if !is_enough {
            summary += &format!(
                ". That is {:.0} steps, fewer than the {ENOUGH_STEPS:.0} after which most runs have learnt something",
                self.steps
            );
        }
        Ok(Fitted { asked: raw, summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const PHOTOGRAPHS: Facts = Facts { images: 300, height: 533, width: 400, labelled: true, fingerprint: 7 };

    /// A machine that makes so many operations a second.
    fn machine(gflops: f64) -> impl FnMut(&Recipe) -> Result<f64, Infallible> {
        move |recipe| Ok(recipe.batch_size() as f64 * cost::of_recipe(recipe).unwrap().0 / (gflops * 1e9))
    }

    fn fitted(asked: &str, facts: &Facts, minutes: f64, gflops: f64) -> Recipe {
        let asked = RawRecipe::from_toml(asked, "my.toml").unwrap();
        fit(&asked, facts, minutes, machine(gflops)).unwrap().asked.resolve(facts).unwrap()
    }

    #[test]
    fn a_slow_machine_gets_a_small_network_and_a_fast_one_what_is_derived() {
        let slow = fitted("", &PHOTOGRAPHS, 5.0, 100.0);
        assert_eq!((slow.arch(), slow.patch_size()), (Arch::Nano, 8));
        assert!(slow.global_size().height <= 64);
        let derived = RawRecipe::default().resolve(&PHOTOGRAPHS).unwrap();
        let fast = fitted("", &PHOTOGRAPHS, 5.0, 300_000.0);
        assert_eq!((fast.arch(), fast.global_size(), fast.epochs()), (derived.arch(), derived.global_size(), 800));
    }

    #[test]
    fn the_run_takes_the_time_that_there_is_and_no_more() {
        for gflops in [20.0, 100.0, 1000.0, 20_000.0] {
            for minutes in [2.0, 5.0, 60.0] {
                let recipe = fitted("", &PHOTOGRAPHS, minutes, gflops);
                let step = machine(gflops)(&recipe).unwrap();
                let training = step * recipe.total_steps() as f64 / 60.0;
                assert!(training <= minutes, "{gflops} GFLOP/s: {training} of {minutes} minutes");
                let is_long = training >= 0.5 * minutes || recipe.epochs() == 800;
                assert!(is_long, "{gflops} GFLOP/s: only {training} of {minutes} minutes");
                assert!(recipe.epochs() / recipe.knn_every() <= 20);
            }
        }
    }

    #[test]
    fn what_was_asked_for_stays() {
        let text = "arch = \"vit_small\"\nglobal_size = 96\nlocal_crops = 6\nknn_every = 3";
        let recipe = fitted(text, &PHOTOGRAPHS, 10.0, 500.0);
        assert_eq!((recipe.arch(), recipe.global_size().height, recipe.local_crops()), (Arch::Small, 96, 6));
        assert_eq!(recipe.knn_every(), 3);
    }

    #[test]
    fn less_than_one_pass_is_refused_with_the_time_that_it_needs() {
        let many = Facts { images: 1_281_167, ..PHOTOGRAPHS };
        let error = fit(&RawRecipe::default(), &many, 5.0, machine(100.0)).unwrap_err().to_string();
        assert!(error.contains("one pass over 1281167 images takes"), "{error}");
        let enough: f64 = error.split("--minutes ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(fit(&RawRecipe::default(), &many, enough, machine(100.0)).is_ok(), "{error}");
    }

    #[test]
    fn a_resumed_run_takes_what_was_decided_when_it_began() {
        let begun = fitted("", &PHOTOGRAPHS, 5.0, 100.0);
        let again = fitted_before(&RawRecipe::default(), &begun, 5.0).unwrap().resolve(&PHOTOGRAPHS).unwrap();
        assert_eq!(again, begun);
        let given = RawRecipe::from_toml("epochs = 3\nout_dim = 64", "my.toml").unwrap();
        let again = fitted_before(&given, &begun, 5.0).unwrap().resolve(&PHOTOGRAPHS).unwrap();
        assert_eq!((again.epochs(), again.out_dim()), (begun.epochs(), 64));
    }

    #[test]
    fn epochs_of_a_file_give_way_to_the_time_and_those_of_the_command_line_contradict_it() {
        let of_file = fitted("epochs = 7000", &PHOTOGRAPHS, 5.0, 100.0);
        assert_eq!(of_file, fitted("", &PHOTOGRAPHS, 5.0, 100.0));
        for (place, expected) in [("--epochs", "`--epochs 9` and `--minutes 5`"), ("--set", "`--set epochs=9` and")] {
            let mut asked = RawRecipe::default();
            asked.set_text("epochs", "9", place).unwrap();
            let error = fit(&asked, &PHOTOGRAPHS, 5.0, machine(100.0)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let begun = fitted("", &PHOTOGRAPHS, 5.0, 100.0);
            assert!(fitted_before(&asked, &begun, 5.0).is_err());
            // The advice for a long run is what fits without them.
            let recipe = asked.clone().resolve(&PHOTOGRAPHS).unwrap();
            let advised = fit_by_count(&asked, &PHOTOGRAPHS, 60.0, (&recipe, 0.1)).unwrap().asked;
            assert_ne!(advised.resolve(&PHOTOGRAPHS).unwrap().epochs(), 9);
        }
    }

    #[test]
    fn a_known_speed_tells_what_would_fit() {
        let asked = RawRecipe::default();
        let recipe = asked.clone().resolve(&PHOTOGRAPHS).unwrap();
        let counted = fit_by_count(&asked, &PHOTOGRAPHS, 60.0, (&recipe, 1.0)).unwrap();
        let images = recipe.batch_size() as f64;
        let measured = fit(&asked, &PHOTOGRAPHS, 60.0, |r: &Recipe| {
            let relative = cost::of_recipe(r).unwrap().0 / cost::of_recipe(&recipe).unwrap().0;
            Ok::<f64, Infallible>(images * relative)
        });
        assert_eq!(counted.asked, measured.unwrap().asked);
    }

    #[test]
    fn few_trials_are_made() {
        let mut trials = 0;
        let mut slow = machine(50.0);
        fit(&RawRecipe::default(), &PHOTOGRAPHS, 5.0, |recipe| {
            trials += 1;
            slow(recipe)
        })
        .unwrap();
        assert!(trials <= 3, "{trials}");
    }

    #[test]
    fn small_and_odd_images_have_rungs_that_resolve() {
        for (height, width) in [(28, 28), (32, 32), (12, 9), (64, 64), (48, 700), (100, 100), (4000, 3000)] {
            let facts = Facts { images: 5000, height, width, labelled: false, fingerprint: 7 };
            let fitted = fit(&RawRecipe::default(), &facts, 3.0, machine(60.0)).unwrap();
            assert!(fitted.asked.resolve(&facts).unwrap().total_steps() > 0);
        }
    }
}
