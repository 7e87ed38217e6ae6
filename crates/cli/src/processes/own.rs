//! `pretrain --gpus N`: this program starts itself once for each GPU, looks after the processes and ends with them.
//!
//! The first of them writes and prints as ever. Of the others only words come, which are passed on. All hear the signals that this
//! process hears. When one ends with an error the others end by themselves, since they meet; those that do not are ended.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tensor::found_gpus;

use super::error::{GpusError, ProcessesError};
use super::launcher::{Launched, Launcher, PORT_VARIABLE, RANK_VARIABLE, RANKS_VARIABLE, TOKEN_VARIABLE, launched};
use crate::args::{AUTO, PretrainArgs};
use crate::error::CliError;
use crate::machine;
use crate::output;
use crate::signals;

/// Who has started a process.
const PARENT_VARIABLE: &str = "DINO_VMF_PARENT";
/// How often it is looked whether a process has ended, or a signal has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the others have to end after one has failed.
const END_WITHIN: Duration = Duration::from_secs(20);
/// How long their last words may take.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(1);
/// The most lines, and bytes of each, that are kept of what a process has said last.
const LAST_WORDS: usize = 12;
const LONGEST_LINE: u64 = 8192;

/// What this process is to do about `--gpus`.
pub enum Part {
    /// To start the others, and end with this.
    Parent(ExitCode),
    /// To train: as one of several, or alone.
    Trainer,
}

/// Starts the processes of `--gpus`, if this one is not one of them, and waits for their end.
pub fn start(args: &PretrainArgs) -> Result<Part, CliError> {
    let Some(asked) = args.gpus else { return Ok(Part::Trainer) };
    match launched()? {
        Some(launched) if launched.by == Launcher::Own => return Ok(Part::Trainer),
        Some(launched) => return Err(GpusError::Launched { launched: Box::new(launched) }.into()),
        None => {}
    }
    check(args, asked)?;
    if asked == 1 {
        return Ok(Part::Trainer);
    }
    if let Some(parent) = args.stop_with {
        signals::stop_with(parent)?;
    }
    let signals = heard_signals()?;
    let mut ranks = Ranks::start(asked, |rank, port| command(args, asked, rank, port))?;
    Ok(Part::Parent(ranks.wait(&signals)?))
}

/// Refuses what cannot be, before anything is started.
fn check(args: &PretrainArgs, asked: usize) -> Result<(), CliError> {
    let device = &args.device.device;
    if !matches!(device.as_str(), AUTO | "cuda") {
        return Err(GpusError::OtherDevice { asked, device: device.clone() }.into());
    }
    if args.minutes.is_some() && asked > 1 {
        return Err(ProcessesError::ForOneProcess { what: "--minutes", instead: "give --epochs" }.into());
    }
    Ok(check_found(asked)?)
}

/// Refuses more GPUs than this machine shows.
pub fn check_found(asked: usize) -> Result<(), GpusError> {
    let found = found_gpus().map_err(|error| GpusError::None { asked, error })?;
    if found.len() < asked {
        let names = found.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(GpusError::TooMany { asked, found: found.len(), names });
    }
    Ok(())
}

/// This program again, as one of several.
fn command(args: &PretrainArgs, asked: usize, rank: usize, port: u16) -> std::io::Result<Command> {
    let mut command = Command::new(machine::program()?);
    command.args(std::env::args_os().skip(1));
    // They share the cores, unless somebody has said how many each has.
    if args.device.threads.is_none() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
        command.env("RAYON_NUM_THREADS", (machine::cores() / asked).max(1).to_string());
    }
    command.env(RANK_VARIABLE, rank.to_string()).env(RANKS_VARIABLE, asked.to_string());
    command.env(PORT_VARIABLE, port.to_string()).env(PARENT_VARIABLE, std::process::id().to_string());
    Ok(command)
}

/// The process that has started this one, with which it ends.
pub fn parent() -> Option<u32> {
    std::env::var(PARENT_VARIABLE).ok()?.parse().ok()
}

