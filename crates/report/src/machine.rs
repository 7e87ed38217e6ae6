//! The machines that a run was computed on, as a table.

use std::fmt::Write;

use train::run::{Machine, MachineSince};

use crate::account::Account;
use crate::markup::escape;
use crate::page::SCROLL;

/// The part of a run's page; nothing for a run that does not say.
pub(crate) fn table(run: &Account) -> String {
    if run.machines.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for MachineSince { step, machine } in &run.machines {
        if run.machines.len() > 1 {
            _ = writeln!(rows, "<tr><th colspan=\"2\">after step {}</th></tr>", text::thousands(*step));
        }
        for (title, value) in lines(machine) {
            _ = writeln!(rows, "<tr><td>{title}</td><td class=\"value\">{}</td></tr>", escape(&value));
        }
    }
    format!("<h2>Machine</h2>\n{SCROLL}<table class=\"machine\">\n{rows}</table></div>\n")
}

/// What there is to say of a machine, a line each.
fn lines(machine: &Machine) -> Vec<(&'static str, String)> {
    let (cores, threads) = (machine.cores as usize, machine.threads as usize);
    let processor = format!("{}, {}", machine.processor, text::count(cores, "core"));
    let mut lines = vec![
        ("program", machine.program.clone()),
        ("system", machine.system.clone()),
        ("processor", processor),
        ("threads", text::thousands(threads as u64)),
    ];
    lines.extend(machine.memory.map(|memory| ("memory", text::bytes(memory))));
    lines.push(("computed on", machine.device.clone()));
    lines.extend(machine.driver.clone().map(|driver| ("driver", driver)));
    lines.extend((machine.processes > 1).then(|| ("processes", text::thousands(machine.processes))));
    lines
}
