//! What `features` and `views` write over, and what they refuse to; and in which precision features are computed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Finished, content, run, small, write_bmp};
use tempfile::TempDir;

const DATA: &str = "synthetic:train=24,test=12,size=16";

/// A finished run.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1"]).succeeded();
    (folder, run)
});

fn features(weights: &Path, data: &str, out: &Path, more: &[&str]) -> Finished {
    let (weights, out) = (weights.to_str().unwrap(), out.to_str().unwrap());
    run(&[&["features", "--weights", weights, "--data", data, "--out", out], more].concat())
}

fn views(data: &Path, out: &Path, more: &[&str]) -> Finished {
    let (data, out) = (data.to_str().unwrap(), out.to_str().unwrap());
    run(&[&["views", "--data", data, "--out", out, "--images", "2", "--patch-size", "8"], more].concat())
}

/// A folder of BMP images, the first of them under a name that ends in .png: content decides, not the name.
fn photos(folder: &Path) -> PathBuf {
    let photos = folder.join("photos");
    write_bmp(&photos.join("0.png"), 16, 0);
    (1..4).for_each(|i| write_bmp(&photos.join(format!("{i}.bmp")), 16, i));
    photos
}

#[test]
fn features_replace_an_existing_file_with_force_only() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("f.npy");
    let old = b"\x93NUMPY: a week of work";
    fs::write(&out, old).unwrap();
    let ended = features(&RUN.1, DATA, &out, &[]);
    assert!(!ended.err.contains("img/s"), "refused before the work is done: {}", ended.err);
    let message = ended.failed();
    assert!(message.contains("f.npy: exists already") && message.contains("--force replaces it"), "{message}");
    assert_eq!(fs::read(&out).unwrap(), old);
    features(&RUN.1, DATA, &out, &["--force"]).succeeded();
    assert!(fs::read(&out).unwrap().starts_with(b"\x93NUMPY\x01\x00"));

    let taken = folder.path().join("folder.npy");
    fs::create_dir(&taken).unwrap();
    assert!(features(&RUN.1, DATA, &taken, &["--force"]).failed().contains("is a folder"));
}

#[test]
fn features_never_replace_the_weights_that_they_come_from_nor_write_into_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    fs::copy(RUN.1.join("backbone.safetensors"), &weights).unwrap();
    let before = fs::read(&weights).unwrap();
    // The same file by another path.
    let around = folder.path().join("./../").join(folder.path().file_name().unwrap()).join("w.safetensors");
    for out in [&weights, &around] {
        let message = features(&weights, DATA, out, &["--force"]).failed();
        assert!(message.contains("which this command reads") && message.contains("--weights"), "{message}");
    }
    assert_eq!(fs::read(&weights).unwrap(), before);

    let files = |run: &Path| content(run).into_iter().filter(|(p, _)| !p.ends_with(".lock")).collect::<Vec<_>>();
    let before = files(&RUN.1);
    let checkpoint = RUN.1.join("checkpoints/step-00000003.safetensors");
    // By its own weights, by those of another file, and new files as well as old ones: a run's folder is the training's.
    for weights in [&RUN.1, &checkpoint, &weights] {
        for name in
            ["checkpoints/step-00000003.safetensors", "backbone.safetensors", "features.npy", "checkpoints/f.npy"]
        {
            let message = features(weights, DATA, &RUN.1.join(name), &["--force"]).failed();
            assert!(message.contains("in which only its training writes. Give an --out elsewhere"), "{message}");
        }
    }
    assert!(files(&RUN.1) == before, "the run was changed");
}

#[cfg(unix)]
#[test]
fn a_link_to_an_input_is_that_input() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    fs::copy(RUN.1.join("backbone.safetensors"), &weights).unwrap();
    let link = folder.path().join("link.safetensors");
    std::os::unix::fs::symlink(&weights, &link).unwrap();
    for (weights, out) in [(&weights, &link), (&link, &weights)] {
        let message = features(weights, DATA, out, &["--force"]).failed();
        assert!(message.contains("which this command reads"), "{message}");
    }
}

