//! A collapse that lasts ends a run, or begins it again with a safer value, whatever is killed on the way.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use common::{Finished, learnt, newest_step, run, small, small_command, timeless_metrics, wait_until};
use serde_json::Value;

/// The exit status of a run that a collapse has ended.
const COLLAPSED: Option<i32> = Some(3);

/// 360 steps, of which a collapse counts after 300 and ends the run after another 36.
const LONG: [&str; 5] = ["--epochs", "120", "--set", "knn_every=0", "--set=student_temp=10"];

/// Both distributions are uniform from the first step to the last, by settings that no remedy touches.
const ALWAYS: [&str; 4] = ["--set", "warmup_teacher_temp=10", "--set", "warmup_teacher_temp_epochs=1000000"];

/// A teacher that tells images apart at first and softens until it does no more, in about a hundred steps.
const LATER: [&str; 5] =
    ["--set", "teacher_temp=9.9", "--set", "warmup_teacher_temp_epochs=800", "--set=head_batch_norm=false"];

fn settings(more: &[&'static str]) -> Vec<&'static str> {
    [&LONG[..], more].concat()
}

fn result(out: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(out.join("result.json")).unwrap()).unwrap()
}

#[test]
fn a_collapse_that_lasts_ends_the_run_with_its_last_healthy_weights() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let settings = settings(&LATER);
    let first = small(&out, &settings);
    assert_eq!(first.code, COLLAPSED, "{first:#?}");
    let found = result(&out);
    assert_eq!((found["outcome"].as_str(), found["judgement"].as_str()), (Some("collapsed"), Some("collapsed")));
    assert_eq!((found["collapsed_since"].as_u64(), found["steps"].as_u64()), (Some(301), Some(337)));
    let weights_step = found["weights_step"].as_u64().unwrap();
    assert!((1..200).contains(&weights_step), "{found}");
    assert_eq!(first.out.lines().last(), found["advice"].as_str());
    assert!(first.out.contains("Try teacher_temp = 0.04"), "{}", first.out);
    assert!(!out.join("collapsed-1").exists(), "a value that was given is not changed");

    // The weights are those of that step, and they are what other commands take.
    let backbone = fs::read(out.join("backbone.safetensors")).unwrap();
    let about = run(&["inspect", out.to_str().unwrap(), "--json"]).json();
    assert_eq!((about["state"].as_str(), about["step"].as_u64()), (Some("collapsed"), Some(337)));
    assert_eq!(about["backbone"]["step"].as_str().unwrap(), format!("{weights_step} of 360"));
    let shown = run(&["inspect", out.to_str().unwrap()]).succeeded().out;
    assert!(shown.contains("collapsed, which ended it") && shown.contains("from step 301 on"), "{shown}");
    let data = "synthetic:train=24,test=12,size=16";
    let features = folder.path().join("f.safetensors");
    let args = ["features", "--weights", out.to_str().unwrap(), "--data", data, "--device=cpu", "--out"];
    let said = run(&[&args[..], &[features.to_str().unwrap()]].concat()).succeeded().err;
    assert!(said.contains(&format!("of step {weights_step}")), "{said}");

    // The same command says the same at once; one that is to continue goes on from where it was.
    let again = small(&out, &settings);
    assert_eq!((again.code, again.out.as_str()), (COLLAPSED, first.out.as_str()));
    assert!(again.err.contains("this run collapsed") && !again.err.contains("is under way"), "{}", again.err);
    let on = small(&out, &[&settings[..], &["--set", "on_collapse=continue"]].concat()).succeeded();
    assert!(on.err.contains("continuing") && on.err.contains("after step 337"), "{}", on.err);
    assert_eq!((result(&out)["outcome"].as_str(), result(&out)["steps"].as_u64()), (Some("finished"), Some(360)));
    assert_ne!(fs::read(out.join("backbone.safetensors")).unwrap(), backbone);
}

