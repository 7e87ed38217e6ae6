//! What changes while a run goes on: learning rate, weight decay, teacher momentum, teacher temperature, freezing.
//!
//! Every value is a function of the iteration (or epoch) alone, in f64, so that a resumed run needs no schedule state.
//! The curves are DINO's to the last digit of an f64, oddities included: the warm-up has both its endpoints, hence
//! iteration 0 has learning rate 0 and the peak appears twice, and the cosine never quite reaches its end value.

use crate::recipe::Recipe;

/// Linear warm-up from 0 to `base`, then half a cosine from `base` towards `end`; one value per iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    base: f64,
    end: f64,
    total_steps: u64,
    warmup_steps: u64,
}

/// The schedule of `total_steps` iterations, the first `warmup_steps` of which rise linearly from 0 to `base`.
pub fn cosine(base: f64, end: f64, total_steps: u64, warmup_steps: u64) -> Cosine {
    Cosine { base, end, total_steps, warmup_steps }
}

impl Cosine {
    /// The value at iteration `it`, counted from 0; the end value for any iteration beyond the last.
    pub fn at(&self, it: u64) -> f64 {
        if it < self.warmup_steps {
            return linspace(0.0, self.base, self.warmup_steps, it);
        }
        if it >= self.total_steps {
            return self.end;
        }
        let (i, points) = ((it - self.warmup_steps) as f64, (self.total_steps - self.warmup_steps) as f64);
        self.end + 0.5 * (self.base - self.end) * (1.0 + (std::f64::consts::PI * i / points).cos())
    }
}

/// Point `i` of `points` evenly spaced ones from `from` to `to`, both included; a single point is `from`.
fn linspace(from: f64, to: f64, points: u64, i: u64) -> f64 {
    match points.saturating_sub(1) {
        0 => from,
        // Set rather than computed: the last point must equal `to` in every bit.
        last if i >= last => to,
        last => i as f64 * ((to - from) / last as f64) + from,
    }
}

/// All schedules of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    /// Learning rate of both parameter groups, scaled to the batch.
    pub lr: Cosine,
    /// Weight decay of the decayed group.
    pub weight_decay: Cosine,
    /// Momentum m of the teacher, t <- m t + (1 - m) s.
    pub momentum: Cosine,
    teacher_temp: (f64, f64),
    teacher_temp_epochs: u64,
    frozen_epochs: u64,
    steps_per_epoch: u64,
    total_steps: u64,
}

/// The scheduled values of one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepValues {
    /// The epoch that the iteration is in.
    pub epoch: u64,
    /// Learning rate.
    pub lr: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Teacher momentum.
    pub momentum: f64,
    /// Teacher temperature.
    pub teacher_temperature: f64,
    /// Whether the prototypes get no gradient.
    pub last_layer_frozen: bool,
}

impl Schedules {
    /// The schedules of a checked recipe.
    pub fn new(recipe: &Recipe) -> Self {
        let (n, total) = (recipe.steps_per_epoch(), recipe.total_steps());
        let warmup = ((recipe.warmup_epochs() * n as f64).round() as u64).min(total);
        Self {
            lr: cosine(recipe.peak_lr(), recipe.min_lr(), total, warmup),
            weight_decay: cosine(recipe.weight_decay(), recipe.weight_decay_end(), total, 0),
            momentum: cosine(recipe.momentum_teacher(), recipe.momentum_teacher_end(), total, 0),
            teacher_temp: (recipe.warmup_teacher_temp(), recipe.teacher_temp()),
            teacher_temp_epochs: recipe.warmup_teacher_temp_epochs() as u64,
            frozen_epochs: recipe.freeze_last_layer() as u64,
            steps_per_epoch: n,
            total_steps: total,
        }
    }

    /// Iterations in one epoch; the incomplete last batch is dropped.
    pub fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// Iterations in the whole run.
    pub fn total_steps(&self) -> u64 {
        self.total_steps
    }

    /// The epoch, counted from 0, of an iteration, counted from 0.
    pub fn epoch(&self, it: u64) -> u64 {
        it / self.steps_per_epoch
    }

    /// Teacher temperature tau_t, constant within an epoch.
    pub fn teacher_temperature(&self, epoch: u64) -> f64 {
        let (warm, full) = self.teacher_temp;
        if epoch < self.teacher_temp_epochs { linspace(warm, full, self.teacher_temp_epochs, epoch) } else { full }
    }

