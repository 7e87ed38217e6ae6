//! What a user can rely on: names never steer the terminal, files without end are refused, both splits can be asked for,
//! and several processes may unpack the same data at once.

mod common;

use common::{Finished, program, run, write_bmp};
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// A run that is good enough to compute features with.
fn trained(folder: &Path) -> String {
    let out = folder.join("run");
    let args = ["--epochs", "1"];
    common::small(&out, &args).succeeded();
    out.to_str().expect("text").to_owned()
}

#[track_caller]
fn assert_tame(finished: &Finished) {
    for text in [&finished.out, &finished.err] {
        let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(steers), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
}

/// A name that would clear the screen and forge a line.
const HOSTILE: &str = "a\x1b[2J\nforged\u{202e}";

#[cfg(unix)]
#[test]
fn no_name_steers_the_terminal_by_any_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let weights = trained(folder.path());
    let images = folder.path().join(HOSTILE);
    for class in ["x", "y"] {
        let class = images.join(format!("{class}{HOSTILE}"));
        (0..4).for_each(|i| write_bmp(&class.join(format!("{HOSTILE}{i}.bmp")), 16, i));
        fs::write(class.join(format!("{HOSTILE}.jpg")), b"no image").expect("a file");
        fs::write(class.join(format!("{HOSTILE}.heic")), b"no image").expect("a file");
    }
    let images = images.to_str().expect("text");
    let file = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (features, sheet, out) = (file(&format!("{HOSTILE}.npy")), file(&format!("{HOSTILE}.png")), file(HOSTILE));
    let recipe = file(&format!("{HOSTILE}.toml"));
    fs::write(&recipe, "\"\\u001b[2J\\nforged\" = 1").expect("a file");
    let small = |data: &str, out: &str| {
        let more = ["--data", data, "--epochs", "1", "--batch-size", "4", "--set", "max_bad_share=0.5", "--out", out];
        common::unless_given(&common::SMALL, &more).into_iter().chain(more).map(str::to_owned).collect()
    };
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let run_folder = format!("{out}-run");
    for args in [
        words(&["features", "--weights", &weights, "--data", images, "--out", &features]),
        words(&["features", "--weights", &weights, "--data", images, "--out", &features]),
        words(&["features", "--weights", &features, "--data", images, "--out", &sheet]),
        words(&["eval", "knn", "--weights", &weights, "--data", images, "--k", "1"]),
        words(&["eval", "knn", "--weights", &weights, "--data", images, "--k", "1", "--json"]),
        words(&["eval", "knn", "--weights", images, "--data", images]),
        words(&["views", "--data", images, "--images", "2", "--out", &sheet]),
        words(&["views", "--data", images, "--images", "2", "--out", HOSTILE]),
        words(&["views", "--data", images, "--recipe", &recipe, "--out", &sheet, "--force"]),
        words(&["pretrain", "--data", &format!("{images}/nowhere")]),
        words(&["pretrain", "--data", &format!("synthetic:{HOSTILE}=1")]),
        words(&["pretrain", "--data", &format!("{images}/{{0..999999}}")]),
        words(&["pretrain", "--data", images, "--set", HOSTILE]),
        words(&["pretrain", "--data", images, "--set", &format!("{HOSTILE}=1")]),
        words(&["pretrain", "--data", images, "--out", images]),
        words(&["inspect", images]),
        words(&["inspect", &features]),
        words(&["inspect", &weights, HOSTILE]),
        words(&[HOSTILE]),
        small(images, &run_folder),
        small(images, &run_folder),
        words(&["inspect", &run_folder]),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_tame(&run(&args));
    }
    assert!(Path::new(&run_folder).join("backbone.safetensors").is_file(), "the run itself works");
    assert!(Path::new(&features).is_file() && Path::new(&sheet).is_file());
}

