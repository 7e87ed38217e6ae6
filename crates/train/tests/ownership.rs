//! Whose a checkpoint is, and whose a folder: only a run's own checkpoints are used, others stay where they are, and a run
//! whose folder is gone writes nothing more.

use std::fs;
use std::path::{Path, PathBuf};

use train::run::{Activity, Comparison, Digests, RunConfig, RunError, RunFolder, RunReader};

const STEPS: u64 = 100;

/// Settings of one number that shapes the result.
#[derive(Clone, Copy)]
struct Settings(u32);

impl RunConfig for Settings {
    fn to_toml(&self) -> String {
        self.0.to_string()
    }

    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn std::error::Error + Send + Sync>> {
        if saved == self.to_toml() { Ok(Comparison::Same) } else { Err("other settings".into()) }
    }

    fn digests(&self) -> Digests {
        Digests { recipe: self.to_toml(), data: "photos".to_owned() }
    }

    fn total_steps(&self) -> u64 {
        STEPS
    }

    fn keep_checkpoints(&self) -> usize {
        2
    }
}

/// A run with checkpoints of these steps.
fn run_with(root: &Path, steps: &[u64]) -> RunFolder {
    let mut run = RunFolder::open(root, &Settings(1)).unwrap();
    for &step in steps {
        run.checkpoints().write(step, &[], "{}").unwrap();
        run.note_saved(step);
    }
    run
}

fn checkpoint(root: &Path, step: u64) -> PathBuf {
    root.join(format!("checkpoints/step-{step:08}.safetensors"))
}

fn steps(root: &Path) -> Vec<u64> {
    RunReader::open(root).unwrap().checkpoints().unwrap().into_iter().map(|(step, _)| step).collect()
}

#[test]
fn a_checkpoint_of_another_run_is_named_passed_over_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, other) = (folder.path().join("mine"), folder.path().join("other"));
    let run = run_with(&mine, &[10, 20]);
    run_with(&other, &[30, 1000]);
    for step in [30, 1000] {
        fs::copy(checkpoint(&other, step), checkpoint(&mine, step)).unwrap();
    }
    let foreign = fs::read(checkpoint(&mine, 30)).unwrap();

    let recovered = run.recover().unwrap();
    assert_eq!(recovered.checkpoint.unwrap().step(), 20);
    let said: Vec<String> = recovered.skipped.iter().map(ToString::to_string).collect();
    assert!(said[0].contains("step-00001000.safetensors belongs to another run ("), "{said:?}");
    assert!(said[1].contains("step-00000030.safetensors belongs to another run ("), "{said:?}");
    assert!(recovered.skipped.iter().all(|skipped| !skipped.is_damaged && skipped.path.exists()));
    let reader = RunReader::open(&mine).unwrap();
    assert_eq!(reader.latest_checkpoint().unwrap().checkpoint.unwrap().step(), 20, "an evaluation takes the same one");

    // Own ones come and go; the others do not count among those to keep, and none of them is removed.
    run.checkpoints().write(25, &[], "{}").unwrap();
    assert_eq!(steps(&mine), [1000, 30, 25, 20]);

    // A step whose name is taken is saved nevertheless, and what had the name is kept under another.
    let written = run.checkpoints().write(30, &[], "{}").unwrap();
    let moved = written.moved.unwrap();
    assert!(moved.ends_with("step-00000030.safetensors.other-run"), "{moved:?}");
    assert!(fs::read(moved).unwrap() == foreign);
    assert_eq!(run.recover().unwrap().checkpoint.unwrap().step(), 30);
}

#[test]
fn a_run_without_a_checkpoint_of_its_own_does_not_start_over_silently() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, other) = (folder.path().join("mine"), folder.path().join("other"));
    let run = run_with(&mine, &[]);
    run_with(&other, &[30]);
    fs::copy(checkpoint(&other, 30), checkpoint(&mine, 30)).unwrap();
    let message = run.recover().unwrap_err().to_string();
    assert!(message.contains("no checkpoint is usable") && message.contains("belongs to another run"), "{message}");
    assert_eq!(steps(&mine), [30]);
}

#[test]
fn checkpoints_that_were_saved_and_are_gone_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    drop(run_with(folder.path(), &[10, 20]));
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    let message = RunFolder::open(folder.path(), &Settings(1)).unwrap().recover().unwrap_err().to_string();
    assert!(message.contains("has saved step 20, but none of its checkpoints is there"), "{message}");

    // What is left of a run that was deleted by hand does not haunt the next one.
    for name in ["config.toml", "identity.json"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    assert!(RunFolder::open(folder.path(), &Settings(1)).unwrap().recover().unwrap().checkpoint.is_none());
}

#[test]
fn a_checkpoint_beyond_the_last_step_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_with(folder.path(), &[10]);
    run.checkpoints().write(STEPS + 1, &[], "{}").unwrap();
    let recovered = run.recover().unwrap();
    assert_eq!(recovered.checkpoint.unwrap().step(), 10);
    assert!(recovered.skipped[0].reason.contains("lies beyond step 100, the last of this run"));
    assert_eq!(steps(folder.path()), [STEPS + 1, 10]);
}

