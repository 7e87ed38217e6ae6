//! A run's folder against what happens around it: files of other runs, folders that vanish, limits, damage.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use common::{
    Finished, checkpoint, checkpoints, inspected, learnt, newest_step, program, small, small_command, stop_early,
    wait_until,
};
use tempfile::TempDir;

const STEPS: u64 = 27;

/// A run that was not disturbed.
static REFERENCE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), &[]).succeeded();
    folder
});

fn start(out: &Path) -> Child {
    small_command(out, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finished(child: Child) -> Finished {
    Finished::of(child.wait_with_output().unwrap())
}

#[track_caller]
fn assert_ends_as_the_reference(run: &Path) {
    let last = |run: &Path| learnt(&checkpoint(run, STEPS));
    assert!(last(run) == last(REFERENCE.path()), "the last checkpoints differ");
    for name in ["backbone.safetensors", "result.json"] {
        assert!(fs::read(run.join(name)).unwrap() == fs::read(REFERENCE.path().join(name)).unwrap(), "{name} differs");
    }
}

#[test]
fn a_checkpoint_of_another_run_is_not_continued_from() {
    let folder = tempfile::tempdir().unwrap();
    let (run, other) = (folder.path().join("run"), folder.path().join("other"));
    stop_early(&run);
    small(&other, &["--seed=1"]).succeeded();
    // The same shapes, another seed: the end of the one, and a step that the one does not have.
    let (last, beyond) = (checkpoint(&run, STEPS), checkpoint(&run, 500));
    fs::copy(checkpoint(&other, STEPS), &last).unwrap();
    fs::copy(checkpoint(&other, STEPS), &beyond).unwrap();
    let foreign = fs::read(&last).unwrap();

    let error = Finished::of(
        program()
            .args(["features", "--data", "synthetic:train=24,test=12,size=16", "--weights"])
            .arg(&last)
            .arg("--out")
            .arg(folder.path().join("f.npy"))
            .output()
            .unwrap(),
    )
    .failed();
    assert!(error.contains("belongs to another run"), "an evaluation must not take it for this run's: {error}");

    let continued = small(&run, &[]).succeeded();
    assert!(continued.err.contains("step-00000500.safetensors belongs to another run"), "{}", continued.err);
    assert!(continued.err.contains("it is passed over"), "{}", continued.err);
    assert!(continued.err.contains("step-00000027.safetensors.other-run"), "{}", continued.err);
    assert_ends_as_the_reference(&run);
    assert!(fs::read(run.join("checkpoints/step-00000027.safetensors.other-run")).unwrap() == foreign);
    assert!(fs::read(&beyond).unwrap() == foreign);
    assert!(small(&run, &[]).succeeded().err.contains("this run is finished"));
}

#[test]
fn checkpoints_that_are_all_gone_or_foreign_do_not_start_a_run_over() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    let log = fs::read(folder.path().join("metrics.jsonl")).unwrap();
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let message = small(folder.path(), &[]).failed();
    assert!(message.contains("none of its checkpoints is there any more"), "{message}");
    fs::copy(checkpoint(REFERENCE.path(), STEPS), checkpoint(folder.path(), STEPS)).unwrap();
    let message = small(folder.path(), &[]).failed();
    assert!(message.contains("no checkpoint is usable") && message.contains("belongs to another run"), "{message}");
    assert!(fs::read(folder.path().join("metrics.jsonl")).unwrap() == log, "nothing was cut");
}

#[cfg(unix)]
#[test]
fn a_run_stops_when_another_process_begins_a_run_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let first = small_command(&run, &["--epochs=1000"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a checkpoint", || checkpoints(&run) > 0);
    // The first may be writing at the same time, so that a folder is not empty when it is to be removed.
    wait_until("the folder is gone", || fs::remove_dir_all(&run).is_ok() || !run.exists());
    small(&run, &[]).succeeded();
    let message = finished(first).failed();
    assert!(message.contains("is no longer the folder that this run was writing to"), "{message}");
    assert!(!message.contains("is intact") && !message.contains("was saved"), "nothing of it is left: {message}");
    assert_ends_as_the_reference(&run);
    assert_eq!(newest_step(&run), STEPS);
}

/// Runs the small training in a shell that sets a limit first.
fn limited(limit: &str, out: &Path) -> Finished {
    let line = format!("ulimit -c 0; {limit} && exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &line]).arg(env!("CARGO_BIN_EXE_dino-vmf")).args(common::SMALL).arg("--out").arg(out);
    Finished::of(command.env_remove("RAYON_NUM_THREADS").env("CUDA_VISIBLE_DEVICES", "").output().unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_too_large_is_an_error_and_the_last_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    let saved = newest_step(folder.path());
    let message = limited("ulimit -f 64", folder.path()).failed();
    assert!(message.contains("is larger than this process may write"), "{message}");
    assert!(message.contains("ulimit -f") && message.contains("is intact"), "{message}");
    assert_eq!(newest_step(folder.path()), saved);
    let left =
        common::content(folder.path()).into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "tmp"));
    assert_eq!(left.count(), 0, "no half of a file is left");
    small(folder.path(), &[]).succeeded();
    assert_ends_as_the_reference(folder.path());
}

#[cfg(unix)]
#[test]
fn a_batch_system_that_repeats_its_notice_does_not_end_a_run_before_it_has_saved() {
    let folder = tempfile::tempdir().unwrap();
    let child = start(folder.path());
    let id = child.id().to_string();
    wait_until("a checkpoint", || checkpoints(folder.path()) > 0);
    // Until it is gone: the limit on processor time repeats its signal every second.
    while Command::new("kill").args(["-XCPU", &id]).stderr(Stdio::null()).status().unwrap().success() {
        let state = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let stopped = finished(child);
    assert_eq!(stopped.code, Some(152), "{stopped:#?}");
    assert!(stopped.err.contains("stopped after step"), "{}", stopped.err);
}

#[test]
fn a_backbone_that_is_damaged_is_made_again_as_one_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let finished = small(folder.path(), &[]).succeeded();
    let path = folder.path().join("backbone.safetensors");
    let mut damaged = fs::read(&path).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for (damage, word) in [(Some(damaged), "is damaged"), (None, "is missing")] {
        match damage {
            Some(bytes) => {
                fs::write(&path, bytes).unwrap();
                let mut features = program();
                features.args(["features", "--data", "synthetic:train=24,test=12,size=16", "--weights"]).arg(&path);
                let elsewhere = tempfile::tempdir().unwrap();
                let features = features.arg("--out").arg(elsewhere.path().join("f.npy")).output().unwrap();
                let message = Finished::of(features).failed();
                assert!(message.contains("it is not what its run wrote"), "{message}");
            }
            None => fs::remove_file(&path).unwrap(),
        }
        let again = small(folder.path(), &[]).succeeded();
        assert!(again.err.contains(&format!("backbone.safetensors: {word}, and is made again")), "{}", again.err);
        assert_eq!(again.out, finished.out);
        assert_ends_as_the_reference(folder.path());
    }
    assert!(small(folder.path(), &[]).succeeded().err.contains("this run is finished"));
}

#[cfg(unix)]
#[test]
fn a_finished_run_that_goes_on_has_no_result_until_it_ends_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let settings = ["--epochs=40", "--set", "keep_checkpoints=1000"];
    small(run, &settings).succeeded();
    // Without its last checkpoints the run goes on from an earlier one. It is stopped as soon as it does.
    (5..=120).for_each(|step| fs::remove_file(checkpoint(run, step)).unwrap());
    let child = small_command(run, &settings).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the old result is gone", || !run.join("result.json").exists());
    wait_until("a step", || checkpoint(run, 6).exists());
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let said = finished(child).err;
    let step = newest_step(run);
    assert!((6..120).contains(&step), "stopped after step {step}: {said}");
    let (json, text) = inspected(run);
    assert_eq!((&json["state"], &json["step"]), (&"stopped".into(), &step.into()), "{text}");
    let backbone = run.join("backbone.safetensors");
    let mut features = program();
    features.args(["features", "--data", "synthetic:train=24,test=12,size=16", "--weights"]).arg(backbone);
    Finished::of(features.arg("--out").arg(run.with_extension("npy")).output().unwrap()).succeeded();
    fs::remove_file(run.with_extension("npy")).unwrap();
}

#[cfg(unix)]
#[test]
fn photographs_that_are_replaced_while_a_run_trains_are_told_of_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, run) = (folder.path().join("photos"), folder.path().join("run"));
    fs::create_dir(&photos).unwrap();
    (0..24).for_each(|i| common::write_bmp(&photos.join(format!("{i}.bmp")), 16, i));
    let more = ["--data", photos.to_str().unwrap(), "--epochs=400"];
    let child = small_command(&run, &more).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a checkpoint", || checkpoints(&run) > 0);
    common::write_bmp(&photos.join("7.bmp"), 16, 99);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let said = finished(child).err;
    let named = "the images are no longer those that this run began with: 1 image is another by the same name (7.bmp)";
    assert!(said.contains(named), "{said}");
}

