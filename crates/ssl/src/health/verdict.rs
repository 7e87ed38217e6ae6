//! What is wrong with a run, in words, and which of its settings fits as the cause.
//!
//! A verdict does not name the usual remedy where the numbers speak for another one: whoever trains with a learning rate
//! of 10 is not helped by a lower temperature.

use crate::recipe::Recipe;

use super::window::Vitals;

/// Base learning rate of DINO.
pub const USUAL_LR: f64 = 5e-4;
/// How many times that a learning rate is called high. Small networks train well with four times as much.
const HIGH_LR: f64 = 20.0;
/// How far kappa goes in a healthy run, as a factor up or down. It begins at 1 / tau_s.
const KAPPA_RANGE: f64 = 30.0;
/// Steps in which every teacher is still nearly uniform.
const FIRST_STEPS: u64 = 300;
/// First choices below which usage says nothing.
const ENOUGH: usize = 64;
/// Features of a lower effective rank are the same up to scale.
const LOWEST_RANK: f64 = 1.05;
/// A teacher at this temperature has not been seen to become uniform for its temperature.
const SHARP: f64 = 0.04;

/// What a verdict has to know of a run beside the numbers of a step: its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Steps in which the learning rate rises.
    pub warmup_steps: u64,
    /// Steps in which the prototypes stay as they are.
    pub frozen_steps: u64,
    /// Views that the teacher sees in a step.
    pub teacher_views: u64,
    /// Base learning rate.
    pub lr: f64,
    /// Temperature of the teacher after its warm-up.
    pub teacher_temp: f64,
    /// Temperature of the student.
    pub student_temp: f64,
    /// Number of prototypes K.
    pub prototypes: usize,
}

/// Where in its course a run is, and what is known of its features.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The run's settings.
    pub course: Course,
    /// Steps done.
    pub step: u64,
    /// Effective rank of the features.
    pub rank: f64,
}

/// What the numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to say.
    Healthy,
    /// The teacher gives every prototype nearly the same weight, as every teacher does in its first steps.
    Early,
    /// The teacher gives every prototype the same weight, and should no longer.
    Uniform,
    /// Every view chooses the same prototype.
    OnePrototype,
    /// The features of different images are the same up to scale.
    SameFeatures,
}

/// What is wrong with features of this effective rank, in words, whatever the method; none where nothing is.
pub fn verdict_on_rank(rank: f64) -> Option<String> {
    (rank < LOWEST_RANK).then(|| format!("{}. {FOR_SAME_FEATURES}", same_features(rank)))
}

const FOR_SAME_FEATURES: &str = "A lower lr or a longer warm-up usually helps";

fn same_features(rank: f64) -> String {
    format!("the features of different images are the same up to scale: their effective rank is {rank:.2}")
}

impl Moment {
    /// What the numbers of the step mean, in words; none where nothing is wrong.
    pub fn verdict(&self, vitals: &Vitals) -> Option<String> {
        let verdict = self.course.verdict(self.step, vitals, Some(self.rank));
        self.course.in_words(verdict, vitals, Some(self.rank))
    }
}