#[test]
fn settings_that_somebody_edited_do_not_continue_from_checkpoints_of_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    drop(run_with(folder.path(), &[10]));
    fs::write(folder.path().join("config.toml"), "2").unwrap();
    let refused = RunFolder::open(folder.path(), &Settings(2)).unwrap_err();
    assert!(matches!(refused, RunError::SettingsEdited { .. }), "{refused}");
    fs::write(folder.path().join("config.toml"), "1").unwrap();
    RunFolder::open(folder.path(), &Settings(1)).unwrap();
}

#[test]
fn a_run_of_an_earlier_version_is_read_but_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    drop(run_with(folder.path(), &[10]));
    fs::remove_file(folder.path().join("identity.json")).unwrap();
    let refused = RunFolder::open(folder.path(), &Settings(1)).unwrap_err();
    assert!(matches!(refused, RunError::NoIdentity { .. }), "{refused}");
    let reader = RunReader::open(folder.path()).unwrap();
    assert_eq!(reader.latest_checkpoint().unwrap().checkpoint.unwrap().step(), 10);

    // One that had not saved anything loses nothing by becoming a run of this version.
    fs::remove_file(checkpoint(folder.path(), 10)).unwrap();
    fs::remove_file(folder.path().join(".lock")).unwrap();
    assert!(RunFolder::open(folder.path(), &Settings(1)).unwrap().recover().unwrap().checkpoint.is_none());
}

#[cfg(unix)]
#[test]
fn a_run_whose_folder_was_begun_anew_by_another_writes_nothing_into_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let first = run_with(&root, &[10]);
    first.check_own().unwrap();
    fs::remove_dir_all(&root).unwrap();
    assert!(matches!(first.check_own(), Err(RunError::FolderLost { .. })), "the folder is gone");

    let second = run_with(&root, &[]);
    assert!(matches!(first.check_own(), Err(RunError::FolderLost { .. })));
    let refused = first.write("result.json", b"{}").unwrap_err();
    assert!(refused.to_string().contains("Nothing more was written"), "{refused}");
    second.check_own().unwrap();
    assert!(!root.join("result.json").exists());
    let identity = fs::read(root.join("identity.json")).unwrap();
    fs::remove_file(root.join("identity.json")).unwrap();
    fs::create_dir(root.join("identity.json")).unwrap();
    assert!(matches!(second.check_own(), Err(RunError::Io { .. })), "a file that cannot be read says nothing");
    fs::remove_dir(root.join("identity.json")).unwrap();
    fs::write(root.join("identity.json"), identity).unwrap();
    second.check_own().unwrap();
    drop(first);
    let activity = RunReader::open(&root).unwrap().activity();
    assert!(matches!(activity, Some(Activity::Training { .. })), "the end of the first is not that of the second");
}

#[cfg(unix)]
#[test]
fn a_lock_file_that_was_removed_does_not_let_two_runs_write() {
    let folder = tempfile::tempdir().unwrap();
    let first = run_with(folder.path(), &[]);
    fs::remove_file(folder.path().join(".lock")).unwrap();
    let second = RunFolder::open(folder.path(), &Settings(1)).unwrap();
    assert!(matches!(first.check_own(), Err(RunError::FolderLost { .. })));
    second.check_own().unwrap();
}

#[cfg(unix)]
#[test]
fn checkpoints_that_are_cleared_away_while_a_run_goes_on_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let run = run_with(&root, &[10]);
    fs::remove_dir_all(root.join("checkpoints")).unwrap();
    run.checkpoints().write(20, &[], "{}").unwrap();
    assert_eq!(steps(&root), [20]);
    fs::remove_dir_all(&root).unwrap();
    run.checkpoints().write(30, &[], "{}").unwrap_err();
    assert!(!root.exists(), "a run that was deleted does not come back");
}

#[test]
fn leftovers_of_kills_are_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    drop(run_with(folder.path(), &[10]));
    let (gone, stays) = (
        ["result.json.1-2-3.tmp", "backbone.safetensors.1-2-3.tmp", "checkpoints/step-00000011.safetensors.1-2-3.tmp"],
        ["notes.tmp", "checkpoints/notes.tmp", "checkpoints/best.safetensors.tmp"],
    );
    gone.iter().chain(&stays).for_each(|name| fs::write(folder.path().join(name), "x").unwrap());
    RunFolder::open(folder.path(), &Settings(1)).unwrap().recover().unwrap();
    gone.iter().for_each(|name| assert!(!folder.path().join(name).exists(), "{name}"));
    stays.iter().for_each(|name| assert!(folder.path().join(name).exists(), "{name} is not ours"));
}

#[test]
fn what_was_set_aside_before_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_with(folder.path(), &[10]);
    for content in ["first", "second"] {
        run.checkpoints().write(20, &[], "{}").unwrap();
        fs::write(checkpoint(folder.path(), 20), content).unwrap();
        run.recover().unwrap();
    }
    let aside = |name: &str| fs::read_to_string(folder.path().join("checkpoints").join(name)).unwrap();
    assert_eq!(aside("step-00000020.safetensors.damaged"), "first");
    assert_eq!(aside("step-00000020.safetensors.damaged-2"), "second");
}
