//! `features`, `eval knn`, `inspect`, `bench` and `doctor`.

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use common::{run, small, write_bmp};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tempfile::TempDir;

/// A finished run.
static RUN: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    small(&run, &["--epochs", "1"]).succeeded();
    (folder, run)
});

fn run_folder() -> &'static str {
    RUN.1.to_str().unwrap()
}

const DATA: &str = "synthetic:train=24,test=12,size=16";

/// The closed forms of `tools/oracle/vit_hash.py`.
mod hash {
    /// u(stream, i) in [-1, 1).
    pub fn uniform(stream: u64, i: u64) -> f64 {
        let mut z = (stream << 32 | i).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        (z >> 11) as f64 * 2f64.powi(-52) - 1.0
    }

    /// Names and shapes of a ViT-Tiny/16 in the order that numbers them.
    pub fn vit_tiny() -> Vec<(String, Vec<usize>)> {
        const D: usize = 192;
        let mut all = vec![
            ("cls_token".to_owned(), vec![1, 1, D]),
            ("pos_embed".to_owned(), vec![1, 197, D]),
            ("patch_embed.proj.weight".to_owned(), vec![D, 3, 16, 16]),
            ("patch_embed.proj.bias".to_owned(), vec![D]),
        ];
        for block in 0..12 {
            for (layer, outputs, inputs) in [
                ("norm1", D, None),
                ("attn.qkv", 3 * D, Some(D)),
                ("attn.proj", D, Some(D)),
                ("norm2", D, None),
                ("mlp.fc1", 4 * D, Some(D)),
                ("mlp.fc2", D, Some(4 * D)),
            ] {
                let weight = inputs.map_or(vec![outputs], |inputs| vec![outputs, inputs]);
                all.push((format!("blocks.{block}.{layer}.weight"), weight));
                all.push((format!("blocks.{block}.{layer}.bias"), vec![outputs]));
            }
        }
        all.push(("norm.weight".to_owned(), vec![D]));
        all.push(("norm.bias".to_owned(), vec![D]));
        all
    }

    pub fn values(name: &str, number: usize, shape: &[usize]) -> Vec<f32> {
        let fan_in: usize = shape[1..].iter().product();
        let value = |u: f64| match name {
            _ if name.ends_with("bias") => 0.1 * u,
            _ if name.contains("norm") => 1.0 + 0.2 * u,
            "cls_token" | "pos_embed" => 0.5 * u,
            _ => (3.0 / fan_in as f64).sqrt() * u,
        };
        let count = shape.iter().product::<usize>() as u64;
        (0..count).map(|i| value(uniform(number as u64, i)) as f32).collect()
    }
}

