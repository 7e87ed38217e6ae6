//! One loop, compiled for each instruction set, chosen when the program runs.
//!
//! Kernels are plain loops over slices that the compiler turns into vector instructions. [`simd!`] compiles such a
//! function three times (AVX-512, AVX2 with FMA, and the target's baseline, which on aarch64 has NEON) and calls the best
//! that this machine has. The environment variable `DINO_VMF_SIMD` (`baseline`, `avx2`, `avx512`) sets an upper bound, so
//! that every version can be tested on one machine. A word that is none of these bounds nothing; [`requested`] reports it.

use std::sync::OnceLock;

/// The instruction sets that kernels are compiled for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every machine of the target has.
    Baseline,
    /// AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The F, BW, DQ and VL parts of AVX-512, and AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// What to call it.
    pub fn name(self) -> &'static str {
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

/// The environment variable that bounds the level.
pub const VARIABLE: &str = "DINO_VMF_SIMD";

/// The words that [`VARIABLE`] may hold, on any processor.
pub const WORDS: [&str; 3] = ["baseline", "avx2", "avx512"];

/// [`VARIABLE`] holds a word that is none of [`WORDS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLevel {
    /// What it holds.
    pub value: String,
}

impl std::fmt::Display for UnknownLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{VARIABLE} is {:?}, which is none of {}", self.value, WORDS.join(", "))
    }
}

impl std::error::Error for UnknownLevel {}

/// The upper bound that the environment sets: none where [`VARIABLE`] is not set or empty.
pub fn requested() -> Result<Option<Level>, UnknownLevel> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(None) };
    bound(&value.to_string_lossy())
}

fn bound(word: &str) -> Result<Option<Level>, UnknownLevel> {
    match word {
        "" => Ok(None),
        "baseline" => Ok(Some(Level::Baseline)),
        #[cfg(target_arch = "x86_64")]
        "avx2" => Ok(Some(Level::Avx2)),
        #[cfg(target_arch = "x86_64")]
        "avx512" => Ok(Some(Level::Avx512)),
        // Other processors have the baseline alone, which is below both.
        #[cfg(not(target_arch = "x86_64"))]
        "avx2" | "avx512" => Ok(Some(Level::Baseline)),
        _ => Err(UnknownLevel { value: word.into() }),
    }
}

/// The level that kernels run at: the best of this machine, or less where the environment asks for less.
#[inline]
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| match requested() {
        Ok(Some(bound)) => of_this_machine().min(bound),
        Ok(None) | Err(UnknownLevel { .. }) => of_this_machine(),
    })
}

/// The best level of this machine.
pub fn of_this_machine() -> Level {
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
///
/// ```
/// simd::simd! {
///     /// Doubles every value.
///     fn double(values: &mut [f32]) {
///         values.iter_mut().for_each(|v| *v *= 2.0);
///     }
/// }
/// let mut values = [1.0, 2.5];
/// double(&mut values);
/// assert_eq!(values, [2.0, 5.0]);
/// ```
#[macro_export]
macro_rules! simd {
    ($(#[$meta:meta])* $vis:vis fn $name:ident$(<$T:ident: $Bound:ident>)?($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name$(<$T: $Bound>)?($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body$(<$T: $Bound>)?($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512$(<$T: $Bound>)?($($arg: $ty),*) $(-> $ret)? { body$(::<$T>)?($($arg),*) }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2$(<$T: $Bound>)?($($arg: $ty),*) $(-> $ret)? { body$(::<$T>)?($($arg),*) }

            match $crate::level() {
                // SAFETY: `level` has asked this processor for the features that the function enables.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx512 => unsafe { avx512$(::<$T>)?($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::Level::Avx2 => unsafe { avx2$(::<$T>)?($($arg),*) },
                $crate::Level::Baseline => body$(::<$T>)?($($arg),*),
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_bound_and_no_other_is() {
        let bounds = WORDS.map(|word| bound(word).unwrap().unwrap());
        assert!(bounds.is_sorted() && bounds[0] == Level::Baseline);
        assert_eq!(bound(""), Ok(None));
        for word in ["avx", "AVX2", "avx512 ", "none"] {
            let error = bound(word).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("DINO_VMF_SIMD is {word:?}, which is none of baseline, avx2, avx512")
            );
        }
    }
}
