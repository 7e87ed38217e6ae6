//! `pretrain --minutes`, and what a run of days says at once.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{program, run};

#[test]
fn a_run_of_some_minutes_tries_its_speed_once_and_keeps_what_it_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("--out={}", folder.path().join("run").display());
    let data = ["pretrain", "--data=synthetic:train=24,test=12,size=16", "--device=cpu"];
    let args = [&data[..], &["--batch-size=8", "--set=head_hidden=64", "--minutes=0.4", &out]].concat();
    let dry = run(&[&args[..], &["--dry-run"]].concat()).succeeded();
    assert!(
        dry.out.lines().any(|line| line.starts_with("epochs ") && line.contains("given: --minutes 0.4")),
        "{}",
        dry.out
    );
    assert!(!folder.path().join("run").exists());
    let first = run(&args).succeeded();
    assert!(first.err.contains("trying how fast some steps are here"), "{}", first.err);
    assert!(first.err.contains("images a second here with vit_nano"), "{}", first.err);
    let config = fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    let epochs = config.lines().find(|line| line.starts_with("epochs ")).unwrap();
    assert!(epochs.contains("given: --minutes 0.4"), "{epochs}");

    // The run has begun, so nothing is tried again, however fast the machine is now.
    let second = run(&args).succeeded();
    assert!(!second.err.contains("trying"), "{}", second.err);
    assert!(second.err.contains("this run is finished"), "{}", second.err);
    assert_eq!(fs::read_to_string(folder.path().join("run/config.toml")).unwrap(), config);
}

#[cfg(unix)]
#[test]
fn the_advice_after_some_minutes_is_a_command_that_can_be_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a run");
    let data = ["pretrain", "--data=synthetic:train=64,test=12,size=16", "--device=cpu", "--set=head_hidden=64"];
    let ended = run(&[&data[..], &["--minutes=0.1", "--out", out.to_str().unwrap()]].concat()).succeeded();
    let command = ended.out.lines().find_map(|line| line.strip_prefix("longer    ")).expect("a command").to_owned();
    let advised = ended.out.lines().last().unwrap();
    // As a person has it: found by its name.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dino-vmf"), folder.path().join("dino-vmf")).unwrap();
    let mut shell = std::process::Command::new("/bin/bash");
    shell.args(["-c", &format!("exec {command}")]).env("PATH", folder.path()).env("CUDA_VISIBLE_DEVICES", "");
    let mut shell = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let epochs = command.split("--epochs ").nth(1).unwrap().split(' ').next().unwrap();
    let config = folder.path().join(format!("a run-{epochs}-epochs/config.toml"));
    common::wait_until("the longer run has begun", || config.exists());
    shell.kill().unwrap();
    shell.wait().unwrap();
    assert!(advised.contains(&format!("--epochs {epochs} ")), "{advised}");
    let value = |config: &std::path::Path, key: &str| {
        let text = fs::read_to_string(config).unwrap();
        let line = text.lines().find(|line| line.split(' ').next() == Some(key)).unwrap().to_owned();
        line.split('#').next().unwrap().split('=').nth(1).unwrap().trim().to_owned()
    };
    assert_eq!(value(&config, "epochs"), epochs);
    for key in ["arch", "global_size", "local_size", "local_crops", "head_hidden", "batch_size"] {
        assert_eq!(value(&config, key), value(&out.join("config.toml"), key), "{key}");
    }
}

#[test]
fn minutes_that_do_not_hold_one_pass_are_refused_with_the_time_that_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let out_flag = format!("--out={}", out.display());
    let message =
        run(&["pretrain", "--data=synthetic:train=200000,size=32", "--device=cpu", "--minutes=0.1", &out_flag])
            .failed();
    assert!(message.contains("one pass over 200000 images takes"), "{message}");
    assert!(!out.exists(), "a run that cannot be leaves no folder");
    let message = run(&["pretrain", "--minutes=5", "--epochs=9", &out_flag]).failed();
    assert!(message.contains("`--epochs 9` and `--minutes 5`"), "{message}");
    let message = String::from_utf8(program().args(["pretrain", "--minutes=0"]).output().unwrap().stderr).unwrap();
    assert!(message.contains("a number from 0.1 to 1000000"), "{message}");
}

#[test]
fn a_run_of_days_says_at_once_what_would_take_an_hour() {
    let folder = tempfile::tempdir().unwrap();
    let data = "--data=synthetic:train=40000,test=12,size=16";
    let out = format!("--out={}", folder.path().join("run").display());
    let args = ["pretrain", data, "--device=cpu", "--batch-size=8", "--epochs=100000", "--set=knn_every=0", &out];
    let mut run = program().args(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let said =
        BufReader::new(run.stderr.take().unwrap()).lines().map_while(Result::ok).find(|line| line.contains(" days"));
    run.kill().unwrap();
    run.wait().unwrap();
    let said = said.expect("a word about the days");
    assert!(said.contains("--minutes 60 in place of --epochs would end within an hour"), "{said}");
    assert!(!said.contains("100,000 epochs"), "{said}");
}
