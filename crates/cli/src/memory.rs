//! The memory of this machine, and whether a run fits into it: a system that has none left ends a program without a word.

use std::fs;

use eval::ReadOptions;
use ssl::memory::{MemoryNeed, estimate_on_cpu};
use ssl::method;
use ssl::recipe::Recipe;
use ssl::setup::learner_options;
use tensor::Device;
use text::bytes;

use crate::error::CliError;
use crate::limits::{self, Limit};
use crate::output;
use crate::pretrain;
use crate::proc;

/// An estimate may be too high by this factor.
const DOUBT: f64 = 0.8;
/// Addresses that the C library's allocator reserves for a thread, used or not. `ulimit -v` counts them.
const OF_A_THREAD: u64 = 64 << 20;
/// Addresses of what no estimate counts: the program itself, evaluations, files that are read.
const OF_THE_REST: u64 = 256 << 20;

/// Bytes of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Of the machine, or what a limit allows.
    pub total: u64,
    /// Of that, what a program may still take.
    pub available: u64,
    /// On disk, beside it.
    pub swap: u64,
    /// What set the limit, where there is one below what the machine has.
    pub limit: Option<String>,
}

impl HostMemory {
    /// What this system says; nothing where it does not.
    pub fn read() -> Option<Self> {
        let info = fs::read_to_string("/proc/meminfo").ok()?;
        Some(limits::all().iter().fold(Self::parse(&info)?, Self::within))
    }

    fn parse(info: &str) -> Option<Self> {
        Some(Self {
            total: proc::bytes(info, "MemTotal:")?,
            available: proc::bytes(info, "MemAvailable:")?,
            swap: proc::bytes(info, "SwapTotal:").unwrap_or(0),
            limit: None,
        })
    }

    /// The same for a process with a limit. Swap does not help one that has reached it.
    fn within(self, limit: &Limit) -> Self {
        let available = self.available.min(limit.left);
        if limit.most >= self.total {
            return Self { available, ..self };
        }
        Self { total: limit.most, available, swap: 0, limit: Some(limit.name.clone()) }
    }

    /// The whole, and who set it.
    pub fn describe_total(&self) -> String {
        match &self.limit {
            Some(name) => format!("{} ({name})", bytes(self.total)),
            None => bytes(self.total),
        }
    }
}

/// Warns of a training on the CPU that needs more memory than there is, and refuses what cannot fit. A GPU plans its own.
pub fn check(device: &Device, need: &MemoryNeed<'_>) -> Result<(), CliError> {
    if device.is_gpu() {
        return Ok(());
    }
    check_bytes(estimate_on_cpu(device, need)? as u64, SMALLER)
}

/// The same for the training of a recipe.
pub fn check_recipe(device: &Device, recipe: &Recipe) -> Result<(), CliError> {
    if let Some(warning) = judge_recipe(device, recipe)? {
        output::note(&warning);
    }
    warn_of_addresses(SMALLER);
    Ok(())
}

/// An error for a training on the CPU that cannot fit, and a warning for one that may not.
pub fn judge_recipe(device: &Device, recipe: &Recipe) -> Result<Option<String>, CliError> {
    let Some(memory) = HostMemory::read().filter(|_| !device.is_gpu()) else { return Ok(None) };
    let bytes = with_need(recipe, |need| estimate_on_cpu(device, need))??;
    judge(bytes as u64, &memory, SMALLER)
}

/// What the training of a recipe takes, in words.
pub fn of_recipe(device: &Device, recipe: &Recipe) -> Result<String, CliError> {
    let free = device.free_memory().map_or(String::new(), |free| format!("; {} are free there now", bytes(free)));
    Ok(match plan_of_recipe(device, recipe)? {
        Some(plan) => format!("{} of the GPU, by its plan{free}", bytes(plan)),
        None => format!("about {}", bytes(with_need(recipe, |need| estimate_on_cpu(device, need))?? as u64)),
    })
}

/// Bytes of a GPU that the training of a recipe takes, by its plan; none for a CPU.
pub fn plan_of_recipe(device: &Device, recipe: &Recipe) -> Result<Option<u64>, CliError> {
    let plan = with_need(recipe, |need| ssl::memory::plan(device, need))??;
    Ok(plan.map(|plan| plan.total as u64))
}

