//! How far unpacking and indexing are: nothing where they take a moment, a bar on a terminal, a line now and then in a file.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use data::source::{Preparation, Prepared, Tell};

use crate::progress::{Console, Meter};

/// Nobody wants to read of less.
const A_MOMENT: Duration = Duration::from_secs(1);
/// Time between two looks at the bar.
const BETWEEN: Duration = Duration::from_millis(100);
/// Bytes are told in MiB.
const MIB: u32 = 20;

/// What a source is told while it opens. Shows nothing any more when it is dropped.
pub struct Preparing {
    shown: Arc<Mutex<Shown>>,
}

struct Shown {
    begun: Instant,
    last: Option<Instant>,
    meter: Option<(Preparation, Console, Meter)>,
}

impl Preparing {
    /// Begins now.
    pub fn new() -> Self {
        Self { shown: Arc::new(Mutex::new(Shown { begun: Instant::now(), last: None, meter: None })) }
    }

    /// Who is to be told.
    pub fn tell(&self) -> Tell {
        let shown = self.shown.clone();
        // Whoever panicked while it was shown has said so.
        Arc::new(move |prepared| shown.lock().unwrap_or_else(PoisonError::into_inner).show(prepared))
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).close();
    }
}

impl Shown {
    fn close(&mut self) {
        if let Some((_, console, _)) = self.meter.take() {
            console.close();
        }
    }

    fn show(&mut self, Prepared { what, done, total }: Prepared) {
        let is_early = self.begun.elapsed() < A_MOMENT || self.last.is_some_and(|last| last.elapsed() < BETWEEN);
        // The last is not shown: what follows says that it is done.
        if is_early || total == Some(done) {
            return;
        }
        self.last = Some(Instant::now());
        if self.meter.as_ref().is_some_and(|(shown, _, _)| *shown != what) {
            self.close();
        }
        let (_, console, meter) = self.meter.get_or_insert_with(|| {
            let console = if total.is_some() { Console::new(0) } else { Console::counting() };
            let meter = Meter::started(&console, words(what));
            (what, console, meter)
        });
        match total {
            // A line begins with it, a bar does not.
            Some(total) => {
                let about = if console.has_bar() { words(what) } else { "" };
                meter.show(done >> MIB, (total >> MIB).max(1), about);
            }
            None => meter.count(done),
        }
    }
}

fn words(what: Preparation) -> &'static str {
    match what {
        Preparation::Unpacking => "unpacking, MiB",
        Preparation::Indexing => "indexing, MiB",
        Preparation::Listing => "images found so far:",
    }
}
