//! Why several processes do not train together.

use tensor::DeviceError;
use train::reduce::agreement::Disagreement;
use train::reduce::desk::DeskError;

use super::launcher::Launched;

/// Why the processes of a run do not begin.
#[derive(Debug, thiserror::Error)]
pub enum ProcessesError {
    /// One of several processes that have no way to talk.
    #[error(
        "this is {}, sees no GPU that it could use (`dino-vmf doctor` says why), and has no way to talk to the others: processes on CPUs \
         talk through MPI. Start them with mpirun or srun, and with a build that has it (`cargo install --path crates/cli --features mpi`)",
        launched.in_detail()
    )]
    NoMpi {
        /// How it was started.
        launched: Launched,
    },
    /// MPI cannot be used beside threads.
    #[cfg(feature = "mpi")]
    #[error("this MPI cannot be called by a program with threads (MPI_THREAD_SERIALIZED): most builds of MPI can")]
    MpiThreads,
    /// Another MPI than that of the launcher.
    #[cfg(feature = "mpi")]
    #[error(
        "this is {launched}, but the MPI that this program was built with sees {found} in all: build it with the MPI whose \
         mpirun starts it"
    )]
    OtherMpi {
        /// How it was started.
        launched: Launched,
        /// Processes that MPI sees.
        found: usize,
    },
    /// Processes that were asked for different things.
    #[error(
        "the processes of this run were not asked for the same: {disagreement}. Start all of them with the same command"
    )]
    Disagreement {
        /// Who differs, and in what.
        disagreement: Disagreement,
    },
    /// The work of one process, which several were started for.
    #[error(
        "this is {launched}, and this is the work of one process: each of the {} would do all of it. Start it once, without \
         mpirun, srun or torchrun; the first process of a run evaluates by itself",
        launched.ranks
    )]
    OneProcess {
        /// How it was started.
        launched: Launched,
    },
    /// Something that several processes cannot do.
    #[error("{what} is for a run of one process: {instead}")]
    ForOneProcess {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

/// Why a run does not use several GPUs.
#[derive(Debug, thiserror::Error)]
pub enum GpusError {
    /// There is none.
    #[error("--gpus {asked}: {error}. `dino-vmf doctor` says what is there; without --gpus all is done without a GPU")]
    None {
        /// How many were asked for.
        asked: usize,
        /// What is missing.
        error: DeviceError,
    },
    /// There are fewer.
    #[error("--gpus {asked}: this machine shows {} ({names}): ask for no more, or see CUDA_VISIBLE_DEVICES", text::count(*found, "GPU"))]
    TooMany {
        /// How many were asked for.
        asked: usize,
        /// How many there are.
        found: usize,
        /// What they are called.
        names: String,
    },
    /// Another device was asked for, too.
    #[error("--gpus {asked} and --device {device} contradict each other: --gpus takes the first {asked} of CUDA_VISIBLE_DEVICES, one for each process. {}", if device == "cpu" { "Several processes on CPUs are started with mpirun: docs/distributed.md" } else { "Leave --device out" })]
    OtherDevice {
        /// How many were asked for.
        asked: usize,
        /// What was asked for besides.
        device: String,
    },
    /// Somebody has started the processes already.
    #[error(
        "this is {launched}: --gpus starts processes itself, and here that is done. Leave --gpus out; each of them takes the GPU of its number"
    )]
    Launched {
        /// How this process was started.
        launched: Box<Launched>,
    },
    /// More processes on a machine than it has GPUs.
    #[error(
        "this is {launched}, number {local} of its machine, which shows {} ({error}). Start as many processes on a machine as it \
         has GPUs, or give each its own by CUDA_VISIBLE_DEVICES", text::count(*found, "GPU")
    )]
    NoGpuForIt {
        /// How it was started.
        launched: Box<Launched>,
        /// Its number on its machine.
        local: usize,
        /// How many GPUs there are.
        found: usize,
        /// What the driver says.
        error: String,
    },
    /// Two processes on one GPU.
    #[error(
        "processes {first} and {second} have the same GPU, {gpu} of {host}, which NCCL does not do. Start one process for each GPU; a \
         process takes the one of its number on its machine (LOCAL_RANK), or that of --device cuda:N"
    )]
    Shared {
        /// One of them.
        first: usize,
        /// The other one.
        second: usize,
        /// The GPU.
        gpu: String,
        /// Its machine.
        host: String,
    },
    /// Nobody says where to meet.
    #[error(
        "this is {launched}, and nothing says where the processes meet{doubt}. Set NCCL_COMM_ID=host:port in all of them, with the \
         host of process 0 and a port that is free there, or MASTER_ADDR and MASTER_PORT"
    )]
    NoMeetingPoint {
        /// How it was started.
        launched: Box<Launched>,
        /// What is wrong with what was said.
        doubt: String,
    },
    /// They did not come together.
    #[error("this is {launched}: {error}. {}", way_out(error))]
    Desk {
        /// How this process was started.
        launched: Box<Launched>,
        /// What went wrong.
        error: DeskError,
    },
    /// The listening port that `--gpus` gives to its first process.
    #[error("--gpus has given this process no port to meet the others at: {0}. Start it again")]
    NoPort(String),
    /// A process that could not be started.
    #[error("process {rank} of --gpus could not be started: {source}")]
    Start {
        /// Its number.
        rank: usize,
        /// What the system says.
        source: std::io::Error,
    },
    /// No way from GPU to GPU.
    #[error(
        "several GPUs work together through NCCL, which could not be used: {reason}. `pip install nvidia-nccl-cu13` in the active \
         environment brings it, or your system's libnccl2; without --gpus or a launcher a run uses one GPU"
    )]
    NoNccl {
        /// What went wrong.
        reason: String,
    },
}

/// What a person can do about it.
fn way_out(error: &DeskError) -> &'static str {
    match error {
        DeskError::Taken { .. } => {
            "End that program, or have the processes meet elsewhere: another MASTER_PORT, or NCCL_COMM_ID=host:port with another port"
        }
        DeskError::Unknown { .. } => "See MASTER_ADDR, or set NCCL_COMM_ID=host:port to where process 0 runs",
        DeskError::Nobody { .. } => {
            "See whether process 0 was started and runs there, and whether a firewall lets that port pass; NCCL_COMM_ID=host:port names another place"
        }
        DeskError::Refused { .. } => {
            "Start all processes with the same program and the same command, each with its own number"
        }
        DeskError::Closed { .. } | DeskError::System(_) => "NCCL_COMM_ID=host:port has the processes meet elsewhere",
    }
}