/// Looks at the training of a recipe, online evaluations included.
fn with_need<T>(recipe: &Recipe, look: impl FnOnce(&MemoryNeed<'_>) -> T) -> Result<T, CliError> {
    let (options, method) = (learner_options(recipe)?, method::of(recipe));
    let is_evaluated = recipe.facts().labelled && recipe.knn_every() > 0;
    let evaluated = is_evaluated.then(|| pretrain::evaluated_at_once(recipe, ReadOptions::default()));
    let (batch, drop_path) = (recipe.batch_size(), recipe.drop_path());
    Ok(look(&MemoryNeed { options: &options, method: &*method, batch, drop_path, evaluated }))
}

/// The same for any work: `smaller` are the options that make it so.
pub fn check_bytes(need: u64, smaller: &'static str) -> Result<(), CliError> {
    let Some(memory) = HostMemory::read() else { return Ok(()) };
    if let Some(warning) = judge(need, &memory, smaller)? {
        output::note(&warning);
    }
    warn_of_addresses(smaller);
    Ok(())
}

/// Warns of a limit on addresses that threads alone may reach. Nothing can be said once it is reached: the program ends where
/// it asks for memory. It is no error, since the allocator makes do with less while the work is small.
fn warn_of_addresses(smaller: &str) {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let limits = limits::all();
    if let Some(warning) = limits.iter().find_map(|limit| addresses_warning(limit, threads, smaller)) {
        output::note(&warning);
    }
}

fn addresses_warning(limit: &Limit, cores: u64, smaller: &str) -> Option<String> {
    // As many threads compute as load.
    let needed = (2 * cores).saturating_mul(OF_A_THREAD).saturating_add(OF_THE_REST);
    (limit.name == limits::ADDRESSES && limit.left < needed).then(|| {
        format!(
            "warning: {} leaves {} of addresses, and threads alone may reserve more. If the program ends with `memory \
             allocation failed`: a higher {}, MALLOC_ARENA_MAX=1 in the environment, fewer --threads, or {smaller}",
            limit.name,
            bytes(limit.left),
            limit.name
        )
    })
}

fn judge(need: u64, memory: &HostMemory, smaller: &'static str) -> Result<Option<String>, CliError> {
    let HostMemory { total, available, swap, .. } = *memory;
    if DOUBT * need as f64 > (total + swap) as f64 {
        return Err(CliError::TooLittleMemory { need, total: memory.describe_total(), smaller });
    }
    let (needed, free) = (bytes(need), bytes(available));
    Ok((need > available).then(|| {
        format!(
            "warning: this needs about {needed} of memory and {free} are free. If the system ends it without a word: \
             {smaller}"
        )
    }))
}

/// What makes a training smaller.
pub const SMALLER: &str = "a smaller --batch-size, --arch, --global-size or --out-dim, the batch in parts (--accumulate 4), \
                           or activations that are recomputed (--checkpoint-activations, a quarter more time)";
/// What makes features smaller.
pub const SMALLER_FEATURES: &str = "a smaller batch (--batch-size 1), or smaller images (--image-size)";
/// What makes views smaller.
pub const SMALLER_VIEWS: &str = "fewer --images, or smaller views (--set global_size=224)";
/// What makes the batches of a loader smaller.
pub const SMALLER_BATCHES: &str = "a smaller --batch-size or --global-size, or fewer --local-crops";

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_is_read_in_bytes_and_limits_leave_less() {
        let info = "MemTotal:       24577352 kB\nMemFree:        1 kB\nMemAvailable:   23000000 kB\nSwapTotal: 8 kB\n";
        let machine = HostMemory::parse(info).unwrap();
        let expected = HostMemory { total: 24_577_352 * 1024, available: 23_000_000 * 1024, swap: 8192, limit: None };
        assert_eq!(machine, expected);
        assert_eq!(HostMemory::parse("MemTotal: 3 kB"), None);
        let limit = |most, left| Limit { name: "ulimit -v".to_owned(), most, left };
        assert_eq!(machine.clone().within(&limit(u64::MAX, u64::MAX)), machine);
        let limited = machine.clone().within(&limit(GIB, GIB - 1000)).within(&limit(2 * GIB, GIB - 2000));
        let expected = HostMemory { total: GIB, available: GIB - 2000, swap: 0, limit: Some("ulimit -v".to_owned()) };
        assert_eq!(limited, expected);
        assert_eq!(limited.describe_total(), "1.0 GiB (ulimit -v)");
    }

    #[test]
    fn few_addresses_are_warned_of_and_little_memory_by_itself_is_not() {
        let limit = |name: &str, left| Limit { name: name.to_owned(), most: left, left };
        let said = addresses_warning(&limit(limits::ADDRESSES, 300 << 20), 2, SMALLER).unwrap();
        assert!(said.contains("ulimit -v leaves 300.0 MiB") && said.contains("MALLOC_ARENA_MAX=1"), "{said}");
        assert_eq!(addresses_warning(&limit(limits::ADDRESSES, GIB), 2, SMALLER), None);
        assert!(addresses_warning(&limit(limits::ADDRESSES, GIB), 64, SMALLER).is_some(), "more threads need more");
        assert_eq!(addresses_warning(&limit("ulimit -d", 300 << 20), 2, SMALLER), None);
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused_and_one_that_may_not_is_warned_of() {
        let memory = HostMemory { total: 8 * GIB, available: 6 * GIB, swap: 0, limit: None };
        assert_eq!(judge(5 * GIB, &memory, SMALLER).unwrap(), None);
        let warning = judge(7 * GIB, &memory, SMALLER).unwrap().unwrap();
        assert!(warning.contains("about 7.0 GiB") && warning.contains("6.0 GiB are free"), "{warning}");
        let error = judge(11 * GIB, &memory, SMALLER).unwrap_err().to_string();
        assert!(error.contains("11.0 GiB") && error.contains("--batch-size"), "{error}");
        assert!(judge(11 * GIB, &HostMemory { swap: 2 * GIB, ..memory.clone() }, SMALLER).unwrap().is_some());
    }
}
