//! The exact functions against 60-digit values (`tools/oracle/vmf_reference.py`).

use vmf::{log_normalizer, mean_resultant_length, mean_resultant_length_derivative};

struct Row {
    p: usize,
    kappa: f64,
    log_c: f64,
    a: f64,
    derivative: f64,
}

fn rows() -> Vec<Row> {
    let parse = |line: &str| {
        let fields: Vec<f64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
        let [p, kappa, log_c, a, derivative] = fields[..] else { panic!("{line}") };
        Row { p: p as usize, kappa, log_c, a, derivative }
    };
    include_str!("fixtures/reference.txt").lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

#[test]
fn the_log_normaliser_is_right_to_3e_14_everywhere_even_where_it_crosses_zero() {
    for Row { p, kappa, log_c, .. } in rows() {
        let error = (log_normalizer(p, kappa) - log_c).abs();
        assert!(error <= 3e-14 * log_c.abs().max(1.0), "p = {p}, kappa = {kappa}: off by {error:e}");
    }
}

#[test]
fn the_bessel_ratio_is_right_to_2e_15() {
    for Row { p, kappa, a, .. } in rows() {
        let error = (mean_resultant_length(p, kappa) - a).abs();
        assert!(error <= 2e-15 * a, "p = {p}, kappa = {kappa}: off by {error:e}");
    }
}

#[test]
fn the_derivative_of_the_ratio_is_right_to_3e_14_where_its_formula_cancels() {
    for Row { p, kappa, derivative, .. } in rows() {
        let error = (mean_resultant_length_derivative(p, kappa) - derivative).abs();
        assert!(error <= 3e-14 * derivative, "p = {p}, kappa = {kappa}: off by {error:e}");
    }
}

#[test]
fn f32_is_the_f64_value_rounded_once() {
    for Row { p, kappa, .. } in rows() {
        let kappa = kappa as f32;
        let wide = f64::from(kappa);
        assert_eq!(log_normalizer(p, kappa), log_normalizer(p, wide) as f32);
        assert_eq!(mean_resultant_length(p, kappa), mean_resultant_length(p, wide) as f32);
        let derivative: f64 = mean_resultant_length_derivative(p, wide);
        assert_eq!(mean_resultant_length_derivative(p, kappa), derivative as f32);
    }
}

#[test]
fn the_ratio_is_minus_the_slope_of_the_log_normaliser() {
    for p in [2, 3, 16, 83, 256, 4096] {
        for kappa in [0.5, 3.0, 25.0, 39.99, 40.01, 300.0] {
            let h = 1e-3 * f64::max(kappa, 1.0);
            let d = |k: f64| log_normalizer(p, kappa + k * h) - log_normalizer(p, kappa - k * h);
            let slope = (8.0 * d(1.0) - d(2.0)) / (12.0 * h);
            let error = (slope + mean_resultant_length::<f64>(p, kappa)).abs();
            assert!(error < 2e-9, "p = {p}, kappa = {kappa}: {error:e}");
        }
    }
}

#[test]
fn the_ratio_satisfies_its_differential_equation() {
    for p in [2, 5, 30, 256] {
        for kappa in [0.2, 2.0, 38.0, 60.0] {
            let a: f64 = mean_resultant_length(p, kappa);
            let direct = 1.0 - a * a - (p - 1) as f64 / kappa * a;
            let error = (mean_resultant_length_derivative(p, kappa) - direct).abs();
            assert!(error < 1e-14, "p = {p}, kappa = {kappa}: {error:e}");
        }
    }
}
