//! The rules that fill in what a recipe does not say.
//!
//! Published recipes are for a million images and batches of a thousand; copied to five thousand images on one machine
//! they do not converge. So whatever depends on the size of the data, of the images or of the batch is a rule here, with
//! its reason, anchored where the published values are: at ImageNet's size and batch 1024 the rules give those back.

use data::{Decoding, Orientation};
use model::{Arch, Extras, Start};
use tensor::ops::Interpolation;

use super::adapt_rules;
use super::check::{Facts, LEAST_GRID_FOR_BLOCKS, check_scope};
use super::early::{RESIDUAL, RGB};
use super::error::RecipeError;
use super::fields::{RawRecipe, Recipe};
use super::fill::Fill;
use super::values::{
    Begin, Centering, Extension, GradientWire, Interval, MaskShape, MethodName, OnCollapse, Prototypes, WeightsDigest,
};
use super::view_rules::{blur_sigma, global_scale, global_size, local_scale, local_size, patch_size};

impl RawRecipe {
    /// Fills every gap for this data. What is done about a collapse follows from the rest, and is still to be decided.
    pub(super) fn fill(self, facts: &Facts) -> Result<Recipe, RecipeError> {
        if facts.images == 0 || facts.size().short() == 0 {
            return Err(RecipeError::NoImages);
        }
        let method = self.method();
        check_scope(method, self.given())?;
        let images = facts.images;
        let short = facts.size().short();

        let knn_voters = self.knn_voters.or_default(5000);
        let voting = images.min(knn_voters.value);
        let unit_length = (method == MethodName::Msn).then(|| (Prototypes::L2, "MSN: directions alone".to_owned()));
        let prototypes = self.prototypes.or_usual(Prototypes::Vmf, unit_length);
        let centering = self.centering.or_derive(|| centering(prototypes.value));
        let arch = self.arch.or_derive(|| arch(images, short));
        let model = arch.value;
        let is_large = matches!(model, Arch::Base | Arch::Large);
        let is_nano = model == Arch::Nano;
        let longest_warmup = if method == MethodName::Msn { 15.0 } else { 10.0 };

        let for_nano = |width| is_nano.then(|| (width, format!("{model}: a head of the backbone's order of size")));

        let patch_size = self.patch_size.or_derive(|| match &self.global_size {
            Some(given) => patch_size(given.value.short()),
            None => patch_size(short.min(224)),
        });
        let patch = patch_size.value;
        let global_size = self.global_size.or_derive(|| global_size(short, patch));
        let local_size = self.local_size.or_derive(|| local_size(global_size.value, patch));
        let local_crops = self.local_crops.or_usual(8, as_published(method, (None, Some(10), Some(10))));
        let global_scale = self.global_scale.or_derive(|| global_scale(method, short, local_crops.value));
        let local_scale = self.local_scale.or_derive(|| local_scale(images, short, global_scale.value));

        let out_dim = self.out_dim.or_derive(|| out_dim(images, method));
        let shared_head = self.shared_head.or_default(true);
        let patch_out_dim = self.patch_out_dim.or_derive(|| (out_dim.value, "as many as class tokens have".to_owned()));
        let few = |temperature| {
            let why = || (temperature, format!("a softer teacher often becomes uniform on {images} images"));
            (images < FEW_IMAGES).then(why)
        };
        let grid = (global_size.value.height / patch, global_size.value.width / patch);
        let too_few_for_blocks = (grid.0.min(grid.1) < LEAST_GRID_FOR_BLOCKS)
            .then(|| (MaskShape::Random, format!("views of {} by {} patches have no room for blocks", grid.0, grid.1)));

        let blur_sigma = self.blur_sigma.or_derive(|| blur_sigma(global_size.value.short()));

        let epochs = self.epochs.or_derive(|| epochs(images));
        let batch_size = self.batch_size.or_derive(|| batch_size(images));
        let (extension, extended_from) = (self.extension.or_default(Extension::No), self.extended_from.or_default(0));
        // Schedules that begin again have come to their end as they were.
        let runs = if extension.value == Extension::Again { extended_from.value.max(1) } else { epochs.value };
        let batch = batch_size.value;
        let steps = (images / batch).max(1) as f64 * runs as f64;
        let begin = self.begin.or_default(Begin::Drawn);
        let adapts = begin.value == Begin::Adapt;
        let lr = self.lr.or_usual(
            5e-4,
            match is_nano {
                true => Some((1e-3, format!("{model}: a small network takes larger steps"))),
                false => as_published(method, (None, None, Some(2.5e-4))),
            },
        );
        let backbone_lr = self.backbone_lr.or_usual(1.0, adapts.then(adapt_rules::backbone_lr));
        let peak = lr.value * batch as f64 / 256.0 * backbone_lr.value;
        let weight_decay = self.weight_decay.or_default(0.04);
        let steady = || (weight_decay.value, "adapting: given weights are not drawn to zero more and more".to_owned());

        Ok(Recipe {
            method: self.method.or_default(MethodName::Dino),
            prototypes,
            centering,
            arch,
            patch_size,
            drop_path: self.drop_path.or_usual(0.1, as_published(method, (None, None, Some(0.0)))),
            start: self.start.or_usual(
                Start::Random,
                (images < FEW_IMAGES && begin.value == Begin::Drawn)
                    .then(|| (Start::Mimetic, format!("{images} images: learns sooner and collapses less"))),
            ),
            begin,
            begin_weights: self.begin_weights.or_default(WeightsDigest(None)),
            registers: self.registers.or_default(0),
            layer_scale: self.layer_scale.or_default(false),
            positions: self.positions.or_default(Interpolation::Dino),
            norm_epsilon: self.norm_epsilon.or_default(Extras::NONE.norm_epsilon),
            channels: self.channels.or_default(RGB),
            decoding: self.decoding.or_default(Decoding::Exact),
            orientation: self.orientation.or_default(Orientation::Upright),
            global_size,
            local_size,
            local_crops,
            global_scale,
            local_scale,
            blur_sigma,
            out_dim,
            koleo_weight: self.koleo_weight.or_default(0.0),
            initial_kappa: self.initial_kappa.or_default(None),
            prototype_scale_lr: self.prototype_scale_lr.or_default(1.0),
            prototype_scale_log: self.prototype_scale_log.or_default(false),
            kappa_prior: self.kappa_prior.or_default(None),
            kappa_prior_weight: self.kappa_prior_weight.or_default(0.0),
            head_hidden: self.head_hidden.or_usual(2048, for_nano(512)),
            head_bottleneck: self.head_bottleneck.or_usual(256, for_nano(128)),
            head_layers: self.head_layers.or_default(3),
            head_batch_norm: self.head_batch_norm.or_usual(
                false,
                match images < FEW_IMAGES {
                    true => Some((true, format!("{images} images: without it a run often becomes uniform"))),
                    false => as_published(method, (None, None, Some(true))),
                },
            ),
            epochs,
            extension,
            extended_from,
            batch_size,
            lr,
            min_lr: self.min_lr.or_default(1e-6),
            warmup_epochs: self.warmup_epochs.or_derive(|| {
                (
                    (runs as f64 / 10.0).min(longest_warmup),
                    format!("a tenth of {runs} epochs, at most {longest_warmup}"),
                )
            }),
            weight_decay_end: self.weight_decay_end.or_usual(0.4, adapts.then(steady)),
            weight_decay,
            clip_grad: self
                .clip_grad
                .or_usual(3.0, is_large.then(|| (0.3, format!("{model}: as DINO's released ViT-B/16")))),
            backbone_lr,
            layer_decay: self.layer_decay.or_usual(1.0, adapts.then(|| adapt_rules::layer_decay(model))),
            pull: self.pull.or_usual(0.0, adapts.then(|| adapt_rules::pull(peak, steps))),
            backbone_warmup_epochs: self
                .backbone_warmup_epochs
                .or_usual(0.0, adapts.then(|| adapt_rules::backbone_warmup(runs, steps))),
            freeze_last_layer: self.freeze_last_layer.or_derive(|| {
                let usual = if is_large { 3 } else { 1 };
                (usual.min(runs / 4), format!("{model}: {usual}, at most a quarter of {runs} epochs"))
            }),
            adam_beta1: self.adam_beta1.or_default(0.9),
            adam_beta2: self.adam_beta2.or_default(0.999),
            adam_eps: self.adam_eps.or_default(1e-8),
            decay_prototype_scale: self.decay_prototype_scale.or_default(true),
            momentum_teacher: self.momentum_teacher.or_derive(|| match momentum(batch, steps) {
                usual if adapts => adapt_rules::momentum(usual, steps),
                usual => usual,
            }),
            momentum_teacher_end: self.momentum_teacher_end.or_default(1.0),
            student_temp: self.student_temp.or_default(0.1),
            warmup_teacher_temp: self.warmup_teacher_temp.or_default(0.04),
            teacher_temp: self.teacher_temp.or_usual(0.07, few(0.04)),
            warmup_teacher_temp_epochs: self.warmup_teacher_temp_epochs.or_derive(|| {
                let usual = if is_large { 50 } else { 30 };
                let share = (0.3 * runs as f64).round() as usize;
                (share.min(usual), format!("{model}: {usual}, but no more than 0.3 of {runs} epochs, rounded"))
            }),
            center_momentum: self.center_momentum.or_default(0.9),
            center_floor: self.center_floor.or_default(None),
            mask_shape: self.mask_shape.or_usual(MaskShape::Block, too_few_for_blocks),
            masked_views: self.masked_views.or_default(0.5),
            mask_ratio: self.mask_ratio.or_default(Interval { low: 0.1, high: 0.5 }),
            mask_start_epoch: self.mask_start_epoch.or_default(0),
            shared_head,
            patch_out_dim,
            warmup_teacher_patch_temp: self.warmup_teacher_patch_temp.or_default(0.04),
            teacher_patch_temp: self.teacher_patch_temp.or_usual(0.07, few(0.04)),
            class_loss_weight: self.class_loss_weight.or_default(1.0),
            patch_loss_weight: self.patch_loss_weight.or_default(1.0),
            patch_drop: self.patch_drop.or_default(0.15),
            sharpening: self.sharpening.or_default(0.25),
            sinkhorn: self.sinkhorn.or_default(true),
            me_max_weight: self.me_max_weight.or_default(1.0),
            warmup_start: self.warmup_start.or_default(0.2),
            schedule_stretch: self.schedule_stretch.or_default(1.25),
            seed: self.seed.or_default(0),
            workers: self.workers.or_default(0),
            accumulate: self.accumulate.or_default(1),
            checkpoint_activations: self.checkpoint_activations.or_default(false),
            residual_stream: self.residual_stream.or_default(RESIDUAL),
            gradient_wire: self.gradient_wire.or_default(GradientWire::Exact),
            shard_optimizer: self.shard_optimizer.or_default(false),
            max_bad_share: self.max_bad_share.or_default(0.05),
            on_collapse: self.on_collapse.or_default(OnCollapse::Stop),
            knn_every: self.knn_every.or_derive(|| {
                if facts.labelled {
                    ((runs / 20).max(1), format!("about 20 times in {runs} epochs, at most every epoch"))
                } else {
                    (0, "the images have no labels".to_owned())
                }
            }),
            knn_k: self.knn_k.or_usual(20, few_neighbors(voting)),
            knn_voters,
            knn_queries: self.knn_queries.or_default(1000),
            knn_temperature: self.knn_temperature.or_default(0.07),
            checkpoint_minutes: self.checkpoint_minutes.or_default(10.0),
            keep_checkpoints: self.keep_checkpoints.or_default(2),
            log_every: self.log_every.or_default(10),
            facts: *facts,
            source: None,
        })
    }
}

