//! The M-step.

use super::{FitOptions, Sums, VmfMixture};
use crate::{Error, estimate_kappa, mean_resultant_length};

/// Members below which a component is given up. What it could still add to a log-likelihood is less than this.
const NOBODY: f64 = 1e-10;

/// The mixture that these sums are best for. A component without members, or whose members cancel, keeps its mean.
pub(super) fn step(
    previous: &VmfMixture,
    sums: &Sums,
    points: usize,
    options: &FitOptions,
) -> Result<VmfMixture, Error> {
    let (p, mut means) = (previous.dimension, previous.means.clone());
    let mut lengths = Vec::with_capacity(sums.members.len());
    for (mean, (resultant, &members)) in
        means.chunks_exact_mut(p).zip(sums.resultants.chunks_exact(p).zip(&sums.members))
    {
        let length = resultant.iter().map(|s| s * s).sum::<f64>().sqrt();
        if members > NOBODY && length > 0.0 {
            mean.iter_mut().zip(resultant).for_each(|(m, s)| *m = s / length);
        }
        lengths.push(length);
    }
    // Where all points cancel there is no direction, and the best kappa is zero.
    let kappa = |length: f64, members: f64| concentration(p, length / members, options.largest_kappa);
    let kappas = if options.shared_kappa {
        vec![kappa(lengths.iter().sum(), points as f64)?; lengths.len()]
    } else {
        let of_component =
            |(&length, &members): (&f64, &f64)| if members > NOBODY { kappa(length, members) } else { Ok(0.0) };
        lengths.iter().zip(&sums.members).map(of_component).collect::<Result<_, _>>()?
    };
    let kept = sums.members.iter().map(|&n| if n > NOBODY { n } else { 0.0 });
    let total: f64 = kept.clone().sum();
    Ok(VmfMixture::of(p, kept.map(|n| n / total).collect(), means, kappas))
}

/// The kappa of this mean resultant length, no larger than allowed. Rounding may make the length 1 or a little more.
fn concentration(p: usize, length: f64, largest: f64) -> Result<f64, Error> {
    if length >= mean_resultant_length(p, largest) { Ok(largest) } else { estimate_kappa(p, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two(shared_kappa: bool, members: [f64; 2], resultants: [f64; 4]) -> VmfMixture {
        let options = FitOptions { shared_kappa, ..FitOptions::new(2) };
        let begin = VmfMixture::new(2, &[1.0, 1.0], &[0.0, 1.0, 0.0, 1.0], &[1.0, 1.0]).unwrap();
        let sums = Sums { members: members.to_vec(), resultants: resultants.to_vec() };
        step(&begin, &sums, 10, &options).unwrap()
    }

    #[test]
    fn a_component_without_members_is_given_up_and_one_whose_members_cancel_is_uniform() {
        let mixture = two(false, [10.0, 1e-12], [8.0, 0.0, 1e-13, 0.0]);
        assert_eq!((mixture.weights(), &mixture.means()[2..]), (&[1.0, 0.0][..], &[0.0, 1.0][..]));
        assert_eq!(mixture.offsets[1], f64::NEG_INFINITY);
        let mixture = two(false, [6.0, 4.0], [3.0, 0.0, 0.0, 0.0]);
        assert_eq!((mixture.kappas()[1], mixture.weights()[1]), (0.0, 0.4));
    }

    #[test]
    fn copies_of_one_point_have_the_largest_kappa_and_a_shared_one_is_that_of_all() {
        let mixture = two(false, [6.0, 4.0], [6.0 * (1.0 + 1e-15), 0.0, 0.0, -2.0]);
        assert_eq!(mixture.kappas()[0], 1e5);
        assert_eq!(mixture.kappas()[1], estimate_kappa(2, 0.5).unwrap());
        let shared = two(true, [6.0, 4.0], [6.0, 0.0, 0.0, -2.0]);
        assert_eq!(shared.kappas(), [estimate_kappa(2, 0.8).unwrap(); 2]);
    }
}
