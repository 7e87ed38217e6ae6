//! What is wrong with a run, in words. What may help is in `remedy`.

use train::Condition;

use super::window::Vitals;
use crate::recipe::{MethodName, Recipe};

/// Base learning rate of DINO.
pub const USUAL_LR: f64 = 5e-4;
/// How many times that a learning rate is called high. Small networks train well with four times as much.
const HIGH_LR: f64 = 20.0;
/// Steps in which every teacher is still nearly uniform.
const FIRST_STEPS: u64 = 300;
/// First choices below which usage says nothing.
const ENOUGH: usize = 64;
/// Entropies above this part of ln K are those of a uniform teacher.
const UNIFORM: f64 = 0.995;
/// First choices of a lower perplexity are all the same.
const ONE_CHOICE: f64 = 1.05;
/// Features of a lower effective rank are the same up to scale.
const LOWEST_RANK: f64 = 1.05;
/// Views that share more prototypes than this are told apart, whatever the rank of their features: it is not centred, and a
/// run whose features had 1.3 did well in kNN.
const TOLD_APART: f64 = 2.0;
/// A teacher at this temperature has not been seen to become uniform for its temperature.
pub(super) const SHARP: f64 = 0.04;

/// What a verdict has to know of a run beside the numbers of a step: its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    /// Steps in which the learning rate rises.
    pub warmup_steps: u64,
    /// Steps in which the prototypes, or the backbone, stay as they are.
    pub frozen_steps: u64,
    /// Views that the teacher sees in a step.
    pub teacher_views: u64,
    /// Base learning rate.
    pub lr: f64,
    /// The base learning rate whose peak is the learning rate at the end.
    pub least_lr: f64,
    /// Temperature of the teacher at the start.
    pub warmup_teacher_temp: f64,
    /// Temperature of the teacher after its warm-up.
    pub teacher_temp: f64,
    /// Temperature of the student.
    pub student_temp: f64,
    /// Number of prototypes K.
    pub prototypes: usize,
    /// Whether the teacher is centred and has a temperature of its own.
    pub is_centered: bool,
    /// Momentum of the centre.
    pub center_momentum: f64,
    /// Momentum of the teacher at the start.
    pub momentum_teacher: f64,
    /// And at the end.
    pub momentum_teacher_end: f64,
    /// Whether the head has batch normalisation.
    pub head_batch_norm: bool,
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

/// A way to lose what was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapseKind {
    /// The teacher gives every prototype the same weight.
    Uniform,
    /// Every view chooses the same prototype.
    OnePrototype,
    /// The features of different images are the same up to scale.
    SameFeatures,
}

impl CollapseKind {
    /// What such a run became, as in "it became uniform".
    pub fn became(self) -> &'static str {
        match self {
            CollapseKind::Uniform => "uniform",
            CollapseKind::OnePrototype => "one prototype for every view",
            CollapseKind::SameFeatures => "the same features for every image",
        }
    }
}

/// What the numbers mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to say.
    #[default]
    Healthy,
    /// The teacher gives every prototype nearly the same weight, as every teacher does in its first steps.
    Early,
    /// One number looks like a collapse and another one speaks against it: said, but no reason to end a run.
    Suspected(CollapseKind),
    /// Something is lost that should be there by now.
    Collapsed(CollapseKind),
}

/// A verdict, and what there is to say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// What the numbers mean.
    pub verdict: Verdict,
    /// In words; none where nothing is wrong.
    pub words: Option<String>,
}

fn same_features(rank: f64) -> String {
    format!("the features of different images are the same up to scale: their effective rank is {rank:.2}")
}

impl Moment {
    /// What the numbers of the step mean.
    pub fn judge(&self, vitals: &Vitals) -> Finding {
        let verdict = self.course.verdict(self.step, vitals, Some(self.rank));
        Finding { verdict, words: self.course.in_words(verdict, vitals, Some(self.rank)) }
    }

    /// What the numbers of masked patches mean, among which their loss and the teacher's entropy; `temperature` is that of the
    /// teacher's patches. Said, and no more: class tokens may learn without them.
    pub fn judge_patches(&self, patches: &Vitals, prototypes: usize, temperature: f64) -> Finding {
        if self.course.is_early(self.step) || patches.observed < ENOUGH {
            return Finding::default();
        }
        let (entropy, ln_k) = (patches.teacher_entropy, (prototypes as f64).ln());
        let (seen, advice) = if patches.usage_perplexity < ONE_CHOICE {
            (
                "every masked patch has the same target".to_owned(),
                "a lower lr, or masks from a later mask_start_epoch on",
            )
        } else if entropy > UNIFORM * ln_k {
            let sharper = "teacher_patch_temp 0.04, or masks from a later mask_start_epoch on";
            let advice = if temperature > SHARP { sharper } else { "masks from a later mask_start_epoch on" };
            (format!("patch targets are uniform: their entropy is {entropy:.4} of {ln_k:.4}"), advice)
        } else {
            return Finding::default();
        };
        let words = format!("{seen}. Masked patches teach nothing: try {advice}");
        Finding { verdict: Verdict::Healthy, words: Some(words) }
    }
}

