//! `pretrain --init` and `--adapt`: what a run begins with, that it is kept, and that a loss of it is told.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;

use common::{
    checkpoint, inspected, learnt, metrics, newest_step, run, small, small_command, timeless_metrics, wait_until,
};
use safetensors::SafeTensors;
use tempfile::TempDir;

/// A run of six steps whose weights others begin with.
static SOURCE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    small(&folder.path().join("run"), &["--epochs", "2", "--set", "seed=7"]).succeeded();
    folder
});

fn source() -> PathBuf {
    SOURCE.path().join("run")
}

/// The tensors of a file whose names begin so, with their bytes.
fn tensors(path: &Path, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut found: Vec<_> = file
        .tensors()
        .into_iter()
        .filter_map(|(name, view)| Some((name.strip_prefix(prefix)?.to_owned(), view.data().to_vec())))
        .collect();
    found.sort();
    found
}

#[test]
fn an_adapted_backbone_keeps_every_bit_while_its_heads_warm_up_and_then_learns() {
    let folder = tempfile::tempdir().unwrap();
    let (out, weights) = (folder.path().join("run"), source().join("backbone.safetensors"));
    let more = ["--adapt", weights.to_str().unwrap(), "--epochs", "6", "--set", "backbone_warmup_epochs=3"];
    let ended = small(&out, &[&more[..], &["--set", "keep_checkpoints=100"]].concat()).succeeded();
    for said in
        ["began with backbone: all 54 tensors", "heads: 0 of 12", "at the start: kNN top-1", "derived: adapting: "]
    {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
    let given = tensors(&weights, "");
    for step in 1..=9 {
        let saved = checkpoint(&out, step);
        for network in ["student/backbone.", "teacher/backbone."] {
            assert!(tensors(&saved, network) == given, "{network} after step {step}");
        }
        for moment in ["first/backbone.", "second/backbone."] {
            assert!(tensors(&saved, moment).iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0)), "{moment}");
        }
    }
    let heads = |step| tensors(&checkpoint(&out, step), "student/head.mlp");
    assert!(heads(2) != heads(9), "the heads have warmed up");
    assert!(tensors(&checkpoint(&out, 10), "student/backbone.") != given, "the backbone learns");
    assert!(tensors(&checkpoint(&out, 18), "teacher/backbone.") != given, "and its teacher follows");

    // The accuracy of the start is in the log, in the result, and in what is told of the run.
    let start = metrics(&out)[0]["knn_start"].as_f64().unwrap();
    assert_eq!(metrics(&out)[0]["step"], 0);
    let result: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(out.join("result.json")).unwrap()).unwrap();
    assert_eq!(
        (result["knn_top1"]["untrained"].as_f64(), &result["knn_top1"]["start_is_given"]),
        (Some(start), &true.into())
    );
    assert!(ended.out.contains("at the start "), "{}", ended.out);
    let (object, text) = inspected(&out);
    assert_eq!(object["knn_start"].as_f64(), Some(start));
    assert!(text.contains("adapted from given weights") && text.contains("before the first step"), "{text}");
}

