//! Limits on memory that are set for this process or for the group of processes that it belongs to: `ulimit`, containers,
//! batch systems. A program that does not know of them plans with memory that it will not get.

use std::fs;
use std::path::{Path, PathBuf};

use crate::proc;

/// The name of the limit on addresses, which counts memory that was only reserved too.
pub const ADDRESSES: &str = "ulimit -v";

/// A limit that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What set it, for people.
    pub name: String,
    /// Bytes of the whole.
    pub most: u64,
    /// Bytes that are still to be had.
    pub left: u64,
}

/// All limits on this process, of which the least leaves what there is.
pub fn all() -> Vec<Limit> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut limits = of_process(&read("/proc/self/limits"), &read("/proc/self/status"));
    limits.extend(of_groups(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup")));
    limits
}

/// The limits of `ulimit -v` and `-d`, from the files of Linux's /proc.
fn of_process(limits: &str, status: &str) -> Vec<Limit> {
    let kinds = [("Max address space", ADDRESSES, "VmSize:"), ("Max data size", "ulimit -d", "VmData:")];
    let limit = |&(line, name, used): &(&str, &str, &str)| {
        // The soft limit comes first; without one the word is `unlimited`.
        let most = proc::field(limits, line)?.split_whitespace().next()?.parse().ok()?;
        let used = proc::bytes(status, used).unwrap_or(0);
        Some(Limit { name: name.to_owned(), most, left: u64::saturating_sub(most, used) })
    };
    kinds.iter().filter_map(limit).collect()
}

/// The files of a group's folder, in either version.
struct Version {
    limits: &'static [&'static str],
    used: &'static str,
    /// In memory.stat: contents of files that the system gives up as soon as somebody needs the memory.
    reclaimable: &'static str,
}

const FIRST: Version =
    Version { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", reclaimable: "total_inactive_file " };
const SECOND: Version =
    Version { limits: &["memory.max", "memory.high"], used: "memory.current", reclaimable: "inactive_file " };

/// The limits of the groups in `membership` (/proc/self/cgroup) and of all groups above them.
fn of_groups(root: &Path, membership: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let places: Vec<(PathBuf, &Version)> = if controllers.is_empty() {
            vec![(root.to_owned(), &SECOND), (root.join("unified"), &SECOND)]
        } else if controllers.split(',').any(|name| name == "memory") {
            vec![(root.join("memory"), &FIRST)]
        } else {
            continue;
        };
        for (root, version) in places {
            // In a container the path may be that of the host, so a folder that is not there is passed over.
            let inside = Path::new(group.trim_start_matches('/'));
            let folders = inside.ancestors().filter(|path| !path.components().any(|part| part.as_os_str() == ".."));
            limits.extend(folders.flat_map(|folder| of_group(&root, folder, version)));
        }
    }
    limits
}

fn of_group(root: &Path, folder: &Path, version: &Version) -> Vec<Limit> {
    let path = root.join(folder);
    let read = |file: &str| fs::read_to_string(path.join(file)).ok();
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    let limit = |&file: &&str| {
        let most = number(file)?;
        let stat = read("memory.stat").unwrap_or_default();
        let reclaimable = proc::field(&stat, version.reclaimable).and_then(|n| n.parse().ok()).unwrap_or(0);
        let used = number(version.used).unwrap_or(0).saturating_sub(reclaimable);
        let name = format!("{file} of the group /{}", folder.display());
        Some(Limit { name, most, left: most.saturating_sub(used) })
    };
    version.limits.iter().filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_shell_are_found_and_what_the_process_has_is_taken_off() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max cpu time              unlimited            unlimited            seconds   \n\
                      Max data size             5000000              unlimited            bytes     \n\
                      Max address space         4096000              8192000              bytes     \n";
        let found = of_process(limits, "VmSize:\t    1000 kB\nVmData:\t 10 kB\n");
        let address = Limit { name: "ulimit -v".to_owned(), most: 4_096_000, left: 3_072_000 };
        assert_eq!(found[0], address);
        assert_eq!((found[1].name.as_str(), found[1].left), ("ulimit -d", 4_989_760));
        assert_eq!(of_process(&limits.replace("4096000", "unlimited"), "").len(), 1);
        assert_eq!(of_process("", ""), []);
    }

    fn put(root: &Path, folder: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(root.join(folder)).unwrap();
        files.iter().for_each(|(name, text)| fs::write(root.join(folder).join(name), text).unwrap());
    }

    #[test]
    fn groups_of_the_second_version_are_bound_by_all_above_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        put(root, "jobs", &[("memory.max", "9000\n"), ("memory.high", "7000\n"), ("memory.current", "4500\n")]);
        put(root, "jobs/mine", &[("memory.max", "max\n"), ("memory.high", "max\n"), ("memory.current", "400\n")]);
        put(root, "jobs", &[("memory.stat", "anon 9\ninactive_file 500\nactive_file 77\n")]);
        let found = of_groups(root, "0::/jobs/mine\n");
        let shown: Vec<_> = found.iter().map(|limit| (limit.name.as_str(), limit.most, limit.left)).collect();
        let group = "of the group /jobs";
        let (max, high) = (format!("memory.max {group}"), format!("memory.high {group}"));
        assert_eq!(shown, [(max.as_str(), 9000, 5000), (high.as_str(), 7000, 3000)]);
    }

    #[test]
    fn groups_of_the_first_version_and_those_of_a_host_are_understood() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let files = [("memory.limit_in_bytes", "6000\n"), ("memory.usage_in_bytes", "1000\n")];
        put(root, "memory", &files);
        put(root, "memory/a", &files);
        let found = of_groups(root, "12:cpu,cpuacct:/x\n4:memory:/a\n1:name=systemd:/y\n");
        assert_eq!(found.iter().map(|limit| limit.left).collect::<Vec<_>>(), [5000, 5000]);
        // The name that the host gives the group is not known inside the container; its root is.
        assert_eq!(of_groups(root, "4:memory:/docker/0123\n").len(), 1);
        assert_eq!(of_groups(root, "4:memory:/../../0123\n").len(), 1);
        assert_eq!(of_groups(root, "nonsense\n0::\n"), []);
    }
}
