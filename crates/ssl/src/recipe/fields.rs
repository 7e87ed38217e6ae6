//! The keys of a recipe, declared once: name, type, allowed values, and whether a resumed run may change them.

use data::Decoding;
use model::Arch;
use toml::Value;

use super::check::Facts;
use super::error::RecipeError;
use super::explain::{Line, Origin};
use super::nearest::unknown_key;
use super::rule::{Rule, above, below, between};
use super::values::{Centering, Interval, Method, Prototypes, Setting, Size};

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

/// One row of the table below.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What it is, in a sentence.
    pub(super) meaning: &'static str,
    pub(super) rule: fn() -> Rule,
    pub(super) on_resume: OnResume,
}

macro_rules! recipe {
    ($($(#[doc = $doc:literal])+ $key:ident: $type:ty, $rule:expr, $on_resume:ident;)+) => {
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

            /// This recipe with every key that `over` sets taken from there.
            pub fn overlaid_by(self, over: RawRecipe) -> RawRecipe {
                RawRecipe { $($key: over.$key.or(self.$key),)+ }
            }
        }

        /// A complete, checked recipe. Made only by [`RawRecipe::resolve`].
        ///
        /// Equal recipes have equal values on equal data; where a value came from does not count.
        #[derive(Clone, Debug)]
        pub struct Recipe { $(pub(super) $key: Sourced<$type>,)+ pub(super) facts: Facts }

        impl Recipe {
            $($(#[doc = $doc])+ pub fn $key(&self) -> $type { self.$key.value })+

            /// Every key with its value and where that came from, in the order of the table.
            pub fn explain(&self) -> Vec<Line> {
                vec![$(Line {
                    key: stringify!($key),
                    value: self.$key.value.show(),
                    origin: self.$key.origin.clone(),
                },)+]
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
            },)+];
    };
}

fn bad_value(key: &str, value: &Value, rule: &Rule, place: &str) -> RecipeError {
    let (key, place) = (key.to_owned(), place.to_owned());
    match value.as_str() {
        // Known to the literature, but not to this program: say that rather than "not a word I know".
        Some(method @ ("ibot" | "msn")) if key == "method" => {
            RecipeError::NoSuchMethod { place, method: method.to_owned(), known: Method::WORDS.join(", ") }
        }
        _ => RecipeError::BadValue { place, key, value: value.to_string(), allowed: rule.to_string() },
    }
}

recipe! {
    /// Training method.
    method: Method, Rule::Choice(Method::WORDS), Fixed;
    /// What the prototypes' norms mean.
    prototypes: Prototypes, Rule::Choice(Prototypes::WORDS), Fixed;
    /// Where the teacher is centred.
    centering: Centering, Rule::Choice(Centering::WORDS), Fixed;

    /// Backbone.
    arch: Arch, Rule::Choice(&Arch::NAMES), Fixed;
    /// Side of a patch in pixels.
    patch_size: usize, Rule::Whole(1, 1024), Fixed;
    /// Largest drop-path rate of the student; block i has its share i / (depth - 1).
    drop_path: f64, below(0.0, 1.0), Fixed;

    /// Channels that images are brought to: 3 for colour, 1 for grey, any other number as the files have it.
    channels: usize, Rule::Whole(1, data::transform::MAX_CHANNELS as u64), Fixed;
    /// Whether large photographs may be decoded smaller than they are.
    decoding: Decoding, Rule::Choice(&Decoding::NAMES), Fixed;
    /// Size of the two global views in pixels.
    global_size: Size, Rule::Size, Fixed;
    /// Size of the local views in pixels.
    local_size: Size, Rule::Size, Fixed;
    /// Number of local views.
    local_crops: usize, Rule::Whole(0, 256), Fixed;
    /// Shares of the image's area that a global view may cover.
    global_scale: Interval, Rule::Interval, Fixed;
    /// Shares of the image's area that a local view may cover.
    local_scale: Interval, Rule::Interval, Fixed;
    /// Largest standard deviation of a view's blur in pixels; the smallest is a twentieth of it.
    blur_sigma: f64, above(0.0, 100.0), Fixed;

    /// Number of prototypes K.
    out_dim: usize, Rule::Whole(2, 1 << 24), Fixed;
    /// Width of the head's hidden layers.
    head_hidden: usize, Rule::Whole(1, 65_536), Fixed;
    /// Width p of the head's output, the dimension of the sphere's space.
    head_bottleneck: usize, Rule::Whole(2, 65_536), Fixed;
    /// Linear layers of the head before the prototypes.
    head_layers: usize, Rule::Whole(1, 16), Fixed;
    /// Whether the head has batch normalisation.
    head_batch_norm: bool, Rule::Flag, Fixed;

    /// Passes over the data.
    epochs: usize, Rule::Whole(1, 1_000_000), Fixed;
    /// Images in a step.
    batch_size: usize, Rule::Whole(1, 1_000_000), Fixed;
    /// Base learning rate for 256 images; the peak is lr * batch_size / 256.
    lr: f64, above(0.0, 10.0), Fixed;
    /// Learning rate at the end.
    min_lr: f64, between(0.0, 10.0), Fixed;
    /// Epochs, possibly a fraction, in which the learning rate rises from 0.
    warmup_epochs: f64, between(0.0, 1e6), Fixed;
    /// Weight decay at the start.
    weight_decay: f64, between(0.0, 10.0), Fixed;
    /// Weight decay at the end.
    weight_decay_end: f64, between(0.0, 10.0), Fixed;
    /// Largest gradient norm of each parameter tensor; 0 switches clipping off.
    clip_grad: f64, between(0.0, 1e6), Fixed;
    /// Epochs in which the prototypes stay as they are.
    freeze_last_layer: usize, Rule::Whole(0, 1_000_000), Fixed;
    /// First-moment decay of AdamW.
    adam_beta1: f64, below(0.0, 1.0), Fixed;
    /// Second-moment decay of AdamW.
    adam_beta2: f64, below(0.0, 1.0), Fixed;
    /// Denominator offset of AdamW.
    adam_eps: f64, between(1e-30, 1.0), Fixed;
    /// Whether weight decay pulls on the prototypes' norms where they are free.
    decay_prototype_scale: bool, Rule::Flag, Fixed;

    /// Teacher momentum at the start.
    momentum_teacher: f64, between(0.0, 1.0), Fixed;
    /// Teacher momentum at the end.
    momentum_teacher_end: f64, between(0.0, 1.0), Fixed;
    /// Student temperature tau_s.
    student_temp: f64, above(0.0, 10.0), Fixed;
    /// Teacher temperature tau_t at the start.
    warmup_teacher_temp: f64, above(0.0, 10.0), Fixed;
    /// Teacher temperature tau_t after its warm-up.
    teacher_temp: f64, above(0.0, 10.0), Fixed;
    /// Epochs over which the teacher temperature goes from the one to the other.
    warmup_teacher_temp_epochs: usize, Rule::Whole(0, 1_000_000), Fixed;
    /// Momentum of the centre.
    center_momentum: f64, between(0.0, 1.0), Fixed;
    /// Lower bound of the log-probabilities that enter the centre.
    center_floor: Option<f64>, Rule::RealOrOff(-1e6, 0.0), Fixed;

    /// Seed of everything random.
    seed: u64, Rule::Whole(0, i64::MAX as u64), Fixed;
    /// Threads that prepare images; 0 is one for each core.
    workers: usize, Rule::Whole(0, 1024), Free;
    /// Parts in which the images of a step are taken one after another, their gradients added up: less memory. The same
    /// numbers up to rounding, unless the head has batch normalisation, whose statistics are then those of a part.
    accumulate: usize, Rule::Whole(1, 65_536), Fixed;
    /// Whether only the input of each block is kept and the block computed again in the backward pass: less memory, a
    /// quarter more time, the same numbers.
    checkpoint_activations: bool, Rule::Flag, Free;
    /// Share of the images that may be unreadable before the run stops.
    max_bad_share: f64, between(0.0, 1.0), Free;
    /// Epochs between two online kNN evaluations; 0 switches them off.
    knn_every: usize, Rule::Whole(0, 1_000_000), Free;
    /// Neighbours of the online kNN evaluation.
    knn_k: usize, Rule::Whole(1, 100_000), Fixed;
    /// Training images among which it looks for neighbours, at most; always the same ones. More give a higher figure.
    /// Without held-out images it classifies each of them by the others.
    knn_voters: usize, Rule::Whole(2, 50_000), Free;
    /// Held-out images that it classifies, at most; always the same ones.
    knn_queries: usize, Rule::Whole(1, 50_000), Free;
    /// Temperature of the neighbours' votes.
    knn_temperature: f64, above(0.0, 10.0), Fixed;
    /// Minutes between two checkpoints; 0 saves after every step.
    checkpoint_minutes: f64, between(0.0, 1e6), Free;
    /// Checkpoints to keep.
    keep_checkpoints: usize, Rule::Whole(1, 1_000_000), Free;
    /// Steps between two lines of the metrics log.
    log_every: usize, Rule::Whole(1, 1_000_000_000), Free;
}
