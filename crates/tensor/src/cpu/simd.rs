//! One loop, compiled for each instruction set, chosen when the program runs.
//!
//! Kernels are plain loops over slices that the compiler turns into vector instructions. [`simd!`] compiles such a
//! function three times (AVX-512, AVX2 with FMA, and the target's baseline, which on aarch64 has NEON) and calls the best
//! that this machine has. Sums use a fixed number of lanes, so the choice does not change the order of additions.

/// The instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// What every machine of the target has.
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "aarch64")]
            Level::Baseline => "NEON",
            #[cfg(not(target_arch = "aarch64"))]
            Level::Baseline => "no vector extensions",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "AVX-512",
        }
    }
}

/// The best level of this machine. The standard library caches what the processor answered.
#[inline]
pub(crate) fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            return Level::Avx512;
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// Compiles a function over slices for each [`Level`] and dispatches to the machine's.
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$T:ident: $Bound:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name<$T: $Bound>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$T: $Bound>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$T: $Bound>($($arg: $ty),*) $(-> $ret)? { body::<$T>($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$T: $Bound>($($arg: $ty),*) $(-> $ret)? { body::<$T>($($arg),*) }

            match $crate::cpu::simd::level() {
                // SAFETY: `level` has just asked this processor for the features that the function enables.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::simd::Level::Avx512 => unsafe { avx512::<$T>($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::cpu::simd::Level::Avx2 => unsafe { avx2::<$T>($($arg),*) },
                $crate::cpu::simd::Level::Baseline => body::<$T>($($arg),*),
            }
        }
    };
}
pub(crate) use simd;
