//! What to change in a run that has collapsed: one thing at a time, the most promising first.
//!
//! A setting that is out of the usual comes before everything else, because it fits as the cause. After that the order is
//! what runs on a few thousand photographs have shown (docs/results.md): batch normalisation in the head turned a recipe
//! that becomes uniform into one of the best, a teacher that follows more slowly kept others from it, and a lower learning
//! rate is safer throughout. All advice of this program about a collapse is taken from here.

use std::fmt;

use super::verdict::{CollapseKind, Course, SHARP, USUAL_LR};
use super::window::Vitals;

/// Teachers of DINO's recipes are no softer than this.
const SOFTEST: f64 = 0.07;
/// How far kappa goes in a healthy run, as a factor up or down. It begins at 1 / tau_s.
const KAPPA_RANGE: f64 = 30.0;
/// The centre's momentum in DINO.
const USUAL_CENTER: f64 = 0.9;

/// What may help: other values of one or two settings that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Keys of the recipe, each with its new value as TOML.
    pub changes: Vec<(&'static str, String)>,
    /// Why that, as the end of a sentence.
    pub reason: String,
}

impl Remedy {
    fn new(key: &'static str, value: impl fmt::Debug, reason: impl Into<String>) -> Self {
        Self { changes: vec![(key, format!("{value:?}"))], reason: reason.into() }
    }

    /// The assignments alone: `lr = 0.0005`.
    pub fn assignments(&self) -> String {
        self.changes.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(" and ")
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Try {}: {}", self.assignments(), self.reason)
    }
}

impl Course {
    /// What may help against a collapse, the most promising first. `vitals` are the run's last numbers, where they are
    /// known.
    pub fn remedies(&self, kind: CollapseKind, vitals: Option<&Vitals>) -> Vec<Remedy> {
        let mut found: Vec<Remedy> = self.fast_cause(vitals).into_iter().collect();
        match kind {
            CollapseKind::Uniform => {
                found.extend(self.odd_temperature());
                found.extend((!self.head_batch_norm).then(|| {
                    let reason =
                        "without batch normalisation in the head a teacher often becomes uniform on few images";
                    Remedy::new("head_batch_norm", true, reason)
                }));
                found.extend(self.slower_teacher());
                found.extend(self.half_lr("a lower learning rate is safer"));
                found.extend((self.is_centered && self.teacher_temp > SHARP).then(|| {
                    let reason =
                        format!("a sharper teacher than one of {} becomes uniform less often", self.teacher_temp);
                    Remedy::new("teacher_temp", SHARP, reason)
                }));
            }
            CollapseKind::OnePrototype => {
                found.extend((self.is_centered && self.center_momentum == 1.0).then(|| {
                    Remedy::new("center_momentum", USUAL_CENTER, "center_momentum 1 keeps the centre where it began")
                }));
                found.extend(self.slower_teacher());
                found.extend(self.half_lr("a lower learning rate is safer"));
            }
            CollapseKind::SameFeatures => {
                found.extend(self.half_lr("steps that are too large make all features alike"));
                found.extend(self.slower_teacher());
            }
        }
        found
    }

    /// The first of them, in words; what is left to try where there is none.
    pub(super) fn advice(&self, kind: CollapseKind, vitals: Option<&Vitals>) -> String {
        let first = self.remedies(kind, vitals).into_iter().next();
        first.map_or_else(
            || "Fewer prototypes (out_dim), milder crops (global_scale) or more images may help".to_owned(),
            |remedy| remedy.to_string(),
        )
    }

    /// The learning rate as the cause, where it is out of the usual or has driven the prototypes' lengths away.
    pub fn fast_cause(&self, vitals: Option<&Vitals>) -> Option<Remedy> {
        let (times, begun) = (self.lr / USUAL_LR, 1.0 / self.student_temp);
        let now = vitals.map(|vitals| vitals.kappa[1]);
        let away = now.filter(|now| !(begun / KAPPA_RANGE..=begun * KAPPA_RANGE).contains(now));
        let kappa = away.map(|now| format!("kappa (the median) has gone from {begun:.1} to {now:.3}"));
        match (self.has_high_lr(), kappa) {
            (true, kappa) => {
                let kappa = kappa.map_or(String::new(), |kappa| format!(", and {kappa}"));
                let reason = format!("lr {} is {times:.0} times DINO's {USUAL_LR}{kappa}", self.lr);
                Some(Remedy::new("lr", USUAL_LR, reason))
            }
            (false, Some(kappa)) => self.half_lr(format!("{kappa}, further than it goes in a healthy run")),
            (false, None) => None,
        }
    }

