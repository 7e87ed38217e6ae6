//! `inspect` on runs whose files are not what the run wrote.

mod common;

use std::fs;
use std::path::Path;

use common::{checkpoint, inspected, newest_step, run, small};

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

/// The problems of a run, as one text.
fn problems(run: &Path) -> String {
    let (json, text) = inspected(run);
    let problems: Vec<&str> = json["problems"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    problems.iter().for_each(|problem| assert!(text.contains(&format!("  warning      {problem}")), "{text}"));
    problems.join("\n")
}

#[test]
fn the_machine_is_told_as_the_run_wrote_it_down_and_a_start_elsewhere_adds_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (out, record) = (folder.path().join("run"), folder.path().join("run/machine.json"));
    small(&out, &["--epochs", "1", "--no-report"]).succeeded();
    let (json, text) = inspected(&out);
    let machine = &json["machines"][0];
    assert_eq!((&machine["after_step"], &machine["device"]), (&0.into(), &machine["device"]));
    assert!(machine["program"].as_str().unwrap().starts_with("dino-vmf "), "{machine}");
    assert!(machine["device"].as_str().unwrap().starts_with("cpu, ") && machine["driver"].is_null(), "{machine}");
    assert!(text.contains("  machine      "), "{text}");

    // The same run, begun elsewhere and not finished: a checkpoint, and no result.
    edit(&record, "\"processor\": \"", "\"processor\": \"another <b>\u{202e}");
    fs::remove_file(out.join("result.json")).unwrap();
    small(&out, &["--epochs", "1"]).succeeded();
    let (json, text) = inspected(&out);
    let machines = json["machines"].as_array().unwrap();
    assert_eq!((machines.len(), &machines[1]["after_step"]), (2, &3.into()), "{json}");
    assert!(text.contains("after step 3: ") && !text.contains('\u{202e}'), "{text}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("another &lt;b&gt;\u{fffd}") && page.contains("after step 3"), "{page}");

    // A record that is gone or damaged is none, and nothing fails.
    fs::write(&record, "[{").unwrap();
    assert_eq!(inspected(&out).0["machines"], serde_json::json!([]));
    run(&["report", out.to_str().unwrap()]).succeeded();
    assert!(!fs::read_to_string(out.join("report.html")).unwrap().contains("<h2>Machine</h2>"));
}

#[test]
fn settings_that_were_edited_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), &[]).succeeded();
    assert_eq!(problems(folder.path()), "");
    let config = folder.path().join("config.toml");
    let original = fs::read_to_string(&config).unwrap();
    let epochs = original.lines().find(|line| line.starts_with("epochs ")).unwrap();

    edit(&config, epochs, "epochs = 18");
    let said = problems(folder.path());
    assert!(
        said.contains("config.toml is not what this run was begun with: it means 54 steps, and the run has 27"),
        "{said}"
    );
    let (json, text) = inspected(folder.path());
    assert_eq!((&json["state"], &json["total_steps"]), (&"finished".into(), &27.into()), "{text}");

    fs::write(&config, &original).unwrap();
    let patch = original.lines().find(|line| line.starts_with("patch_size ")).unwrap();
    edit(&config, patch, "patch_size = 4");
    let said = problems(folder.path());
    assert!(said.contains("values that shape the result are others"), "{said}");
    assert!(said.contains("It was trained with patch_size 8, and config.toml now means 4"), "{said}");

    fs::write(&config, &original).unwrap();
    edit(&config, "images = 24", "images = 25");
    assert!(problems(folder.path()).contains("it names other data"));

    // How often is logged is nothing that the run holds to.
    fs::write(&config, &original).unwrap();
    let every = original.lines().find(|line| line.starts_with("log_every ")).unwrap();
    edit(&config, every, "log_every = 7");
    assert_eq!(problems(folder.path()), "");
}

#[cfg(unix)]
#[test]
fn a_foreign_backbone_in_a_stopped_run_is_not_called_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (run, other) = (folder.path().join("run"), folder.path().join("other"));
    common::stop_early(&run);
    let (json, text) = inspected(&run);
    assert_eq!(json["backbone"]["sound"], true, "{text}");
    assert_eq!(problems(&run), "");
    let backbone = run.join("backbone.safetensors");
    let own = fs::read(&backbone).unwrap();

    // The end of another run of the same shape: this one has not come so far.
    small(&other, &["--seed=1"]).succeeded();
    fs::copy(other.join("backbone.safetensors"), &backbone).unwrap();
    let step = newest_step(&run);
    let said = problems(&run);
    assert!(said.contains(&format!("not this run's: the run has only come to step {step}")), "{said}");
    assert_eq!(inspected(&run).0["backbone"]["sound"], false);

    // One bit of its own, which says that it is of the step that was saved.
    let mut changed = own.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&backbone, changed).unwrap();
    let said = problems(&run);
    assert!(said.contains(&format!("it is not the teacher in step-{step:08}.safetensors")), "{said}");

    // Without a checkpoint of its step there is nothing to hold it against.
    fs::write(&backbone, own).unwrap();
    fs::remove_file(checkpoint(&run, step)).unwrap();
    let (json, text) = inspected(&run);
    assert_eq!(json["backbone"]["sound"], serde_json::Value::Null, "{text}");
    assert!(text.contains("not checked, as no checkpoint of that step is left"), "{text}");
}

#[test]
fn a_broken_result_is_named() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), &[]).succeeded();
    let path = folder.path().join("result.json");
    let original = fs::read_to_string(&path).unwrap();
    for (content, words) in [
        ("{ \"steps\": 27", "result.json: is damaged: it is not what a run writes"),
        (&original.replace("\"steps\": 27", "\"steps\": 26"), "result.json: speaks of 26 steps, and the run has 27"),
    ] {
        fs::write(&path, content).unwrap();
        let said = problems(folder.path());
        assert!(said.contains(words) && said.contains("judges it again"), "{said}");
    }
    small(folder.path(), &[]).succeeded();
    assert_eq!(problems(folder.path()), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), original);
}

#[test]
fn the_folder_of_the_checkpoints_leads_to_its_run() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path(), &[]).succeeded();
    let checkpoints = folder.path().join("checkpoints");
    let message = run(&["inspect", checkpoints.to_str().unwrap()]).failed();
    assert!(
        message.contains(&format!("is a folder of the run {0}, not the run itself; give {0}", folder.path().display())),
        "{message}"
    );
}