/// The port that the first process was given open, as its standard input; none in every other one.
#[cfg(unix)]
pub fn given_port(launched: &Launched) -> Result<Option<TcpListener>, GpusError> {
    use std::os::fd::AsFd;
    if launched.by != Launcher::Own || launched.rank != 0 {
        return Ok(None);
    }
    let wrong = |error: std::io::Error| GpusError::NoPort(error.to_string());
    let listener = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?);
    // It must be one, and not what somebody else has put there.
    listener.local_addr().map_err(wrong)?;
    Ok(Some(listener))
}

#[cfg(not(unix))]
pub fn given_port(_: &Launched) -> Result<Option<TcpListener>, GpusError> {
    Ok(None)
}

/// What the first process gets as its standard input. Passed on while it is open, the port cannot be taken by others in between.
#[cfg(unix)]
fn passed_on(listener: TcpListener) -> Stdio {
    Stdio::from(std::os::fd::OwnedFd::from(listener))
}

#[cfg(not(unix))]
fn passed_on(_: TcpListener) -> Stdio {
    Stdio::null()
}

/// A number that nobody can guess.
fn token() -> String {
    use std::hash::{BuildHasher, RandomState};
    let draw = |n: u64| RandomState::new().hash_one(n);
    format!("{:016x}{:016x}", draw(0), draw(1))
}

/// Signals that are passed on, each with whether it has come.
type Signals = Vec<(i32, Arc<AtomicBool>)>;

fn heard_signals() -> Result<Signals, CliError> {
    let listen = |number: i32| {
        let heard = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(number, heard.clone()).map(|_| (number, heard))
    };
    let all: Result<Signals, _> = signals::that_stop_a_run().into_iter().map(listen).collect();
    all.map_err(|source| CliError::Signals { source })
}

/// What a process has said last.
type Words = Arc<Mutex<VecDeque<String>>>;

/// The processes that were started.
struct Ranks {
    all: Vec<Rank>,
}

struct Rank {
    process: Child,
    words: Words,
    /// Who passes on what it says.
    listener: Option<thread::JoinHandle<()>>,
    ended: Option<ExitStatus>,
    /// Whether it had to be ended, since it did not by itself.
    was_ended_here: bool,
}

impl Rank {
    fn words(&self) -> Vec<String> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // Whatever happened here, nobody is left behind.
        for rank in self.all.iter_mut().filter(|rank| rank.ended.is_none()) {
            _ = rank.process.kill();
            _ = rank.process.wait();
        }
    }
}

