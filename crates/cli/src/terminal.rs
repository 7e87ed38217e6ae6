//! A training run as a person at a terminal sees it.

use std::sync::Arc;
use std::time::Duration;

use data::{BadSample, Source};
use train::{Evaluation, Monitor, Progress};

use crate::output;
use crate::progress::{Console, Meter, Repeats};
use crate::sparkline::Sparkline;

/// Unreadable images that are named.
const NAMED: usize = 100;

/// A run that takes longer than this is worth a word at once.
const LONG: Duration = Duration::from_secs(24 * 3600);
/// Steps after which its speed is known well enough for that.
const STEPS_TO_KNOW: u32 = 3;

/// What would make a run at this many images a second a short one, in words.
pub type Faster<'a> = &'a dyn Fn(f64) -> String;

/// Shows the progress of a run and what there is to say about it.
pub struct Terminal<'a> {
    console: Console,
    meter: Meter,
    epochs: usize,
    batch: usize,
    faster: Faster<'a>,
    /// Steps that were shown.
    shown: u32,
    losses: Sparkline,
    /// What the last evaluation found, in per cent.
    knn: Option<f64>,
    repeats: Repeats,
    skipped: usize,
    turned: usize,
    /// Sources that may have something to say while they are read.
    sources: Vec<Arc<dyn Source>>,
}

impl<'a> Terminal<'a> {
    /// For a run of this many epochs in batches of this many images.
    pub fn new(console: &Console, epochs: usize, batch: usize, faster: Faster<'a>) -> Self {
        Self {
            console: console.clone(),
            meter: Meter::new(console, "step"),
            epochs,
            batch,
            faster,
            shown: 0,
            losses: Sparkline::new(),
            knn: None,
            repeats: Repeats::default(),
            skipped: 0,
            turned: 0,
            sources: Vec::new(),
        }
    }

    /// The same, which also says what comes up while these sources are read.
    pub fn watching(self, sources: Vec<Arc<dyn Source>>) -> Self {
        Self { sources, ..self }
    }

    /// Says once what to do about a run of days.
    fn warn_of_a_long_run(&mut self, progress: &Progress, images_per_second: f64) {
        self.shown = self.shown.saturating_add(1);
        if self.shown != STEPS_TO_KNOW || images_per_second <= 0.0 {
            return;
        }
        let left = progress.total_steps.saturating_sub(progress.step) as f64 * self.batch as f64 / images_per_second;
        if left > LONG.as_secs_f64() {
            let days = left / LONG.as_secs_f64();
            self.console.say(&format!(
                "at this speed the run takes about {days:.1} days. {}",
                (self.faster)(images_per_second)
            ));
        }
    }

    /// How the loss went so far, and the last accuracy: for a bar, which is drawn over itself. In a file they would be noise.
    fn at_a_glance(&self) -> String {
        let knn = self.knn.map_or(String::new(), |top1| format!("  kNN {top1:.1} %"));
        match self.losses.line() {
            line if line.is_empty() => knn,
            line => format!(" {line}{knn}"),
        }
    }

    /// Says that the step after `done` is under way, which can take a minute.
    pub fn begin(&self, done: u64, total: u64, device: &str) {
        self.meter.begin(done, total, device);
    }

    /// Images that could not be read so far.
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Images that were turned upright so far.
    pub fn turned(&self) -> usize {
        self.turned
    }
}

impl Monitor for Terminal<'_> {
    fn step(&mut self, progress: &Progress) {
        let Progress { step, total_steps, epoch, loss, images_per_second, data_wait } = *progress;
        let smooth = self.meter.smooth(images_per_second);
        self.warn_of_a_long_run(progress, smooth);
        let speed = output::speed(smooth);
        self.losses.push(loss);
        let seen = if self.console.has_bar() { self.at_a_glance() } else { String::new() };
        let about = format!(
            "epoch {}/{}  loss {loss:.4}{seen}  {speed}  data wait {:.0} %",
            epoch + 1,
            self.epochs,
            100.0 * data_wait
        );
        self.meter.show(step, total_steps, &about);
        for news in self.sources.iter().flat_map(|source| source.take_news()) {
            self.console.say(&format!("note: {news}"));
        }
    }

    fn say(&mut self, text: &str) {
        if self.repeats.is_news(text) {
            self.console.say(text);
        }
    }

    fn evaluated(&mut self, found: &Evaluation) {
        let knn = found.numbers.iter().find(|(key, _)| key == "knn_top1").map(|(_, top1)| *top1);
        self.knn = knn.or(self.knn);
    }

    fn turned(&mut self, images: usize) {
        self.turned += images;
    }

    fn skipped(&mut self, bad: &BadSample) {
        self.skipped += 1;
        let text = format!("skipped {}: {}", bad.name, bad.reason);
        match self.skipped {
            n if n < NAMED => self.console.say(&text),
            NAMED => self.console.say(&format!("{text}\nfurther unreadable images are counted, not named")),
            _ => {}
        }
    }
}
