//! Whole networks on a GPU beside the same in double precision on the CPU. Runs where `DINO_VMF_TEST_GPU` is set
//! (`tools/gpu-test`), and is skipped elsewhere.

mod common;
mod gpu_device;
mod gpu_training;

use common::{dino_options, learner_options};
use gpu_device::gpu;
use gpu_training::{
    Allowed, BATCH, BFLOAT16, DROP_PATH, LOCALS, SIDES, SINGLE, STREAMS, cpu, gpu_in_bfloat16, head, one_step, train,
    train_by, views_of, vit,
};
use ssl::learner::{Learner, LearnerOptions};
use ssl::memory::{MemoryNeed, plan_and_reserve};
use ssl::method::MethodSpec;
use ssl::method::dino::DinoOptions;
use ssl::recipe::{Centering, Prototypes};
use ssl::view_plan::ViewShape;
use tensor::ops::PixelData;
use tensor::{CudaPrecision, Device, ResidualPrecision};

fn learner(device: &Device, prototypes: Prototypes, centering: Centering, batch_norm: bool) -> Learner {
    let (options, method) = options(prototypes, centering, batch_norm);
    gpu_training::learner(device, &options, &method)
}

fn options(prototypes: Prototypes, centering: Centering, batch_norm: bool) -> (LearnerOptions, DinoOptions) {
    let method = dino_options((prototypes, centering), head(batch_norm), (SIDES.0, SIDES.1, LOCALS));
    (learner_options(vit(), 3.0, 5), method)
}

/// Training with images that are sent while the step before computes.
fn train_on_images_sent_ahead(learner: &mut Learner, steps: usize, lr: f64) -> Vec<(f64, f64)> {
    let (device, plan) = (learner.device().clone(), learner.views().clone());
    let send = |step: usize| -> Vec<_> {
        views_of(&plan, step, BATCH).iter().map(|bytes| device.upload_pixels(bytes).unwrap()).collect()
    };
    let mut next = send(0);
    (0..steps)
        .map(|step| {
            let sent = std::mem::replace(&mut next, send(step + 1));
            let data = |pixels| PixelData::Uploaded { pixels, first: 0, mean: &[0.5; 3], deviation: &[0.25; 3] };
            one_step(learner, step, lr, BATCH, sent.iter().map(data).collect())
        })
        .collect()
}

const MODES: [(Prototypes, Centering, bool); 4] = [
    (Prototypes::None, Centering::Logit, false),
    (Prototypes::Vmf, Centering::Probability, false),
    (Prototypes::Vmf, Centering::Logit, true),
    (Prototypes::L2, Centering::Probability, true),
];

/// In several modes.
#[track_caller]
fn follows(device: &Device, allowed: &Allowed) {
    for (prototypes, centering, batch_norm) in MODES {
        let mode = format!("{prototypes:?} {centering:?} batch norm {batch_norm}");
        gpu_training::follows(device, &mode, |device| learner(device, prototypes, centering, batch_norm), allowed);
    }
}

#[test]
fn a_gpu_in_single_precision_trains_as_the_cpu_does() {
    if let Some(device) = gpu(CudaPrecision::F32) {
        follows(&device, &SINGLE);
    }
}

#[test]
fn a_gpu_in_bfloat16_trains_as_the_cpu_does() {
    for device in STREAMS.into_iter().filter_map(gpu_in_bfloat16) {
        println!("{}", device.describe());
        follows(&device, &BFLOAT16);
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
    let mut learner = Learner::new(&device, &options, |l, v, d| method.build(l, v, d)).unwrap();
    Some(train_by(&mut learner, 10, 5e-4, MANY))
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
