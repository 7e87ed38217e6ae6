//! Signals: those that ask a run to save and stop, and one that would end it in the middle of a file.
//!
//! - SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal) come from a person. The first asks the run to save and stop, a
//!   later one ends the process at once.
//! - SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM and SIGPWR come from a machine whose time is up: batch systems send them some
//!   minutes before the end, and repeat them. They ask to save and stop, however often they come.
//! - SIGXFSZ says that a file has reached the largest size that this process may write. It is taken note of and nothing
//!   else, so that the write fails as on a full disk and the error names the file.
//! - SIGPIPE is ignored by Rust programs: a reader that goes away is an ordinary error, which no command fails on.
//! - SIGQUIT (Ctrl-\) ends the process at once, as everywhere. So does all that says the program itself is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use signal_hook::flag;

use crate::error::CliError;
use crate::proc;
use crate::progress::Console;

/// How soon a person who pressed Ctrl-C is answered, whatever the step takes.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// Signals that come together count as one: a closing terminal sends two, and so does `timeout`.
const ONE_REQUEST: Duration = Duration::from_secs(1);

/// Those that a machine sends.
#[cfg(target_os = "linux")]
const NOTICES: [i32; 5] = [SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM, /* SIGPWR */ 30];
#[cfg(not(target_os = "linux"))]
const NOTICES: [i32; 4] = [SIGUSR1, SIGUSR2, SIGXCPU, SIGALRM];

/// Those that ask a run to save and stop, for a process that passes them on. What was to be ignored from the start still is.
pub fn that_stop_a_run() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_heard = |number: &i32| !ignores(&status, *number);
    [SIGINT, SIGTERM].into_iter().chain([SIGHUP].into_iter().chain(NOTICES).filter(is_heard)).collect()
}

/// Makes a file that is too large for this process an error of its write, in every command.
pub fn files_that_are_too_large_are_errors() -> Result<(), CliError> {
    let registered = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    registered.map(|_| ()).map_err(|source| CliError::Signals { source })
}

/// Asks this process to save and stop when the one that started it is gone, however that ended. Where the system cannot do
/// that, it goes on by itself.
pub fn stop_with(parent: u32) -> Result<(), CliError> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        let failed = |error: rustix::io::Errno| CliError::Signals { source: error.into() };
        set_parent_process_death_signal(Some(Signal::TERM)).map_err(failed)?;
        // It may have gone before this was asked for.
        if getppid().is_none_or(|now| now.as_raw_nonzero().get() as u32 != parent) {
            let source = std::io::Error::other(format!("process {parent}, which started this one, is gone"));
            return Err(CliError::Signals { source });
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    Ok(())
}

/// Whether somebody asked to stop.
#[derive(Clone, Debug)]
pub struct Stop {
    /// The last signal that came; 0 for none.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens for the signals from now on, for a run.
    pub fn listen(console: &Console) -> Result<Self, CliError> {
        Self::listen_and_say(
            console,
            "stopping: this step is finished and saved first. Ctrl-C once more, a second from now, ends at once, without saving",
        )
    }

    /// Listens for the signals from now on, and answers the first with these words.
    pub fn listen_and_say(console: &Console, answer: &'static str) -> Result<Self, CliError> {
        let console = console.clone();
        Self::listen_and(move || console.say(answer))
    }

    /// Listens for the signals from now on, where another process answers them.
    pub fn listen_silently() -> Result<Self, CliError> {
        Self::listen_and(|| ())
    }

    fn listen_and(answer: impl Fn() + Send + 'static) -> Result<Self, CliError> {
        let (armed, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let by_person = Arc::new(AtomicBool::new(false));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        // Whoever starts a program with a signal ignored (`nohup` does) wants it to outlive that signal.
        let is_heard = |number: &i32| !ignores(&status, *number);
        let register = || {
            for number in [SIGINT, SIGTERM].into_iter().chain(Some(SIGHUP).filter(is_heard)) {
                flag::register_conditional_shutdown(number, 128 + number, armed.clone())?;
                flag::register(number, by_person.clone())?;
                flag::register_usize(number, signal.clone(), number as usize)?;
            }
            for number in NOTICES.into_iter().filter(is_heard) {
                flag::register_usize(number, signal.clone(), number as usize)?;
            }
            Ok(())
        };
        let failed = |source| CliError::Signals { source };
        register().map_err(failed)?;
        let stop = Self { signal };
        let watched = stop.clone();
        let watch = move || {
            let wait_for = |asked: &dyn Fn() -> bool| {
                while !asked() {
                    thread::sleep(ANSWER_WITHIN);
                }
            };
            wait_for(&|| watched.requested());
            answer();
            wait_for(&|| by_person.load(Ordering::Relaxed));
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
        match self.signal.load(Ordering::Relaxed) {
            // Another process of the same run was asked.
            0 => 128 + SIGTERM as u8,
            signal => 128 + signal as u8,
        }
    }
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
