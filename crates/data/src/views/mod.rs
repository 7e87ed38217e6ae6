//! The multi-crop augmentation of DINO: two global and several local views of an image, each augmented independently; and
//! with one global view, what a classifier is trained on ([`MultiCrop::supervised`]).
//!
//! The parameters of a view are drawn first, as plain data ([`ViewParams`]), and applied after ([`apply`]). The draw of
//! view `v` is a function of the key (seed, epoch, sample, `v`) and the image's size: it does not depend on threads or
//! on what was drawn before.

mod check;
mod params;

pub use check::ViewsError;
pub use params::{Adjustment, Finish, Jitter, ViewMaker, ViewParams, apply, reduction};

use crate::Image;
use crate::augment::crop::random_resized_crop;
use crate::augment::{Filter, RandAugment};
use random::Key;

/// Settings of the multi-crop augmentation. The default is DINO's.
#[derive(Clone, Debug, PartialEq)]
pub struct MultiCrop {
    /// (height, width) of a global view.
    pub global_size: (usize, usize),
    /// (height, width) of a local view.
    pub local_size: (usize, usize),
    /// Global views of an image: two, or one where there is nothing to compare.
    pub global_crops: usize,
    /// Local views of an image.
    pub local_crops: usize,
    /// Range of the share of the image's area that a global view shows.
    pub global_scale: (f64, f64),
    /// The same for a local view.
    pub local_scale: (f64, f64),
    /// Range of a crop's aspect ratio, width to height, drawn log-uniformly.
    pub ratio: (f64, f64),
    /// How crops are resized.
    pub filter: Filter,
    /// Probability of mirroring.
    pub flip_probability: f64,
    /// Strength of colour jitter.
    pub jitter: JitterStrength,
    /// Probability of colour jitter.
    pub jitter_probability: f64,
    /// Probability of greyscale.
    pub grayscale_probability: f64,
    /// Probability of blur, by the kind of view.
    pub blur_probability: PerKind,
    /// Range of the blur's standard deviation in pixels.
    pub blur_sigma: (f64, f64),
    /// Probability of solarisation, by the kind of view.
    pub solarize_probability: PerKind,
    /// Channel values from here on are inverted by solarisation.
    pub solarize_threshold: u8,
    /// Operations of RandAugment on every view, where they are drawn.
    pub rand_augment: Option<RandAugment>,
    /// How often an image comes in a row in the order of an epoch, each time in other views: repeated augmentation. An epoch
    /// has as many batches as without, of fewer images.
    pub repeats: usize,
}

/// Largest changes by colour jitter: factors in 1 - x ..= 1 + x, and a turn of hue in -x ..= x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JitterStrength {
    /// Of brightness.
    pub brightness: f64,
    /// Of contrast.
    pub contrast: f64,
    /// Of saturation.
    pub saturation: f64,
    /// Of hue, as a share of the colour circle, at most 0.5.
    pub hue: f64,
}

/// A number for each kind of view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerKind {
    /// The first global view.
    pub global1: f64,
    /// The second global view.
    pub global2: f64,
    /// Every local view.
    pub local: f64,
}

/// The kinds of view, which differ in size, blur and solarisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// View 0.
    Global1,
    /// View 1.
    Global2,
    /// Views 2 and on.
    Local,
}

impl ViewKind {
    /// The kind of the view at this place in the output order.
    pub fn of(view: usize) -> Self {
        match view {
            0 => ViewKind::Global1,
            1 => ViewKind::Global2,
            _ => ViewKind::Local,
        }
    }
}

impl PerKind {
    /// The number for this kind.
    pub fn get(&self, kind: ViewKind) -> f64 {
        match kind {
            ViewKind::Global1 => self.global1,
            ViewKind::Global2 => self.global2,
            ViewKind::Local => self.local,
        }
    }
}

/// Global views of every image in multi-crop.
pub const GLOBAL_VIEWS: usize = 2;

impl Default for MultiCrop {
    fn default() -> Self {
        Self::dino()
    }
}

