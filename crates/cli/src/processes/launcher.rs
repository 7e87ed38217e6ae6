//! Who has started this process as one of several, as which, and where they meet: all that the environment says of it.
//!
//! Variables that contradict each other, or say nothing that can be understood, are errors that name them: a process that
//! takes itself for one alone would train the run of all.

use std::fmt;

use super::node_list::{NodeList, NodeListError};

/// Slurm's numbers of steps that are none: an interactive shell, a batch script, what holds a job.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// What starts several processes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH and those that descend from it.
    Mpich,
    /// `srun`.
    Slurm,
    /// `torchrun`.
    Torchrun,
    /// Somebody who has set the variables of torchrun, or of NCCL.
    Hand,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::Slurm => "Slurm",
            Self::Torchrun => "torchrun",
            Self::Hand => "hand (RANK and WORLD_SIZE)",
        })
    }
}

/// Where processes find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeetingPoint {
    /// The host of the first process.
    pub host: String,
    /// Its port, where one was agreed on.
    pub port: Option<u16>,
}

impl fmt::Display for MeetingPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.host.contains(':')) {
            (Some(port), true) => write!(f, "[{}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
            (None, _) => f.write_str(&self.host),
        }
    }
}

/// One of several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// By whom.
    pub by: Launcher,
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// Its number among those of its machine, where that is known.
    pub local_rank: Option<usize>,
    /// Where they meet, where that is known.
    pub meeting: Option<MeetingPoint>,
    /// How often all of them were started again.
    pub restarts: usize,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}, started by {}", self.rank, self.ranks, self.by)
    }
}