impl Course {
    /// That of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let per_epoch = recipe.steps_per_epoch();
        // MSN has no centre, nothing frozen, and targets that are sharpened instead of a temperature of the teacher.
        let is_centered = match recipe.method() {
            MethodName::Dino | MethodName::Ibot => true,
            MethodName::Msn => false,
        };
        let sharpened = SHARP.min(recipe.student_temp() * recipe.sharpening());
        Self {
            warmup_steps: (recipe.warmup_epochs() * per_epoch as f64).round() as u64,
            frozen_steps: match is_centered {
                true => (recipe.freeze_last_layer() as u64 * per_epoch).max(recipe.backbone_held_steps()),
                false => recipe.backbone_held_steps(),
            },
            teacher_views: if is_centered { 2 } else { 1 } * recipe.batch_size() as u64,
            lr: recipe.lr(),
            least_lr: recipe.min_lr() * 256.0 / recipe.batch_size() as f64,
            warmup_teacher_temp: if is_centered { recipe.warmup_teacher_temp() } else { sharpened },
            teacher_temp: if is_centered { recipe.teacher_temp() } else { sharpened },
            student_temp: recipe.student_temp(),
            prototypes: recipe.out_dim(),
            is_centered,
            center_momentum: recipe.center_momentum(),
            momentum_teacher: recipe.momentum_teacher(),
            momentum_teacher_end: recipe.momentum_teacher_end(),
            head_batch_norm: recipe.head_batch_norm(),
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
        let is_uniform = vitals.teacher_entropy > UNIFORM * ln_k && (vitals.loss / ln_k - 1.0).abs() < 0.01;
        if is_uniform {
            return if self.is_early(step) { Verdict::Early } else { Verdict::Collapsed(CollapseKind::Uniform) };
        }
        // While the prototypes are frozen their use says nothing yet.
        if step <= self.frozen_steps {
            Verdict::Healthy
        } else if vitals.observed >= ENOUGH && vitals.usage_perplexity < ONE_CHOICE {
            Verdict::Collapsed(CollapseKind::OnePrototype)
        } else if rank.is_some_and(|rank| rank < LOWEST_RANK) {
            let kind = CollapseKind::SameFeatures;
            let is_told_apart = vitals.observed >= ENOUGH && vitals.usage_perplexity > TOLD_APART;
            if is_told_apart { Verdict::Suspected(kind) } else { Verdict::Collapsed(kind) }
        } else {
            Verdict::Healthy
        }
    }

    /// What is wrong with features of this effective rank, whatever the method; none where nothing is.
    pub fn judge_rank(&self, rank: f64) -> Option<Finding> {
        let kind = CollapseKind::SameFeatures;
        let words = || format!("{}. {}", same_features(rank), self.advice(kind, None));
        (rank < LOWEST_RANK).then(|| Finding { verdict: Verdict::Collapsed(kind), words: Some(words()) })
    }

    /// How a run is doing whose numbers after `step` steps mean this. While a uniform teacher says nothing yet, neither does
    /// anything else that may still pass.
    pub fn condition(&self, step: u64, verdict: Verdict) -> Condition {
        match verdict {
            Verdict::Healthy => Condition::Healthy,
            Verdict::Collapsed(_) if !self.is_early(step) => Condition::Collapsed,
            Verdict::Early | Verdict::Suspected(_) | Verdict::Collapsed(_) => Condition::Unclear,
        }
    }

    /// A verdict as a sentence that says what was seen and what may help; none where nothing is wrong.
    pub fn in_words(&self, verdict: Verdict, vitals: &Vitals, rank: Option<f64>) -> Option<String> {
        let (Verdict::Collapsed(kind) | Verdict::Suspected(kind)) = verdict else { return None };
        let seen = match kind {
            CollapseKind::Uniform => format!(
                "the teacher is uniform: its entropy is {:.4} and the loss {:.4}, with ln {} = {:.4}. The network \
                 tells no image from another",
                vitals.teacher_entropy,
                vitals.loss,
                self.prototypes,
                (self.prototypes as f64).ln()
            ),
            CollapseKind::OnePrototype => format!(
                "the teacher gives one prototype to every view: {} in use over the last {} views",
                vitals.prototypes_in_use, vitals.observed
            ),
            CollapseKind::SameFeatures => same_features(rank.unwrap_or(f64::NAN)),
        };
        Some(format!("{seen}. {}", self.advice(kind, Some(vitals))))
    }

