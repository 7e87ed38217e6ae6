//! `study`: the table of a grid of runs, whatever happens on the way to it.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Finished, newest_step, program, run, wait_until, write_bmp};
use serde_json::Value;

const STUDY: &str = "seeds = [0, 1]
[data]
small = \"synthetic:train=48,test=24,size=16\"
[common]
arch = \"vit_nano\"
patch_size = 8
head_hidden = 32
head_bottleneck = 16
out_dim = 16
batch_size = 8
local_crops = 1
log_every = 1
checkpoint_minutes = 0
epochs = 12
[recipes.vmf]
[recipes.dino]
prototypes = \"none\"
";

fn study_file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("mine.toml");
    fs::write(&path, text).unwrap();
    path
}

fn study(file: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.arg("study").arg(file).arg("--out").arg(out).args(["--device", "cpu"]).args(more);
    command
}

/// The lines of a study's runs.csv without their times.
fn runs(out: &Path) -> Vec<String> {
    let text = fs::read_to_string(out.join("runs.csv")).unwrap();
    let heads: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let time = heads.iter().position(|head| *head == "seconds").unwrap();
    let without = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        [&fields[..time], &fields[time + 1..]].concat().join(",")
    };
    text.lines().map(without).collect()
}

fn steps_logged(run: &Path) -> usize {
    fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count())
}

/// Kills a process as `kill -9` does.
fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_study_that_is_killed_twice_ends_in_the_table_of_an_unbroken_one() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), STUDY);
    let (unbroken, broken) = (place.path().join("unbroken"), place.path().join("broken"));
    let output = study(&file, &unbroken, &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["small+vmf+seed=0", "small+dino+seed=1"] {
        let process = study(&file, &broken, &[]).spawn().unwrap();
        let run = broken.join("runs").join(name);
        wait_until("the run is under way", || steps_logged(&run) > 12);
        kill(process);
    }
    let listed = study(&file, &broken, &["--dry-run"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("small+vmf+seed=0  72 steps").ends_with(", ended"), "{listed}");
    assert!(line("small+dino+seed=1  72 steps").contains(", begun: goes on after step "), "{listed}");
    let output = study(&file, &broken, &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(runs(&broken), runs(&unbroken));
    assert_eq!(runs(&broken).len(), 5);
    for name in ["small+vmf+seed=0", "small+dino+seed=1"] {
        let weights = |study: &Path| fs::read(study.join("runs").join(name).join("backbone.safetensors")).unwrap();
        assert!(weights(&broken) == weights(&unbroken), "{name}");
    }
    let table = fs::read_to_string(broken.join("table.md")).unwrap();
    assert_eq!(table.lines().count(), 4);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&table));
    assert!(fs::read_to_string(broken.join("figure.svg")).unwrap().matches("class=\"dot\"").count() == 4);
}

/// Of the first recipe teacher and student are uniform by settings that no remedy touches: it begins again twice and ends
/// collapsed, 337 steps each time.
const RETRIES: &str = "[data]
small = \"synthetic:train=24,test=12,size=16\"
[common]
arch = \"vit_nano\"
patch_size = 8
head_hidden = 32
head_bottleneck = 16
out_dim = 32
batch_size = 8
local_crops = 1
log_every = 1
checkpoint_minutes = 0
knn_every = 0
[recipes.uniform]
epochs = 120
student_temp = 10
warmup_teacher_temp = 10
warmup_teacher_temp_epochs = 1000000
[recipes.short]
epochs = 2
";

/// The table that people read, without its last column, the times.
fn table(out: &Path) -> Vec<String> {
    let text = fs::read_to_string(out.join("table.md")).unwrap();
    text.lines().map(|line| line.trim_end_matches('|').rsplit_once('|').unwrap().0.to_owned()).collect()
}

/// The process that trains a run.
#[cfg(unix)]
fn process_of(run: &Path) -> String {
    let lock = fs::read_to_string(run.join(".lock")).unwrap();
    lock.lines().next().unwrap().strip_prefix("process ").expect("a process trains").to_owned()
}

