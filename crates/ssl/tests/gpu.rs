//! Whole networks on a GPU beside the same in double precision on the CPU. Runs where `DINO_VMF_TEST_GPU` is set
//! (`tools/gpu-test`), and is skipped elsewhere.

mod common;
mod gpu_device;

use common::{dino, dino_options, learner_options};
use gpu_device::{gpu, gpu_with};
use model::{Arch, DropPath, HeadConfig, Init, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::memory::{MemoryNeed, plan_and_reserve};
use ssl::method::dino::{Dino, DinoOptions};
use ssl::recipe::{Centering, Prototypes};
use ssl::view_plan::ViewShape;
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, CudaOptions, CudaPrecision, Device, ParamId, Precision, ResidualPrecision};
use train::Position;
use train::optimizer::StepValues;

/// Images of a step beside the CPU. With half as many, batch norm over the views of so few images made so much of the
/// rounding that the norm of a gradient was off by chance.
const BATCH: usize = 12;
const LOCALS: usize = 3;
const DROP_PATH: f64 = 0.1;

fn cpu() -> Device {
    Device::cpu(CpuOptions { threads: None, precision: Precision::F64 }).unwrap()
}

/// With bfloat16 activations and a residual stream of this type.
fn gpu_in_bfloat16(residual: ResidualPrecision) -> Option<Device> {
    gpu_with(CudaOptions { residual, ..CudaOptions::default() })
}

const STREAMS: [ResidualPrecision; 2] = [ResidualPrecision::Bf16, ResidualPrecision::F32];

fn learner(device: &Device, prototypes: Prototypes, centering: Centering, batch_norm: bool) -> Learner<Dino> {
    let (options, method) = options(prototypes, centering, batch_norm);
    let mut learner = dino(device, &options, &method);
    // The network that the tolerances below were found with, whatever a network begins with elsewhere.
    for (i, spec) in learner.layout().specs().to_vec().iter().enumerate() {
        let mut stream = Key::new(5, Purpose::Init).sample(i as u64).stream();
        let mut draw = || match spec.init {
            Init::Constant(value) => value,
            Init::Normal { deviation } => deviation * stream.normal(),
            Init::Uniform { bound } => stream.uniform_in(-bound, bound),
        };
        let values: Vec<f64> = (0..spec.shape.iter().product()).map(|_| draw()).collect();
        learner.student[ParamId(i)].copy_from_f64(&values);
        learner.teacher[ParamId(i)].copy_from_f64(&values);
    }
    learner
}

fn options(prototypes: Prototypes, centering: Centering, batch_norm: bool) -> (LearnerOptions, DinoOptions) {
    let vit = VitConfig::new(Arch::Tiny, 16, (64, 64), 3).unwrap();
    let head = HeadConfig { inputs: vit.dim, hidden: 128, bottleneck: 64, prototypes: 300, layers: 3, batch_norm };
    (learner_options(vit, 3.0, 5), dino_options((prototypes, centering), head, (64, 32, LOCALS)))
}

/// Some views of a batch of images of random boxes, so that there is something to learn.
fn images(seed: u64, batch: usize, views: usize, side: usize) -> Vec<u8> {
    let mut pixels = vec![0; views * batch * side * side * 3];
    for (i, image) in pixels.chunks_mut(side * side * 3).enumerate() {
        let mut stream = Key::new(seed, Purpose::Bench).sample((i % batch) as u64).stream();
        let mut draw = |below: usize| (stream.uniform() * below as f64) as usize;
        for _ in 0..6 {
            let (x, y, w, h) = (draw(side), draw(side), 4 + draw(side / 2), 4 + draw(side / 2));
            let color = [draw(256) as u8, draw(256) as u8, draw(256) as u8];
            for row in y..(y + h).min(side) {
                for column in x..(x + w).min(side) {
                    image[(row * side + column) * 3..][..3].copy_from_slice(&color);
                }
            }
        }
        // Views of one image are alike, not the same.
        image.iter_mut().for_each(|p| *p = p.wrapping_add((i / batch) as u8));
    }
    pixels
}

/// The views of a step: globals, then locals.
fn views_of(step: usize, batch: usize) -> [Vec<u8>; 2] {
    [images(step as u64, batch, 2, 64), images(step as u64, batch, LOCALS, 32)]
}

/// The losses and gradient norms of some steps.
fn train(learner: &mut Learner<Dino>, steps: usize, lr: f64) -> Vec<(f64, f64)> {
    train_by(learner, steps, lr, BATCH)
}

