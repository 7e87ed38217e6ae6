//! Who has started this process as one of several, as which, and where they meet: all that the environment says of it.
//!
//! Variables of which process this is that contradict each other, or say nothing that can be understood, are errors that name
//! them: a process that takes itself for one alone would train the run of all. Others, which are only shown, are doubts; and
//! of a process alone none is of interest.

use std::fmt;

use super::node_list::{NodeListError, first_host};

/// Slurm's numbers of steps that are none: an interactive shell, a batch script, what holds a job.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// What `--gpus` tells the processes that it starts.
pub const RANK_VARIABLE: &str = "DINO_VMF_RANK";
pub const RANKS_VARIABLE: &str = "DINO_VMF_RANKS";
pub const PORT_VARIABLE: &str = "DINO_VMF_PORT";
/// What the processes of one run have in common; anybody may set it.
pub const TOKEN_VARIABLE: &str = "DINO_VMF_TOKEN";

/// What starts several processes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// This program itself: `--gpus`.
    Own,
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
            Self::Own => "--gpus",
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
    /// Whether all of them are known to run on one machine.
    pub on_one_machine: bool,
    /// What all of them have in common and those of another run, or of another start of it, do not.
    pub run: u64,
    /// How often all of them were started again.
    pub restarts: usize,
    /// What cannot be of where they meet and how often they were started.
    pub doubts: Vec<LaunchError>,
}

impl fmt::Display for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}, started by {}", self.rank, self.ranks, self.by)
    }
}

