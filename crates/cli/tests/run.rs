//! `pretrain` from start to end, and what must not change its result: crashes, signals, threads.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{
    Finished, checkpoint, checkpoints, metrics, newest_step, run, small, small_command, timeless_metrics, wait_until,
};
use random::{Key, Purpose};
use serde_json::Value;
use tempfile::TempDir;

const STEPS: u64 = 27;

/// The unbroken run that others are compared with, and how long it took.
static REFERENCE: LazyLock<(TempDir, Duration, Finished)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let finished = small(&folder.path().join("run"), &[]).succeeded();
    (folder, start.elapsed(), finished)
});

fn reference() -> std::path::PathBuf {
    REFERENCE.0.path().join("run")
}

/// Both runs have ended with the same weights, moments, centre and log, bit for bit.
#[track_caller]
fn assert_same_result(run: &Path) {
    let (expected, found) = (checkpoint(&reference(), STEPS), checkpoint(run, STEPS));
    assert!(common::learnt(&expected) == common::learnt(&found), "the last checkpoints differ");
    let backbone = |run: &Path| fs::read(run.join("backbone.safetensors")).unwrap();
    assert!(backbone(&reference()) == backbone(run), "the backbones differ");
    assert_eq!(timeless_metrics(&reference()), timeless_metrics(run), "the logs differ");
    let result = |run: &Path| fs::read_to_string(run.join("result.json")).unwrap();
    assert_eq!(result(&reference()), result(run));
}

#[test]
fn a_run_leaves_its_folder_its_log_its_weights_and_a_table() {
    let (finished, run) = (&REFERENCE.2, reference());
    for line in [
        "top-1 kNN (k=6) on 12 held-out images by 24 training images:",
        "raw pixels",
        "untrained network",
        "trained network",
    ] {
        assert!(finished.out.contains(line), "{}", finished.out);
    }
    assert!(finished.out.contains("backbone.safetensors") && finished.out.contains("dino-vmf eval knn --weights"));
    for line in ["derived: prototypes = vmf", "given: --batch-size", "epoch 9/9: kNN top-1", "step 27/27"] {
        assert!(finished.err.contains(line), "{}", finished.err);
    }
    let names: Vec<String> =
        fs::read_dir(&run).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    for name in ["config.toml", "metrics.jsonl", "checkpoints", "backbone.safetensors", "result.json"] {
        assert!(names.iter().any(|n| n == name), "{name} is not among {names:?}");
    }
    assert!(names.iter().any(|n| n.starts_with("events.out.tfevents.")));

    let records = metrics(&run);
    let losses: Vec<f64> = records.iter().filter_map(|r| r.get("loss")?.as_f64()).collect();
    assert_eq!(losses.len(), STEPS as usize);
    assert!(losses.iter().all(|loss| loss.is_finite()));
    assert_eq!(records.iter().filter(|r| r.get("knn_top1").is_some()).count(), 9);
}

#[test]
fn a_finished_run_is_not_trained_again_and_tells_its_result_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = small(folder.path(), &["--epochs", "1"]).succeeded();
    let before = common::content(&folder.path().join("checkpoints"));
    let again = small(folder.path(), &["--epochs", "1"]).succeeded();
    assert_eq!(again.out, first.out);
    assert!(again.err.contains("this run is finished"), "{}", again.err);
    let config = fs::read(folder.path().join("config.toml")).unwrap();
    small(folder.path(), &["--epochs", "1", "--set", "knn_k=3"]).succeeded();
    assert!(fs::read(folder.path().join("config.toml")).unwrap() == config, "a finished run stays what it was");
    assert_eq!(before, common::content(&folder.path().join("checkpoints")));

    let object = small(folder.path(), &["--epochs", "1", "--json"]).json();
    assert_eq!((&object["outcome"], &object["steps"]), (&"finished".into(), &3.into()));
    assert!(object["knn_top1"]["trained"].is_f64());

    // Without its result the run is judged anew, from the same weights.
    fs::remove_file(folder.path().join("result.json")).unwrap();
    assert_eq!(small(folder.path(), &["--epochs", "1"]).succeeded().out, first.out);
}

