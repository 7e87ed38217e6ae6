//! A training run as a person at a terminal sees it.

use std::sync::Arc;

use data::{BadSample, Source};
use train::{Monitor, Progress};

use crate::output;
use crate::progress::{Console, Meter, Repeats};

/// Unreadable images that are named.
const NAMED: usize = 100;

/// Shows the progress of a run and what there is to say about it.
pub struct Terminal {
    console: Console,
    meter: Meter,
    epochs: usize,
    repeats: Repeats,
    skipped: usize,
    /// Sources that may have something to say while they are read.
    sources: Vec<Arc<dyn Source>>,
}

impl Terminal {
    /// For a run of this many epochs.
    pub fn new(console: &Console, epochs: usize) -> Self {
        let meter = Meter::new(console, "step");
        Self { console: console.clone(), meter, epochs, repeats: Repeats::default(), skipped: 0, sources: Vec::new() }
    }

    /// The same, which also says what comes up while these sources are read.
    pub fn watching(self, sources: Vec<Arc<dyn Source>>) -> Self {
        Self { sources, ..self }
    }

    /// Says that the step after `done` is under way, which can take a minute.
    pub fn begin(&self, done: u64, total: u64, device: &str) {
        self.meter.begin(done, total, device);
    }

    /// Images that could not be read so far.
    pub fn skipped(&self) -> usize {
        self.skipped
    }
}

impl Monitor for Terminal {
    fn step(&mut self, progress: &Progress) {
        let Progress { step, total_steps, epoch, loss, images_per_second, data_wait } = *progress;
        let speed = output::speed(self.meter.smooth(images_per_second));
        let about = format!(
            "epoch {}/{}  loss {loss:.4}  {speed}  data wait {:.0} %",
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