/// What the released recipe of a method has where DINO's has the usual value: for DINO, iBOT and MSN.
fn as_published<T>(method: MethodName, (dino, ibot, msn): (Option<T>, Option<T>, Option<T>)) -> Option<(T, String)> {
    let value = match method {
        MethodName::Dino => dino,
        MethodName::Ibot => ibot,
        MethodName::Msn => msn,
    };
    value.map(|value| (value, format!("{method}: as published")))
}

fn centering(prototypes: Prototypes) -> (Centering, String) {
    match prototypes {
        Prototypes::Vmf => (Centering::Probability, "prototypes = vmf: the paper's pair".to_owned()),
        other => (Centering::Logit, format!("prototypes = {other}: as DINO")),
    }
}

fn arch(images: usize, short: usize) -> (Arch, String) {
    if short <= 64 {
        (Arch::Nano, format!("images of {short} pixels"))
    } else if images < 100_000 {
        (Arch::Tiny, format!("{images} images, fewer than 100000"))
    } else {
        (Arch::Small, format!("{images} images"))
    }
}

/// 65536 on ImageNet, and 8192 for iBOT, whose patches share them; on small data most of so many prototypes would never win
/// an image.
fn out_dim(images: usize, method: MethodName) -> (usize, String) {
    let most = match method {
        MethodName::Dino => 16,
        MethodName::Ibot => 13,
        MethodName::Msn => 10,
    };
    let power = |n: usize| n.max(1).ilog2();
    let (eighth, half) = (power(images / 8), power(images / 2).clamp(4, 10));
    let reason = match eighth {
        of if of >= most => format!("as many as published {method} has: there are images enough"),
        _ if eighth >= half => format!("the power of two up to an eighth of {images} images"),
        _ if half == 10 => format!("1024, since an eighth of {images} images is fewer"),
        _ => format!("the power of two up to half of {images} images, at least 16"),
    };
    (1 << eighth.clamp(half, most), reason)
}

