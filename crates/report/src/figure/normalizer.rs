//! log C_p(kappa), and how far the paper's approximation is from it (the paper's appendix on the approximation).

use vmf::{LogNormalizer, log_normalizer};

use super::{Figure, table};
use crate::chart::{Chart, Series};

/// The bottleneck widths that are drawn where none are asked for; DINO's is 256.
pub const WIDTHS: [usize; 4] = [32, 64, 128, 256];
/// The concentrations that the paper draws.
pub const RANGE: (f64, f64) = (20.0, 500.0);
const POINTS: usize = 241;

/// The figure for spheres of these dimensions, between two concentrations.
///
/// As in the paper, the first chart is relative to the value at the left end: a softmax sees differences alone. The
/// second is the approximation less the exact value, both as they are.
pub fn figure(dimensions: &[usize], (from, to): (f64, f64)) -> Result<Figure, vmf::Error> {
    let kappas: Vec<f64> = (0..POINTS).map(|i| from + (to - from) * i as f64 / (POINTS - 1) as f64).collect();
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for &p in dimensions {
        let approximate = LogNormalizer::<f64>::new(p)?;
        let points = |of: &dyn Fn(f64) -> f64| kappas.iter().map(|&kappa| (kappa, of(kappa))).collect();
        let at_left = approximate.relative(from);
        values.push(Series::new(format!("p = {p}"), points(&|kappa| approximate.relative(kappa) - at_left)));
        let error = |kappa: f64| approximate.absolute(kappa) - log_normalizer(p, kappa);
        errors.push(Series::new(format!("p = {p}"), points(&error)));
    }
    let renamed = |series: &[Series], what: &str| -> Vec<Series> {
        series.iter().map(|s| Series { name: format!("{what}, {}", s.name), ..s.clone() }).collect()
    };
    let numbers = [renamed(&values, "log C_p, relative"), renamed(&errors, "error")].concat();
    let chart = |title: &str, series| Chart {
        title: title.to_owned(),
        across: "kappa".to_owned(),
        series,
        ..Default::default()
    };
    Ok(Figure {
        table: table("kappa", &kappas, &numbers),
        charts: vec![
            chart(&format!("log C_p(kappa) less its value at {from}"), values),
            chart("the paper's approximation less the exact log C_p", errors),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// log C_p(kappa) by mpmath with 50 digits: `log(kappa**(p/2-1) / ((2*pi)**(p/2) * besseli(p/2-1, kappa)))`.
    const BY_MPMATH: [(usize, f64, f64); 4] = [
        (32, 20.0, 3.453_589_988_192_132),
        (32, 500.0, -431.935_710_737_461_7),
        (256, 20.0, 343.555_972_611_295_9),
        (256, 500.0, 74.092_535_418_960_33),
    ];

    #[test]
    fn the_drawn_error_is_that_against_mpmath() {
        let figure = figure(&[32, 256], RANGE).unwrap();
        for (p, kappa, exact) in BY_MPMATH {
            let column = figure.table.columns.iter().position(|name| *name == format!("error, p = {p}")).unwrap();
            let row = figure.table.rows.iter().find(|row| row[0] == Some(kappa)).unwrap();
            let approximate = LogNormalizer::<f64>::new(p).unwrap().absolute(kappa);
            let error = row[column].unwrap();
            assert!((error - (approximate - exact)).abs() < 1e-10, "p {p}, kappa {kappa}: {error}");
            assert!(error.abs() < 0.02, "small beside log C_p itself: {error}");
        }
        let first = figure.charts[0].series[1].points[0];
        assert_eq!(first, (20.0, 0.0), "relative to the left end");
    }

    #[test]
    fn dimensions_for_which_there_is_no_approximation_are_refused() {
        assert!(figure(&[3], RANGE).is_err());
    }
}
