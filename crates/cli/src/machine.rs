//! The machine that this program runs on, as a run writes it down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tensor::Device;
use train::run::Machine;

use crate::description;
use crate::memory::HostMemory;
use crate::proc;

/// What computes here with this device, and so many threads beside it, in each of some processes.
pub fn here(device: &Device, threads: usize, processes: usize) -> Machine {
    Machine {
        program: description::program(),
        system: system(),
        processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: cores() as u64,
        threads: threads as u64,
        memory: HostMemory::read().map(|memory| memory.total),
        device: device.describe(),
        driver: driver().filter(|_| device.is_gpu()),
        processes: processes as u64,
    }
}

/// This program. On Linux by the file that runs, which stays the same when its name is given to another version.
pub fn program() -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// A digest of this program: two builds of one version have others. None where its file cannot be read.
pub fn build() -> Option<String> {
    let mut hash = random::StableHash::new();
    hash.write(&fs::read(program().ok()?).ok()?);
    Some(format!("{:016x}", hash.finish()))
}

/// Cores that this program may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of the processor, where the system says it.
pub fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = proc::field(&info, "model name")?;
    Some(name.trim_start_matches(':').trim().to_owned())
}

/// The system: what it calls itself, its kernel, and the kind of machine.
fn system() -> String {
    let (os, kind) = (std::env::consts::OS, std::env::consts::ARCH);
    let release = fs::read_to_string("/etc/os-release").ok();
    let name = release.as_deref().and_then(|text| proc::field(text, "PRETTY_NAME="));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let kernel = kernel.map_or(String::new(), |version| format!(" {}", version.trim()));
    match name.map(|name| name.trim_matches('"')).filter(|name| !name.is_empty()) {
        Some(name) => format!("{name}, {os}{kernel}, {kind}"),
        None => format!("{os}{kernel}, {kind}"),
    }
}

/// The version of NVIDIA's driver: the first word with a dot in `NVRM version: NVIDIA UNIX ... 580.65.06 ...`.
fn driver() -> Option<String> {
    version_in(&fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(is_version).map(|version| format!("NVIDIA {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_version_is_found_in_what_it_says() {
        let said =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12.3.0\n";
        assert_eq!(version_in(said).as_deref(), Some("NVIDIA 580.65.06"));
        assert_eq!(version_in("nothing"), None);
    }

    #[test]
    fn this_machine_has_a_name() {
        let device = Device::cpu(tensor::CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
        let machine = here(&device, 1, 1);
        assert!(machine.program.starts_with("dino-vmf ") && !machine.processor.is_empty());
        assert!(machine.system.ends_with(std::env::consts::ARCH) && machine.driver.is_none());
        assert_eq!(machine, here(&device, 1, 1), "the same at every start");
    }
}
