//! A network's prototypes as the mixture that the paper says they are, Eq. (3).

use vmf::VmfMixture;

use crate::error::EvalError;

/// The mixture of prototypes w_k = g_k v_k / |v_k| at temperature tau: mean w_k / |w_k|, kappa_k = |g_k| / tau, equal
/// weights. `directions` are v_k, `p` numbers each, and `magnitudes` are g_k.
///
/// ```
/// let mixture = eval::mixture::prototype_mixture(2, &[3.0, 4.0, 0.0, 2.0], &[2.0, -1.0], 0.1)?;
/// assert_eq!(mixture.weights(), [0.5, 0.5]);
/// assert!((mixture.kappas()[0] - 20.0).abs() < 1e-6);
/// // A prototype of negative length points the other way.
/// assert_eq!(mixture.means()[2..], [0.0, -1.0]);
/// # Ok::<(), eval::EvalError>(())
/// ```
pub fn prototype_mixture(
    p: usize,
    directions: &[f32],
    magnitudes: &[f32],
    temperature: f64,
) -> Result<VmfMixture, EvalError> {
    if !(temperature.is_finite() && temperature > 0.0) {
        let (value, expected) = (temperature.to_string(), "a number above zero".to_owned());
        return Err(EvalError::Setting { setting: "temperature", value, expected });
    }
    let signed = directions.chunks(p.max(1)).zip(magnitudes).flat_map(|(row, g)| {
        let sign = if *g < 0.0 { -1.0 } else { 1.0 };
        row.iter().map(move |&x| sign * f64::from(x))
    });
    let kappas: Vec<f64> = magnitudes.iter().map(|g| f64::from(g.abs()) / temperature).collect();
    Ok(VmfMixture::new(p, &vec![1.0; kappas.len()], &signed.collect::<Vec<_>>(), &kappas)?)
}
