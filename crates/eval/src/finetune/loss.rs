//! Cross-entropy with soft targets: L = -Σ_k t_k log p_k with p = softmax(z), so that dL/dz = p Σ_k t_k - t.

/// Losses of rows of logits, and the gradient of their sum times `weight`, in f64 and in the order of the rows.
///
/// # Panics
/// When there are not as many targets as logits, or no classes.
pub fn soft_cross_entropy(logits: &[f64], targets: &[f64], classes: usize, weight: f64) -> (f64, Vec<f64>) {
    assert_eq!(logits.len(), targets.len(), "a target for each logit");
    let (mut loss, mut gradient) = (0.0, Vec::with_capacity(logits.len()));
    for (z, t) in logits.chunks_exact(classes).zip(targets.chunks_exact(classes)) {
        let largest = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let normalizer = largest + z.iter().map(|z| (z - largest).exp()).sum::<f64>().ln();
        let total: f64 = t.iter().sum();
        loss += z.iter().zip(t).map(|(z, t)| t * (normalizer - z)).sum::<f64>();
        gradient.extend(z.iter().zip(t).map(|(z, t)| weight * (total * (z - normalizer).exp() - t)));
    }
    (loss * weight, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};

    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let mut stream = Key::new(1, Purpose::Bench).stream();
        let logits: Vec<f64> = (0..12).map(|_| 3.0 * stream.normal()).collect();
        // Targets need not be distributions.
        let targets: Vec<f64> = (0..12).map(|_| stream.uniform()).collect();
        let (_, gradient) = soft_cross_entropy(&logits, &targets, 4, 0.3);
        let step = 1e-5;
        for (i, gradient) in gradient.into_iter().enumerate() {
            let at = |change: f64| {
                let mut moved = logits.clone();
                moved[i] += change;
                soft_cross_entropy(&moved, &targets, 4, 0.3).0
            };
            let slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step);
            assert!((slope - gradient).abs() < 1e-9, "{i}: {slope} {gradient}");
        }
    }

    #[test]
    fn logits_of_any_size_have_a_loss() {
        let (loss, gradient) = soft_cross_entropy(&[1e4, -1e4], &[0.0, 1.0], 2, 1.0);
        assert_eq!((loss, gradient), (2e4, vec![1.0, -1.0]));
    }
}