    /// Whether the prototypes stay as they are in this epoch: no gradient, no decay, no optimiser state.
    pub fn last_layer_frozen(&self, epoch: u64) -> bool {
        epoch < self.frozen_epochs
    }

    /// Everything that an iteration needs.
    pub fn at(&self, it: u64) -> StepValues {
        let epoch = self.epoch(it);
        StepValues {
            epoch,
            lr: self.lr.at(it),
            weight_decay: self.weight_decay.at(it),
            momentum: self.momentum.at(it),
            teacher_temperature: self.teacher_temperature(epoch),
            last_layer_frozen: self.last_layer_frozen(epoch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Facts, RawRecipe};

    /// DINO ViT-S/16, 800 epochs, batch 1024 on ImageNet: the run whose values the specification lists.
    fn small_800() -> Schedules {
        let recipe = "epochs = 800\nbatch_size = 1024\nlr = 5e-4\nmin_lr = 1e-5\nwarmup_epochs = 10\n\
            weight_decay = 0.04\nweight_decay_end = 0.4\nmomentum_teacher = 0.996\nfreeze_last_layer = 1\n\
            warmup_teacher_temp = 0.04\nteacher_temp = 0.07\nwarmup_teacher_temp_epochs = 30";
        let facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: true, fingerprint: 7 };
        Schedules::new(&RawRecipe::from_toml(recipe, "test").unwrap().resolve(&facts).unwrap())
    }

    fn close(value: f64, expected: f64, digits: f64) {
        assert!((value - expected).abs() <= digits, "{value:e} instead of {expected:e}");
    }

    #[test]
    fn imagenet_in_batches_of_1024_and_512_has_1251_and_2502_steps() {
        let s = small_800();
        assert_eq!((s.steps_per_epoch(), s.total_steps()), (1251, 1_000_800));
        assert_eq!(1_281_167 / 512, 2502);
    }

    #[test]
    fn learning_rate_of_the_800_epoch_run_is_dinos() {
        let lr = small_800().lr;
        assert_eq!(lr.at(0), 0.0);
        close(lr.at(1), 1.5988488e-7, 5e-15);
        assert_eq!((lr.at(12_509), lr.at(12_510)), (0.002, 0.002));
        assert!(lr.at(12_508) < 0.002 && lr.at(12_511) < 0.002);
        close(lr.at(1_000_799), 1.0000000005e-5, 5e-16);
        assert_eq!(lr.at(1_000_800), 1e-5);
    }

    #[test]
    fn decay_and_momentum_of_the_800_epoch_run_are_dinos() {
        let s = small_800();
        // NumPy's value too: end + (base - end) rounds once more than base.
        assert_eq!((s.weight_decay.at(0), s.momentum.at(0)), (0.03999999999999998, 0.996));
        close(s.weight_decay.at(1_000_799), 0.3999999999991, 5e-14);
        close(s.momentum.at(1_000_799), 0.99999999999999, 5e-15);
        assert!(s.momentum.at(1_000_799) < 1.0);
    }

    #[test]
    fn halfway_values_are_those_of_numpy() {
        let s = small_800();
        close(s.lr.at(500_000), 0.0010260476793126302, 4e-19);
        close(s.weight_decay.at(500_000), 0.21977398619941887, 6e-17);
        close(s.momentum.at(500_000), 0.997997488735549, 3e-16);
    }

    #[test]
    fn teacher_temperature_reaches_its_end_in_the_last_warm_up_epoch() {
        let s = small_800();
        assert_eq!((s.teacher_temperature(0), s.teacher_temperature(29)), (0.04, 0.07));
        assert_eq!((s.teacher_temperature(30), s.teacher_temperature(799)), (0.07, 0.07));
        close(s.teacher_temperature(1), 0.04 + 0.03 / 29.0, 1e-17);
    }

    #[test]
    fn the_last_layer_is_frozen_for_the_given_epochs_only() {
        let s = small_800();
        assert!(s.at(1250).last_layer_frozen);
        assert!(!s.at(1251).last_layer_frozen);
        assert_eq!(s.at(1251).epoch, 1);
    }

    #[test]
    fn a_warm_up_of_one_point_is_its_start_and_none_starts_at_the_base() {
        assert_eq!((cosine(2.0, 0.0, 10, 1).at(0), cosine(2.0, 0.0, 10, 1).at(1)), (0.0, 2.0));
        assert_eq!(cosine(2.0, 0.0, 10, 0).at(0), 2.0);
        assert_eq!(cosine(2.0, 0.0, 3, 3).at(2), 2.0);
    }
}
