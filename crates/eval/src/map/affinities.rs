//! How much images are neighbours of each other: p_ij of t-SNE.
//!
//! Each image i has a Gaussian around it whose width gives its neighbours p_j|i a chosen perplexity, exp of their entropy;
//! p_ij = (p_j|i + p_i|j) / 2n is the same both ways and sums to 1.

use rayon::prelude::*;

use super::descent::LANES;

/// How near the entropy of a row comes to what is asked for, in nats.
const TOLERANCE: f64 = 1e-5;
/// Halvings of the range that a width is in.
const HALVINGS: usize = 100;

/// p_ij, a row for each image, filled up with zeros to whole vectors.
pub(super) struct Affinities {
    /// Images.
    pub(super) images: usize,
    /// Values of a row.
    pub(super) stride: usize,
    /// All rows.
    pub(super) values: Vec<f32>,
}

impl Affinities {
    /// Of squared distances, n in each of n rows.
    pub(super) fn of_distances(mut distances: Vec<f32>, images: usize, perplexity: f64) -> Self {
        let entropy = perplexity.ln();
        distances.par_chunks_exact_mut(images).enumerate().for_each(|(i, row)| condition(row, i, entropy));
        let (given, stride) = (distances, images.next_multiple_of(LANES));
        let mut values = vec![0.0; images * stride];
        let scale = 0.5 / images as f32;
        values.par_chunks_exact_mut(stride).enumerate().for_each(|(i, row)| {
            for (j, p) in row[..images].iter_mut().enumerate() {
                *p = (given[i * images + j] + given[j * images + i]) * scale;
            }
        });
        Self { images, stride, values }
    }
}

/// Turns squared distances to image `i` into p_j|i: exp(-beta d_j), with the beta for which their entropy is the wanted one.
fn condition(row: &mut [f32], i: usize, entropy: f64) {
    // Only differences count, and the nearest then has a weight of one whatever the width.
    let nearest = row.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, d)| *d).fold(f32::INFINITY, f32::min);
    let apart = |j: usize, d: f32| if j == i { f64::INFINITY } else { f64::from(d - nearest) };
    let (mut beta, mut low, mut high) = (1.0, 0.0, f64::INFINITY);
    for _ in 0..HALVINGS {
        let (mut sum, mut weighted) = (0.0, 0.0);
        for (j, &d) in row.iter().enumerate().filter(|(j, _)| *j != i) {
            let d = apart(j, d);
            let weight = (-beta * d).exp();
            sum += weight;
            weighted += weight * d;
        }
        let found = sum.ln() + beta * weighted / sum;
        if (found - entropy).abs() <= TOLERANCE {
            break;
        }
        // A narrower Gaussian has fewer neighbours.
        if found > entropy {
            low = beta;
            beta = if high.is_finite() { 0.5 * (beta + high) } else { 2.0 * beta };
        } else {
            high = beta;
            beta = 0.5 * (beta + low);
        }
    }
    // Equal distances have one entropy, whatever the width.
    let beta = if beta.is_finite() { beta } else { 0.0 };
    let weights: Vec<f64> =
        row.iter().enumerate().map(|(j, &d)| if j == i { 0.0 } else { (-beta * apart(j, d)).exp() }).collect();
    let sum: f64 = weights.iter().sum();
    row.iter_mut().zip(&weights).for_each(|(p, weight)| *p = (weight / sum) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_perplexity_that_is_asked_for() {
        let mut row: Vec<f32> = (0..60).map(|i| (i as f32 * 0.37).sin().abs() * 3.0).collect();
        condition(&mut row, 7, 12.0_f64.ln());
        let entropy: f64 = row.iter().filter(|p| **p > 0.0).map(|&p| -f64::from(p) * f64::from(p).ln()).sum();
        assert!((entropy.exp() - 12.0).abs() < 1e-3, "{}", entropy.exp());
        assert_eq!(row[7], 0.0, "no image is its own neighbour");
    }

    #[test]
    fn equal_distances_give_equal_weights_and_all_sum_to_one() {
        let affinities = Affinities::of_distances(vec![0.5; 25], 5, 2.0);
        for i in 0..5 {
            for j in 0..5 {
                let p = affinities.values[i * affinities.stride + j];
                assert!((p - if i == j { 0.0 } else { 0.05 }).abs() < 1e-6);
            }
        }
    }
}