/// Small sets need more passes: 20 M image presentations, between DINO's short and its long schedule.
pub(super) fn epochs(images: usize) -> (usize, String) {
    let epochs = (2e6 / images as f64).round() as usize * 10;
    (epochs.clamp(100, 800), format!("20 million presentations of {images} images, from 100 to 800 epochs"))
}

/// What one machine holds, with at least four steps in an epoch.
fn batch_size(images: usize) -> (usize, String) {
    let power = (images / 4).max(1).ilog2().min(6);
    (1 << power, format!("64, or the power of two up to a quarter of {images} images"))
}

/// Below this many images a teacher at 0.07 has been seen to become uniform where one at 0.04 has not, and a head without
/// batch norm where one with it has not.
pub(super) const FEW_IMAGES: usize = 100_000;

/// Steps that a teacher remembers at least: one that follows at once teaches what it was just taught. (0.95 trains, 0.9
/// collapses, on CIFAR-10.)
const LEAST_MEMORY: f64 = 20.0;
/// The part of a run that a teacher remembers at most. With a twentieth, 15 epochs on made-up images gained 9 points
/// of kNN instead of 16.
const MOST_OF_RUN: f64 = 1.0 / 200.0;

/// The teacher's memory 1 / (1 - m) counts images, not steps: DINO's 0.996 at batch 1024 remembers 256 thousand, so a
/// smaller batch needs a momentum closer to 1 (0.999 at 256, in line with DINO's advice of 0.9995 there). But a short run
/// needs a teacher that soon leaves its random start.
fn momentum(batch: usize, steps: f64) -> (f64, String) {
    let by_batch = 256_000.0 / batch as f64;
    let memory = by_batch.min(MOST_OF_RUN * steps).max(LEAST_MEMORY);
    let why = if memory == LEAST_MEMORY {
        format!("{LEAST_MEMORY} steps, the fewest that train, in a run of {steps}")
    } else if memory == by_batch {
        format!("256000 images, at batch {batch}")
    } else {
        format!("a two-hundredth of {steps} steps")
    };
    (1.0 - two_digits(1.0 / memory), format!("remembers {why}"))
}

