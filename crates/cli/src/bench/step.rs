//! `bench step`: how fast a training step is, on random pixels that are made before the clock starts.

use std::fmt::Write;
use std::time::{Duration, Instant};

use data::{IMAGENET_MEAN, IMAGENET_STD};
use model::{Arch, DropPath};
use random::{Key, Purpose};
use serde_json::{Map, Value, json};
use ssl::cost;
use ssl::learner::{LearnError, Learner, StepInput};
use ssl::memory::{MemoryNeed, plan_and_reserve};
use ssl::method;
use ssl::recipe::{Centering, Facts, MethodName, Prototypes, RawRecipe, Recipe, RecipeError};
use ssl::setup::learner_options;
use ssl::view_plan::{ViewShape, Viewer};
use tensor::ops::{self, Affine, PixelData, Pixels};
use tensor::{Device, KernelTime};
use train::Position;
use train::optimizer::StepValues;

use super::usage;
use crate::args::BenchStepArgs;
use crate::error::CliError;
use crate::memory;
use crate::output;

/// What to measure.
#[derive(Clone, Debug)]
pub struct StepBench {
    /// The method.
    pub method: MethodName,
    /// The backbone.
    pub arch: Arch,
    /// Side of a patch.
    pub patch_size: usize,
    /// Images of a step.
    pub batch_size: usize,
    /// Side of a global crop, of which each image has two.
    pub global_size: usize,
    /// Side of a local crop.
    pub local_size: usize,
    /// Local crops of each image.
    pub local_crops: usize,
    /// K, the number of prototypes.
    pub out_dim: usize,
    /// What the norms of the prototypes mean, where it is not as usual.
    pub prototypes: Option<Prototypes>,
    /// Where the teacher is centred, likewise.
    pub centering: Option<Centering>,
    /// Timed steps, after some that are not.
    pub steps: usize,
    /// Parts in which the images of a step are taken.
    pub accumulate: usize,
    /// Whether blocks are recomputed in the backward pass.
    pub checkpoint_activations: bool,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct StepFigures {
    /// Images per second at the median step, on a GPU at the mean one.
    pub images_per_second: f64,
    /// That step in milliseconds.
    pub step_ms: f64,
    /// Floating-point operations of a step as published FLOP counts have them, and the rate that makes.
    pub gflop_per_step: f64,
    /// Achieved GFLOP/s.
    pub gflops: f64,
    /// The most memory that the process held.
    pub peak_memory_bytes: u64,
    /// Loss of the last step, to show that it trained.
    pub loss: f64,
    /// What the norms of the prototypes meant.
    pub prototypes: Prototypes,
    /// Where the teacher was centred.
    pub centering: Centering,
    /// Patches that the student does not see in a step, in all views.
    pub hidden_patches: usize,
    /// Where a GPU's time went in one more step.
    pub kernels: Vec<KernelTime>,
}

/// The epoch that all steps are of: what is drawn for an epoch is the same in each of them.
const EPOCH: u64 = 1;

/// Steps before the clock starts.
const WARM_UP_STEPS: usize = 2;

/// Side of the matrices whose product says what the machine can do.
const GEMM_SIDE: usize = 1024;
/// The same for a GPU, which smaller ones do not fill.
const GPU_GEMM_SIDE: usize = 8192;
/// How long it is measured.
const GEMM_TIME: Duration = Duration::from_millis(300);

/// Measures and prints.
pub fn run(args: &BenchStepArgs) -> Result<(), CliError> {
    let residual = args.stream.unwrap_or_else(|| RawRecipe::default().residual_stream());
    let device = args.device.choose_for_training(residual, None)?.device;
    let bench = StepBench {
        method: args.method,
        arch: args.arch,
        patch_size: args.patch_size as usize,
        batch_size: args.batch_size as usize,
        global_size: args.views.global_size as usize,
        local_size: args.views.local_size as usize,
        local_crops: args.local_crops as usize,
        out_dim: args.out_dim as usize,
        prototypes: args.prototypes,
        centering: args.centering,
        steps: args.steps as usize,
        accumulate: args.accumulate as usize,
        checkpoint_activations: args.checkpoint_activations,
    };
    if args.kernels && !device.is_gpu() {
        output::note("--kernels lists those of a GPU; this runs on the CPU");
    }
    if args.stream.is_some() && !device.is_gpu() {
        output::note("--stream is for a GPU; a CPU keeps the residual stream in f32");
    }
    let figures = step(&device, &bench)?;
    let gemm_gflops = gemm_gflops(&device);
    let peak_gflops = device.peak_gflops().unwrap_or(gemm_gflops);
    let mfu = figures.gflops / peak_gflops;
    let shares = shares(&figures);
    if args.json {
        let object = json!({
            "images_per_second": figures.images_per_second, "step_ms": figures.step_ms, "mfu": mfu,
            "peak_memory_bytes": figures.peak_memory_bytes, "gflops": figures.gflops,
            "gflop_per_step": figures.gflop_per_step, "gemm_gflops": gemm_gflops, "loss": figures.loss,
            "device": device.describe(), "threads": device.threads(), "method": bench.method.as_str(), "arch": bench.arch.name(),
            "patch_size": bench.patch_size, "batch_size": bench.batch_size, "local_crops": bench.local_crops,
            "global_size": bench.global_size, "local_size": bench.local_size,
            "out_dim": bench.out_dim, "prototypes": figures.prototypes.as_str(), "centering": figures.centering.as_str(),
            "hidden_patches": figures.hidden_patches, "accumulate": bench.accumulate,
            "checkpoint_activations": bench.checkpoint_activations, "steps": bench.steps,
            "stream": if device.is_gpu() { residual.as_str() } else { "f32" },
            "shares": shares.iter().cloned().collect::<Map<_, _>>(),
        });
        return output::json(&object);
    }
    let mut detail = String::new();
    for (group, share) in &shares {
        let _ = write!(detail, "\n  {:5.1} %  {group}", 100.0 * share.as_f64().unwrap_or(0.0));
    }
    if args.kernels {
        for k in &figures.kernels {
            let _ = write!(detail, "\n  {:8.3} ms  {:4} x {}: {}", k.milliseconds, k.count, k.group, k.name);
        }
    }
    output::result(&format!(
        "{}, {}/{}, batch {}{}{}, 2 crops of {} pixels + {} of {}, K {} ({}, {}), on {}\n  {:.2} images/s, {:.0} ms a step ({} of {})\n  \
         {:.0} GFLOP/s, {:.0} % of {:.0} GFLOP/s ({})\n  {} peak memory{detail}",
        bench.method,
        bench.arch,
        bench.patch_size,
        bench.batch_size,
        if bench.accumulate > 1 { format!(" in {} parts", bench.accumulate) } else { String::new() },
        if bench.checkpoint_activations { ", activations recomputed" } else { "" },
        bench.global_size,
        bench.local_crops,
        bench.local_size,
        bench.out_dim,
        figures.prototypes,
        figures.centering,
        device.describe(),
        figures.images_per_second,
        figures.step_ms,
        if device.is_gpu() { "mean" } else { "median" },
        bench.steps,
        figures.gflops,
        100.0 * mfu,
        peak_gflops,
        if device.peak_gflops().is_some() { "the data sheet's" } else { "a matrix product here" },
        text::bytes(figures.peak_memory_bytes),
    ))
}

/// The share of a step in each group of kernels, and in none of them.
fn shares(figures: &StepFigures) -> Vec<(String, Value)> {
    let mut shares: Vec<(String, f64)> = Vec::new();
    for k in &figures.kernels {
        let share = k.milliseconds / figures.step_ms;
        match shares.iter_mut().find(|(group, _)| group == k.group) {
            Some((_, sum)) => *sum += share,
            None => shares.push((k.group.to_owned(), share)),
        }
    }
    if !shares.is_empty() {
        shares.push(("gaps".to_owned(), 1.0 - shares.iter().map(|(_, share)| share).sum::<f64>()));
    }
    shares.into_iter().map(|(group, share)| (group, json!(share))).collect()
}

/// The rate of a matrix product on this device, the best of several: the limit for what is made of such products.
pub fn gemm_gflops(device: &Device) -> f64 {
    let side = if device.is_gpu() { GPU_GEMM_SIDE } else { GEMM_SIDE };
    // Not all the same: on equal numbers a GPU draws less power and runs faster.
    let values: Vec<f32> = (0..side * side).map(|i| (i * 7919 % 1999) as f32 / 1999.0 - 0.5).collect();
    let x = device.from_f32(&[side, side], &values);
    let bias = device.zeros(&[side]);
    let flop = 2.0 * (side as f64).powi(3);
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed() < GEMM_TIME || best.is_infinite() {
        let one = Instant::now();
        drop(ops::linear(&x, &Affine::new(&x, &bias)));
        if device.finish().is_err() {
            break;
        }
        best = best.min(one.elapsed().as_secs_f64());
    }
    flop / best / 1e9
}

/// Data of the size that published recipes are for. There are no images: pixels are noise.
const IMAGENET: Facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: false, fingerprint: 0 };

