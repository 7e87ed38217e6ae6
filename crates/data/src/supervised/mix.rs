//! Mixup and cutmix in timm's mode `batch`: one draw for a group of images, each of which meets the one at the same place
//! from the end. With λ the image's own share, mixup is x = λ x_1 + (1 - λ) x_2; cutmix takes a rectangle from x_2, and λ is
//! the share that is left. Targets are λ y_1 + (1 - λ) y_2 of smoothed labels.

use crate::augment::Rect;
use random::Key;

/// How images are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// Parameter of mixup's beta distribution; 0 for no mixup.
    pub mixup: f64,
    /// The same of cutmix.
    pub cutmix: f64,
    /// Probability that a group is mixed at all.
    pub probability: f64,
    /// Probability of cutmix where both are there.
    pub switch: f64,
}

impl Default for Mixing {
    fn default() -> Self {
        Self { mixup: 0.8, cutmix: 1.0, probability: 1.0, switch: 0.5 }
    }
}

/// What happens to the images of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Nothing.
    None,
    /// Mixup, with this share of the image itself.
    Blend(f64),
    /// Cutmix of this rectangle, which may be empty, with the share of the image that is left.
    Cut(Rect, f64),
}

impl Mixing {
    /// Draws for a group of images of this (height, width).
    pub fn draw(&self, (height, width): (usize, usize), key: Key) -> Mix {
        let mut stream = key.stream();
        let (mixed, switched) = (stream.chance(self.probability), stream.chance(self.switch));
        let cut = if self.mixup > 0.0 && self.cutmix > 0.0 { switched } else { self.cutmix > 0.0 };
        let parameter = if cut { self.cutmix } else { self.mixup };
        if !mixed || parameter <= 0.0 {
            return Mix::None;
        }
        let share = stream.symmetric_beta(parameter);
        if !cut {
            return Mix::Blend(share);
        }
        let center = (stream.below(height as u64) as usize, stream.below(width as u64) as usize);
        Mix::cut(share, center, (height, width))
    }
}

impl Mix {
    /// Cutmix of a rectangle of about 1 - `share` of an image around a place in it, as far as it lies inside. Half of each side
    /// lies on either side of the centre, rounded down, so that an odd side loses a pixel (timm 0.4.12; 1.0 does not).
    pub fn cut(share: f64, center: (usize, usize), (height, width): (usize, usize)) -> Self {
        let ratio = (1.0 - share).sqrt();
        let span = |center: usize, side: usize| {
            let half = (side as f64 * ratio) as usize / 2;
            let (from, to) = (center.saturating_sub(half), (center + half).min(side));
            (from, to - from)
        };
        let ((top, rows), (left, columns)) = (span(center.0, height), span(center.1, width));
        let left_over = 1.0 - (rows * columns) as f64 / (height * width) as f64;
        Mix::Cut(Rect { top, left, height: rows, width: columns }, left_over)
    }

    /// The share of the image itself in what comes out.
    pub fn share(&self) -> f64 {
        match *self {
            Mix::None => 1.0,
            Mix::Blend(share) | Mix::Cut(_, share) => share,
        }
    }

    /// Mixes an image, channel by channel, with its partner.
    pub fn apply(&self, image: &mut [f32], partner: &[f32], (height, width): (usize, usize)) {
        match *self {
            Mix::None => {}
            Mix::Blend(share) => {
                let (own, other) = (share as f32, (1.0 - share) as f32);
                image.iter_mut().zip(partner).for_each(|(x, y)| *x = *x * own + *y * other);
            }
            Mix::Cut(Rect { top, left, height: rows, width: columns }, _) => {
                let channels = image.chunks_exact_mut(height * width).zip(partner.chunks_exact(height * width));
                for (image, partner) in channels {
                    for y in top..top + rows {
                        let part = y * width + left..y * width + left + columns;
                        image[part.clone()].copy_from_slice(&partner[part]);
                    }
                }
            }
        }
    }
}

/// The distribution of a label among `classes` with so much of it spread over all of them, added `times` to `target`.
pub fn smoothed(target: &mut [f64], label: usize, smoothing: f64, times: f64) {
    let off = smoothing / target.len() as f64;
    for (class, value) in target.iter_mut().enumerate() {
        *value += times * if class == label { 1.0 - smoothing + off } else { off };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::Purpose;

    fn drawn(mixing: Mixing) -> impl Iterator<Item = Mix> {
        (0..4000).map(move |group| mixing.draw((20, 30), Key::new(2, Purpose::Mix).sample(group)))
    }

    #[test]
    fn half_of_the_groups_are_cut_and_the_share_is_what_is_left() {
        let cuts: Vec<(Rect, f64)> = drawn(Mixing::default())
            .filter_map(|mix| match mix {
                Mix::Cut(rect, share) => Some((rect, share)),
                Mix::Blend(share) => {
                    assert!((0.0..=1.0).contains(&share));
                    None
                }
                Mix::None => panic!("every group is mixed"),
            })
            .collect();
        assert!((1850..2150).contains(&cuts.len()), "{}", cuts.len());
        for (rect, share) in cuts {
            assert!(rect.top + rect.height <= 20 && rect.left + rect.width <= 30);
            assert!((share - (1.0 - (rect.height * rect.width) as f64 / 600.0)).abs() < 1e-15);
        }
    }

    #[test]
    fn one_kind_alone_is_always_taken_and_none_leaves_the_images() {
        assert!(drawn(Mixing { mixup: 0.0, ..Default::default() }).all(|mix| matches!(mix, Mix::Cut(..))));
        assert!(drawn(Mixing { cutmix: 0.0, ..Default::default() }).all(|mix| matches!(mix, Mix::Blend(_))));
        assert!(drawn(Mixing { mixup: 0.0, cutmix: 0.0, ..Default::default() }).all(|mix| mix == Mix::None));
        let some = drawn(Mixing { probability: 0.3, ..Default::default() }).filter(|&mix| mix != Mix::None).count();
        assert!((1100..1300).contains(&some), "{some}");
    }

    #[test]
    fn smoothing_keeps_a_distribution() {
        let mut target = [0.0; 4];
        smoothed(&mut target, 2, 0.1, 0.7);
        smoothed(&mut target, 0, 0.1, 0.3);
        assert!((target.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert!((target[2] - (0.7 * 0.925 + 0.3 * 0.025)).abs() < 1e-15 && (target[1] - 0.025).abs() < 1e-15);
    }
}
