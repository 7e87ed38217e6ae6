//! What the tests of several kernels share: reproducible noise, threads, comparison.

use random::{Key, Purpose};

use super::{Cpu, Real};
use crate::device::CpuOptions;

/// Standard normal values.
pub(crate) fn noise<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    (0..len).map(|_| T::from_f64(stream.normal())).collect()
}

/// Threads for a kernel: more than one, so that tasks run beside each other.
pub(crate) fn cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: Some(3), ..Default::default() }).unwrap()
}

/// An output whose elements nobody has written.
pub(crate) fn unwritten<T: Real>(len: usize) -> Vec<T> {
    vec![T::from_f64(f64::NAN); len]
}

/// The same values in double precision, which the plain oracles compute in.
pub(crate) fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.to_f64()).collect()
}

/// Fails unless the two agree to `tolerance`, relative to the larger of one and the values' size.
#[track_caller]
pub(crate) fn assert_close<T: Real>(got: &[T], want: &[T], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let scale = want.iter().map(|w| w.to_f64().abs()).fold(1.0, f64::max);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (g.to_f64() - w.to_f64()).abs() / scale;
        assert!(error <= tolerance, "element {i}: {g:?} is not {w:?} ({error:e})");
    }
}

/// Fails unless what a kernel wrote agrees with its oracle to `tolerance`, in the measure of [`assert_close`].
#[track_caller]
pub(crate) fn assert_follows<T: Real>(got: &[T], plain: &[f64], tolerance: f64) {
    assert_close(&wide(got), plain, tolerance);
}