/// What is trained: a method with its published settings but for what was asked for.
fn recipe(bench: &StepBench) -> Result<Recipe, RecipeError> {
    let of_method = match bench.method {
        MethodName::Dino | MethodName::Ibot => {
            "teacher_temp = 0.04\nwarmup_teacher_temp_epochs = 0\nfreeze_last_layer = 0\ndrop_path = 0.1"
        }
        MethodName::Msn => "head_batch_norm = true\ndrop_path = 0.0",
    };
    let StepBench { method, arch, patch_size, batch_size, global_size, local_size, local_crops, out_dim, .. } = bench;
    let StepBench { accumulate, checkpoint_activations, .. } = bench;
    let given = |key: &str, word: Option<&str>| word.map_or(String::new(), |word| format!("{key} = \"{word}\"\n"));
    let of_prototypes = given("prototypes", bench.prototypes.map(Prototypes::as_str))
        + &given("centering", bench.centering.map(Centering::as_str));
    let text = format!(
        "method = \"{method}\"\narch = \"{arch}\"\npatch_size = {patch_size}\nbatch_size = {batch_size}\n\
         global_size = {global_size}\nlocal_size = {local_size}\nlocal_crops = {local_crops}\nout_dim = {out_dim}\n\
         head_hidden = 2048\nhead_bottleneck = 256\naccumulate = {accumulate}\n\
         checkpoint_activations = {checkpoint_activations}\n{of_prototypes}{of_method}"
    );
    RawRecipe::from_toml(&text, "bench step")?.resolve(&IMAGENET)
}

