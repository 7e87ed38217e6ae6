//! The points that a mixture is fitted to, and the two products over all of them.

use crate::Error;
use crate::distribution::unit;

/// What became of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assigned {
    /// Its log density.
    pub log_density: f64,
    /// Its most probable component; of equals the first.
    pub component: usize,
}

/// What an M-step needs of all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// `N_k = sum_i r_ik`.
    pub members: Vec<f64>,
    /// `S_k = sum_i r_ik y_i`, one after another.
    pub resultants: Vec<f64>,
}

/// Unit vectors, and whoever multiplies matrices with them. `assign` turns the cosines of a point to all means into its
/// responsibilities; it is to be called for each point once, on any thread.
pub trait Points {
    /// What can go wrong in a pass, beside the arguments.
    type Error: From<Error>;

    /// Coordinates of a point.
    fn dimension(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// Copies a point.
    fn copy_point(&self, row: usize, out: &mut [f64]);

    /// What becomes of every point, in order. `means` are unit vectors one after another.
    fn score(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
    ) -> Result<Vec<Assigned>, Self::Error>;

    /// The same, and the sums over all points by what `assign` left of their cosines.
    fn pass(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
    ) -> Result<(Vec<Assigned>, Sums), Self::Error>;
}

/// Points in memory and plain loops on one thread: for small sets, and what faster implementations are held to.
#[derive(Clone, Debug, PartialEq)]
pub struct PointMatrix {
    dimension: usize,
    values: Vec<f64>,
}

impl PointMatrix {
    /// Rows of `p` numbers one after another, each divided by its length.
    pub fn new(p: usize, rows: &[f64]) -> Result<Self, Error> {
        if p < 2 {
            return Err(Error::Dimension { p });
        }
        if rows.is_empty() || !rows.len().is_multiple_of(p) {
            return Err(Error::Samples { numbers: rows.len(), p });
        }
        let mut values = vec![0.0; rows.len()];
        for (row, (from, to)) in rows.chunks_exact(p).zip(values.chunks_exact_mut(p)).enumerate() {
            unit(from, row, to)?;
        }
        Ok(Self { dimension: p, values })
    }

    fn each(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
        mut then: impl FnMut(&[f64], &[f64]),
    ) -> Vec<Assigned> {
        let mut row = vec![0.0; means.len() / self.dimension];
        let judge = |point: &[f64]| {
            for (cosine, mean) in row.iter_mut().zip(means.chunks_exact(self.dimension)) {
                *cosine = dot(point, mean);
            }
            let assigned = assign(&mut row);
            then(point, &row);
            assigned
        };
        self.values.chunks_exact(self.dimension).map(judge).collect()
    }
}

impl Points for PointMatrix {
    type Error = Error;

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn count(&self) -> usize {
        self.values.len() / self.dimension
    }

    fn copy_point(&self, row: usize, out: &mut [f64]) {
        out.copy_from_slice(&self.values[row * self.dimension..(row + 1) * self.dimension]);
    }

    fn score(&self, means: &[f64], assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync)) -> Result<Vec<Assigned>, Error> {
        Ok(self.each(means, assign, |_, _| ()))
    }

    fn pass(
        &self,
        means: &[f64],
        assign: &(dyn Fn(&mut [f64]) -> Assigned + Sync),
    ) -> Result<(Vec<Assigned>, Sums), Error> {
        let mut members = vec![0.0; means.len() / self.dimension];
        let mut resultants = vec![0.0; means.len()];
        let assigned = self.each(means, assign, |point, responsibilities| {
            let sums = members.iter_mut().zip(resultants.chunks_exact_mut(self.dimension));
            for ((member, resultant), &r) in sums.zip(responsibilities) {
                *member += r;
                if r > 0.0 {
                    resultant.iter_mut().zip(point).for_each(|(s, y)| *s += r * y);
                }
            }
        });
        Ok((assigned, Sums { members, resultants }))
    }
}

/// `<a, b>`, in eight sums that a compiler can make one vector of.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.0.iter().zip(b.0) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let rest: f64 = a.1.iter().zip(b.1).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
