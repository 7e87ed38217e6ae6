//! Asking a run to save and stop, as Ctrl-C in its terminal does.
//!
//! The lock file names the process, and anybody may have written it: so the process must be this program, and must hold that
//! very file open, before it is sent a signal. It is held on to meanwhile, so that its number cannot become another's.

use train::run::{Activity, RunReader};

use super::signature::Signature;

/// Why a run was not asked to stop.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StopError {
    /// Nobody trains it.
    #[error("nobody is training this run")]
    NotTraining,
    /// Its folder names somebody else.
    #[error("the process that this run names is not the one that trains it, or is another user's")]
    NotTheTrainer,
    /// The system refused.
    #[error("the system refused: {0}")]
    System(String),
    /// There is no safe way here.
    #[cfg(not(target_os = "linux"))]
    #[error("stopping a run from a page needs Linux; press Ctrl-C in its terminal")]
    NotHere,
}

/// Asks the process that trains a run to save and stop; its number.
pub(super) fn stop(run: &RunReader) -> Result<u32, StopError> {
    Signature::of(run).is_contained().map_err(|_| StopError::NotTheTrainer)?;
    let number = trainer(run)?;
    ask(run, number)?;
    Ok(number)
}

/// The number of the process that holds the lock of a run, as that says.
fn trainer(run: &RunReader) -> Result<u32, StopError> {
    let Some(Activity::Training { holder }) = run.activity() else { return Err(StopError::NotTraining) };
    let number = holder.strip_prefix("process ").and_then(|number| number.parse().ok());
    number.filter(|number| *number > 1).ok_or(StopError::NotTheTrainer)
}

#[cfg(target_os = "linux")]
fn ask(run: &RunReader, number: u32) -> Result<(), StopError> {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(StopError::NotTheTrainer)?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| StopError::NotTheTrainer)?;
    if !is_this_program(number) || !holds(number, run) || trainer(run)? != number {
        return Err(StopError::NotTheTrainer);
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(|error| StopError::System(error.to_string()))
}

#[cfg(not(target_os = "linux"))]
fn ask(_: &RunReader, _: u32) -> Result<(), StopError> {
    Err(StopError::NotHere)
}

/// Whether a process runs this program; it may have been built anew since.
#[cfg(target_os = "linux")]
fn is_this_program(number: u32) -> bool {
    let Ok(path) = std::fs::read_link(format!("/proc/{number}/exe")) else { return false };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    matches!(name.strip_prefix("dino-vmf"), Some("" | " (deleted)"))
}

/// Whether a process holds the lock file of a run open.
#[cfg(target_os = "linux")]
fn holds(number: u32, run: &RunReader) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = |path: &std::path::Path| std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
    let Some(lock) = file(&run.lock_file()) else { return false };
    let Ok(handles) = std::fs::read_dir(format!("/proc/{number}/fd")) else { return false };
    handles.flatten().any(|handle| file(&handle.path()) == Some(lock))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_process_that_a_lock_file_merely_names_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), "").unwrap();
        let run = RunReader::open(folder.path()).unwrap();
        assert_eq!(stop(&run), Err(StopError::NotTraining), "nobody has locked it");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // Somebody holds the lock and says that it was another.
        for named in [format!("process {}", other.id()), "process 1".into(), "process 0".into(), "process -1".into()] {
            fs::write(run.lock_file(), named + "\n").unwrap();
            assert_eq!(stop(&run), Err(StopError::NotTraining), "the file is not locked");
            let lock = File::open(run.lock_file()).unwrap();
            lock.try_lock().unwrap();
            assert_eq!(stop(&run), Err(StopError::NotTheTrainer));
        }
        assert_eq!(other.try_wait().unwrap(), None, "it still runs");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
