//! Densities on the circle: why a longer prototype cannot simply win (the paper's intuition of normalised logits).
//!
//! Two components at the same angle, one with a long prototype and one with a short one. Normalised, the longer is higher
//! near its direction and lower elsewhere; without the normaliser it is higher within a quarter turn on either side,
//! wherever the data are.

use std::f64::consts::PI;

use vmf::log_normalizer;

use super::{Figure, table};
use crate::chart::{Chart, Series};
use crate::scale::shown;

const POINTS: usize = 361;

/// A component on the circle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Component {
    /// Its direction in degrees.
    pub degrees: f64,
    /// Its concentration.
    pub kappa: f64,
    /// Its weight in the mixture.
    pub weight: f64,
}

/// The two components of the paper's drawing: the same direction, one prototype longer than the other.
pub fn paper() -> [Component; 2] {
    let component = |kappa| Component { degrees: 315.0, kappa, weight: 0.5 };
    [component(10.0), component(2.0)]
}

impl Component {
    /// The density at an angle in degrees, per radian.
    pub fn density(&self, degrees: f64) -> f64 {
        (log_normalizer(2, self.kappa) + self.kappa * self.cosine(degrees)).exp()
    }

    fn cosine(&self, degrees: f64) -> f64 {
        ((degrees - self.degrees) * PI / 180.0).cos()
    }
}

/// The figure: densities of the components and of their mixture, and the logits without the normaliser.
pub fn figure(components: &[Component]) -> Figure {
    let degrees: Vec<f64> = (0..POINTS).map(|i| i as f64).collect();
    let whole: f64 = components.iter().map(|c| c.weight).sum();
    let is_even = components.iter().all(|c| c.weight == components[0].weight);
    let name = |c: &Component| {
        let share = if is_even { String::new() } else { format!(", {} of the mixture", shown(c.weight / whole)) };
        format!("kappa {}, {} degrees{share}", c.kappa, c.degrees)
    };
    let points = |of: &dyn Fn(f64) -> f64| degrees.iter().map(|&at| (at, of(at))).collect::<Vec<_>>();
    let mut densities: Vec<Series> =
        components.iter().map(|c| Series::new(name(c), points(&|at| c.density(at)))).collect();
    let mixture = |at: f64| components.iter().map(|c| c.weight / whole * c.density(at)).sum();
    densities.push(Series::new("mixture", points(&mixture)));
    let logits: Vec<Series> =
        components.iter().map(|c| Series::new(name(c), points(&|at| c.kappa * c.cosine(at)))).collect();
    let renamed = logits.iter().map(|s| Series { name: format!("logit, {}", s.name), ..s.clone() });
    let numbers: Vec<Series> = densities.iter().cloned().chain(renamed).collect();
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        across: "angle, degrees".to_owned(),
        series,
        places_every: Some(90.0),
        ..Default::default()
    };
    Figure {
        table: table("degrees", &degrees, &numbers),
        charts: vec![
            chart("von Mises-Fisher densities on the circle, per radian", densities),
            chart("without the normaliser: logits <w, y>", logits),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_density_integrates_to_one() {
        let far = Component { degrees: 40.0, kappa: 35.0, weight: 2.0 };
        let [long, short] = paper();
        let figure = figure(&[long, short, far]);
        for series in &figure.charts[0].series {
            // Equal steps over a whole period: the rectangle rule is exact for smooth functions.
            let integral: f64 = series.points[..360].iter().map(|point| point.1).sum::<f64>() * PI / 180.0;
            assert!((integral - 1.0).abs() < 1e-12, "{}: {integral}", series.name);
        }
        assert_eq!(figure.charts[0].series[3].name, "mixture");
    }

    #[test]
    fn the_longer_prototype_is_ahead_near_its_direction_alone_and_without_the_normaliser_everywhere_before_it() {
        let [long, short] = paper();
        assert!(long.density(315.0) > short.density(315.0));
        assert!(long.density(255.0) < short.density(255.0), "60 degrees away the shorter one explains a point better");
        assert!(long.kappa * long.cosine(255.0) > short.kappa * short.cosine(255.0));
    }
}