#[cfg(target_os = "linux")]
#[test]
fn files_without_end_are_refused_as_recipe_and_as_files_of_a_run() {
    let message = run(&["pretrain", "--recipe", "/dev/zero"]).failed();
    assert!(message.contains("/dev/zero") && message.contains("not a regular file"), "{message}");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    fs::File::create(&config).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let message = run(&["inspect", folder.path().to_str().expect("text")]).failed();
    assert!(message.contains("config.toml") && message.contains("larger than"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_recipe_may_come_from_a_pipe() {
    let folder = tempfile::tempdir().expect("a folder");
    let sheet = folder.path().join("sheet.png");
    let mut child = program();
    child.args(["views", "--data", "synthetic:train=4,size=16", "--recipe", "/dev/stdin", "--images", "1", "--out"]);
    let mut child = child
        .arg(&sheet)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"local_crops = 2\n").expect("it reads");
    let finished = Finished::of(child.wait_with_output().expect("it ends"));
    assert!(sheet.is_file(), "{finished:?}");
}

#[test]
fn both_splits_can_be_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let weights = trained(folder.path());
    let data = "synthetic:train=24,test=12,size=16";
    let out = folder.path().join("all.npy");
    let out = out.to_str().expect("text");
    let said = run(&["features", "--weights", &weights, "--data", data, "--split", "all", "--out", out]).succeeded();
    assert!(said.out.contains("36 x ") && said.out.contains("24 training images, then 12 held-out images"), "{said:?}");
    let knn = |split: &str| {
        run(&["eval", "knn", "--weights", &weights, "--data", data, "--k", "3", "--json", "--split", split]).json()
    };
    for (split, images) in [("all", 36), ("train", 24), ("test", 12)] {
        let result = knn(split);
        assert_eq!(
            (&result["protocol"], &result["train_images"]),
            (&"leave-one-out".into(), &images.into()),
            "{split}"
        );
    }
    let sheet = folder.path().join("sheet.png");
    let views = ["views", "--data", data, "--split", "all", "--images", "40", "--out", sheet.to_str().expect("text")];
    assert!(run(&views).succeeded().out.contains("36 images in the order of epoch 0"));
}

#[test]
fn several_processes_may_unpack_the_same_data_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let images = folder.path().join("images");
    (0..40).for_each(|i| write_bmp(&images.join(format!("{i}.bmp")), 64, i));
    // Packed by the system's own tar; where there is none, there is nothing to test.
    let packed = std::process::Command::new("tar").args(["czf", "x.tgz", "images"]).current_dir(folder.path()).status();
    if !packed.is_ok_and(|status| status.success()) {
        return;
    }
    let (data, cache) = (folder.path().join("x.tgz"), folder.path().join("cache"));
    let start = |i: usize| {
        let mut command = program();
        command.env("DINO_VMF_CACHE", &cache).args(["views", "--images", "2", "--set", "global_size=32x32", "--data"]);
        command.arg(&data).arg("--out").arg(folder.path().join(format!("{i}.png")));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // One of them is killed on its way.
    let mut killed = start(9);
    let children: Vec<_> = (0..4).map(start).collect();
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    for child in children {
        Finished::of(child.wait_with_output().expect("it ends")).succeeded();
    }
    let sheets: Vec<_> = (0..4).map(|i| fs::read(folder.path().join(format!("{i}.png"))).expect("a sheet")).collect();
    assert!(sheets.iter().all(|sheet| *sheet == sheets[0]));
    // The next who comes by finds nothing half-done, or removes it.
    fs::remove_dir_all(&cache).expect("the cache may be deleted at any time");
    Finished::of(start(5).wait_with_output().expect("it ends")).succeeded();
    let names = fs::read_dir(&cache).expect("the cache").map(|entry| entry.expect("an entry").file_name());
    let names: Vec<String> = names.map(|name| name.into_string().expect("text")).collect();
    assert!(names.len() == 3 && !names.iter().any(|name| name.ends_with(".tmp")), "{names:?}");
}
