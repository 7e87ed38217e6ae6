//! A probe on stored features: the same in every epoch.

use random::{Key, Purpose};

use super::{Heads, LinearOptions, LinearProgress, LinearResult, Watch, epoch, result, tell};
use crate::error::EvalError;
use crate::features::Features;
use crate::labelled::Labelled;
use crate::neighbors::Place;

/// Trains classifiers on training features and judges them after every epoch on test features, on the host (`&host`) or on a
/// GPU ([`Place::new`]). `watch` is told of every batch and may end it.
///
/// ```
/// use std::ops::ControlFlow;
/// use eval::{Features, LinearOptions, linear};
/// let host = tensor::Device::cpu(Default::default())?;
/// let train = Features::labelled(2, vec![1.0, 0.2, 0.9, 0.0, 0.1, 1.0, 0.0, 0.8], &[0, 0, 1, 1]);
/// let test = Features::labelled(2, vec![2.0, 0.3, 0.1, 0.7], &[0, 1]);
/// let options = LinearOptions { rates: vec![1.0, 100.0], epochs: 20, batch_size: 2, ..Default::default() };
/// let result = linear::probe(&train, &test, &options, &host, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(result.best.top1, 100.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When the values, indices and labels of a set of features are not equally many rows.
pub fn probe<'a>(
    train: &Features,
    test: &Features,
    options: &LinearOptions,
    place: impl Into<Place<'a>>,
    watch: Watch<'_>,
) -> Result<LinearResult, EvalError> {
    options.check()?;
    let (train, test) = Labelled::both(train, test)?;
    let (width, classes) = (train.features().dim, train.classes());
    let mut heads = Heads::new(place.into(), (width, classes, options.rates.len()), options.momentum, options.seed)?;
    let mut epochs = Vec::with_capacity(options.epochs);
    for number in 0..options.epochs {
        let (rates, mut losses) = (options.rates_in(number), vec![0.0; options.rates.len()]);
        let mut done = 0;
        for rows in order(options.seed, number, train.len()).chunks(options.batch_size) {
            let features: Vec<f32> = rows.iter().flat_map(|&row| train.features().row(row)).copied().collect();
            let labels: Vec<u32> = rows.iter().map(|&row| train.label(row)).collect();
            let sums = heads.step(&features, &labels, &rates)?;
            losses.iter_mut().zip(sums).for_each(|(loss, sum)| *loss += sum);
            done += rows.len();
            let (epoch, epochs_asked, total) = (number + 1, options.epochs, train.len());
            let last = epochs.last();
            tell(watch, LinearProgress { epoch, epochs: epochs_asked, images: done, total, last })?;
        }
        let right = heads.judge(&test.features().values, test.labels())?;
        epochs.push(epoch(number + 1, &losses, done, &right, test.len()));
    }
    result(epochs, options)
}

/// The order of the training images in an epoch, from 0.
pub(super) fn order(seed: u64, epoch: usize, images: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..images).collect();
    Key::new(seed, Purpose::Shuffle).epoch(epoch as u64).stream().shuffle(&mut order);
    order
}
