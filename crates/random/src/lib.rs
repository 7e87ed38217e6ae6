//! Keyed randomness: a draw is a function of what it is for, never of what was drawn before it.
//!
//! A [`Key`] names a use: (seed, epoch, sample, view, purpose). It fills the 256-bit key of a ChaCha8 stream, so two
//! different keys can never share a stream and no hash can collide. The number of threads, the order of work, a resume in
//! the middle of an epoch or a change of machine count cannot change what a key yields.
//!
//! The conversions to floats and ranges are ours rather than a distribution crate's, so that a dependency update
//! cannot silently change every run.
//!
//! ```
//! use random::{Key, Purpose};
//! let key = Key::new(7, Purpose::View).epoch(3).sample(41).view(1);
//! assert_eq!(key.stream().uniform(), key.stream().uniform());
//! ```

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// What the numbers are for. The discriminant is part of the key: never renumber, only append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Initial values of a parameter; `sample` is the hash of the parameter's name, `epoch` is unused.
    Init = 1,
    /// The permutation of an epoch.
    Shuffle = 2,
    /// The augmentation parameters of one view of one sample.
    View = 3,
    /// Which residual branches a view skips.
    DropPath = 4,
    /// The content of a procedural image.
    Synthetic = 5,
    /// Inputs of benchmarks and tests.
    Bench = 6,
    /// Which samples form a subset (a held-out split, the images of an online evaluation).
    Subset = 7,
    /// Which patches of a view are masked.
    Mask = 8,
    /// Which patches of an anchor are kept.
    Keep = 9,
    /// The rectangle of a training image that is erased, and what takes its place.
    Erase = 10,
    /// How the images of a batch are mixed; `sample` is the group, `epoch` the step.
    Mix = 11,
}

/// Names one stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    seed: u64,
    epoch: u64,
    sample: u64,
    view: u32,
    purpose: Purpose,
}

impl Key {
    /// The key of a purpose under a run's seed, with every other coordinate zero.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self { seed, epoch: 0, sample: 0, view: 0, purpose }
    }

    /// The same key for another epoch (or step, where a purpose counts in steps).
    pub fn epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// The same key for another sample.
    pub fn sample(self, sample: u64) -> Self {
        Self { sample, ..self }
    }

    /// The same key for another view of the sample.
    pub fn view(self, view: u32) -> Self {
        Self { view, ..self }
    }

    /// The stream of this key, from its start.
    pub fn stream(self) -> Stream {
        let mut bytes = [0u8; 32];
        bytes[0..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sample.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.view.to_le_bytes());
        bytes[28..32].copy_from_slice(&(self.purpose as u32).to_le_bytes());
        Stream { rng: ChaCha8Rng::from_seed(bytes) }
    }
}

/// FNV-1a, 64 bits: order matters, and the value is the same on every machine and in every version. Against accidents, not
/// against forgery.
///
/// ```
/// let mut hash = random::StableHash::new();
/// hash.write(b"foobar");
/// assert_eq!(hash.finish(), 0x85944171f73967e8); // one of the published test vectors
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StableHash(u64);

impl StableHash {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    }

    /// The hash of all bytes so far.
    pub fn finish(self) -> u64 {
        self.0
    }
}

impl Default for StableHash {
    fn default() -> Self {
        Self::new()
    }
}

/// The numbers of one key, in order.
#[derive(Clone, Debug)]
pub struct Stream {
    rng: ChaCha8Rng,
}

impl Stream {
    /// Sixty-four random bits.
    pub fn bits(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform in [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in [low, high); `low` where the two are equal.
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// True with probability `p`: never for 0, always for 1.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Uniform in 0..n, without modulo bias.
    ///
    /// # Panics
    /// When `n` is zero: there is nothing to choose from.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "an empty range has no element to draw");
        // Multiply-shift; a draw that falls into the uneven remainder is repeated.
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.bits()) * u128::from(n);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Standard normal, by Box and Muller; the second value of the pair is dropped so that a draw has no memory.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// From the beta distribution with both parameters `a`, by Jöhnk: quick up to about one, where mixing images needs it.
    ///
    /// # Panics
    /// When `a` is not above zero.
    pub fn symmetric_beta(&mut self, a: f64) -> f64 {
        assert!(a > 0.0, "a beta distribution has parameters above zero: {a}");
        loop {
            let [x, y] = [(); 2].map(|()| self.uniform().powf(1.0 / a));
            // Both may be too small for a number.
            if x + y <= 1.0 && x + y > 0.0 {
                return x / (x + y);
            }
        }
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_coordinate_of_a_key_changes_its_stream() {
        let base = Key::new(1, Purpose::View);
        let others =
            [Key::new(2, Purpose::View), Key::new(1, Purpose::Init), base.epoch(1), base.sample(1), base.view(1)];
        let first = base.stream().bits();
        for other in others {
            assert_ne!(first, other.stream().bits(), "{other:?}");
        }
    }

    #[test]
    fn streams_stay_what_they_were() {
        // Changing these numbers changes every run ever made with this program.
        let mut s = Key::new(42, Purpose::Shuffle).epoch(3).stream();
        let drawn = [s.bits(), s.bits(), s.below(1000)];
        assert_eq!(drawn, PINNED, "{drawn:?}");
    }
    const PINNED: [u64; 3] = [3980555888462246319, 16912972802004852387, 862];

    #[test]
    fn normal_draws_have_unit_variance_and_no_skew() {
        let mut s = Key::new(0, Purpose::Bench).stream();
        let n = 200_000;
        let (mut sum, mut square, mut cube) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = s.normal();
            sum += x;
            square += x * x;
            cube += x * x * x;
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.01);
        assert!((square / n - 1.0).abs() < 0.02);
        assert!((cube / n).abs() < 0.04);
    }

    #[test]
    fn beta_draws_have_the_mean_and_the_variance_of_their_distribution() {
        for a in [0.2, 0.8, 1.0, 2.0] {
            let mut s = Key::new(4, Purpose::Bench).stream();
            let drawn: Vec<f64> = (0..100_000).map(|_| s.symmetric_beta(a)).collect();
            let n = drawn.len() as f64;
            let mean = drawn.iter().sum::<f64>() / n;
            let moment = |power| drawn.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / n;
            let variance = 1.0 / (4.0 * (2.0 * a + 1.0));
            assert!((mean - 0.5).abs() < 0.005 && (moment(2) / variance - 1.0).abs() < 0.02, "{a}: {mean}");
            // The fourth central moment over the square of the variance.
            let kurtosis = 3.0 - 6.0 / (2.0 * a + 3.0);
            assert!((moment(4) / moment(2).powi(2) - kurtosis).abs() < 0.03, "{a}");
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation_and_below_covers_its_range_evenly() {
        let mut items: Vec<u32> = (0..100).collect();
        let mut s = Key::new(9, Purpose::Shuffle).stream();
        s.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[s.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|&c| (9_500..10_500).contains(&c)), "{counts:?}");
    }
}
