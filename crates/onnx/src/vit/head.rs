//! DINO's head as a density: how likely an image is under the mixture that the prototypes are.
//!
//! The head maps the class token to a unit vector `y`. Prototype `k` is a von Mises-Fisher distribution with direction
//! `mu_k` and concentration `kappa_k`, so with the logits `l_k = log pi_k + log C_p(kappa_k) + kappa_k <mu_k, y>` the
//! density is `log p(y) = log sum_k exp l_k`, and the component that is most responsible for `y` is the largest `l_k`.

use crate::graph::{Attribute, Tensor};

use super::build::Builder;
use super::{BuildError, value};

/// Below this length a vector is not scaled to unit length: DINO's, and PyTorch's default.
const LEAST_NORM: f32 = 1e-12;

/// A head without batch norm: linear layers with GELU between them, unit length at the end, and a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The linear layers in their order, by the names under which their `.weight` and `.bias` are found.
    pub layers: Vec<String>,
    /// What the unit vectors are compared with.
    pub mixture: Mixture,
}

/// A mixture of von Mises-Fisher distributions, of K components in p dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// The directions mu_k, of unit length: [K, p], row-major.
    pub directions: Vec<f32>,
    /// The concentrations kappa_k.
    pub concentrations: Vec<f64>,
    /// The log-normalisers log C_p(kappa_k).
    pub log_normalizers: Vec<f64>,
    /// The logarithms of the mixing weights pi_k.
    pub log_weights: Vec<f64>,
}

impl Head {
    /// Adds the head to a graph, with the outputs `kappa` and `log_density`.
    pub(super) fn add(&self, builder: &mut Builder<'_>, features: &str, dim: usize) -> Result<(), BuildError> {
        let Some((last, hidden)) = self.layers.split_last() else {
            return Err(BuildError::Sizes { what: "a head without layers".to_owned() });
        };
        let (mut x, mut width) = (features.to_owned(), dim);
        for layer in hidden {
            let outputs = builder.outputs_of(layer)?;
            x = builder.linear(layer, &x, width, outputs)?;
            x = builder.gelu(&format!("{layer}.gelu"), &x);
            width = outputs;
        }
        let outputs = builder.outputs_of(last)?;
        let x = builder.linear(last, &x, width, outputs)?;

        let attributes = [("axes", Attribute::Ints(vec![-1])), ("keepdims", Attribute::Int(1))];
        let norm = builder.node("ReduceL2", "head.norm", &[&x], attributes);
        let least = builder.number("head.least_norm", LEAST_NORM);
        let norm = builder.node("Clip", "head.divisor", &[&norm, &least], []);
        let unit = builder.node("Div", "head.unit", &[&x, &norm], []);
        self.mixture.add(builder, &unit, outputs)
    }
}

impl Mixture {
    fn check(&self, dim: usize) -> Result<usize, BuildError> {
        let components = self.concentrations.len();
        let lists = [
            ("log-normalisers", self.log_normalizers.len(), components),
            ("mixing weights", self.log_weights.len(), components),
            ("numbers in their directions", self.directions.len(), components.saturating_mul(dim)),
        ];
        match lists.into_iter().find(|(_, found, expected)| found != expected) {
            Some((what, found, _)) => Err(BuildError::Mixture { components, what, found }),
            None if components == 0 => Err(BuildError::Sizes { what: "a mixture of nothing".to_owned() }),
            None => Ok(components),
        }
    }

    fn add(&self, builder: &mut Builder<'_>, unit: &str, dim: usize) -> Result<(), BuildError> {
        let components = self.check(dim)?;
        let transposed = (0..dim).flat_map(|i| self.directions.iter().skip(i).step_by(dim).copied());
        let transposed: Vec<f32> = transposed.collect();
        let directions = builder.constant(Tensor::f32("mixture.directions", &[dim, components], &transposed));
        let concentrations: Vec<f32> = self.concentrations.iter().map(|&kappa| kappa as f32).collect();
        let concentrations = builder.constant(Tensor::f32("mixture.concentrations", &[components], &concentrations));
        // Both are large and of opposite sign at times: added before they are rounded.
        let sums = self.log_normalizers.iter().zip(&self.log_weights).map(|(normalizer, weight)| normalizer + weight);
        let scales: Vec<f32> = sums.map(|sum| sum as f32).collect();
        let scales = builder.constant(Tensor::f32("mixture.log_scales", &[components], &scales));

        let cosines = builder.node("MatMul", "mixture.cosines", &[unit, &directions], []);
        let exponents = builder.node("Mul", "mixture.exponents", &[&cosines, &concentrations], []);
        let logits = builder.node("Add", "mixture.logits", &[&exponents, &scales], []);

        let along = || [("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(0))];
        let most_responsible = builder.node("ArgMax", "mixture.most_responsible", &[&logits], along());
        let axis = [("axis", Attribute::Int(0))];
        builder.node("Gather", "kappa", &[&concentrations, &most_responsible], axis);
        builder.output(value("kappa", &[]));

        // Not `ReduceLogSumExp`: in hundreds of dimensions the logits are in the hundreds, and a runtime that does not
        // subtract the largest first overflows.
        let attributes = [("axes", Attribute::Ints(vec![1])), ("keepdims", Attribute::Int(1))];
        let most = builder.node("ReduceMax", "mixture.most", &[&logits], attributes);
        let below = builder.node("Sub", "mixture.below", &[&logits, &most], []);
        let ratios = builder.node("Exp", "mixture.ratios", &[&below], []);
        let axes = builder.ints("mixture.axes", &[1]);
        let total = builder.node("ReduceSum", "mixture.total", &[&ratios, &axes], [("keepdims", Attribute::Int(1))]);
        let log = builder.node("Log", "mixture.log_total", &[&total], []);
        let density = builder.node("Add", "mixture.log_densities", &[&most, &log], []);
        builder.node("Squeeze", "log_density", &[&density, &axes], []);
        builder.output(value("log_density", &[]));
        Ok(())
    }
}
