//! `eval finetune`: trains, is stopped and goes on to the same bytes, says what it found, and refuses what makes no sense.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::Duration;

use common::{Finished, program, run, small, timeless_metrics};
use serde_json::Value;
use tempfile::TempDir;

const DATA: &str = "synthetic:train=24,test=12,size=16";

/// A finished pre-training.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1"]).succeeded();
    (folder, run)
});

fn command(out: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.args(["eval", "finetune", "--device=cpu", "--data", DATA, "--weights"]).arg(&RUN.1);
    command.args(["--batch-size", "8", "--out"]).arg(out).args(more);
    command
}

fn finetune(out: &Path, more: &[&str]) -> Finished {
    Finished::of(command(out, more).output().expect("the program starts"))
}

#[test]
fn both_recipes_train_and_say_what_they_found() {
    let folder = tempfile::tempdir().unwrap();
    for recipe in ["beit", "deit"] {
        let out = folder.path().join(recipe);
        let told = finetune(&out, &["--recipe", recipe, "--epochs", "2", "--threads", "2"]).succeeded();
        assert!(told.out.starts_with(&format!("fine-tuned by the {recipe} recipe, 2 epochs; on 12 held-out images:")));
        assert!(told.out.contains("best top-1") && told.out.contains("backbone.safetensors"), "{}", told.out);
        // Every setting with its reason.
        assert!(told.err.contains("batch_size") && told.err.contains("given"), "{}", told.err);
        assert!(told.err.contains("in proportion: as far in an epoch"), "{}", told.err);
        let tops: Vec<f64> = timeless_metrics(&out).iter().filter_map(|record| record["top1"].as_f64()).collect();
        assert_eq!(tops.len(), 2, "every epoch is judged");

        // The same command again prints the same result and trains nothing.
        let again = finetune(&out, &["--recipe", recipe, "--epochs", "2"]).succeeded();
        assert_eq!(again.out, told.out);
        assert!(again.err.contains("this run is finished"), "{}", again.err);
        let json = finetune(&out, &["--recipe", recipe, "--epochs", "2", "--json"]).json();
        let best = tops.iter().copied().fold(0.0, f64::max);
        assert_eq!((json["top1"].as_f64(), json["last_top1"].as_f64()), (Some(best), tops.last().copied()));
        assert_eq!(json["evaluation"]["name"], "finetune");
        assert_eq!((&json["settings"]["epochs"], &json["settings"]["recipe"]), (&2.into(), &recipe.into()));
        assert!(json["weights_digest"].is_string() && json["data_digest"]["test"].is_string(), "{json}");
    }
}

#[test]
fn a_fine_tuned_run_is_a_network_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tuned");
    finetune(&out, &["--epochs", "1"]).succeeded();
    let out = out.to_str().unwrap();
    run(&["eval", "knn", "--weights", out, "--data", DATA, "--device=cpu"]).succeeded();
    let bytes = fs::read(format!("{out}/backbone.safetensors")).unwrap();
    let network = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(network.tensor("head.weight").unwrap().shape(), [10, 64]);
    assert!(network.tensor("blocks.0.attn.qkv.weight").is_ok());

    let told = run(&["inspect", out]).succeeded().out;
    assert!(told.starts_with("fine-tuning ") && told.contains("finished, step 3 of 3, saved: step 3"), "{told}");
    let json = run(&["inspect", out, "--json"]).json();
    assert_eq!((json["kind"].as_str(), json["recipe"]["recipe"].as_str()), (Some("fine-tuning"), Some("beit")));
    let checkpoint = format!("{out}/checkpoints/step-00000003.safetensors");
    let error = run(&["eval", "knn", "--weights", &checkpoint, "--data", DATA, "--device=cpu"]).failed();
    assert!(error.contains("is the checkpoint of a fine-tuning. The network is "), "{error}");
}

/// Waits for some steps in the log, and asks the process to stop.
fn interrupt(mut child: std::process::Child, out: &Path, steps: usize) -> Finished {
    let logged = || fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    while logged() < steps {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be stopped");
        sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    Finished::of(child.wait_with_output().unwrap())
}

#[test]
fn a_run_that_is_stopped_goes_on_to_the_bytes_of_an_unbroken_one() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, whole) = (folder.path().join("broken"), folder.path().join("whole"));
    let more = ["--recipe", "deit", "--epochs", "60", "--json"];
    let started = command(&broken, &more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stopped = interrupt(started, &broken, 10);
    assert_eq!(stopped.code, Some(130), "{stopped:#?}");
    let told: Value = serde_json::from_str(&stopped.out).unwrap();
    assert_eq!(told["outcome"], "stopped");
    assert!(stopped.err.contains("the same command goes on from there"), "{}", stopped.err);

    let resumed = finetune(&broken, &more).json();
    let unbroken = finetune(&whole, &more).json();
    for key in ["top1", "best_epoch", "last_top1", "last_top5", "loss", "steps"] {
        assert_eq!(resumed[key], unbroken[key], "{key}");
    }
    let weights = |run: &Path| fs::read(run.join("backbone.safetensors")).unwrap();
    assert!(weights(&broken) == weights(&whole));
    assert_eq!(timeless_metrics(&broken), timeless_metrics(&whole));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_trained() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let refused = |more: &[&str]| finetune(&out, more).failed();
    assert!(refused(&["--epochs", "0"]).contains("epochs = 0: expected a whole number from 1"));
    assert!(refused(&["--set", "drop_paths=0.1"]).contains("no setting `drop_paths`; it has epochs,"));
    assert!(refused(&["--set", "lr"]).contains("must be key=value"));
    assert!(refused(&["--set", "mixup=-1"]).contains("mixup = -1"));
    assert!(!out.exists());
    finetune(&out, &["--epochs", "1"]).succeeded();
    let other = refused(&["--epochs", "1", "--lr", "0.5"]);
    assert!(other.contains("lr") && other.contains("0.5"), "{other}");

    // Pictures without classes, and without held-out ones.
    let plain = folder.path().join("plain");
    fs::create_dir(&plain).unwrap();
    (0..3).for_each(|i| common::write_bmp(&plain.join(format!("{i}.bmp")), 8, i));
    let weights = RUN.1.to_str().unwrap();
    let none =
        run(&["eval", "finetune", "--weights", weights, "--data", plain.to_str().unwrap(), "--out", "x"]).failed();
    assert!(none.contains("held"), "{none}");
}
