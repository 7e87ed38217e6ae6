//! Processes on GPUs, one for each: they meet at a desk, and NCCL carries what is large.

use std::time::Duration;

use tensor::{Device, FoundGpu, NcclError, found_gpus, nccl_library};
use train::reduce::agreement::gather_texts;
use train::reduce::desk::{Desk, Team, Who};
use train::reduce::nccl::{self, NcclCarrier};
use train::reduce::{Carrier, Group, Peers, Reduce, Until, Waiting};

use super::error::GpusError;
use super::launcher::{Launched, Launcher};
use super::{meeting, own};
use crate::args::{AUTO, DeviceArgs};
use crate::device::DeviceChoiceError;
use crate::error::CliError;

/// A process of several that each have a GPU.
pub type OnGpu = Group<Team<Box<dyn Carrier>>>;

/// The GPU of this process: by its number on its machine, unless `--device` names one. None where it computes on a CPU.
pub fn number_of(launched: &Launched, device: &DeviceArgs) -> Result<Option<usize>, CliError> {
    let is_any = matches!(device.device.as_str(), AUTO | "cuda");
    if !is_any {
        return device.gpu_number();
    }
    let found = match found_gpus() {
        Ok(found) => found.len(),
        // Processes on CPUs, of which some other way may be found to talk.
        Err(_) if device.device == AUTO && launched.by != Launcher::Own => return Ok(None),
        Err(error) => {
            return Err(DeviceChoiceError::NoCuda { given: device.device.clone(), error }.into());
        }
    };
    choose(launched, found).map(Some).map_err(CliError::from)
}

/// The number of the GPU among so many.
fn choose(launched: &Launched, found: usize) -> Result<usize, GpusError> {
    // Where each process is shown its own GPU alone, as Slurm does with --gpus-per-task, that is the one.
    if found == 1 && launched.by != Launcher::Own {
        return Ok(0);
    }
    let local = launched.local_rank.or(launched.on_one_machine.then_some(launched.rank)).unwrap_or(0);
    if local < found {
        return Ok(local);
    }
    let error = "CUDA_VISIBLE_DEVICES may hide others".to_owned();
    Err(GpusError::NoGpuForIt { launched: Box::new(launched.clone()), local, found, error })
}

/// Finds the other processes at their desk.
pub fn meet(launched: &Launched, waiting: Waiting) -> Result<OnGpus, GpusError> {
    let failed = |error| GpusError::Desk { launched: Box::new(launched.clone()), error };
    let who = Who {
        rank: launched.rank,
        ranks: launched.ranks,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        token: meeting::token(launched),
    };
    let limit = waiting.limit;
    let desk = match own::given_port(launched)? {
        Some(listener) => Desk::keep(listener, &who, waiting),
        None => Desk::open(&meeting::place(launched)?, &who, waiting),
    };
    let team = Team::at(desk.map_err(failed)?);
    Ok(OnGpus { group: Group::new(team.clone()), team, limit })
}

/// The processes, before and after they have what carries many numbers.
pub struct OnGpus {
    team: Team<Box<dyn Carrier>>,
    group: OnGpu,
    limit: Option<Duration>,
}

impl OnGpus {
    /// All of them, for something that they do together.
    pub fn group(&self) -> OnGpu {
        self.group.clone()
    }

    /// Looks whether each has a GPU of its own, and begins to use NCCL.
    pub fn begin(&self, device: &Device, number: usize) -> Result<(), CliError> {
        let mut group = self.group();
        let gpus =
            found_gpus().map_err(|error| DeviceChoiceError::NoCuda { given: format!("cuda:{number}"), error })?;
        let own = gpus.get(number).cloned();
        let own = own.ok_or_else(|| GpusError::NoNccl { reason: format!("GPU {number} is gone") })?;
        let all = gather_texts(&mut group, &Seat::here(own).to_text())?;
        if let Some(error) = shared(&all.iter().map(|text| Seat::of_text(text)).collect::<Vec<_>>()) {
            return Err(error.into());
        }
        let carrier = carrier(device, self)?;
        self.team.carry_with(carrier);
        Ok(())
    }
}

