//! A step along a direction that satisfies the strong Wolfe conditions (Nocedal and Wright, *Numerical Optimization*,
//! algorithms 3.5 and 3.6): first the step grows until a minimum is bracketed, then the bracket shrinks by cubic
//! interpolation. Or, where the value has no more digits to tell, Hager and Zhang's approximate conditions, which look at
//! slopes alone.
//!
//! It asks and is told, so that many searches can share one pass over the data.

/// Sufficient decrease, as a share of what the slope promises.
const DECREASE: f64 = 1e-4;
/// The slope has to shrink to this share.
const SLOPE: f64 = 0.9;
/// Of the approximate conditions: how far beyond the minimum of a parabola a step may lead.
const BEYOND: f64 = 0.1;
/// Values that one search may ask for.
const MOST: usize = 30;

/// The function at a step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    step: f64,
    value: f64,
    slope: f64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Take the step that was tried.
    Accept,
    /// Try [`LineSearch::step`].
    Try,
    /// No step is better: rounding, or no direction of descent.
    Fail,
}

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct LineSearch {
    start: Sample,
    /// The best so far; the function falls from here towards the other end.
    low: Sample,
    /// The other end, once there is one.
    high: Option<Sample>,
    step: f64,
    /// Differences of values below this mean nothing.
    noise: f64,
    told: usize,
}

impl LineSearch {
    /// From a point with this value and this slope, which is negative. Differences below `noise` mean nothing.
    pub(super) fn new(value: f64, slope: f64, noise: f64) -> Self {
        let start = Sample { step: 0.0, value, slope };
        Self { start, low: start, high: None, step: 1.0, noise, told: 0 }
    }

    /// The step to try.
    pub(super) fn step(&self) -> f64 {
        self.step
    }

    /// Takes value and slope at [`LineSearch::step`].
    pub(super) fn tell(&mut self, value: f64, slope: f64) -> Verdict {
        let tried = Sample { step: self.step, value, slope };
        self.told += 1;
        if !value.is_finite() || !slope.is_finite() {
            self.step = self.low.step + 0.1 * (self.step - self.low.step);
            return if self.told < MOST { Verdict::Try } else { Verdict::Fail };
        }
        if self.is_acceptable(&tried) {
            return Verdict::Accept;
        }
        let armijo = self.start.value + DECREASE * tried.step * self.start.slope + self.noise;
        if value > armijo || value > self.low.value + self.noise {
            self.high = Some(tried);
        } else {
            let towards_high = self.high.map_or(1.0, |high| high.step - self.low.step);
            if slope * towards_high >= 0.0 {
                self.high = Some(self.low);
            }
            self.low = tried;
        }
        self.step = match self.high {
            // A step too short is the rule for a direction that is not scaled yet.
            None => 4.0 * self.low.step,
            Some(high) => between(&self.low, &high),
        };
        let width = self.high.map_or(f64::INFINITY, |high| (high.step - self.low.step).abs());
        let is_spent = self.told >= MOST || width <= 1e-12 * self.low.step || !self.step.is_finite();
        if is_spent { Verdict::Fail } else { Verdict::Try }
    }

    fn is_acceptable(&self, tried: &Sample) -> bool {
        let Sample { value: value_0, slope: slope_0, .. } = self.start;
        let strong =
            tried.value <= value_0 + DECREASE * tried.step * slope_0 && tried.slope.abs() <= SLOPE * slope_0.abs();
        let slopes = tried.slope >= SLOPE * slope_0 && tried.slope <= (2.0 * BEYOND - 1.0) * slope_0;
        strong || tried.value <= value_0 + self.noise && slopes
    }
}

/// The minimum of the cubic through two samples, kept off both ends.
fn between(a: &Sample, b: &Sample) -> f64 {
    let width = b.step - a.step;
    let d1 = a.slope + b.slope - 3.0 * (b.value - a.value) / width;
    let d2 = (d1 * d1 - a.slope * b.slope).max(0.0).sqrt() * width.signum();
    let share = 1.0 - (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2);
    let share = if share.is_finite() { share.clamp(0.1, 0.9) } else { 0.5 };
    a.step + share * width
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(f: impl Fn(f64) -> (f64, f64), noise: f64) -> Option<(f64, usize)> {
        let (value, slope) = f(0.0);
        let mut search = LineSearch::new(value, slope, noise);
        for asked in 1.. {
            let step = search.step();
            let (value, slope) = f(step);
            match search.tell(value, slope) {
                Verdict::Accept => return Some((step, asked)),
                Verdict::Try => {}
                Verdict::Fail => return None,
            }
        }
        None
    }

    #[test]
    fn accepted_steps_satisfy_both_conditions() {
        let functions: [fn(f64) -> (f64, f64); 5] = [
            |t| ((t - 1.0).powi(2), 2.0 * (t - 1.0)),
            |t| ((t - 300.0).powi(2), 2.0 * (t - 300.0)),
            |t| ((t - 1e-4).powi(2), 2.0 * (t - 1e-4)),
            // Moré and Thuente's first function: a long flat tail.
            |t| (-t / (t * t + 2.0), (t * t - 2.0) / (t * t + 2.0).powi(2)),
            |t| ((t - 5.0).abs().powf(1.5), 1.5 * (t - 5.0).signum() * (t - 5.0).abs().sqrt()),
        ];
        for (number, f) in functions.iter().enumerate() {
            let (step, asked) = run(f, 0.0).unwrap();
            let ((value_0, slope_0), (value, slope)) = (f(0.0), f(step));
            assert!(value <= value_0 + 1e-4 * step * slope_0 && slope.abs() <= 0.9 * slope_0.abs(), "{number}");
            assert!(asked < 15, "{number}: {asked}");
        }
    }

    #[test]
    fn a_wall_is_backed_away_from() {
        let f = |t: f64| if t > 0.01 { (f64::NAN, f64::NAN) } else { (-t, -1.0) };
        assert_eq!(run(f, 0.0), None, "falls up to the wall: no step satisfies the second condition");
        let f = |t: f64| if t > 0.5 { (f64::INFINITY, 0.0) } else { ((t - 0.05).powi(2), 2.0 * (t - 0.05)) };
        let (step, _) = run(f, 0.0).unwrap();
        assert!(step > 0.0 && step < 0.2, "{step}");
    }

    #[test]
    fn slopes_decide_where_values_are_noise() {
        // The true decrease is 1e-12, the noise 1e-8: the value seems to rise.
        let f = |t: f64| (1.0 + 5e-9 * t.sin().abs(), 2e-12 * (t - 1.0));
        assert_eq!(run(f, 1e-8), Some((1.0, 1)));
        assert_eq!(run(f, 0.0), None);
    }
}
