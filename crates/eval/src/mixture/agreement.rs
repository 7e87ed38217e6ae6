//! How far a clustering agrees with classes.

use std::collections::BTreeMap;

/// Two numbers for the agreement of components with classes, both between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Share of the images whose class is the most frequent one of their component. It grows with the number of components,
    /// to 1 where every image has its own.
    pub purity: f64,
    /// Mutual information of component and class over the mean of their entropies, which does not.
    pub nmi: f64,
}

impl Agreement {
    /// Of the component and the class of each image.
    ///
    /// # Panics
    /// When there are not equally many.
    pub fn of(components: &[usize], classes: &[u32]) -> Self {
        assert_eq!(components.len(), classes.len(), "one class for each image");
        let (mut joint, mut of_component, mut of_class) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (&component, &class) in components.iter().zip(classes) {
            *joint.entry((component, class)).or_insert(0usize) += 1;
            *of_component.entry(component).or_insert(0usize) += 1;
            *of_class.entry(class).or_insert(0usize) += 1;
        }
        let n = components.len() as f64;
        let mut most = BTreeMap::new();
        let mut information = 0.0;
        for (&(component, class), &count) in &joint {
            let largest = most.entry(component).or_insert(0usize);
            *largest = (*largest).max(count);
            let expected = of_component[&component] as f64 * of_class[&class] as f64 / n;
            information += count as f64 / n * (count as f64 / expected).ln();
        }
        let entropies = entropy(of_component.values(), n) + entropy(of_class.values(), n);
        Self {
            purity: most.values().sum::<usize>() as f64 / n,
            // One component and one class say the same.
            nmi: if entropies > 0.0 { (2.0 * information / entropies).clamp(0.0, 1.0) } else { 1.0 },
        }
    }
}

fn entropy<'a>(counts: impl Iterator<Item = &'a usize>, n: f64) -> f64 {
    counts.map(|&count| count as f64 / n).map(|share| -share * share.ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scikit_learn_agrees() {
        // sklearn.metrics.normalized_mutual_info_score, and purity by its contingency_matrix.
        let components = [0, 0, 1, 1, 2, 2, 2, 3, 3, 0, 5, 5];
        let classes = [1, 1, 0, 1, 2, 2, 0, 2, 2, 1, 0, 0];
        let Agreement { purity, nmi } = Agreement::of(&components, &classes);
        assert!((purity - 10.0 / 12.0).abs() < 1e-15, "{purity}");
        assert!((nmi - NMI_BY_SKLEARN).abs() < 1e-12, "{nmi}");
    }
    const NMI_BY_SKLEARN: f64 = 0.6131471927654587;

    #[test]
    fn the_ends_are_one_and_zero() {
        assert_eq!(Agreement::of(&[4, 4, 7, 7], &[1, 1, 0, 0]), Agreement { purity: 1.0, nmi: 1.0 });
        assert_eq!(Agreement::of(&[0, 1, 0, 1], &[0, 0, 1, 1]), Agreement { purity: 0.5, nmi: 0.0 });
        assert_eq!(Agreement::of(&[3, 3], &[1, 1]), Agreement { purity: 1.0, nmi: 1.0 });
        assert_eq!(Agreement::of(&[0, 1, 2, 3], &[0, 0, 1, 1]).purity, 1.0);
    }
}
