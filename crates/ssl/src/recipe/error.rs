//! What can be wrong with a recipe. Each message names the key, the place and the way out.

use std::io;
use std::path::PathBuf;

use text::excerpt;

use super::check::{least_covering, most_dropped};
use super::values::{Begin, MethodName, Prototypes, Size};

/// Why there is no [`Recipe`](super::Recipe).
#[derive(Debug, thiserror::Error)]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("{}: cannot read the recipe: {source}", text::shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The text is not TOML.
    #[error("{place}: not a TOML file: {message}")]
    Syntax {
        /// The file.
        place: String,
        /// What the parser says, with the line.
        message: String,
    },
    /// `--set` without an equals sign.
    #[error("--set {}: must be key=value, for example --set epochs=100", excerpt(text))]
    NotAnAssignment {
        /// What was given.
        text: String,
    },
    /// One key, two values on one command line.
    #[error("{key} is given twice: `{first}` and `{second}`. Keep one of the two")]
    GivenTwice {
        /// The key.
        key: &'static str,
        /// One of them, as it is written on the command line.
        first: String,
        /// The other.
        second: String,
    },
    /// A setting of norms that are not trained.
    #[error(
        "{key} is set, but with prototypes = \"l2\" every norm is one and none is trained: leave it out, or take prototypes = \
         \"vmf\" or \"none\""
    )]
    FixedLengths {
        /// The key.
        key: &'static str,
    },
    /// A setting of concentrations, where norms are none.
    #[error(
        "{key} is set, but with prototypes = \"{prototypes}\" there is no kappa, which only von Mises-Fisher components have: \
         leave it out, or take prototypes = \"vmf\""
    )]
    NoKappa {
        /// The key.
        key: &'static str,
        /// What the prototypes are.
        prototypes: Prototypes,
    },
    /// A prior without a weight, or a weight without a prior.
    #[error(
        "kappa_prior = {prior} and kappa_prior_weight = {weight}: a prior needs both a concentration to draw to and a weight \
         above zero; set both or neither"
    )]
    PriorWithoutWeight {
        /// The prior.
        prior: String,
        /// Its weight.
        weight: f64,
    },
    /// A table, where there are keys only.
    #[error("{place}: a recipe has no sections: leave `[{}]` out and keep its keys", excerpt(name))]
    Section {
        /// Where it stands.
        place: String,
        /// Its name.
        name: String,
    },
    /// No key has this name.
    #[error("{place}: unknown recipe key `{}`{hint}", excerpt(key))]
    UnknownKey {
        /// Where it stands.
        place: String,
        /// The unknown name.
        key: String,
        /// The nearest name as a question, or where to find all names.
        hint: String,
    },
    /// A value of the wrong type or out of range.
    #[error("{place}: recipe key `{}` cannot be {}: it must be {allowed}", excerpt(key), excerpt(value))]
    BadValue {
        /// Where it stands.
        place: String,
        /// The key.
        key: String,
        /// The value as written.
        value: String,
        /// What would be right.
        allowed: String,
    },
    /// A key of another method.
    #[error("{place}: recipe key `{key}` does not apply to method `{method}`, only to {methods}: leave it out{others}")]
    NotOfMethod {
        /// Where it stands.
        place: String,
        /// The key.
        key: &'static str,
        /// The method of the recipe.
        method: MethodName,
        /// The methods that have it.
        methods: String,
        /// More keys of the same kind, in words; or nothing.
        others: String,
    },
    /// A saved configuration without the facts of its data.
    #[error("{place}: a saved configuration must say in [data] what it was made for: `{key}` is missing or wrong")]
    NoFacts {
        /// The file.
        place: String,
        /// The missing fact.
        key: &'static str,
    },
    /// Nothing to train on.
    #[error("the data holds no images: nothing to train on")]
    NoImages,
    /// A batch that the data cannot fill.
    #[error("batch_size {batch} is larger than the data ({images} images): use --batch-size {images} or less")]
    BatchLargerThanData {
        /// Images in a batch.
        batch: usize,
        /// Images there are.
        images: usize,
    },
    /// More neighbours than there are images.
    #[error("knn_k {k} is larger than the number of images {images}: lower it")]
    NeighborsLargerThanData {
        /// Neighbours asked for.
        k: usize,
        /// Images there are.
        images: usize,
    },
    /// Images without a single patch.
    #[error(
        "the images ({image}, the median) are smaller than a patch of {patch} pixels: \
         use --patch-size {} or less, or larger images", image.short()
    )]
    ImageSmallerThanPatch {
        /// Median image size.
        image: Size,
        /// Side of a patch.
        patch: usize,
    },
    /// Views without a single patch.
    #[error("{key} {size} is smaller than a patch of {patch} pixels: use a larger {key} or a smaller patch_size")]
    ViewSmallerThanPatch {
        /// `global_size` or `local_size`.
        key: &'static str,
        /// Its value.
        size: Size,
        /// Side of a patch.
        patch: usize,
    },
    /// A sphere too small for the approximation of the log-normaliser.
    #[error(
        "head_bottleneck {bottleneck} is too small for prototypes = \"vmf\": the log-normaliser is approximated and \
         wrong in fewer than 16 dimensions. Use head_bottleneck 16 or more, or prototypes = \"none\""
    )]
    BottleneckTooSmall {
        /// The width.
        bottleneck: usize,
    },
    /// Too few patches for rectangles.
    #[error(
        "mask_shape = \"block\" needs global views of at least 3 by 3 patches, and these have {rows} by {columns}: use \
         mask_shape = \"random\", a smaller patch_size or a larger global_size"
    )]
    GridTooSmallForBlocks {
        /// Rows of patches.
        rows: usize,
        /// Columns of patches.
        columns: usize,
    },
    /// A mask that never covers a patch.
    #[error(
        "mask_ratio up to {ratio} covers none of the {all} of a global view: its high end has to be at least {least}, or \
         a smaller patch_size make more patches",
        all = text::count(*.patches, "patch"),
        least = least_covering(*.patches)
    )]
    MaskCoversNothing {
        /// Patches of a view.
        patches: usize,
        /// The largest share that may be covered.
        ratio: f64,
    },
    /// Shared prototypes of two numbers.
    #[error(
        "patch_out_dim {patches} is not out_dim {class}, but shared_head = true gives patches the prototypes of class \
         tokens: leave patch_out_dim out, set it to {class}, or use shared_head = false"
    )]
    SharedHeadOfTwoSizes {
        /// Prototypes of class tokens.
        class: usize,
        /// Prototypes of patches.
        patches: usize,
    },
    /// MSN without small crops.
    #[error(
        "msn needs focal views, which are the local ones, and local_crops is 0: use --local-crops 1 or more, 10 as published"
    )]
    NoFocalViews,
    /// MSN with free norms that mean nothing.
    #[error(
        "msn has no use for prototypes = \"none\": use \"l2\", as published, or \"vmf\", which gives their norms a meaning"
    )]
    FreeNormsWithoutNormalizer,
    /// A random anchor of which nothing is left.
    #[error(
        "patch_drop {drop} leaves none of the {patches} patches of the random anchor: use patch_drop = {most} or less, a smaller \
         patch_size or a larger global_size",
        most = most_dropped(*.patches)
    )]
    AnchorWithoutPatches {
        /// Patches of a view.
        patches: usize,
        /// The share that is left out.
        drop: f64,
    },
    /// Targets that are spread over all prototypes, of one image.
    #[error(
        "batch_size = 1 with sinkhorn = true: the targets of a step are spread over all prototypes, so those of a single image would \
         always be uniform. A larger batch_size, or sinkhorn = false"
    )]
    SinkhornOfOneImage,
    /// A value that is not that of the given weights.
    #[error("{place}: {key} = {given} contradicts {weights}, whose network has {key} = {found}: leave {key} out")]
    NotOfWeights {
        /// Where it stands.
        place: String,
        /// The key.
        key: &'static str,
        /// Its value.
        given: String,
        /// The weights, as they were given.
        weights: String,
        /// The value that they have.
        found: String,
    },
    /// A beginning that says which weights without a file, or a file without saying how.
    #[error(
        "begin = \"{begin}\" and begin_weights do not belong together: leave both out, and give the weights with --init W or \
         --adapt W"
    )]
    BeginWithoutWeights {
        /// How the run is to begin.
        begin: Begin,
    },
    /// An extension that does not say of what, or a length without one.
    #[error(
        "extension and extended_from belong together: leave both out, and make a run longer with --epochs N --extend HOW"
    )]
    ExtensionWithoutLength,
    /// A start for weights that are not drawn.
    #[error("start says how weights are drawn, and begin = \"{begin}\" takes those of a file: leave start out")]
    StartOfGivenWeights {
        /// How the run is to begin.
        begin: Begin,
    },
    /// Two values that exclude each other.
    #[error("{low_key} {low} is larger than {high_key} {high}: lower the first or raise the second")]
    OutOfOrder {
        /// The key that must not be larger.
        low_key: &'static str,
        /// Its value.
        low: String,
        /// The key that must not be smaller.
        high_key: &'static str,
        /// Its value.
        high: String,
    },
}