impl Course {
    /// That of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let per_epoch = recipe.steps_per_epoch();
        Self {
            warmup_steps: (recipe.warmup_epochs() * per_epoch as f64).round() as u64,
            frozen_steps: recipe.freeze_last_layer() as u64 * per_epoch,
            teacher_views: 2 * recipe.batch_size() as u64,
            lr: recipe.lr(),
            teacher_temp: recipe.teacher_temp(),
            student_temp: recipe.student_temp(),
            prototypes: recipe.out_dim(),
        }
    }

    /// Whether a uniform teacher means nothing yet after so many steps.
    pub fn is_early(&self, step: u64) -> bool {
        step <= self.warmup_steps.max(FIRST_STEPS).max(self.frozen_steps)
    }

    /// What the numbers after `step` steps mean. `rank` is that of the features.
    pub fn verdict(&self, step: u64, vitals: &Vitals, rank: Option<f64>) -> Verdict {
        let ln_k = (self.prototypes as f64).ln();
        // A loss far above ln K is that of a student which does tell images apart, if not as the teacher does.
        let is_uniform = vitals.teacher_entropy > 0.995 * ln_k && (vitals.loss / ln_k - 1.0).abs() < 0.01;
        if is_uniform {
            return if self.is_early(step) { Verdict::Early } else { Verdict::Uniform };
        }
        // While the prototypes are frozen their use says nothing yet.
        if step <= self.frozen_steps {
            Verdict::Healthy
        } else if vitals.observed >= ENOUGH && vitals.usage_perplexity < 1.05 {
            Verdict::OnePrototype
        } else if rank.is_some_and(|rank| rank < LOWEST_RANK) {
            Verdict::SameFeatures
        } else {
            Verdict::Healthy
        }
    }

    /// A verdict as a sentence that says what was seen and what may help; none where nothing is wrong.
    pub fn in_words(&self, verdict: Verdict, vitals: &Vitals, rank: Option<f64>) -> Option<String> {
        let cause = self.fast_cause(vitals);
        let (seen, usual) = match verdict {
            Verdict::Healthy | Verdict::Early => return None,
            Verdict::Uniform => (
                format!(
                    "the teacher is uniform: its entropy is {:.4} and the loss {:.4}, with ln {} = {:.4}. The network \
                     tells no image from another",
                    vitals.teacher_entropy,
                    vitals.loss,
                    self.prototypes,
                    (self.prototypes as f64).ln()
                ),
                self.remedy_for_uniform(),
            ),
            Verdict::OnePrototype => (
                format!(
                    "the teacher gives one prototype to every view: {} in use over the last {} views",
                    vitals.prototypes_in_use, vitals.observed
                ),
                "A lower center_momentum, a higher teacher_temp or a lower lr usually helps".to_owned(),
            ),
            Verdict::SameFeatures => (same_features(rank.unwrap_or(f64::NAN)), FOR_SAME_FEATURES.to_owned()),
        };
        Some(format!("{seen}. {}", cause.unwrap_or(usual)))
    }

    fn remedy_for_uniform(&self) -> String {
        let Self { teacher_temp, student_temp, .. } = self;
        if teacher_temp >= student_temp {
            format!(
                "teacher_temp {teacher_temp} is not below student_temp {student_temp}, so the teacher does not sharpen: \
                 a lower teacher_temp is needed"
            )
        } else if *teacher_temp > SHARP {
            format!("A lower teacher_temp than {teacher_temp} usually helps")
        } else {
            format!(
                "teacher_temp {teacher_temp} is low already: a lower lr, fewer prototypes (out_dim) or milder crops \
                 (global_scale) may help"
            )
        }
    }

    /// The learning rate as the cause, where it is out of the usual or has driven the prototypes' lengths away.
    pub fn fast_cause(&self, vitals: &Vitals) -> Option<String> {
        let (begun, now) = (1.0 / self.student_temp, vitals.kappa[1]);
        let is_away = !(begun / KAPPA_RANGE..=begun * KAPPA_RANGE).contains(&now);
        let kappa = format!("kappa (the median) has gone from {begun:.1} to {now:.3}");
        match (self.has_high_lr(), is_away) {
            (true, false) => self.high_lr_in_words(),
            (true, true) => Some(format!("{}, and {kappa}: lower lr first", self.lr_in_words())),
            (false, true) => Some(format!("{kappa}, further than it goes in a healthy run: a lower lr usually helps")),
            (false, false) => None,
        }
    }

    /// The learning rate as what to change first, where it is far above that of DINO.
    pub fn high_lr_in_words(&self) -> Option<String> {
        self.has_high_lr().then(|| format!("{}: lower it first", self.lr_in_words()))
    }

    fn lr_in_words(&self) -> String {
        format!("lr {} is {:.0} times DINO's {USUAL_LR}", self.lr, self.lr / USUAL_LR)
    }

    /// Whether the learning rate is far above that of DINO.
    pub fn has_high_lr(&self) -> bool {
        self.lr >= HIGH_LR * USUAL_LR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: Course = Course {
        warmup_steps: 500,
        frozen_steps: 50,
        teacher_views: 64,
        lr: 5e-4,
        teacher_temp: 0.07,
        student_temp: 0.1,
        prototypes: 4096,
    };

    fn vitals(loss: f64, teacher_entropy: f64, usage_perplexity: f64) -> Vitals {
        Vitals {
            loss,
            teacher_entropy,
            divergence: loss - teacher_entropy,
            prototypes_in_use: usage_perplexity.round() as usize,
            usage_perplexity,
            kappa: [5.0, 10.0, 20.0],
            observed: 128,
        }
    }

    fn uniform() -> Vitals {
        vitals(4096f64.ln(), 4096f64.ln(), 100.0)
    }

    fn words(course: Course, vitals: &Vitals) -> String {
        course.in_words(course.verdict(1000, vitals, Some(9.0)), vitals, Some(9.0)).unwrap()
    }

    #[test]
    fn a_loss_of_ln_k_with_an_even_teacher_is_called_uniform() {
        assert_eq!(COURSE.verdict(1000, &uniform(), None), Verdict::Uniform);
        assert!(words(COURSE, &uniform()).contains("ln 4096 = 8.3178"));
        let ln_k = 4096f64.ln();
        for healthy in [vitals(ln_k, 0.5 * ln_k, 100.0), vitals(1.1 * ln_k, ln_k, 100.0)] {
            assert_eq!(COURSE.verdict(1000, &healthy, Some(9.0)), Verdict::Healthy);
        }
    }

    #[test]
    fn a_uniform_teacher_is_nothing_to_speak_of_before_the_warm_up_is_over() {
        for step in [1, 190, 500] {
            let verdict = COURSE.verdict(step, &uniform(), Some(1.0));
            assert_eq!((verdict, COURSE.in_words(verdict, &uniform(), None)), (Verdict::Early, None));
        }
        assert_eq!(COURSE.verdict(501, &uniform(), None), Verdict::Uniform);
        let without = Course { warmup_steps: 0, frozen_steps: 0, ..COURSE };
        assert_eq!([300, 301].map(|step| without.verdict(step, &uniform(), None)), [Verdict::Early, Verdict::Uniform]);
    }

    #[test]
    fn one_first_choice_for_all_views_is_called_collapse_once_prototypes_move() {
        let one = vitals(0.1, 0.1, 1.0);
        assert_eq!([50, 51].map(|s| COURSE.verdict(s, &one, None)), [Verdict::Healthy, Verdict::OnePrototype]);
        let few = Vitals { observed: 8, ..one };
        assert_eq!(COURSE.verdict(60, &few, None), Verdict::Healthy, "eight views are not enough to say so");
        let many = vitals(5.0, 3.0, 100.0);
        assert_eq!(COURSE.verdict(60, &many, Some(1.01)), Verdict::SameFeatures);
        let said = COURSE.in_words(Verdict::SameFeatures, &many, Some(1.0));
        assert!(said.as_ref().unwrap().contains("effective rank is 1.00"));
        assert_eq!((verdict_on_rank(1.0), verdict_on_rank(4.0)), (said, None));
    }

    #[test]
    fn the_remedy_is_the_one_that_the_settings_speak_for() {
        assert!(words(COURSE, &uniform()).ends_with("A lower teacher_temp than 0.07 usually helps"));
        let said = words(Course { lr: 10.0, ..COURSE }, &uniform());
        assert!(said.ends_with("lr 10 is 20000 times DINO's 0.0005: lower it first"), "{said}");
        let lost = Vitals { kappa: [1e-4, 0.05, 0.3], ..uniform() };
        let said = words(Course { lr: 10.0, ..COURSE }, &lost);
        assert!(said.contains("kappa (the median) has gone from 10.0 to 0.050: lower lr first"), "{said}");
        for kappa in [0.05, 1e6, f64::NAN] {
            let said = words(COURSE, &Vitals { kappa: [kappa; 3], ..uniform() });
            assert!(said.contains("further than it goes in a healthy run") && !said.contains("teacher_temp"), "{said}");
        }
        let said = words(Course { teacher_temp: 0.2, ..COURSE }, &uniform());
        assert!(said.contains("0.2 is not below student_temp 0.1"), "{said}");
        let said = words(Course { teacher_temp: 0.04, ..COURSE }, &uniform());
        assert!(said.contains("0.04 is low already: a lower lr, fewer prototypes"), "{said}");
        let said = words(Course { lr: 10.0, ..COURSE }, &vitals(0.1, 0.1, 1.0));
        assert!(said.contains("lr 10 is 20000 times"), "{said}");
    }
}