impl MultiCrop {
    /// The recipe of DINO (and iBOT): 2 views of 224 pixels and 8 of 96.
    pub fn dino() -> Self {
        Self {
            global_size: (224, 224),
            local_size: (96, 96),
            global_crops: GLOBAL_VIEWS,
            local_crops: 8,
            global_scale: (0.4, 1.0),
            local_scale: (0.05, 0.4),
            ratio: (3.0 / 4.0, 4.0 / 3.0),
            filter: Filter::Bicubic,
            flip_probability: 0.5,
            jitter: JitterStrength { brightness: 0.4, contrast: 0.4, saturation: 0.2, hue: 0.1 },
            jitter_probability: 0.8,
            grayscale_probability: 0.2,
            blur_probability: PerKind { global1: 1.0, global2: 0.1, local: 0.5 },
            blur_sigma: (0.1, 2.0),
            solarize_probability: PerKind { global1: 0.0, global2: 0.2, local: 0.0 },
            solarize_threshold: 128,
            rand_augment: None,
            repeats: 1,
        }
    }

    /// The recipe of MSN: one target and one anchor view of 224 pixels, ten focal views of 96.
    pub fn msn() -> Self {
        Self {
            local_crops: 10,
            global_scale: (0.3, 1.0),
            local_scale: (0.05, 0.3),
            filter: Filter::Bilinear,
            jitter: JitterStrength { saturation: 0.4, ..Self::dino().jitter },
            blur_probability: PerKind { global1: 0.5, global2: 0.5, local: 0.5 },
            solarize_probability: PerKind { global1: 0.0, global2: 0.0, local: 0.0 },
            ..Self::dino()
        }
    }

    /// The training views of a classifier, as timm makes them: one of each image, of 8 % of its area or more, bicubic,
    /// mirrored half of the time, then RandAugment.
    pub fn supervised(size: (usize, usize)) -> Self {
        let never = PerKind { global1: 0.0, global2: 0.0, local: 0.0 };
        Self {
            global_size: size,
            global_crops: 1,
            local_crops: 0,
            global_scale: (0.08, 1.0),
            jitter_probability: 0.0,
            grayscale_probability: 0.0,
            blur_probability: never,
            solarize_probability: never,
            rand_augment: Some(RandAugment::default()),
            ..Self::dino()
        }
    }

    /// Views of an image.
    pub fn count(&self) -> usize {
        self.global_crops + self.local_crops
    }

    /// (height, width) of a view of this kind.
    pub fn size(&self, kind: ViewKind) -> (usize, usize) {
        match kind {
            ViewKind::Global1 | ViewKind::Global2 => self.global_size,
            ViewKind::Local => self.local_size,
        }
    }

    /// All views of an image in the order global 1, global 2, local 1 .. local L. `key` names the sample; the view is
    /// filled in here.
    pub fn views(&self, image: &Image, key: Key) -> Vec<Image> {
        (0..self.count()).map(|view| apply(image, &self.draw(view, image.height, image.width, key))).collect()
    }

    /// Draws what happens to one view of an image of this size. `key` names the sample; the view is filled in here. Numbers
    /// from [`Self::count`] on are those of the image's repetitions.
    ///
    /// Every draw is made whether or not it is used, so that a change of one probability leaves all other choices as
    /// they were.
    pub fn draw(&self, view: usize, height: usize, width: usize, key: Key) -> ViewParams {
        let kind = ViewKind::of(view % self.count().max(1));
        let mut stream = key.view(view as u32).stream();
        let scale = if kind == ViewKind::Local { self.local_scale } else { self.global_scale };
        // The rectangle takes a number of draws that depends on the image, so it comes last.
        let flip = stream.chance(self.flip_probability);
        let jitter = keep_if(stream.chance(self.jitter_probability), Jitter::draw(&self.jitter, &mut stream));
        let grayscale = stream.chance(self.grayscale_probability);
        let blurred = stream.chance(self.blur_probability.get(kind));
        let blur_sigma = keep_if(blurred, stream.uniform_in(self.blur_sigma.0, self.blur_sigma.1));
        let solarized = stream.chance(self.solarize_probability.get(kind));
        let operations = self.rand_augment.map(|augment| augment.draw(&mut stream)).unwrap_or_default();
        let crop = random_resized_crop(height, width, scale, self.ratio, &mut stream);
        ViewParams {
            crop,
            size: self.size(kind),
            filter: self.filter,
            flip,
            operations,
            finish: Finish {
                jitter,
                grayscale,
                blur_sigma,
                solarize_threshold: keep_if(solarized, self.solarize_threshold),
            },
        }
    }
}

