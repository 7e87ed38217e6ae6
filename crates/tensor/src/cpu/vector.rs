//! Loops over rows that every kernel shares. All are inlined into a `simd!` function, which gives them their
//! instructions.

use super::Real;

/// Partial sums of a reduction: wide enough for two AVX-512 registers of f32, the same on every machine.
const LANES: usize = 32;

/// Adds up the lanes pairwise, always in the same order.
#[inline(always)]
fn fold<T: Real>(mut lanes: [T; LANES], join: impl Fn(T, T) -> T) -> T {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = join(lanes[i], lanes[i + width]);
        }
    }
    lanes[0]
}

/// Sum of f(x).
#[inline(always)]
pub(super) fn sum_of<T: Real>(x: &[T], f: impl Fn(T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f(chunk[i]);
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        lanes[i] += f(x);
    }
    fold(lanes, |a, b| a + b)
}

/// Sum of f(x, y).
#[inline(always)]
pub(super) fn sum_of_pairs<T: Real>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y[..x.len()].as_chunks::<LANES>();
    for (chunk, y_chunk) in chunks.iter().zip(y_chunks) {
        for i in 0..LANES {
            lanes[i] += f(chunk[i], y_chunk[i]);
        }
    }
    for (i, (&x, &y)) in rest.iter().zip(y_rest).enumerate() {
        lanes[i] += f(x, y);
    }
    fold(lanes, |a, b| a + b)
}

/// Sum of f(x, y, z).
#[inline(always)]
pub(super) fn sum_of_triples<T: Real>(x: &[T], y: &[T], z: &[T], f: impl Fn(T, T, T) -> T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y[..x.len()].as_chunks::<LANES>();
    let (z_chunks, z_rest) = z[..x.len()].as_chunks::<LANES>();
    for ((x, y), z) in chunks.iter().zip(y_chunks).zip(z_chunks) {
        for i in 0..LANES {
            lanes[i] += f(x[i], y[i], z[i]);
        }
    }
    for (i, ((&x, &y), &z)) in rest.iter().zip(y_rest).zip(z_rest).enumerate() {
        lanes[i] += f(x, y, z);
    }
    fold(lanes, |a, b| a + b)
}

/// Inner product.
#[inline(always)]
pub(super) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    sum_of_pairs(x, y, |x, y| x * y)
}

/// The largest f(x, y).
#[inline(always)]
pub(super) fn max_of_pairs<T: Real>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::LOWEST; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    let (y_chunks, y_rest) = y[..x.len()].as_chunks::<LANES>();
    for (chunk, y_chunk) in chunks.iter().zip(y_chunks) {
        for i in 0..LANES {
            lanes[i] = f(chunk[i], y_chunk[i]).larger(lanes[i]);
        }
    }
    for (i, (&x, &y)) in rest.iter().zip(y_rest).enumerate() {
        lanes[i] = f(x, y).larger(lanes[i]);
    }
    fold(lanes, |a, b| a.larger(b))
}

/// `y += a x`.
#[inline(always)]
pub(super) fn axpy<T: Real>(y: &mut [T], a: T, x: &[T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = a.mul_add(x, *y);
    }
}

/// `y += x`.
#[inline(always)]
pub(super) fn add<T: Real>(y: &mut [T], x: &[T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::testing::noise;

    #[test]
    fn reductions_match_iterators_at_every_remainder_of_the_lanes() {
        for len in [0, 1, 2, 31, 32, 33, 63, 64, 65, 100, 777] {
            let [x, y, z] = [1, 2, 3].map(|seed| noise::<f64>(seed, len));
            let pairs = || x.iter().zip(&y);
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{len}: {a} {b}");
            close(sum_of(&x, |x| x * x), x.iter().map(|x| x * x).sum());
            close(sum_of_pairs(&x, &y, |x, y| x - 2.0 * y), pairs().map(|(x, y)| x - 2.0 * y).sum());
            close(sum_of_triples(&x, &y, &z, |x, y, z| x * y + z), pairs().zip(&z).map(|((x, y), z)| x * y + z).sum());
            close(dot(&x, &y), pairs().map(|(x, y)| x * y).sum());
            let largest = pairs().map(|(x, y)| x + y).fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(max_of_pairs(&x, &y, |x, y| x + y), largest, "{len}");
        }
    }

    #[test]
    fn a_sum_of_nan_is_nan_wherever_it_lies() {
        for at in [0, 31, 32, 40] {
            let mut x = vec![1.0f32; 41];
            x[at] = f32::NAN;
            assert!(sum_of(&x, |x| x).is_nan() && dot(&x, &x).is_nan(), "{at}");
        }
    }
}
