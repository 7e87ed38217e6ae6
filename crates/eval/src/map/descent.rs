//! The descent of t-SNE: places whose nearness q_ij, heavy-tailed, resembles the affinities p_ij.
//!
//! q_ij = w_ij / Z with w_ij = 1 / (1 + |y_i - y_j|^2) and Z their sum; the gradient of KL(p || q) is
//! 4 sum_j (p_ij - q_ij) w_ij (y_i - y_j). At first p is exaggerated, so that groups form before they settle. Each row is
//! computed by one thread in a fixed order, so that the number of threads changes nothing.

use std::ops::ControlFlow;

use rayon::prelude::*;
use tensor::Device;

use super::FeatureMap;
use super::affinities::Affinities;
use crate::error::EvalError;

/// Values that are computed together.
pub(super) const LANES: usize = 16;
/// Factor on p at first.
const EXAGGERATION: f32 = 12.0;
/// Steps with it, where there are more than twice as many.
const EXAGGERATED: usize = 250;
/// Momentum during these steps, and after.
const MOMENTA: (f64, f64) = (0.5, 0.8);
/// The least learning rate.
const LEAST_RATE: f64 = 50.0;
/// The least factor on a coordinate's own learning rate.
const LEAST_GAIN: f64 = 0.01;
/// Where the places lie that fill up a vector: so far away that they weigh nothing.
const FAR: f32 = 1e15;
/// Rows of a piece of work.
const PIECE: usize = 32;
/// Steps between two reports of progress.
const REPORTED: usize = 25;

/// What a row of pairs sums up to.
#[derive(Clone, Copy, Debug, Default)]
struct Pull {
    /// sum_j p_ij w_ij (y_i - y_j).
    near: [f32; 2],
    /// sum_j w_ij^2 (y_i - y_j).
    far: [f32; 2],
    /// sum_j w_ij, with the image itself.
    weight: f32,
}

