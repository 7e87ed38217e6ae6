//! What the golden tests share: a device that computes in double precision, and comparison by printed digits.

use tensor::{CpuOptions, Device, Precision};

/// Double precision on two threads; the number of threads changes no bit.
pub fn f64_device() -> Device {
    Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F64 }).unwrap()
}

/// Asserts that `got` rounds to `printed`, a number given with `decimals` digits after the point (trailing zeros may be
/// missing in the source).
#[track_caller]
pub fn assert_digits(what: &str, got: f64, printed: f64, decimals: i32) {
    // The literal itself is off by its rounding to f64, far below the slack.
    let half_a_unit = 0.5 * 10f64.powi(-decimals) * (1.0 + 1e-5);
    let error = (got - printed).abs();
    assert!(error <= half_a_unit, "{what}: {got:.14} is not {printed} to {decimals} decimals (off by {error:e})");
}

/// The same for each of several numbers.
#[track_caller]
pub fn assert_all_digits(what: &str, got: &[f64], printed: &[f64], decimals: i32) {
    assert_eq!(got.len(), printed.len(), "{what}: how many values");
    for (i, (&got, &printed)) in got.iter().zip(printed).enumerate() {
        assert_digits(&format!("{what}[{i}]"), got, printed, decimals);
    }
}

/// Euclidean norm over all values.
pub fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}
