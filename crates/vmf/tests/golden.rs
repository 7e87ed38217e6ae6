//! Golden values of the paper's bottleneck, p = 256, to every printed digit, and Amos's bounds on both ratios.

use vmf::{LogNormalizer, log_normalizer, mean_resultant_length};

/// kappa, log C exact, log C of Eq. (5), Delta, A exact, A of Eq. (5): 14 significant digits from 40-digit arithmetic.
const TABLE: [[f64; 6]; 10] = [
    [0.0, 344.33487565401, 344.33421948739, 0.0, 0.0, 0.0],
    [1.0, 344.3329225438, 344.33226649826, -0.0019529891308691, 0.0039061908591838, 0.0039059487120517],
    [10.0, 344.13971071514, 344.13906655652, -0.19515293086771, 0.039003534458181, 0.039001152984806],
    [100.0 / 7.0, 343.93689202407, 343.93626015144, -0.39795933594884, 0.055632193424707, 0.055628850058453],
    [25.0, 343.11987710129, 343.11929280569, -1.2149266817044, 0.096749107002819, 0.096743648760376],
    [50.0, 339.54014479058, 339.53973758501, -4.7944819023804, 0.18842805020212, 0.18841990071255],
    [100.0, 326.04867218993, 326.04864800093, -18.285571486461, 0.34453932515826, 0.34453313782407],
    [200.0, 280.39774404642, 280.39801862147, -63.936200865921, 0.54779720450741, 0.54779637370576],
    [500.0, 74.09253541896, 74.092753403439, -270.24146608395, 0.7768141349806, 0.77681445255939],
    [1000.0, -345.53293588479, -345.53281510557, -689.86703459296, 0.88054006559128, 0.88054017804017],
];

/// The value as the table prints it: 14 significant digits.
fn printed(value: f64) -> f64 {
    format!("{value:.13e}").parse().unwrap()
}

#[test]
fn every_digit_of_the_golden_table_is_met() {
    let paper = LogNormalizer::<f64>::new(256).unwrap();
    for [kappa, exact, approximate, delta, ratio, approximate_ratio] in TABLE {
        assert_eq!(printed(log_normalizer(256, kappa)), exact, "log C at kappa = {kappa}");
        assert_eq!(printed(paper.absolute(kappa)), approximate, "approximate log C at kappa = {kappa}");
        assert_eq!(printed(paper.relative(kappa)), delta, "Delta at kappa = {kappa}");
        assert_eq!(printed(mean_resultant_length(256, kappa)), ratio, "A at kappa = {kappa}");
        assert_eq!(printed(-paper.slope(kappa)), approximate_ratio, "approximate A at kappa = {kappa}");
    }
}

/// From kappa = 0.01 to 10000, evenly in the logarithm.
fn kappas() -> impl Iterator<Item = f64> {
    (0..=240).map(|i| 10.0_f64.powf(-2.0 + f64::from(i) / 40.0))
}

#[test]
fn the_error_of_the_one_term_form_spreads_as_far_as_was_measured_and_no_further() {
    for (p, spread) in [(256, 9.3e-4), (128, 1.9e-3), (64, 3.8e-3), (32, 7.9e-3)] {
        let paper = LogNormalizer::<f64>::new(p).unwrap();
        let errors: Vec<f64> =
            kappas().filter(|&k| k <= 5000.0).map(|k| paper.absolute(k) - log_normalizer(p, k)).collect();
        let (low, high) = errors.iter().fold((f64::MAX, f64::MIN), |(l, h), &e| (l.min(e), h.max(e)));
        assert!((0.95 * spread..1.05 * spread).contains(&(high - low)), "p = {p}: {:e}", high - low);
    }
}

/// The lower bound touches the exact ratio at kappa = 0, so the one-term ratio, there too small by `1 / nu^2` of
/// itself, falls below it by that much.
#[test]
fn both_ratios_lie_within_the_bounds_of_amos() {
    for p in [16, 17, 64, 256, 4096] {
        let paper = LogNormalizer::<f64>::new(p).unwrap();
        let a = p as f64 / 2.0 - 0.5;
        for kappa in kappas() {
            let lower = kappa / (a + (a + 1.0).hypot(kappa));
            let upper = kappa / (a + a.hypot(kappa));
            let one_term = 1.03 / (a - 0.5).powi(2);
            for (ratio, slack) in [(mean_resultant_length(p, kappa), 1e-15), (-paper.slope(kappa), one_term)] {
                let allowed = lower * (1.0 - slack)..=upper * (1.0 + 1e-15);
                assert!(allowed.contains(&ratio), "p = {p}, kappa = {kappa}: {ratio} not in {allowed:?}");
            }
        }
    }
}
