//! Ctrl-C and SIGTERM: the first asks the run to save and stop, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;
use crate::progress::Console;

/// How soon a person who pressed Ctrl-C is answered, whatever the step takes.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// Whether somebody asked to stop.
#[derive(Clone, Debug)]
pub struct Stop {
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens for the signals from now on.
    pub fn listen(console: &Console) -> Result<Self, CliError> {
        let (armed, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let register = || {
            for number in [SIGINT, SIGTERM] {
                // In this order: the shutdown looks whether an earlier signal has armed it.
                flag::register_conditional_shutdown(number, 128 + number, armed.clone())?;
                flag::register(number, armed.clone())?;
                flag::register_usize(number, signal.clone(), number as usize)?;
            }
            Ok(())
        };
        let failed = |source| CliError::Signals { source };
        register().map_err(failed)?;
        let stop = Self { signal };
        let (watched, console) = (stop.clone(), console.clone());
        let watch = move || {
            while !watched.requested() {
                thread::sleep(ANSWER_WITHIN);
            }
            console.say("stopping: this step is finished and saved first. Once more ends at once, without saving");
        };
        thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
        Ok(stop)
    }

    /// Whether a signal has come.
    pub fn requested(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// The exit status that says which signal it was, as a shell reports it.
    pub fn status(&self) -> u8 {
        128 + self.signal.load(Ordering::Relaxed) as u8
    }
}
