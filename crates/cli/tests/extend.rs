//! `pretrain --extend`: a run that is made longer than it was begun.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{checkpoint, inspected, learnt, metrics, newest_step, small, small_command, timeless_metrics, wait_until};
use serde_json::Value;

/// Three epochs of three steps.
fn begin(out: &Path) {
    small(out, &["--epochs", "3"]).succeeded();
}

/// The learning rate of each step in the log.
fn rates(out: &Path) -> Vec<f64> {
    metrics(out).iter().filter_map(|record| record.get("lr")?.as_f64()).collect()
}

fn identity(out: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join("identity.json")).unwrap()).unwrap()
}

#[test]
fn a_longer_run_is_refused_with_the_ways_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let (out, none) = (folder.path().join("run"), folder.path().join("none"));
    begin(&out);
    let before = common::content(&out);
    let refused = small(&out, &["--epochs", "5"]).failed();
    for said in
        ["this run has 3 epochs, and --epochs 5 asks for more", "--extend stretch ", "--extend again ", "--init "]
    {
        assert!(refused.contains(said), "{said}: {refused}");
    }
    let refused = small(&out, &["--epochs", "3", "--extend", "again"]).failed();
    assert!(refused.contains("needs --epochs above 3"), "{refused}");
    let refused = small(&out, &["--epochs", "5", "--extend", "again", "--set", "seed=4"]).failed();
    assert!(refused.contains("seed: 0 saved, 4 now") && !refused.contains("epochs: "), "{refused}");
    let refused = small(&none, &["--extend", "stretch"]).failed();
    assert!(refused.contains("this folder holds none"), "{refused}");
    assert!(before == common::content(&out), "nothing was changed");
}

#[test]
fn epochs_that_are_added_have_their_own_schedules_and_the_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    begin(out);
    let (name, first) = (identity(out)["run"].clone(), rates(out));
    let ended = small(out, &["--epochs", "7", "--extend", "again"]).succeeded();
    assert!(ended.err.contains("extended from 3 epochs to 7 epochs: the learning rate of step 9 "), "{}", ended.err);
    assert!(ended.err.contains("continuing "), "{}", ended.err);
    let all = rates(out);
    assert_eq!((all.len(), &all[..9]), (21, &first[..]));
    let peak = all[9..].iter().copied().fold(0.0, f64::max);
    assert!(peak < 0.31 * first.iter().copied().fold(0.0, f64::max) && peak > 4.0 * first[8], "{all:?}");
    assert!(all[20] < 0.2 * peak, "and it falls: {all:?}");
    let momentum: Vec<f64> = metrics(out).iter().filter_map(|record| record.get("momentum")?.as_f64()).collect();
    assert!(momentum[10] < 1.0, "the teacher still follows");
    let identity = identity(out);
    assert_eq!((&identity["run"], &identity["steps"]), (&name, &21.into()));
    assert_eq!((&identity["extended"][0]["steps"], &identity["extended"][0]["saved"]), (&9.into(), &9.into()));
    assert_eq!(inspected(out).0["problems"], Value::Array(vec![]));
    let refused = small(out, &["--epochs", "9", "--extend", "stretch"]).failed();
    assert!(refused.contains("this one has been already") && refused.contains("--init "), "{refused}");
}

#[test]
fn a_stretched_run_has_the_learning_rate_of_a_run_that_was_as_long_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let (out, long) = (folder.path().join("run"), folder.path().join("long"));
    begin(&out);
    small(&out, &["--epochs", "6", "--extend", "stretch"]).succeeded();
    small(&long, &["--epochs", "6"]).succeeded();
    let (stretched, long) = (rates(&out), rates(&long));
    assert_eq!((stretched.len(), &stretched[9..]), (18, &long[9..]));
    assert!(stretched[9] > 5.0 * stretched[8], "it rises: {stretched:?}");
    // And once more.
    small(&out, &["--epochs", "7", "--extend", "stretch"]).succeeded();
    assert_eq!(identity(&out)["extended"].as_array().unwrap().len(), 2);
}

#[test]
fn an_extended_run_that_is_killed_goes_on_to_the_same_bits_with_or_without_the_flag() {
    for how in ["again", "stretch"] {
        let folder = tempfile::tempdir().unwrap();
        let (unbroken, broken) = (folder.path().join("a"), folder.path().join("b"));
        let extended = ["--epochs", "9", "--extend", how];
        begin(&unbroken);
        small(&unbroken, &extended).succeeded();
        begin(&broken);
        let mut child = small_command(&broken, &extended).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("some steps", || newest_step(&broken) >= 14);
        child.kill().unwrap();
        child.wait().unwrap();
        let last: &[&str] = if how == "again" { &extended } else { &extended[..2] };
        small(&broken, last).succeeded();
        assert!(learnt(&checkpoint(&unbroken, 27)) == learnt(&checkpoint(&broken, 27)), "{how}");
        assert_eq!(timeless_metrics(&unbroken), timeless_metrics(&broken));
        assert!(fs::read(unbroken.join("result.json")).unwrap() == fs::read(broken.join("result.json")).unwrap());
    }
}

#[test]
fn a_kill_between_the_two_files_of_an_extension_is_made_good() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    begin(out);
    let config = fs::read(out.join("config.toml")).unwrap();
    small(out, &["--epochs", "5", "--extend", "again"]).succeeded();
    let identity_after = fs::read(out.join("identity.json")).unwrap();
    fs::write(out.join("config.toml"), config).unwrap();
    small(out, &["--epochs", "5", "--extend", "again"]).succeeded();
    assert!(fs::read(out.join("identity.json")).unwrap() == identity_after, "it was extended once");
    assert!(fs::read_to_string(out.join("config.toml")).unwrap().contains("extended_from"));
}
