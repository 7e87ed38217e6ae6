//! A folder in which an attempt is given up and the next one begins, killed after each of its moves.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use train::run::{Attempt, Change, Comparison, Difference, Digests, RunConfig, RunError, RunFolder, RunReader};

/// Settings of one number and a seed.
#[derive(Clone, Copy)]
struct Settings(u32, u32);

impl RunConfig for Settings {
    fn to_toml(&self) -> String {
        format!("{} {}", self.0, self.1)
    }

    fn compare(&self, saved: &str) -> Result<Comparison, Box<dyn Error + Send + Sync>> {
        let (number, seed) = saved.split_once(' ').ok_or("they are not two numbers")?;
        let differs = |key: &str, saved: &str, now: u32| {
            let (key, saved, now) = (key.to_owned(), saved.to_owned(), now.to_string());
            (saved != now).then_some(Difference { key, saved, now })
        };
        let differences: Vec<_> =
            [differs("number", number, self.0), differs("seed", seed, self.1)].into_iter().flatten().collect();
        Ok(if differences.is_empty() { Comparison::Same } else { Comparison::Other(differences) })
    }

    fn digests(&self) -> Digests {
        Digests { recipe: self.to_toml(), data: "none".into() }
    }

    fn total_steps(&self) -> u64 {
        100
    }

    fn keep_checkpoints(&self) -> usize {
        3
    }
}

fn write_checkpoint(folder: &RunFolder, step: u64) {
    folder.checkpoints().write(step, &[], "{}").unwrap();
}

fn attempt(folder: &RunFolder, from: u32) -> Attempt {
    let changes = vec![Change { key: "number".into(), from: from.to_string(), to: (from + 1).to_string() }];
    let (became, reason) = ("uniform".to_owned(), "it helps".to_owned());
    let run = folder.run_name().to_owned();
    Attempt { run, steps: 30, since: 15, healthy: Some(10), became, changes, reason }
}

/// A run with everything that one can leave, of which the checkpoint of step 10 is worth keeping.
fn begun(root: &Path) -> RunFolder {
    let folder = RunFolder::open(root, &Settings(1, 0)).unwrap();
    [10, 20, 30].into_iter().for_each(|step| write_checkpoint(&folder, step));
    drop((folder.metrics(None).unwrap(), folder.events(0).unwrap()));
    folder.write("backbone.safetensors", b"weights").unwrap();
    fs::write(root.join("my notes.txt"), "mine").unwrap();
    folder
}

/// Everything below a folder that does not depend on a clock or on the run's name.
fn names(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.push(name.split("tfevents").next().unwrap().to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn what_an_attempt_left_is_moved_aside_and_the_next_one_is_another_run() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("run");
    let folder = begun(&root);
    let given_up = attempt(&folder, 1);
    let first = folder.run_name().to_owned();
    let vacated = folder.vacate(given_up.clone()).unwrap();
    assert!(
        matches!(RunFolder::open(&root, &Settings(2, 0)), Err(RunError::Busy { .. })),
        "the lock is held throughout"
    );
    let next = vacated.begin(&Settings(2, 0)).unwrap();
    assert!(next.is_new() && next.run_name() != first);
    assert!(next.recover().unwrap().checkpoint.is_none(), "no checkpoint of the first is continued");
    assert_eq!(next.attempts(), std::slice::from_ref(&given_up));
    let aside = RunReader::open(&root.join("collapsed-1")).unwrap();
    let kept: Vec<u64> = aside.checkpoints().unwrap().into_iter().map(|(step, _)| step).collect();
    assert_eq!((kept, aside.latest_checkpoint().unwrap().checkpoint.unwrap().step()), (vec![10], 10));
    assert!(root.join("my notes.txt").exists(), "what is not the run's stays");
    drop(next);
    // The same settings go on with it; those of the first attempt are refused.
    assert!(!RunFolder::open(&root, &Settings(2, 0)).unwrap().is_new());
    assert!(matches!(RunFolder::open(&root, &Settings(1, 0)), Err(RunError::OtherRun { .. })));
    assert!(matches!(RunFolder::open_after(&root, &Settings(2, 0), &[]), Err(RunError::AttemptsChanged { .. })));
}

#[test]
fn a_kill_between_any_two_moves_is_made_good_by_the_next_start() {
    let place = tempfile::tempdir().unwrap();
    let expected = place.path().join("expected");
    let folder = begun(&expected);
    let given_up = attempt(&folder, 1);
    drop(folder.vacate(given_up).unwrap().begin(&Settings(2, 0)).unwrap());
    let expected = names(&expected);

    // What a kill leaves: the decision, some checkpoints gone, some things moved, the identity still in its place.
    let moves = ["config.toml", "metrics.jsonl", "checkpoints", "backbone.safetensors", "identity.json"];
    for done in 0..=moves.len() {
        let root = place.path().join(format!("killed-{done}"));
        let folder = begun(&root);
        let given_up = attempt(&folder, 1);
        drop(folder);
        let mut decision = given_up.to_json();
        decision["run"] = given_up.run.clone().into();
        fs::write(root.join("attempts.json"), serde_json::json!([decision]).to_string()).unwrap();
        fs::remove_file(root.join("checkpoints/step-00000020.safetensors")).unwrap();
        if done > 0 {
            fs::create_dir(root.join("collapsed-1")).unwrap();
            fs::remove_file(root.join("checkpoints/step-00000030.safetensors")).unwrap();
        }
        if done == moves.len() {
            // The identity goes after everything else.
            let files = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name());
            let events: Vec<_> = files.filter(|name| name.to_str().unwrap().starts_with("events")).collect();
            events.iter().for_each(|name| fs::rename(root.join(name), root.join("collapsed-1").join(name)).unwrap());
        }
        for name in &moves[..done] {
            fs::rename(root.join(name), root.join("collapsed-1").join(name)).unwrap();
        }
        let other = RunFolder::open(&root, &Settings(2, 7)).unwrap_err().to_string();
        assert!(other.contains("seed: 0 saved, 7 now") && !other.contains("number"), "{done}: {other}");
        let found = RunReader::open_any_attempt(&root).unwrap().unwrap().config().unwrap().0;
        assert_eq!(found, "1 0", "{done}");
        let next = RunFolder::open(&root, &Settings(2, 0)).unwrap();
        assert!(next.is_new() && next.run_name() != given_up.run, "{done}");
        assert_eq!(names(&root), expected, "{done}");
    }
}

#[test]
fn a_list_of_attempts_that_cannot_be_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    for broken in ["", "{}", "[{}]"] {
        fs::write(place.path().join("attempts.json"), broken).unwrap();
        let message = RunFolder::open(place.path(), &Settings(1, 0)).unwrap_err().to_string();
        assert!(message.contains("attempts.json: does not say which attempts"), "{message}");
    }
}
