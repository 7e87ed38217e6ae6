//! Features of an image source, all at once or a batch at a time.

use std::ops::ControlFlow;

use data::{BadSample, Source};
use tensor::ops::{PixelData, Pixels};

use crate::error::EvalError;
use crate::labelled::first_not_finite;
use crate::network::Network;
use crate::normalization::Normalization;
use crate::prepare::Preparation;
use crate::reading::{Pass, PreparedBatch, ReadOptions, ReadProgress, for_each_batch};
use crate::spread::spread;

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

    /// These rows of them, in this order.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self {
            dim: self.dim,
            values: rows.iter().flat_map(|&row| self.row(row)).copied().collect(),
            indices: rows.iter().map(|&row| self.indices[row]).collect(),
            labels: rows.iter().map(|&row| self.labels[row]).collect(),
        }
    }

    /// Adds those of a batch, which are of the same width.
    pub fn push(&mut self, batch: FeatureBatch<'_>) {
        self.indices.extend_from_slice(batch.indices);
        self.labels.extend_from_slice(batch.labels);
        self.values.extend_from_slice(batch.values);
    }

    /// The same images, and no values.
    fn clone_without_values(&self) -> Self {
        Self { dim: self.dim, values: Vec::new(), indices: self.indices.clone(), labels: self.labels.clone() }
    }

    /// All of them as one batch.
    pub(crate) fn as_batch(&self) -> FeatureBatch<'_> {
        FeatureBatch { indices: &self.indices, labels: &self.labels, values: &self.values }
    }
}

/// Features as they are computed: some images in the order of the source.
#[derive(Clone, Copy, Debug)]
pub struct FeatureBatch<'a> {
    /// The numbers of the images in their source.
    pub indices: &'a [usize],
    /// The class of each, where it is known.
    pub labels: &'a [Option<u32>],
    /// Their features, one after another.
    pub values: &'a [f32],
}

impl FeatureBatch<'_> {
    /// An error for a feature with a NaN or an infinity.
    fn check_finite(&self, source: &dyn Source) -> Result<(), EvalError> {
        let values = self.values.len() / self.indices.len().max(1);
        let broken = first_not_finite(self.values);
        match broken.and_then(|at| self.indices.get(at / values.max(1))) {
            Some(&index) => Err(EvalError::NotFinite { name: source.name(index) }),
            None => Ok(()),
        }
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

/// Features of all images of a source, computed in the precision of the network's device and returned as f32. Threads
/// read and prepare the next images while the device computes; with several devices each computes on a batch of its own.
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
    let dim = network.pooling.shape(network.vit.config(), preparation.size()).iter().product();
    let mut features = Features { dim, ..Default::default() };
    let consume = &mut |batch: FeatureBatch<'_>| {
        features.push(batch);
        Ok(())
    };
    let Pass { skipped, turned } = extract_each(network, source, preparation, options, progress, consume)?;
    Ok(Extraction { features, skipped, turned })
}

/// The same, handed on as they are computed: no more than a batch of them is in memory.
///
/// ```
/// use std::ops::ControlFlow;
/// use eval::{FeatureBatch, FeatureTokens, Network, Pooling};
/// # use model::{Arch, Layout, Vit, VitConfig};
/// # let device = tensor::Device::cpu(Default::default())?;
/// # let mut layout = Layout::default();
/// # let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, 8, (32, 32), 3)?);
/// # let weights = layout.initial(&device, 0);
/// # let source = data::open("synthetic:train=8", data::Split::Train, 0)?;
/// # let prepare = eval::Preparation::Cover(vit.config().image);
/// // All patch tokens, [16, 64] of each image.
/// let network = Network { pooling: Pooling::of(FeatureTokens::Patches), ..Network::new(&vit, &weights, &device) };
/// let (mut values, go_on) = (0, &mut |_| ControlFlow::Continue(()));
/// eval::extract_each(network, &*source, &prepare, &Default::default(), go_on, &mut |batch: FeatureBatch<'_>| {
///     values += batch.values.len();
///     Ok(())
/// })?;
/// assert_eq!(values, 8 * 16 * 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn extract_each(
    network: Network<'_>,
    source: &dyn Source,
    preparation: &Preparation,
    options: &ReadOptions,
    progress: &mut dyn FnMut(ReadProgress) -> ControlFlow<()>,
    consume: &mut dyn FnMut(FeatureBatch<'_>) -> Result<(), EvalError>,
) -> Result<Pass, EvalError> {
    let (config, pooling) = (network.vit.config(), network.pooling);
    pooling.check(config)?;
    let channels = config.channels;
    let options = &ReadOptions { channels, ..*options };
    options.check()?;
    let Normalization { mean, deviation } = network.normalization_or_usual();
    let (height, width) = preparation.size();
    let compute = |number, batch: &PreparedBatch| {
        let Network { vit, weights, device, .. } = network.on(number);
        let count = batch.indices.len();
        let data = PixelData::Bytes { pixels: &batch.pixels, mean: &mean, deviation: &deviation };
        let images = Pixels { count, height, width, channels, data };
        let read = vit.read(weights, device, &[images], &pooling.readout())?;
        let read: Vec<Vec<f32>> = read.into_iter().map(|tokens| tokens.to_f32()).collect();
        device.finish()?;
        Ok(device.run(|| pooling.pool(read, count, config.dim, config.leading_tokens())))
    };
    let take = |batch: PreparedBatch, values: Vec<f32>| {
        let labels = labels(source, &batch.indices);
        let batch = FeatureBatch { indices: &batch.indices, labels: &labels, values: &values };
        batch.check_finite(source)?;
        consume(batch)
    };
    spread(network.devices(), compute, take, |hand| for_each_batch(source, preparation, options, progress, hand))
}

/// Class tokens that were taken before the network's last norm, after it: to the bit what another pass over the images
/// would give.
///
/// # Panics
/// When they are not one token wide.
pub fn after_norm(network: Network<'_>, before: &Features) -> Result<Features, EvalError> {
    const ROWS: usize = 4096;
    let (dim, device) = (before.dim, network.device);
    assert_eq!(dim, network.vit.config().dim, "the class token of one block");
    let mut after = Features { values: Vec::with_capacity(before.values.len()), ..before.clone_without_values() };
    for rows in before.values.chunks(ROWS * dim) {
        // They are rows of the residual stream, which on a GPU may be of another type than activations.
        let tokens = device.residual_from_f32(&[rows.len() / dim, dim], rows);
        after.values.extend(network.vit.final_norm(network.weights, &tokens).to_f32());
        device.finish()?;
    }
    Ok(after)
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
        let labels = labels(source, &batch.indices);
        features.push(FeatureBatch { indices: &batch.indices, labels: &labels, values: &values });
        Ok(())
    })?;
    Ok(Extraction { features, skipped, turned })
}

fn labels(source: &dyn Source, indices: &[usize]) -> Vec<Option<u32>> {
    indices.iter().map(|&index| source.label(index)).collect()
}