#[test]
fn a_finished_run_without_its_checkpoints_is_still_finished() {
    let folder = tempfile::tempdir().unwrap();
    let first = small(folder.path(), &[]).succeeded();
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let again = small(folder.path(), &[]).succeeded();
    assert!(again.err.contains("this run is finished"), "{}", again.err);
    assert_eq!(again.out, first.out);
}

#[cfg(unix)]
#[test]
fn a_run_that_stops_leaves_the_backbone_of_its_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = stop_early(folder.path());
    let step = newest_step(folder.path());
    assert!(stopped.err.contains(&format!("stopped after step {step} of 27")), "{}", stopped.err);
    assert!(stopped.err.contains(&format!("backbone.safetensors is the teacher of step {step}")), "{}", stopped.err);
    let bytes = fs::read(folder.path().join("backbone.safetensors")).unwrap();
    let (_, about) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(about.metadata().as_ref().unwrap()["step"], format!("{step} of 27"));
    // The teacher of that step's checkpoint, to the bit.
    let saved = fs::read(checkpoint(folder.path(), step)).unwrap();
    let (saved, backbone) = (
        safetensors::SafeTensors::deserialize(&saved).unwrap(),
        safetensors::SafeTensors::deserialize(&bytes).unwrap(),
    );
    for (name, tensor) in backbone.tensors() {
        let teacher = saved.tensor(&format!("teacher/backbone.{name}")).unwrap();
        assert!(teacher.data() == tensor.data(), "{name}");
    }
    small(folder.path(), &[]).succeeded();
    assert_ends_as_the_reference(folder.path());
}

