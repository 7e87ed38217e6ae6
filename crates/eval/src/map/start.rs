//! Where the descent of a map begins: the first two principal components, very small.

use random::{Key, Purpose};

/// Rounds of the iteration: the two need not be exact, only a start that keeps what is far apart apart.
const ROUNDS: usize = 30;
/// Standard deviation of the places along the wider direction.
const SPREAD: f64 = 1e-4;

/// Rows projected on their first two principal directions, found by iterating with an orthogonal pair. A direction along
/// which nothing varies is replaced by noise: places that are equal would stay so.
pub(super) fn principal_places(rows: &[f32], dim: usize) -> Vec<[f64; 2]> {
    let images = rows.len() / dim;
    let mut mean = vec![0.0; dim];
    for row in rows.chunks_exact(dim) {
        mean.iter_mut().zip(row).for_each(|(mean, x)| *mean += f64::from(*x) / images as f64);
    }
    let centred: Vec<f64> =
        rows.chunks_exact(dim).flat_map(|row| row.iter().zip(&mean).map(|(x, mean)| f64::from(*x) - mean)).collect();
    let mut noise = Key::new(0, Purpose::Subset).view(3).stream();
    let mut directions = [0, 1].map(|_| (0..dim).map(|_| noise.normal()).collect::<Vec<f64>>());
    let project =
        |direction: &[f64]| -> Vec<f64> { centred.chunks_exact(dim).map(|row| dot(row, direction)).collect() };
    for _ in 0..ROUNDS {
        directions = directions.map(|direction| {
            let scores = project(&direction);
            let mut next = vec![0.0; dim];
            for (row, score) in centred.chunks_exact(dim).zip(scores) {
                next.iter_mut().zip(row).for_each(|(next, x)| *next += score * x);
            }
            next
        });
        let [first, second] = &mut directions;
        normalize(first);
        let along = dot(first, second);
        second.iter_mut().zip(&*first).for_each(|(x, y)| *x -= along * y);
        normalize(second);
    }
    let [x, y] = directions.map(|direction| project(&direction));
    let deviation = (dot(&x, &x) / images as f64).sqrt();
    let scaled = |value: f64, noise: f64| if deviation > 1e-9 { value / deviation * SPREAD } else { SPREAD * noise };
    // A thousandth of the spread: images that are copies of each other do not fall on one point.
    let place = |(x, y): (&f64, &f64)| {
        let jitter = [noise.normal(), noise.normal()];
        [scaled(*x, jitter[0]) + 1e-3 * SPREAD * jitter[0], scaled(*y, jitter[1]) + 1e-3 * SPREAD * jitter[1]]
    };
    x.iter().zip(&y).map(place).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn normalize(vector: &mut [f64]) {
    let length = dot(vector, vector).sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_direction_comes_first() {
        // Wide along the second value, less along the third, hardly along the first.
        let rows: Vec<f32> = (0..200)
            .flat_map(|i| {
                let (a, b) = ((i as f32 * 0.7).sin(), (i as f32 * 1.3).cos());
                [0.01 * a * b, 5.0 * a, 2.0 * b]
            })
            .collect();
        let places = principal_places(&rows, 3);
        let correlation = |axis: usize, column: usize| {
            let pairs: Vec<(f64, f64)> =
                places.iter().zip(rows.chunks_exact(3)).map(|(p, r)| (p[axis], r[column].into())).collect();
            let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / 200.0;
            let (a, b) = (mean(|p| p.0), mean(|p| p.1));
            let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
            let (ab, aa, bb) =
                (sum(&|p| (p.0 - a) * (p.1 - b)), sum(&|p| (p.0 - a).powi(2)), sum(&|p| (p.1 - b).powi(2)));
            (ab / (aa * bb).sqrt()).abs()
        };
        assert!(correlation(0, 1) > 0.99 && correlation(1, 2) > 0.99);
        let deviation = (places.iter().map(|p| p[0] * p[0]).sum::<f64>() / 200.0).sqrt();
        assert!((deviation / SPREAD - 1.0).abs() < 0.01);
    }
}
