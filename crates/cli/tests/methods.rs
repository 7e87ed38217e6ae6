//! Every method through the program: it trains, goes on where it was killed, and leaves a backbone like any other.

mod common;

use std::fs;
use std::process::Stdio;

use common::{checkpoint, metrics, newest_step, run, small, small_command, timeless_metrics, wait_until};

const STEPS: u64 = 27;
const METHODS: [(&str, &[&str]); 5] = [
    ("dino", &["--set", "koleo_weight=0.1"]),
    ("ibot", &[]),
    ("ibot", &["--set", "shared_head=false", "--set", "patch_out_dim=24", "--prototypes", "l2"]),
    ("msn", &["--accumulate", "2"]),
    ("msn", &["--prototypes", "vmf", "--set", "koleo_weight=0.1"]),
];

#[test]
fn a_killed_run_of_every_method_ends_as_an_unbroken_one() {
    for (method, more) in METHODS {
        let more = [&["--method", method], more].concat();
        let folder = tempfile::tempdir().unwrap();
        let (whole, broken) = (folder.path().join("whole"), folder.path().join("broken"));
        small(&whole, &more).succeeded();
        let mut child = small_command(&broken, &more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("some steps", || newest_step(&broken) > 3);
        child.kill().unwrap();
        child.wait().unwrap();
        small(&broken, &more).succeeded();
        let learnt = |run| common::learnt(&checkpoint(run, STEPS));
        assert!(learnt(&whole) == learnt(&broken), "{more:?}: the last checkpoints differ");
        assert_eq!(timeless_metrics(&whole), timeless_metrics(&broken), "{more:?}: the logs differ");
        let losses: Vec<f64> = metrics(&whole).iter().filter_map(|record| record.get("loss")?.as_f64()).collect();
        assert!(losses.len() == STEPS as usize && losses.iter().all(|loss| loss.is_finite()), "{more:?}: {losses:?}");

        // The backbone is that of any method: nothing of the head, no mask token, no prototypes.
        let bytes = fs::read(whole.join("backbone.safetensors")).unwrap();
        let names = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let names = names.names();
        assert!(names.contains(&"cls_token"));
        for foreign in ["head", "prototype", "mask", "last_layer"] {
            assert!(!names.iter().any(|name| name.contains(foreign)), "{more:?}: {names:?}");
        }
        let said = run(&["inspect", whole.to_str().unwrap()]).succeeded().out;
        assert!(said.contains(&format!("{method}, prototypes")), "{said}");
        assert_eq!(said.contains("centering"), method != "msn", "{said}");
    }
}

#[test]
fn a_run_from_before_there_was_a_start_goes_on_with_the_same_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    small(&out, &["--set", "start=random"]).succeeded();
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    let old: Vec<&str> = config.lines().filter(|line| line.split_whitespace().next() != Some("start")).collect();
    assert_eq!(old.len() + 1, config.lines().count());
    fs::write(out.join("config.toml"), old.join("\n") + "\n").unwrap();
    let again = small(&out, &[]).succeeded();
    assert!(again.err.contains("this run is finished"), "{}", again.err);
}

#[test]
fn contradictions_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    for (more, said) in [
        (&["--method", "ibot", "--set", "patch_out_dim=7"][..], "leave patch_out_dim out, set it to 32"),
        (&["--method", "ibot", "--set", "mask_shape=block"], "use mask_shape = \"random\""),
        (&["--method", "ibot", "--set", "mask_ratio=[0.1, 0.2]"], "covers none of the 4 patches"),
        (&["--method", "msn", "--local-crops", "0"], "use --local-crops 1 or more"),
        (&["--method", "msn", "--prototypes", "none"], "use \"l2\", as published, or \"vmf\""),
        (&["--method", "msn", "--centering", "logit"], "`centering` does not apply to method `msn`"),
        (&["--method", "dino", "--set", "sinkhorn=true"], "`sinkhorn` does not apply to method `dino`"),
        (&["--method", "byol"], "one of dino, ibot, msn"),
    ] {
        let out = folder.path().join("run");
        let refused = small(&out, more);
        assert_ne!(refused.code, Some(0), "{more:?}");
        assert!(refused.err.contains(said), "{more:?}: {}", refused.err);
        assert!(!out.exists(), "{more:?}");
    }
}
