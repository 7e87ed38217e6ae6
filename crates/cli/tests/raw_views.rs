//! `views --raw` and `--raw-images`: what a run is given, handed to another program.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::run;
use safetensors::SafeTensors;
use serde_json::{Value, json};

/// The line of JSON that bytes for another program begin with, and the bytes.
fn header_and_bytes(args: &[&str]) -> (Value, Vec<u8>) {
    let output = common::program().args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let split = output.stdout.iter().position(|byte| *byte == b'\n').unwrap();
    (serde_json::from_slice(&output.stdout[..split]).unwrap(), output.stdout[split + 1..].to_vec())
}

/// The product of some numbers of an object.
fn size(of: &Value, keys: &[&str]) -> usize {
    keys.iter().map(|key| of[*key].as_u64().unwrap() as usize).product()
}

/// The tensors of a safetensors file.
fn tensors(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect()
}

const HANDED: [&str; 5] = [
    "--data=synthetic:train=8,test=4,size=16",
    "--batch-size=4",
    "--patch-size=8",
    "--local-crops=1",
    "--arch=vit_nano",
];

#[test]
fn views_are_handed_to_another_program_as_they_are_trained_on() {
    let views = |more: &[&str]| header_and_bytes(&[&["views"], &HANDED[..], &["--raw", "2"], more].concat());
    let (header, bytes) = views(&["--set", "drop_path=0"]);
    assert_eq!((&header["batch"], &header["batches"]), (&Value::from(4), &Value::from(4)));
    let groups = header["groups"].as_array().unwrap();
    let of_views: usize = groups.iter().map(|group| size(group, &["count", "height", "width", "channels"])).sum();
    assert_eq!((bytes.len(), &header["branches"]), (4 * of_views, &Value::Null));
    assert!(views(&["--set", "drop_path=0"]).1 == bytes);
    assert!(run(&["views", "--raw", "1", "--out", "x.png"]).err.contains("cannot be used with"));

    // Three views of four images, four blocks with two branches. The first block skips none.
    let (header, with_branches) = views(&["--set", "drop_path=0.9"]);
    assert_eq!(header["branches"], json!([12, 4, 2]));
    let of_step = of_views + 12 * 4 * 2;
    assert_eq!(with_branches.len(), 4 * of_step);
    assert!(with_branches[..of_views] == bytes[..of_views], "the views are the same");
    let taken = &with_branches[of_views..of_step];
    assert!(taken.chunks(8).all(|row| row[..2] == [1, 1]));
    let of_last = |branch: usize| taken.chunks(8).map(|row| usize::from(row[6 + branch])).sum::<usize>();
    assert!(of_last(0) < 8 && of_last(1) < 8 && taken.iter().all(|byte| *byte < 2), "{taken:?}");
}

#[test]
fn weights_and_images_are_handed_to_another_program_as_a_run_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let (initial, out) = (folder.path().join("initial.safetensors"), folder.path().join("run"));
    let raw = ["--raw", "1", "--initial", initial.to_str().unwrap()];
    header_and_bytes(&[&["views"], &HANDED[..], &raw].concat());
    // A teacher that follows nobody keeps what a run begins with.
    let still =
        ["--epochs=1", "--set=momentum_teacher=1", "--set=momentum_teacher_end=1", "--device=cpu", "--no-report"];
    run(&[&["pretrain"], &HANDED[..], &still, &["--out", out.to_str().unwrap()]].concat()).succeeded();
    let (written, kept) = (tensors(&initial), tensors(&out.join("backbone.safetensors")));
    assert!(kept.iter().all(|(name, bytes)| written.get(&format!("backbone.{name}")) == Some(bytes)));
    assert!(kept.len() > 50 && written.contains_key("head.last_layer.weight_v"));
    assert!(run(&[&["views"], &HANDED[..], &raw].concat()).failed().contains("initial.safetensors"), "it is there");

    for (split, images) in [("train", 8), ("test", 4)] {
        let args = [&["views"], &HANDED[..], &["--raw-images", "--split", split]].concat();
        let (header, bytes) = header_and_bytes(&args);
        assert_eq!((&header["images"], &header["height"]), (&Value::from(images), &Value::from(16)));
        let record = 4 + size(&header, &["height", "width", "channels"]);
        assert_eq!(bytes.len(), images * record);
        let classes: Vec<u32> =
            bytes.chunks(record).map(|record| u32::from_le_bytes(record[..4].try_into().unwrap())).collect();
        assert!(classes.iter().all(|class| *class < 10) && classes.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