#[test]
fn inspect_tells_a_run_that_runs_from_one_that_was_stopped_or_killed() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    let mut child = small_command(run, &["--epochs=1000"]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a checkpoint", || checkpoints(run) > 0);
    let (told, text) = inspected(run);
    assert_eq!(told["state"], "running", "{told}");
    assert!(told["step"].as_u64() > Some(0), "{told}");
    assert!(text.contains(&format!("running (process {})", child.id())), "{text}");
    child.kill().unwrap();
    child.wait().unwrap();
    let (told, text) = inspected(run);
    assert_eq!(told["state"], "killed", "{told}");
    let (step, saved) = (told["step"].as_u64().unwrap(), told["saved_step"].as_u64().unwrap());
    assert!(step >= saved && saved == newest_step(run), "{told}");
    assert!(text.contains(&format!("killed; the command that started it continues it after step {saved}")), "{text}");
    let data = &told["data"]["source"];
    assert_eq!(data, "synthetic:train=24,test=12,size=16");

    let other = tempfile::tempdir().unwrap();
    stop_early(other.path());
    let (told, text) = inspected(other.path());
    assert_eq!(told["state"], "stopped", "{told}");
    assert_eq!(told["step"], told["saved_step"]);
    assert!(text.contains("stopped; the command that started it continues it after step"), "{text}");
}

/// A run of one epoch on a folder of images.
fn train_on(data: &Path, out: &Path) -> Finished {
    let mut command = program();
    let flags =
        "pretrain --arch vit_nano --patch-size 8 --batch-size 8 --local-crops 1 --out-dim 32 --epochs 2 --device cpu";
    let sets = ["head_hidden=32", "head_bottleneck=16", "knn_every=0", "global_size=16", "local_size=8"];
    command.args(flags.split_whitespace()).args(sets.iter().flat_map(|set| ["--set", set]));
    Finished::of(command.arg("--data").arg(data).arg("--out").arg(out).output().unwrap())
}

#[test]
fn a_photograph_that_was_replaced_is_other_data_and_a_copy_of_the_folder_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, copy, run) = (folder.path().join("photos"), folder.path().join("copy"), folder.path().join("run"));
    for i in 0..16 {
        common::write_bmp(&photos.join(format!("{i}.bmp")), 16, i);
        common::write_bmp(&copy.join(format!("{i}.bmp")), 16, i);
    }
    train_on(&photos, &run).succeeded();
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains(&format!("source = \"{}\"", photos.display())), "{config}");
    // Without its result there is something to do.
    fs::remove_file(run.join("result.json")).unwrap();
    let moved = train_on(&copy, &run).succeeded();
    assert!(moved.err.contains("changed from here on: place of the data: "), "{}", moved.err);
    assert!(inspected(&run).1.contains(&format!("{}: 16 images", copy.display())));

    common::write_bmp(&photos.join("3.bmp"), 16, 99);
    let message = train_on(&photos, &run).failed();
    assert!(message.contains("images (hash of names, sizes and contents): "), "{message}");
    let named = "Of the images that the run was begun with: 1 image is another by the same name (3.bmp)";
    assert!(message.contains(named), "{message}");
    fs::rename(photos.join("5.bmp"), photos.join("five.bmp")).unwrap();
    let message = train_on(&photos, &run).failed();
    assert!(message.contains("(3.bmp), 1 image is new (five.bmp), 1 image is gone"), "{message}");
    // A run of an earlier version has nothing that could tell.
    fs::remove_file(run.join("images.census")).unwrap();
    let message = train_on(&photos, &run).failed();
    assert!(message.contains("images (hash") && !message.contains("Of the images"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_log_of_a_long_run_is_not_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    let path = folder.path().join("metrics.jsonl");
    let keys: String = (0..20).map(|i| format!(",\"number_{i}\":0.{i}")).collect();
    let log: String = (1..=100_000).map(|step| format!("{{\"step\":{step},\"loss\":1.5{keys}}}\n")).collect();
    fs::write(&path, log).unwrap();
    // As JSON values these records take several hundred megabytes.
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -v 150000 && exec \"$0\" inspect --json \"$1\""]).arg(env!("CARGO_BIN_EXE_dino-vmf"));
    let told = Finished::of(command.arg(folder.path()).output().unwrap()).json();
    assert_eq!((&told["step"], &told["metrics"]["loss"]), (&100_000.into(), &1.5.into()));
}

#[test]
fn a_log_that_is_gone_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    stop_early(folder.path());
    fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    let continued = small(folder.path(), &[]).succeeded();
    assert!(continued.err.contains("metrics.jsonl has nothing of the steps so far any more"), "{}", continued.err);
}
