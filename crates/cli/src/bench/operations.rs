//! Where the loader's time goes: every operation on the way from a file to views, timed by itself on one thread.

use data::augment::{self, Blur};
use data::decode::{DecodeLimits, Decoder, Reduction};
use data::views::{Adjustment, ViewMaker, ViewParams, reduction};
use data::{Decoding, Image, LoaderConfig, Orientation, ReadError, Reader, Source, Stored};
use random::{Key, Purpose};

use super::usage;

/// Most images that are measured, spread evenly over the source.
const SAMPLE: usize = 128;
/// Times that an image is processed; the fastest counts, because another program can only slow one down.
const PASSES: usize = 3;
/// Channels of the images.
const RGB: usize = 3;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk, or its cache in memory.
    Read,
    /// From bytes of a file to pixels.
    Decode,
    /// Drawing what happens to a view.
    Draw,
    /// Cutting out, resizing and, in the same pass, mirroring.
    Resize,
    /// The first part of colour jitter.
    Brightness,
    /// The second.
    Contrast,
    /// The third.
    Saturation,
    /// The fourth.
    Hue,
    /// Loss of colour.
    Grayscale,
    /// Gaussian blur.
    Blur,
    /// Solarisation.
    Solarize,
}

impl Operation {
    /// All of them, in the order of the pipeline.
    pub const ALL: [Operation; 11] = [
        Operation::Read,
        Operation::Decode,
        Operation::Draw,
        Operation::Resize,
        Operation::Brightness,
        Operation::Contrast,
        Operation::Saturation,
        Operation::Hue,
        Operation::Grayscale,
        Operation::Blur,
        Operation::Solarize,
    ];

    /// Whether a GPU does it where there is one.
    pub fn is_finish(self) -> bool {
        self as usize > Operation::Resize as usize
    }

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Decode => "decode",
            Operation::Draw => "draw",
            Operation::Resize => "resize",
            Operation::Brightness => "brightness",
            Operation::Contrast => "contrast",
            Operation::Saturation => "saturation",
            Operation::Hue => "hue",
            Operation::Grayscale => "grayscale",
            Operation::Blur => "blur",
            Operation::Solarize => "solarize",
        }
    }
}

/// Seconds by operation, in the order of [`Operation::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times([f64; Operation::ALL.len()]);

impl Times {
    /// The seconds of an operation.
    pub fn of(&self, operation: Operation) -> f64 {
        self.0[operation as usize]
    }

    /// The seconds of all.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// Does something and adds the time it took.
    fn time<T>(&mut self, operation: Operation, work: impl FnOnce() -> T) -> T {
        let start = usage::thread_seconds();
        let result = work();
        self.0[operation as usize] += usage::thread_seconds() - start;
        result
    }
}

/// What an image costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Images that were measured.
    pub images: usize,
    /// Mean over them, with all their views.
    pub operations: Times,
}

/// Times the operations on a sample of the images; those that cannot be read are left out.
pub fn measure(source: &dyn Source, config: &LoaderConfig) -> Cost {
    let (mut images, mut sums) = (0, Times::default());
    let mut bench = Bench::new(config.orientation);
    let mut reader = Reader::new(DecodeLimits::default(), RGB).oriented(config.orientation);
    let mut image = Image::black(1, 1, RGB);
    for index in (0..source.len()).step_by(source.len().div_ceil(SAMPLE).max(1)) {
        // Once without a clock: the views of an image follow from its size. The loader has reported what is unreadable.
        if reader.read(source, index, &mut image).is_err() {
            continue;
        }
        let full = (image.height, image.width);
        let passes: Result<Vec<Times>, ReadError> =
            (0..PASSES).map(|_| bench.pass(source, index, full, config)).collect();
        let Ok(passes) = passes else { continue };
        images += 1;
        for (i, sum) in sums.0.iter_mut().enumerate() {
            *sum += passes.iter().map(|times| times.0[i]).fold(f64::INFINITY, f64::min);
        }
    }
    let operations = Times(sums.0.map(|sum| sum / images.max(1) as f64));
    Cost { images, operations }
}

/// What is used again from image to image, as a worker of the loader does.
struct Bench {
    limits: DecodeLimits,
    decoder: Decoder,
    bytes: Vec<u8>,
    image: Image,
    maker: ViewMaker,
    blur: Blur,
    view: Image,
}

impl Bench {
    fn new(orientation: Orientation) -> Self {
        let (limits, blank) = (DecodeLimits::default(), Image::black(1, 1, RGB));
        Self {
            limits,
            decoder: Decoder::new(limits, RGB).oriented(orientation),
            bytes: Vec::new(),
            image: blank.clone(),
            maker: ViewMaker::default(),
            blur: Blur::default(),
            view: blank,
        }
    }

