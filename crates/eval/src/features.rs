//! Class-token features of an image source.

use std::ops::ControlFlow;

use data::{BadSample, Source};
use model::Vit;
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, ParamSet};

use crate::error::EvalError;
use crate::normalization::Normalization;
use crate::prepare::Preparation;
use crate::reading::{Pass, ReadOptions, ReadProgress, for_each_batch};

/// Feature vectors of images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Values of one vector.
    pub dim: usize,
    /// All vectors, one after another.
    pub values: Vec<f32>,
    /// The number of each vector's image in its source.
    pub indices: Vec<usize>,
    /// The class of each image, where it is known.
    pub labels: Vec<Option<u32>>,
}

impl Features {
    /// Labelled vectors that come from no source; their images are numbered from zero.
    ///
    /// # Panics
    /// When there are not `dim` values for each label.
    pub fn labelled(dim: usize, values: Vec<f32>, labels: &[u32]) -> Self {
        assert_eq!(values.len(), labels.len() * dim, "{dim} values for each label");
        Self { dim, values, indices: (0..labels.len()).collect(), labels: labels.iter().map(|&l| Some(l)).collect() }
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// True without any vector.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The vector at this position.
    ///
    /// # Panics
    /// When `row` is not below [`Features::len`].
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dim..(row + 1) * self.dim]
    }

    fn push(&mut self, source: &dyn Source, indices: &[usize], values: &[f32]) -> Result<(), EvalError> {
        for (row, &index) in values.chunks_exact(self.dim).zip(indices) {
            if !row.iter().all(|x| x.is_finite()) {
                return Err(EvalError::NotFinite { name: source.name(index) });
            }
            self.indices.push(index);
            self.labels.push(source.label(index));
        }
        self.values.extend_from_slice(values);
        Ok(())
    }
}

/// The outcome of a pass over a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Extraction {
    /// The features, in the order of the source.
    pub features: Features,
    /// Images that could not be used, in the same order.
    pub skipped: Vec<BadSample>,
    /// Images that were turned upright.
    pub turned: usize,
}

/// A backbone with its weights on a device.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The architecture.
    pub vit: &'a Vit,
    /// Its parameters.
    pub weights: &'a ParamSet,
    /// Where it computes, and in which precision.
    pub device: &'a Device,
    /// How its pixels are normalised; none for the usual values of its number of channels.
    pub normalization: Option<&'a Normalization>,
}

impl<'a> Network<'a> {
    /// A network that sees pixels as those of this program do.
    pub fn new(vit: &'a Vit, weights: &'a ParamSet, device: &'a Device) -> Self {
        Self { vit, weights, device, normalization: None }
    }
}

/// Class-token features of all images of a source, computed in the precision of the network's device and returned as f32.
/// Threads read and prepare the next images while the device computes.
///
/// An image that cannot be used is skipped and reported. `progress` is called after each batch and may end the pass.
///
/// ```
/// use std::ops::ControlFlow;
/// use model::{Arch, Layout, Vit, VitConfig};
/// let device = tensor::Device::cpu(Default::default())?;
/// let mut layout = Layout::default();
/// let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3)?);
/// let weights = layout.initial(&device, 0);
/// let network = eval::Network::new(&vit, &weights, &device);
/// let source = data::open("synthetic:train=8", data::Split::Train, 0)?;
/// let prepare = eval::Preparation::Cover(vit.config().image);
/// let extraction = eval::extract(network, &*source, &prepare, &Default::default(), &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!((extraction.features.len(), extraction.features.dim), (8, 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn extract(
    network: Network<'_>,
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
) -> Result<Extraction, EvalError> {
    let Network { vit, weights, device, normalization } = network;
    let channels = vit.config().channels;
    let options = &ReadOptions { channels, ..*options };
    options.check()?;
    let Normalization { mean, deviation } = normalization.cloned().unwrap_or_else(|| Normalization::usual(channels));
    let mut features = Features { dim: vit.config().dim, ..Default::default() };
    let (height, width) = preparation.size();
    let Pass { skipped, turned } = for_each_batch(source, preparation, options, progress, |batch| {
        let data = PixelData::Bytes { pixels: &batch.pixels, mean: &mean, deviation: &deviation };
        let images = Pixels { count: batch.indices.len(), height, width, channels, data };
        let output = vit.features(weights, device, &[images])?;
        let values = output.to_f32();
        device.finish()?;
        features.push(source, &batch.indices, &values)
    })?;
    Ok(Extraction { features, skipped, turned })
}

/// The normalised pixels of all images of a source as features: the baseline that a network has to beat.
pub fn raw_pixels(
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
) -> Result<Extraction, EvalError> {
    let (height, width) = preparation.size();
    let mut features = Features { dim: height * width * options.channels, ..Default::default() };
    options.check()?;
    let Normalization { mean, deviation } = Normalization::usual(options.channels);
    let normalized = |channel: usize, level: u8| (f32::from(level) / 255.0 - mean[channel]) / deviation[channel];
    let Pass { skipped, turned } = for_each_batch(source, preparation, options, progress, |batch| {
        let levels = batch.pixels.iter().enumerate();
        let values: Vec<f32> = levels.map(|(i, &level)| normalized(i % options.channels, level)).collect();
        features.push(source, &batch.indices, &values)
    })?;
    Ok(Extraction { features, skipped, turned })
}
