//! Weight files of every layout into a network, and every way a file can be wrong.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use model::weights::{
    Element, HeadsFrom, KeyLayout, LoadOptions, LoadedVit, NetworkRole, WeightsError, WeightsFile, load_vit,
};
use model::{Extras, Layout, Vit, VitConfig};
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, Precision};

/// A tensor to be written.
#[derive(Clone)]
struct Entry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Entry {
    fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    fn zeros(name: &str, shape: &[usize]) -> Self {
        Self::f32(name, shape, &vec![0.0; shape.iter().product()])
    }

    fn renamed(&self, lead: &str) -> Self {
        Self { name: format!("{lead}{}", self.name), ..self.clone() }
    }
}

fn config() -> VitConfig {
    VitConfig { dim: 64, depth: 2, heads: 1, mlp_dim: 96, patch: 4, image: (8, 8), channels: 3, extras: Extras::NONE }
}

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F32 }).unwrap()
}

/// The tensors of a backbone with the initial weights of a seed.
fn backbone(config: VitConfig, seed: u64) -> Vec<Entry> {
    let mut layout = Layout::default();
    Vit::new(&mut layout, "", config);
    let weights = layout.initial(&device(), seed);
    layout.specs().iter().zip(weights.iter()).map(|(s, t)| Entry::f32(&s.name, &s.shape, &t.to_f32())).collect()
}

fn led_by(lead: &str, entries: &[Entry]) -> Vec<Entry> {
    entries.iter().map(|entry| entry.renamed(lead)).collect()
}

struct Written {
    _folder: TempDir,
    path: PathBuf,
}

fn write_bytes(bytes: &[u8]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    std::fs::write(&path, bytes).unwrap();
    Written { _folder: folder, path }
}

/// A file that says how many heads [`config`] has.
fn serialize(entries: &[Entry]) -> Vec<u8> {
    serialize_with(entries, &[("heads", "1")])
}

fn serialize_with(entries: &[Entry], metadata: &[(&str, &str)]) -> Vec<u8> {
    let views = entries.iter().map(|e| (e.name.as_str(), TensorView::new(e.dtype, e.shape.clone(), &e.bytes).unwrap()));
    let pairs = metadata.iter().chain(&[("format", "pt")]).map(|(key, value)| (key.to_string(), value.to_string()));
    safetensors::serialize(views, Some(pairs.collect::<HashMap<_, _>>())).unwrap()
}

fn write(entries: &[Entry]) -> Written {
    write_bytes(&serialize(entries))
}

fn load(entries: &[Entry]) -> Result<LoadedVit, WeightsError> {
    load_with(entries, &LoadOptions::default())
}

fn load_with(entries: &[Entry], options: &LoadOptions) -> Result<LoadedVit, WeightsError> {
    load_vit(&write(entries).path, options, &device())
}

fn class_token(loaded: &LoadedVit) -> Vec<f32> {
    loaded.weights[loaded.layout.find("cls_token").unwrap()].to_f32()
}

