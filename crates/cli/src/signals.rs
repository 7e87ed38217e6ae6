//! Ctrl-C, SIGTERM and a terminal that is closed: the first asks the run to save and stop, a later one ends the process
//! at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::CliError;
use crate::proc;
use crate::progress::Console;

/// How soon a person who pressed Ctrl-C is answered, whatever the step takes.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// Signals that come together count as one: a closing terminal sends two, and so does `timeout`.
const ONE_REQUEST: Duration = Duration::from_secs(1);

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
            let heard = [SIGINT, SIGTERM].into_iter().chain((!hangup_is_ignored()).then_some(SIGHUP));
            for number in heard {
                flag::register_conditional_shutdown(number, 128 + number, armed.clone())?;
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
            console.say("stopping: this step is finished and saved first. Once more, a second from now, ends at once, without saving");
            thread::sleep(ONE_REQUEST);
            armed.store(true, Ordering::Relaxed);
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

/// Whether this program was told to outlive its terminal, as `nohup` does.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, SIGHUP)
}

fn ignores(status: &str, signal: i32) -> bool {
    let mask = proc::field(status, "SigIgn:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_known_from_the_mask() {
        let status = "Name:\tdino-vmf\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
        assert!(ignores(status, SIGHUP));
        assert!(!ignores(status, SIGINT));
        assert!(!ignores("", SIGHUP));
    }
}