fn train_by(learner: &mut Learner<Dino>, steps: usize, lr: f64, batch: usize) -> Vec<(f64, f64)> {
    (0..steps)
        .map(|step| {
            let [globals, locals] = views_of(step, batch);
            let data = |pixels| PixelData::Bytes { pixels, mean: &[0.5; 3], deviation: &[0.25; 3] };
            one_step(learner, step, lr, batch, [data(&globals), data(&locals)])
        })
        .collect()
}

/// The same with images that are sent while the step before computes.
fn train_on_images_sent_ahead(learner: &mut Learner<Dino>, steps: usize, lr: f64) -> Vec<(f64, f64)> {
    let device = learner.device().clone();
    let send = |step: usize| views_of(step, BATCH).map(|bytes| device.upload_pixels(&bytes).unwrap());
    let mut next = send(0);
    (0..steps)
        .map(|step| {
            let sent = std::mem::replace(&mut next, send(step + 1));
            let data = |pixels| PixelData::Uploaded { pixels, first: 0, mean: &[0.5; 3], deviation: &[0.25; 3] };
            one_step(learner, step, lr, BATCH, [data(&sent[0]), data(&sent[1])])
        })
        .collect()
}

fn one_step(
    learner: &mut Learner<Dino>,
    step: usize,
    lr: f64,
    batch: usize,
    [globals, locals]: [PixelData<'_>; 2],
) -> (f64, f64) {
    let group = |count, side, data| Pixels { count, height: side, width: side, channels: 3, data };
    let views = [group(2 * batch, 64, globals), group(LOCALS * batch, 32, locals)];
    let segments = (2 + LOCALS) * batch;
    let keys = (0..segments).map(|s| Key::new(0, Purpose::DropPath).epoch(step as u64).sample(s as u64));
    let drop_path = DropPath::draw(DROP_PATH, learner.vit().config().depth, keys);
    let values = StepValues { lr, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
    let input = StepInput { groups: &views, keys: &vec![0; batch], drop_path: Some(&drop_path) };
    let report = learner.step(&input, Position { step: step as u64, epoch: 1 }, &values).unwrap();
    (report.loss, report.gradient.norm)
}

const MODES: [(Prototypes, Centering, bool); 4] = [
    (Prototypes::None, Centering::Logit, false),
    (Prototypes::Vmf, Centering::Probability, false),
    (Prototypes::Vmf, Centering::Logit, true),
    (Prototypes::L2, Centering::Probability, true),
];

/// How far a run may be from the same in double precision: losses and norms of gradients relative to their size, mean
/// gradients of single tensors relative to their norm.
struct Allowed {
    first_loss: f64,
    first_norm: f64,
    first_gradients: f64,
    /// After the first update, which divides a gradient by its own size: where it is nearly zero, noise takes a whole step.
    later_loss: f64,
    later_norm: f64,
}

/// The first gradient of every parameter and the losses of a few steps, in several modes.
#[track_caller]
fn follows(device: &Device, allowed: &Allowed) {
    for (prototypes, centering, batch_norm) in MODES {
        let mode = format!("{prototypes:?} {centering:?} batch norm {batch_norm}");
        let (mut ours, mut reference) =
            (learner(device, prototypes, centering, batch_norm), learner(&cpu(), prototypes, centering, batch_norm));
        let check = |step: usize, got: &[(f64, f64)], want: &[(f64, f64)], loss_off: f64, norm_off: f64| {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let (loss, norm) = ((got.0 - want.0).abs() / want.0, (got.1 - want.1).abs() / want.1);
                println!("{mode}, step {}: loss off by {loss:.1e}, gradient norm by {norm:.1e}", step + i);
                assert!(loss < loss_off && norm < norm_off, "{mode}, step {}: {got:?} is not {want:?}", step + i);
            }
        };
        let (got, want) = (train(&mut ours, 1, 1e-4), train(&mut reference, 1, 1e-4));
        check(0, &got, &want, allowed.first_loss, allowed.first_norm);
        // Some gradients are zero by a symmetry, and what is left of them is rounding: of the norm of all of them a
        // thousandth counts as nothing.
        let least = (1e-3 * want[0].1 * 0.1).powi(2);
        let mut worst = 0.0f64;
        for (i, spec) in ours.layout().specs().iter().enumerate() {
            let id = ParamId(i);
            let (got, want) =
                (ours.optimizer().first_moment()[id].to_f64(), reference.optimizer().first_moment()[id].to_f64());
            let difference: f64 = got.iter().zip(&want).map(|(g, w)| (g - w).powi(2)).sum();
            let size: f64 = want.iter().map(|w| w * w).sum();
            let off = (difference / size.max(least)).sqrt();
            worst = worst.max(off);
            assert!(off < allowed.first_gradients, "{mode}: the gradient of {} is off by {off:.1e}", spec.name);
        }
        println!("{mode}: gradients off by at most {worst:.1e}");
        let (got, want) = (train(&mut ours, 3, 1e-4), train(&mut reference, 3, 1e-4));
        check(1, &got, &want, allowed.later_loss, allowed.later_norm);
    }
}

#[test]
fn a_gpu_in_single_precision_trains_as_the_cpu_does() {
    let allowed =
        Allowed { first_loss: 1e-6, first_norm: 1e-5, first_gradients: 1e-4, later_loss: 1e-4, later_norm: 2e-3 };
    if let Some(device) = gpu(CudaPrecision::F32) {
        follows(&device, &allowed);
    }
}

#[test]
fn a_gpu_in_bfloat16_trains_as_the_cpu_does() {
    // Batch norm over the sixty rows of this batch makes rounding several times larger, in single precision too.
    let allowed =
        Allowed { first_loss: 2e-3, first_norm: 3e-2, first_gradients: 0.3, later_loss: 2e-2, later_norm: 0.1 };
    for device in STREAMS.into_iter().filter_map(gpu_in_bfloat16) {
        println!("{}", device.describe());
        follows(&device, &allowed);
    }
}

/// A longer run: the curve of losses stays beside the CPU's.
#[test]
fn a_gpu_follows_the_loss_curve_of_the_cpu() {
    let new = |device: &Device| learner(device, Prototypes::Vmf, Centering::Probability, false);
    let devices: Vec<Device> = STREAMS.into_iter().filter_map(gpu_in_bfloat16).collect();
    if devices.is_empty() {
        return;
    }
    let want = train(&mut new(&cpu()), 60, 5e-4);
    let mean = |losses: &[(f64, f64)]| losses.iter().map(|l| l.0).sum::<f64>() / losses.len() as f64;
    for device in devices {
        let got = train(&mut new(&device), 60, 5e-4);
        for (i, (got, want)) in got.chunks(10).zip(want.chunks(10)).enumerate() {
            let (got, want) = (mean(got), mean(want));
            println!("steps {}..{}: {got:.4} on {device:?}, {want:.4} on the CPU", 10 * i, 10 * i + 10);
            assert!((got - want).abs() < 0.03 * want, "{device:?}, steps from {}: {got} is not near {want}", 10 * i);
        }
    }
}

#[test]
fn a_gpu_trains_to_the_same_bits_twice() {
    for device in STREAMS.into_iter().filter_map(gpu_in_bfloat16) {
        let new = || learner(&device, Prototypes::Vmf, Centering::Probability, true);
        let first = train(&mut new(), 10, 5e-4);
        assert_eq!(train(&mut new(), 10, 5e-4), first);
        assert_eq!(train_on_images_sent_ahead(&mut new(), 10, 5e-4), first);
    }
}

/// As a program trains: the memory of a step is planned and its products are timed, on a handle of its own.
fn planned_run(residual: ResidualPrecision, checkpoint_activations: bool) -> Option<Vec<(f64, f64)>> {
    // Large enough for products that are worth timing, and of no round number of rows.
    const MANY: usize = 61;
    let device = gpu_in_bfloat16(residual)?;
    let (options, method) = options(Prototypes::Vmf, Centering::Probability, false);
    let options = LearnerOptions { checkpoint_activations, ..options };
    let need = MemoryNeed { options: &options, method: &method, batch: MANY, drop_path: DROP_PATH, evaluated: None };
    plan_and_reserve(&device, &need).unwrap();
    Some(train_by(&mut dino(&device, &options, &method), 10, 5e-4, MANY))
}

#[test]
fn a_gpu_plans_for_the_evaluation_between_the_steps() {
    let plan = |evaluated| {
        let device = gpu(CudaPrecision::Bf16)?;
        let (options, method) = options(Prototypes::Vmf, Centering::Probability, false);
        let need = MemoryNeed { options: &options, method: &method, batch: 1, drop_path: DROP_PATH, evaluated };
        plan_and_reserve(&device, &need).unwrap().map(|plan| plan.total)
    };
    let Some(steps) = plan(None) else { return };
    // Many more images than a step has, and far fewer.
    let shape = |count| ViewShape { count, height: 64, width: 64, channels: 3 };
    assert!(plan(Some(shape(4096))).unwrap() > 2 * steps);
    assert_eq!(plan(Some(shape(1))).unwrap(), steps);
}

#[test]
fn a_gpu_gives_the_same_bits_whatever_products_were_chosen_and_activations_kept() {
    for residual in STREAMS {
        let Some(first) = planned_run(residual, false) else { return };
        assert_eq!(planned_run(residual, false).unwrap(), first);
        assert_eq!(planned_run(residual, true).unwrap(), first);
    }
}