fn initial_class_token(seed: u64) -> Vec<f32> {
    backbone(config(), seed)[0].bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn a_bare_backbone_gives_the_network_it_was_written_from() {
    let loaded = load(&backbone(config(), 3)).unwrap();
    assert_eq!(loaded.vit.config(), &config());
    assert_eq!(loaded.report.to_string(), "matched 30 of 30 backbone tensors (DINO layout); missing: 0; left over: 0");
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", config());
    let device = device();
    let pixels: Vec<f64> = (0..2 * 3 * 12 * 8).map(|i| f64::from(i % 17) / 8.0 - 1.0).collect();
    let images = [Pixels { count: 2, height: 12, width: 8, channels: 3, data: PixelData::Values(&pixels) }];
    let want = vit.features(&layout.initial(&device, 3), &device, &images).unwrap();
    let got = loaded.vit.features(&loaded.weights, &device, &images).unwrap();
    assert_eq!(got.to_f32(), want.to_f32());
}

#[test]
fn a_head_beside_the_backbone_is_left_over_and_counted() {
    let mut entries = led_by("module.backbone.", &backbone(config(), 1));
    for name in ["mlp.0.weight", "mlp.0.bias", "last_layer.weight_g", "last_layer.weight_v"] {
        entries.push(Entry::zeros(&format!("module.head.{name}"), &[2, 2]));
    }
    let report = load(&entries).unwrap().report;
    assert_eq!((report.matched, report.left_over.len(), report.layout), (30, 4, KeyLayout::Dino));
    assert!(report.left_over.contains(&"module.head.mlp.0.bias".to_owned()), "{report}");
}

#[test]
fn timm_files_are_known_by_their_classifier() {
    let mut entries = backbone(config(), 1);
    entries.extend([Entry::zeros("head.weight", &[10, 64]), Entry::zeros("head.bias", &[10])]);
    let report = load(&entries).unwrap().report;
    assert_eq!((report.layout, report.left_over.len()), (KeyLayout::Timm, 2));
}

#[test]
fn of_teacher_and_student_the_teacher_is_taken_unless_told_otherwise() {
    let mut entries = led_by("teacher.backbone.", &backbone(config(), 1));
    entries.extend(led_by("student.module.backbone.", &backbone(config(), 2)));
    let loaded = load(&entries).unwrap();
    assert_eq!((class_token(&loaded), loaded.report.role), (initial_class_token(1), Some(NetworkRole::Teacher)));
    let student = LoadOptions { role: Some(NetworkRole::Student), ..Default::default() };
    assert_eq!(class_token(&load_with(&entries, &student).unwrap()), initial_class_token(2));
}

#[test]
fn a_checkpoint_of_ours_gives_its_teacher_and_leaves_moments_and_centre() {
    let mut entries = Vec::new();
    for (seed, lead) in ["student/", "teacher/", "first/", "second/"].into_iter().enumerate() {
        entries.extend(led_by(&format!("{lead}backbone."), &backbone(config(), seed as u64)));
        entries.push(Entry::zeros(&format!("{lead}head.mlp.0.weight"), &[4, 64]));
    }
    entries.push(Entry::zeros("center", &[16]));
    let loaded = load(&entries).unwrap();
    assert_eq!(class_token(&loaded), initial_class_token(1));
    assert_eq!((loaded.report.layout, loaded.report.left_over.len()), (KeyLayout::Checkpoint, 3 * 30 + 5));
    assert!(loaded.report.to_string().contains("(dino-vmf checkpoint, teacher)"), "{}", loaded.report);
}

#[test]
fn a_lone_student_is_taken_and_named_but_not_passed_off_as_a_teacher() {
    let entries = led_by("student.", &backbone(config(), 1));
    assert_eq!(load(&entries).unwrap().report.role, Some(NetworkRole::Student));
    let teacher = LoadOptions { role: Some(NetworkRole::Teacher), ..Default::default() };
    let message = load_with(&entries, &teacher).unwrap_err().to_string();
    assert!(message.contains("holds no teacher: only a student"), "{message}");
    let message = load_with(&backbone(config(), 1), &teacher).unwrap_err().to_string();
    assert!(message.contains("holds one network"), "{message}");
}

#[test]
fn two_networks_under_one_name_are_refused() {
    let mut entries = led_by("backbone.", &backbone(config(), 1));
    entries.extend(led_by("module.backbone.", &backbone(config(), 2)));
    let error = load(&entries).unwrap_err();
    assert!(matches!(error, WeightsError::Ambiguous { .. }), "{error}");
}

#[test]
fn half_and_double_precision_become_what_the_device_computes_in() {
    let plain = backbone(config(), 5);
    let convert = |dtype, to_bytes: &dyn Fn(f32) -> Vec<u8>| -> Vec<Entry> {
        let bytes = |e: &Entry| e.bytes.as_chunks().0.iter().flat_map(|b| to_bytes(f32::from_le_bytes(*b))).collect();
        plain.iter().map(|e| Entry { dtype, bytes: bytes(e), ..e.clone() }).collect()
    };
    let want = initial_class_token(5);
    let loaded = load(&convert(Dtype::F16, &|x| f16::from_f32(x).to_le_bytes().to_vec())).unwrap();
    let halves: Vec<f32> = want.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
    assert_eq!(class_token(&loaded), halves);
    let loaded = load(&convert(Dtype::BF16, &|x| bf16::from_f32(x).to_le_bytes().to_vec())).unwrap();
    let halves: Vec<f32> = want.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
    assert_eq!(class_token(&loaded), halves);
    let third = |x: f32| f64::from(x) / 3.0;
    let written = write(&convert(Dtype::F64, &|x| third(x).to_le_bytes().to_vec()));
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F64 }).unwrap();
    let loaded = load_vit(&written.path, &LoadOptions::default(), &device).unwrap();
    let exact: Vec<f64> = want.iter().map(|&x| third(x)).collect();
    assert_eq!(loaded.weights[loaded.layout.find("cls_token").unwrap()].to_f64(), exact);
}

