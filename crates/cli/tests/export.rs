//! `export`, and weights of other programs in `features` and `inspect`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{Finished, run, small};
use safetensors::SafeTensors;
use serde_json::Value;
use tempfile::TempDir;

/// A finished run whose head has no batch norm.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1", "--set", "head_batch_norm=false"]).succeeded();
    (folder, run)
});

fn run_folder() -> &'static str {
    RUN.1.to_str().unwrap()
}

fn export(weights: &str, to: &str, out: &Path, more: &[&str]) -> Finished {
    run(&[&["export", "--weights", weights, "--to", to, "--out", out.to_str().unwrap()], more].concat())
}

/// Backbones that other programs have saved.
fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures/layouts");
    folder.join(name).to_str().unwrap().to_owned()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn an_export_in_dinos_names_is_the_backbone_of_the_run_and_gives_the_same_features() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("w.safetensors");
    let said = export(run_folder(), "dino", &out, &[]).succeeded();
    assert!(said.out.contains("read back and equal bit for bit"), "{}", said.out);
    let (ours, backbone) = (fs::read(&out).unwrap(), fs::read(RUN.1.join("backbone.safetensors")).unwrap());
    let (ours, backbone) = (SafeTensors::deserialize(&ours).unwrap(), SafeTensors::deserialize(&backbone).unwrap());
    assert_eq!(ours.len(), backbone.len());
    for (name, tensor) in backbone.tensors() {
        assert_eq!(ours.tensor(&name).unwrap().data(), tensor.data(), "{name}");
    }
    let there = folder.path();
    assert_eq!(features(run_folder(), there, "a.npy"), features(out.to_str().unwrap(), there, "b.npy"));
}

/// Features of a few images that the network sees whole, as it was trained.
fn features(weights: &str, folder: &Path, name: &str) -> Vec<u8> {
    let path = folder.join(name);
    let data = "synthetic:train=6,test=3,size=16";
    run(&["features", "--weights", weights, "--data", data, "--out", path.to_str().unwrap()]).succeeded();
    fs::read(path).unwrap()
}

#[test]
fn folders_for_others_that_come_back_see_of_an_image_what_the_run_saw() {
    let folder = tempfile::tempdir().unwrap();
    let expected = features(run_folder(), folder.path(), "run.npy");
    let again = folder.path().join("again.safetensors");
    for to in ["timm", "hf"] {
        let there = folder.path().join(to);
        export(run_folder(), to, &there, &[]).succeeded();
        let there = there.to_str().unwrap();
        assert!(features(there, folder.path(), &format!("{to}.npy")) == expected, "{to}");
        export(there, "dino", &again, &["--force"]).succeeded();
        assert!(features(again.to_str().unwrap(), folder.path(), &format!("{to}-again.npy")) == expected, "{to}");
    }
}

#[test]
fn prototypes_go_out_with_the_head_and_with_how_they_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let msn = folder.path().join("msn");
    small(&msn, &["--epochs", "1", "--method", "msn"]).succeeded();
    for (run_folder, name) in [(run_folder(), "dino.safetensors"), (msn.to_str().unwrap(), "msn.safetensors")] {
        let out = folder.path().join(name);
        export(run_folder, "dino", &out, &["--heads"]).succeeded();
        let of = |weights: &str| run(&["eval", "prototypes", "--weights", weights, "--json"]).succeeded();
        let (there, here) = (of(out.to_str().unwrap()), of(run_folder));
        assert!(!there.err.contains("only a run"), "{}", there.err);
        let found = |said: &Finished| -> Vec<Value> {
            let printed: Value = serde_json::from_str(&said.out).unwrap();
            ["prototypes", "unique", "largest", "kappa"].map(|key| printed[key].clone()).to_vec()
        };
        assert!(found(&here).iter().all(|value| !value.is_null()), "{:?}", found(&here));
        assert_eq!(found(&there), found(&here), "{name}");
    }
}

#[test]
fn heads_go_out_beside_the_backbone_and_the_student_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (teacher, student) = (folder.path().join("t.safetensors"), folder.path().join("s.safetensors"));
    export(run_folder(), "dino", &teacher, &["--heads"]).succeeded();
    export(run_folder(), "dino", &student, &["--heads", "--which", "student"]).succeeded();
    let (teacher, student) = (fs::read(&teacher).unwrap(), fs::read(&student).unwrap());
    let (teacher, student) = (SafeTensors::deserialize(&teacher).unwrap(), SafeTensors::deserialize(&student).unwrap());
    for name in ["backbone.cls_token", "head.mlp.0.weight", "head.last_layer.weight_v"] {
        assert_ne!(teacher.tensor(name).unwrap().data(), student.tensor(name).unwrap().data(), "{name}");
    }
    // As DINO's modules take them: centres are the loss's.
    assert!(teacher.names().iter().all(|name| name.starts_with("backbone.") || name.starts_with("head.")));
    let message = export(&fixture("hf_vit"), "dino", &folder.path().join("x.safetensors"), &["--heads"]).failed();
    assert!(message.contains("holds no projection head"), "{message}");
}

