//! Numbers over time as one line of letters: `▇▆▄▃▂▁▁▁`.

/// Letters at the most; half as many after two neighbours have become one each.
const MOST: usize = 12;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// For terminals that know no others.
const PLAIN: [char; 8] = ['_', '.', ',', '-', '~', '+', '*', '#'];
/// Where a value is not finite.
const BROKEN: char = '!';

/// A line of numbers that begins with the first and ends with the last, however many there are.
#[derive(Debug)]
pub struct Sparkline {
    letters: [char; 8],
    /// Means of `stride` numbers each.
    means: Vec<f64>,
    stride: u64,
    /// Sum and count of those that follow.
    rest: (f64, u64),
}

impl Sparkline {
    /// An empty one, in letters that the terminal shows.
    pub fn new() -> Self {
        Self::of(if knows_blocks() { BLOCKS } else { PLAIN })
    }

    fn of(letters: [char; 8]) -> Self {
        Self { letters, means: Vec::new(), stride: 1, rest: (0.0, 0) }
    }

    /// Adds a number.
    pub fn push(&mut self, value: f64) {
        self.rest = (self.rest.0 + value, self.rest.1 + 1);
        if self.rest.1 < self.stride {
            return;
        }
        self.means.push(self.rest.0 / self.rest.1 as f64);
        self.rest = (0.0, 0);
        if self.means.len() == MOST {
            self.means = self.means.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
            self.stride *= 2;
        }
    }

    /// The line, from the least value at the bottom to the largest at the top; empty before there are two numbers.
    pub fn line(&self) -> String {
        let finite = self.means.iter().copied().filter(|mean| mean.is_finite());
        let (least, most) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if self.means.len() < 2 {
            return String::new();
        }
        let letter = |&mean: &f64| {
            if !mean.is_finite() {
                return BROKEN;
            }
            let share = if most > least { (mean - least) / (most - least) } else { 0.0 };
            self.letters[((share * 8.0) as usize).min(7)]
        };
        self.means.iter().map(letter).collect()
    }
}

/// Whether the locale says that letters beyond ASCII are shown. The first of these variables that is set decides, as in POSIX.
fn knows_blocks() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    cfg!(windows) || is_utf8(["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).as_deref())
}

fn is_utf8(locale: Option<&str>) -> bool {
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.ends_with("utf-8") || locale.ends_with("utf8") || locale.contains("utf-8@") || locale.contains("utf8@")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_loss_falls_and_any_number_of_steps_fits() {
        let mut line = Sparkline::of(BLOCKS);
        assert_eq!(line.line(), "");
        (0..8).rev().for_each(|i| line.push(f64::from(i)));
        assert_eq!(line.line(), "█▇▆▅▄▃▂▁");
        for i in 0..100_000 {
            line.push(f64::from(i % 7));
        }
        assert!((MOST / 2..MOST).contains(&line.line().chars().count()), "{}", line.line());
    }

    #[test]
    fn equal_and_broken_numbers_have_letters_too() {
        let mut line = Sparkline::of(PLAIN);
        [1.0, 1.0, f64::NAN, f64::INFINITY].into_iter().for_each(|x| line.push(x));
        assert_eq!(line.line(), "__!!");
        line.push(9.0);
        assert_eq!(line.line(), "__!!#");
    }

    #[test]
    fn the_locale_says_which_letters_there_are() {
        for (locale, is) in [
            (Some("en_GB.UTF-8"), true),
            (Some("C.utf8"), true),
            (Some("de_DE.UTF-8@euro"), true),
            (Some("C"), false),
            (Some("de_DE.ISO-8859-1"), false),
            (None, false),
        ] {
            assert_eq!(is_utf8(locale), is, "{locale:?}");
        }
    }
}
