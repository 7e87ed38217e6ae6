//! Work that does not fit is refused before it begins: memory, limits on it, and threads.

mod common;

use std::fs;
use std::path::Path;

use common::{Finished, program, run, small, write_bmp};

/// Runs the program under a limit of the shell: `-v` and KiB.
#[cfg(target_os = "linux")]
fn limited(ulimit: &str, args: &[&str]) -> Finished {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\"")]);
    command.arg(program().get_program()).args(args);
    command.env_remove("RAYON_NUM_THREADS").env("CUDA_VISIBLE_DEVICES", "");
    Finished::of(command.output().expect("the shell starts"))
}

/// A run of one epoch and some images.
fn trained(folder: &Path) -> (String, String) {
    let (out, images) = (folder.join("run"), folder.join("images"));
    small(&out, &["--epochs", "1"]).succeeded();
    (0..3).for_each(|i| write_bmp(&images.join(format!("{i}.bmp")), 16, i));
    (out.display().to_string(), images.display().to_string())
}

#[test]
fn features_that_do_not_fit_into_any_machine_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, images) = trained(folder.path());
    let out = folder.path().join("f.npy").display().to_string();
    let common = ["--weights", &weights, "--data", &images, "--image-size", "8192", "--device", "cpu"];
    let error = run(&[&["features", "--out", &out][..], &common].concat()).failed();
    for said in ["this needs about", "of memory, and there is", "--batch-size 1", "--image-size"] {
        assert!(error.contains(said), "{said}: {error}");
    }
    assert!(!Path::new(&out).exists());
    let labelled = folder.path().join("classes");
    (0..4).for_each(|i| write_bmp(&labelled.join(format!("{}/{i}.bmp", i % 2)), 16, i));
    let classes = labelled.display().to_string();
    let args = ["eval", "knn", "--k", "1", "--weights", &weights, "--data", &classes, "--image-size", "8192"];
    assert!(run(&[&args[..], &["--device", "cpu"]].concat()).failed().contains("--batch-size 1"));
}

#[test]
fn views_and_batches_that_do_not_fit_are_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("sheet.png").display().to_string();
    let large = ["--set", "global_size=16384", "--images", "256"];
    let error = run(&[&["views", "--data", "synthetic", "--out", &out][..], &large].concat()).failed();
    assert!(error.contains("this needs about") && error.contains("fewer --images"), "{error}");
    let batch = ["--batch-size", "60000", "--global-size", "4096", "--local-crops", "0"];
    let error = run(&[&["bench", "data", "--data", "synthetic:train=60000"][..], &batch].concat()).failed();
    assert!(error.contains("this needs about") && error.contains("--batch-size"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_limit_of_the_shell_counts_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, images) = trained(folder.path());
    let out = folder.path().join("f.npy").display().to_string();
    let args = ["features", "--weights", &weights, "--data", &images, "--out", &out, "--device", "cpu"];
    // 63 x 63 patches: 16 million pairs of tokens, which a machine of today has memory for.
    let large = [&args[..], &["--image-size", "1000", "--threads", "2"]].concat();
    for ulimit in ["-v 400000", "-d 150000"] {
        let error = limited(ulimit, &large).failed();
        let name = &ulimit[..2];
        assert!(error.contains("this needs about") && error.contains(&format!("ulimit {name}")), "{error}");
    }
    limited("-v 8000000", &args).succeeded();
    // Reached, it ends the program without a word of ours, so that the word comes before.
    let run = folder.path().join("under-a-limit").display().to_string();
    let small = [&common::SMALL[..], &["--out", &run]].concat();
    let said = limited("-v 300000", &small).err;
    assert!(said.contains("warning: ulimit -v leaves ") && said.contains("MALLOC_ARENA_MAX=1"), "{said}");
    let said = limited("-v 4000000", &["doctor", "--device", "cpu"]).succeeded().out;
    assert!(said.contains("3.8 GiB (ulimit -v)"), "{said}");
}

#[test]
fn a_variable_that_is_no_number_of_threads_is_an_error_for_every_command() {
    for value in ["x", "100000"] {
        for args in [&["doctor"][..], &["inspect", "nothing"], &["views", "--out", "x.png"]] {
            let mut command = program();
            command.env("RAYON_NUM_THREADS", value).args(args);
            let error = Finished::of(command.output().unwrap()).failed();
            assert!(error.contains(&format!("RAYON_NUM_THREADS={value}")) && error.contains("1 to 1024"), "{error}");
        }
    }
    let refused = run(&["doctor", "--threads", "100000"]);
    assert!(refused.code == Some(2) && refused.err.contains("1..=1024"), "{refused:?}");
    let refused = run(&["bench", "data", "--data", "synthetic", "--workers", "100000"]);
    assert!(refused.code == Some(2) && refused.err.contains("1..=1024"), "{refused:?}");
    let folder = tempfile::tempdir().unwrap();
    let error = small(&folder.path().join("run"), &["--set", "workers=100000"]).failed();
    assert!(error.contains("from 0 to 1024"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