#[test]
fn weights_before_the_end_of_a_run_go_out_with_their_step() {
    let folder = tempfile::tempdir().unwrap();
    let trained = folder.path().join("run");
    small(&trained, &["--epochs", "2"]).succeeded();
    let checkpoints = trained.join("checkpoints");
    let mut files: Vec<PathBuf> = fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let newest = files.pop().unwrap();
    let step_of = |out: &Path| {
        let bytes = fs::read(out).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        header.metadata().as_ref().unwrap().get("step").cloned()
    };
    let (whole, older) = (folder.path().join("whole.safetensors"), folder.path().join("older.safetensors"));
    export(trained.to_str().unwrap(), "dino", &whole, &[]).succeeded();
    assert_eq!(step_of(&whole), None, "the last step");
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() / 2]).unwrap();
    let said = export(trained.to_str().unwrap(), "dino", &older, &[]).succeeded().err;
    let step = step_of(&older).unwrap();
    assert!(said.contains(&format!("taking the checkpoint before it, of step {step}")), "{said}");
    assert!(said.contains("the backbone of the last step, without a head, is"), "{said}");
}

#[test]
fn folders_for_timm_and_hugging_face_have_weights_and_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let (timm, hf) = (folder.path().join("timm"), folder.path().join("hf"));
    let said = export(run_folder(), "timm", &timm, &[]).succeeded().err;
    assert!(said.contains("for other sizes that program interpolates positions in its own way"), "{said}");
    export(run_folder(), "hf", &hf, &[]).succeeded();
    let config = json(&timm.join("config.json"));
    assert_eq!(config["model_args"]["num_heads"], 1);
    assert_eq!(config["pretrained_cfg"]["mean"], serde_json::json!([0.485, 0.456, 0.406]));
    let config = json(&hf.join("config.json"));
    assert_eq!((config["model_type"].as_str(), config["layer_norm_eps"].as_f64()), (Some("vit"), Some(1e-6)));
    assert_eq!(json(&hf.join("preprocessor_config.json"))["image_std"], serde_json::json!([0.229, 0.224, 0.225]));
    // What was written is also what comes in.
    let told = run(&["inspect", hf.to_str().unwrap(), "--json"]).json();
    assert_eq!((told["backbone"]["complete"].as_bool(), told["backbone"]["heads"].as_u64()), (Some(true), Some(1)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing unfinished is left");
}

#[test]
fn an_onnx_file_has_the_density_of_the_mixture_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("w.onnx");
    let said = export(run_folder(), "onnx", &out, &["--image-size", "24x16"]).succeeded();
    assert!(said.out.contains("for images of 24x16, outputs class, patches, kappa, log_density"), "{}", said.out);
    let said = export(&fixture("hf_dinov2_reg"), "onnx", &folder.path().join("r.onnx"), &[]).succeeded();
    assert!(said.out.contains("outputs class, patches;"), "{}", said.out);
    assert!(said.err.contains("without the outputs kappa and log_density"), "{}", said.err);
}

#[test]
fn nothing_but_an_earlier_export_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("w.safetensors"), folder.path().join("timm"));
    export(run_folder(), "dino", &file, &[]).succeeded();
    assert!(export(run_folder(), "dino", &file, &[]).failed().contains("--force replaces it"));
    export(run_folder(), "dino", &file, &["--force"]).succeeded();
    let message = export(file.to_str().unwrap(), "dino", &file, &["--force"]).failed();
    assert!(message.contains("is part of --weights"), "{message}");
    let backbone = RUN.1.join("backbone.safetensors");
    assert!(export(run_folder(), "dino", &backbone, &["--force"]).failed().contains("lies in the run"));

    export(run_folder(), "timm", &other, &[]).succeeded();
    assert!(export(run_folder(), "timm", &other, &[]).failed().contains("--force replaces it"));
    // With a slash behind it, as a shell completes it.
    let slash = PathBuf::from(format!("{}/", other.display()));
    export(run_folder(), "timm", &slash, &["--force"]).succeeded();
    assert!(other.join("model.safetensors").is_file() && other.join("config.json").is_file());
    assert_eq!(fs::read_dir(&other).unwrap().count(), 2);
    // A model of somebody else, with the same names of files; and the input, from within and through a link.
    let hub = folder.path().join("hub");
    fs::create_dir(&hub).unwrap();
    for name in ["model.safetensors", "config.json"] {
        fs::copy(Path::new(&fixture("hf_vit")).join(name), hub.join(name)).unwrap();
    }
    let message = export(run_folder(), "hf", &hub, &["--force"]).failed();
    assert!(message.contains("has other files in it"), "{message}");
    let message = export(hub.join("model.safetensors").to_str().unwrap(), "hf", &hub, &["--force"]).failed();
    assert!(message.contains("is part of --weights"), "{message}");
    #[cfg(unix)]
    {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&hub, &link).unwrap();
        let message = export(hub.to_str().unwrap(), "hf", &link, &["--force"]).failed();
        assert!(message.contains("is a link"), "{message}");
    }
    assert!(hub.join("model.safetensors").is_file());
    fs::write(other.join("notes.txt"), "mine").unwrap();
    let message = export(run_folder(), "timm", &other, &["--force"]).failed();
    assert!(message.contains("has other files in it"), "{message}");
    assert_eq!(fs::read_to_string(other.join("notes.txt")).unwrap(), "mine");
    fs::write(folder.path().join("a.onnx"), "a letter").unwrap();
    let message = export(run_folder(), "onnx", &folder.path().join("a.onnx"), &["--force"]).failed();
    assert!(message.contains("no ONNX file of an export"), "{message}");
}

