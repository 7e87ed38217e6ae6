//! What a user can get wrong, or a machine: a clear message, a status that is not zero, and nothing overwritten.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Finished, SMALL, checkpoint, content, program, run, small, unless_given, write_bmp};

/// `pretrain` with the small settings on other data.
fn pretrain(data: &Path, out: &Path, more: &[&str]) -> Finished {
    let mut command = program();
    let rest = unless_given(&SMALL[3..], more);
    command.args(["pretrain", "--data"]).arg(data).args(rest).args(more).arg("--out").arg(out);
    Finished::of(command.output().unwrap())
}

/// A folder of `count` images.
fn images(folder: &Path, count: usize, side: usize) {
    for i in 0..count {
        write_bmp(&folder.join(format!("{i:03}.bmp")), side, i);
    }
}

#[test]
fn a_missing_or_empty_folder_is_named_and_no_run_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let missing = pretrain(&folder.path().join("nowhere"), &out, &[]).failed();
    assert!(missing.contains("nowhere: no such file or folder") && missing.contains("`synthetic`"), "{missing}");

    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("notes.txt"), "").unwrap();
    let message = pretrain(&empty, &out, &[]).failed();
    assert!(message.contains("no images in it or below") && message.contains("notes.txt"), "{message}");
    assert!(!out.exists());
}

#[test]
fn an_unreadable_image_is_named_counted_and_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("photos");
    images(&data, 23, 16);
    fs::write(data.join("broken.jpg"), b"\xff\xd8\xff\xe0 cut off").unwrap();
    let out = folder.path().join("run");
    let ended = pretrain(&data, &out, &["--epochs", "2"]).succeeded();
    assert_eq!(ended.err.matches("skipped broken.jpg: ").count(), 1, "{}", ended.err);
    assert!(ended.err.contains("skipped because unreadable: 1 image"), "{}", ended.err);
    assert!(ended.out.contains("no labels"), "{}", ended.out);

    let features = folder.path().join("f.safetensors");
    let (out, data, features) = (out.to_str().unwrap(), data.to_str().unwrap(), features.to_str().unwrap());
    let ended = run(&["features", "--weights", out, "--data", data, "--out", features]).succeeded();
    assert!(ended.err.contains("skipped broken.jpg: "), "{}", ended.err);
    assert!(ended.out.contains("23 x 64 features") && ended.out.contains("1 left out"), "{}", ended.out);
    let message = run(&["eval", "knn", "--weights", out, "--data", data]).failed();
    assert!(message.contains("training images have no label"), "{message}");
}

#[test]
fn a_folder_where_nothing_can_be_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("photos");
    fs::create_dir(&data).unwrap();
    (0..12).for_each(|i| fs::write(data.join(format!("{i}.png")), "no image").unwrap());
    let message = pretrain(&data, &folder.path().join("run"), &[]).failed();
    assert!(message.contains("none of the 12 images looked at") && message.contains("0.png: "), "{message}");
    assert!(!folder.path().join("run").exists());
}

#[test]
fn an_unknown_recipe_key_is_answered_with_the_nearest() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let message = small(&out, &["--set", "teacher_tmp=0.1"]).failed();
    assert!(message.contains("unknown recipe key `teacher_tmp`: did you mean `teacher_temp`?"), "{message}");
    let recipe = folder.path().join("r.toml");
    fs::write(&recipe, "seed = 1\nbatchsize = 8\n").unwrap();
    let message = small(&out, &["--recipe", recipe.to_str().unwrap()]).failed();
    assert!(message.contains("r.toml:2: unknown recipe key `batchsize`: did you mean `batch_size`?"), "{message}");
    let message = small(&out, &["--prototypes", "vfm"]).failed();
    assert!(message.contains("--prototypes: ") && message.contains("one of none, l2, vmf"), "{message}");
    let message = small(&out, &["--recipe", "no/such.toml"]).failed();
    assert!(message.contains("no/such.toml: cannot read the recipe"), "{message}");
    assert!(!out.exists());
}

#[test]
fn a_batch_that_the_data_cannot_fill_and_images_below_a_patch_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let message = small(&out, &["--batch-size", "25"]).failed();
    assert!(message.contains("batch_size 25 is larger than the data (24 images): use --batch-size 24"), "{message}");
    let message = small(&out, &["--patch-size", "17"]).failed();
    assert!(message.contains("smaller than a patch of 17 pixels: use --patch-size 16 or less"), "{message}");
    assert!(!out.exists());
}

#[test]
fn another_runs_folder_and_a_folder_of_other_files_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    small(&out, &["--epochs", "1"]).succeeded();
    let same = |before: &[(std::path::PathBuf, Vec<u8>)]| {
        let now = content(&out);
        let is_lock = |path: &Path| path.ends_with(".lock");
        before.iter().zip(&now).all(|(a, b)| a == b || is_lock(&a.0)) && before.len() == now.len()
    };
    let before = content(&out);
    let message = small(&out, &["--epochs", "1", "--seed", "3", "--out-dim", "64"]).failed();
    assert!(message.contains("holds another run, which this command does not continue"), "{message}");
    assert!(message.contains("out_dim: 32 saved, 64 now\n  seed: 0 saved, 3 now"), "{message}");
    assert!(same(&before), "the run was changed");

    let other = folder.path().join("holiday");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("beach.txt"), "sun").unwrap();
    let message = small(&other, &[]).failed();
    assert!(message.contains("already holds other files (beach.txt)"), "{message}");
    assert_eq!(content(&other), [(other.join("beach.txt"), b"sun".to_vec())]);
}