#[track_caller]
fn all_six_modes_train(epochs: usize) {
    let folder = tempfile::tempdir().unwrap();
    for prototypes in ["none", "l2", "vmf"] {
        for centering in ["logit", "probability"] {
            let out = folder.path().join(format!("{prototypes}-{centering}"));
            let epochs_flag = format!("--epochs={epochs}");
            let flags = ["--prototypes", prototypes, "--centering", centering, &epochs_flag];
            let settings = ["--set", "checkpoint_minutes=9", "--set", "knn_every=0", "--json"];
            let result = small(&out, &[flags.as_slice(), &settings].concat()).json();
            assert_eq!(result["steps"], 3 * epochs, "{prototypes} {centering}");
            let losses: Vec<f64> = metrics(&out).iter().filter_map(|r| r.get("loss")?.as_f64()).collect();
            assert_eq!(losses.len(), 3 * epochs);
            assert!(losses.iter().all(|loss| loss.is_finite()), "{prototypes} {centering}: {losses:?}");
        }
    }
}

#[test]
fn all_six_modes_train_with_a_finite_loss() {
    all_six_modes_train(8);
}

#[test]
#[ignore = "takes a minute: cargo test --release -p dino-vmf -- --ignored"]
fn all_six_modes_train_300_steps_with_a_finite_loss() {
    all_six_modes_train(100);
}

fn start(out: &Path) -> Child {
    small_command(out, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Half of the kills come at any moment of the start, half soon after a step was saved, so that the run gets on.
#[test]
fn a_run_that_is_killed_20_times_ends_as_an_unbroken_one() {
    let one_step = REFERENCE.1 / STEPS as u32;
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let mut stream = Key::new(17, Purpose::Bench).stream();
    let mut kills = 0;
    for life in 0..20 {
        let mut child = start(run);
        let before = newest_step(run);
        // The reference may have been timed on a busier machine: a life ends with the next step at the latest, so that the
        // run does not come to its end before it was killed often enough.
        let pause = |steps: f64, saved: u64| {
            let end = Instant::now() + one_step.mul_f64(steps);
            while Instant::now() < end && newest_step(run) <= saved {
                sleep(Duration::from_millis(1));
            }
        };
        if life % 2 == 0 {
            pause(stream.uniform_in(0.0, 3.0), before);
        } else {
            wait_until("a step", || newest_step(run) > before || before == STEPS);
            pause(stream.uniform_in(0.0, 1.0), before + 1);
        }
        child.kill().unwrap();
        let ended = Finished::of(child.wait_with_output().unwrap());
        if ended.code.is_some() {
            // On a busy machine the kill may come too late.
            ended.succeeded();
            break;
        }
        kills += 1;
    }
    println!("killed {kills} times");
    assert!(kills >= 10, "the run was killed only {kills} times");
    small(run, &[]).succeeded();
    assert_same_result(run);
}

/// Sends a signal to a run once it has saved a checkpoint; its exit status and what it said.
fn stop_with(signal: &str, run: &Path) -> Finished {
    let child = start(run);
    wait_until("a checkpoint", || checkpoints(run) > 0);
    // Twice, as a closing terminal and `timeout` do. The second may find the run gone.
    for attempt in 0..2 {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success() || attempt > 0);
    }
    Finished::of(child.wait_with_output().unwrap())
}

#[cfg(unix)]
#[test]
fn signals_of_people_and_of_batch_systems_save_and_the_same_command_continues() {
    let signals =
        [("-TERM", 143), ("-INT", 130), ("-HUP", 129), ("-USR1", 138), ("-USR2", 140), ("-XCPU", 152), ("-ALRM", 142)];
    // Under `nohup` a run outlives its terminal, as is right.
    let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = own.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap_or("0");
    let hangs_up = u64::from_str_radix(ignored, 16).unwrap_or(0) & 1 == 0;
    for (signal, status) in signals.into_iter().filter(|(signal, _)| hangs_up || *signal != "-HUP") {
        let folder = tempfile::tempdir().unwrap();
        let stopped = stop_with(signal, folder.path());
        assert_eq!(stopped.code, Some(status), "{stopped:#?}");
        assert_eq!(stopped.out, "");
        assert!(stopped.err.contains("Run the same command again to continue"), "{}", stopped.err);
        let continued = small(folder.path(), &[]).succeeded();
        assert!(continued.err.contains("continuing "), "{}", continued.err);
        assert_same_result(folder.path());
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    for threads in ["1", "2", "4"] {
        let out = folder.path().join(threads);
        small(&out, &["--threads", threads]).succeeded();
        assert_same_result(&out);
    }
}

#[test]
fn a_damaged_last_checkpoint_is_set_aside_and_the_one_before_taken() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    let files: Vec<_> = common::content(&folder.path().join("checkpoints"));
    assert_eq!(files.len(), 2, "two checkpoints are kept");
    let (last, mut bytes) = files[1].clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&last, bytes).unwrap();

    let continued = small(folder.path(), &[]).succeeded();
    let name = last.file_name().unwrap().to_str().unwrap();
    assert!(continued.err.contains(&format!("{name}.damaged is damaged: its checksum is")), "{}", continued.err);
    assert!(continued.err.contains("falling back to the previous checkpoint"), "{}", continued.err);
    assert_same_result(folder.path());
}