/// Rounded to two significant digits, so that a derived value is short to read.
pub(super) fn two_digits(x: f64) -> f64 {
    let scale = 10f64.powi(1 - x.abs().log10().floor() as i32);
    (x * scale).round() / scale
}

/// Neighbours for so few images that 20 of them would be most of other classes: of four images of a class, the nearest 19 of
/// 20 have three of the own and sixteen others.
fn few_neighbors(voting: usize) -> Option<(usize, String)> {
    let quarter = (voting / 4).max(1);
    (quarter < 20).then(|| (quarter, format!("a quarter of the {} that vote", text::count(voting, "image"))))
}

#[cfg(test)]
mod tests {
    use super::super::rule::MAX_SIDE;
    use super::super::values::Size;
    use super::*;

    const IMAGENET: Facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: true, fingerprint: 7 };
    const CIFAR: Facts = Facts { images: 50_000, height: 32, width: 32, labelled: true, fingerprint: 7 };

    fn resolve(text: &str, facts: Facts) -> Result<Recipe, RecipeError> {
        RawRecipe::from_toml(text, "my.toml")?.resolve(&facts)
    }

    #[test]
    fn on_imagenet_at_batch_1024_the_rules_give_dinos_values() {
        let r = resolve("batch_size = 1024", IMAGENET).unwrap();
        assert_eq!((r.arch(), r.patch_size(), r.out_dim(), r.epochs()), (Arch::Small, 16, 65_536, 100));
        assert_eq!((r.global_size(), r.local_size()), (Size::square(224), Size::square(96)));
        assert_eq!((r.global_scale().low, r.local_scale().low, r.local_scale().high), (0.25, 0.05, 0.25));
        assert_eq!((r.peak_lr(), r.warmup_epochs(), r.momentum_teacher()), (0.002, 10.0, 0.996));
        assert_eq!((r.warmup_teacher_temp_epochs(), r.freeze_last_layer()), (30, 1));
        assert_eq!((r.head_hidden(), r.head_bottleneck()), (2048, 256));
        let base = resolve("batch_size = 1024\narch = \"vit_base\"\nepochs = 400", IMAGENET).unwrap();
        assert_eq!((base.warmup_teacher_temp_epochs(), base.freeze_last_layer(), base.clip_grad()), (50, 3, 0.3));
    }

    #[test]
    fn on_imagenet_at_batch_1024_the_rules_give_the_values_of_ibot_and_msn() {
        let r = resolve("method = \"ibot\"\nbatch_size = 1024", IMAGENET).unwrap();
        assert_eq!((r.out_dim(), r.local_crops(), r.peak_lr(), r.drop_path()), (8192, 10, 0.002, 0.1));
        assert_eq!((r.mask_shape(), r.masked_views(), r.teacher_patch_temp()), (MaskShape::Block, 0.5, 0.07));
        assert_eq!((r.mask_ratio().low, r.mask_ratio().high, r.patch_out_dim()), (0.1, 0.5, 8192));
        let r = resolve("method = \"msn\"\nbatch_size = 1024\nepochs = 800", IMAGENET).unwrap();
        assert_eq!((r.out_dim(), r.local_crops(), r.peak_lr(), r.drop_path()), (1024, 10, 1e-3, 0.0));
        assert_eq!((r.head_batch_norm(), r.warmup_epochs(), r.prototypes()), (true, 15.0, Prototypes::L2));
        assert_eq!((r.global_scale().low, r.local_scale().low, r.local_scale().high), (0.3, 0.05, 0.3));
        assert_eq!((r.momentum_teacher(), r.sharpening(), r.patch_drop(), r.sinkhorn()), (0.996, 0.25, 0.15, true));
    }

    #[test]
    fn small_images_get_small_patches_and_a_small_network() {
        let r = resolve("", CIFAR).unwrap();
        assert_eq!((r.arch(), r.patch_size(), r.global_size()), (Arch::Nano, 4, Size::square(32)));
        assert_eq!((r.local_size(), r.local_scale().high), (Size::square(16), 0.4));
        assert_eq!((r.out_dim(), r.epochs(), r.batch_size()), (4096, 400, 64));
        assert_eq!(r.warnings(), Vec::<String>::new());
    }

    #[test]
    fn few_images_get_what_keeps_them_from_becoming_uniform() {
        let photos = Facts { images: 8000, height: 160, width: 160, labelled: true, fingerprint: 7 };
        let r = resolve("", photos).unwrap();
        assert_eq!((r.head_batch_norm(), r.teacher_temp(), r.local_size()), (true, 0.04, Size::square(96)));
        assert_eq!(r.start(), Start::Mimetic);
        assert_eq!((r.local_scale().low, r.local_scale().high, r.global_scale().low), (0.05, 0.4, 0.25));
        let r = resolve("", IMAGENET).unwrap();
        assert_eq!((r.head_batch_norm(), r.local_scale().high, r.start()), (false, 0.25, Start::Random));
    }

    #[test]
    fn the_number_of_prototypes_is_a_power_of_two_that_grows_with_the_data() {
        for (images, prototypes) in
            [(300, 128), (1500, 512), (8_000, 1024), (16_384, 2048), (100_000, 8192), (600_000, 65_536)]
        {
            assert_eq!(out_dim(images, MethodName::Dino).0, prototypes);
        }
    }

    #[test]
    fn the_teacher_remembers_as_many_images_at_any_batch_but_never_as_long_as_the_run() {
        assert_eq!((momentum(1024, 1e6).0, momentum(256, 1e6).0, momentum(64, 1e6).0), (0.996, 0.999, 0.99975));
        assert_eq!(momentum(64, 20_000.0).0, 0.99);
        let temperature = |facts| resolve("", facts).unwrap().teacher_temp();
        assert_eq!((temperature(CIFAR), temperature(IMAGENET)), (0.04, 0.07));
        assert_eq!(momentum(64, 5.0).0, 0.95);
    }

    #[test]
    fn defaults_are_overridden_by_the_file_and_the_file_by_flags() {
        let mut raw = RawRecipe::from_toml("out_dim = 512\nlr = 0.002", "f").unwrap();
        raw.set_text("out_dim", "256", "--out-dim").unwrap();
        let r = raw.resolve(&CIFAR).unwrap();
        assert_eq!((r.out_dim(), r.lr(), r.student_temp()), (256, 0.002, 0.1));
    }

    #[test]
    fn centering_follows_the_prototypes_and_all_six_pairs_are_allowed() {
        assert_eq!(resolve("", CIFAR).unwrap().centering(), Centering::Probability);
        assert_eq!(resolve("prototypes = \"l2\"", CIFAR).unwrap().centering(), Centering::Logit);
        for prototypes in Prototypes::WORDS {
            for centering in Centering::WORDS {
                let text = format!("prototypes = \"{prototypes}\"\ncentering = \"{centering}\"");
                assert_eq!(resolve(&text, CIFAR).unwrap().centering().as_str(), *centering);
            }
        }
    }

    #[test]
    fn what_cannot_train_is_refused_with_the_way_out() {
        let tiny = Facts { images: 10, height: 12, width: 9, labelled: false, fingerprint: 7 };
        for (text, facts, expected) in [
            ("", Facts { images: 0, ..CIFAR }, "no images"),
            ("batch_size = 11", tiny, "batch_size 11 is larger than the data (10 images): use --batch-size 10 or less"),
            ("patch_size = 16", tiny, "(12x9, the median) are smaller than a patch of 16 pixels: use --patch-size 9"),
            ("patch_size = 16\nglobal_size = 15", IMAGENET, "global_size 15x15 is smaller than a patch"),
            ("patch_size = 16\nlocal_size = \"96x8\"", IMAGENET, "local_size 96x8 is smaller than a patch"),
            ("head_bottleneck = 8", CIFAR, "use head_bottleneck 16 or more"),
            ("epochs = 5\nwarmup_epochs = 6", CIFAR, "warmup_epochs 6 is larger than epochs 5"),
            ("lr = 1e-6\nmin_lr = 1e-3", CIFAR, "min_lr 0.001 is larger than the peak learning rate"),
            ("momentum_teacher = 1\nmomentum_teacher_end = 0.9", CIFAR, "momentum_teacher 1 is larger"),
            ("knn_k = 20", tiny, "knn_k 20 is larger than the number of images 10: lower it"),
            ("knn_k = 12\nknn_voters = 11", CIFAR, "knn_k 12 is larger than knn_voters 11: lower the first"),
        ] {
            let message = resolve(text, facts).unwrap_err().to_string();
            assert!(message.to_lowercase().contains(&expected.to_lowercase()), "{text}: {message}");
        }
        assert!(resolve("head_bottleneck = 8\nprototypes = \"l2\"", CIFAR).is_ok());
        assert!(resolve("patch_size = 16\nlocal_size = 8\nlocal_crops = 0", IMAGENET).is_ok());
    }

    #[test]
    fn every_data_set_size_and_image_size_resolves() {
        for images in [1, 2, 7, 100, 999, 5_000, 1_000_000, 300_000_000] {
            for (height, width) in [(1, 1), (3, 700), (28, 28), (63, 64), (97, 97), (200, 159), (MAX_SIDE, 4000)] {
                for epochs in ["", "epochs = 1"] {
                    let facts = Facts { images, height, width, labelled: false, fingerprint: 7 };
                    let recipe = resolve(epochs, facts).unwrap_or_else(|error| panic!("{facts:?}: {error}"));
                    assert!(recipe.total_steps() > 0);
                    assert_eq!(Recipe::from_toml(&recipe.to_toml(), "config.toml").unwrap(), recipe);
                }
            }
        }
    }

    #[test]
    fn what_is_probably_not_meant_is_said() {
        let text = "epochs = 2\nglobal_size = 30\nlocal_size = 12\npatch_size = 4\nout_dim = 65536\nteacher_temp = 0.2\n\
                    warmup_teacher_temp_epochs = 9\nfreeze_last_layer = 2\nknn_every = 1\nkeep_checkpoints = 1";
        let said = resolve(text, Facts { labelled: false, ..CIFAR }).unwrap().warnings();
        assert_eq!(said.len(), 7, "{said:#?}");
        assert!(said[0].contains("last 2 rows and 2 columns"));
        let said = resolve("momentum_teacher = 1\nlr = 10", CIFAR).unwrap().warnings();
        assert!(said[0].contains("at its random start") && said[1].contains("20000 times DINO's 0.0005"), "{said:#?}");
    }
}