/// A weights file in timm's layout: the backbone beside a classifier.
fn write_timm_weights(path: &Path) {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (number, (name, shape)) in hash::vit_tiny().into_iter().enumerate() {
        let bytes = hash::values(&name, number, &shape).iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push((name, shape, bytes));
    }
    tensors.push(("head.weight".to_owned(), vec![10, 192], vec![0; 10 * 192 * 4]));
    tensors.push(("head.bias".to_owned(), vec![10], vec![0; 10 * 4]));
    let views = tensors
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn the_hash_is_that_of_the_reference() {
    for (stream, i, u) in
        [(0, 0, 0.7666216164272852), (2, 147_455, 0.9297731113165444), (3_000_000, 0, -0.2576089711284191)]
    {
        assert_eq!(hash::uniform(stream, i), u);
    }
}

#[test]
fn features_of_jpeg_files_are_those_of_pillow_torchvision_and_timm() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/features");
    let expected: Value = serde_json::from_str(&fs::read_to_string(fixtures.join("expected.json")).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (weights, out) = (folder.path().join("vit_tiny.safetensors"), folder.path().join("f.safetensors"));
    write_timm_weights(&weights);
    let (images, weights) = (fixtures.join("images"), weights.to_str().unwrap());
    let arguments = ["features", "--weights", weights, "--data", images.to_str().unwrap(), "--out"];
    let ended = run(&[&arguments[..], &[out.to_str().unwrap()]].concat()).succeeded();
    assert!(
        ended.err.contains("matched 150 of 150 backbone tensors (timm layout); missing: 0; left over: 2 (head."),
        "{}",
        ended.err
    );

    let bytes = fs::read(&out).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata: &HashMap<String, String> = header.metadata().as_ref().unwrap();
    let names: Vec<String> = serde_json::from_str(&metadata["names"]).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let features = file.tensor("features").unwrap();
    assert_eq!(features.shape(), [6, 192]);
    let values: Vec<f64> =
        features.data().chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();

    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut largest: f64 = 0.0;
    for image in expected["images"].as_array().unwrap() {
        let row = names.iter().position(|name| name == image["file"].as_str().unwrap()).unwrap();
        let ours = &values[row * 192..(row + 1) * 192];
        let theirs: Vec<f64> = image["features"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let difference: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a - b).collect();
        let length = image["feature_norm"].as_f64().unwrap();
        let deviation = (norm(&difference) / norm(&theirs)).max((norm(ours) - length).abs() / length);
        println!("{}: {deviation:.2e}", image["file"]);
        largest = largest.max(deviation);
    }
    println!("largest relative deviation {largest:.2e}");
    assert!(largest < 1e-3, "{largest}");

    // The same as a NumPy array, in batches of another size.
    let npy = folder.path().join("f.npy");
    run(&[&arguments[..], &[npy.to_str().unwrap(), "--batch-size", "4"]].concat()).succeeded();
    let bytes = fs::read(npy).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01\x00"));
    assert_eq!(&bytes[bytes.len() - 6 * 192 * 4..], features.data());
}

#[test]
fn a_run_its_checkpoint_and_its_backbone_give_the_same_features() {
    let folder = tempfile::tempdir().unwrap();
    let weights = [run_folder().to_owned(), format!("{}/checkpoints/step-00000003.safetensors", run_folder()), {
        // Away from its run: what the network sees of an image is in the file.
        let copy = folder.path().join("copy.safetensors");
        fs::copy(RUN.1.join("backbone.safetensors"), &copy).unwrap();
        copy.display().to_string()
    }];
    let mut found = Vec::new();
    for (i, weights) in weights.iter().enumerate() {
        let out = folder.path().join(format!("{i}.npy"));
        let arguments = ["features", "--weights", weights, "--data", DATA, "--split", "test", "--out"];
        run(&[&arguments[..], &[out.to_str().unwrap()]].concat()).succeeded();
        found.push(fs::read(out).unwrap());
    }
    assert!(found[0] == found[1] && found[0] == found[2]);
}

#[test]
fn knn_judges_held_out_images_by_training_images() {
    let arguments = ["eval", "knn", "--weights", run_folder(), "--data", DATA, "--k", "20,3"];
    let object = run(&[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(
        (&object["protocol"], &object["train_images"], &object["test_images"]),
        (&"held-out".into(), &24.into(), &12.into())
    );
    assert_eq!((&object["results"][0]["k"], &object["results"][1]["k"]), (&20.into(), &3.into()));
    // What `pretrain` has printed at its end is the same number.
    let result: Value = serde_json::from_str(&fs::read_to_string(RUN.1.join("result.json")).unwrap()).unwrap();
    assert_eq!(object["results"][0]["top1"], result["knn_top1"]["trained"]);
    let table = run(&arguments).succeeded().out;
    assert!(table.contains("12 held-out images by 24 training images, features in f32"), "{table}");
    assert_eq!(object["precision"], "f32");

    let message = run(&["eval", "knn", "--weights", run_folder(), "--data", DATA, "--k", "25"]).failed();
    assert!(message.contains("k = 25: expected 1 to 24"), "{message}");
    assert_eq!(run(&["eval", "knn", "--weights", "w", "--data", DATA, "--temperature", "0"]).code, Some(2));
}

#[test]
fn knn_is_leave_one_out_where_nothing_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["cat", "dog"] {
        (0..6).for_each(|i| write_bmp(&folder.path().join(format!("{class}/{i}.bmp")), 16, i * class.len()));
    }
    let data = folder.path().to_str().unwrap();
    let object = run(&["eval", "knn", "--weights", run_folder(), "--data", data, "--k", "5", "--json"]).json();
    assert_eq!((&object["protocol"], &object["test_images"]), (&"leave-one-out".into(), &12.into()));

    let out = folder.path().join("out");
    let ended = run(&[
        "pretrain",
        "--data",
        data,
        "--patch-size=8",
        "--batch-size=4",
        "--local-crops=1",
        "--out-dim=32",
        "--epochs=1",
        "--set",
        "head_hidden=32",
        "--set",
        "head_bottleneck=16",
        "--out",
        out.to_str().unwrap(),
    ])
    .succeeded();
    assert!(ended.err.contains("has no held-out images"), "{}", ended.err);
    assert!(ended.out.contains("on 12 training images, each by all others"), "{}", ended.out);
}

#[test]
fn inspect_tells_what_a_run_holds() {
    let text = run(&["inspect", run_folder()]).succeeded().out;
    for part in [
        "a run of dino, prototypes vmf, centering probability",
        "24 images, 16x16",
        "step 3 of 3",
        "finished",
        "step 3: loss ",
        "knn_top1",
        "step-00000003.safetensors",
        "sound",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn inspect_tells_scripts_what_a_run_and_its_files_hold() {
    let told = run(&["inspect", "--json", run_folder()]).json();
    assert_eq!((&told["kind"], &told["state"]), (&"run".into(), &"finished".into()));
    assert_eq!((&told["step"], &told["saved_step"], &told["total_steps"]), (&3.into(), &3.into(), &3.into()));
    assert_eq!(told["data"]["source"], DATA);
    assert_eq!((&told["recipe"]["batch_size"], &told["recipe"]["arch"]), (&8.into(), &"vit_nano".into()));
    assert_eq!((&told["checkpoints"][0]["sound"], &told["backbone"]["sound"]), (&true.into(), &true.into()));
    assert!(told["metrics"]["loss"].is_f64() && told["knn_top1"].is_f64(), "{told}");
    assert_eq!(told["result"]["outcome"], "finished");

    let checkpoint = run(&["inspect", "--json", common::checkpoint(&RUN.1, 3).to_str().unwrap()]).json();
    assert_eq!((&checkpoint["kind"], &checkpoint["step"]), (&"checkpoint".into(), &3.into()));
    assert_eq!(checkpoint["run"], told["run"], "both name the run");
    let weights = run(&["inspect", "--json", RUN.1.join("backbone.safetensors").to_str().unwrap()]).json();
    assert_eq!((&weights["kind"], weights["tensors"].as_array().unwrap().len()), (&"weights".into(), 54));
    assert_eq!((&weights["backbone"]["complete"], &weights["backbone"]["width"]), (&true.into(), &64.into()));
}

#[test]
fn inspect_tells_what_a_file_holds() {
    let backbone = RUN.1.join("backbone.safetensors");
    let text = run(&["inspect", backbone.to_str().unwrap()]).succeeded().out;
    assert!(text.contains("54 tensors") && text.contains("matched 54 of 54 backbone tensors (DINO layout)"), "{text}");
    assert!(text.contains("ViT of width 64, 4 blocks, 1 head, patches of 8 pixels"), "{text}");
    let checkpoint = RUN.1.join("checkpoints/step-00000003.safetensors");
    let text = run(&["inspect", checkpoint.to_str().unwrap()]).succeeded().out;
    assert!(text.contains("checkpoint of step 3, its checksum is right") && text.contains("teacher/head"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(&checkpoint).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let damaged = folder.path().join("damaged.safetensors");
    fs::write(&damaged, bytes).unwrap();
    assert!(run(&["inspect", damaged.to_str().unwrap()]).failed().contains("its checksum is"));
    let text = folder.path().join("notes.txt");
    fs::write(&text, "milk, eggs, a new kitchen table").unwrap();
    assert!(
        run(&["inspect", text.to_str().unwrap()]).failed().contains("neither a safetensors file nor one of PyTorch")
    );
    assert!(run(&["inspect", folder.path().to_str().unwrap()]).failed().contains("neither a run nor a folder"));
    assert!(run(&["inspect", "no/such/file"]).failed().contains("there is no such file or folder"));
}

#[test]
fn weights_that_are_no_backbone_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (weights, out) = (folder.path().join("head.safetensors"), folder.path().join("f.npy"));
    let bytes = [0; 40];
    let view = TensorView::new(Dtype::F32, vec![10], &bytes).unwrap();
    fs::write(&weights, safetensors::serialize([("head.bias", view)], None).unwrap()).unwrap();
    let (weights, out_name) = (weights.to_str().unwrap(), out.to_str().unwrap());
    let message = run(&["features", "--weights", weights, "--data", DATA, "--out", out_name]).failed();
    assert!(message.contains("0 of 18 backbone tensors matched"), "{message}");
    let message = run(&["features", "--weights", run_folder(), "--data", DATA, "--out", "f.csv"]).failed();
    assert!(message.contains(".safetensors") && message.contains(".npy"), "{message}");
    let message = run(&["features", "--weights", run_folder(), "--data", DATA, "--out", "no/such/f.npy"]).failed();
    assert!(message.contains("does not exist"), "{message}");
    assert!(!out.exists());
}

#[test]
fn bench_step_prints_one_object() {
    let object = run(&[
        "bench",
        "step",
        "--arch",
        "vit_nano",
        "--patch-size",
        "32",
        "--batch-size",
        "1",
        "--local-crops",
        "1",
        "--out-dim",
        "64",
        "--steps",
        "1",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--prototypes",
        "l2",
        "--json",
    ])
    .json();
    assert_eq!((&object["prototypes"], &object["centering"]), (&"l2".into(), &"logit".into()), "as DINO");
    for key in ["images_per_second", "step_ms", "mfu", "gflops", "gemm_gflops", "loss"] {
        assert!(object[key].as_f64().is_some_and(|x| x.is_finite() && x > 0.0), "{key}: {object}");
    }
    assert!(object["peak_memory_bytes"].is_u64());
    assert_eq!((&object["threads"], &object["arch"]), (&1.into(), &"vit_nano".into()));
}

#[test]
fn doctor_says_what_the_machine_offers() {
    let text = run(&["doctor"]).succeeded().out;
    for part in ["CPU", "matrix product", "GFLOP/s", "memory", "disk", "NVIDIA driver", "no GPU can be used", "\n* "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_finished_run_whose_checkpoints_are_damaged_still_has_its_backbone() {
    let folder = tempfile::tempdir().unwrap();
    let (run_folder, good) = (folder.path().join("run"), folder.path().join("good.npy"));
    small(&run_folder, &["--epochs", "1"]).succeeded();
    let run_folder = run_folder.to_str().unwrap();
    let features =
        |out: &Path| run(&["features", "--weights", run_folder, "--data", DATA, "--out", out.to_str().unwrap()]);
    let ended = features(&good).succeeded();
    assert!(ended.err.contains("tensors of the backbone") && !ended.err.contains("left over"), "{}", ended.err);

    for (path, mut bytes) in common::content(&Path::new(run_folder).join("checkpoints")) {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let rescued = folder.path().join("rescued.npy");
    let ended = features(&rescued).succeeded();
    assert!(ended.err.contains("taking") && ended.err.contains("backbone.safetensors"), "{}", ended.err);
    assert!(fs::read(&good).unwrap() == fs::read(&rescued).unwrap());
    let told = run(&["inspect", run_folder]).succeeded().out;
    assert!(told.contains("finished; no checkpoint can be read any more, only the backbone"), "{told}");

    fs::remove_file(Path::new(run_folder).join("backbone.safetensors")).unwrap();
    let lost = folder.path().join("lost.npy");
    assert!(features(&lost).failed().contains("no checkpoint is usable"));
}

#[test]
fn a_number_of_neighbours_is_refused_before_the_features_are_computed() {
    let ended = run(&["eval", "knn", "--weights", run_folder(), "--data", DATA, "--k", "25"]);
    assert!(!ended.err.contains("img/s"), "{}", ended.err);
    assert!(ended.failed().contains("1 to 24, the number of training images"));
}
