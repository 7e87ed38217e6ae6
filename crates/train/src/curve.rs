//! Values that change while a run goes on: learning rate, weight decay, momentum, temperatures.
//!
//! Every value is a function of the iteration (or epoch) alone, in f64, so that a resumed run needs no schedule state.
//! The curves are DINO's to the last digit of an f64, oddities included: the warm-up has both its endpoints, hence
//! iteration 0 has learning rate 0 and the peak appears twice, and the cosine never quite reaches its end value.

/// A function of the number of an iteration or epoch, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Curve {
    /// The same value throughout.
    Constant(f64),
    /// Evenly spaced points from one value to another, both included, then the second.
    Ramp {
        /// The first value.
        from: f64,
        /// The last value, which stays.
        to: f64,
        /// How many points there are from the one to the other.
        points: u64,
    },
    /// Half a cosine after a linear warm-up: see [`cosine`].
    Cosine(Cosine),
}

/// Linear warm-up from 0 to `base`, then half a cosine from `base` towards `end`; one value per iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// Where the warm-up begins: at zero in its first iteration, or above it with the first one a step further.
    start: Option<f64>,
    base: f64,
    end: f64,
    total: u64,
    warmup: u64,
}

/// The curve of `total` iterations, the first `warmup` of which rise linearly from 0 to `base`; from there half a cosine
/// leads to `end`, which is the value of every iteration after the last.
pub fn cosine(base: f64, end: f64, total: u64, warmup: u64) -> Curve {
    Curve::Cosine(Cosine { start: None, base, end, total, warmup })
}

/// The same with a warm-up from `start`, whose last iteration has `base`: MSN's.
pub fn cosine_from(start: f64, base: f64, end: f64, total: u64, warmup: u64) -> Curve {
    Curve::Cosine(Cosine { start: Some(start), base, end, total, warmup })
}

impl Curve {
    /// The value at a place counted from 0.
    pub fn at(&self, i: u64) -> f64 {
        match *self {
            Curve::Constant(value) => value,
            Curve::Ramp { to, points, .. } if i >= points => to,
            Curve::Ramp { from, to, points } => linspace(from, to, points, i),
            Curve::Cosine(curve) => curve.at(i),
        }
    }
}

impl Cosine {
    fn at(&self, i: u64) -> f64 {
        if i < self.warmup {
            return match self.start {
                None => linspace(0.0, self.base, self.warmup, i),
                Some(start) => linspace(start, self.base, self.warmup + 1, i + 1),
            };
        }
        if i >= self.total {
            return self.end;
        }
        let (done, points) = ((i - self.warmup) as f64, (self.total - self.warmup) as f64);
        self.end + 0.5 * (self.base - self.end) * (1.0 + (std::f64::consts::PI * done / points).cos())
    }
}

/// Point `i` of `points` evenly spaced ones from `from` to `to`, both included; a single point is `from`.
fn linspace(from: f64, to: f64, points: u64, i: u64) -> f64 {
    match points.saturating_sub(1) {
        0 => from,
        // Set rather than computed: the last point must equal `to` in every bit.
        last if i >= last => to,
        last => i as f64 * ((to - from) / last as f64) + from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_of_one_point_is_its_start_and_none_starts_at_the_base() {
        assert_eq!((cosine(2.0, 0.0, 10, 1).at(0), cosine(2.0, 0.0, 10, 1).at(1)), (0.0, 2.0));
        assert_eq!(cosine(2.0, 0.0, 10, 0).at(0), 2.0);
        assert_eq!(cosine(2.0, 0.0, 3, 3).at(2), 2.0);
        assert_eq!(cosine(2.0, 0.5, 3, 0).at(3), 0.5);
    }

    #[test]
    fn a_ramp_has_both_ends_and_stays_at_the_second() {
        let ramp = Curve::Ramp { from: 0.04, to: 0.07, points: 30 };
        assert_eq!((ramp.at(0), ramp.at(29), ramp.at(30), ramp.at(u64::MAX)), (0.04, 0.07, 0.07, 0.07));
        assert!((ramp.at(1) - (0.04 + 0.03 / 29.0)).abs() < 1e-17);
        assert_eq!(Curve::Ramp { from: 1.0, to: 2.0, points: 0 }.at(0), 2.0);
        assert_eq!(Curve::Ramp { from: 1.0, to: 2.0, points: 1 }.at(0), 1.0);
        assert_eq!(Curve::Constant(3.0).at(7), 3.0);
    }
}