fn keep_if<T>(keep: bool, value: T) -> Option<T> {
    keep.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Purpose;

    fn key(sample: u64) -> Key {
        Key::new(5, Purpose::View).epoch(2).sample(sample)
    }

    #[test]
    fn choices_occur_as_often_as_dino_says() {
        let recipe = MultiCrop::dino();
        let n = 4000;
        // flip, jitter, grayscale, blur, solarize
        let expected = [(0, [0.5, 0.8, 0.2, 1.0, 0.0]), (1, [0.5, 0.8, 0.2, 0.1, 0.2]), (7, [0.5, 0.8, 0.2, 0.5, 0.0])];
        for (view, shares) in expected {
            let mut counts = [0; 5];
            for sample in 0..n {
                let p = recipe.draw(view, 300, 400, key(sample));
                let Finish { jitter, grayscale, blur_sigma, solarize_threshold } = p.finish;
                let happened =
                    [p.flip, jitter.is_some(), grayscale, blur_sigma.is_some(), solarize_threshold.is_some()];
                for (count, happened) in counts.iter_mut().zip(happened) {
                    *count += u32::from(happened);
                }
            }
            for (count, share) in counts.into_iter().zip(shares) {
                let got = f64::from(count) / n as f64;
                assert!((got - share).abs() < 0.035, "view {view}: {got} for {share}");
            }
        }
    }

    #[test]
    fn jitter_stays_in_its_ranges_and_uses_every_order() {
        let mut orders = std::collections::HashSet::new();
        for sample in 0..2000 {
            let Some(j) = MultiCrop::dino().draw(0, 100, 100, key(sample)).finish.jitter else { continue };
            assert!((0.6..1.4).contains(&j.brightness) && (0.6..1.4).contains(&j.contrast));
            assert!((0.8..1.2).contains(&j.saturation) && (-0.1..0.1).contains(&j.hue));
            orders.insert(format!("{:?}", j.order));
        }
        assert_eq!(orders.len(), 24);
    }

    #[test]
    fn one_probability_changes_only_its_own_choice() {
        let dino = MultiCrop::dino();
        let never_gray = MultiCrop { grayscale_probability: 0.0, jitter_probability: 1.0, ..dino.clone() };
        for sample in 0..200 {
            let (a, b) = (dino.draw(3, 64, 80, key(sample)), never_gray.draw(3, 64, 80, key(sample)));
            assert_eq!((a.crop, a.flip, a.finish.blur_sigma), (b.crop, b.flip, b.finish.blur_sigma));
            assert!(a.finish.jitter.is_none() || a.finish.jitter == b.finish.jitter);
        }
    }

    #[test]
    fn views_come_in_order_and_in_their_sizes() {
        let recipe = MultiCrop { global_size: (20, 24), local_size: (8, 12), local_crops: 3, ..MultiCrop::dino() };
        let image = Image::from_pixels(31, 17, 3, (0..31 * 17 * 3).map(|i| (i % 251) as u8).collect());
        let views = recipe.views(&image, key(1));
        let sizes: Vec<_> = views.iter().map(|v| (v.height, v.width)).collect();
        assert_eq!(sizes, [(20, 24), (20, 24), (8, 12), (8, 12), (8, 12)]);
        for (v, view) in views.iter().enumerate() {
            assert_eq!(*view, apply(&image, &recipe.draw(v, 17, 31, key(1))));
        }
        assert_ne!(views[2], views[3]);
    }

    #[test]
    fn a_classifier_sees_one_view_and_a_repetition_is_another_one() {
        let recipe = MultiCrop { repeats: 3, ..MultiCrop::supervised((16, 16)) };
        assert_eq!((recipe.count(), recipe.check()), (1, Ok(())));
        let drawn: Vec<ViewParams> = (0..3).map(|repetition| recipe.draw(repetition, 40, 30, key(4))).collect();
        assert!(drawn[0].crop != drawn[1].crop && drawn[1].crop != drawn[2].crop, "{drawn:?}");
        assert!(drawn.iter().all(|p| p.size == (16, 16) && p.finish == Finish::default()));
        let applied = (0..500).flat_map(|sample| recipe.draw(0, 40, 30, key(sample)).operations).flatten().count();
        assert!((430..570).contains(&applied), "half of 1000: {applied}");
        let plain = MultiCrop { rand_augment: None, ..recipe };
        assert!((0..50).all(|sample| plain.draw(0, 40, 30, key(sample)).operations == [None, None]));
    }

    #[test]
    fn a_one_pixel_image_has_views() {
        let image = Image::from_pixels(1, 1, 3, vec![10, 200, 30]);
        assert_eq!(MultiCrop::dino().views(&image, key(0)).len(), 10);
    }
}
