//! A run that somebody looks at: its log is read on, and its account made again, when its files have changed.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use train::run::RunReader;

use super::log::{Met, Reach, Tail};
use super::signature::Signature;
use crate::account::Account;
use crate::history::History;

/// Points of a curve that is drawn again and again: half to all of the pixels that a chart has across.
const POINTS: usize = 220;
/// What is read of a log in one go: a second's work at the most.
const AT_ONCE: u64 = 32 << 20;
/// However many look at it, files are looked at this often.
const BETWEEN_LOOKS: Duration = Duration::from_millis(900);

/// A run as it grows.
#[derive(Debug)]
pub(super) struct Live {
    run: RunReader,
    /// What it is called on pages: its path below the folder.
    name: String,
    log: Tail,
    reach: Option<Reach>,
    history: History,
    last: Option<Value>,
    signature: Option<Signature>,
    looked: Option<Instant>,
    account: Result<Account, String>,
    version: u64,
}

impl Live {
    pub(super) fn new(path: &Path, name: &str) -> Result<Self, String> {
        let run = RunReader::open(path).map_err(|error| error.to_string())?;
        let log = Tail::new(run.log_file());
        let (history, name) = (History::keeping(POINTS), name.to_owned());
        let account = Err("nothing was read yet".to_owned());
        Ok(Self {
            run,
            name,
            log,
            reach: None,
            history,
            last: None,
            signature: None,
            looked: None,
            account,
            version: 0,
        })
    }

    /// Looks at its files, if that was not just done.
    pub(super) fn refresh(&mut self) {
        if !self.is_behind() && self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return;
        }
        let signature = Signature::of(&self.run);
        if self.is_behind() || self.signature.as_ref() != Some(&signature) {
            self.account = self.read(&signature).map(|mut account| {
                account.name.clone_from(&self.name);
                account
            });
            self.version += 1;
            self.signature = Some(signature);
        }
        self.looked = Some(Instant::now());
    }

    fn read(&mut self, signature: &Signature) -> Result<Account, String> {
        signature.is_contained()?;
        let (history, last) = (&mut self.history, &mut self.last);
        let visit = |met: Met| match met {
            Met::Anew => (*history, *last) = (History::keeping(POINTS), None),
            Met::Record(record) => {
                history.add(&record);
                if record.get("loss").is_some() {
                    *last = Some(record);
                }
            }
        };
        let reach = self.log.read_on(AT_ONCE, visit).map_err(|error| format!("its log cannot be read: {error}"))?;
        self.reach = Some(reach);
        let activity = signature.activity.clone();
        Account::with_log(&self.run, activity, self.history.clone(), self.last.as_ref())
            .map_err(|error| error.to_string())
    }

    /// What there is to tell, or why nothing can be told.
    pub(super) fn account(&self) -> Result<&Account, &str> {
        self.account.as_ref().map_err(String::as_str)
    }

    /// Whether a report stands in its folder.
    pub(super) fn has_report(&self) -> bool {
        self.signature.as_ref().is_some_and(Signature::has_report)
    }

    /// Changes whenever the account has.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Whether a part of its log is still to be read.
    pub(super) fn is_behind(&self) -> bool {
        self.reach.is_some_and(|reach| reach.is_behind)
    }

    /// How much of its log was read, from 0 to 1.
    pub(super) fn share_read(&self) -> f64 {
        self.reach.map_or(0.0, |reach| reach.read as f64 / reach.length.max(1) as f64)
    }
}
