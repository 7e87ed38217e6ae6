//! The list of many runs with long logs takes little memory, and shows how each of them ends.

mod common;

use std::fmt::Write;

use common::{Events, get, run, serve, status};

const RUNS: usize = 50;
const RECORDS: usize = 20_000;

/// The most memory that this process has had, in KiB; none where the system does not say.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()
}

#[test]
fn many_long_logs_are_listed_without_being_held() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for step in 1..=RECORDS {
        let fall = step as f64 / RECORDS as f64;
        _ = writeln!(
            log,
            "{{\"step\":{step},\"epoch\":0,\"loss\":{:.6},\"divergence\":0.5,\"teacher_entropy\":5.5,\"prototypes_in_use\":40,\
             \"usage_perplexity\":30.5,\"gradient_norm\":0.75,\"lr\":0.001,\"images_per_second\":512.5}}",
            8.0 - fall
        );
    }
    for number in 0..RUNS {
        let end = format!("{{\"step\":{RECORDS},\"knn_top1\":{number}.5}}\n");
        run(folder.path(), &format!("run-{number:02}"), &(log.clone() + &end));
    }
    let size = (RUNS * log.len()) as u64 / 1024;
    drop(log);
    let before = peak();
    let (address, _) = serve(folder.path(), false);
    assert_eq!(status(&get(address, "/")), 200);
    // What one look does not reach, the next ones do.
    let mut events = Events::of(address, "/events/list");
    let mut rows = serde_json::Map::new();
    while rows.len() < RUNS {
        let mut event = events.next();
        rows.append(event["rows"].as_object_mut().unwrap());
    }
    for number in 0..RUNS {
        let row = rows[&format!("run-{number:02}")].as_str().unwrap();
        assert!(row.contains(&format!(">{number}.5<")) && row.contains(">7<"), "kNN and loss of the end: {row}");
        assert!(row.matches('L').count() >= 30, "a line of many points: {row}");
    }
    let page = get(address, "/run/run-07");
    assert!(page.contains("<b>7</b>") && page.contains("7.5 %"), "{page}");
    if let (Some(before), Some(after)) = (before, peak()) {
        let grown = after.saturating_sub(before);
        assert!(grown < size / 4, "{grown} KiB for {size} KiB of logs");
    }
}
