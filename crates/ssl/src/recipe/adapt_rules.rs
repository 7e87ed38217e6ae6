//! The rules for a backbone that is adapted to other images: to learn from them without losing what it knows.
//!
//! New heads say nothing yet, and what they send back in their first steps ruins features in a few hundred of them. So the
//! backbone waits until they have warmed up, then learns slowly, its first layers slowest, and is pulled towards where it
//! began.

use model::Arch;

use super::derive::two_digits;

/// What a backbone's learning rate is of that of its heads, which begin anew.
const BACKBONE_LR: f64 = 0.1;
/// What the embeddings' learning rate is of that of the last block.
const LOWEST_LAYER: f64 = 0.1;
/// A stronger decay leaves the first layers as they are.
const LEAST_DECAY: f64 = 0.75;
/// Steps in which heads have warmed up, at least.
const LEAST_WARMUP: f64 = 300.0;
/// A teacher that forgets faster than DINO's (0.996) soon has nothing left of the given network.
const MEMORY: f64 = 250.0;
/// The part of a run that a teacher remembers at most. The teacher is what is kept: with a third of a short run, as
/// [`MEMORY`] may be, it ends half-way behind a student that has learnt.
const MOST_OF_RUN: f64 = 1.0 / 20.0;

pub(super) fn backbone_lr() -> (f64, String) {
    (BACKBONE_LR, "adapting: the heads are new, the backbone is not".to_owned())
}

pub(super) fn layer_decay(arch: Arch) -> (f64, String) {
    let decay = two_digits(LOWEST_LAYER.powf(1.0 / arch.depth() as f64)).max(LEAST_DECAY);
    (decay, format!("adapting: over {} blocks the first layers learn slowest", arch.depth()))
}

/// So strong that a weight which nothing else moves would come back to a third of its distance within the run: the learning
/// rates of a run add up to about half of the peak in every step.
pub(super) fn pull(peak: f64, steps: f64) -> (f64, String) {
    let strength = two_digits(1.0 / (0.5 * peak * steps)).clamp(0.01, 100.0);
    (strength, format!("adapting: over {steps} steps of at most {peak:.1e} it leads back two thirds of the way"))
}

pub(super) fn backbone_warmup(epochs: usize, steps: f64) -> (f64, String) {
    let held = (0.1 * steps).max(LEAST_WARMUP).min(0.25 * steps);
    let of_epochs = two_digits(epochs as f64 * held / steps);
    (
        of_epochs,
        format!("adapting: new heads need a tenth of the run, at least {LEAST_WARMUP} steps, at most a quarter"),
    )
}

/// The teacher's momentum, in place of the `usual` one where that is less.
pub(super) fn momentum(usual: (f64, String), steps: f64) -> (f64, String) {
    let memory = MEMORY.min(MOST_OF_RUN * steps);
    let least = 1.0 - two_digits(1.0 / memory.max(1.0));
    if usual.0 >= least {
        return usual;
    }
    let why = match memory == MEMORY {
        true => "no less than DINO's".to_owned(),
        false => format!("remembers a twentieth of {steps} steps, so that it can follow"),
    };
    (least, format!("adapting: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Facts, RawRecipe};

    #[test]
    fn an_adapted_backbone_waits_learns_slowly_and_is_pulled_back() {
        let facts = Facts { images: 12_800, height: 224, width: 224, labelled: true, fingerprint: 7 };
        let resolve = |text: &str| RawRecipe::from_toml(text, "my.toml").unwrap().resolve(&facts);
        let text = "begin = \"adapt\"\nbegin_weights = \"0123456789abcdef\"\narch = \"vit_small\"\nepochs = 100";
        let recipe = resolve(text).unwrap();
        assert_eq!((recipe.backbone_lr(), recipe.layer_decay(), recipe.lr()), (0.1, 0.83, 5e-4));
        assert_eq!((recipe.backbone_warmup_epochs(), recipe.backbone_held_steps()), (10.0, 2000));
        // The pull over the whole run: the sum of all learning rates times its strength is about one.
        let sum = 0.5 * recipe.peak_lr() * recipe.backbone_lr() * recipe.total_steps() as f64;
        assert!((recipe.pull() * sum - 1.0).abs() < 0.06, "{}", recipe.pull());
        assert_eq!((recipe.weight_decay_end(), recipe.momentum_teacher()), (0.04, 0.996));
        let short = resolve(&text.replace("epochs = 100", "epochs = 2")).unwrap();
        // 400 steps: one of 250 would end far behind its student.
        assert_eq!((short.backbone_warmup_epochs(), short.momentum_teacher()), (0.5, 0.95));
        let momentum = |epochs: usize| {
            resolve(&text.replace("epochs = 100", &format!("epochs = {epochs}"))).unwrap().momentum_teacher()
        };
        assert_eq!([5, 12, 25, 400].map(momentum), [0.98, 0.9917, 0.996, 0.9975]);
        let other = resolve("arch = \"vit_small\"\nepochs = 100").unwrap();
        let off = (other.backbone_lr(), other.layer_decay(), other.pull(), other.backbone_warmup_epochs());
        assert_eq!((off, other.weight_decay_end()), ((1.0, 1.0, 0.0, 0.0), 0.4));
        let off = resolve(&format!("{text}\npull = 0\nlayer_decay = 1\nbackbone_warmup_epochs = 0")).unwrap();
        assert_eq!((off.pull(), off.layer_decay(), off.backbone_held_steps()), (0.0, 1.0, 0));
    }

    #[test]
    fn weights_that_are_given_are_said_to_be() {
        let facts = Facts { images: 500, height: 32, width: 32, labelled: true, fingerprint: 7 };
        let message =
            |text: &str| RawRecipe::from_toml(text, "my.toml").unwrap().resolve(&facts).unwrap_err().to_string();
        assert!(message("begin = \"init\"").contains("--init W"));
        assert!(message("begin_weights = \"0123456789abcdef\"").contains("do not belong together"));
        let started = "begin = \"adapt\"\nbegin_weights = \"0123456789abcdef\"\nstart = \"mimetic\"";
        assert!(message(started).contains("leave start out"));
        assert!(RawRecipe::from_toml("begin_weights = \"xyz\"", "my.toml").is_err());
    }
}