impl Launched {
    /// The same with everything else that is known of it.
    pub fn in_detail(&self) -> String {
        let local = self.local_rank.map(|local| format!("number {local} of its machine"));
        let meeting = self.meeting.as_ref().map(|place| format!("meeting at {}", text::excerpt(&place.to_string())));
        let again = (self.restarts > 0).then(|| format!("started again {}", text::count(self.restarts, "time")));
        [Some(self.to_string()), local, meeting, again].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A variable of the environment that cannot be what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// One that a launcher sets beside others that are there.
    #[error("{by} has started this process, but {missing} is not set")]
    Missing {
        /// The launcher.
        by: Launcher,
        /// The variable.
        missing: &'static str,
    },
    /// One that is no number.
    #[error("{name} is {value:?}, which is no {what}")]
    NotA {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        what: &'static str,
    },
    /// A number that must be less than another one.
    #[error("{name} is {value}, which must be less than {limit_name}, and that is {limit}")]
    NotBelow {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The other variable.
        limit_name: &'static str,
        /// Its value.
        limit: usize,
    },
    /// A number that cannot be more than another one.
    #[error("{name} is {value}, which cannot be more than {limit_name}, and that is {limit}")]
    Above {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The other variable.
        limit_name: &'static str,
        /// Its value.
        limit: usize,
    },
    /// A list of hosts.
    #[error("{name} is {value:?}, which is no list of hosts: {why}")]
    Nodes {
        /// The variable.
        name: &'static str,
        /// The beginning of its value.
        value: String,
        /// What is wrong with it.
        why: NodeListError,
    },
}

/// The environment of a process.
struct Environment<F>(F);

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, LaunchError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let what = "number that a process could have";
        let parsed =
            value.parse().map_err(|_| LaunchError::NotA { name, value: text::excerpt(&value).into_owned(), what });
        parsed.map(Some)
    }

    fn required<T: std::str::FromStr>(&self, by: Launcher, name: &'static str) -> Result<T, LaunchError> {
        self.number(name)?.ok_or(LaunchError::Missing { by, missing: name })
    }

    /// The process that these variables speak of.
    fn process(&self, by: Launcher, names: Names) -> Result<Launched, LaunchError> {
        let (rank, ranks) = (self.required(by, names.rank)?, self.required(by, names.ranks)?);
        below(names.rank, rank, names.ranks, ranks)?;
        let local_rank = names.local.map(|(name, _)| self.number(name)).transpose()?.flatten();
        if let (Some((name, limit_name)), Some(local)) = (names.local, local_rank) {
            below(name, local, names.ranks, ranks)?;
            // A process has no more before it on its machine than in all.
            if local > rank {
                return Err(LaunchError::Above { name, value: local, limit_name: names.rank, limit: rank });
            }
            if let Some(limit) = limit_name.map(|name| self.number(name)).transpose()?.flatten() {
                below(name, local, limit_name.unwrap_or_default(), limit)?;
            }
        }
        Ok(Launched { by, rank, ranks, local_rank, meeting: None, restarts: 0 })
    }

    fn torchrun(&self, by: Launcher) -> Result<Launched, LaunchError> {
        let local = Some(("LOCAL_RANK", Some("LOCAL_WORLD_SIZE")));
        let launched = self.process(by, Names { rank: "RANK", ranks: "WORLD_SIZE", local })?;
        let restarts = self.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
        let meeting = match self.text("MASTER_ADDR") {
            Some(host) => Some(MeetingPoint { host, port: Some(self.port(by)?) }),
            None if by == Launcher::Torchrun => return Err(LaunchError::Missing { by, missing: "MASTER_ADDR" }),
            None => None,
        };
        Ok(Launched { restarts, meeting, ..launched })
    }

    fn port(&self, by: Launcher) -> Result<u16, LaunchError> {
        let name = "MASTER_PORT";
        let value = self.text(name).ok_or(LaunchError::Missing { by, missing: name })?;
        port(&value).ok_or_else(|| LaunchError::NotA { name, value: text::excerpt(&value).into_owned(), what: "port" })
    }

    fn slurm(&self) -> Result<Launched, LaunchError> {
        // Of the step where both are there: `srun -n 2` within a job of eight.
        let of_step = self.text("SLURM_STEP_NUM_TASKS").is_some();
        let ranks = if of_step { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" };
        let local = Some(("SLURM_LOCALID", None));
        let launched = self.process(Launcher::Slurm, Names { rank: "SLURM_PROCID", ranks, local })?;
        let list = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let list = list.into_iter().find_map(|name| Some((name, self.text(name)?)));
        let read = |(name, value): (&'static str, String)| match NodeList::parse(&value) {
            Ok(list) => Ok(MeetingPoint { host: list.first, port: None }),
            Err(why) => Err(LaunchError::Nodes { name, value: text::excerpt(&value).into_owned(), why }),
        };
        let restarts = self.number("SLURM_RESTART_COUNT")?.unwrap_or(0);
        Ok(Launched { restarts, meeting: list.map(read).transpose()?, ..launched })
    }

    /// Whether Slurm has started this process itself, and not the batch script or the shell around it.
    fn is_slurm_step(&self) -> bool {
        let step = self.text("SLURM_STEP_ID").or_else(|| self.text("SLURM_STEPID"));
        step.is_some_and(|step| step.parse().map_or(true, |step: u64| step < FIRST_SPECIAL_STEP))
    }

    fn find(&self) -> Result<Option<Launched>, LaunchError> {
        let is_there = |name: &str| self.text(name).is_some();
        // The innermost first: `srun mpirun ...` and `mpirun torchrun ...` leave the variables of both.
        let found = if is_there("TORCHELASTIC_RUN_ID") {
            Some(self.torchrun(Launcher::Torchrun)?)
        // Anybody's variables, unless something says where to meet.
        } else if is_there("RANK") && is_there("WORLD_SIZE") && (is_there("MASTER_ADDR") || is_there("NCCL_COMM_ID")) {
            Some(self.torchrun(Launcher::Hand)?)
        } else if is_there("OMPI_COMM_WORLD_RANK") || is_there("OMPI_COMM_WORLD_SIZE") {
            let local = Some(("OMPI_COMM_WORLD_LOCAL_RANK", Some("OMPI_COMM_WORLD_LOCAL_SIZE")));
            let names = Names { rank: "OMPI_COMM_WORLD_RANK", ranks: "OMPI_COMM_WORLD_SIZE", local };
            Some(self.process(Launcher::OpenMpi, names)?)
        } else if is_there("PMI_RANK") && is_there("PMI_SIZE") {
            let local = Some(("MPI_LOCALRANKID", Some("MPI_LOCALNRANKS")));
            Some(self.process(Launcher::Mpich, Names { rank: "PMI_RANK", ranks: "PMI_SIZE", local })?)
        } else if self.is_slurm_step() && is_there("SLURM_PROCID") {
            Some(self.slurm()?)
        } else {
            None
        };
        let Some(launched) = found.filter(|launched| launched.ranks > 1) else { return Ok(None) };
        // What NCCL was told goes before what a launcher says.
        let meeting = match self.text("NCCL_COMM_ID") {
            Some(value) => Some(address(&value).ok_or_else(|| LaunchError::NotA {
                name: "NCCL_COMM_ID",
                value: text::excerpt(&value).into_owned(),
                what: "host:port",
            })?),
            None => launched.meeting,
        };
        Ok(Some(Launched { meeting, ..launched }))
    }
}

/// The variables that say which process this is.
#[derive(Clone, Copy)]
struct Names {
    rank: &'static str,
    ranks: &'static str,
    /// Its number on its machine, and how many there are, where somebody says so.
    local: Option<(&'static str, Option<&'static str>)>,
}

fn below(name: &'static str, value: usize, limit_name: &'static str, limit: usize) -> Result<(), LaunchError> {
    if value < limit { Ok(()) } else { Err(LaunchError::NotBelow { name, value, limit_name, limit }) }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

/// `host:port`, or `[v6 address]:port`.
fn address(text: &str) -> Option<MeetingPoint> {
    let (host, number) = text.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().ok()?.to_string(),
        None => host.to_owned(),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let fits = inner.is_some() || (!host.is_empty() && host.chars().all(is_name));
    fits.then_some(MeetingPoint { host, port: Some(port(number)?) })
}

/// How this process was started, if as one of several.
pub fn launched_in(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Launched>, LaunchError> {
    Environment(variable).find()
}

/// The same, from the environment of this process. What is no text there is shown as far as it is.
pub fn launched() -> Result<Option<Launched>, LaunchError> {
    launched_in(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
}
