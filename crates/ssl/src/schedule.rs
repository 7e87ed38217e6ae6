//! What changes while a run goes on, whatever the method: learning rate, weight decay, teacher momentum.

use train::Position;
use train::curve::{Curve, cosine, cosine_from};
use train::optimizer::StepValues;

use crate::recipe::{Extension, MethodName, Recipe};

/// All schedules of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedules {
    /// Learning rate of both parameter groups, scaled to the batch.
    pub lr: Curve,
    /// Weight decay of the decayed group.
    pub weight_decay: Curve,
    /// Momentum m of the teacher, t <- m t + (1 - m) s.
    pub momentum: Curve,
    /// Steps in which the backbone is held still while heads warm up. In as many more its learning rate rises to its own.
    pub backbone_held: u64,
    /// What begins again after these schedules have come to their end.
    pub again: Option<Again>,
}

/// The schedules of epochs that were added to a run after its end. Weight decay stays at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// The first step of these epochs.
    pub from: u64,
    /// Learning rate: half a cosine from a part of the first peak.
    pub lr: Curve,
    /// Momentum of the teacher. At the end of a run it is one as a rule, and a teacher that stays there learns nothing more.
    pub momentum: Curve,
}

/// The second peak of the learning rate, as a part of the first one.
const SECOND_PEAK: f64 = 0.3;
/// The part of the added epochs in which the learning rate rises, as a divisor.
const SECOND_WARMUP: u64 = 10;

impl Schedules {
    /// The schedules of a checked recipe.
    pub fn new(recipe: &Recipe) -> Self {
        let (n, all) = (recipe.steps_per_epoch(), recipe.total_steps());
        let begins_again = recipe.extension() == Extension::Again;
        let total = if begins_again { n * recipe.extended_from() as u64 } else { all };
        let again = begins_again.then(|| Again {
            from: total,
            lr: cosine(SECOND_PEAK * recipe.peak_lr(), recipe.min_lr(), all - total, (all - total) / SECOND_WARMUP),
            momentum: cosine(recipe.momentum_teacher(), recipe.momentum_teacher_end(), all - total, 0),
        });
        let warmup = ((recipe.warmup_epochs() * n as f64).round() as u64).min(total);
        match recipe.method() {
            MethodName::Dino | MethodName::Ibot => {}
            MethodName::Msn => return Self { again, ..Self::beyond_the_run(recipe, total, warmup) },
        }
        Self {
            lr: cosine(recipe.peak_lr(), recipe.min_lr(), total, warmup),
            weight_decay: cosine(recipe.weight_decay(), recipe.weight_decay_end(), total, 0),
            momentum: cosine(recipe.momentum_teacher(), recipe.momentum_teacher_end(), total, 0),
            backbone_held: recipe.backbone_held_steps(),
            again,
        }
    }

    /// MSN's: longer than the run, which ends before they do; a learning rate that begins above zero, and a momentum that
    /// rises evenly.
    fn beyond_the_run(recipe: &Recipe, total: u64, warmup: u64) -> Self {
        let horizon = (recipe.schedule_stretch() * total as f64) as u64;
        let (peak, end) = (recipe.peak_lr(), recipe.min_lr());
        let momentum = (recipe.momentum_teacher(), recipe.momentum_teacher_end());
        Self {
            lr: cosine_from(recipe.warmup_start() * peak, peak, end, horizon, warmup),
            weight_decay: cosine(recipe.weight_decay(), recipe.weight_decay_end(), horizon, 0),
            momentum: Curve::Ramp { from: momentum.0, to: momentum.1, points: horizon + 1 },
            backbone_held: recipe.backbone_held_steps(),
            again: None,
        }
    }

    /// What the learning rate of the backbone is multiplied by: its moments are those of nothing when it is let go, so that
    /// it rises evenly from there.
    fn waiting_lr(&self, step: u64) -> f64 {
        match (step.checked_sub(self.backbone_held), self.backbone_held) {
            (_, 0) => 1.0,
            (None, _) => 0.0,
            (Some(since), held) => ((since + 1) as f64 / held as f64).min(1.0),
        }
    }