    /// One pass over one image of `full` (height, width).
    fn pass(
        &mut self,
        source: &dyn Source,
        index: usize,
        full: (usize, usize),
        config: &LoaderConfig,
    ) -> Result<Times, ReadError> {
        let mut times = Times::default();
        let key = Key::new(config.seed, Purpose::View).sample(index as u64);
        let draw = |view| config.views.draw(view, full.0, full.1, key);
        let params = times.time(Operation::Draw, || (0..config.views.count()).map(draw).collect::<Vec<_>>());
        let smaller = match config.decoding {
            Decoding::Exact => Reduction::None,
            Decoding::Fast => reduction(&params),
        };
        let Self { limits, decoder, bytes, image, .. } = self;
        let stored = times.time(Operation::Read, || source.fetch(index, limits, bytes))?;
        let done = times
            .time(Operation::Decode, || match stored {
                Stored::File => decoder.decode_reduced(bytes, &mut |_, _| smaller, image),
                Stored::Pixels { height, width, channels } => {
                    decoder.convert(bytes, (height, width, channels), image).map(|()| Reduction::None)
                }
            })
            .map_err(|error| ReadError::Decode { name: source.name(index), source: error })?;
        for params in &params {
            self.make_view(done.divisor(), params, config.finish, &mut times);
        }
        Ok(times)
    }

    /// What [`ViewMaker`] does, or the first part of it where views are not finished, with a clock on every operation.
    fn make_view(&mut self, divisor: usize, params: &ViewParams, finishes: bool, times: &mut Times) {
        let Self { image, maker, blur, view, .. } = self;
        times.time(Operation::Resize, || maker.cut(image, divisor, params, view));
        if !finishes {
            return;
        }
        let finish = &params.finish;
        if let Some(jitter) = &finish.jitter {
            for step in jitter.order {
                match step {
                    Adjustment::Brightness => {
                        times.time(Operation::Brightness, || augment::brightness(view, jitter.brightness));
                    }
                    Adjustment::Contrast => {
                        times.time(Operation::Contrast, || augment::contrast(view, jitter.contrast));
                    }
                    Adjustment::Saturation => {
                        times.time(Operation::Saturation, || augment::saturation(view, jitter.saturation));
                    }
                    Adjustment::Hue => times.time(Operation::Hue, || augment::hue(view, jitter.hue)),
                }
            }
        }
        if finish.grayscale {
            times.time(Operation::Grayscale, || augment::grayscale(view));
        }
        if let Some(sigma) = finish.blur_sigma {
            times.time(Operation::Blur, || blur.apply(view, sigma));
        }
        if let Some(threshold) = finish.solarize_threshold {
            times.time(Operation::Solarize, || augment::solarize(view, threshold));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use data::{MultiCrop, Split};

    #[test]
    fn what_is_timed_is_what_the_loader_does() {
        let source = crate::images::open("synthetic:train=2,size=40", Split::Train).unwrap();
        let recipe = MultiCrop { global_size: (24, 24), local_size: (12, 12), ..MultiCrop::dino() };
        let mut bench = Bench { image: source.read(0).unwrap(), ..Bench::new(Orientation::Upright) };
        let (mut times, key) = (Times::default(), Key::new(3, Purpose::View));
        for view in 0..recipe.count() {
            let params = recipe.draw(view, bench.image.height, bench.image.width, key);
            bench.make_view(1, &params, true, &mut times);
            assert_eq!(bench.view, data::views::apply(&bench.image, &params), "view {view}");
        }
        assert!(times.of(Operation::Resize) > 0.0 && times.of(Operation::Blur) > 0.0);
    }

    #[test]
    fn operations_are_listed_in_their_order_and_sum_to_the_total() {
        assert!(Operation::ALL.iter().enumerate().all(|(i, &operation)| operation as usize == i));
        let source = crate::images::open("synthetic:train=3,size=16", Split::Train).unwrap();
        let views = MultiCrop { global_size: (16, 16), local_crops: 0, ..MultiCrop::dino() };
        let cost = measure(&*source, &LoaderConfig { views, ..LoaderConfig::default() });
        let sum: f64 = Operation::ALL.iter().map(|&operation| cost.operations.of(operation)).sum();
        assert_eq!(cost.images, 3);
        assert!((sum - cost.operations.total()).abs() < 1e-12 && sum > 0.0);
    }
}