/// Follows the gradient from `start`.
pub(super) fn descend(
    affinities: &Affinities,
    start: Vec<[f64; 2]>,
    steps: usize,
    host: &Device,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<FeatureMap, EvalError> {
    let images = affinities.images;
    let exaggerated = EXAGGERATED.min(steps / 2);
    let rate = (images as f64 / f64::from(EXAGGERATION) / 4.0).max(LEAST_RATE);
    let mut places = start;
    let mut velocities = vec![[0.0_f64; 2]; images];
    let mut gains = vec![[1.0_f64; 2]; images];
    for step in 0..steps {
        if step % REPORTED == 0 && progress(step, steps).is_break() {
            return Err(EvalError::Stopped);
        }
        let is_first = step < exaggerated;
        let (exaggeration, momentum) = if is_first { (EXAGGERATION, MOMENTA.0) } else { (1.0, MOMENTA.1) };
        if step == exaggerated {
            // The second part begins anew, as with a gradient of its own.
            velocities.fill([0.0; 2]);
            gains.fill([1.0; 2]);
        }
        let pulls = host.run(|| pulls(affinities, &places));
        let total = total_weight(&pulls);
        for (i, pull) in pulls.iter().enumerate() {
            for axis in 0..2 {
                let (near, far) = (f64::from(exaggeration * pull.near[axis]), f64::from(pull.far[axis]));
                let gradient = 4.0 * (near - far / total);
                let (gain, velocity) = (&mut gains[i][axis], &mut velocities[i][axis]);
                // Faster where the direction stays, slower where it turns.
                *gain = if *velocity * gradient < 0.0 { *gain + 0.2 } else { (*gain * 0.8).max(LEAST_GAIN) };
                *velocity = momentum * *velocity - rate * *gain * gradient;
                places[i][axis] += *velocity;
            }
        }
    }
    let divergence = host.run(|| divergence(affinities, &places));
    let places = places.iter().map(|place| place.map(|x| x as f32)).collect();
    _ = progress(steps, steps);
    Ok(FeatureMap { places, divergence })
}

/// Z: the sum over all pairs of two images.
fn total_weight(pulls: &[Pull]) -> f64 {
    pulls.iter().map(|pull| f64::from(pull.weight) - 1.0).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// One coordinate of all places, filled up to whole vectors.
fn coordinates(places: &[[f64; 2]], axis: usize, length: usize) -> Vec<f32> {
    let mut values: Vec<f32> = places.iter().map(|place| place[axis] as f32).collect();
    values.resize(length, FAR);
    values
}

fn pulls(affinities: &Affinities, places: &[[f64; 2]]) -> Vec<Pull> {
    let [x, y] = [0, 1].map(|axis| coordinates(places, axis, affinities.stride));
    let mut pulls = vec![Pull::default(); affinities.images];
    let pieces = pulls.par_chunks_mut(PIECE).zip(affinities.values.par_chunks(PIECE * affinities.stride));
    pieces.enumerate().for_each(|(piece, (pulls, rows))| {
        for (row, (pull, p)) in pulls.iter_mut().zip(rows.chunks_exact(affinities.stride)).enumerate() {
            let i = piece * PIECE + row;
            *pull = pull_of(x[i], y[i], &x, &y, p);
        }
    });
    pulls
}

simd::simd! {
    /// The sums of one image. Lanes are added up apart and then in order, so that every instruction set gives the same.
    fn pull_of(own_x: f32, own_y: f32, x: &[f32], y: &[f32], p: &[f32]) -> Pull {
        let mut sums = [[0.0_f32; LANES]; 5];
        let columns = x.chunks_exact(LANES).zip(y.chunks_exact(LANES)).zip(p.chunks_exact(LANES));
        for ((x, y), p) in columns {
            for lane in 0..LANES {
                let (dx, dy) = (own_x - x[lane], own_y - y[lane]);
                let w = 1.0 / (1.0 + dx * dx + dy * dy);
                let (near, far) = (p[lane] * w, w * w);
                sums[0][lane] += near * dx;
                sums[1][lane] += near * dy;
                sums[2][lane] += far * dx;
                sums[3][lane] += far * dy;
                sums[4][lane] += w;
            }
        }
        let [near_x, near_y, far_x, far_y, weight] = sums.map(|lanes| lanes.iter().sum::<f32>());
        Pull { near: [near_x, near_y], far: [far_x, far_y], weight }
    }
}

/// KL(p || q) = sum_ij p_ij ln(p_ij / q_ij).
pub(super) fn divergence(affinities: &Affinities, places: &[[f64; 2]]) -> f64 {
    let total = total_weight(&pulls(affinities, places));
    let of_row = |(i, row): (usize, &[f32])| -> f64 {
        let part = |(j, &p): (usize, &f32)| {
            let apart: f64 = (0..2).map(|axis| (places[i][axis] - places[j][axis]).powi(2)).sum();
            let p = f64::from(p);
            if p > 0.0 && i != j { p * (p * total * (1.0 + apart)).ln() } else { 0.0 }
        };
        row[..affinities.images].iter().enumerate().map(part).sum()
    };
    let rows: Vec<f64> = affinities.values.par_chunks_exact(affinities.stride).enumerate().map(of_row).collect();
    rows.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    #[test]
    fn the_gradient_is_that_of_the_divergence() {
        let mut noise = Key::new(5, Purpose::Bench).stream();
        let n = 21;
        let distances: Vec<f32> = (0..n * n).map(|i| ((i / n) as f32 - (i % n) as f32).powi(2) * 0.03).collect();
        let affinities = Affinities::of_distances(distances, n, 5.0);
        let places: Vec<[f64; 2]> = (0..n).map(|_| [noise.normal(), noise.normal()]).collect();
        let pulls = pulls(&affinities, &places);
        let total = total_weight(&pulls);
        for (i, axis) in [(0, 0), (7, 1), (20, 0)] {
            let moved = |by: f64| {
                let mut places = places.clone();
                places[i][axis] += by;
                divergence(&affinities, &places)
            };
            let numeric = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            let gradient = 4.0 * (f64::from(pulls[i].near[axis]) - f64::from(pulls[i].far[axis]) / total);
            assert!((numeric - gradient).abs() < 1e-4 * gradient.abs().max(1.0), "{numeric} {gradient}");
        }
    }
}
