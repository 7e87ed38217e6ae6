//! The innermost loop of a matrix product: one tile of the result, held in registers.
//!
//! A tile has `rows` rows and two vector registers of columns. For each step along the inner dimension two vectors of b
//! are loaded and each of the tile's rows adds its element of a times both. Every element of the result is one chain of
//! fused multiply-adds in the order of the inner dimension, so neither the tile's size nor the instruction set changes
//! a bit of it.

use crate::cpu::Real;
use crate::cpu::simd::{Level, level};

/// Rows and columns of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub rows: usize,
    pub columns: usize,
}

/// The largest tile of any instruction set, in elements.
pub(crate) const LARGEST_TILE: usize = 12 * 32;

/// The tile of this machine for elements of this type: as many rows as leave registers for two vectors of b and one
/// element of a.
pub(super) fn tile<T: Real>() -> Tile {
    let (rows, bytes) = match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => (12, 64),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => (6, 32),
        Level::Baseline => (8, 16),
    };
    Tile { rows, columns: 2 * bytes / size_of::<T>() }
}

/// Steps along the inner dimension that a packed left factor groups.
pub(crate) const GROUP: usize = 4;

/// A tile's rows of the left factor, packed in groups of [`GROUP`] steps; the last group may be partly unused. Within a
/// group either each row's steps lie together, which is how rows are copied fastest, or each step's rows, which is how
/// columns are. The tile loop reads both at fixed distances from where it is.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a, T> {
    pub data: &'a [T],
    pub order: Order,
}

/// What lies together in a group of a [`Strip`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Rows,
    Steps,
}

/// `out = sum_l a_l b_l` for a tile; `b` holds `columns` elements for each step l.
pub(super) fn multiply<T: Real>(tile: Tile, a: Strip<'_, T>, b: &[T], out: &mut [T; LARGEST_TILE]) {
    let depth = b.len() / tile.columns;
    assert!(a.data.len() >= depth.next_multiple_of(GROUP) * tile.rows, "a strip as deep as b");
    T::multiply_tile(a, b, out);
}

/// Vectors of one instruction set.
trait Vector: Copy {
    type Element: Real;
    const LANES: usize;
    fn zero() -> Self;
    /// The vector at the start of a slice.
    fn load(from: &[Self::Element]) -> Self;
    fn store(self, to: &mut [Self::Element]);
    /// `self + a b`, a being the same in every lane.
    fn add_product(self, a: Self::Element, b: Self) -> Self;
}

#[inline(always)]
fn run<V: Vector, const ROWS: usize>(a: Strip<'_, V::Element>, b: &[V::Element], out: &mut [V::Element; LARGEST_TILE]) {
    match a.order {
        Order::Rows => run_in_order::<V, ROWS, true>(a.data, b, out),
        Order::Steps => run_in_order::<V, ROWS, false>(a.data, b, out),
    }
}

#[inline(always)]
fn run_in_order<V: Vector, const ROWS: usize, const BY_ROW: bool>(
    a: &[V::Element],
    b: &[V::Element],
    out: &mut [V::Element; LARGEST_TILE],
) {
    let mut sums = [[V::zero(); 2]; ROWS];
    let width = 2 * V::LANES;
    let step = |sums: &mut [[V; 2]; ROWS], a: &[V::Element], b: &[V::Element], q: usize| {
        let (b0, b1) = (V::load(b), V::load(&b[V::LANES..]));
        for i in 0..ROWS {
            let a = a[if BY_ROW { i * GROUP + q } else { q * ROWS + i }];
            sums[i][0] = sums[i][0].add_product(a, b0);
            sums[i][1] = sums[i][1].add_product(a, b1);
        }
    };
    let mut groups = a.chunks_exact(GROUP * ROWS);
    let mut steps = b.chunks_exact(GROUP * width);
    for b in &mut steps {
        let Some(a) = groups.next() else { break };
        for q in 0..GROUP {
            step(&mut sums, a, &b[q * width..(q + 1) * width], q);
        }
    }
    if let Some(a) = groups.next() {
        for (q, b) in steps.remainder().chunks_exact(width).enumerate() {
            step(&mut sums, a, b, q);
        }
    }
    for (row, out) in sums.iter().zip(out.chunks_exact_mut(2 * V::LANES)) {
        row[0].store(out);
        row[1].store(&mut out[V::LANES..]);
    }
}

