//! The statistics of batch norm in a head, of images that others are compared with.
//!
//! Batch norm takes the means and variances of the images that go through a head together. If two sets that are told apart had
//! their own each, just what tells them apart would be taken away.

use model::weights::LoadedHead;
use model::{PeerError, Peers};
use tensor::{Device, Tensor};

use super::project::{ROWS, check_width, rows_of, shuffled};
use crate::error::EvalError;
use crate::features::Features;

/// What the batch norms of a head have seen of some images: rows, means and variances, layer by layer.
#[derive(Debug)]
pub(crate) struct HeadStatistics {
    layers: Vec<Vec<f64>>,
}

impl HeadStatistics {
    /// Of these images, a few thousand of them where there are more; none of a head without batch norm.
    pub(crate) fn of(head: &LoadedHead, features: &Features, device: &Device) -> Result<Option<Self>, EvalError> {
        if !head.config.batch_norm {
            return Ok(None);
        }
        check_width(head, features)?;
        if features.is_empty() {
            return Err(EvalError::Empty { which: "training" });
        }
        let order = shuffled(features.len());
        let rows = rows_of(features, &order[..order.len().min(ROWS)], device);
        let mut layers = Layers { known: None, used: Vec::new() };
        layers.infer(head, &rows);
        device.finish()?;
        Ok(Some(Self { layers: layers.used }))
    }

    /// Images through the head whose statistics these are: what becomes of one has nothing to do with the others.
    pub(super) fn infer(&self, head: &LoadedHead, rows: &Tensor) -> Tensor {
        Layers { known: Some(self.layers.iter()), used: Vec::new() }.infer(head, rows)
    }
}

/// Stands between the batch norms of a head and the statistics of its rows, as the processes do that share a batch.
struct Layers<'a> {
    /// Statistics to use in place of those of the rows.
    known: Option<std::slice::Iter<'a, Vec<f64>>>,
    used: Vec<Vec<f64>>,
}

impl Layers<'_> {
    fn infer(&mut self, head: &LoadedHead, rows: &Tensor) -> Tensor {
        head.projector.infer_with(&head.weights, rows, self).expect("every layer has its statistics")
    }
}

impl Peers for Layers<'_> {
    fn rank(&self) -> usize {
        0
    }

    /// More than one, for who is alone asks nobody.
    fn ranks(&self) -> usize {
        2
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        let layer = match &mut self.known {
            None => here.to_vec(),
            Some(known) => known.next().cloned().ok_or(PeerError::Elsewhere)?,
        };
        self.used.push(layer.clone());
        Ok(vec![layer])
    }
}
