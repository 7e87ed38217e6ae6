//! The settings of a fine-tuning: BEiT's recipe as iBOT uses it on ImageNet, and DeiT's as iBOT uses it on small sets.
//!
//! What the published settings say of other batches, networks or lengths is derived, each value with its reason.

use std::fmt;

/// Which recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BEiT's: learning rates that fall from layer to layer.
    Beit,
    /// DeiT's: many epochs at a low learning rate, every image three times.
    Deit,
}

impl Kind {
    /// Their names on the command line, in the order of the variants.
    pub const NAMES: [&'static str; 2] = ["beit", "deit"];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// What the settings are derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Training images.
    pub images: usize,
    /// Width of the network's tokens.
    pub width: usize,
}

/// One setting with the reason for its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// Its value, as it is written and read.
    pub value: String,
    /// Why it has this value.
    pub why: String,
}

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct FineTuneRecipe {
    /// Which recipe they are of.
    pub kind: Kind,
    /// Passes over the data.
    pub epochs: u64,
    /// Images of a step.
    pub batch_size: usize,
    /// Highest learning rate, that of the head.
    pub lr: f64,
    /// Last learning rate.
    pub min_lr: f64,
    /// Epochs of the warm-up.
    pub warmup_epochs: u64,
    /// First learning rate.
    pub warmup_lr: f64,
    /// Weight decay of matrices.
    pub weight_decay: f64,
    /// Factor on the learning rate from each layer to the one before it.
    pub layer_decay: f64,
    /// Share of images that skip a branch of the last block.
    pub drop_path: f64,
    /// What the initial weights of the head, of deviation 0.02, are multiplied by.
    pub head_scale: f64,
    /// Share of a label that is spread over all classes.
    pub smoothing: f64,
    /// Parameter of mixup; 0 for none.
    pub mixup: f64,
    /// Parameter of cutmix; 0 for none.
    pub cutmix: f64,
    /// Images that are mixed with one draw.
    pub mixed_together: usize,
    /// Probability that a rectangle of an image is erased.
    pub erase: f64,
    /// Magnitude of RandAugment; 0 for none.
    pub magnitude: f64,
    /// How often an image comes in a row.
    pub repeats: usize,
    /// Least share of an image's area that a crop shows.
    pub least_crop: f64,
    /// Images whose gradient is computed at a time.
    pub images_at_once: usize,
    /// Seed of all draws.
    pub seed: u64,
    /// The same with reasons, in the order of decisions.
    settings: Vec<Setting>,
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// There is none of this name.
    #[error("fine-tuning has no setting `{key}`; it has {known}")]
    Unknown {
        /// What was given.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A value out of its range.
    #[error("{key} = {value}: expected {expected}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// Fewer images than a batch can be made of.
    #[error("fine-tuning needs two images or more; there is {images}")]
    TooFew {
        /// Training images there are.
        images: usize,
    },
}

/// Widths from which on a network is a ViT-Base, and a ViT-Large.
const BASE: usize = 768;
const LARGE: usize = 1024;
/// Batches of the published runs, over eight GPUs, and the part of each GPU.
const BEIT_BATCH: (usize, usize) = (1024, 128);
const DEIT_BATCH: (usize, usize) = (768, 96);
/// Steps that an epoch has at least, as far as there are images: fewer are hardly a training.
const STEPS: usize = 16;

impl FineTuneRecipe {
    /// The recipe for this data and network, with what was given: names and values.
    pub fn resolve(kind: Kind, facts: &Facts, given: &[(String, String)]) -> Result<Self, RecipeError> {
        if facts.images < 2 {
            return Err(RecipeError::TooFew { images: facts.images });
        }
        let (published, of_gpu) = if kind == Kind::Beit { BEIT_BATCH } else { DEIT_BATCH };
        let mut d = Decisions { given, settings: Vec::new() };
        let (beit, name) = (kind == Kind::Beit, kind.name());
        let size = if facts.width >= LARGE {
            "ViT-L"
        } else if facts.width >= BASE {
            "ViT-B"
        } else {
            "ViT-S and smaller"
        };
        let is = |other: &str| size == other;
        let of_recipe = format!("the {name} recipe");
        let epochs = match kind {
            Kind::Beit if is("ViT-S and smaller") => {
                d.whole("epochs", 200, "the published value for ViT-S", 1..=100_000)?
            }
            Kind::Beit => d.whole("epochs", 100, format!("the published value for {size}"), 1..=100_000)?,
            Kind::Deit => d.whole("epochs", 1000, &of_recipe, 1..=100_000)?,
        };
        let usual = published.min(even(facts.images / STEPS).max(even(facts.images.min(8))));
        let why = match usual == published {
            true => of_recipe.clone(),
            false => format!("{published} would leave fewer than {STEPS} steps an epoch of {} images", facts.images),
        };
        let batch_size = d.whole("batch_size", usual as u64, why, 1..=facts.images as u64)? as usize;
        let share = batch_size as f64 / published as f64;
        let scaled = |value: f64| format!("{value} for batches of {published}, in proportion: as far in an epoch");
        let lr = if beit { 1e-3 } else { 1.125e-5 };
        let lr = d.number("lr", lr * share, if share == 1.0 { of_recipe.clone() } else { scaled(lr) }, (0.0, 1.0))?;
        let (least, why) = match kind {
            Kind::Beit => (1e-6 * share, "a thousandth of the recipe's lr"),
            Kind::Deit => (1e-5 * share, "8/9 of the recipe's lr: almost flat"),
        };
        let min_lr = d.number("min_lr", least, why, (0.0, 1.0))?;
        let warmup = if beit { 20.min(epochs.div_ceil(5)) } else { 5.min(epochs / 10) };
        let why =
            if warmup == 20 || (!beit && warmup == 5) { of_recipe.clone() } else { "its share of a short run".into() };
        let warmup_epochs = d.whole("warmup_epochs", warmup, why, 0..=epochs)?;
        let (first, why) = match kind {
            Kind::Beit => (0.0, "from zero; BEiT's own flag for it has no effect"),
            Kind::Deit => (1e-6 * share, "the deit recipe, in proportion to the batch"),
        };
        let warmup_lr = d.number("warmup_lr", first, why, (0.0, 1.0))?;
        let weight_decay = d.number("weight_decay", 0.05, &of_recipe, (0.0, 10.0))?;
        let (decay, why) = match kind {
            Kind::Deit => (1.0, "the deit recipe has the same for all layers".to_owned()),
            Kind::Beit if is("ViT-B") => (0.65, format!("the published value for {size}")),
            Kind::Beit => (0.75, format!("the published value for {size}")),
        };
        let layer_decay = d.number("layer_decay", decay, why, (1e-3, 1.0))?;
        let drop = match kind {
            Kind::Beit if is("ViT-B") => 0.2,
            Kind::Beit if is("ViT-L") => 0.4,
            _ => 0.1,
        };
        let drop_path = d.number("drop_path", drop, format!("the {name} recipe for {size}"), (0.0, 0.9))?;
        let head = if beit { 1e-3 } else { 1.0 };
        let head_scale = d.number("head_scale", head, &of_recipe, (0.0, 100.0))?;
        let smoothing = d.number("smoothing", 0.1, &of_recipe, (0.0, 0.9))?;
        let mixup = d.number("mixup", 0.8, &of_recipe, (0.0, 100.0))?;
        let cutmix = d.number("cutmix", 1.0, &of_recipe, (0.0, 100.0))?;
        let why = "what one GPU of the published runs mixes with one draw, or the batch";
        let mixed_together = d.whole("mixed_together", of_gpu.min(batch_size) as u64, why, 1..=1 << 20)? as usize;
        let erase = d.number("erase", 0.25, &of_recipe, (0.0, 1.0))?;
        let magnitude = d.number("magnitude", 9.0, "rand-m9-mstd0.5-inc1", (0.0, 10.0))?;
        let repeats = d.whole("repeats", if beit { 1 } else { 3 }, &of_recipe, 1..=64)? as usize;
        let least_crop = d.number("least_crop", 0.08, &of_recipe, (1e-4, 1.0))?;
        let at_once =
            d.whole("images_at_once", batch_size.min(of_gpu) as u64, "bounds the memory", 1..=1 << 20)? as usize;
        let seed = d.whole("seed", 0, "the usual one", 0..=u64::MAX)?;
        let settings = d.finish()?;
        Ok(Self {
            kind,
            epochs,
            batch_size,
            lr,
            min_lr,
            warmup_epochs,
            warmup_lr,
            weight_decay,
            layer_decay,
            drop_path,
            head_scale,
            smoothing,
            mixup,
            cutmix,
            mixed_together,
            erase,
            magnitude,
            repeats,
            least_crop,
            images_at_once: at_once.min(batch_size),
            seed,
            settings,
        })
    }

    /// Every setting with its reason.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Whether the class token and the positions are decayed as matrices are: BEiT spares them, DeiT's script does not.
    pub fn decays_tokens(&self) -> bool {
        self.kind == Kind::Deit
    }
}

/// A number of images that can meet in pairs.
fn even(images: usize) -> usize {
    images / 2 * 2
}

/// Decisions so far, and what was given.
struct Decisions<'a> {
    given: &'a [(String, String)],
    settings: Vec<Setting>,
}