#[test]
fn a_missing_tensor_is_named() {
    let mut entries = backbone(config(), 1);
    entries.retain(|e| e.name != "blocks.1.attn.qkv.bias");
    let message = load(&entries).unwrap_err().to_string();
    assert!(
        message.contains("29 of 30 backbone tensors matched (DINO layout); missing blocks.1.attn.qkv.bias"),
        "{message}"
    );
    assert!(message.contains("dino-vmf inspect"), "{message}");
}

#[test]
fn two_of_211_tensors_is_an_error() {
    let mut entries: Vec<Entry> = backbone(config(), 1).drain(..2).collect();
    entries.extend((0..209).map(|i| Entry::zeros(&format!("visual.layer{i}.weight"), &[1])));
    let error = load(&entries).unwrap_err();
    let WeightsError::IncompleteBackbone { found: 2, left_over: 209, .. } = &error else { panic!("{error}") };
    let written = write(&entries);
    let report = WeightsFile::open(&written.path).unwrap().match_report(None).unwrap();
    assert!(report.to_string().starts_with("matched 2 of 18 backbone tensors"), "{report}");
}

#[test]
fn a_missing_block_in_the_middle_is_an_error() {
    let mut entries = backbone(VitConfig { depth: 4, ..config() }, 1);
    entries.retain(|e| !e.name.starts_with("blocks.2."));
    let error = load(&entries).unwrap_err();
    let WeightsError::IncompleteBackbone { found: 42, needed: 54, .. } = &error else { panic!("{error}") };
}

#[test]
fn a_tensor_of_another_shape_is_named_with_both_shapes() {
    let replace = |name: &str, shape: &[usize]| -> String {
        let mut entries = backbone(config(), 1);
        let entry = entries.iter_mut().find(|e| e.name == name).unwrap();
        *entry = Entry::zeros(name, shape);
        load(&entries).unwrap_err().to_string()
    };
    let message = replace("blocks.1.attn.qkv.weight", &[191, 64]);
    assert!(message.contains("`blocks.1.attn.qkv.weight` has shape [191, 64], expected [192, 64]"), "{message}");
    for (name, shape) in [
        ("cls_token", &[64][..]),
        ("cls_token", &[1, 1, 0]),
        ("cls_token", &[0, 1, 1 << 60]),
        ("pos_embed", &[1, 0, 64]),
        ("pos_embed", &[1, 5, 60]),
        ("patch_embed.proj.weight", &[64, 3, 4, 5]),
        ("patch_embed.proj.weight", &[64, 0, 4, 4]),
        ("blocks.0.mlp.fc1.weight", &[0, 64]),
        ("norm.bias", &[]),
    ] {
        assert!(replace(name, shape).contains(&format!("`{name}` has shape {shape:?}")), "{name} {shape:?}");
    }
}

