//! `machine.json`: the machines that a run was computed on. A record for people: nothing in a run follows from it, and one
//! that is missing or damaged is as if nothing had been written down.
//!
//! A start on the machine of the start before adds nothing, so that an interrupted run has the same record as one that was
//! not.

use std::path::Path;

use serde_json::{Value, json};

use super::atomic::replace_with;
use super::error::RunError;

/// The file's name in a run folder.
pub(super) const MACHINE: &str = "machine.json";
/// No record is larger.
const MOST_BYTES: u64 = 1 << 18;
/// Machines that are kept: a run that is passed around forgets the earliest but the first.
const MOST_MACHINES: usize = 64;

/// What a run was computed on, and by which program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The program with its version.
    pub program: String,
    /// The system with its version.
    pub system: String,
    /// The name of the processor.
    pub processor: String,
    /// Cores that the program may use.
    pub cores: u64,
    /// Threads that compute on the processor.
    pub threads: u64,
    /// Bytes of memory, where the system says.
    pub memory: Option<u64>,
    /// What computed, in a line: the instructions or the GPU, and in which precision.
    pub device: String,
    /// The version of the driver of a GPU that computed.
    pub driver: Option<String>,
    /// How many processes trained together.
    pub processes: u64,
}

/// A machine, and the step after which it took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSince {
    /// Steps that were done before.
    pub step: u64,
    /// The machine.
    pub machine: Machine,
}

impl MachineSince {
    /// As the file has it.
    pub fn to_json(&self) -> Value {
        let Machine { program, system, processor, cores, threads, memory, device, driver, processes } = &self.machine;
        json!({
            "after_step": self.step, "program": program, "system": system, "processor": processor, "cores": cores,
            "threads": threads, "memory_bytes": memory, "device": device, "driver": driver, "processes": processes,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let machine = Machine {
            program: text("program")?,
            system: text("system")?,
            processor: text("processor")?,
            cores: value["cores"].as_u64()?,
            threads: value["threads"].as_u64()?,
            memory: value["memory_bytes"].as_u64(),
            device: text("device")?,
            driver: text("driver"),
            // What was written before there were several says nothing of them.
            processes: value["processes"].as_u64().unwrap_or(1),
        };
        Some(Self { step: value["after_step"].as_u64()?, machine })
    }
}

/// The machines of the run in a folder, oldest first; none where nothing usable was written down.
pub(super) fn read(root: &Path) -> Vec<MachineSince> {
    let text = files::read_text_bounded(&root.join(MACHINE), MOST_BYTES).unwrap_or_default();
    let list = serde_json::from_str::<Value>(&text).ok();
    let entries = list.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    entries.iter().take(MOST_MACHINES).filter_map(MachineSince::from_json).collect()
}

/// Adds a machine that takes over after `step` steps, unless it is the one before.
pub(super) fn note(root: &Path, machine: &Machine, step: u64) -> Result<(), RunError> {
    let mut machines = read(root);
    if machines.last().is_some_and(|last| last.machine == *machine) {
        return Ok(());
    }
    if machines.len() == MOST_MACHINES {
        machines.remove(1);
    }
    machines.push(MachineSince { step, machine: machine.clone() });
    let list = Value::Array(machines.iter().map(MachineSince::to_json).collect());
    replace_with(&root.join(MACHINE), format!("{list:#}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(processor: &str) -> Machine {
        let memory = Some(8 << 30);
        Machine { processor: processor.to_owned(), cores: 2, threads: 2, memory, processes: 1, ..Default::default() }
    }

    #[test]
    fn a_start_is_written_down_where_the_machine_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_empty());
        for (name, step) in [("a", 0), ("a", 7), ("b", 9), ("a", 12)] {
            note(folder.path(), &machine(name), step).unwrap();
        }
        let found: Vec<(u64, String)> =
            read(folder.path()).into_iter().map(|since| (since.step, since.machine.processor)).collect();
        assert_eq!(found, [(0, "a".to_owned()), (9, "b".to_owned()), (12, "a".to_owned())]);
        for i in 0..100 {
            note(folder.path(), &machine(&i.to_string()), 100 + i).unwrap();
        }
        let kept = read(folder.path());
        assert_eq!((kept.len(), kept[0].step, kept[63].step), (MOST_MACHINES, 0, 199));
    }

    #[test]
    fn a_damaged_record_is_none_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MACHINE);
        for damaged in ["", "[", "{\"a\":1}", "[1, {\"program\": 3}]", &"x".repeat(1 << 19)] {
            std::fs::write(&path, damaged).unwrap();
            assert!(read(folder.path()).is_empty(), "{}", &damaged[..damaged.len().min(20)]);
        }
        note(folder.path(), &machine("a"), 3).unwrap();
        assert_eq!(read(folder.path()), [MachineSince { step: 3, machine: machine("a") }]);
    }
}