/// Opens the way from GPU to GPU. Whoever cannot says so to all before anybody waits in NCCL.
fn carrier(device: &Device, on: &OnGpus) -> Result<Box<dyn Carrier>, CliError> {
    let failed = |error: NcclError| CliError::from(GpusError::NoNccl { reason: error.to_string() });
    let mut group = on.group();
    let (rank, ranks) = (group.rank(), group.ranks());
    let here = if rank == 0 { nccl::new_id().map(|id| id.to_vec()) } else { nccl_library().map(|_| Vec::new()) };
    if group.any(here.is_err(), Until::Limit)? {
        let elsewhere = || GpusError::NoNccl { reason: "another process says why".to_owned() };
        return Err(here.err().map_or_else(|| elsewhere().into(), failed));
    }
    let numbers: Vec<f64> = here.unwrap_or_default().into_iter().map(f64::from).collect();
    let all = group.gather(&numbers)?;
    let id: Vec<u8> = all.into_iter().flatten().map(|byte| byte as u8).collect();
    let id = id.try_into().map_err(|_| GpusError::NoNccl { reason: "process 0 has sent no id".to_owned() })?;
    let carrier = NcclCarrier::start(device, rank, ranks, &id, on.limit, &|| on.team.is_over()).map_err(failed)?;
    Ok(Box::new(carrier))
}

/// Where a process sits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    host: String,
    gpu: FoundGpu,
    /// What NCCL takes for the machine, where somebody has set it. Processes with different ones may share a GPU.
    nccl_host: Option<String>,
}

impl Seat {
    fn here(gpu: FoundGpu) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        Self { host, gpu, nccl_host: std::env::var("NCCL_HOSTID").ok() }
    }

    fn to_text(&self) -> String {
        serde_json::json!([self.host, self.gpu.name, self.gpu.uuid, self.nccl_host]).to_string()
    }

    /// What another process has said; nothing where it makes no sense, which is no reason to fail here.
    fn of_text(text: &str) -> Option<Self> {
        let (host, name, uuid, nccl_host) = serde_json::from_str(text).ok()?;
        Some(Self { host, gpu: FoundGpu { name, uuid }, nccl_host })
    }
}

/// The first two processes that have the same GPU by mistake.
fn shared(seats: &[Option<Seat>]) -> Option<GpusError> {
    let place = |seat: &Option<Seat>| seat.as_ref().map(|seat| (seat.gpu.uuid.clone(), seat.nccl_host.clone()));
    for (second, seat) in seats.iter().enumerate() {
        let same = |other: &Option<Seat>| place(other).is_some() && place(other) == place(seat);
        if let (Some(first), Some(seat)) = (seats[..second].iter().position(same), seat) {
            let show = |text: &str| text::excerpt(text).into_owned();
            let (gpu, host) = (show(&seat.gpu.name), show(&seat.host));
            return Some(GpusError::Shared { first, second, gpu, host });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(by: Launcher, rank: usize, local_rank: Option<usize>, on_one_machine: bool) -> Launched {
        let (meeting, run, doubts) = (None, 0, Vec::new());
        Launched { by, rank, ranks: 8, local_rank, meeting, on_one_machine, run, restarts: 0, doubts }
    }

    #[test]
    fn a_process_has_the_gpu_of_its_number_on_its_machine_or_the_one_that_it_is_shown() {
        assert_eq!(choose(&launched(Launcher::Torchrun, 5, Some(1), false), 4).unwrap(), 1);
        assert_eq!(choose(&launched(Launcher::Slurm, 5, Some(1), false), 1).unwrap(), 0, "--gpus-per-task=1");
        assert_eq!(choose(&launched(Launcher::Hand, 3, None, true), 4).unwrap(), 3);
        let error = choose(&launched(Launcher::Torchrun, 7, Some(3), false), 2).unwrap_err().to_string();
        let expected = "this is process 7 of 8, started by torchrun, number 3 of its machine, which shows 2 GPUs (";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn two_processes_on_one_gpu_are_named_unless_they_mean_it() {
        let seat = |uuid: &str, nccl: Option<&str>| {
            let gpu = FoundGpu { name: "NVIDIA H200".to_owned(), uuid: uuid.to_owned() };
            Some(Seat { host: "gpu03".to_owned(), gpu, nccl_host: nccl.map(str::to_owned) })
        };
        assert!(shared(&[seat("a", None), seat("b", None), None, None]).is_none());
        let error = shared(&[seat("a", None), seat("b", None), seat("c", None), seat("b", None)]).unwrap().to_string();
        assert!(error.starts_with("processes 1 and 3 have the same GPU, NVIDIA H200 of gpu03,"), "{error}");
        assert!(shared(&[seat("a", Some("x")), seat("a", Some("y"))]).is_none(), "as tests do");
        assert!(shared(&[seat("a", Some("x")), seat("a", Some("x"))]).is_some());
    }

    #[test]
    fn a_seat_arrives_as_it_is_and_nonsense_is_none() {
        let gpu = FoundGpu { name: "\u{e9} \"x\"".to_owned(), uuid: "00ff".to_owned() };
        let seat = Seat { host: "gpu03".to_owned(), gpu, nccl_host: None };
        assert_eq!(Seat::of_text(&seat.to_text()), Some(seat));
        assert_eq!(Seat::of_text("[1"), None);
    }
}
