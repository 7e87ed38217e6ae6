//! `doctor`: what this machine offers, and what to expect from it.

use std::path::Path;

use tensor::NcclError;
use text::{bytes, count};

use crate::args::DoctorArgs;
use crate::bench::step;
use crate::device::DeviceChoiceError;
use crate::error::CliError;
use crate::machine;
use crate::memory::HostMemory;
use crate::output;
use crate::processes::{Launcher, launched, place};

/// Less free memory than this, and only small networks fit.
const LITTLE_MEMORY: u64 = 4 << 30;
/// Less free disk than this, and checkpoints of a larger network do not fit.
const LITTLE_DISK: u64 = 5 << 30;

/// Prints what was found.
pub fn run(args: &DoctorArgs) -> Result<(), CliError> {
    // A device that cannot be had is what a person comes here for: the table first, then the error.
    let (chosen, refusal) = match args.device.choose() {
        Ok(chosen) => (chosen, None),
        Err(CliError::DeviceChoice(DeviceChoiceError::NoCuda { given, error })) => {
            (args.device.choose_cpu(Some(error.to_string()))?, Some(DeviceChoiceError::NotHere { given }))
        }
        Err(error) => return Err(error),
    };
    let device = chosen.device.clone();
    let mut lines = vec![("dino-vmf", env!("CARGO_PKG_VERSION").to_owned())];
    let mut advice = Vec::new();

    let cores = machine::cores();
    let name = machine::processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    lines.push(("CPU", format!("{name}, {}", count(cores, "core"))));
    lines.push(("computes with", device.describe()));
    let rate = step::gemm_gflops(&device);
    let bits = if device.is_gpu() { "bf16" } else { "f32" };
    lines.push(("matrix product", format!("{rate:.0} GFLOP/s ({bits})")));
    if cfg!(debug_assertions) {
        advice.push("This is a debug build: `cargo build --release` makes one that is faster".to_owned());
    }
    if !device.is_gpu() && device.threads() < cores {
        advice.push(format!("{} of {cores} cores are used: --threads or RAYON_NUM_THREADS says so", device.threads()));
    }

    let mpi = if cfg!(feature = "mpi") { "built in" } else { "not built in (docs/distributed.md)" };
    lines.push(("MPI", mpi.to_owned()));
    match launched() {
        Ok(None) => {}
        Ok(Some(launched)) => {
            lines.push(("started as", launched.in_detail()));
            match place(&launched) {
                Ok(place) if launched.by == Launcher::Own => lines.push(("meeting", format!("at {place}"))),
                Ok(place) => lines.push(("meeting", format!("at {place}, where processes on GPUs look for process 0"))),
                Err(error) if device.is_gpu() => advice.push(error.to_string()),
                Err(_) => {}
            }
            advice.extend(launched.doubts.iter().map(|doubt| format!("Of where the processes meet: {doubt}")));
            if cfg!(not(feature = "mpi")) && !device.is_gpu() {
                advice.push(
                    "This build has no MPI: `--features mpi` makes one whose processes train together on CPUs"
                        .to_owned(),
                );
            }
        }
        Err(error) => {
            lines.push(("started as", "nothing that makes sense".to_owned()));
            advice.push(format!("What started this process has left a contradiction: {error}"));
        }
    }

    match HostMemory::read() {
        Some(memory) => {
            let free = memory.available;
            lines.push(("memory", format!("{}, {} free", memory.describe_total(), bytes(free))));
            if free < LITTLE_MEMORY {
                advice.push("Little memory is free: use a small --arch, --batch-size and --out-dim".to_owned());
            }
        }
        None => lines.push(("memory", "unknown: this system does not say in /proc/meminfo".to_owned())),
    }
    match disk_free(Path::new(".")) {
        Some(free) => {
            lines.push(("disk", format!("{} free in this folder", bytes(free))));
            if free < LITTLE_DISK {
                advice.push("Little disk is free here: give an --out on another disk".to_owned());
            }
        }
        None => lines.push(("disk", "unknown: this system does not say".to_owned())),
    }
    let found = tensor::cuda_libraries();
    for library in &found {
        let title = match library.name {
            "cuda" => "NVIDIA driver",
            "nvrtc" => "NVRTC",
            _ => "cuBLASLt",
        };
        let place = library.place.as_deref().map_or_else(|| "not found".to_owned(), str::to_owned);
        lines.push((title, place));
    }
    lines.push(("NCCL", nccl_in_words()));
    if let Ok(gpus) = tensor::found_gpus() {
        let names = gpus.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", ");
        lines.push(("GPUs", format!("{} ({names})", gpus.len())));
        if gpus.len() > 1 {
            advice.push(format!("`pretrain --gpus {}` trains on all of them", gpus.len()));
        }
    }
    if let Some(reason) = &chosen.no_gpu {
        lines.push(("GPU", reason.clone()));
    }
    let missing: Vec<_> = found.iter().filter(|library| library.place.is_none()).collect();
    if refusal.is_none() && advice.is_empty() && (missing.is_empty() || found[0].place.is_none()) {
        advice.push("All is there to train on this CPU: `dino-vmf pretrain` does, on made-up images".to_owned());
    }
    // Without a driver there is most likely no GPU; somebody who asks for one is told nevertheless.
    if !missing.is_empty() {
        let wanted = missing.iter().map(|library| format!("lib{} ({})", library.name, library.source));
        let wanted = wanted.collect::<Vec<_>>().join(", ");
        advice.push(format!("To train on an NVIDIA GPU (Ampere or newer), these are missing: {wanted}"));
    }

    let width = lines.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
    let mut text: String = lines.iter().map(|(title, found)| format!("{title:width$}  {found}\n")).collect();
    text += "\n";
    text.extend(advice.iter().map(|line| format!("* {line}\n")));
    output::result(&text)?;
    refusal.map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// What several GPUs need beside what one does.
fn nccl_in_words() -> String {
    match tensor::nccl_library() {
        Ok(found) => format!("{}, {}", found.version, found.place),
        Err(NcclError::Missing) => "not found: several GPUs need it, one does not".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[cfg(unix)]
fn disk_free(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(not(unix))]
fn disk_free(_: &Path) -> Option<u64> {
    None
}
