//! What must hold between values, and between values and data, before any work starts.

use model::Start;

use super::error::RecipeError;
use super::fields::{Key, Recipe};
use super::values::{Begin, Extension, MaskShape, MethodName, Prototypes, Setting, Size, WeightsDigest};

/// What a recipe needs to know of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of training images.
    pub images: usize,
    /// Median height in pixels.
    pub height: usize,
    /// Median width in pixels.
    pub width: usize,
    /// Whether the images have labels, for the online kNN evaluation; training never sees them.
    pub labelled: bool,
    /// Which images they are: a hash of their names, sizes, labels and contents. A run is only continued on the same.
    pub fingerprint: u64,
}

impl Facts {
    /// The median image.
    pub fn size(&self) -> Size {
        Size { height: self.height, width: self.width }
    }
}

/// Patches a side from which on rectangles are drawn: the smallest one has a third of a side.
pub(super) const LEAST_GRID_FOR_BLOCKS: usize = 3;

/// Refuses keys that were given although the method has no use for them: they would be ignored without a word.
pub(super) fn check_scope<'a>(
    method: MethodName,
    given: impl IntoIterator<Item = (&'a Key, &'a str)>,
) -> Result<(), RecipeError> {
    let mut foreign = given.into_iter().filter(|(key, _)| !key.scope.includes(method));
    let Some((key, place)) = foreign.next() else { return Ok(()) };
    let methods = key.scope.names().unwrap_or_default();
    // All of them at once: whoever takes another method's recipe has many.
    let others: Vec<&str> = foreign.map(|(key, _)| key.name).collect();
    let others = if others.is_empty() { String::new() } else { format!(", and these as well: {}", others.join(", ")) };
    Err(RecipeError::NotOfMethod { place: place.to_owned(), key: key.name, method, methods, others })
}

/// Refuses a recipe that cannot train.
pub(super) fn check(recipe: &Recipe) -> Result<(), RecipeError> {
    let (facts, patch) = (recipe.facts, recipe.patch_size());
    if facts.images == 0 {
        return Err(RecipeError::NoImages);
    }
    if recipe.batch_size() > facts.images {
        return Err(RecipeError::BatchLargerThanData { batch: recipe.batch_size(), images: facts.images });
    }
    if facts.size().short() < patch {
        return Err(RecipeError::ImageSmallerThanPatch { image: facts.size(), patch });
    }
    let views = [("global_size", recipe.global_size()), ("local_size", recipe.local_size())];
    let in_use = if recipe.local_crops() == 0 { &views[..1] } else { &views };
    if let Some(&(key, size)) = in_use.iter().find(|(_, size)| size.short() < patch) {
        return Err(RecipeError::ViewSmallerThanPatch { key, size, patch });
    }
    // The approximate log C_p is off by up to 4e-2 at p = 8 and 8e-3 at p = 32; at p <= 4 its slope has the wrong sign.
    if recipe.prototypes() == Prototypes::Vmf && recipe.head_bottleneck() < 16 {
        return Err(RecipeError::BottleneckTooSmall { bottleneck: recipe.head_bottleneck() });
    }
    check_lengths(recipe)?;
    match recipe.method() {
        MethodName::Dino => {}
        MethodName::Ibot => check_masks(recipe)?,
        MethodName::Msn => check_anchors(recipe)?,
    }
    check_begin(recipe)?;
    if (recipe.extension() == Extension::No) != (recipe.extended_from() == 0) {
        return Err(RecipeError::ExtensionWithoutLength);
    }
    ordered(("extended_from", recipe.extended_from() as f64), ("epochs", recipe.epochs() as f64))?;
    ordered(("warmup_epochs", recipe.warmup_epochs()), ("epochs", recipe.epochs() as f64))?;
    ordered(("backbone_warmup_epochs", recipe.backbone_warmup_epochs()), ("epochs", recipe.epochs() as f64))?;
    ordered(("min_lr", recipe.min_lr()), ("the peak learning rate, lr * batch_size / 256 =", recipe.peak_lr()))?;
    ordered(("momentum_teacher", recipe.momentum_teacher()), ("momentum_teacher_end", recipe.momentum_teacher_end()))?;
    ordered(("knn_k", recipe.knn_k() as f64), ("knn_voters", recipe.knn_voters() as f64))?;
    if recipe.knn_k() > facts.images {
        return Err(RecipeError::NeighborsLargerThanData { k: recipe.knn_k(), images: facts.images });
    }
    Ok(())
}

