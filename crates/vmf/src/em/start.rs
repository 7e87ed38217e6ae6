//! Where a fit begins: means drawn from the points as k-means++ draws them, on the sphere.

use random::{Key, Purpose};

use super::points::{Points, dot};
use super::{Assigned, FitOptions, VmfMixture, maximize};

/// Points that means are drawn from, at most, where there are few components. The draw reads all of them for each mean.
const DRAWN_FROM: usize = 4096;
/// The same for each component.
const DRAWN_FROM_EACH: usize = 20;

/// The mixture of the hard M-step after every point went to the nearest of the drawn means.
pub(super) fn mixture<P: Points>(points: &P, options: &FitOptions, start: usize) -> Result<VmfMixture, P::Error> {
    let (p, components) = (points.dimension(), options.components);
    let means = means(points, options, start);
    let nearest = |row: &mut [f64]| {
        let better =
            |best: (usize, f64), (k, cosine): (usize, &f64)| if *cosine > best.1 { (k, *cosine) } else { best };
        let (component, _) = row.iter().enumerate().fold((0, f64::NEG_INFINITY), better);
        row.fill(0.0);
        row[component] = 1.0;
        Assigned { log_density: 0.0, component }
    };
    let (_, sums) = points.pass(&means, &nearest)?;
    let even = VmfMixture::of(p, vec![1.0 / components as f64; components], means, vec![0.0; components]);
    Ok(maximize::step(&even, &sums, points.count(), options)?)
}

/// The first mean is any point; each further one is drawn with a chance proportional to `1 - cosine` to the nearest mean so
/// far, half the squared distance.
fn means<P: Points>(points: &P, options: &FitOptions, start: usize) -> Vec<f64> {
    let (p, components) = (points.dimension(), options.components);
    let mut stream = Key::new(options.seed, Purpose::Subset).epoch(start as u64).view(1).stream();
    let mut rows: Vec<usize> = (0..points.count()).collect();
    stream.shuffle(&mut rows);
    rows.truncate(DRAWN_FROM.max(DRAWN_FROM_EACH.saturating_mul(components)));
    let mut sample = vec![0.0; rows.len() * p];
    for (&row, out) in rows.iter().zip(sample.chunks_exact_mut(p)) {
        points.copy_point(row, out);
    }
    let mut means: Vec<f64> = Vec::with_capacity(components * p);
    let mut distances = vec![1.0_f64; rows.len()];
    for _ in 0..components {
        let total: f64 = distances.iter().sum();
        let chosen = if total > 0.0 {
            let mut left = stream.uniform() * total;
            let reached = |distance: &f64| {
                left -= distance;
                left < 0.0
            };
            // Rounding may leave a little at the end: then the last point that is not a mean already.
            let last = || distances.iter().rposition(|&distance| distance > 0.0).unwrap_or(0);
            distances.iter().position(reached).unwrap_or_else(last)
        } else {
            // Fewer different points than means.
            stream.below(rows.len() as u64) as usize
        };
        let mean = sample[chosen * p..(chosen + 1) * p].to_vec();
        for (distance, point) in distances.iter_mut().zip(sample.chunks_exact(p)) {
            *distance = distance.min((1.0 - dot(point, &mean)).max(0.0));
        }
        // Rounding is not to draw it again.
        distances[chosen] = 0.0;
        means.extend(mean);
    }
    means
}

#[cfg(test)]
mod tests {
    use super::super::PointMatrix;
    use super::*;

    #[test]
    fn far_points_are_drawn_before_near_ones_and_each_at_most_once() {
        // Two tight pairs and one alone: three means are one of each.
        let rows = [1.0, 0.0, 1.0, 1e-6, 0.0, 1.0, 1e-6, 1.0, -1.0, -1.0];
        let points = PointMatrix::new(2, &rows).unwrap();
        for start in 0..20 {
            let means = means(&points, &FitOptions::new(3), start);
            let mut quadrant: Vec<i32> = means
                .chunks(2)
                .map(|m| {
                    if m[0] > 0.5 {
                        0
                    } else if m[1] > 0.5 {
                        1
                    } else {
                        2
                    }
                })
                .collect();
            quadrant.sort_unstable();
            assert_eq!(quadrant, [0, 1, 2], "start {start}");
        }
        assert_ne!(means(&points, &FitOptions::new(3), 0), means(&points, &FitOptions::new(3), 1));
    }

    #[test]
    fn fewer_different_points_than_components_are_no_trouble() {
        let points = PointMatrix::new(2, &[0.6, 0.8].repeat(6)).unwrap();
        assert_eq!(means(&points, &FitOptions::new(4), 0), [0.6, 0.8].repeat(4));
    }
}