    /// What the optimiser does in a step, with parameters that are frozen at first frozen or not.
    pub fn at(&self, at: Position, frozen: bool) -> StepValues {
        let (step, again) = match &self.again {
            Some(again) if at.step >= again.from => (again.from, Some((again, at.step - again.from))),
            _ => (at.step, None),
        };
        StepValues {
            lr: again.map_or_else(|| self.lr.at(step), |(again, since)| again.lr.at(since)),
            weight_decay: self.weight_decay.at(step),
            momentum: again.map_or_else(|| self.momentum.at(step), |(again, since)| again.momentum.at(since)),
            frozen,
            waiting_lr: self.waiting_lr(at.step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;
    use crate::method::dino::{Dino, DinoOptions};
    use crate::recipe::{Facts, RawRecipe};
    use model::Layout;
    use tensor::Device;

    /// DINO ViT-S/16, 800 epochs, batch 1024 on ImageNet: the run whose values the specification lists.
    fn small_800() -> Schedules {
        Schedules::new(&recipe())
    }

    fn recipe() -> Recipe {
        let recipe = "epochs = 800\nbatch_size = 1024\nlr = 5e-4\nmin_lr = 1e-5\nwarmup_epochs = 10\n\
            weight_decay = 0.04\nweight_decay_end = 0.4\nmomentum_teacher = 0.996\nfreeze_last_layer = 1\n\
            warmup_teacher_temp = 0.04\nteacher_temp = 0.07\nwarmup_teacher_temp_epochs = 30";
        let facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: true, fingerprint: 7 };
        RawRecipe::from_toml(recipe, "test").unwrap().resolve(&facts).unwrap()
    }

    fn close(value: f64, expected: f64, digits: f64) {
        assert!((value - expected).abs() <= digits, "{value:e} instead of {expected:e}");
    }

    #[test]
    fn imagenet_in_batches_of_1024_and_512_has_1251_and_2502_steps() {
        let recipe = recipe();
        assert_eq!((recipe.steps_per_epoch(), recipe.total_steps()), (1251, 1_000_800));
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

    /// MSN ViT-S/16, 800 epochs: the values at its end that the specification lists.
    #[test]
    fn msns_schedules_end_before_they_are_over() {
        let recipe = "method = \"msn\"\nepochs = 800\nbatch_size = 1024\nlr = 2.5e-4\nmin_lr = 1e-6\nwarmup_epochs = 15\n\
            weight_decay = 0.04\nweight_decay_end = 0.4\nmomentum_teacher = 0.996";
        let facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: true, fingerprint: 7 };
        let s = Schedules::new(&RawRecipe::from_toml(recipe, "test").unwrap().resolve(&facts).unwrap());
        let (warmup, last) = (15 * 1251, 1_000_799);
        close(s.lr.at(0), 2e-4 + 8e-4 / warmup as f64, 1e-15);
        assert_eq!(s.lr.at(warmup - 1), 1e-3);
        close(s.lr.at(last), 9.92e-5, 5e-8);
        close(s.weight_decay.at(last), 0.3656, 5e-5);
        assert_eq!(s.momentum.at(0), 0.996);
        close(s.momentum.at(last), 0.9992, 5e-9);
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
        let temperature = DinoOptions::of(&recipe()).teacher_temperature;
        assert_eq!((temperature.at(0), temperature.at(29)), (0.04, 0.07));
        assert_eq!((temperature.at(30), temperature.at(799)), (0.07, 0.07));
        close(temperature.at(1), 0.04 + 0.03 / 29.0, 1e-17);
    }

    #[test]
    fn the_backbone_waits_while_heads_warm_up_and_then_rises_as_long() {
        let schedules = Schedules { backbone_held: 4, ..small_800() };
        let factor: Vec<f64> =
            (0..10).map(|step| schedules.at(Position { step, epoch: 0 }, false).waiting_lr).collect();
        assert_eq!(factor, [0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        assert_eq!(small_800().at(Position { step: 0, epoch: 0 }, false).waiting_lr, 1.0);
    }

    #[test]
    fn schedules_that_begin_again_leave_the_first_epochs_as_they_were() {
        let facts = Facts { images: 640, height: 32, width: 32, labelled: true, fingerprint: 7 };
        let resolve = |text: &str| RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap();
        let (first, again) = (resolve("epochs = 20"), "epochs = 30\nextension = \"again\"\nextended_from = 20");
        let again = resolve(again);
        // What was derived from the length stays too.
        assert_eq!((first.warmup_epochs(), first.total_steps()), (again.warmup_epochs(), 200));
        let at = |recipe: &Recipe, step| Schedules::new(recipe).at(Position { step, epoch: step / 10 }, false);
        for step in [0, 3, 57, 199] {
            assert_eq!(at(&first, step), at(&again, step));
        }
        let peak = 0.3 * first.peak_lr();
        assert_eq!((at(&again, 200).lr, at(&again, 209).lr), (0.0, peak));
        assert!(at(&again, 250).lr < peak && at(&again, 299).lr - again.min_lr() < 0.01 * peak);
        assert_eq!((at(&again, 200).momentum, at(&again, 250).weight_decay), (first.momentum_teacher(), 0.4));
        let stretched = resolve("epochs = 30\nextension = \"stretch\"\nextended_from = 20");
        assert_eq!(at(&stretched, 150), at(&resolve("epochs = 30"), 150));
        assert!(at(&stretched, 199).lr > at(&first, 199).lr);
    }

    #[test]
    fn the_last_layer_is_frozen_for_the_given_epochs_only() {
        let device = Device::cpu(Default::default()).unwrap();
        let mut options = DinoOptions::of(&recipe());
        assert_eq!(options.frozen_epochs, 1);
        options.head.prototypes = 8;
        let dino = Dino::new(&mut Layout::default(), &device, options).unwrap();
        assert!(dino.is_frozen(Position { step: 1250, epoch: 0 }));
        assert!(!dino.is_frozen(Position { step: 1251, epoch: 1 }));
    }
}
