//! Several processes that use one GPU at the same time, each by itself: every one of them gets the bits that it gets alone.
//! Their work is cut into time slices, so each kernel is interrupted and meets other work's leftovers in caches and shared
//! memory. Runs where `DINO_VMF_TEST_GPU` is set (`tools/gpu-test`), and is skipped elsewhere.
//!
//! The work comes in kinds, from single operations to whole training steps, so that a failure says where to look.

mod common;
mod gpu_device;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::process::{Command, Stdio};

use common::{dino, dino_options, learner_options};
use gpu_device::gpu;
use model::{Arch, DropPath, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::StepInput;
use ssl::memory::{MemoryNeed, plan_and_reserve};
use ssl::recipe::{Centering, Prototypes};
use tensor::ops::{self, Affine, BoxBlur, ColorStep, Norm, PixelData, Pixels, ViewEdit};
use tensor::{CudaPrecision, Device, Rows, Tensor};
use train::Position;
use train::optimizer::StepValues;

/// Processes at a time.
const PROCESSES: usize = 6;
/// How often a process repeats an operation.
const REPEATS: usize = 400;
/// Training steps of a process.
const STEPS: usize = 40;
/// Tells a process of ours which work it does.
const KIND: &str = "DINO_VMF_TEST_SHARED";

/// A kind of work: its name, and what it gave, by name, each time it was repeated. A training step is named by its number,
/// since each gives something else.
type Work = fn(&Device) -> Vec<(String, u64)>;

const KINDS: [(&str, Work); 9] = [
    ("products", products),
    ("attention", attention),
    ("residual stream", residual_stream),
    ("loss", loss),
    ("views", views),
    ("steps", |d| steps(d, false, false, 0.0)),
    ("steps with drop path", |d| steps(d, false, false, 0.1)),
    ("steps with chosen products", |d| steps(d, true, false, 0.1)),
    ("steps with chosen products on images sent ahead", |d| steps(d, true, true, 0.1)),
];

fn digest(values: impl IntoIterator<Item = f32>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    values.into_iter().for_each(|x| x.to_bits().hash(&mut hasher));
    hasher.finish()
}

/// A matrix by the sums of its columns: one bit of one element shows, and little has to be copied.
fn sums(x: &Tensor) -> u64 {
    digest(ops::column_sums(x).to_f32())
}

fn normal(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.from_f64(shape, &values(seed, shape))
}

fn exact(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.exact_from_f64(shape, &values(seed, shape))
}

fn values(seed: u64, shape: &[usize]) -> Vec<f64> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    (0..shape.iter().product()).map(|_| stream.normal()).collect()
}

/// The tokens of 32 global and 128 local crops.
fn segments() -> Rows {
    Rows::all((0..32).map(|_| 197).chain((0..128).map(|_| 37)))
}