#[test]
fn parts_that_the_network_would_need_and_we_do_not_compute_are_an_error() {
    for name in ["blocks.0.mlp.w12.weight", "dist_token", "norm_pre.weight", "blocks.5000.norm1.weight"] {
        let mut entries = backbone(config(), 1);
        entries.push(Entry::zeros(name, &[1, 64]));
        let error = load(&entries).unwrap_err();
        assert!(matches!(&error, WeightsError::UnknownParts { names, .. } if names == &[name]), "{error}");
    }
}

#[test]
fn whole_numbers_are_no_weights_but_may_be_left_over() {
    let integers = |name: &str| Entry { name: name.into(), dtype: Dtype::I64, shape: vec![64], bytes: vec![0; 512] };
    let mut entries = backbone(config(), 1);
    entries.push(integers("head.mlp.1.num_batches_tracked"));
    load(&entries).unwrap();
    *entries.iter_mut().find(|e| e.name == "norm.bias").unwrap() = integers("norm.bias");
    let message = load(&entries).unwrap_err().to_string();
    assert!(message.contains("`norm.bias` has elements of type I64"), "{message}");
}

#[test]
fn weights_that_are_not_finite_are_an_error() {
    let mut entries = backbone(config(), 1);
    entries[7].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = load(&entries).unwrap_err();
    assert!(matches!(&error, WeightsError::NotFinite { name, .. } if name == &entries[7].name), "{error}");
}

#[test]
fn a_grid_that_is_not_square_needs_the_image_size() {
    let wide = VitConfig { image: (8, 20), ..config() };
    let entries = backbone(wide.clone(), 1);
    let error = load(&entries).unwrap_err();
    assert!(matches!(error, WeightsError::Grid { patches: 10, .. }), "{error}");
    let given = |image| LoadOptions { image: Some(image), ..Default::default() };
    assert_eq!(load_with(&entries, &given((8, 20))).unwrap().vit.config(), &wide);
    // Trailing pixels that fill no patch are nobody's.
    assert_eq!(load_with(&entries, &given((11, 23))).unwrap().vit.config().grid(), (2, 5));
    let message = load_with(&entries, &given((8, 8))).unwrap_err().to_string();
    assert!(message.contains("8x8 pixels have 4 patches of 4x4, but the file has 10"), "{message}");
}

#[test]
fn heads_that_nobody_knows_must_be_given() {
    for (dim, heads) in [(48, 3), (64, 2), (128, 4), (128, 2)] {
        let narrow = VitConfig { dim, heads, ..config() };
        let file = write_bytes(&serialize_with(&backbone(narrow.clone(), 1), &[]));
        let load = |heads| load_vit(&file.path, &LoadOptions { heads, ..Default::default() }, &device());
        let error = load(None).unwrap_err();
        assert!(matches!(error, WeightsError::Heads { depth: 2, .. }), "{error}");
        assert_eq!(load(Some(heads)).unwrap().vit.config(), &narrow);
        assert!(matches!(load(Some(5)), Err(WeightsError::Config { .. })));
        assert!(matches!(load(Some(0)), Err(WeightsError::Config { .. })));
    }
}

#[test]
fn a_described_file_is_read_as_described_and_a_wrong_description_refused() {
    let wide = VitConfig { dim: 128, heads: 4, image: (8, 20), ..config() };
    let said = model::weights::describe(&wide);
    let said: Vec<(&str, &str)> = said.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let file = write_bytes(&serialize_with(&backbone(wide.clone(), 1), &said));
    let loaded = load_vit(&file.path, &LoadOptions::default(), &device()).unwrap();
    assert_eq!((loaded.vit.config(), loaded.report.heads_from), (&wide, Some(HeadsFrom::Metadata)));
    for (key, value) in [("width", "64"), ("depth", "3"), ("patch_size", "8"), ("channels", "1"), ("heads", "x")] {
        let wrong: Vec<_> = said.iter().map(|&(k, v)| (k, if k == key { value } else { v })).collect();
        let file = write_bytes(&serialize_with(&backbone(wide.clone(), 1), &wrong));
        let message = load_vit(&file.path, &LoadOptions::default(), &device()).unwrap_err().to_string();
        assert!(message.contains(&format!("`{key}` is `{value}`, but ")), "{message}");
    }
}