/// Refuses settings of lengths that prototypes do not have, and of concentrations that are none.
fn check_lengths(recipe: &Recipe) -> Result<(), RecipeError> {
    let prototypes = recipe.prototypes();
    let of_lengths = [
        ("prototype_scale_lr", recipe.prototype_scale_lr() != 1.0),
        ("prototype_scale_log", recipe.prototype_scale_log()),
    ];
    let of_kappa =
        [("initial_kappa", recipe.initial_kappa().is_some()), ("kappa_prior", recipe.kappa_prior().is_some())];
    let set = |keys: [(&'static str, bool); 2]| keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key);
    match (prototypes, set(of_lengths), set(of_kappa)) {
        (Prototypes::L2, Some(key), _) => return Err(RecipeError::FixedLengths { key }),
        (Prototypes::L2 | Prototypes::None, _, Some(key)) => return Err(RecipeError::NoKappa { key, prototypes }),
        _ => {}
    }
    let (prior, weight) = (recipe.kappa_prior(), recipe.kappa_prior_weight());
    if prior.is_some() != (weight > 0.0) {
        return Err(RecipeError::PriorWithoutWeight { prior: prior.show(), weight });
    }
    Ok(())
}

/// Refuses weights that are both drawn and given.
fn check_begin(recipe: &Recipe) -> Result<(), RecipeError> {
    let (begin, WeightsDigest(weights)) = (recipe.begin(), recipe.begin_weights());
    if (begin == Begin::Drawn) != weights.is_none() {
        return Err(RecipeError::BeginWithoutWeights { begin });
    }
    if begin != Begin::Drawn && recipe.start() != Start::Random {
        return Err(RecipeError::StartOfGivenWeights { begin });
    }
    Ok(())
}

/// Whether a mask of this share covers a patch.
fn covers_one(ratio: f64, patches: usize) -> bool {
    (ratio * patches as f64) as usize > 0
}

/// The least share, in thousandths, of which a mask covers a patch.
pub(super) fn least_covering(patches: usize) -> f64 {
    (1..1000).map(|n| f64::from(n) / 1000.0).find(|&ratio| covers_one(ratio, patches)).unwrap_or(1.0)
}

/// Whether a patch is left when this share is left out.
fn leaves_one(drop: f64, patches: usize) -> bool {
    patches as f64 * (1.0 - drop) >= 1.0
}

/// The largest share, in hundredths, without which a patch is left.
pub(super) fn most_dropped(patches: usize) -> f64 {
    (1..100).rev().map(|n| f64::from(n) / 100.0).find(|&drop| leaves_one(drop, patches)).unwrap_or(0.0)
}

/// Refuses masks that cannot be, and prototypes of patches that would not be theirs.
fn check_masks(recipe: &Recipe) -> Result<(), RecipeError> {
    let (size, patch) = (recipe.global_size(), recipe.patch_size());
    let (rows, columns) = (size.height / patch, size.width / patch);
    if recipe.mask_shape() == MaskShape::Block && rows.min(columns) < LEAST_GRID_FOR_BLOCKS {
        return Err(RecipeError::GridTooSmallForBlocks { rows, columns });
    }
    if !covers_one(recipe.mask_ratio().high, rows * columns) {
        return Err(RecipeError::MaskCoversNothing { patches: rows * columns, ratio: recipe.mask_ratio().high });
    }
    let (class, patches) = (recipe.out_dim(), recipe.patch_out_dim());
    if recipe.shared_head() && class != patches {
        return Err(RecipeError::SharedHeadOfTwoSizes { class, patches });
    }
    ordered(("mask_start_epoch", recipe.mask_start_epoch() as f64), ("epochs", recipe.epochs() as f64))
}

/// Refuses anchors that there are not, and prototypes that are neither of MSN's kinds.
fn check_anchors(recipe: &Recipe) -> Result<(), RecipeError> {
    if recipe.local_crops() == 0 {
        return Err(RecipeError::NoFocalViews);
    }
    if recipe.prototypes() == Prototypes::None {
        return Err(RecipeError::FreeNormsWithoutNormalizer);
    }
    // Scaled to use all prototypes equally, the targets of one image are uniform whatever it shows.
    if recipe.sinkhorn() && recipe.batch_size() == 1 {
        return Err(RecipeError::SinkhornOfOneImage);
    }
    let (size, patch) = (recipe.global_size(), recipe.patch_size());
    let patches = (size.height / patch) * (size.width / patch);
    if !leaves_one(recipe.patch_drop(), patches) {
        return Err(RecipeError::AnchorWithoutPatches { patches, drop: recipe.patch_drop() });
    }
    Ok(())
}

fn ordered((low_key, low): (&'static str, f64), (high_key, high): (&'static str, f64)) -> Result<(), RecipeError> {
    if low <= high {
        return Ok(());
    }
    Err(RecipeError::OutOfOrder { low_key, low: low.to_string(), high_key, high: high.to_string() })
}

impl Recipe {
    /// The data that the recipe was resolved for.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Where the data is, as the user named it; none where nobody said.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// The same recipe, which remembers where its data is. A run may go on with the same images in another place.
    pub fn with_source(self, source: String) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Steps in an epoch: full batches only.
    pub fn steps_per_epoch(&self) -> u64 {
        (self.facts.images / self.batch_size()) as u64
    }

    /// Steps in the whole run.
    pub fn total_steps(&self) -> u64 {
        self.steps_per_epoch() * self.epochs() as u64
    }

    /// Steps in which the backbone is held still while heads warm up.
    pub fn backbone_held_steps(&self) -> u64 {
        (self.backbone_warmup_epochs() * self.steps_per_epoch() as f64).round() as u64
    }

    /// Epochs that data of this size usually needs.
    pub fn usual_epochs(&self) -> usize {
        super::derive::epochs(self.facts.images).0
    }

    /// Learning rate at the end of the warm-up: `lr * batch_size / 256`.
    pub fn peak_lr(&self) -> f64 {
        self.lr() * self.batch_size() as f64 / 256.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::RawRecipe;
    use super::super::fields::{OnResume, Scope};
    use super::super::rule::Rule;
    use super::*;

    #[test]
    fn a_key_of_another_method_is_refused_with_its_place() {
        let key =
            |scope| Key { name: "patch_drop", meaning: "", rule: || Rule::Flag, on_resume: OnResume::Fixed, scope };
        let (every, mine, foreign) = (key(Scope::Every), key(Scope::Only(&[MethodName::Dino])), key(Scope::Only(&[])));
        assert!(check_scope(MethodName::Dino, [(&every, "f:1"), (&mine, "f:2")]).is_ok());
        let message = check_scope(MethodName::Dino, [(&every, "f:1"), (&foreign, "f:2")]).unwrap_err().to_string();
        assert!(message.starts_with("f:2: recipe key `patch_drop` does not apply to method `dino`"), "{message}");
        assert!(message.ends_with("leave it out"), "{message}");
        let several =
            check_scope(MethodName::Dino, [(&foreign, "f:2"), (&mine, "f:3"), (&foreign, "f:4")]).unwrap_err();
        assert!(several.to_string().ends_with("leave it out, and these as well: patch_drop"), "{several}");
        assert_eq!((every.scope.names(), mine.scope.names()), (None, Some("dino".to_owned())));
    }

    #[test]
    fn the_shares_that_are_named_are_accepted_and_no_better_ones_are() {
        for patches in 1..=400 {
            let (least, most) = (least_covering(patches), most_dropped(patches));
            assert!(covers_one(least, patches) && !covers_one(least - 0.001, patches), "{patches}: {least}");
            assert!(
                leaves_one(most, patches) && (most == 0.99 || !leaves_one(most + 0.01, patches)),
                "{patches}: {most}"
            );
        }
        let error = RecipeError::MaskCoversNothing { patches: 16, ratio: 0.05 };
        assert!(error.to_string().contains("at least 0.063"), "{error}");
        let error = RecipeError::AnchorWithoutPatches { patches: 16, drop: 0.95 };
        assert!(error.to_string().contains("patch_drop = 0.93 or less"), "{error}");
    }

    #[test]
    fn targets_of_a_single_image_are_not_spread_over_all_prototypes() {
        let facts = Facts { images: 300, height: 64, width: 64, labelled: false, fingerprint: 7 };
        let resolve = |text: &str| {
            let text = format!("method = \"msn\"\nout_dim = 8\n{text}");
            RawRecipe::from_toml(&text, "test").unwrap().resolve(&facts)
        };
        let error = resolve("batch_size = 1").unwrap_err();
        assert!(matches!(error, RecipeError::SinkhornOfOneImage), "{error}");
        assert!(resolve("batch_size = 1\nsinkhorn = false").is_ok());
        assert!(resolve("batch_size = 2").is_ok());
    }

    #[test]
    fn settings_of_lengths_need_lengths_and_those_of_kappa_need_a_density() {
        let facts = Facts { images: 300, height: 64, width: 64, labelled: false, fingerprint: 7 };
        let resolve = |text: &str| RawRecipe::from_toml(text, "test").unwrap().resolve(&facts);
        let refused = |text: &str| resolve(text).unwrap_err().to_string();
        let sound = "prototypes = \"vmf\"\ninitial_kappa = 32\nprototype_scale_lr = 10\nprototype_scale_log = true\n\
                     kappa_prior = 64\nkappa_prior_weight = 0.1";
        let recipe = resolve(sound).unwrap();
        assert_eq!((recipe.initial_kappa(), recipe.kappa_prior()), (Some(32.0), Some(64.0)));
        assert!(resolve("prototypes = \"none\"\nprototype_scale_lr = 10\nprototype_scale_log = true").is_ok());
        for key in ["prototype_scale_lr = 10", "prototype_scale_log = true"] {
            let said = refused(&format!("prototypes = \"l2\"\n{key}"));
            assert!(said.contains("every norm is one and none is trained"), "{said}");
        }
        for prototypes in ["none", "l2"] {
            let said = refused(&format!("prototypes = \"{prototypes}\"\ninitial_kappa = 20"));
            assert!(said.starts_with("initial_kappa is set") && said.contains("there is no kappa"), "{said}");
            let said = refused(&format!("prototypes = \"{prototypes}\"\nkappa_prior = 20\nkappa_prior_weight = 1"));
            assert!(said.starts_with("kappa_prior is set"), "{said}");
        }
        for half in ["kappa_prior = 20", "kappa_prior_weight = 1"] {
            assert!(refused(&format!("prototypes = \"vmf\"\n{half}")).contains("set both or neither"), "{half}");
        }
    }
}