/// Starts a run that retries, in a process that is killed.
fn started(out: &Path, settings: &[&str]) -> Child {
    small_command(out, settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What two runs of a command have in common to the byte.
#[track_caller]
fn assert_same(here: &Path, there: &Path) {
    for attempt in ["collapsed-1", "collapsed-2", "."] {
        assert_eq!(timeless_metrics(&here.join(attempt)), timeless_metrics(&there.join(attempt)), "{attempt}");
        let config = |run: &Path| fs::read_to_string(run.join(attempt).join("config.toml")).unwrap();
        assert_eq!(config(here), config(there));
    }
    assert_eq!(result(here), result(there));
    let last = newest_step(here);
    assert_eq!(learnt(&common::checkpoint(here, last)), learnt(&common::checkpoint(there, last)));
}

#[test]
fn a_run_begins_again_with_a_safer_value_at_most_twice_and_survives_kills_on_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let (unbroken, broken) = (folder.path().join("unbroken"), folder.path().join("broken"));
    let settings = settings(&ALWAYS);
    let first = small(&unbroken, &[&settings[..], &["--json"]].concat());
    assert_eq!(first.code, COLLAPSED, "{first:#?}");
    let found: Value = serde_json::from_str(&first.out).unwrap();
    assert_eq!((found["steps"].as_u64(), &found["weights"]), (Some(337), &Value::Null), "it was never healthy");
    let changed =
        |i: usize| (found["attempts"][i]["changes"][0]["key"].as_str(), found["attempts"][i]["since"].as_u64());
    assert_eq!(changed(0), (Some("momentum_teacher"), Some(301)));
    assert_eq!(changed(1), (Some("momentum_teacher"), Some(301)));
    assert_eq!(found["attempts"].as_array().unwrap().len(), 2);
    let config = fs::read_to_string(unbroken.join("config.toml")).unwrap();
    assert!(config.contains("attempt 3: with 0.975 it became uniform at step 301"), "{config}");
    let about = run(&["inspect", unbroken.join("collapsed-1").to_str().unwrap(), "--json"]).json();
    assert_eq!((about["state"].as_str(), about["step"].as_u64()), (Some("collapsed"), Some(337)));
    assert!(!unbroken.join("collapsed-1/checkpoints/step-00000337.safetensors").exists(), "it is of no more use");

    // Killed while the first collapse lasts, when that attempt is about to be given up, and in the second one.
    let child = started(&broken, &settings);
    wait_until("some records of the collapse", || newest_step(&broken) > 310);
    kill(child);
    let child = started(&broken, &settings);
    wait_until("the first attempt is given up", || broken.join("attempts.json").exists());
    kill(child);
    let child = started(&broken, &settings);
    wait_until("steps of the second", || broken.join("collapsed-1/identity.json").exists() && newest_step(&broken) > 5);
    kill(child);
    let shown = run(&["inspect", broken.to_str().unwrap()]).succeeded().out;
    assert!(shown.contains("attempt 1 became uniform at step 301, with momentum_teacher 0.95"), "{shown}");
    let last = small(&broken, &settings);
    assert_eq!(last.code, COLLAPSED, "{last:#?}");
    assert!(last.err.contains("attempt 2: 360 steps"), "it went on with the second: {}", last.err);
    assert_same(&unbroken, &broken);
    // Whoever needs the space may remove the checkpoints: it stays what it is.
    fs::remove_dir_all(broken.join("checkpoints")).unwrap();
    let again = small(&broken, &settings);
    assert_eq!((again.code, again.out), (COLLAPSED, last.out));
}

#[test]
fn another_command_does_not_go_on_with_a_run_between_two_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let settings = settings(&ALWAYS);
    let stopped = small(&out, &[&settings[..], &["--set", "on_collapse=stop"]].concat());
    assert_eq!(stopped.code, COLLAPSED, "{stopped:#?}");
    assert!(!out.join("attempts.json").exists() && result(&out)["steps"] == 337);
    // Without that word the collapse is still one to begin again after.
    let child = started(&out, &settings);
    wait_until("the second attempt", || out.join("collapsed-1/identity.json").exists() && newest_step(&out) > 1);
    kill(child);
    let other = |more: &[&'static str]| Finished::failed(small(&out, &[&settings[..], more].concat()));
    let message = other(&["--set", "momentum_teacher=0.95"]);
    assert!(message.contains("momentum_teacher: 0.975 saved, 0.95 now"), "{message}");
    let message = other(&["--seed", "4"]);
    assert!(message.contains("seed: 0 saved, 4 now"), "{message}");
    // As if it had been killed before the second attempt had written its settings.
    fs::remove_file(out.join("config.toml")).unwrap();
    fs::remove_file(out.join("identity.json")).unwrap();
    fs::remove_dir_all(out.join("checkpoints")).unwrap();
    let message = other(&["--seed", "4"]);
    assert!(message.contains("seed: 0 saved, 4 now") && !message.contains("momentum_teacher"), "{message}");
    assert!(!out.join("config.toml").exists() && !out.join("identity.json").exists(), "nothing was begun");
}