impl Ranks {
    /// Starts so many processes, which meet at a port of this machine.
    fn start(count: usize, command: impl Fn(usize, u16) -> std::io::Result<Command>) -> Result<Self, GpusError> {
        let no_port = |error: std::io::Error| GpusError::NoPort(error.to_string());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_port)?;
        let port = listener.local_addr().map_err(no_port)?.port();
        let (mut listener, token) = (Some(listener), token());
        let mut ranks = Self { all: Vec::new() };
        for rank in 0..count {
            let failed = |source| GpusError::Start { rank, source };
            let mut command = command(rank, port).map_err(failed)?;
            command.env(TOKEN_VARIABLE, &token);
            // Ctrl-C is for this process, which passes it on once: one that is asked twice ends without saving.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            let input = listener.take().map_or_else(Stdio::null, passed_on);
            command.stdin(input);
            if rank > 0 {
                // The result and the progress are the first one's to show.
                command.stdout(Stdio::null()).stderr(Stdio::piped());
            }
            let mut process = command.spawn().map_err(failed)?;
            let words = Words::default();
            let errors = process.stderr.take();
            let kept = words.clone();
            ranks.all.push(Rank { process, words, listener: None, ended: None, was_ended_here: false });
            if let Some(errors) = errors {
                let listen = move || pass_on(errors, &kept, output::note);
                let listener = thread::Builder::new().name("words".into()).spawn(listen).map_err(failed)?;
                ranks.all[rank].listener = Some(listener);
            }
        }
        Ok(ranks)
    }

    /// Waits until all have ended; the status of the one that failed, or of the first.
    fn wait(&mut self, signals: &Signals) -> Result<ExitCode, CliError> {
        // Those that ended with an error, in the order in which they were found.
        let (mut failed, mut since): (Vec<usize>, Option<Instant>) = (Vec::new(), None);
        while self.all.iter().any(|rank| rank.ended.is_none()) {
            for (number, heard) in signals {
                if heard.swap(false, Ordering::Relaxed) {
                    self.send(*number);
                }
            }
            for (number, rank) in self.all.iter_mut().enumerate().filter(|(_, rank)| rank.ended.is_none()) {
                rank.ended = rank.process.try_wait().map_err(|source| CliError::Signals { source })?;
                let Some(status) = rank.ended.filter(|_| !rank.was_ended_here) else { continue };
                if is_error(status) {
                    failed.push(number);
                }
                // Whatever has ended it, the others do not go on without it.
                if !status.success() {
                    since.get_or_insert_with(Instant::now);
                }
            }
            if since.is_some_and(|since| since.elapsed() >= END_WITHIN) {
                for rank in self.all.iter_mut().filter(|rank| rank.ended.is_none() && !rank.was_ended_here) {
                    rank.was_ended_here = true;
                    _ = rank.process.kill();
                }
            }
            thread::sleep(LOOK_EVERY);
        }
        // What they have said last is on its way, unless somebody else holds the other end.
        let began = Instant::now();
        let is_heard = |rank: &Rank| rank.listener.as_ref().is_none_or(thread::JoinHandle::is_finished);
        while !self.all.iter().all(is_heard) && began.elapsed() < LAST_WORDS_WITHIN {
            thread::sleep(LOOK_EVERY);
        }
        // The one that was killed is the reason for the others' errors; else the one that said something, since a process that
        // ends for another one's sake is silent.
        let reason = failed.iter().copied().min_by_key(|&number| {
            let rank = &self.all[number];
            (rank.ended.is_some_and(|status| status.code().is_some()), rank.words().is_empty())
        });
        let Some(number) = reason else { return Ok(ExitCode::from(self.all[0].ended.map_or(1, code))) };
        let rank = &self.all[number];
        let words = rank.words();
        let last = if words.is_empty() { String::new() } else { format!("; it said last:\n  {}", words.join("\n  ")) };
        output::note(&format!("error: process {number} of {} has ended {}{last}", self.all.len(), how(rank.ended)));
        Ok(ExitCode::from(rank.ended.map_or(1, code)))
    }

    /// Passes a signal on.
    #[cfg(unix)]
    fn send(&self, number: i32) {
        use rustix::process::{Pid, Signal, kill_process};
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for rank in self.all.iter().filter(|rank| rank.ended.is_none()) {
            // It is not waited for yet, so its number is still its own.
            if let Some(pid) = i32::try_from(rank.process.id()).ok().and_then(Pid::from_raw) {
                _ = kill_process(pid, signal);
            }
        }
    }

    #[cfg(not(unix))]
    fn send(&self, _: i32) {}
}

/// Whether a process has failed: not where its run was stopped by a signal, or has collapsed, which it has said.
fn is_error(status: ExitStatus) -> bool {
    !matches!(status.code(), Some(0 | 3 | 128..))
}

/// A status as a shell has it.
fn code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return 128_u8.wrapping_add(signal as u8);
    }
    status.code().map_or(1, |code| code as u8)
}

/// How a process has ended, for people.
fn how(status: Option<ExitStatus>) -> String {
    #[cfg(unix)]
    if let Some(signal) = status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)) {
        let why = if signal == 9 { ": somebody has killed it, or the system has for want of memory" } else { "" };
        return format!("by signal {signal}{why}");
    }
    format!("with status {}", status.map_or(1, code))
}

/// Passes on what a process says, line by line, and keeps the last of it.
fn pass_on(from: impl Read, kept: &Mutex<VecDeque<String>>, say: impl Fn(&str)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        say(&text);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(text);
        if kept.len() > LAST_WORDS {
            kept.pop_front();
        }
    }
}

#[cfg(all(test, unix))]
#[path = "own_tests.rs"]
mod tests;
