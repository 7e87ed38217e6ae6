//! The head of a network with von Mises-Fisher prototypes as a density, Eq. (3) of the paper: a mixture whose components are
//! the prototypes, with kappa_k = |w_k| / tau and equal weights, as DINO-vMF has them.

use std::collections::BTreeMap;
use std::path::Path;

use model::weights::{NetworkRole, WeightsFile};
use model::{Layout, Projector, ProjectorConfig};
use onnx::vit::{Head, Mixture};
use ssl::recipe::{MethodName, Prototypes, Recipe};
use tensor::Device;
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

/// The density of a mixture at an image, as this program computes it.
pub struct Found {
    /// log p(y).
    log_density: f64,
    /// The largest term of its sum: what rounding is relative to.
    scale: f64,
    /// kappa_k and log r_k of every component.
    components: Vec<(f64, f64)>,
}

impl Density {
    /// The density at the image with this class token.
    pub fn at(&self, class: &[f32], device: &Device) -> Result<Found, vmf::Error> {
        let weights = |layer: &String| self.tensors.get(&format!("{layer}.weight")).map(|(shape, _)| shape.as_slice());
        let widths: Vec<usize> = self.head.layers.iter().filter_map(|layer| weights(layer)?.first().copied()).collect();
        let (hidden, outputs) = (widths.first().copied().unwrap_or(1), widths.last().copied().unwrap_or(1));
        let config = ProjectorConfig { inputs: class.len(), hidden, outputs, layers: widths.len(), batch_norm: false };
        let mut layout = Layout::default();
        let projector = Projector::new(&mut layout, "mlp", &config);
        let mut values = layout.initial(device, 0);
        for (spec, parameter) in layout.specs().iter().zip(values.tensors_mut()) {
            let Some((_, values)) = self.tensors.get(&spec.name).filter(|(shape, _)| *shape == spec.shape) else {
                return Err(vmf::Error::EmptyMixture);
            };
            parameter.copy_from_f32(values);
        }
        let mut features = device.zeros(&[1, class.len()]);
        features.copy_from_f32(class);
        let y = projector.infer(&values, &features).to_f64();
        self.at_point(&y)
    }

    /// The density at a unit vector.
    fn at_point(&self, y: &[f64]) -> Result<Found, vmf::Error> {
        let Mixture { directions, concentrations, log_normalizers, log_weights } = &self.head.mixture;
        let dot = |mu: &[f32]| mu.iter().zip(y).map(|(m, y)| f64::from(*m) * y).sum::<f64>();
        let cosines: Vec<f64> = directions.chunks(y.len().max(1)).map(dot).collect();
        let mut responsibilities = vec![0.0; concentrations.len()];
        let mixture = vmf::Mixture::new(concentrations.clone(), log_normalizers, log_weights)?;
        let log_density = mixture.log_responsibilities(&cosines, &mut responsibilities)?;
        let terms = concentrations.iter().zip(log_normalizers).map(|(kappa, log_c)| kappa.abs().max(log_c.abs()));
        let components = concentrations.iter().copied().zip(responsibilities).collect();
        Ok(Found { log_density, scale: terms.fold(1.0, f64::max), components })
    }
}

impl Found {
    /// How far these outputs are from ours, relative to the terms that they are sums of; in words what differs by more
    /// than `tolerance`. Of components that are as responsible as each other up to that, any may be the one.
    pub fn difference(&self, log_density: f64, kappa: f64, tolerance: f64) -> Result<f64, String> {
        let distance = (log_density - self.log_density).abs() / self.scale;
        // A difference that is no number is one.
        if distance.is_nan() || distance > tolerance {
            return Err(format!("its output `log_density` is {log_density}, and {} is right", self.log_density));
        }
        let most = self.components.iter().map(|(_, log_r)| *log_r).fold(f64::NEG_INFINITY, f64::max);
        let may_be = |&(own, log_r): &(f64, f64)| {
            most - log_r <= 2.0 * tolerance * self.scale && (own - kappa).abs() <= tolerance * own.abs().max(1.0)
        };
        match self.components.iter().any(may_be) {
            true => Ok(distance),
            false => Err(format!("its output `kappa` is {kappa}, which no component has that is most responsible")),
        }
    }
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
    #[test]
    fn outputs_that_are_not_those_of_the_mixture_are_found() {
        // One layer that takes (x, y) to (x, y), and two components along the axes with kappa = 20 and 10.
        let tensors = BTreeMap::from([
            ("mlp.weight".to_owned(), (vec![2, 2], vec![1.0, 0.0, 0.0, 1.0])),
            ("mlp.bias".to_owned(), (vec![2], vec![0.0, 0.0])),
        ]);
        let head =
            Head { layers: vec!["mlp".to_owned()], mixture: mixture(&[2.0, 1.0], &[1.0, 0.0, 0.0, 1.0], 2, 0.1) };
        let density = Density { head, tensors };
        let device = Device::cpu(Default::default()).unwrap();
        let found = density.at(&[3.0, 4.0], &device).unwrap();
        // log (C_2(20) exp(20 * 0.6) + C_2(10) exp(10 * 0.8)) / 2, C_2(k) = 1 / (2 pi I_0(k)).
        let (i20, i10) = (43_558_282.559_553_53_f64, 2_815.716_628_466_254_f64);
        let want = ((12f64.exp() / i20 + 8f64.exp() / i10) / (4.0 * std::f64::consts::PI)).ln();
        assert!(found.difference(want, 10.0, 1e-6).unwrap() < 1e-6);
        assert!(found.difference(want + 0.01, 10.0, 1e-4).unwrap_err().contains("log_density"));
        assert!(found.difference(f64::NAN, 10.0, 1e-4).is_err());
        assert!(found.difference(want, 20.0, 1e-4).unwrap_err().contains("kappa"));
        assert!(found.difference(want, f64::NAN, 1e-4).is_err());
    }
}