#[test]
fn features_replace_features_and_no_other_kind_of_file() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("w.safetensors");
    fs::copy(RUN.1.join("backbone.safetensors"), &weights).unwrap();
    let before = fs::read(&weights).unwrap();
    let ended = features(&RUN.1, DATA, &weights, &["--force"]);
    assert!(!ended.err.contains("img/s"), "refused before the work is done: {}", ended.err);
    let message = ended.failed();
    assert!(message.contains("is no safetensors file of features, so that --force does not replace it"), "{message}");
    assert_eq!(fs::read(&weights).unwrap(), before);
    let out = folder.path().join("f.safetensors");
    features(&RUN.1, DATA, &out, &[]).succeeded();
    features(&RUN.1, DATA, &out, &["--force"]).succeeded();
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_what_it_leads_to_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (far, link) = (folder.path().join("disk/far"), folder.path().join("f.npy"));
    fs::create_dir(folder.path().join("disk")).unwrap();
    fs::write(&far, "").unwrap();
    std::os::unix::fs::symlink(&far, &link).unwrap();
    assert!(features(&RUN.1, DATA, &link, &[]).failed().contains("exists already"));
    features(&RUN.1, DATA, &link, &["--force"]).succeeded();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read(&far).unwrap().starts_with(b"\x93NUMPY"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_place_that_cannot_be_written_to_is_refused_before_the_work_is_done() {
    let ended = features(&RUN.1, DATA, Path::new("/proc/f.npy"), &[]);
    assert!(!ended.err.contains("img/s"), "{}", ended.err);
    let message = ended.failed();
    assert!(message.contains("/proc/f.npy: cannot be written") && message.contains("where you may write"), "{message}");
}

#[test]
fn nothing_writes_over_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let photos = photos(folder.path());
    let before = content(&photos);
    let data = photos.to_str().unwrap();
    // A data file under the name of features.
    fs::copy(photos.join("1.bmp"), photos.join("1.npy")).unwrap();
    let message = features(&RUN.1, data, &photos.join("1.npy"), &["--force"]).failed();
    assert!(message.contains("is part of --data") && message.contains("it is never replaced"), "{message}");
    fs::remove_file(photos.join("1.npy")).unwrap();

    for more in [&[][..], &["--force"]] {
        let message = views(&photos, &photos.join("0.png"), more).failed();
        assert!(message.contains("is part of --data"), "{message}");
        // A new picture would be trained on.
        let message = views(&photos, &photos.join("sheet.png"), more).failed();
        assert!(message.contains("would be one of its images"), "{message}");
    }
    assert!(content(&photos) == before, "the images were changed");
    views(&photos, &folder.path().join("sheet.png"), &[]).succeeded();
}

#[test]
fn nothing_writes_over_a_listed_image() {
    let folder = tempfile::tempdir().unwrap();
    let photos = photos(folder.path());
    let list = folder.path().join("list.txt");
    fs::write(&list, "photos/1.bmp\nphotos/2.bmp\nphotos/0.png\n").unwrap();
    // A picture, so that its kind does not protect it.
    fs::write(photos.join("0.png"), b"\x89PNG\r\n\x1a\n and so on").unwrap();
    let before = content(&photos);
    let message = views(&list, &photos.join("0.png"), &["--force"]).failed();
    assert!(message.contains("is part of --data") && message.contains("list.txt"), "{message}");
    // Nor by another name.
    #[cfg(unix)]
    {
        let link = folder.path().join("sheet.png");
        std::os::unix::fs::symlink(photos.join("0.png"), &link).unwrap();
        assert!(views(&list, &link, &["--force"]).failed().contains("is part of --data"));
    }
    assert!(content(&photos) == before, "the images were changed");
    // A picture that the list does not name is nobody's input.
    fs::write(photos.join("sheet.png"), b"\x89PNG\r\n\x1a\n: old").unwrap();
    views(&list, &photos.join("sheet.png"), &["--force"]).succeeded();
}

#[test]
fn features_are_f32_unless_a_gpu_is_asked_for_bf16() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("f.npy");
    let ended = features(&RUN.1, DATA, &out, &["--precision", "f32"]).succeeded();
    assert!(ended.out.contains("computed in f32"), "{}", ended.out);
    assert!(ended.err.contains("img/s  f32"), "{}", ended.err);
    let other = folder.path().join("g.npy");
    let message = features(&RUN.1, DATA, &other, &["--precision", "bf16", "--device", "cpu"]).failed();
    assert!(message.contains("--precision bf16: a CPU computes in f32 only. "), "{message}");
    // Without a GPU `auto` is the CPU, and says why.
    let message = features(&RUN.1, DATA, &other, &["--precision", "bf16"]).failed();
    assert!(message.contains("a CPU computes in f32 only, and no GPU can be used"), "{message}");
    assert!(!other.exists());
    assert_eq!(features(&RUN.1, DATA, &other, &["--precision", "f16"]).code, Some(2));
    let help = run(&["eval", "knn", "--help"]).succeeded().out;
    assert!(help.contains("--precision <f32|bf16>") && help.contains("[default: f32]"), "{help}");
    // Training has its own precision.
    assert_eq!(run(&["pretrain", "--precision", "f32"]).code, Some(2));
}
