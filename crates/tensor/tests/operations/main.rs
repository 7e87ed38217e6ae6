//! One list of operations, run on every kind of device and every number of threads.
//!
//! Shapes are large enough that a kernel cuts its work into several tasks, and uneven enough that the last one is short.
//! A GPU takes part where the environment variable `DINO_VMF_TEST_GPU` is set (see `tools/gpu-test`).

mod largest;
mod layers;
mod losses;
mod optimizer;
mod stream;
mod tokens;

use random::{Key, Purpose};
use tensor::{CpuOptions, CudaOptions, CudaPrecision, Device, Precision, ResidualPrecision, Tensor};

/// What an operation gave, by name.
type Outputs = Vec<(&'static str, Vec<f64>)>;

/// Some operations that belong together, forward and backward.
#[derive(Clone)]
struct Operation {
    name: &'static str,
    /// How far single precision may be from double precision, relative to an output's largest element.
    tolerance: f64,
    run: fn(&Device) -> Outputs,
}

fn operations() -> Vec<Operation> {
    [on_exact_values(), stream::operations()].concat()
}

/// Those whose inputs every device holds exactly.
fn on_exact_values() -> Vec<Operation> {
    let all = [
        layers::operations(),
        tokens::operations(),
        losses::operations(),
        optimizer::operations(),
        largest::operations(),
    ];
    all.concat()
}

/// Standard normal values, the same on every device: they are exact in bfloat16.
fn values(seed: u64, shape: &[usize]) -> Vec<f64> {
    let mut stream = Key::new(seed, Purpose::Bench).stream();
    let rounded = |x: f32| f32::from_bits(x.to_bits() & 0xffff_0000);
    (0..shape.iter().product()).map(|_| f64::from(rounded(stream.normal() as f32))).collect()
}

/// Activations.
fn normal(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.from_f64(shape, &values(seed, shape))
}

/// The residual stream, or its gradient.
fn stream(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.residual_from_f64(shape, &values(seed, shape))
}

/// Parameters, statistics or losses.
fn exact(device: &Device, seed: u64, shape: &[usize]) -> Tensor {
    device.exact_from_f64(shape, &values(seed, shape))
}

fn cpu(threads: usize, precision: Precision) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
}

fn run(operation: &Operation, device: &Device) -> Outputs {
    let outputs = (operation.run)(device);
    device.finish().unwrap();
    for (output, values) in &outputs {
        assert!(values.iter().all(|v| v.is_finite()), "{}: {output} is not finite", operation.name);
    }
    outputs
}

/// Runs operations on a device and in double precision on the host; `looser` multiplies the tolerances, and `rounding` is
/// what rounding a result to the device's type may cost.
#[track_caller]
fn follow_double_precision(operations: Vec<Operation>, device: &Device, looser: f64, rounding: f64) {
    let reference = cpu(2, Precision::F64);
    for operation in operations {
        let (got, want) = (run(&operation, device), run(&operation, &reference));
        for ((output, got), (_, want)) in got.iter().zip(&want) {
            assert_eq!(got.len(), want.len(), "{}: {output}", operation.name);
            let scale = want.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
            let error = got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max) / scale;
            println!("{}: {output} differs by {error:.1e}", operation.name);
            let allowed = operation.tolerance * looser + rounding;
            assert!(error <= allowed, "{}: {output} differs by {error:e}", operation.name);
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    for (precision, threads) in [(Precision::F32, &[1, 2, 3, 4][..]), (Precision::F64, &[1, 3])] {
        let devices: Vec<Device> = threads.iter().map(|&threads| cpu(threads, precision)).collect();
        for operation in operations() {
            let first = run(&operation, &devices[0]);
            for (device, threads) in devices.iter().zip(threads).skip(1) {
                for ((output, got), (_, want)) in run(&operation, device).iter().zip(&first) {
                    let same = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| g.to_bits() == w.to_bits());
                    assert!(same, "{}: {output} depends on the number of threads ({threads})", operation.name);
                }
            }
        }
    }
}

#[test]
fn single_precision_follows_double_precision() {
    follow_double_precision(operations(), &cpu(2, Precision::F32), 1.0, 0.0);
}

/// The GPU, where one is to be tested.
fn gpu(precision: CudaPrecision, residual: ResidualPrecision) -> Option<Device> {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return None;
    }
    Some(Device::cuda(CudaOptions { index: 0, precision, residual }).unwrap())
}

#[test]
fn a_gpu_in_single_precision_follows_double_precision() {
    if let Some(device) = gpu(CudaPrecision::F32, ResidualPrecision::Bf16) {
        follow_double_precision(operations(), &device, 4.0, 0.0);
    }
}

#[test]
fn a_gpu_in_bfloat16_follows_double_precision() {
    // A stream in bfloat16 rounds the inputs of the other operations before they begin.
    if let Some(device) = gpu(CudaPrecision::Bf16, ResidualPrecision::Bf16) {
        follow_double_precision(on_exact_values(), &device, 1024.0, 1.0 / 256.0);
    }
}

#[test]
fn a_gpu_in_bfloat16_with_a_stream_in_single_precision_follows_double_precision() {
    if let Some(device) = gpu(CudaPrecision::Bf16, ResidualPrecision::F32) {
        follow_double_precision(operations(), &device, 1024.0, 1.0 / 256.0);
        // What stays on the stream is held to what a GPU in single precision is held to.
        follow_double_precision(stream::operations(), &device, 4.0, 0.0);
    }
}

#[test]
fn a_gpu_gives_the_same_bits_twice() {
    for (precision, residual) in [
        (CudaPrecision::F32, ResidualPrecision::F32),
        (CudaPrecision::Bf16, ResidualPrecision::Bf16),
        (CudaPrecision::Bf16, ResidualPrecision::F32),
    ] {
        let Some(device) = gpu(precision, residual) else { return };
        for operation in operations() {
            let (first, second) = (run(&operation, &device), run(&operation, &device));
            for ((output, a), (_, b)) in first.iter().zip(&second) {
                let same = a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{}: {output} differs from run to run", operation.name);
            }
        }
    }
}
