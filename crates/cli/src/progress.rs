//! How far a run is: a bar on a terminal, a line every ten seconds where standard error goes into a file.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How much a new reading counts in the speed that is shown.
const SMOOTHING: f64 = 0.2;

/// Standard error, with or without a bar at its end. Clones share the bar.
#[derive(Clone, Debug)]
pub struct Console {
    bar: Option<ProgressBar>,
}

impl Console {
    /// With a bar for `total` things if standard error is a terminal.
    pub fn new(total: u64) -> Self {
        Self::with_template(Some(total), "[{wide_bar}] {pos}/{len}  {msg}")
    }

    /// The same with room for much to say: a line of its own, cut where the terminal ends.
    pub fn with_words(total: u64) -> Self {
        Self::with_template(Some(total), "[{wide_bar}] {pos}/{len}\n{wide_msg}")
    }

    /// The same for things of which nobody knows how many there are.
    pub fn counting() -> Self {
        Self::with_template(None, "{spinner} {msg}")
    }

    fn with_template(total: Option<u64>, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        // Templates are constants: they can only fail while they are being written.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self { bar: Some(bar) }
    }

    /// Whether a person looks on, rather than a file.
    pub fn has_bar(&self) -> bool {
        self.bar.is_some()
    }

    /// Prints a line above the bar.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(text)),
            None => output::note(text),
        }
    }

    /// Begins with the bar anew, where it was taken away.
    pub fn reopen(&self) {
        if let Some(bar) = &self.bar {
            bar.reset();
        }
    }

    /// Takes the bar away.
    pub fn close(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What the readings of a speed have given so far.
#[derive(Debug)]
enum Speed {
    Unknown,
    /// One reading, which does not count.
    First,
    Smooth(f64),
}

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Meter {
    console: Console,
    what: &'static str,
    /// When, and at how many things done, the clock started.
    start: Option<(Instant, u64)>,
    last_line: Instant,
    speed: Speed,
}

impl Meter {
    /// A meter of `what` (steps, images) on a console. Its clock starts when the first is shown.
    pub fn new(console: &Console, what: &'static str) -> Self {
        Self { console: console.clone(), what, start: None, last_line: Instant::now(), speed: Speed::Unknown }
    }

    /// The same with a clock that starts now, with none done.
    pub fn started(console: &Console, what: &'static str) -> Self {
        Self { start: Some((Instant::now(), 0)), ..Self::new(console, what) }
    }

    /// The smoothed speed, given another reading. The first is slow by what has to be made ready, and soon forgotten.
    pub fn smooth(&mut self, reading: f64) -> f64 {
        let speed = match self.speed {
            Speed::Unknown | Speed::First => reading,
            Speed::Smooth(speed) => speed + SMOOTHING * (reading - speed),
        };
        self.speed = if matches!(self.speed, Speed::Unknown) { Speed::First } else { Speed::Smooth(speed) };
        speed
    }

    /// Things done since the clock started, per second; 0 before that.
    pub fn rate(&self, done: u64) -> f64 {
        self.start
            .map_or(0.0, |(start, first)| done.saturating_sub(first) as f64 / start.elapsed().as_secs_f64().max(1e-9))
    }

    /// Says that the next is under way, which can take a minute. Where a terminal shows a bar, that is enough.
    pub fn begin(&self, done: u64, total: u64, place: &str) {
        match &self.console.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.tick();
            }
            None if done < total => {
                output::note(&format!("{} {} of {total} is under way on {place}", self.what, done + 1));
            }
            None => {}
        }
    }

    /// Shows that `done` of `total` are done. The last is always shown.
    pub fn show(&mut self, done: u64, total: u64, about: &str) {
        let (start, first) = *self.start.get_or_insert((Instant::now(), done));
        let eta = match done.saturating_sub(first) {
            0 => String::new(),
            steps => {
                format!("  ETA {}", duration(start.elapsed().mul_f64(total.saturating_sub(done) as f64 / steps as f64)))
            }
        };
        match &self.console.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(format!("{about}{eta}"));
            }
            None if self.last_line.elapsed() >= LINE_EVERY || done == total => {
                self.last_line = Instant::now();
                output::note(&format!("{} {done}/{total}  {about}{eta}", self.what));
            }
            None => {}
        }
    }

    /// Shows that `done` are done, of nobody knows how many.
    pub fn count(&mut self, done: u64) {
        let words = format!("{} {}", self.what, text::thousands(done));
        match &self.console.bar {
            Some(bar) => {
                bar.set_message(words);
                bar.tick();
            }
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                output::note(&words);
            }
            None => {}
        }
    }
}

/// The progress of a pass over something, told by how many are done.
#[derive(Debug)]
pub struct Pass {
    console: Console,
    meter: Meter,
}

impl Pass {
    /// A pass over `total` of `what` (images, prototypes) that begins now.
    pub fn new(what: &'static str, total: usize) -> Self {
        let console = Console::new(total as u64);
        let meter = Meter::started(&console, what);
        Self { console, meter }
    }

    /// Shows that `done` of `total` are done, for a library that asks whether to go on.
    pub fn show(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        if done == total {
            // In a file, the result says that it is done.
            self.console.close();
        } else {
            self.meter.show(done as u64, total as u64, "");
        }
        ControlFlow::Continue(())
    }
}

/// `45s`, `3m 20s`, `1h 02m`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// Messages of one kind, told at first and then rarely.
#[derive(Debug, Default)]
pub struct Repeats {
    /// How often each kind has come up.
    counts: HashMap<String, u32>,
}

impl Repeats {
    /// Of messages with the same beginning (up to a colon), the first and then every twentieth is told.
    pub fn is_news(&mut self, text: &str) -> bool {
        let kind = text.split(':').next().unwrap_or_default();
        let count = self.counts.entry(kind.to_owned()).or_default();
        *count += 1;
        *count % 20 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_told_first_and_every_twentieth_time() {
        let mut repeats = Repeats::default();
        let told: Vec<usize> = (0..45).filter(|i| repeats.is_news(&format!("the teacher is uniform: {i}"))).collect();
        assert_eq!(told, [0, 20, 40]);
        assert!(repeats.is_news("the teacher gives one prototype to every view: 1"));
        assert!(!repeats.is_news("the teacher is uniform: still"));
        assert!(!repeats.is_news("the teacher gives one prototype to every view: 2"));
    }

    #[test]
    fn durations_are_read_at_a_glance() {
        let shown = [0, 59, 200, 3720, 360_000].map(|s| duration(Duration::from_secs(s)));
        assert_eq!(shown, ["0s", "59s", "3m 20s", "1h 02m", "100h 00m"]);
    }

    #[test]
    fn the_speed_shown_follows_the_readings_slowly() {
        let mut meter = Meter::new(&Console { bar: None }, "step");
        assert_eq!(meter.smooth(10.0), 10.0);
        assert_eq!(meter.smooth(100.0), 100.0);
        assert_eq!(meter.smooth(200.0), 120.0);
    }
}