#[test]
fn without_a_sound_checkpoint_nothing_is_thrown_away() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    for (path, bytes) in common::content(&folder.path().join("checkpoints")) {
        fs::write(path, &bytes[..bytes.len() - 7]).unwrap();
    }
    let before = common::content(folder.path());
    let message = small(folder.path(), &[]).failed();
    assert!(message.contains("no checkpoint is usable") && message.contains("Nothing was changed"), "{message}");
    let unchanged = |content: Vec<(std::path::PathBuf, Vec<u8>)>| {
        content.into_iter().filter(|(path, _)| !path.ends_with(".lock")).collect::<Vec<_>>()
    };
    assert!(unchanged(before) == unchanged(common::content(folder.path())));
}

/// A run that was killed with two checkpoints.
fn stop_early(run: &Path) {
    let mut child = start(run);
    wait_until("two checkpoints", || checkpoints(run) >= 2);
    child.kill().unwrap();
    child.wait().unwrap();
    // The kill may have come in the middle of the next checkpoint, or before the removal of an old one.
    let mut files = common::content(&run.join("checkpoints"));
    files.retain(|(path, _)| {
        let is_whole = path.extension().is_some_and(|e| e == "safetensors");
        if !is_whole {
            fs::remove_file(path).unwrap();
        }
        is_whole
    });
    for (path, _) in &files[..files.len() - 2] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn values_that_are_not_finite_stop_the_run_with_all_good_steps_saved_and_the_batch_described() {
    let folder = tempfile::tempdir().unwrap();
    let absurd = [
        "lr=10",
        "clip_grad=0",
        "warmup_epochs=0",
        "weight_decay=10",
        "weight_decay_end=10",
        "knn_every=0",
        "head_batch_norm=false",
    ];
    let settings: Vec<&str> = absurd.iter().flat_map(|&setting| ["--set", setting]).collect();
    let message = small(folder.path(), &[&settings[..], &["--epochs=200"]].concat()).failed();
    assert!(message.contains("is not finite, so training stopped"), "{message}");
    let report = fs::read_to_string(folder.path().join("not-finite.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["names"].as_array().map(Vec::len), Some(8));
    assert!(report["term"].as_str().is_some_and(|term| message.contains(term)));
    let step = newest_step(folder.path());
    assert_eq!(report["step"], step, "the weights before the bad step are saved");
    assert!(message.contains(&format!("The run was saved after step {step}")), "{message}");
}

#[test]
fn a_later_layer_of_the_recipe_wins() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("my.toml");
    fs::write(&recipe, "epochs = 7\nteacher_temp = 0.05\nstudent_temp = 0.2\nknn_k = 3\n").unwrap();
    let out = folder.path().join("run");
    let file = recipe.to_str().unwrap();
    let ended = small(&out, &["--recipe", file, "--set", "teacher_temp=.06", "--epochs=1"]);
    let ended = ended.succeeded();
    assert!(ended.out.contains("(k=3)"), "{}", ended.out);
    let config: String = fs::read_to_string(out.join("config.toml")).unwrap();
    let value = |key: &str| {
        let line = config.lines().find(|line| line.split_whitespace().next() == Some(key)).unwrap();
        line.split_once('=').unwrap().1.split('#').next().unwrap().trim().to_owned()
    };
    let found = ["epochs", "teacher_temp", "student_temp"].map(value);
    assert_eq!(found, ["1", "0.06", "0.2"]);
}

#[test]
fn without_out_the_folder_follows_from_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = common::program();
    command.args(common::unless_given(&common::SMALL, &["--epochs=1"])).arg("--epochs=1").current_dir(folder.path());
    Finished::of(command.output().unwrap()).succeeded();
    assert!(folder.path().join("runs/synthetic-dino-vmf-vit_nano/result.json").is_file());
}

#[test]
fn a_dry_run_writes_nothing_and_its_recipe_is_that_of_the_run() {
    let place = tempfile::tempdir().unwrap();
    let (out, recipe) = (place.path().join("run"), place.path().join("mine.toml"));
    let dry = small(&out, &["--dry-run", "--epochs", "2"]).succeeded();
    assert!(dry.err.contains("memory  about ") && dry.err.contains("recipe\n"), "{}", dry.err);
    assert!(!out.exists(), "nothing is written");
    fs::write(&recipe, &dry.out).unwrap();

    small(&out, &["--epochs", "2"]).succeeded();
    let again = place.path().join("again");
    let mut by_file = common::program();
    by_file.args(&common::SMALL[..3]).arg("--device=cpu").arg("--recipe").arg(&recipe).arg("--out").arg(&again);
    Finished::of(by_file.output().unwrap()).succeeded();
    let weights = |run: &Path| fs::read(run.join("backbone.safetensors")).unwrap();
    assert!(weights(&out) == weights(&again), "the recipe that was printed is that of the command");

    let finished = small(&out, &["--dry-run", "--epochs", "2"]).succeeded();
    assert!(finished.err.contains("this run is finished"), "{}", finished.err);
    let other = small(&out, &["--dry-run", "--epochs", "2", "--seed", "9"]);
    assert!(other.code == Some(1) && other.err.contains("which this command does not continue"), "{}", other.err);
}

#[test]
fn two_processes_do_not_train_into_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path());
    wait_until("a run", || folder.path().join("config.toml").exists());
    let message = small(folder.path(), &[]).failed();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(message.contains("is training into this folder"), "{message}");
}

#[test]
fn the_help_has_examples_and_the_keys() {
    let help = run(&["pretrain", "--help"]).succeeded().out;
    for text in ["Examples:", "--local-crops", "momentum_teacher            Teacher momentum", "the same command again"]
    {
        assert!(help.to_lowercase().contains(&text.to_lowercase()), "{text}");
    }
    let usage = run(&["pretrain", "--no-such-flag"]);
    assert_eq!((usage.code, usage.out.as_str()), (Some(2), ""));
    let value: Value = run(&["--version"]).succeeded().out.trim().into();
    assert_eq!(value, format!("dino-vmf {}", env!("CARGO_PKG_VERSION")));
}