fn repeated(work: impl Fn() -> Vec<(&'static str, u64)>) -> Vec<(String, u64)> {
    (0..REPEATS).flat_map(|_| work()).map(|(name, digest)| (name.to_owned(), digest)).collect()
}

fn products(d: &Device) -> Vec<(String, u64)> {
    let rows = segments().count();
    let (x, w, b) = (normal(d, 1, &[rows, 384]), exact(d, 2, &[1536, 384]), exact(d, 3, &[1536]));
    repeated(|| {
        let layer = Affine::new(&w, &b);
        let y = ops::linear(&x, &layer);
        let (mut dw, mut db) = (d.zeros_exact(&[1536, 384]), d.zeros_exact(&[1536]));
        ops::linear_backward_weight(&x, &y, 0..1536, &mut dw, &mut db);
        let dx = ops::linear_backward_input(&y, &layer);
        vec![("y", sums(&y)), ("dx", sums(&dx)), ("dw", sums(&dw)), ("db", digest(db.to_f32()))]
    })
}

fn attention(d: &Device) -> Vec<(String, u64)> {
    let rows = segments();
    let (qkv, d_out) = (normal(d, 1, &[rows.count(), 3 * 384]), normal(d, 2, &[rows.count(), 384]));
    repeated(|| {
        let attended = ops::attention(&qkv, &rows, 6);
        let d_qkv = ops::attention_backward(&qkv, &rows, 6, &attended, &d_out);
        vec![("out", sums(&attended.out)), ("d_qkv", sums(&d_qkv))]
    })
}

fn residual_stream(d: &Device) -> Vec<(String, u64)> {
    let all = segments();
    let stream = d.residual_from_f64(&[all.count(), 384], &values(1, &[all.count(), 384]));
    let (w, b, weight, bias) = (exact(d, 2, &[384, 64]), exact(d, 3, &[384]), exact(d, 4, &[384]), exact(d, 5, &[384]));
    repeated(|| {
        let taken = segments().keep(&(0..160).map(|i| i % 7 != 3).collect::<Vec<_>>());
        let normed = segments().keep(&(0..160).map(|i| i % 5 != 1).collect::<Vec<_>>());
        let x = ops::gather(&stream, &taken, 0.5);
        let branch = normal_like(d, taken.count());
        let norm = Norm { rows: &normed, weight: &weight, bias: &bias, epsilon: 1e-6 };
        let (out, y, statistics) =
            ops::linear_residual_norm(&stream, &taken, 1.25, &branch, &Affine::new(&w, &b), &norm);
        let mut dx = stream.zeros_like();
        let (mut dw, mut db) = (d.zeros_exact(&[384]), d.zeros_exact(&[384]));
        ops::layer_norm_backward(&out, &normed, &statistics, &weight, &y, &mut dx, &mut dw, &mut db);
        vec![
            ("gathered", sums(&x)),
            ("out", sums(&out)),
            ("y", sums(&y)),
            ("dx", sums(&dx)),
            ("dw", digest(dw.to_f32())),
        ]
    })
}

/// Activations that cost the host little to make.
fn normal_like(d: &Device, rows: usize) -> Tensor {
    let row: Vec<f64> = values(9, &[64]);
    d.from_f64(&[rows, 64], &row.iter().cycle().take(rows * 64).copied().collect::<Vec<_>>())
}

fn loss(d: &Device) -> Vec<(String, u64)> {
    const K: usize = 4096;
    let (y, _) = ops::l2_normalize(&normal(d, 1, &[320, 256]), 1e-12);
    let (g, v, shift) = (exact(d, 2, &[K, 1]), exact(d, 3, &[K, 256]), exact(d, 4, &[K]));
    let pairs: Vec<Vec<usize>> = (0..320).map(|row| vec![row % 64, (row + 7) % 64]).collect();
    repeated(|| {
        let mut logits = ops::prototype_logits(&y, &g, &v);
        let raw = sums(&logits.raw);
        let targets = ops::softmax(&logits.raw, 25.0, &shift);
        let losses = ops::cross_entropy(&mut logits.raw, 10.0, &shift, &targets, &pairs, &[1.0 / 640.0; 320]);
        let (mut dg, mut dv) = (d.zeros_exact(&[K, 1]), d.zeros_exact(&[K, 256]));
        let dy = ops::prototype_logits_backward(&y, &g, &v, logits, &mut dg, &mut dv);
        let losses = digest(losses.into_iter().map(|x| x as f32));
        vec![("raw", raw), ("targets", sums(&targets)), ("losses", losses), ("dy", sums(&dy)), ("dv", sums(&dv))]
    })
}

/// Some edits, among them blurs of several widths.
fn edits(count: usize) -> Vec<ViewEdit> {
    let colors = [ColorStep::Brightness(1.2), ColorStep::Contrast(0.7), ColorStep::Hue(20), ColorStep::Saturation(1.1)];
    let blur =
        |radius: u32| BoxBlur { radius, inner: (1 << 24) / (2 * radius + 2), outer: (1 << 24) / (4 * radius + 4) };
    (0..count)
        .map(|i| ViewEdit {
            colors: (i % 3 != 0).then_some(colors),
            grayscale: i % 5 == 0,
            blur: (i % 2 == 0).then(|| blur(i as u32 % 3)),
            solarize_from: (i % 7 == 0).then_some(128),
        })
        .collect()
}

fn pixels(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ seed) >> 40) as u8).collect()
}

const MEAN: [f32; 3] = [0.5; 3];
const DEVIATION: [f32; 3] = [0.25; 3];

fn views(d: &Device) -> Vec<(String, u64)> {
    let send =
        |turn: usize| d.upload_views(&pixels(turn as u64 % 4, 32 * 224 * 224 * 3), (224, 224), &edits(32)).unwrap();
    let mut next = send(0);
    let names = ["views 0", "views 1", "views 2", "views 3"];
    let mut found = Vec::new();
    for turn in 0..REPEATS / 4 {
        let sent = std::mem::replace(&mut next, send(turn + 1));
        let data = PixelData::Uploaded { pixels: &sent, first: 0, mean: &MEAN, deviation: &DEVIATION };
        let patches = ops::patchify(d, &[Pixels { count: 32, height: 224, width: 224, channels: 3, data }], 16);
        found.push((names[turn % 4].to_owned(), sums(&patches)));
    }
    found
}

