//! The head of a network with von Mises-Fisher prototypes as a density, Eq. (3) of the paper: a mixture whose components are
//! the prototypes, with kappa_k = |w_k| / tau and equal weights, as DINO-vMF has them.

use std::collections::BTreeMap;
use std::path::Path;

use model::weights::{NetworkRole, WeightsFile};
use onnx::vit::{Head, Mixture};
use ssl::recipe::{MethodName, Prototypes, Recipe};
use train::run::{RunReader, is_run};

use crate::error::CliError;

use crate::weights::Weights;

/// A head that a graph can hold, and the values of its layers by name.
pub struct Density {
    /// Its layers and its components.
    pub head: Head,
    /// Shape and elements of each tensor of the layers.
    pub tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
}

/// The density of a run's network; or why there is none.
pub fn of(given: &Path, weights: &Weights) -> Result<Result<Density, &'static str>, CliError> {
    let Some(recipe) = recipe_of(given)? else {
        return Ok(Err("only the folder of a run says how its prototypes were used"));
    };
    if recipe.prototypes() != Prototypes::Vmf {
        return Ok(Err("its prototypes are not von Mises-Fisher components"));
    }
    if recipe.method() == MethodName::Msn {
        return Ok(Err("MSN's prototypes belong to its loss rather than to the network"));
    }
    if recipe.head_batch_norm() {
        return Ok(Err(
            "its head has batch norm, so that an image alone has no density; --set head_batch_norm=false trains one without",
        ));
    }
    let mut file = WeightsFile::open(&weights.path)?;
    let (mut tensors, mut layers) = (BTreeMap::new(), Vec::new());
    let (mut magnitudes, mut directions) = (None, None);
    for (name, tensor) in file.head(weights.loaded.report.role) {
        let values = file.read(&tensor)?.into_f32();
        match name.as_str() {
            "last_layer.weight_g" => magnitudes = Some(values),
            "last_layer.weight_v" => directions = Some((tensor.shape, values)),
            _ if name.starts_with("mlp") => {
                if let Some(layer) = name.strip_suffix(".weight") {
                    layers.push(layer.to_owned());
                }
                tensors.insert(name, (tensor.shape, values));
            }
            _ => {}
        }
    }
    let (Some(magnitudes), Some((shape, directions))) = (magnitudes, directions) else {
        return Ok(Err("its file holds no head"));
    };
    // `mlp.0` before `mlp.2`, by their numbers.
    layers.sort_by_key(|name| name.rsplit('.').next().and_then(|number| number.parse::<u32>().ok()));
    let temperature = match weights.loaded.report.role {
        Some(NetworkRole::Student) => recipe.student_temp(),
        _ => recipe.teacher_temp(),
    };
    let p = shape.get(1).copied().unwrap_or(1).max(1);
    Ok(Ok(Density { head: Head { layers, mixture: mixture(&magnitudes, &directions, p, temperature) }, tensors }))
}

fn mixture(magnitudes: &[f32], directions: &[f32], p: usize, temperature: f64) -> Mixture {
    let unit = |row: &[f32]| {
        let length = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        row.iter().map(move |x| (f64::from(*x) / length) as f32).collect::<Vec<f32>>()
    };
    let concentrations: Vec<f64> = magnitudes.iter().map(|g| f64::from(g.abs()) / temperature).collect();
    let log_weight = -(concentrations.len().max(1) as f64).ln();
    // A prototype of negative length points the other way.
    let signed = directions
        .chunks(p)
        .zip(magnitudes)
        .flat_map(|(row, g)| unit(row).into_iter().map(move |x| if *g < 0.0 { -x } else { x }));
    Mixture {
        directions: signed.collect(),
        log_normalizers: concentrations.iter().map(|&kappa| vmf::log_normalizer(p, kappa)).collect(),
        log_weights: vec![log_weight; concentrations.len()],
        concentrations,
    }
}

/// The recipe of the run that was given; none where it is something else.
fn recipe_of(given: &Path) -> Result<Option<Recipe>, CliError> {
    if !is_run(given) {
        return Ok(None);
    }
    ssl::recipe::of_run(&RunReader::open(given)?).map(Some).map_err(CliError::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_have_unit_directions_and_kappa_is_the_length_over_the_temperature() {
        let mixture = mixture(&[2.0, -1.0], &[3.0, 4.0, 0.0, 2.0], 2, 0.1);
        assert_eq!(mixture.directions, [0.6, 0.8, -0.0, -1.0]);
        assert!((mixture.concentrations[0] - 20.0).abs() < 1e-12 && (mixture.concentrations[1] - 10.0).abs() < 1e-12);
        assert_eq!(mixture.log_weights, [-(2f64.ln()); 2]);
        // p = 2: C = 1 / (2 pi I_0(kappa)), and I_0(10) = 2815.716628466254.
        let want = -(2.0 * std::f64::consts::PI * 2_815.716_628_466_254).ln();
        assert!((mixture.log_normalizers[1] - want).abs() < 1e-10);
    }
}