    /// Whether the learning rate is far above that of DINO.
    pub fn has_high_lr(&self) -> bool {
        self.lr >= HIGH_LR * USUAL_LR
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const UNIFORM: Verdict = Verdict::Collapsed(CollapseKind::Uniform);
    const ONE: Verdict = Verdict::Collapsed(CollapseKind::OnePrototype);
    const SAME: Verdict = Verdict::Collapsed(CollapseKind::SameFeatures);

    pub(in crate::health) const COURSE: Course = Course {
        warmup_steps: 500,
        frozen_steps: 50,
        teacher_views: 64,
        lr: 5e-4,
        least_lr: 1e-6,
        warmup_teacher_temp: 0.04,
        teacher_temp: 0.07,
        student_temp: 0.1,
        prototypes: 4096,
        is_centered: true,
        center_momentum: 0.9,
        momentum_teacher: 0.96,
        momentum_teacher_end: 1.0,
        head_batch_norm: false,
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
        assert_eq!(COURSE.verdict(1000, &uniform(), None), UNIFORM);
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
        assert_eq!(COURSE.verdict(501, &uniform(), None), UNIFORM);
        let without = Course { warmup_steps: 0, frozen_steps: 0, ..COURSE };
        assert_eq!([300, 301].map(|step| without.verdict(step, &uniform(), None)), [Verdict::Early, UNIFORM]);
    }

    #[test]
    fn one_first_choice_for_all_views_is_called_collapse_once_prototypes_move() {
        let one = vitals(0.1, 0.1, 1.0);
        assert_eq!([50, 51].map(|s| COURSE.verdict(s, &one, None)), [Verdict::Healthy, ONE]);
        let few = Vitals { observed: 8, ..one };
        assert_eq!(COURSE.verdict(60, &few, None), Verdict::Healthy, "eight views are not enough to say so");
        let alike = vitals(5.0, 3.0, 1.5);
        assert_eq!(COURSE.verdict(60, &alike, Some(1.01)), SAME);
        let many = vitals(5.0, 3.0, 100.0);
        let suspected = Verdict::Suspected(CollapseKind::SameFeatures);
        assert_eq!(COURSE.verdict(60, &many, Some(1.01)), suspected, "a hundred prototypes tell the views apart");
        let said = COURSE.in_words(suspected, &many, Some(1.0));
        assert!(said.as_ref().unwrap().contains("effective rank is 1.00"));
        let found = Finding { verdict: SAME, words: said };
        assert_eq!((COURSE.judge_rank(1.0), COURSE.judge_rank(4.0)), (Some(found), None));
    }

    #[test]
    fn only_what_does_not_pass_by_itself_counts_as_a_collapse() {
        let suspected = Verdict::Suspected(CollapseKind::SameFeatures);
        let conditions = [Verdict::Healthy, Verdict::Early, suspected, UNIFORM, ONE, SAME];
        let at = |step| conditions.map(|verdict| COURSE.condition(step, verdict));
        use Condition::{Collapsed, Healthy, Unclear};
        assert_eq!(at(500), [Healthy, Unclear, Unclear, Unclear, Unclear, Unclear], "the warm-up is not over");
        assert_eq!(at(501), [Healthy, Unclear, Unclear, Collapsed, Collapsed, Collapsed]);
    }

    #[test]
    fn the_remedy_is_the_one_that_the_settings_speak_for() {
        assert!(words(COURSE, &uniform()).contains("Try head_batch_norm = true: without"));
        let said = words(Course { lr: 10.0, ..COURSE }, &uniform());
        assert!(said.ends_with("Try lr = 0.0005: lr 10 is 20000 times DINO's 0.0005"), "{said}");
        let lost = Vitals { kappa: [1e-4, 0.05, 0.3], ..uniform() };
        let said = words(Course { lr: 10.0, ..COURSE }, &lost);
        assert!(said.contains("and kappa (the median) has gone from 10.0 to 0.050"), "{said}");
        for kappa in [0.05, 1e6, f64::NAN] {
            let said = words(COURSE, &Vitals { kappa: [kappa; 3], ..uniform() });
            assert!(
                said.contains("Try lr = 0.00025: kappa") && said.ends_with("further than it goes in a healthy run"),
                "{said}"
            );
        }
        let said = words(Course { teacher_temp: 0.2, ..COURSE }, &uniform());
        assert!(said.contains("0.2 is not below student_temp 0.1"), "{said}");
        let said = words(Course { lr: 10.0, ..COURSE }, &vitals(0.1, 0.1, 1.0));
        assert!(said.contains("lr 10 is 20000 times"), "{said}");
    }
}