#[test]
fn the_header_alone_tells_the_network() {
    let written = write(&backbone(config(), 1));
    let (found, report) = WeightsFile::open(&written.path).unwrap().vit_config(&LoadOptions::default()).unwrap();
    assert_eq!((found, report.matched), (config(), 30));
}

#[test]
fn a_summary_groups_tensors_and_shows_types_and_notes() {
    let mut entries = led_by("teacher/backbone.", &backbone(config(), 1));
    entries.push(Entry::zeros("center", &[16]));
    let written = write(&entries);
    let file = WeightsFile::open(&written.path).unwrap();
    let summary = file.summary();
    let group = |name: &str| summary.groups.iter().find(|g| g.name == name).unwrap();
    assert_eq!(summary.tensors(), 31);
    assert_eq!(summary.values(), file.tensors().iter().map(|t| t.values() as u64).sum::<u64>());
    assert_eq!(group("teacher/backbone.blocks").tensors, 24);
    assert_eq!(group("center").shape, Some(vec![16]));
    assert!(group("teacher/backbone.norm").elements.contains(&Element::F32));
    let text = summary.to_string();
    assert!(text.starts_with("31 tensors, "), "{text}");
    assert!(text.contains("center") && text.contains("[16]") && text.contains("format: pt"), "{text}");
}

fn open_error(bytes: &[u8]) -> WeightsError {
    WeightsFile::open(&write_bytes(bytes).path).unwrap_err()
}