/// Runs the steps.
pub fn step(device: &Device, bench: &StepBench) -> Result<StepFigures, CliError> {
    let recipe = recipe(bench)?;
    let (options, method) = (learner_options(&recipe)?, method::of(&recipe));
    let (batch, depth, drop_rate) = (bench.batch_size, options.vit.depth, recipe.drop_path());
    let need = MemoryNeed { options: &options, method: &*method, batch, drop_path: drop_rate, evaluated: None };
    memory::check(device, &need)?;
    let flop = batch as f64 * cost::of_recipe(&recipe).map_or(0.0, |(image, _)| image);
    plan_and_reserve(device, &need)?;
    let mut learner = Learner::new(device, &options, |layout, vit, device| method.build(layout, vit, device))?;
    let values = StepValues { lr: 1e-4, weight_decay: 0.04, momentum: 0.996, frozen: false, waiting_lr: 1.0 };
    let plan = method.views();
    let shapes = plan.shapes(batch);
    let images: Vec<Vec<u8>> = (0..).zip(&shapes).map(|(seed, shape)| noise(seed, shape.bytes())).collect();
    let sent: Vec<_> = images.iter().map(|pixels| device.upload_pixels(pixels)).collect();
    let (mean, deviation) = (&IMAGENET_MEAN[..], &IMAGENET_STD[..]);
    let pairs = shapes.iter().zip(images.iter().zip(&sent));
    let groups: Vec<Pixels<'_>> = pairs
        .map(|(&ViewShape { count, height, width, channels }, (pixels, sent))| {
            let data = match sent {
                Some(pixels) => PixelData::Uploaded { pixels, first: 0, mean, deviation },
                None => PixelData::Bytes { pixels, mean, deviation },
            };
            Pixels { count, height, width, channels, data }
        })
        .collect();
    let rows = plan.seen_by(Viewer::Student).len() * batch;
    let mut times = Vec::with_capacity(bench.steps);
    let mut loss = f64::NAN;
    let keys_of_images: Vec<u64> = (0..batch as u64).collect();
    let hidden_of = |&key: &u64| method.hidden_patches(key, EPOCH).iter().map(Vec::len).sum::<usize>();
    let hidden_patches = keys_of_images.iter().map(hidden_of).sum();
    let mut one_step = |i: usize| {
        let keys = (0..rows).map(|s| Key::new(0, Purpose::DropPath).epoch(i as u64).sample(s as u64));
        let drop_path = (drop_rate > 0.0).then(|| DropPath::draw(drop_rate, depth, keys));
        let input = StepInput { groups: &groups, keys: &keys_of_images, drop_path: drop_path.as_ref() };
        learner.step(&input, Position { step: i as u64, epoch: EPOCH }, &values)
    };
    for i in 0..WARM_UP_STEPS {
        one_step(i).map_err(LearnError::from)?;
    }
    device.finish()?;
    let all = Instant::now();
    for i in 0..bench.steps {
        let start = Instant::now();
        loss = one_step(WARM_UP_STEPS + i).map_err(LearnError::from)?.loss;
        times.push(start.elapsed().as_secs_f64());
    }
    device.finish()?;
    let mean = all.elapsed().as_secs_f64() / bench.steps as f64;
    let peak_memory_bytes = if device.is_gpu() { device.memory().peak_bytes as u64 } else { usage::peak_memory() };
    let kernels = if device.is_gpu() { device.profile(|| one_step(WARM_UP_STEPS + bench.steps)).1 } else { Vec::new() };
    times.sort_by(f64::total_cmp);
    // A step that was queued is not a step that is done, so on a GPU only the time of all of them counts.
    let step = if device.is_gpu() { mean } else { times[times.len() / 2] };
    Ok(StepFigures {
        images_per_second: bench.batch_size as f64 / step,
        step_ms: step * 1e3,
        gflop_per_step: flop / 1e9,
        gflops: flop / step / 1e9,
        peak_memory_bytes,
        loss,
        prototypes: recipe.prototypes(),
        centering: recipe.centering(),
        hidden_patches,
        kernels,
    })
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&stream.bits().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