impl Launched {
    /// Whether the launcher, or somebody, says anything that tells this run from others.
    pub fn has_name(&self) -> bool {
        self.run != random::StableHash::new().finish()
    }

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
    #[error("{}, but {missing} is not set", has_started(*by))]
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

fn has_started(by: Launcher) -> String {
    match by {
        Launcher::Hand => "this process is to be one of several (RANK, WORLD_SIZE)".to_owned(),
        by => format!("{by} has started this process"),
    }
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

    /// The process that these variables speak of; none where it is alone.
    fn process(&self, by: Launcher, names: Names) -> Result<Option<Launched>, LaunchError> {
        let (rank, ranks) = (self.required(by, names.rank)?, self.required(by, names.ranks)?);
        below(names.rank, rank, names.ranks, ranks)?;
        if ranks == 1 {
            return Ok(None);
        }
        let local_rank = names.local.map(|(name, _)| self.number(name)).transpose()?.flatten();
        if let (Some((name, limit_name)), Some(local)) = (names.local, local_rank) {
            below(name, local, names.ranks, ranks)?;
            if let Some(limit) = limit_name.map(|name| self.number(name)).transpose()?.flatten() {
                below(name, local, limit_name.unwrap_or_default(), limit)?;
            }
        }
        let (on_one_machine, run) = (self.is_on_one_machine(by, ranks), self.run(by));
        let (meeting, doubts) = (None, Vec::new());
        Ok(Some(Launched { by, rank, ranks, local_rank, meeting, on_one_machine, run, restarts: 0, doubts }))
    }

    /// Whether a launcher says that all its processes run on one machine. Where it says nothing, they may not.
    fn is_on_one_machine(&self, by: Launcher, ranks: usize) -> bool {
        let says = |name: &str, number: usize| self.text(name).is_some_and(|value| value.parse() == Ok(number));
        match by {
            Launcher::Own => true,
            Launcher::Torchrun => says("LOCAL_WORLD_SIZE", ranks),
            Launcher::Hand => {
                let is_here = |host: String| matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1");
                says("LOCAL_WORLD_SIZE", ranks) || self.text("MASTER_ADDR").is_some_and(is_here)
            }
            Launcher::OpenMpi => says("OMPI_COMM_WORLD_LOCAL_SIZE", ranks),
            Launcher::Mpich => says("MPI_LOCALNRANKS", ranks),
            Launcher::Slurm => {
                let of_step = self.text("SLURM_STEP_NUM_NODES").is_some();
                says(if of_step { "SLURM_STEP_NUM_NODES" } else { "SLURM_JOB_NUM_NODES" }, 1)
            }
        }
    }

    /// What tells this run's processes from others that might look for each other at the same place.
    fn run(&self, by: Launcher) -> u64 {
        let names: &[&str] = match by {
            Launcher::Own => &[],
            Launcher::Torchrun | Launcher::Hand => {
                // Not TORCHELASTIC_RESTART_COUNT: each agent counts for itself, and not every restart.
                &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"]
            }
            Launcher::OpenMpi => &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
            Launcher::Mpich => &["PMI_JOBID", "PMI_ID_KVS"],
            Launcher::Slurm => &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"],
        };
        let names = names.iter().chain(&["NCCL_COMM_ID", TOKEN_VARIABLE]);
        let mut hash = random::StableHash::new();
        for (name, value) in names.filter_map(|name| self.text(name).map(|value| (name, value))) {
            hash.write(format!("{name}={value} ").as_bytes());
        }
        hash.finish()
    }

    /// Where processes meet that were started by torchrun, or like it.
    fn master(&self, by: Launcher) -> Result<Option<MeetingPoint>, LaunchError> {
        match self.text("MASTER_ADDR") {
            Some(host) => Ok(Some(MeetingPoint { host, port: Some(self.port(by)?) })),
            None if by == Launcher::Torchrun => Err(LaunchError::Missing { by, missing: "MASTER_ADDR" }),
            None => Ok(None),
        }
    }

    /// The port that `--gpus` has chosen.
    fn own_port(&self) -> Result<Option<u16>, LaunchError> {
        let Some(value) = self.text(PORT_VARIABLE) else { return Ok(None) };
        let wrong =
            || LaunchError::NotA { name: PORT_VARIABLE, value: text::excerpt(&value).into_owned(), what: "port" };
        port(&value).map(Some).ok_or_else(wrong)
    }

    fn port(&self, by: Launcher) -> Result<u16, LaunchError> {
        let name = "MASTER_PORT";
        let value = self.text(name).ok_or(LaunchError::Missing { by, missing: name })?;
        port(&value).ok_or_else(|| LaunchError::NotA { name, value: text::excerpt(&value).into_owned(), what: "port" })
    }

    /// Where processes meet that Slurm has started.
    fn first_node(&self) -> Result<Option<MeetingPoint>, LaunchError> {
        let list = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let list = list.into_iter().find_map(|name| Some((name, self.text(name)?)));
        let Some((name, value)) = list else { return Ok(None) };
        match first_host(&value) {
            Ok(host) => Ok(Some(MeetingPoint { host, port: None })),
            Err(why) => Err(LaunchError::Nodes { name, value: text::excerpt(&value).into_owned(), why }),
        }
    }

    /// Where they meet. What NCCL was told goes before what a launcher says.
    fn meeting(&self, by: Launcher) -> Result<Option<MeetingPoint>, LaunchError> {
        if let Some(value) = self.text("NCCL_COMM_ID") {
            let wrong = |value| LaunchError::NotA { name: "NCCL_COMM_ID", value, what: "host:port" };
            return address(&value).map(Some).ok_or_else(|| wrong(text::excerpt(&value).into_owned()));
        }
        match by {
            Launcher::Torchrun | Launcher::Hand | Launcher::OpenMpi | Launcher::Mpich => self.master(by),
            Launcher::Slurm => self.first_node(),
            Launcher::Own => self.own_port().map(|port| Some(MeetingPoint { host: "127.0.0.1".to_owned(), port })),
        }
    }

    /// How often they were started again, where somebody says so.
    fn restarts(&self, by: Launcher) -> Result<usize, LaunchError> {
        let count = match by {
            Launcher::Torchrun | Launcher::Hand => self.number("TORCHELASTIC_RESTART_COUNT"),
            Launcher::Slurm => self.number("SLURM_RESTART_COUNT"),
            Launcher::Own | Launcher::OpenMpi | Launcher::Mpich => Ok(None),
        };
        Ok(count?.unwrap_or(0))
    }

    /// Whether Slurm has started this process itself, and not the batch script or the shell around it.
    fn is_slurm_step(&self) -> bool {
        let step = self.text("SLURM_STEP_ID").or_else(|| self.text("SLURM_STEPID"));
        step.is_some_and(|step| step.parse().map_or(true, |step: u64| step < FIRST_SPECIAL_STEP))
    }

    /// Whether anything says where processes that were started by hand meet.
    fn knows_where(&self) -> bool {
        ["MASTER_ADDR", "NCCL_COMM_ID"].iter().any(|name| self.text(name).is_some())
    }

    /// What is to be said to a process alone that has a number and a size, and no place to meet: anybody may have set them, and mean
    /// something else.
    fn lonely(&self) -> Option<String> {
        let number = |name| self.number::<usize>(name).ok().flatten();
        let (rank, ranks) = (number("RANK")?, number("WORLD_SIZE").filter(|ranks| *ranks > 1)?);
        (self.launcher().is_none() && !self.knows_where()).then(|| {
            format!(
                "RANK is {rank} and WORLD_SIZE {ranks}, and neither MASTER_ADDR nor NCCL_COMM_ID says where to meet: this process trains \
                 alone"
            )
        })
    }

    /// Who has started this process, and the variables that say which one it is.
    fn launcher(&self) -> Option<(Launcher, Names)> {
        let is_there = |name: &str| self.text(name).is_some();
        let (has_rank, has_size) = (is_there("RANK"), is_there("WORLD_SIZE"));
        let of_torch =
            Names { rank: "RANK", ranks: "WORLD_SIZE", local: Some(("LOCAL_RANK", Some("LOCAL_WORLD_SIZE"))) };
        // The innermost first: `srun mpirun ...` and `mpirun torchrun ...` leave the variables of both.
        if is_there(RANK_VARIABLE) || is_there(RANKS_VARIABLE) {
            let local = Some((RANK_VARIABLE, None));
            Some((Launcher::Own, Names { rank: RANK_VARIABLE, ranks: RANKS_VARIABLE, local }))
        } else if is_there("TORCHELASTIC_RUN_ID") {
            Some((Launcher::Torchrun, of_torch))
        } else if is_there("OMPI_COMM_WORLD_RANK") || is_there("OMPI_COMM_WORLD_SIZE") {
            let local = Some(("OMPI_COMM_WORLD_LOCAL_RANK", Some("OMPI_COMM_WORLD_LOCAL_SIZE")));
            Some((Launcher::OpenMpi, Names { rank: "OMPI_COMM_WORLD_RANK", ranks: "OMPI_COMM_WORLD_SIZE", local }))
        } else if is_there("PMI_RANK") || is_there("PMI_SIZE") {
            let local = Some(("MPI_LOCALRANKID", Some("MPI_LOCALNRANKS")));
            Some((Launcher::Mpich, Names { rank: "PMI_RANK", ranks: "PMI_SIZE", local }))
        // Anybody's variables, unless something says where to meet. A script around mpirun may have exported them.
        } else if has_rank && has_size && self.knows_where() {
            Some((Launcher::Hand, of_torch))
        } else if self.is_slurm_step() {
            // Of the step where both are there: `srun -n 2` within a job of eight.
            let of_step = is_there("SLURM_STEP_NUM_TASKS");
            let ranks = if of_step { "SLURM_STEP_NUM_TASKS" } else { "SLURM_NTASKS" };
            Some((Launcher::Slurm, Names { rank: "SLURM_PROCID", ranks, local: Some(("SLURM_LOCALID", None)) }))
        // Half of it set by hand. Batch scripts do that too, for what srun starts; there it is Slurm that knows the rest.
        } else if (has_rank || has_size) && self.knows_where() && self.text("WORLD_SIZE").as_deref() != Some("1") {
            Some((Launcher::Hand, of_torch))
        } else {
            None
        }
    }

    fn find(&self) -> Result<Option<Launched>, LaunchError> {
        let Some((by, names)) = self.launcher() else { return Ok(None) };
        let Some(mut launched) = self.process(by, names)? else { return Ok(None) };
        match self.meeting(by) {
            Ok(meeting) => launched.meeting = meeting,
            Err(doubt) => launched.doubts.push(doubt),
        }
        match self.restarts(by) {
            Ok(restarts) => launched.restarts = restarts,
            Err(doubt) => launched.doubts.push(doubt),
        }
        Ok(Some(launched))
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

/// The same, from the environment of this process.
pub fn launched() -> Result<Option<Launched>, LaunchError> {
    launched_in(variable)
}

/// What a process that is alone should be told of its environment, where it looks as if it were not to be.
pub fn lonely_in(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    Environment(variable).lonely()
}

/// The same, from the environment of this process.
pub fn lonely() -> Option<String> {
    lonely_in(variable)
}

/// A variable of this process. What is no text there is shown as far as it is.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