/// How an element type multiplies tiles on each instruction set.
pub(crate) trait TileProduct: Sized {
    fn multiply_tile(a: Strip<'_, Self>, b: &[Self], out: &mut [Self; LARGEST_TILE]);
}

macro_rules! x86_vector {
    ($name:ident, $element:ty, $register:ty, $lanes:expr, $zero:ident, $load:ident, $store:ident, $splat:ident, $fma:ident) => {
        #[cfg(target_arch = "x86_64")]
        #[derive(Clone, Copy)]
        struct $name($register);

        #[cfg(target_arch = "x86_64")]
        impl Vector for $name {
            type Element = $element;
            const LANES: usize = $lanes;
            #[inline(always)]
            fn zero() -> Self {
                // SAFETY: only reached from a function that enables these instructions, after `level` has found them.
                Self(unsafe { std::arch::x86_64::$zero() })
            }
            #[inline(always)]
            fn load(from: &[$element]) -> Self {
                let from = &from[..$lanes];
                // SAFETY: as in `zero`; the slice has as many elements as the vector has lanes.
                Self(unsafe { std::arch::x86_64::$load(from.as_ptr()) })
            }
            #[inline(always)]
            fn store(self, to: &mut [$element]) {
                let to = &mut to[..$lanes];
                // SAFETY: as in `load`.
                unsafe { std::arch::x86_64::$store(to.as_mut_ptr(), self.0) }
            }
            #[inline(always)]
            fn add_product(self, a: $element, b: Self) -> Self {
                // SAFETY: as in `zero`.
                Self(unsafe { std::arch::x86_64::$fma(std::arch::x86_64::$splat(a), b.0, self.0) })
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

x86_vector!(
    F32x16,
    f32,
    __m512,
    16,
    _mm512_setzero_ps,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_fmadd_ps
);
x86_vector!(
    F64x8,
    f64,
    __m512d,
    8,
    _mm512_setzero_pd,
    _mm512_loadu_pd,
    _mm512_storeu_pd,
    _mm512_set1_pd,
    _mm512_fmadd_pd
);
x86_vector!(
    F32x8,
    f32,
    __m256,
    8,
    _mm256_setzero_ps,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_fmadd_ps
);
x86_vector!(
    F64x4,
    f64,
    __m256d,
    4,
    _mm256_setzero_pd,
    _mm256_loadu_pd,
    _mm256_storeu_pd,
    _mm256_set1_pd,
    _mm256_fmadd_pd
);

/// Sixteen bytes of elements in plain code, which every target's compiler has vectors for.
#[derive(Clone, Copy)]
struct Plain<T, const LANES: usize>([T; LANES]);

impl<T: Real, const N: usize> Vector for Plain<T, N> {
    type Element = T;
    const LANES: usize = N;
    #[inline(always)]
    fn zero() -> Self {
        Self([T::ZERO; N])
    }
    #[inline(always)]
    fn load(from: &[T]) -> Self {
        Self(std::array::from_fn(|i| from[i]))
    }
    #[inline(always)]
    fn store(self, to: &mut [T]) {
        to[..N].copy_from_slice(&self.0);
    }
    #[inline(always)]
    fn add_product(self, a: T, b: Self) -> Self {
        Self(std::array::from_fn(|i| a.mul_add(b.0[i], self.0[i])))
    }
}

macro_rules! tile_product {
    ($element:ty, $wide:ident, $narrow:ident, $plain:expr) => {
        impl TileProduct for $element {
            fn multiply_tile(a: Strip<'_, Self>, b: &[Self], out: &mut [Self; LARGEST_TILE]) {
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512(a: Strip<'_, $element>, b: &[$element], out: &mut [$element; LARGEST_TILE]) {
                    run::<$wide, 12>(a, b, out);
                }
                #[cfg(target_arch = "x86_64")]
                #[target_feature(enable = "avx2,fma")]
                fn avx2(a: Strip<'_, $element>, b: &[$element], out: &mut [$element; LARGEST_TILE]) {
                    run::<$narrow, 6>(a, b, out);
                }
                match level() {
                    // SAFETY: `level` has just asked this processor for the features that the function enables.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => unsafe { avx512(a, b, out) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => unsafe { avx2(a, b, out) },
                    Level::Baseline => run::<Plain<$element, $plain>, 8>(a, b, out),
                }
            }
        }
    };
}

tile_product!(f32, F32x16, F32x8, 4);
tile_product!(f64, F64x8, F64x4, 2);