/// Kills a study and the run that it has at work, both as `kill -9` does, before the one can learn of the other's end.
#[cfg(unix)]
fn kill_with_run(mut study: Child, run: &Path) {
    let run = process_of(run);
    // A process that is gone already is no less dead.
    Command::new("kill").args(["-KILL", &study.id().to_string(), &run]).status().unwrap();
    study.wait().unwrap();
    let is_gone = || !Command::new("kill").args(["-0", &run]).output().unwrap().status.success();
    wait_until("the run is gone", is_gone);
}

#[cfg(unix)]
#[test]
fn a_study_that_is_killed_in_every_attempt_of_a_run_ends_in_the_table_of_an_unbroken_one() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), RETRIES);
    let (unbroken, broken) = (place.path().join("unbroken"), place.path().join("broken"));
    assert!(study(&file, &unbroken, &[]).output().unwrap().status.success());
    let expected = table(&unbroken);
    assert!(
        expected[2].contains("| uniform | 1 |") && expected[2].ends_with("1 (begun again 2 times) "),
        "{expected:?}"
    );

    let run = broken.join("runs/small+uniform+seed=0");
    let is_there = |name: &str| run.join(name).exists();
    let second = || is_there("collapsed-1/identity.json") && newest_step(&run) > 5;
    let moments: [(&str, &dyn Fn() -> bool); 5] = [
        ("the collapse of the first attempt lasts", &|| newest_step(&run) > 310),
        ("the first attempt is given up", &|| is_there("attempts.json")),
        ("the second attempt is under way", &second),
        ("the second attempt is given up", &|| is_there("collapsed-2")),
        ("the third attempt is under way", &|| is_there("collapsed-2/identity.json") && newest_step(&run) > 5),
    ];
    for (moment, has_come) in moments {
        let process = study(&file, &broken, &[]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        wait_until(moment, has_come);
        kill_with_run(process, &run);
    }
    let output = study(&file, &broken, &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((table(&broken), runs(&broken)), (expected, runs(&unbroken)));
    for attempt in ["collapsed-1", "collapsed-2", "."] {
        let config = |study: &Path| {
            fs::read_to_string(study.join("runs/small+uniform+seed=0").join(attempt).join("config.toml"))
        };
        assert_eq!(config(&broken).unwrap(), config(&unbroken).unwrap(), "{attempt}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_ends_with_the_study_that_started_it() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), &STUDY.replace("epochs = 12", "epochs = 100000"));
    let out = place.path().join("study");
    let process = study(&file, &out, &[]).spawn().unwrap();
    let run = out.join("runs/small+vmf+seed=0");
    wait_until("the run is under way", || steps_logged(&run) > 2);
    kill(process);
    // Its lock is given back, and it says that it ended in order.
    wait_until("the run has stopped", || {
        fs::read_to_string(run.join(".lock")).is_ok_and(|text| text.starts_with("ended"))
    });
}

#[cfg(unix)]
#[test]
fn a_wish_to_stop_saves_what_is_at_work_and_keeps_the_table_so_far() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), &STUDY.replace("epochs = 12", "epochs = 100000"));
    let out = place.path().join("study");
    let process = study(&file, &out, &["--at-once", "2"]).spawn().unwrap();
    let under_way = |name: &str| steps_logged(&out.join("runs").join(name)) > 2;
    wait_until("two runs are under way", || under_way("small+vmf+seed=0") && under_way("small+vmf+seed=1"));
    assert!(Command::new("kill").arg("-TERM").arg(process.id().to_string()).status().unwrap().success());
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    assert!(runs(&out)[1..].iter().all(|line| line.contains(",open,")), "{:?}", runs(&out));
    assert!(out.join("runs/small+vmf+seed=1/backbone.safetensors").is_file());
    assert!(!out.join("runs/small+dino+seed=0").exists());
}

