//! The keys of a recipe, declared once: name, type, allowed values, and whether a resumed run may change them.

use data::{Decoding, Orientation};
use model::{Arch, Start};
use tensor::ops::Interpolation;
use toml::Value;

use super::check::Facts;
use super::error::RecipeError;
use super::explain::{Line, Origin};
use super::nearest::{method_meant, unknown_key};
use super::parse::SET;
use super::rule::{Rule, above, below, between};
use super::values::{
    Begin, Centering, Extension, GradientWire, Interval, MaskShape, MethodName, OnCollapse, POSITIONS, Prototypes,
    ResidualStream, Setting, Size, WeightsDigest,
};

/// A value that somebody set, and where.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given<T> {
    pub(super) value: T,
    pub(super) place: String,
}

/// A resolved value, and why it is what it is.
#[derive(Clone, Debug)]
pub(super) struct Sourced<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// Whether a run may be continued with another value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnResume {
    /// It shapes the result: no.
    Fixed,
    /// It only says how often something is reported or saved, or who does the work: yes.
    Free,
}

/// Which methods a key applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of them.
    Every,
    /// These.
    Only(&'static [MethodName]),
}

impl Scope {
    pub(super) fn includes(self, method: MethodName) -> bool {
        match self {
            Scope::Every => true,
            Scope::Only(methods) => methods.contains(&method),
        }
    }