#[test]
fn a_device_that_is_not_there_is_told_as_such() {
    for device in ["cuda", "cuda:1"] {
        let message = run(&["bench", "step", "--device", device]).failed();
        assert!(message.contains("no GPU can be used") && message.contains("--device cpu"), "{message}");
    }
    // Doctor tells what is there first.
    let ended = run(&["doctor", "--device", "cuda:1"]);
    assert!(ended.out.contains("NVIDIA driver") && ended.out.contains("To train on an NVIDIA GPU"), "{}", ended.out);
    assert!(ended.out.contains("no GPU can be used"), "{}", ended.out);
    assert!(ended.code == Some(1) && ended.err.contains("this machine cannot do that; see above"), "{}", ended.err);
    assert!(run(&["doctor", "--device", "gpu"]).failed().contains("use auto, cpu, cuda or cuda:N"));
}

/// Trains on a disk that holds two checkpoints and not three, then enlarges the disk and starts the same command again.
/// The disk is a mount that only this script sees.
const FULL_DISK: &str = r#"
set -u
disk=$1; copy=$2; shift 2
mount -t tmpfs -o size=8098k none "$disk" || exit 77
"$@" --out "$disk/run"
status=$?
cp -r "$disk/run" "$copy"
mount -o remount,size=200m "$disk" || exit 77
"$@" --out "$disk/run" >&2 || exit 99
cp -r "$disk/run" "$copy-after"
exit $status
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_with_its_checkpoints_intact() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, copy) = (folder.path().join("disk"), folder.path().join("copy"));
    fs::create_dir(&disk).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh"]).arg(&disk).arg(&copy);
    command.arg(env!("CARGO_BIN_EXE_dino-vmf")).args(SMALL);
    let ended = match command.output() {
        Ok(output) => Finished::of(output),
        Err(error) => return eprintln!("skipped: no `unshare` here: {error}"),
    };
    if !copy.exists() {
        return eprintln!("skipped: this system does not let the test mount a small disk: {}", ended.err);
    }
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    let message = &ended.err[ended.err.find("error: ").unwrap()..];
    assert!(message.contains("the disk is full; ") && message.contains("bytes were needed"), "{message}");
    assert!(message.contains("step-00000002.safetensors is intact"), "{message}");
    // Both checkpoints are sound, nothing half-written is left, and with more space the run goes on from there.
    let kept: Vec<_> = content(&copy.join("checkpoints")).into_iter().map(|(path, _)| path).collect();
    assert_eq!(kept, [checkpoint(&copy, 1), checkpoint(&copy, 2)]);
    for file in &kept {
        let report = run(&["inspect", file.to_str().unwrap()]).succeeded();
        assert!(report.out.contains("its checksum is right"), "{}", report.out);
    }
    assert!(message.contains("after step 2"), "it continues where it was: {message}");
    assert!(folder.path().join("copy-after/result.json").is_file());
}

#[test]
fn standard_output_that_nobody_reads_is_no_crash() {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_dino-vmf");
    command.args(["-c", &format!("'{program}' doctor 2>&1 >&- | cat; '{program}' doctor | true")]);
    let output = command.output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("panicked"));
}

#[test]
fn a_key_that_is_no_flag_is_answered_with_the_way_to_set_it() {
    for command in ["pretrain", "views"] {
        let ended = run(&[command, "--global-scale", "0.5"]);
        assert_eq!(ended.code, Some(2), "{}", ended.err);
        assert!(ended.err.contains("--set global_scale=..."), "{}", ended.err);
    }
    let ended = run(&["bench", "step", "--momentum-teacher", "1"]);
    assert!(ended.code == Some(2) && !ended.err.contains("--set"), "{}", ended.err);
}

#[test]
fn one_setting_with_two_values_is_refused_before_a_run_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let begin = |more: &[&str]| {
        let usual = ["pretrain", "--data", "synthetic:train=24,size=16", "--out", out.to_str().unwrap()];
        run(&[&usual[..], more].concat())
    };
    let message = begin(&["--epochs", "1", "--set", "epochs=2"]).failed();
    assert!(message.contains("`--epochs 1` and `--set epochs=2`"), "{message}");
    let message = begin(&["--set", "lr=1e-3", "--set", "lr=1e-4"]).failed();
    assert!(message.contains("`--set lr=0.001` and `--set lr=0.0001`"), "{message}");
    let ended = begin(&["--epochs", "1", "--epochs", "2"]);
    assert!(ended.code == Some(2) && ended.err.contains("'--epochs 1' and '--epochs 2'"), "{}", ended.err);
    assert!(!out.exists());
}
