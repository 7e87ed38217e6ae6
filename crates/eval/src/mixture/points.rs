//! Features as the points of a fit: both products of a pass are matrix products in f64, over blocks of rows.

use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{CpuOptions, Device, Precision, Tensor};
use vmf::{Assigned, Points, Sums};

use crate::error::EvalError;
use crate::features::Features;

/// Numbers of a block, cosines or coordinates, at most: 32 MiB.
const BLOCK_VALUES: usize = 1 << 22;
/// Rows of a block, at most.
const BLOCK_ROWS: usize = 4096;
/// Far below the length of a feature: those without a length are refused before.
const NORMALIZE_EPSILON: f64 = 1e-300;

/// The directions of features. They are converted block by block in every pass, which costs little beside the products and
/// saves a copy of twice their size.
pub(super) struct FeaturePoints<'a> {
    features: &'a Features,
    device: Device,
}

impl<'a> FeaturePoints<'a> {
    pub(super) fn new(features: &'a Features, which: &'static str, host: &Device) -> Result<Self, EvalError> {
        assert!(!host.is_gpu(), "mixtures are fitted on the host");
        let (rows, dim) = (features.len(), features.dim);
        assert_eq!(features.values.len(), rows * dim, "rows of the {which} features");
        if rows == 0 || dim == 0 {
            return Err(EvalError::Empty { which });
        }
        for (row, values) in features.values.chunks_exact(dim).enumerate() {
            let name = || format!("{which} image {}", features.indices[row]);
            if !values.iter().all(|x| x.is_finite()) {
                return Err(EvalError::NotFinite { name: name() });
            }
            if values.iter().all(|x| *x == 0.0) {
                return Err(EvalError::NoDirection { name: name() });
            }
        }
        let options = CpuOptions { threads: Some(host.threads()), precision: Precision::F64 };
        Ok(Self { features, device: Device::cpu(options)? })
    }

    /// Hands every block and what `assign` made of its cosines to `then`.
    fn each_block(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
        mut then: impl FnMut(&Tensor, &[f64]),
    ) -> Result<Vec<Assigned>, EvalError> {
        let (device, dim) = (&self.device, self.features.dim);
        let components = means.len() / dim;
        let (means, no_bias) = (device.from_f64(&[components, dim], means), device.zeros(&[components]));
        // By shape alone, as every bit of the sums is then.
        let rows = (BLOCK_VALUES / components.max(dim)).clamp(16, BLOCK_ROWS);
        let mut assigned = Vec::with_capacity(self.features.len());
        for values in self.features.values.chunks(rows * dim) {
            let block = device.from_f32(&[values.len() / dim, dim], values);
            let (block, _) = ops::l2_normalize(&block, NORMALIZE_EPSILON);
            let mut cosines = ops::linear(&block, &Affine::new(&means, &no_bias)).to_f64();
            device.run(|| assigned.par_extend(cosines.par_chunks_mut(components).map(assign)));
            then(&block, &cosines);
        }
        Ok(assigned)
    }
}

impl Points for FeaturePoints<'_> {
    type Error = EvalError;

    fn dimension(&self) -> usize {
        self.features.dim
    }

    fn count(&self) -> usize {
        self.features.len()
    }

    fn copy_point(&self, row: usize, out: &mut [f64]) {
        let values = self.features.row(row);
        let length = values.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        out.iter_mut().zip(values).for_each(|(o, &x)| *o = f64::from(x) / length);
    }

    fn score(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
    ) -> Result<Vec<Assigned>, EvalError> {
        self.each_block(means, assign, |_, _| ())
    }

    fn pass(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
    ) -> Result<(Vec<Assigned>, Sums), EvalError> {
        let (device, dim) = (&self.device, self.features.dim);
        let components = means.len() / dim;
        let (mut resultants, mut members) = (device.zeros(&[components, dim]), device.zeros(&[components]));
        let assigned = self.each_block(means, assign, |block, responsibilities| {
            let responsibilities = device.from_f64(&[block.rows(), components], responsibilities);
            // r^T y and the column sums of r: what the gradient of a linear layer is, too.
            ops::linear_backward_weight(block, &responsibilities, 0..components, &mut resultants, &mut members);
        })?;
        Ok((assigned, Sums { members: members.to_f64(), resultants: resultants.to_f64() }))
    }
}