    /// The methods' names, where they are not all.
    pub(super) fn names(self) -> Option<String> {
        match self {
            Scope::Every => None,
            Scope::Only(methods) => Some(methods.iter().map(|m| m.as_str()).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// The methods whose teacher is centred and sharpened by a temperature of its own, and whose prototypes are weight-normalised.
const CENTERED: Scope = Scope::Only(&[MethodName::Dino, MethodName::Ibot]);
/// The method that leaves patches out.
const ANCHORED: Scope = Scope::Only(&[MethodName::Msn]);
/// The method that masks patches and compares them.
const MASKED: Scope = Scope::Only(&[MethodName::Ibot]);
const EVERY: Scope = Scope::Every;

/// One row of the table below.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What it is, in a sentence.
    pub(super) meaning: &'static str,
    pub(super) rule: fn() -> Rule,
    pub(super) on_resume: OnResume,
    pub(super) scope: Scope,
}

macro_rules! recipe {
    ($($(#[doc = $doc:literal])+ $key:ident: $type:ty, $rule:expr, $on_resume:ident, $scope:ident;)+) => {
        /// What a recipe file, `--set` and flags asked for; absent keys are filled in by [`RawRecipe::resolve`].
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct RawRecipe { $(pub(super) $key: Option<Given<$type>>,)+ }

        impl RawRecipe {
            /// Sets one key. `place` says in messages where the value came from: `my.toml:3`, `--set`, `--epochs`.
            pub fn set(&mut self, key: &str, value: &Value, place: &str) -> Result<(), RecipeError> {
                match key {
                    $(stringify!($key) => {
                        let rule: Rule = $rule;
                        let value = <$type>::read(value, &rule).ok_or_else(|| bad_value(key, value, &rule, place))?;
                        self.$key = Some(Given { value, place: place.to_owned() });
                    })+
                    _ => return Err(unknown_key(key, value, place)),
                }
                Ok(())
            }

            /// The value of a key that was given, as it is written in a recipe, and where.
            pub(super) fn given_value(&self, key: &str) -> Option<(String, &str)> {
                match key {
                    $(stringify!($key) => self.$key.as_ref().map(|given| (given.value.show(), given.place.as_str())),)+
                    _ => None,
                }
            }

            /// The keys that were given, each with where.
            pub(super) fn given(&self) -> Vec<(&'static Key, &str)> {
                let places = [$(self.$key.as_ref().map(|given| given.place.as_str()),)+];
                KEYS.iter().zip(places).filter_map(|(key, place)| Some((key, place?))).collect()
            }

            /// Both together, which come from the same command line. A key that they set to different values is an error:
            /// one of the two would be dropped without a word.
            pub fn beside(self, other: RawRecipe) -> Result<RawRecipe, RecipeError> {
                $(if let (Some(first), Some(second)) = (&self.$key, &other.$key) {
                    if first.value != second.value {
                        return Err(given_twice(stringify!($key), first, second));
                    }
                })+
                Ok(self.overlaid_by(other))
            }

            /// This recipe with every key that `over` sets taken from there.
            pub fn overlaid_by(self, over: RawRecipe) -> RawRecipe {
                RawRecipe { $($key: over.$key.or(self.$key),)+ }
            }
        }

        /// A complete, checked recipe. Made only by [`RawRecipe::resolve`].
        ///
        /// Equal recipes have equal values on equal data; where a value came from does not count, nor where the data is.
        #[derive(Clone, Debug)]
        pub struct Recipe {
            $(pub(super) $key: Sourced<$type>,)+
            pub(super) facts: Facts,
            /// The data's place as the user named it, where that is known.
            pub(super) source: Option<String>,
        }

        impl Recipe {
            $($(#[doc = $doc])+ pub fn $key(&self) -> $type { self.$key.value })+

            /// Every key that applies to the method with its value and where that came from, in the order of the table.
            pub fn explain(&self) -> Vec<Line> {
                let lines = [$(Line {
                    key: stringify!($key),
                    value: self.$key.value.show(),
                    origin: self.$key.origin.clone(),
                },)+];
                let method = self.method.value;
                lines.into_iter().zip(KEYS).filter(|(_, key)| key.scope.includes(method)).map(|(line, _)| line).collect()
            }
        }

        impl Recipe {
            /// Says anew where a value came from.
            pub(super) fn set_origin(&mut self, key: &str, origin: Origin) {
                match key {
                    $(stringify!($key) => self.$key.origin = origin,)+
                    _ => {}
                }
            }
        }

        impl PartialEq for Recipe {
            fn eq(&self, other: &Self) -> bool {
                self.facts == other.facts $(&& self.$key.value == other.$key.value)+
            }
        }

        pub(super) const KEYS: &[Key] =
            &[$(Key {
                name: stringify!($key),
                meaning: concat!($($doc),+),
                rule: || $rule,
                on_resume: OnResume::$on_resume,
                scope: $scope,
            },)+];
    };
}

fn given_twice<T: Setting>(key: &'static str, first: &Given<T>, second: &Given<T>) -> RecipeError {
    let written = |given: &Given<T>| {
        let (place, value) = (&given.place, given.value.show().replace('"', ""));
        if place == SET { format!("{SET} {key}={value}") } else { format!("{place} {value}") }
    };
    RecipeError::GivenTwice { key, first: written(first), second: written(second) }
}

fn bad_value(key: &str, value: &Value, rule: &Rule, place: &str) -> RecipeError {
    let (key, place) = (key.to_owned(), place.to_owned());
    let hint = value.as_str().and_then(|word| method_meant(&key, word)).unwrap_or_default();
    RecipeError::BadValue { place, key, value: value.to_string(), allowed: format!("{rule}{hint}") }
}

recipe! {
    /// Training method.
    method: MethodName, Rule::Choice(MethodName::WORDS), Fixed, EVERY;
    /// What the prototypes' norms mean.
    prototypes: Prototypes, Rule::Choice(Prototypes::WORDS), Fixed, EVERY;
    /// Where the teacher is centred.
    centering: Centering, Rule::Choice(Centering::WORDS), Fixed, CENTERED;

    /// Backbone.
    arch: Arch, Rule::Choice(&Arch::NAMES), Fixed, EVERY;
    /// Side of a patch in pixels.
    patch_size: usize, Rule::Whole(1, 1024), Fixed, EVERY;
    /// Largest drop-path rate of the student; block i has its share i / (depth - 1).
    drop_path: f64, below(0.0, 1.0), Fixed, EVERY;
    /// How the backbone begins: every weight at random, or attention and positions as those of trained networks look.
    start: Start, Rule::Choice(&Start::NAMES), Fixed, EVERY;
    /// Whether weights are drawn, those of a file (--init W), or those of a backbone that is adapted to these images (--adapt W).
    begin: Begin, Rule::Choice(Begin::WORDS), Fixed, EVERY;
    /// Which weights those of W are: a digest of their values.
    begin_weights: WeightsDigest, Rule::Digest, Fixed, EVERY;
    /// Register tokens of the backbone.
    registers: usize, Rule::Whole(0, 1024), Fixed, EVERY;
    /// Whether the residual branches of the backbone are scaled by learnt factors.
    layer_scale: bool, Rule::Flag, Fixed, EVERY;
    /// How positions are interpolated for views of another size: as DINO does, or the program that W comes from.
    positions: Interpolation, Rule::Choice(&POSITIONS), Fixed, EVERY;
    /// What layer normalisation adds to a variance.
    norm_epsilon: f64, above(0.0, 0.1), Fixed, EVERY;

    /// Channels that images are brought to: 3 for colour, 1 for grey, any other number as the files have it.
    channels: usize, Rule::Whole(1, data::transform::MAX_CHANNELS as u64), Fixed, EVERY;
    /// Whether large photographs may be decoded smaller than they are.
    decoding: Decoding, Rule::Choice(&Decoding::NAMES), Fixed, EVERY;
    /// Whether photographs are turned upright by their EXIF data.
    orientation: Orientation, Rule::Choice(&Orientation::NAMES), Fixed, EVERY;
    /// Size of the two global views in pixels.
    global_size: Size, Rule::Size, Fixed, EVERY;
    /// Size of the local views in pixels.
    local_size: Size, Rule::Size, Fixed, EVERY;
    /// Number of local views.
    local_crops: usize, Rule::Whole(0, 256), Fixed, EVERY;
    /// Shares of the image's area that a global view may cover.
    global_scale: Interval, Rule::Interval, Fixed, EVERY;
    /// Shares of the image's area that a local view may cover.
    local_scale: Interval, Rule::Interval, Fixed, EVERY;
    /// Largest standard deviation of a view's blur in pixels; the smallest is a twentieth of it.
    blur_sigma: f64, above(0.0, 100.0), Fixed, EVERY;

    /// Number of prototypes K.
    out_dim: usize, Rule::Whole(2, 1 << 24), Fixed, EVERY;
    /// Weight of KoLeo, which pushes each prototype away from its nearest neighbour; 0 switches it off.
    koleo_weight: f64, between(0.0, 1000.0), Fixed, EVERY;
    /// Concentration kappa that vMF prototypes begin with, g = kappa student_temp; off: g = 1 as in the paper, kappa =
    /// 1 / student_temp.
    initial_kappa: Option<f64>, Rule::RealOrOff(1e-3, 1e6), Fixed, EVERY;
    /// What the learning rate of the prototypes' norms g is multiplied by, where they are free.
    prototype_scale_lr: f64, above(0.0, 1e4), Fixed, EVERY;
    /// Whether ln g is trained in place of g; weight decay then draws g to 1.
    prototype_scale_log: bool, Rule::Flag, Fixed, EVERY;
    /// Concentration that a log-normal prior draws that of vMF prototypes to; off: no prior.
    kappa_prior: Option<f64>, Rule::RealOrOff(1e-3, 1e6), Fixed, EVERY;
    /// Weight w of that prior in the loss, w / 2K sum ln(kappa / kappa_prior)^2.
    kappa_prior_weight: f64, between(0.0, 1e6), Fixed, EVERY;
    /// Width of the head's hidden layers.
    head_hidden: usize, Rule::Whole(1, 65_536), Fixed, EVERY;
    /// Width p of the head's output, the dimension of the sphere's space.
    head_bottleneck: usize, Rule::Whole(2, 65_536), Fixed, EVERY;
    /// Linear layers of the head before the prototypes.
    head_layers: usize, Rule::Whole(1, 16), Fixed, EVERY;
    /// Whether the head has batch normalisation.
    head_batch_norm: bool, Rule::Flag, Fixed, EVERY;

    /// Passes over the data.
    epochs: usize, Rule::Whole(1, 1_000_000), Fixed, EVERY;
    /// How a run was made longer than it was begun (--extend): its schedules stretched to the new length, or begun again after
    /// their end.
    extension: Extension, Rule::Choice(Extension::WORDS), Fixed, EVERY;
    /// Epochs that it had before; 0 where it was not made longer.
    extended_from: usize, Rule::Whole(0, 1_000_000), Fixed, EVERY;
    /// Images in a step.
    batch_size: usize, Rule::Whole(1, 1_000_000), Fixed, EVERY;
    /// Base learning rate for 256 images; the peak is lr * batch_size / 256.
    lr: f64, above(0.0, 10.0), Fixed, EVERY;
    /// Learning rate at the end (of msn: of schedules that are longer than the run).
    min_lr: f64, between(0.0, 10.0), Fixed, EVERY;
    /// Epochs, possibly a fraction, in which the learning rate rises from 0 (of msn: from warmup_start).
    warmup_epochs: f64, between(0.0, 1e6), Fixed, EVERY;
    /// Weight decay at the start.
    weight_decay: f64, between(0.0, 10.0), Fixed, EVERY;
    /// Weight decay at the end.
    weight_decay_end: f64, between(0.0, 10.0), Fixed, EVERY;
    /// Largest gradient norm of each parameter tensor (of msn: of all but the prototypes together); 0 switches clipping off.
    clip_grad: f64, between(0.0, 1e6), Fixed, EVERY;
    /// What the learning rate of the backbone is multiplied by, beside that of the heads.
    backbone_lr: f64, above(0.0, 100.0), Fixed, EVERY;
    /// What the learning rate of each block of the backbone is multiplied by to give that of the block before it; 1 switches
    /// it off.
    layer_decay: f64, above(0.0, 1.0), Fixed, EVERY;
    /// Strength of the pull of the backbone's weights towards where they began, w <- w - lr pull (w - w0); 0 switches it off.
    pull: f64, between(0.0, 1e6), Fixed, EVERY;
    /// Epochs, possibly a fraction, in which the backbone is held still while the heads warm up; in as many more its learning
    /// rate rises.
    backbone_warmup_epochs: f64, between(0.0, 1e6), Fixed, EVERY;
    /// Epochs in which the prototypes stay as they are.
    freeze_last_layer: usize, Rule::Whole(0, 1_000_000), Fixed, CENTERED;
    /// First-moment decay of AdamW.
    adam_beta1: f64, below(0.0, 1.0), Fixed, EVERY;
    /// Second-moment decay of AdamW.
    adam_beta2: f64, below(0.0, 1.0), Fixed, EVERY;
    /// Denominator offset of AdamW.
    adam_eps: f64, between(1e-30, 1.0), Fixed, EVERY;
    /// Whether weight decay pulls on the prototypes' norms where they are free.
    decay_prototype_scale: bool, Rule::Flag, Fixed, CENTERED;

    /// Teacher momentum at the start.
    momentum_teacher: f64, between(0.0, 1.0), Fixed, EVERY;
    /// Teacher momentum at the end.
    momentum_teacher_end: f64, between(0.0, 1.0), Fixed, EVERY;
    /// Student temperature tau_s.
    student_temp: f64, above(0.0, 10.0), Fixed, EVERY;
    /// Teacher temperature tau_t at the start.
    warmup_teacher_temp: f64, above(0.0, 10.0), Fixed, CENTERED;
    /// Teacher temperature tau_t after its warm-up.
    teacher_temp: f64, above(0.0, 10.0), Fixed, CENTERED;
    /// Epochs over which the teacher temperature goes from the one to the other.
    warmup_teacher_temp_epochs: usize, Rule::Whole(0, 1_000_000), Fixed, CENTERED;
    /// Momentum of the centre.
    center_momentum: f64, between(0.0, 1.0), Fixed, CENTERED;
    /// Lower bound of the log-probabilities that enter the centre.
    center_floor: Option<f64>, Rule::RealOrOff(-1e6, 0.0), Fixed, CENTERED;

    /// What the masks of global views are made of.
    mask_shape: MaskShape, Rule::Choice(MaskShape::WORDS), Fixed, MASKED;
    /// Share of the global views that are masked; the others stay whole.
    masked_views: f64, above(0.0, 1.0), Fixed, MASKED;
    /// Shares of a masked view's patches that are covered, at most.
    mask_ratio: Interval, Rule::Interval, Fixed, MASKED;
    /// First epoch with masks; the patches' temperature is counted from there.
    mask_start_epoch: usize, Rule::Whole(0, 1_000_000), Fixed, MASKED;
    /// Whether patches are compared with the prototypes of the class tokens, or with their own.
    shared_head: bool, Rule::Flag, Fixed, MASKED;
    /// Number of prototypes of patches; out_dim where the head is shared.
    patch_out_dim: usize, Rule::Whole(2, 1 << 24), Fixed, MASKED;
    /// Temperature of the teacher's patches at the start.
    warmup_teacher_patch_temp: f64, above(0.0, 10.0), Fixed, MASKED;
    /// Temperature of the teacher's patches after its warm-up, which is as long as that of teacher_temp.
    teacher_patch_temp: f64, above(0.0, 10.0), Fixed, MASKED;
    /// What the loss of class tokens is multiplied by.
    class_loss_weight: f64, above(0.0, 1000.0), Fixed, MASKED;
    /// What the loss of masked patches is multiplied by.
    patch_loss_weight: f64, above(0.0, 1000.0), Fixed, MASKED;

    /// Share of the random anchor's patches that are left out.
    patch_drop: f64, below(0.0, 1.0), Fixed, ANCHORED;
    /// Sharpening T of the targets: their temperature is student_temp times this.
    sharpening: f64, above(0.0, 1.0), Fixed, ANCHORED;
    /// Whether the targets of a step are scaled to use all prototypes equally.
    sinkhorn: bool, Rule::Flag, Fixed, ANCHORED;
    /// What me-max, which wants all prototypes used, is multiplied by.
    me_max_weight: f64, between(0.0, 1000.0), Fixed, ANCHORED;
    /// Learning rate at the start of its warm-up, as a share of its peak.
    warmup_start: f64, between(0.0, 1.0), Fixed, ANCHORED;
    /// Factor by which schedules are longer than the run, which ends before they do.
    schedule_stretch: f64, between(1.0, 100.0), Fixed, ANCHORED;

    /// Seed of everything random.
    seed: u64, Rule::Whole(0, i64::MAX as u64), Fixed, EVERY;
    /// Threads that prepare images; 0 is one for each core.
    workers: usize, Rule::Whole(0, 1024), Free, EVERY;
    /// Parts in which the images of a step are taken one after another, their gradients added up: less memory. The same
    /// numbers up to rounding, unless the head has batch normalisation, whose statistics are then those of a part.
    accumulate: usize, Rule::Whole(1, 65_536), Fixed, EVERY;
    /// Whether only the input of each block is kept and the rest recomputed in the backward pass: less memory, a quarter
    /// more time, the same numbers.
    checkpoint_activations: bool, Rule::Flag, Free, EVERY;
    /// Element type of the residual stream and its gradient on a GPU.
    residual_stream: ResidualStream, Rule::Choice(ResidualStream::WORDS), Fixed, EVERY;
    /// How exactly gradients travel between the processes of a run; one process alone sends none.
    gradient_wire: GradientWire, Rule::Choice(GradientWire::WORDS), Fixed, EVERY;
    /// Whether each of several processes keeps the optimiser's state of its share of the parameters alone: less memory, the same
    /// numbers.
    shard_optimizer: bool, Rule::Flag, Free, EVERY;
    /// Share of the images that may be unreadable before the run stops.
    max_bad_share: f64, between(0.0, 1.0), Free, EVERY;
    /// What is done about a collapse that lasts for a tenth of the run: end it, let it go on, or begin again with a safer
    /// value where that was not given, at most twice.
    on_collapse: OnCollapse, Rule::Choice(OnCollapse::WORDS), Free, EVERY;
    /// Epochs between two online kNN evaluations; 0 switches them off.
    knn_every: usize, Rule::Whole(0, 1_000_000), Free, EVERY;
    /// Neighbours of the online kNN evaluation.
    knn_k: usize, Rule::Whole(1, 100_000), Free, EVERY;
    /// Training images among which it looks for neighbours, at most; always the same ones. More give a higher figure.
    /// Without held-out images it classifies each of them by the others.
    knn_voters: usize, Rule::Whole(2, 50_000), Free, EVERY;
    /// Held-out images that it classifies, at most; always the same ones.
    knn_queries: usize, Rule::Whole(1, 50_000), Free, EVERY;
    /// Temperature of the neighbours' votes.
    knn_temperature: f64, above(0.0, 10.0), Free, EVERY;
    /// Minutes between two checkpoints, at most: less while the run is young; 0 saves after every step.
    checkpoint_minutes: f64, between(0.0, 1e6), Free, EVERY;
    /// Checkpoints to keep.
    keep_checkpoints: usize, Rule::Whole(1, 1_000_000), Free, EVERY;
    /// Steps between two lines of the metrics log.
    log_every: usize, Rule::Whole(1, 1_000_000_000), Free, EVERY;
}
