//! A batch as a classifier is trained on it.

use super::erase::Erasing;
use super::mix::{Mix, Mixing, smoothed};
use crate::loader::{Batch, repetition};
use random::{Key, Purpose};

/// The images of a step with what is done to them. Images are made one by one when they are asked for, on any number of
/// threads: a whole batch of values takes four times the memory of its bytes and more.
#[derive(Clone, Debug)]
pub struct TrainingBatch<'a> {
    batch: &'a Batch,
    /// How often each image comes in a row.
    repeats: usize,
    mean: &'a [f32],
    deviation: &'a [f32],
    erasing: Erasing,
    /// Keys of what is erased, without the image.
    erased: Key,
    /// One for each group of images that are mixed together. Image i is in group i modulo their number: what a training on
    /// so many GPUs would give each of them.
    mixes: Vec<Mix>,
}

/// What is done to the images of every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Treatment<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The number of the step.
    pub step: u64,
    /// How often each image comes in a row.
    pub repeats: usize,
    /// Means of the channels.
    pub mean: &'a [f32],
    /// Their standard deviations.
    pub deviation: &'a [f32],
    /// Erasing.
    pub erasing: Erasing,
    /// Mixing.
    pub mixing: Mixing,
    /// Images that are mixed with one draw.
    pub mixed_together: usize,
}

impl<'a> TrainingBatch<'a> {
    /// A batch with one view of each image.
    ///
    /// # Panics
    /// When it has more views, or not one mean and deviation for each channel.
    pub fn new(batch: &'a Batch, treatment: &Treatment<'a>) -> Self {
        let Treatment { seed, step, repeats, mean, deviation, erasing, mixing, mixed_together } = *treatment;
        let group = &batch.groups[0];
        assert_eq!((batch.groups.len(), group.count), (1, batch.samples.len()), "one view of each image");
        assert_eq!((mean.len(), deviation.len()), (group.channels, group.channels), "one mean for each channel");
        let groups = group.count.div_ceil(mixed_together.max(1)).max(1);
        let key = Key::new(seed, Purpose::Mix).epoch(step);
        let draw = |number: usize| mixing.draw((group.height, group.width), key.sample(number as u64));
        let erased = Key::new(seed, Purpose::Erase).epoch(batch.epoch);
        Self { batch, repeats, mean, deviation, erasing, erased, mixes: (0..groups).map(draw).collect() }
    }

    /// Which repetition of its image each one is.
    pub fn repetition(&self, image: usize) -> usize {
        repetition(self.batch.position, self.batch.samples.len(), image, self.repeats)
    }

    /// What happens to an image, and the one that it is mixed with: the same place of its group from the end.
    fn mix(&self, image: usize) -> (Mix, usize) {
        let groups = self.mixes.len();
        let number = image % groups;
        let members = (self.batch.samples.len() - number).div_ceil(groups);
        (self.mixes[number], number + groups * (members - 1 - image / groups))
    }

    /// Values of one image, channel by channel: normalised, erased, mixed.
    pub fn image(&self, image: usize) -> Vec<f32> {
        let group = &self.batch.groups[0];
        let mut values = self.normalized(image);
        let (mix, partner) = self.mix(image);
        if mix != Mix::None && partner != image {
            mix.apply(&mut values, &self.normalized(partner), (group.height, group.width));
        }
        values
    }

    fn normalized(&self, image: usize) -> Vec<f32> {
        let group = &self.batch.groups[0];
        let (height, width, channels) = (group.height, group.width, group.channels);
        let bytes = group.view(image);
        let mut values = Vec::with_capacity(bytes.len());
        for c in 0..channels {
            // 256 divisions instead of one for every pixel.
            let level = |v: usize| (v as f32 / 255.0 - self.mean[c]) / self.deviation[c];
            let table: [f32; 256] = std::array::from_fn(level);
            values.extend(bytes.iter().skip(c).step_by(channels).map(|&v| table[usize::from(v)]));
        }
        let key = self.erased.sample(self.batch.keys[image]).view(self.repetition(image) as u32);
        self.erasing.apply(&mut values, (height, width), key);
        values
    }

    /// The distribution over classes that an image is to be given, from the label of each image of the source.
    pub fn target(&self, image: usize, label: impl Fn(u64) -> usize, smoothing: f64, target: &mut [f64]) {
        target.fill(0.0);
        let (mix, partner) = self.mix(image);
        let share = if partner == image { 1.0 } else { mix.share() };
        smoothed(target, label(self.batch.samples[image]), smoothing, share);
        smoothed(target, label(self.batch.samples[partner]), smoothing, 1.0 - share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::CropGroup;

    fn batch(images: usize) -> Batch {
        let pixels = (0..images * 4 * 4 * 3).map(|i| (i * 89 % 256) as u8).collect();
        let group = CropGroup { height: 4, width: 4, channels: 3, count: images, pixels, finish: vec![] };
        let samples: Vec<u64> = (0..images as u64).map(|i| i + 10).collect();
        Batch {
            epoch: 1,
            position: 2,
            keys: samples.clone(),
            samples,
            groups: vec![group],
            substituted: vec![],
            turned: 0,
        }
    }

    fn treatment() -> Treatment<'static> {
        let (mean, deviation) = crate::normalization(3);
        Treatment {
            seed: 3,
            step: 7,
            repeats: 1,
            mean,
            deviation,
            erasing: Erasing { probability: 0.0 },
            mixing: Mixing::default(),
            mixed_together: 4,
        }
    }

    #[test]
    fn an_image_meets_the_one_at_the_same_place_of_its_group_from_the_end() {
        let batch = batch(10);
        let mixed = TrainingBatch::new(
            &batch,
            &Treatment { mixing: Mixing { cutmix: 0.0, ..Mixing::default() }, ..treatment() },
        );
        let partners: Vec<usize> = (0..10).map(|image| mixed.mix(image).1).collect();
        // Groups 0 3 6 9, 1 4 7 and 2 5 8.
        assert_eq!(partners, [9, 7, 8, 6, 4, 5, 3, 1, 2, 0]);
        for (image, partner) in partners.into_iter().enumerate() {
            let Mix::Blend(share) = mixed.mix(image).0 else { panic!("mixup alone") };
            let (own, other) = (mixed.normalized(image), mixed.normalized(partner));
            let expected = own.iter().zip(&other).map(|(x, y)| x * share as f32 + y * (1.0 - share) as f32);
            let found = mixed.image(image);
            assert!(if image == partner { found == own } else { found.iter().copied().eq(expected) });
            let mut target = [0.0; 20];
            mixed.target(image, |sample| sample as usize, 0.0, &mut target);
            assert_eq!(target[image + 10], if image == partner { 1.0 } else { share });
        }
    }

    #[test]
    fn repetitions_of_an_image_are_erased_each_in_its_own_way() {
        let batch = Batch { keys: vec![5; 6], samples: vec![5; 6], position: 0, ..batch(6) };
        let erasing = Erasing { probability: 1.0 };
        let settings = Treatment { repeats: 3, erasing, ..treatment() };
        let made = TrainingBatch::new(&batch, &settings);
        let plain = TrainingBatch::new(&batch, &Treatment { erasing: Erasing { probability: 0.0 }, ..settings });
        // Where each image differs from its own bytes.
        let erased = |i: usize| -> Vec<bool> {
            made.normalized(i).iter().zip(plain.normalized(i)).map(|(a, b)| *a != b).collect()
        };
        assert_eq!((0..6).map(|i| made.repetition(i)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        assert_eq!(erased(0), erased(3));
        assert!(erased(0) != erased(1) || erased(1) != erased(2));
    }
}