#[test]
fn a_file_cut_short_anywhere_is_an_error() {
    let bytes = serialize(&backbone(config(), 1));
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    for length in [0, 1, 7, 8, 9, header / 2, header - 1, header, header + 1, bytes.len() / 2, bytes.len() - 1] {
        let error = open_error(&bytes[..length]);
        assert!(matches!(error, WeightsError::Damaged { .. }), "{length}: {error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(open_error(&longer), WeightsError::Damaged { .. }));
}

#[test]
fn a_header_longer_than_the_file_or_the_format_allows_is_not_allocated() {
    for length in [9u64, 99_999_999, 100_000_001, 1 << 40, u64::MAX] {
        let error = open_error(&[&length.to_le_bytes()[..], b"{}      "].concat());
        let allowed = length <= 100_000_000;
        assert_eq!(matches!(error, WeightsError::Damaged { .. }), allowed, "{length}: {error}");
        assert_eq!(matches!(error, WeightsError::Unknown { .. }), !allowed, "{length}: {error}");
    }
}

#[test]
fn a_header_that_lies_is_an_error() {
    let with_header = |header: &str, data: usize| {
        let length = (header.len() as u64).to_le_bytes();
        open_error(&[&length[..], header.as_bytes(), &vec![0; data]].concat())
    };
    for (header, data) in [
        ("", 0),
        ("[]", 0),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8),
        (
            "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
            4,
        ),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4),
        ("{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
        ("{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551615],\"data_offsets\":[0,18446744073709551612]}}", 4),
        (&"[".repeat(100_000), 0),
    ] {
        let error = with_header(header, data);
        assert!(matches!(error, WeightsError::Damaged { .. }), "{header:.80}: {error}");
    }
}

#[test]
fn no_changed_byte_of_a_header_makes_loading_panic() {
    let small = VitConfig { dim: 8, depth: 1, mlp_dim: 8, patch: 1, image: (1, 1), ..config() };
    let bytes = serialize(&backbone(small, 1));
    let options = LoadOptions::default();
    load_vit(&write_bytes(&bytes).path, &options, &device()).unwrap();
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    for place in 0..header {
        let mut changed = bytes.clone();
        changed[place] = changed[place].wrapping_add(1);
        std::fs::write(&path, &changed).unwrap();
        // Whether it loads is the byte's business: a renamed note does no harm.
        let _ = load_vit(&path, &options, &device);
    }
}

#[test]
fn what_is_no_file_of_weights_is_called_what_it_is() {
    let say = |bytes: &[u8]| open_error(bytes).to_string();
    assert!(say(b"PK\x03\x04\x00\x00\x08\x08rest").contains("not a whole file of weights"));
    assert!(say(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9").contains("not a whole file of weights"));
    assert!(say(b"\x80\x02K\x01.behind it").contains("a pickle, but none of PyTorch"));
    assert!(say(b"GGUF\x03\x00\x00\x00").contains("a GGUF file"));
    assert!(say(b"version https://git-lfs.github.com/spec/v1\n").contains("`git lfs pull` fetches the file"));
    assert!(say(b"<!DOCTYPE html><html></html>").contains("a web page"));
    assert!(say(b"{\n  \"hidden_size\": 384\n}").contains("give the folder"));
    assert!(say(b"\x1f\x8b\x08\x08\x5a\x3b\x1c\x65w.pth").contains("unpack it first"));
    assert!(say(b"PAR1\x15\x04\x15\x10").contains("a Parquet table"));
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| WeightsFile::open(path).unwrap_err();
    assert!(matches!(open(folder.path()), WeightsError::NoWeights { .. }));
    assert!(matches!(open(&folder.path().join("none")), WeightsError::Missing { .. }));
    let of_hub = ["facebook/dinov2-small", "timm/vit_small_patch14_dinov2.lvd142m", "hf-hub:timm/vit_tiny"];
    for name in of_hub.into_iter().chain(["https://example.org/dino.pth"]) {
        assert!(open(Path::new(name)).to_string().contains("This program fetches nothing"), "{name}");
    }
    // `src` is there.
    for name in ["runs/photos.pth", "/tmp/no-such-place/x", "photos", "./photos", "../photos", "src/photos"] {
        assert!(open(Path::new(name)).to_string().ends_with("there is no such file or folder"), "{name}");
    }
    assert!(open(Path::new("~/x.pth")).to_string().contains("A shell reads ~"));
}

#[test]
fn a_square_of_positions_without_a_class_token_is_said_to_be_taken_for_one() {
    let mut entries = backbone(VitConfig { image: (8, 8), ..config() }, 1);
    let at = entries.iter().position(|entry| entry.name == "pos_embed").unwrap();
    // Nine: 3 x 3, or 2 x 4 behind the class token's.
    entries[at] = Entry::zeros("pos_embed", &[1, 9, 64]);
    let written = write(&entries);
    let load = |image| {
        load_vit(&written.path, &LoadOptions { heads: Some(1), image, ..Default::default() }, &device()).unwrap()
    };
    let taken = load(None);
    assert_eq!((taken.vit.config().image, taken.report.grid_taken), ((12, 12), Some((3, 3))));
    let told = load(Some((8, 16)));
    assert_eq!((told.vit.config().image, told.report.grid_taken), ((8, 16), None));
}

#[test]
fn networks_of_other_kinds_are_called_what_they_are() {
    let load = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = backbone(config(), 1);
        change(&mut entries);
        let options = LoadOptions { heads: Some(1), ..Default::default() };
        load_vit(&write(&entries).path, &options, &device()).unwrap_err().to_string()
    };
    let rotary =
        load(&|entries| entries.retain(|entry| entry.name != "pos_embed" && !entry.name.ends_with("qkv.bias")));
    assert!(rotary.contains("as DINOv3 does"), "{rotary}");
    let gated = load(&|entries| {
        let at = entries.iter().position(|entry| entry.name == "blocks.0.mlp.fc2.weight").unwrap();
        entries[at] = Entry::zeros("blocks.0.mlp.fc2.weight", &[64, 48]);
    });
    assert!(gated.contains("a SwiGLU MLP"), "{gated}");
    let averaging = load(&|entries| {
        entries
            .iter_mut()
            .filter(|entry| entry.name.starts_with("norm."))
            .for_each(|entry| entry.name = format!("fc_{}", entry.name));
    });
    assert!(averaging.contains("a norm over the mean of its patches"), "{averaging}");
}
