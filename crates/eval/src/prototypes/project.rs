//! From features to the sphere of a head, on which its prototypes are compared with them.

use model::weights::LoadedHead;
use random::{Key, Purpose};
use tensor::{Device, Tensor};

use super::statistics::HeadStatistics;
use crate::error::EvalError;
use crate::features::Features;

/// Features that go through a head at once.
pub(super) const ROWS: usize = 4096;

/// The unit vectors y of features (class tokens after the norm), in their order. Runs where the head is.
///
/// A head with batch norm takes the statistics of the images that are computed together: a few thousand, in an order that
/// does not go by class.
pub fn project(head: &LoadedHead, features: &Features, device: &Device) -> Result<Features, EvalError> {
    let p = head.config.bottleneck;
    let mut values = vec![0.0; features.len() * p];
    each_part(head, features, device, None, ROWS, |rows, y| {
        for (&row, y) in rows.iter().zip(y.chunks_exact(p)) {
            values[row * p..(row + 1) * p].iter_mut().zip(y).for_each(|(value, y)| *value = *y as f32);
        }
        Ok(())
    })?;
    Ok(Features { dim: p, values, indices: features.indices.clone(), labels: features.labels.clone() })
}

/// The same a part at a time: the rows of some images, and their unit vectors one after another. Of a head without batch norm,
/// or with the statistics of other images, images have nothing to do with each other: they come in their order. No part has
/// more than `at_once`, however many go through the head together.
pub(crate) fn each_part(
    head: &LoadedHead,
    features: &Features,
    device: &Device,
    statistics: Option<&HeadStatistics>,
    at_once: usize,
    mut part: impl FnMut(&[usize], &[f64]) -> Result<(), EvalError>,
) -> Result<(), EvalError> {
    check_width(head, features)?;
    let is_batch = head.config.batch_norm && statistics.is_none();
    let together = if is_batch { ROWS } else { at_once };
    let order = if is_batch { shuffled(features.len()) } else { (0..features.len()).collect() };
    for rows in order.chunks(equal_part(features.len(), together)) {
        let x = rows_of(features, rows, device);
        let y = match statistics {
            None => head.projector.infer(&head.weights, &x),
            Some(statistics) => statistics.infer(head, &x),
        };
        let y = y.to_f64();
        device.finish()?;
        let is_finite = |y: &[f64]| y.iter().all(|x| x.is_finite());
        if let Some(row) = y.chunks_exact(head.config.bottleneck).position(|y| !is_finite(y)) {
            return Err(EvalError::NotFinite { name: format!("image {}", features.indices[rows[row]]) });
        }
        for (rows, y) in rows.chunks(at_once).zip(y.chunks(at_once * head.config.bottleneck)) {
            part(rows, y)?;
        }
    }
    Ok(())
}

/// An error where features are not as wide as the head takes them.
pub(super) fn check_width(head: &LoadedHead, features: &Features) -> Result<(), EvalError> {
    let (train, test) = (head.config.inputs, features.dim);
    if train == test { Ok(()) } else { Err(EvalError::Width { train, test }) }
}

/// An order of images that does not go by class.
pub(super) fn shuffled(images: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..images).collect();
    Key::new(0, Purpose::Subset).sample(images as u64).view(2).stream().shuffle(&mut order);
    order
}

/// Features of some images, on the device.
pub(super) fn rows_of(features: &Features, rows: &[usize], device: &Device) -> Tensor {
    let x: Vec<f32> = rows.iter().flat_map(|&row| features.row(row)).copied().collect();
    device.from_f32(&[rows.len(), features.dim], &x)
}

/// Images of a part, where no more than `at_once` are and the parts are equally large: the last would otherwise have the
/// statistics of a few.
fn equal_part(images: usize, at_once: usize) -> usize {
    images.div_ceil(images.div_ceil(at_once).max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_about_equally_large() {
        assert_eq!([0, 1, 1024, 1025, 10_000].map(|images| equal_part(images, 1024)), [1, 1, 1024, 513, 1000]);
    }
}