/// A run with these arguments, and one that is killed in the middle and goes on when the weights are gone, end alike.
#[track_caller]
fn survives_a_kill_without_its_weights(flag: &str, weights: &Path, more: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let (unbroken, broken, copy) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("copy"));
    let arguments = |weights: &Path| {
        let mut words = vec![flag.to_owned(), weights.to_str().unwrap().to_owned()];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    };
    let words = arguments(weights);
    small(&unbroken, &words.iter().map(String::as_str).collect::<Vec<_>>()).succeeded();
    if weights.is_dir() {
        fs::create_dir_all(copy.join("checkpoints")).unwrap();
        for (path, bytes) in common::content(weights) {
            fs::write(copy.join(path.strip_prefix(weights).unwrap()), bytes).unwrap();
        }
    } else {
        fs::copy(weights, &copy).unwrap();
    }
    let words = arguments(&copy);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut child = small_command(&broken, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("some steps", || newest_step(&broken) >= 12);
    child.kill().unwrap();
    child.wait().unwrap();
    if copy.is_dir() {
        fs::remove_dir_all(&copy).unwrap()
    } else {
        fs::remove_file(&copy).unwrap()
    }
    let ended = small(&broken, &words).succeeded();
    assert!(ended.err.contains("is gone; taking"), "{}", ended.err);
    assert!(learnt(&checkpoint(&unbroken, 27)) == learnt(&checkpoint(&broken, 27)), "the last checkpoints differ");
    assert_eq!(timeless_metrics(&unbroken), timeless_metrics(&broken));
    for name in ["backbone.safetensors", "result.json", "initial.safetensors"] {
        assert!(fs::read(unbroken.join(name)).unwrap() == fs::read(broken.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn an_adapted_run_with_a_pull_goes_on_to_the_same_bits_when_the_weights_are_gone() {
    let weights = source().join("backbone.safetensors");
    let more = ["--set", "backbone_warmup_epochs=2", "--set", "pull=20"];
    survives_a_kill_without_its_weights("--adapt", &weights, &more);
}

#[test]
fn a_run_that_began_with_another_one_goes_on_to_the_same_bits_when_that_is_gone() {
    survives_a_kill_without_its_weights("--init", &source(), &[]);
}

#[test]
fn a_run_begins_with_networks_heads_and_centre_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (source(), folder.path().join("run"));
    let base = ["pretrain", "--data", "synthetic:train=24,test=12,size=16", "--batch-size=8", "--local-crops=1"];
    let more = ["--epochs=1", "--device=cpu", "--set", "checkpoint_minutes=0", "--set", "lr=1e-9", "--set", "min_lr=0"];
    let begun = ["--init", source.to_str().unwrap(), "--out", out.to_str().unwrap()];
    // Nothing is said of network and heads: they are those of the other run.
    let ended = run(&[&base[..], &more, &begun].concat()).succeeded();
    for said in ["of student and teacher each", "heads: 12 of 12 tensors, and 1 centre", "given: --init"] {
        assert!(ended.err.contains(said), "{said}: {}", ended.err);
    }
    let (last, kept) = (checkpoint(&source, 6), out.join("initial.safetensors"));
    for name in ["student/", "teacher/"] {
        assert!(tensors(&last, name) == tensors(&kept, name), "{name}");
    }
    assert!(tensors(&last, "center") == tensors(&kept, "center"));
    // Other weights are another run's, and those that it began with are told.
    let other = source.join("backbone.safetensors");
    let begun = ["--init", other.to_str().unwrap(), "--out", out.to_str().unwrap(), "--out-dim=32"];
    let shape = ["--set", "head_hidden=32", "--set", "head_bottleneck=16"];
    let refused = run(&[&base[..], &more, &begun, &shape].concat()).failed();
    let flags = format!("--recipe {}/config.toml --init {}, or --adapt", out.display(), kept.display());
    assert!(refused.contains("begin_weights: ") && refused.contains(&flags), "{refused}");
    let begun = ["--init", kept.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let again = run(&[&base[..], &more, &begun].concat()).succeeded();
    assert!(again.err.contains("this run is finished"), "{}", again.err);
}

#[test]
fn the_recipe_of_the_built_in_images_gives_way_to_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (source(), folder.path().join("run"));
    let mut command = common::program();
    command.args([
        "pretrain",
        "--data",
        "synthetic",
        "--device",
        "cpu",
        "--set",
        "checkpoint_minutes=0",
        "--no-report",
    ]);
    command.arg("--init").arg(source).arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
    let child = std::cell::RefCell::new(command.spawn().unwrap());
    let has_ended = || child.borrow_mut().try_wait().unwrap().is_some();
    wait_until("it trains", || newest_step(&out) > 0 || has_ended());
    assert!(newest_step(&out) > 0, "it was refused, though nobody has asked for what contradicts the weights");
    child.borrow_mut().kill().unwrap();
    child.borrow_mut().wait().unwrap();
}

#[test]
fn what_contradicts_the_weights_is_refused_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, out) = (source().join("backbone.safetensors"), folder.path().join("run"));
    let weights = weights.to_str().unwrap();
    let refused = small(&out, &["--adapt", weights, "--arch", "vit_tiny"]).failed();
    assert!(refused.contains("--arch: arch = \"vit_tiny\" contradicts --adapt"), "{refused}");
    assert!(refused.contains("whose network has arch = \"vit_nano\": leave arch out"), "{refused}");
    let refused = small(&out, &["--init", weights, "--set", "start=mimetic"]).failed();
    assert!(refused.contains("leave start out"), "{refused}");
    let refused = small(&out, &["--set", "begin=adapt", "--set", "begin_weights=0123456789abcdef"]).failed();
    assert!(refused.contains("give --adapt W"), "{refused}");
    let refused = small(&out, &["--init", "no/such/file.pth"]).failed();
    assert!(refused.contains("no/such/file.pth"), "{refused}");
    assert!(!out.exists(), "nothing was begun");
    let usage = run(&["pretrain", "--init", weights, "--adapt", weights]);
    assert_eq!(usage.code, Some(2), "{}", usage.err);
}

#[test]
fn a_learning_rate_that_ruins_the_network_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = "--data=synthetic:train=300,test=200,size=32";
    let (given, out) = (folder.path().join("given"), folder.path().join("run"));
    // A network that begins as trained ones look tells these images apart; one step changes little of it.
    small(&given, &[data, "--epochs", "1", "--set", "start=mimetic", "--set", "lr=1e-5", "--set", "min_lr=0"])
        .succeeded();
    let weights = given.join("backbone.safetensors");
    let more =
        ["--init", weights.to_str().unwrap(), data, "--epochs", "3", "--set", "lr=3", "--set", "momentum_teacher=0.5"];
    let ended = small(&out, &[&more[..], &["--set", "on_collapse=continue", "--json"]].concat());
    assert!(ended.err.contains("warning: kNN fell from ") && ended.err.contains("at the start to "), "{}", ended.err);
    assert!(
        ended.err.contains("this learning rate is ruining the network; try --adapt in place of --init"),
        "{}",
        ended.err
    );
    assert!(metrics(&out).iter().any(|record| record.get("knn_below_start").is_some()));
    let result = ended.json();
    // How the whole is judged depends on how far below the noise lets it be; what it is judged by is there.
    let knn = &result["knn_top1"];
    assert_eq!(knn["start_is_given"], true, "{result}");
    assert!(knn["trained"].as_f64() < knn["untrained"].as_f64(), "{result}");
}
