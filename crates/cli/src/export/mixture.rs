//! The head of a network with von Mises-Fisher prototypes as a density, Eq. (3) of the paper: a mixture whose components are
//! the prototypes, with kappa_k = |w_k| / tau and equal weights, as DINO-vMF has them.

use eval::prototypes::Directions;
use model::weights::LoadedHead;
use model::{Layout, Projector};
use onnx::vit::{Head, Mixture};
use ssl::recipe::Prototypes;
use tensor::Device;

use crate::error::CliError;
use crate::eval::head;
use crate::weights::Weights;

/// A head that a graph can hold.
pub struct Density {
    /// Its layers and its components, for the graph.
    pub head: Head,
    /// The names of the layers' tensors, which are the first of the head's weights.
    layout: Layout,
    loaded: LoadedHead,
}

/// The density of a run's network; or why there is none.
pub fn of(weights: &Weights, device: &Device) -> Result<Result<Density, &'static str>, CliError> {
    let head = match head::Head::as_mixture(weights, device)? {
        Ok(head) => head,
        Err(why) => return Ok(Err(why)),
    };
    if head.prototypes != Prototypes::Vmf {
        return Ok(Err("its prototypes are not von Mises-Fisher components"));
    }
    if head.loaded.config.batch_norm {
        return Ok(Err(
            "its head has batch norm, so that an image alone has no density; --set head_batch_norm=false trains one without",
        ));
    }
    let mixture = mixture(&head.directions, &head.lengths, head.temperature);
    Ok(Ok(Density::new(head.loaded, mixture)))
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
    fn new(loaded: LoadedHead, mixture: Mixture) -> Self {
        let mut layout = Layout::default();
        Projector::new(&mut layout, "mlp", &loaded.config.projector());
        let weights = layout.specs().iter().filter_map(|spec| spec.name.strip_suffix(".weight"));
        let layers = weights.map(str::to_owned).collect();
        Self { head: Head { layers, mixture }, layout, loaded }
    }

    /// The shape of a tensor of its layers.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.layout.specs()[self.layout.find(name)?.0].shape.clone())
    }

    /// The elements of one.
    pub fn values(&self, name: &str) -> Option<Vec<f32>> {
        Some(self.loaded.weights[self.layout.find(name)?].to_f32())
    }

    /// The density at the image with this class token.
    pub fn at(&self, class: &[f32], device: &Device) -> Result<Found, vmf::Error> {
        let features = device.from_f32(&[1, class.len()], class);
        self.at_point(&self.loaded.projector.infer(&self.loaded.weights, &features).to_f64())
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

fn mixture(directions: &Directions, lengths: &[f64], temperature: f64) -> Mixture {
    let concentrations: Vec<f64> = lengths.iter().map(|length| length / temperature).collect();
    let count = directions.len();
    let log_weight = -(count.max(1) as f64).ln();
    let of = |k| directions.of(k).iter().copied();
    let p = if count == 0 { 1 } else { directions.of(0).len() };
    Mixture {
        directions: (0..count).flat_map(of).collect(),
        log_normalizers: concentrations.iter().map(|&kappa| vmf::log_normalizer(p, kappa)).collect(),
        log_weights: vec![log_weight; count],
        concentrations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{HeadConfig, PrototypeLayer};

    /// Prototypes of these lengths, at the temperature 0.1.
    fn mixture_of(lengths: &[f32], directions: &[f32]) -> Mixture {
        let sizes: Vec<f64> = lengths.iter().map(|length| f64::from(length.abs())).collect();
        mixture(&Directions::new(2, directions, lengths), &sizes, 0.1)
    }

    #[test]
    fn components_have_unit_directions_and_kappa_is_the_length_over_the_temperature() {
        let mixture = mixture_of(&[2.0, -1.0], &[3.0, 4.0, 0.0, 2.0]);
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
        let device = Device::cpu(Default::default()).unwrap();
        let config = HeadConfig { inputs: 2, hidden: 2, bottleneck: 2, prototypes: 2, layers: 1, batch_norm: false };
        let mut layout = Layout::default();
        let projector = Projector::new(&mut layout, "head.mlp", &config.projector());
        let prototypes = PrototypeLayer::new(&mut layout, "head.last_layer", 2, 2);
        let mut weights = layout.initial(&device, 0);
        for (name, values) in [("head.mlp.weight", &[1.0, 0.0, 0.0, 1.0][..]), ("head.mlp.bias", &[0.0, 0.0])] {
            weights.tensors_mut()[layout.find(name).unwrap().0].copy_from_f32(values);
        }
        let loaded = LoadedHead { config, projector, prototypes, weights };
        let density = Density::new(loaded, mixture_of(&[2.0, 1.0], &[1.0, 0.0, 0.0, 1.0]));
        assert_eq!(
            (density.head.layers.as_slice(), density.shape("mlp.bias")),
            (&["mlp".to_owned()][..], Some(vec![2]))
        );
        assert_eq!(
            (density.values("mlp.weight"), density.values("mlp.0.weight")),
            (Some(vec![1.0, 0.0, 0.0, 1.0]), None)
        );
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
