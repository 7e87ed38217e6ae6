//! The last line of a run: what it is worth, by runs that really end so.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Finished, checkpoints, small, small_command, wait_until, write_bmp};
use serde_json::Value;

/// The last line of a run's result, and its `result.json`.
fn ended(out: &Path, more: &[&str]) -> (String, Value) {
    let finished = small(out, more).succeeded();
    let last = finished.out.lines().last().unwrap_or_default().to_owned();
    let result: Value = serde_json::from_str(&std::fs::read_to_string(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(result["advice"], last, "what is printed last is what is saved");
    (last, result)
}

#[track_caller]
fn says((last, result): (String, Value), word: &str, parts: &[&str]) {
    assert_eq!(result["judgement"], word, "{last}");
    for part in parts {
        assert!(last.contains(part), "{part}: {last}");
    }
}

#[test]
fn a_teacher_that_never_moved_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let finished = small(&out, &["--epochs", "2", "--set", "momentum_teacher=1"]).succeeded();
    assert!(finished.err.contains("momentum_teacher 1 keeps the teacher"), "told before it starts: {}", finished.err);
    let (last, result) = ended(&out, &["--epochs", "2", "--set", "momentum_teacher=1"]);
    assert_eq!(result["knn_top1"]["trained"], result["knn_top1"]["untrained"]);
    says((last, result), "did_not_move", &["momentum_teacher 1 does not let it follow", "leave momentum_teacher out"]);

    let still = folder.path().join("still");
    let more = ["--epochs", "2", "--set", "lr=1e-12", "--set", "min_lr=0"];
    says(ended(&still, &more), "did_not_move", &["no weight of the network has changed in 6 steps", "lr"]);
}

#[test]
fn a_learning_rate_of_ten_is_named_and_not_the_temperature() {
    let folder = tempfile::tempdir().unwrap();
    let more =
        ["--data", "synthetic:train=8,test=50,size=16", "--epochs", "400", "--set", "lr=10", "--set", "log_every=50"];
    let more = [&more[..], &["--set", "checkpoint_minutes=9", "--set", "knn_every=0"]].concat();
    let (last, result) = ended(&folder.path().join("run"), &more);
    assert!(!last.contains("teacher_temp"), "{last}");
    says((last, result), "collapsed", &["lr 10 is 20000 times DINO's 0.0005", "kappa", "Next: "]);
}

#[test]
fn a_uniform_teacher_is_not_called_wrong_in_the_first_steps() {
    let folder = tempfile::tempdir().unwrap();
    // Both so soft that every distribution is uniform, from the first step on.
    let soft = [
        "--set=head_batch_norm=false",
        "--set=student_temp=1",
        "--set=teacher_temp=0.5",
        "--set=warmup_teacher_temp=0.5",
    ];
    let more = [&["--epochs", "9"][..], &soft].concat();
    let out = folder.path().join("run");
    let finished = small(&out, &more).succeeded();
    assert!(!finished.err.contains("the teacher is uniform"), "{}", finished.err);
    says(ended(&out, &more), "too_short", &["27 steps of about 2,400 that 24 images need", "--epochs 800"]);
    // Later it is wrong, and the setting that made it so is named.
    let more = [&["--epochs", "150", "--set", "checkpoint_minutes=9", "--set", "knn_every=0"][..], &soft].concat();
    let parts = ["the teacher is uniform", "Try teacher_temp = 0.04: teacher_temp 0.5 is softer than any of DINO's"];
    let more = [&more[..], &["--set", "on_collapse=continue"]].concat();
    says(ended(&folder.path().join("long"), &more), "collapsed", &parts);
}

#[test]
fn a_healthy_run_without_labels_claims_no_more_than_that() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("images");
    (0..32).for_each(|i| write_bmp(&data.join(format!("{i}.bmp")), 16, 7 * i));
    let more = ["--data", data.to_str().unwrap(), "--epochs", "400", "--set", "checkpoint_minutes=9"];
    let more = [&more[..], &["--batch-size=32", "--set", "log_every=50"]].concat();
    says(
        ended(&folder.path().join("run"), &more),
        "no_labels_healthy",
        &["No labels to judge by; nothing looks wrong", "Next: "],
    );
}

#[test]
fn one_photograph_is_told_to_be_too_little_before_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("images"), folder.path().join("run"));
    write_bmp(&data.join("only.bmp"), 16, 7);
    let more = ["--data", data.to_str().unwrap(), "--batch-size=1", "--epochs=9"];
    assert!(small(&out, &more).succeeded().err.contains("warning: 1 image is hardly anything to learn from"));
    says(ended(&out, &more), "too_few_images", &["a training on 1 image", "Next: hundreds of images"]);
}

#[test]
fn a_short_run_with_a_learning_rate_of_ten_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("images");
    (0..32).for_each(|i| write_bmp(&data.join(format!("{i}.bmp")), 16, 7 * i));
    let more = ["--data", data.to_str().unwrap(), "--epochs=2", "--set", "lr=10"];
    says(ended(&folder.path().join("run"), &more), "too_short", &["lr 10 is 20000 times DINO's 0.0005"]);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p dino-vmf --test judgements -- --ignored"]
fn the_built_in_run_has_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let finished = common::run(&["pretrain", "--device", "cpu", "--json", "--out", out.to_str().unwrap()]).json();
    assert_eq!(finished["judgement"], "learnt", "{finished}");
}

/// Where the shared photographs are; says so and returns none where they are not.
fn photographs() -> Option<PathBuf> {
    let root = std::env::var_os("DINO_VMF_TEST_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    let path = root.join("clothing");
    if !path.is_dir() {
        println!("skipped: {} is not there (DINO_VMF_TEST_DATA can say where it is)", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn photographs_trained_for_a_minute_are_told_that_it_is_too_short() {
    let Some(photographs) = photographs() else { return };
    let folder = tempfile::tempdir().unwrap();
    let more = ["--data", photographs.to_str().unwrap(), "--epochs", "1", "--global-size", "32", "--local-size", "16"];
    let more = [&more[..], &["--batch-size", "64", "--set", "checkpoint_minutes=9", "--set", "start=random"]].concat();
    let parts = ["4 steps of about 3,200 that 300 images need", "it is below raw pixels", "--epochs 800"];
    says(ended(&folder.path().join("run"), &more), "too_short", &parts);
}

#[cfg(unix)]
#[test]
fn a_stopped_run_ends_with_a_judgement_too() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut command = small_command(&out, &["--json", "--epochs", "5000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a checkpoint", || checkpoints(&out) > 0);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let stopped = Finished::of(child.wait_with_output().unwrap());
    let object: Value = serde_json::from_str(&stopped.out).unwrap();
    assert_eq!((&object["outcome"], &object["judgement"]), (&"stopped".into(), &"unfinished".into()));
    let last = stopped.err.lines().last().unwrap();
    assert_eq!(object["advice"], last);
    assert!(
        last.starts_with("Unfinished: stopped after step ") && last.contains("Run the same command again"),
        "{last}"
    );
}

/// The end of a run can come after its last step was logged by another process.
#[test]
fn a_judgement_does_not_depend_on_who_took_the_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let more =
        ["--data", "synthetic:train=8,test=50,size=16", "--epochs", "310", "--set", "lr=10", "--set", "log_every=50"];
    let more = [&more[..], &["--set", "checkpoint_minutes=9", "--set", "knn_every=0"]].concat();
    let (_, first) = ended(&out, &more);
    assert_eq!(first["judgement"], "collapsed");
    std::fs::remove_file(out.join("result.json")).unwrap();
    assert_eq!(ended(&out, &more).1, first);
}