impl Decisions<'_> {
    fn whole(
        &mut self,
        key: &'static str,
        usual: u64,
        why: impl Into<String>,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, RecipeError> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        self.decide(key, usual, why.into(), |value| range.contains(value), expected)
    }

    fn number(
        &mut self,
        key: &'static str,
        usual: f64,
        why: impl Into<String>,
        (low, high): (f64, f64),
    ) -> Result<f64, RecipeError> {
        let expected = || format!("a number from {low} to {high}");
        self.decide(key, usual, why.into(), |value| (low..=high).contains(value), expected)
    }

    fn decide<T: std::str::FromStr + fmt::Display + Copy>(
        &mut self,
        key: &'static str,
        usual: T,
        why: String,
        fits: impl Fn(&T) -> bool,
        expected: impl Fn() -> String,
    ) -> Result<T, RecipeError> {
        // The last one counts, as on every command line.
        let given = self.given.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value);
        let value = match given {
            None => Some(usual),
            Some(text) => text.trim().parse().ok(),
        };
        let Some(value) = value.filter(&fits) else {
            let value = given.cloned().unwrap_or_else(|| usual.to_string());
            return Err(RecipeError::Value { key, value, expected: expected() });
        };
        let why = if given.is_some() { "given".to_owned() } else { why };
        self.settings.push(Setting { key, value: value.to_string(), why });
        Ok(value)
    }

    /// All settings, if nothing was given that is none.
    fn finish(self) -> Result<Vec<Setting>, RecipeError> {
        let keys: Vec<&str> = self.settings.iter().map(|setting| setting.key).collect();
        match self.given.iter().find(|(key, _)| !keys.contains(&key.as_str())) {
            Some((key, _)) => Err(RecipeError::Unknown { key: key.clone(), known: keys.join(", ") }),
            None => Ok(self.settings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(kind: Kind, images: usize, width: usize, given: &[(&str, &str)]) -> Result<FineTuneRecipe, RecipeError> {
        let given: Vec<_> = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        FineTuneRecipe::resolve(kind, &Facts { images, width }, &given)
    }

    #[test]
    fn on_imagenet_the_settings_are_the_published_ones() {
        let base = resolve(Kind::Beit, 1_281_167, 768, &[]).unwrap();
        assert_eq!((base.epochs, base.batch_size, base.lr, base.warmup_epochs), (100, 1024, 1e-3, 20));
        assert_eq!((base.layer_decay, base.drop_path, base.head_scale, base.repeats), (0.65, 0.2, 1e-3, 1));
        assert_eq!((base.min_lr, base.warmup_lr, base.mixed_together), (1e-6, 0.0, 128));
        let small = resolve(Kind::Beit, 1_281_167, 384, &[]).unwrap();
        assert_eq!((small.epochs, small.layer_decay, small.drop_path), (200, 0.75, 0.1));
        let large = resolve(Kind::Beit, 1_281_167, 1024, &[]).unwrap();
        assert_eq!((large.epochs, large.layer_decay, large.drop_path), (100, 0.75, 0.4));
        let deit = resolve(Kind::Deit, 50_000, 768, &[]).unwrap();
        assert_eq!((deit.epochs, deit.batch_size, deit.lr, deit.min_lr), (1000, 768, 1.125e-5, 1e-5));
        assert_eq!((deit.warmup_epochs, deit.warmup_lr, deit.repeats, deit.layer_decay), (5, 1e-6, 3, 1.0));
        assert_eq!((deit.drop_path, deit.mixed_together, deit.head_scale), (0.1, 96, 1.0));
    }

    #[test]
    fn few_images_get_smaller_batches_and_rates_in_proportion() {
        let few = resolve(Kind::Beit, 1000, 64, &[("epochs", "10")]).unwrap();
        assert_eq!((few.batch_size, few.epochs, few.warmup_epochs), (62, 10, 2));
        assert!((few.lr - 1e-3 * 62.0 / 1024.0).abs() < 1e-18);
        assert_eq!(resolve(Kind::Deit, 7, 64, &[]).unwrap().batch_size, 6);
        let reason = few.settings().iter().find(|setting| setting.key == "batch_size").unwrap();
        assert!(reason.why.contains("1024 would leave fewer than 16 steps"), "{}", reason.why);
        assert_eq!(resolve(Kind::Beit, 1, 64, &[]), Err(RecipeError::TooFew { images: 1 }));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |given| resolve(Kind::Beit, 100, 64, &[given]).unwrap_err().to_string();
        assert!(error(("lr", "fast")).starts_with("lr = fast: expected a number from 0 to 1"));
        assert!(error(("batch_size", "101")).starts_with("batch_size = 101: expected a whole number from 1 to 100"));
        assert!(error(("lr", "NaN")).starts_with("lr = NaN"));
        assert!(error(("drop_paths", "0.1")).contains("no setting `drop_paths`; it has epochs, batch_size,"));
        let twice = resolve(Kind::Beit, 100, 64, &[("lr", "0.1"), ("lr", "0.01")]).unwrap();
        assert_eq!(twice.lr, 0.01);
    }
}