#[cfg(unix)]
#[test]
fn a_run_that_is_killed_has_failed_by_that_and_goes_on_at_the_next_start() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), &STUDY.replace("[0, 1]", "[0]"));
    let out = place.path().join("study");
    let process = study(&file, &out, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let run = out.join("runs/small+vmf+seed=0");
    wait_until("the run is under way", || steps_logged(&run) > 12);
    Command::new("kill").args(["-KILL", &process_of(&run)]).status().unwrap();
    let status = process.wait_with_output().unwrap().status;
    assert_eq!(status.code(), Some(1));
    let csv = runs(&out);
    assert!(
        csv[1].contains("failed: ") && csv[1].contains("signal: 9") && !csv[1].contains("other settings"),
        "{csv:?}"
    );
    let output = study(&file, &out, &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("small+vmf+seed=0: goes on after step "));

    // A result is that of a run: where that was removed, what is begun in its place has none yet.
    fs::remove_dir_all(&run).unwrap();
    let process = study(&file, &out, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the run is begun anew", || steps_logged(&run) > 2);
    kill_with_run(process, &run);
    assert!(study(&file, &out, &["--table"]).output().unwrap().status.success());
    assert!(runs(&out)[1].contains(",open,"), "{:?}", runs(&out));
}

#[test]
fn a_run_that_fails_is_named_and_holds_up_no_other() {
    let place = tempfile::tempdir().unwrap();
    let text = STUDY.replace("epochs = 12", "epochs = 1").replace("[0, 1]", "[0]");
    let file = study_file(place.path(), &text);
    let out = place.path().join("study");
    // Where the run of the first recipe goes, there is one with other settings.
    let taken = study_file(place.path(), &text.replace("epochs = 1", "epochs = 2"));
    assert!(study(&taken, &out, &[]).output().unwrap().status.success());
    study_file(place.path(), &text);
    fs::remove_dir_all(out.join("runs/small+dino+seed=0")).unwrap();
    let output = study(&file, &out, &["--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = printed["rows"].as_array().unwrap();
    assert_eq!((&rows[0]["failed"], &rows[1]["failed"]), (&Value::from(1), &Value::from(0)));
    assert!(rows[0]["knn_mean"].is_null() && rows[1]["knn_mean"].is_number());
    let why = runs(&out)[1].clone();
    assert!(why.contains("failed: ") && why.contains("epochs"), "{why}");
}

#[test]
fn what_cannot_be_run_is_known_before_anything_is() {
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("study");
    for (text, expected) in [
        (STUDY.replace("epochs = 12", "epochs = 1\nwarmup_epochs = 5"), "warmup_epochs 5 is larger than epochs 1"),
        (STUDY.replace("epochs = 12", "epoch = 1"), "epochs"),
        (STUDY.replace("synthetic:train=48,test=24,size=16", "no/such/folder"), "no/such/folder"),
    ] {
        let file = study_file(place.path(), &text);
        let output = study(&file, &out, &[]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && message.contains(expected), "{message}");
        assert!(!out.exists());
    }
    let missing = run(&["study", "no-such-study.toml"]);
    assert!(missing.err.contains("no-such-study.toml"), "{}", missing.err);
}

#[test]
fn the_runs_of_a_study_can_be_listed_with_data_from_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let file = study_file(place.path(), &STUDY.replace("synthetic:train=48,test=24,size=16", "no/such/folder"));
    let out = place.path().join("study");
    let source = "small=synthetic:train=16,test=8,size=16";
    let output = study(&file, &out, &["--dry-run", "--data", source]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().collect::<Vec<_>>()[1], "small+vmf+seed=1  24 steps");
    assert_eq!(text.lines().count(), 4);
    assert!(!out.exists());
}

/// What a table needs of a run: its settings, its log and what it printed.
fn bring(from: &Path, to: &Path, name: &str) {
    let run = to.join("runs").join(name);
    fs::create_dir_all(&run).unwrap();
    for file in ["config.toml", "metrics.jsonl"] {
        fs::copy(from.join("runs").join(name).join(file), run.join(file)).unwrap();
    }
    let printed = format!("logs/{name}.json");
    fs::copy(from.join(&printed), to.join(&printed)).unwrap();
}

#[test]
fn parts_of_a_study_from_several_machines_make_the_table_of_the_whole() {
    let place = tempfile::tempdir().unwrap();
    let text = STUDY.replace("epochs = 12", "epochs = 2");
    let file = study_file(place.path(), &text);
    let [whole, here, there] = ["whole", "here", "there"].map(|name| place.path().join(name));
    assert!(study(&file, &whole, &[]).output().unwrap().status.success());

    let listed = study(&file, &here, &["--dry-run", "--only", "vmf"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 2);
    for (out, part) in [(&here, ["--only", "seed=0"]), (&there, ["--only", "seed=1"])] {
        let output = study(&file, out, &part).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(runs(out).iter().filter(|line| line.contains(",open,")).count(), 2, "{:?}", runs(out));
    }
    // What is brought along is in the table of the part that is trained next.
    bring(&here, &there, "small+vmf+seed=0");
    let output = study(&file, &there, &["--only", "dino+seed=1"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(runs(&there)[1], runs(&whole)[1]);

    bring(&here, &there, "small+dino+seed=0");
    let output = study(&file, &there, &["--table"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((runs(&there), table(&there)), (runs(&whole), table(&whole)));
    assert!(!there.join("runs/small+vmf+seed=0/checkpoints").exists(), "nothing was trained");

    // A run with other settings is no part of it.
    study_file(place.path(), &text.replace("out_dim = 16", "out_dim = 17"));
    let output = study(&file, &there, &["--table"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(runs(&there)[1..].iter().all(|line| line.contains("out_dim")), "{:?}", runs(&there));
    let output = study(&file, &there, &["--only", "vfm"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("no run's name contains vfm; "), "{message}");
}

/// A study whose networks are evaluated, with images of another kind.
const EVALUATED: &str = "evaluate = [\"knn\", \"prototypes\", \"certainty\"]
[data.small]
source = \"synthetic:train=48,test=24,size=16\"
other = \"synthetic:train=16,test=16,size=16,seed=7\"
[common]
arch = \"vit_nano\"
patch_size = 8
head_hidden = 32
head_bottleneck = 16
out_dim = 16
batch_size = 8
local_crops = 1
epochs = 1
[recipes.vmf]
[recipes.dino]
prototypes = \"none\"
";

#[test]
fn what_evaluations_find_is_in_the_table() {
    let place = tempfile::tempdir().unwrap();
    let (file, out) = (study_file(place.path(), EVALUATED), place.path().join("study"));
    let said = |more: &[&str], code| {
        let finished = Finished::of(study(&file, &out, more).output().unwrap());
        assert_eq!(finished.code, Some(code), "{}", finished.err);
        finished
    };
    let printed = said(&["--json"], 0).out;
    let rows: Value = serde_json::from_str(&printed).unwrap();
    for (row, name) in [(0, "small+vmf+seed=0"), (1, "small+dino+seed=0")] {
        let stored = fs::read_to_string(out.join("evaluations").join(name).join("results.json")).unwrap();
        let stored: Value = serde_json::from_str(&stored).unwrap();
        let scores = &rows["rows"][row]["scores"];
        let found = &stored["results"];
        assert_eq!(scores["knn_all"]["mean"], found["knn"]["results"][1]["top1"], "{name}");
        assert_eq!(scores["prototypes_used"]["mean"].as_f64(), found["prototypes"]["used"].as_f64());
        let entropy = &found["certainty"]["scores"]["entropy"];
        assert_eq!(scores["aurc_entropy"]["mean"], entropy["aurc"]);
        assert!(entropy["auroc"].is_f64() && scores["auroc_entropy"]["mean"] == entropy["auroc"]);
        // Only von Mises-Fisher prototypes have a density.
        assert_eq!(scores["aurc_density"]["runs"], 1 - row);
        assert!(out.join("evaluations").join(name).join("index.html").exists());
    }
    let table = fs::read_to_string(out.join("table.md")).unwrap();
    assert!(table.lines().next().unwrap().contains("| prototypes used | unique | largest set | void set |"), "{table}");

    // Nothing is computed again, and the table alone has all of it.
    said(&[], 0);
    let log = fs::read_to_string(out.join("logs/small+vmf+seed=0.log")).unwrap();
    let again = &log[log.rfind("$ dino-vmf eval all").unwrap()..];
    assert_eq!(again.matches("stored already").count(), 3, "{log}");
    assert_eq!(fs::read_to_string(out.join("table.md")).unwrap(), table);
    fs::remove_file(out.join("table.md")).unwrap();
    said(&["--table"], 0);
    assert_eq!(fs::read_to_string(out.join("table.md")).unwrap(), table);

    // Certainty about other images than those that are asked for now is another question.
    let asked = fs::read_to_string(&file).unwrap();
    fs::write(&file, asked.replace("size=16,seed=7", "size=16,seed=8")).unwrap();
    said(&["--table"], 0);
    let without = fs::read_to_string(out.join("table.md")).unwrap();
    assert!(without.contains("| kNN, all images |") && !without.contains("AURC"), "{without}");
    fs::write(&file, asked).unwrap();

    // What is of a network that the run does not have is no number of it, and is computed anew.
    let results = |name: &str| out.join("evaluations").join(name).join("results.json");
    let other = fs::read_to_string(results("small+dino+seed=0")).unwrap();
    fs::write(results("small+vmf+seed=0"), &other).unwrap();
    said(&["--table"], 0);
    assert!(fs::read_to_string(out.join("runs.csv")).unwrap().contains("small+vmf+seed=0,,,,"));
    said(&[], 0);
    assert_eq!(fs::read_to_string(out.join("table.md")).unwrap(), table);
}

#[test]
fn a_study_may_be_evaluated_later_in_parts_and_is_stopped_without_loss() {
    let place = tempfile::tempdir().unwrap();
    let unevaluated = EVALUATED.replace("evaluate = ", "# ");
    let (file, out) = (study_file(place.path(), &unevaluated), place.path().join("the study"));
    let said = |more: &[&str]| Finished::of(study(&file, &out, more).output().unwrap());
    assert_eq!(said(&[]).code, Some(0));
    assert!(!out.join("evaluations").exists());
    study_file(place.path(), EVALUATED);
    assert_eq!(said(&["--only", "vmf"]).code, Some(0));
    let stored = |name: &str| out.join("evaluations").join(name).join("results.json");
    assert!(stored("small+vmf+seed=0").exists() && !stored("small+dino+seed=0").exists());

    // Stopped in the middle or at its end, it goes on with the rest.
    let mut process = study(&file, &out, &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the second evaluation has begun", || stored("small+dino+seed=0").parent().unwrap().exists());
    assert!(Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap().success());
    let code = process.wait().unwrap().code();
    assert!(matches!(code, Some(0 | 143)), "{code:?}");
    let rest = said(&[]);
    assert_eq!(rest.code, Some(0), "{}", rest.err);
    let csv = fs::read_to_string(out.join("runs.csv")).unwrap();
    assert!(csv.lines().skip(1).all(|line| !line.ends_with(",,")), "{csv}");
}

#[test]
fn what_has_no_labels_is_said_once_and_what_fails_is_named() {
    let place = tempfile::tempdir().unwrap();
    let photos = place.path().join("photos");
    fs::create_dir(&photos).unwrap();
    (0..24).for_each(|i| write_bmp(&photos.join(format!("{i}.bmp")), 16, i));
    let text = EVALUATED.replace("synthetic:train=48,test=24,size=16", "photos").replace("\"knn\"", "\"linear\"");
    let (file, out) = (study_file(place.path(), &text), place.path().join("study"));
    let ended = Finished::of(study(&file, &out, &[]).output().unwrap()).succeeded();
    assert_eq!(ended.err.matches("small: linear is left out: ").count(), 1, "{}", ended.err);
    let table = fs::read_to_string(out.join("table.md")).unwrap();
    assert!(table.contains("| prototypes used |") && !table.contains("| linear |"), "{table}");
    let missing = study_file(place.path(), &text.replace("synthetic:train=16,test=16,size=16,seed=7", "nowhere"));
    let refused = Finished::of(study(&missing, &place.path().join("other"), &[]).output().unwrap());
    assert!(refused.failed().contains("nowhere"));
    assert!(!place.path().join("other").exists(), "nothing was trained");
}
