//! A map of features: each image a place on a plane, near images near each other (t-SNE).
//!
//! Exact t-SNE of van der Maaten and Hinton (2008) on unit vectors, so that nearness is that of the cosine: affinities of a
//! given perplexity (`affinities`), then a descent with momentum and gains from the first two principal components
//! (`descent`, `start`). It weighs every pair of images and is meant for some thousands.

mod affinities;
mod descent;
#[cfg(test)]
mod golden;
mod start;

use std::ops::ControlFlow;

use tensor::Device;
use tensor::ops::{self, Affine};

use crate::error::EvalError;
use crate::features::Features;
use affinities::Affinities;

/// The most images: their pairs take four bytes each, twice.
pub const MOST: usize = 8192;
/// The fewest that have a shape.
pub const FEWEST: usize = 4;
/// Lower bound of the length that a feature is divided by.
const NORMALIZE_EPSILON: f64 = 1e-12;
/// Rows whose cosines are computed at once.
const ROWS: usize = 512;

/// How a map is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MapOptions {
    /// How many neighbours an image has, about.
    pub perplexity: f64,
    /// Steps of the descent.
    pub steps: usize,
}

impl Default for MapOptions {
    /// A perplexity of 30, and 1000 steps.
    fn default() -> Self {
        Self { perplexity: 30.0, steps: 1000 }
    }
}

/// Places of images on a plane.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureMap {
    /// One for each feature.
    pub places: Vec<[f32; 2]>,
    /// The Kullback-Leibler divergence that the descent has made small: how much of the neighbourhoods is lost.
    pub divergence: f64,
}

/// Makes a map on the threads of `host`; the same for any number of them. A perplexity that is too large for so few images
/// is lowered to a third of them. `progress` is told how many steps are done of all, and may stop.
///
/// ```
/// use std::ops::ControlFlow;
/// let values: Vec<f32> = (0..60).map(|i| if (i / 3) % 2 == i % 3 { 5.0 } else { (i as f32).sin() }).collect();
/// let features = eval::Features::labelled(3, values, &[0; 20]);
/// let host = tensor::Device::cpu(Default::default())?;
/// let map = eval::map::map(&features, &Default::default(), &host, &mut |_, _| ControlFlow::Continue(()))?;
/// assert_eq!(map.places.len(), 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When `host` is a GPU.
pub fn map(
    features: &Features,
    options: &MapOptions,
    host: &Device,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<FeatureMap, EvalError> {
    assert!(!host.is_gpu(), "a map is made on the host");
    let images = features.len();
    if !(FEWEST..=MOST).contains(&images) {
        let expected = format!("{FEWEST} to {MOST} images");
        return Err(EvalError::Setting { setting: "images of a map", value: images.to_string(), expected });
    }
    if !(options.perplexity.is_finite() && options.perplexity >= 1.0) {
        let (value, expected) = (options.perplexity.to_string(), "1 or more".to_owned());
        return Err(EvalError::Setting { setting: "perplexity", value, expected });
    }
    let units = ops::l2_normalize(&host.from_f32(&[images, features.dim], &features.values), NORMALIZE_EPSILON).0;
    let mut distances = Vec::with_capacity(images * images);
    let (units_f32, no_bias) = (units.to_f32(), host.zeros(&[images]));
    for rows in units_f32.chunks(ROWS * features.dim) {
        let rows = host.from_f32(&[rows.len() / features.dim, features.dim], rows);
        let cosines = ops::linear(&rows, &Affine::new(&units, &no_bias)).to_f32();
        host.finish()?;
        // |a - b|^2 of unit vectors.
        distances.extend(cosines.iter().map(|cosine| (2.0 - 2.0 * cosine).max(0.0)));
    }
    let perplexity = options.perplexity.min((images - 1) as f64 / 3.0).max(1.0);
    let affinities = host.run(|| Affinities::of_distances(distances, images, perplexity));
    let start = start::principal_places(&units_f32, features.dim);
    descent::descend(&affinities, start, options.steps, host, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use tensor::CpuOptions;

    fn host(threads: usize) -> Device {
        Device::cpu(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap()
    }

    fn go_on(_: usize, _: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Three clouds that hardly overlap.
    fn clouds(rows: usize) -> Features {
        let mut numbers = Key::new(3, Purpose::Bench).stream();
        let labels: Vec<u32> = (0..rows as u32).map(|row| row % 3).collect();
        let value = |at: usize| f64::from(labels[at / 8] == (at % 8) as u32) * 4.0 + numbers.normal();
        Features::labelled(8, (0..rows * 8).map(value).map(|x| x as f32).collect(), &labels)
    }

    #[test]
    fn images_of_one_kind_lie_together_and_threads_change_nothing() {
        let features = clouds(150);
        let options = MapOptions { perplexity: 15.0, steps: 400 };
        let map = super::map(&features, &options, &host(2), &mut go_on).unwrap();
        assert_eq!(map, super::map(&features, &options, &host(1), &mut go_on).unwrap());
        let nearest = |i: usize| {
            let apart = |j: usize| {
                let (a, b) = (map.places[i], map.places[j]);
                (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2)
            };
            (0..150).filter(|&j| j != i).min_by(|&a, &b| apart(a).total_cmp(&apart(b))).unwrap()
        };
        let alike = (0..150).filter(|&i| features.labels[i] == features.labels[nearest(i)]).count();
        assert!(alike > 140, "{alike} of 150");
    }

    #[test]
    fn images_that_are_all_the_same_have_finite_places() {
        let features = Features::labelled(3, [1.0, 2.0, 3.0].repeat(9), &[0; 9]);
        let map = super::map(&features, &MapOptions::default(), &host(1), &mut go_on).unwrap();
        assert!(map.places.iter().flatten().all(|x| x.is_finite()) && map.divergence.is_finite());
    }

    #[test]
    fn too_few_images_and_a_wish_to_stop_are_errors() {
        let few = super::map(&clouds(3), &MapOptions::default(), &host(1), &mut go_on).unwrap_err();
        assert!(matches!(few, EvalError::Setting { setting: "images of a map", .. }));
        let wrong = MapOptions { perplexity: f64::NAN, ..Default::default() };
        let wrong = super::map(&clouds(9), &wrong, &host(1), &mut go_on).unwrap_err();
        assert!(matches!(wrong, EvalError::Setting { setting: "perplexity", .. }));
        let stop = &mut |_, _| ControlFlow::Break(());
        let stopped = super::map(&clouds(9), &MapOptions::default(), &host(1), stop);
        assert!(matches!(stopped, Err(EvalError::Stopped)));
    }
}
