//! From numbers to places on an axis, with ticks that people count in.

/// Orders of magnitude below which a logarithmic axis does not reach: what is smaller is drawn at its foot.
const DECADES: f64 = 12.0;

/// The range of an axis, linear or logarithmic.
///
/// ```
/// use report::scale::Scale;
/// let scale = Scale::linear([3.2, 97.0]);
/// assert_eq!(scale.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
/// assert_eq!(scale.place(50.0), 0.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// A linear axis that holds all finite values, with round numbers at its ends.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = range(values.into_iter().filter(|value| value.is_finite())).unwrap_or((0.0, 1.0));
        // A constant is drawn in the middle of something, however large it is.
        let (low, high) = match high - low > 1e-9 * low.abs().max(high.abs()) {
            true => (low, high),
            false if low == 0.0 => (0.0, 1.0),
            false => (low.min(0.0).max(low - low.abs()), low + low.abs()),
        };
        // Zero is near: the eye compares lengths, and a cut axis lies.
        let low = if low > 0.0 && low < 0.35 * high { 0.0 } else { low };
        let step = round_step((high - low) / 4.0);
        Self { from: (low / step + 1e-9).floor() * step, to: (high / step - 1e-9).ceil() * step, is_logarithmic: false }
    }

    /// A logarithmic axis that holds all positive values. Linear where there are none.
    pub fn logarithmic(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let Some((low, high)) = range(positive) else { return Self::linear([]) };
        let (low, high) = (low.max(high / 10f64.powf(DECADES)).log10().floor(), high.log10().ceil());
        Self { from: 10f64.powf(low), to: 10f64.powf(high.max(low + 1.0)), is_logarithmic: true }
    }

    /// An axis of exactly this range.
    pub fn exact(from: f64, to: f64) -> Self {
        Self { from, to: if to > from { to } else { from + 1.0 }, is_logarithmic: false }
    }

    /// Where a value is between the ends, from 0 to 1; values beyond are at an end.
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    /// Its ends, and whether it is logarithmic.
    pub fn ends(&self) -> (f64, f64, bool) {
        (self.from, self.to, self.is_logarithmic)
    }

    /// The multiples of a step on a linear axis, ascending; the ends where there are too many of them or none.
    pub fn multiples(&self, step: f64) -> Vec<f64> {
        let first = (self.from / step - 1e-9).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        // A range of a few ulps has no round numbers in it; its ends will do.
        match (0..=1000).contains(&(last - first)) {
            true => (first..=last).map(|i| i as f64 * step).collect(),
            false => vec![self.from, self.to],
        }
    }

    /// About so many round numbers on it, ascending.
    pub fn ticks(&self, about: usize) -> Vec<f64> {
        let about = about.max(2) as f64;
        if self.is_logarithmic {
            let (first, last) = (self.from.log10().round() as i32, self.to.log10().round() as i32);
            let every = (f64::from(last - first) / about).ceil().max(1.0) as usize;
            return (first..=last).step_by(every).map(|power| 10f64.powi(power)).collect();
        }
        self.multiples(round_step((self.to - self.from) / about))
    }
}

/// How ticks are written: as short as [`shown`] has them, with more digits where that is not where they are.
pub(crate) fn labels(ticks: &[f64]) -> Vec<String> {
    let short: Vec<String> = ticks.iter().copied().map(shown).collect();
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let is_there =
        |text: &String, tick: f64| text.replace(',', "").parse().is_ok_and(|at: f64| (at - tick).abs() < 0.01 * step);
    if short.iter().zip(ticks).all(|(text, &tick)| is_there(text, tick)) || step <= 0.0 || !step.is_finite() {
        return short;
    }
    let decimals = (-step.log10()).ceil().clamp(0.0, 12.0) as usize;
    ticks.iter().map(|tick| trimmed(&format!("{tick:.decimals$}")).to_owned()).collect()
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `at_least`.
fn round_step(at_least: f64) -> f64 {
    let power = 10f64.powf(at_least.abs().max(f64::MIN_POSITIVE).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= at_least * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

/// A number as it is read beside an axis or in a box: four digits that matter, no exponent where it can be helped.
///
/// ```
/// use report::scale::shown;
/// assert_eq!([0.0, 0.25, 8.31776, 12_345.0, 5e-5].map(shown), ["0", "0.25", "8.318", "12,345", "5e-5"]);
/// assert_eq!(shown(f64::NAN), "not a number");
/// ```
pub fn shown(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return "not a number".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "infinity" } else { "-infinity" }.to_owned();
    }
    if size != 0.0 && !(1e-3..1e9).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(digits));
    }
    if size >= 10_000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", text::thousands(size.round() as u64));
    }
    let decimals = if size == 0.0 { 0 } else { (3 - size.log10().floor() as i32).clamp(0, 6) as usize };
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

/// Without zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_its_values_and_ends_on_round_numbers() {
        for (values, from, to) in [
            (vec![6.1, 6.3], 6.1, 6.3),
            (vec![0.4, 12.0], 0.0, 15.0),
            (vec![-3.0, 4.0], -4.0, 4.0),
            (vec![f64::NAN, 2.0, f64::INFINITY], 0.0, 4.0),
            (vec![], 0.0, 1.0),
            (vec![0.0, 0.0], 0.0, 1.0),
        ] {
            let scale = Scale::linear(values.clone());
            let (start, end, _) = scale.ends();
            assert!((start - from).abs() < 1e-9 && (end - to).abs() < 1e-9, "{values:?}: {start} to {end}");
            let ticks = scale.ticks(5);
            assert!((2..=11).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (start - 1e-9..=end + 1e-9).contains(tick)));
        }
    }

    #[test]
    fn ticks_say_where_they_are() {
        let ticks = [0.9566, 0.95662, 0.95664, 0.95666];
        assert_eq!(labels(&ticks), ["0.9566", "0.95662", "0.95664", "0.95666"]);
        assert_eq!(labels(&[0.0, 0.5, 1.0]), ["0", "0.5", "1"]);
        assert_eq!(labels(&[12_345.0, 12_345.5]), ["12345", "12345.5"]);
        assert_eq!(labels(&[1e300, 1e300]).len(), 2, "a range without room for digits");
    }

    #[test]
    fn powers_of_ten_stand_on_a_logarithmic_axis() {
        let scale = Scale::logarithmic([2e-4, 0.0, 3.0]);
        assert_eq!(scale.ticks(10), [1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]);
        assert!((scale.place(1e-2) - 0.4).abs() < 1e-12);
        assert_eq!(scale.place(-5.0), 0.0, "what cannot be drawn is at the foot");
        assert!(!Scale::logarithmic([-1.0]).ends().2);
        assert!(Scale::logarithmic([1e-300, 1.0]).ticks(6).len() <= 8);
    }

    #[test]
    fn extreme_numbers_neither_panic_nor_fill_the_memory() {
        for values in [vec![f64::MAX, f64::MIN], vec![1e300, 1.0000000001e300], vec![5e-324], vec![1e15, 1e15 + 1.0]] {
            let scale = Scale::linear(values.clone());
            assert!(scale.ticks(5).len() <= 1001, "{values:?}");
            assert!(values.iter().all(|&value| scale.place(value).is_finite() || scale.place(value).is_nan()));
        }
    }
}