#[test]
fn a_folder_of_weights_is_one_whatever_runs_are_in_it_and_what_was_trained_on_is_not_contradicted() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    export(run_folder(), "hf", &model, &[]).succeeded();
    let of_model = model.to_str().unwrap();
    small(&model.join("runs/photos"), &["--epochs", "1"]).succeeded();
    run(&["inspect", of_model]).succeeded();
    fs::remove_file(model.join("model.safetensors")).unwrap();
    for words in [&["inspect", of_model][..], &["export", "--weights", of_model, "--to", "dino", "--out", "x"]] {
        let refused = run(words).failed();
        assert!(refused.contains("holds 1 run") && refused.contains("runs/photos for instance"), "{refused}");
    }
    let backbone = RUN.1.join("backbone.safetensors");
    let checkpoint = fs::read_dir(RUN.1.join("checkpoints")).unwrap().next().unwrap().unwrap().path();
    let away = folder.path().join("away.safetensors");
    fs::copy(checkpoint, &away).unwrap();
    for weights in [run_folder(), backbone.to_str().unwrap(), away.to_str().unwrap()] {
        let out = folder.path().join("out.safetensors");
        let refused = export(weights, "dino", &out, &["--trained-size", "8x32"]).failed();
        assert!(refused.contains("--trained-size is 8x32: leave that out"), "{refused}");
    }
}

#[test]
fn flags_that_mean_nothing_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x");
    assert!(export(run_folder(), "timm", &out, &["--heads"]).failed().contains("no place for a projection head"));
    for (to, name) in [("onnx", "x.safetensors"), ("dino", "x.onnx"), ("timm", "x.onnx"), ("hf", "x.pth")] {
        let message = export(run_folder(), to, &folder.path().join(name), &[]).failed();
        assert!(message.contains("this name says something else"), "{to}: {message}");
    }
    let message = export(run_folder(), "hf", &out, &["--image-size", "32"]).failed();
    assert!(message.contains("applies to --to onnx alone"), "{message}");
    let message = export(&fixture("hf_vit"), "onnx", &folder.path().join("x.onnx"), &["--heads"]).failed();
    assert!(message.contains("says how its prototypes were used"), "{message}");
}

#[test]
fn weights_of_other_programs_are_told_of_and_converted() {
    let folder = tempfile::tempdir().unwrap();
    let told = run(&["inspect", &fixture("dino_full_legacy.pth"), "--heads", "2"]).succeeded().out;
    assert!(told.contains("backbone: complete: ViT of width 16, 1 block, 2 heads"), "{told}");
    assert!(told.contains("matched 18 of 18 backbone tensors (DINO layout, teacher)"), "{told}");
    let told = run(&["inspect", &fixture("hf_dinov2_reg"), "--json"]).json();
    assert_eq!((&told["backbone"]["registers"], &told["packing"]), (&3.into(), &"safetensors".into()));
    let told = run(&["inspect", &fixture("timm_reg.safetensors"), "--heads", "2"]).succeeded().out;
    assert!(told.contains("3 register tokens, LayerScale"), "{told}");

    let out = folder.path().join("w.safetensors");
    export(&fixture("hf_vit"), "dino", &out, &[]).succeeded();
    let bytes = fs::read(&out).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let said = header.metadata().as_ref().unwrap();
    assert_eq!((said["positions"].as_str(), said["norm_epsilon"].as_str()), ("plain", "1e-12"));
    // A folder that is neither a run nor a model.
    let message = run(&["inspect", folder.path().to_str().unwrap()]).failed();
    assert!(message.contains("neither a run nor a folder with weights"), "{message}");
}

#[test]
fn an_oblong_network_goes_only_where_it_is_computed_alike() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1", "--global-size", "16x24"]).succeeded();
    let run = run.to_str().unwrap();
    let (timm, hf) = (folder.path().join("timm"), folder.path().join("hf"));
    export(run, "timm", &timm, &[]).succeeded();
    let ended = export(run, "hf", &hf, &[]).succeeded();
    assert_eq!(json(&hf.join("config.json"))["image_size"], serde_json::json!([16, 24]));
    // Images of 16 pixels are seen whole, and so is an oblong input: squeezed, as theirs do it too.
    assert_eq!(json(&hf.join("preprocessor_config.json"))["size"], serde_json::json!({ "height": 16, "width": 24 }));
    assert_eq!(json(&timm.join("config.json"))["pretrained_cfg"]["crop_mode"], "squash");
    assert!(!ended.err.contains("preprocessor_config.json is written"), "{}", ended.err);
}