    /// Temperatures with which a teacher is not known to train.
    fn odd_temperature(&self) -> Option<Remedy> {
        let Self { teacher_temp, student_temp, warmup_teacher_temp, .. } = *self;
        if !self.is_centered {
            return None;
        }
        let sharp = SHARP.min(short(0.4 * student_temp));
        if teacher_temp >= student_temp {
            let reason = format!(
                "teacher_temp {teacher_temp} is not below student_temp {student_temp}, so the teacher does not sharpen"
            );
            Some(Remedy::new("teacher_temp", sharp, reason))
        } else if teacher_temp > SOFTEST {
            let reason = format!("teacher_temp {teacher_temp} is softer than any of DINO's, which go up to {SOFTEST}");
            Some(Remedy::new("teacher_temp", sharp, reason))
        } else if warmup_teacher_temp < SHARP.min(teacher_temp) {
            let reason = format!(
                "a teacher that begins as sharp as {warmup_teacher_temp} and then softens often becomes uniform"
            );
            Some(Remedy::new("warmup_teacher_temp", SHARP.min(teacher_temp), reason))
        } else {
            None
        }
    }

    /// A teacher that remembers twice as many steps, and all of them in the end.
    fn slower_teacher(&self) -> Option<Remedy> {
        let slower = short(1.0 - (1.0 - self.momentum_teacher) / 2.0);
        if slower <= self.momentum_teacher {
            return None;
        }
        let reason =
            format!("a teacher that follows more slowly than {} is not led astray so soon", self.momentum_teacher);
        let mut remedy = Remedy::new("momentum_teacher", slower, reason);
        if self.momentum_teacher_end < 1.0 {
            remedy.changes.push(("momentum_teacher_end", "1.0".to_owned()));
        }
        Some(remedy)
    }

    fn half_lr(&self, reason: impl Into<String>) -> Option<Remedy> {
        let half = short(self.lr / 2.0);
        (half > self.least_lr).then(|| Remedy::new("lr", half, reason))
    }
}

/// Nine significant digits, so that a value is short to read.
fn short(x: f64) -> f64 {
    format!("{x:.8e}").parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::tests::COURSE;
    use super::*;

    fn first(course: Course, kind: CollapseKind) -> String {
        course.remedies(kind, None)[0].assignments()
    }

    #[test]
    fn a_uniform_teacher_is_given_batch_norm_then_time_then_smaller_steps() {
        use CollapseKind::Uniform;
        let all: Vec<String> = COURSE.remedies(Uniform, None).iter().map(Remedy::assignments).collect();
        assert_eq!(all, ["head_batch_norm = true", "momentum_teacher = 0.98", "lr = 0.00025", "teacher_temp = 0.04"]);
        let normed = Course { head_batch_norm: true, momentum_teacher: 0.95, momentum_teacher_end: 0.99, ..COURSE };
        assert_eq!(first(normed, Uniform), "momentum_teacher = 0.975 and momentum_teacher_end = 1.0");
        let slowest = Course { momentum_teacher: 1.0, ..normed };
        assert_eq!(first(slowest, Uniform), "lr = 0.00025", "a momentum of 1 cannot be raised");
        let still = Course { lr: 1e-9, least_lr: 1e-9, teacher_temp: 0.04, ..slowest };
        assert_eq!(still.remedies(Uniform, None), []);
        assert!(still.advice(Uniform, None).contains("out_dim"));
    }

    #[test]
    fn a_setting_out_of_the_usual_comes_first() {
        use CollapseKind::{OnePrototype, SameFeatures, Uniform};
        assert_eq!(first(Course { lr: 10.0, ..COURSE }, Uniform), "lr = 0.0005");
        assert_eq!(first(Course { teacher_temp: 0.2, ..COURSE }, Uniform), "teacher_temp = 0.04");
        assert_eq!(first(Course { teacher_temp: 0.05, student_temp: 0.05, ..COURSE }, Uniform), "teacher_temp = 0.02");
        assert_eq!(first(Course { teacher_temp: 0.5, student_temp: 1.0, ..COURSE }, Uniform), "teacher_temp = 0.04");
        let sharp_at_first = Course { warmup_teacher_temp: 0.025, teacher_temp: 0.04, ..COURSE };
        assert_eq!(first(sharp_at_first, Uniform), "warmup_teacher_temp = 0.04");
        let sharp_throughout = Course { warmup_teacher_temp: 0.022, teacher_temp: 0.022, ..COURSE };
        assert_eq!(first(sharp_throughout, Uniform), "head_batch_norm = true");
        assert_eq!(first(Course { center_momentum: 1.0, ..COURSE }, OnePrototype), "center_momentum = 0.9");
        assert_eq!(first(COURSE, OnePrototype), "momentum_teacher = 0.98");
        assert_eq!(first(COURSE, SameFeatures), "lr = 0.00025");
    }
}