/// Training steps of a ViT-Small; planned ones take the products that were fastest in a timing.
fn steps(d: &Device, planned: bool, ahead: bool, drop_path: f64) -> Vec<(String, u64)> {
    const BATCH: usize = 8;
    const LOCALS: usize = 6;
    let vit = VitConfig::new(Arch::Small, 16, (224, 224), 3).unwrap();
    let depth = vit.depth;
    let head =
        HeadConfig { inputs: vit.dim, hidden: 512, bottleneck: 256, prototypes: 4096, layers: 3, batch_norm: false };
    let (options, method) = (
        learner_options(vit, 3.0, 5),
        dino_options((Prototypes::Vmf, Centering::Probability), head, (224, 96, LOCALS)),
    );
    if planned {
        let need = MemoryNeed { options: &options, method: &method, batch: BATCH, drop_path, evaluated: None };
        plan_and_reserve(d, &need).unwrap();
    }
    let mut learner = dino(d, &options, &method);
    let sizes = [(2 * BATCH, 224usize), (LOCALS * BATCH, 96)];
    let bytes = |step: usize| sizes.map(|(count, side)| pixels(step as u64, count * side * side * 3));
    let send = |step: usize| {
        let mut sizes = sizes.into_iter();
        bytes(step).map(|bytes| {
            let (count, side) = sizes.next().unwrap();
            d.upload_views(&bytes, (side, side), &edits(count)).unwrap()
        })
    };
    let mut next = ahead.then(|| send(0));
    let mut found = Vec::new();
    for step in 0..STEPS {
        let (held, sent) = (bytes(step), next.take());
        next = ahead.then(|| send(step + 1));
        let groups: Vec<Pixels<'_>> = (0..2)
            .map(|i| {
                let (count, side) = sizes[i];
                let data = match &sent {
                    Some(sent) => {
                        PixelData::Uploaded { pixels: &sent[i], first: 0, mean: &MEAN, deviation: &DEVIATION }
                    }
                    None => PixelData::Bytes { pixels: &held[i], mean: &MEAN, deviation: &DEVIATION },
                };
                Pixels { count, height: side, width: side, channels: 3, data }
            })
            .collect();
        let keys =
            (0..(2 + LOCALS) * BATCH).map(|s| Key::new(0, Purpose::DropPath).epoch(step as u64).sample(s as u64));
        let drop_path = (drop_path > 0.0).then(|| DropPath::draw(drop_path, depth, keys));
        let input = StepInput { groups: &groups, keys: &[0; BATCH], drop_path: drop_path.as_ref() };
        let values = StepValues { lr: 5e-4, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
        let report = learner.step(&input, Position { step: step as u64, epoch: 1 }, &values).unwrap();
        let squares = |set| digest(ops::squared_norms(set).into_iter().map(|x| x as f32));
        found.push((format!("step {step}: loss"), digest([report.loss as f32])));
        found.push((format!("step {step}: gradient"), digest([report.gradient.norm as f32])));
        found.push((format!("step {step}: student"), squares(&learner.student)));
        found.push((format!("step {step}: teacher"), squares(&learner.teacher)));
    }
    found
}

/// What one of our processes does.
#[test]
#[ignore = "started by the test below"]
fn one_of_several() {
    let kind = std::env::var(KIND).unwrap();
    let (_, work) = KINDS.into_iter().find(|(name, _)| *name == kind).unwrap();
    let Some(device) = gpu(CudaPrecision::Bf16) else { return };
    let found = work(&device);
    device.finish().unwrap();
    for (name, digest) in found {
        println!("found {digest:016x} {name}");
    }
}

/// Starts processes for a kind of work; what each of them printed.
fn side_by_side(kind: &str, processes: usize) -> Vec<Result<Vec<(String, String)>, String>> {
    let start = |_| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "one_of_several", "--ignored", "--nocapture"])
            .env(KIND, kind)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = (0..processes).map(start).collect();
    // Each is read by a thread of its own: a full pipe would hold a process up.
    let readers: Vec<_> =
        running.into_iter().map(|p| std::thread::spawn(move || p.wait_with_output().unwrap())).collect();
    let read = |reader: std::thread::JoinHandle<std::process::Output>| {
        let output = reader.join().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = lines.lines().filter_map(|line| line.split_once("found ")?.1.split_once(' '));
        Ok(found.map(|(digest, name)| (name.to_owned(), digest.to_owned())).collect())
    };
    readers.into_iter().map(read).collect()
}

#[test]
fn a_gpu_that_several_processes_share_gives_each_the_same_bits() {
    if gpu(CudaPrecision::Bf16).is_none() {
        return;
    }
    let mut failures = Vec::new();
    for (kind, _) in KINDS {
        // The first digest of each name, by the process alone.
        let alone = side_by_side(kind, 1).swap_remove(0).unwrap();
        let mut expected = BTreeMap::new();
        alone.iter().for_each(|(name, digest)| _ = expected.entry(name).or_insert(digest));
        let steady = alone.iter().filter(|(name, digest)| expected[name] != digest).count();
        println!("{kind}: alone, {steady} of {} differ", alone.len());
        assert_eq!(steady, 0, "{kind}: a process alone");
        for (process, found) in side_by_side(kind, PROCESSES).into_iter().enumerate() {
            match found {
                Err(error) => failures.push(format!("{kind}, process {process} failed: {error}")),
                Ok(found) => {
                    assert_eq!(found.len(), alone.len(), "{kind}");
                    let odd: Vec<&str> = found
                        .iter()
                        .filter(|(name, digest)| expected[name] != digest)
                        .map(|(name, _)| name.as_str())
                        .collect();
                    if let Some(first) = odd.first() {
                        failures.push(format!(
                            "{kind}, process {process}: {} of {} differ, the first is {first}",
                            odd.len(),
                            found.len()
                        ));
                    }
                }
            }
        }
        println!("{kind}: {} failures so far", failures.len());
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
