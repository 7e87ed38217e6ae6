//! Features of a GPU against those of the CPU: what `--precision f32` promises. Needs a GPU, see `tools/gpu-test`.

use std::ops::ControlFlow;

use eval::{Features, Network, Place, Pooling, Preparation, ReadOptions, Twin, after_norm, extract, nearest_rows};
use model::{Arch, Layout, Vit, VitConfig};
use random::{Key, Purpose};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, CudaOptions, CudaPrecision, DType, Device, ResidualPrecision};

/// Features of the same images by the same network.
fn features(device: &Device) -> Features {
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (96, 96), 3).unwrap());
    let weights = layout.initial(device, 3);
    let network = Network::new(&vit, &weights, device);
    let source = data::open("synthetic:train=40,size=96", data::Split::Train, 0).unwrap();
    let go_on = &mut |_| ControlFlow::Continue(());
    extract(network, &*source, &Preparation::Cover((96, 96)), &Default::default(), go_on).unwrap().features
}

#[test]
fn on_a_gpu_the_class_token_before_the_norm_gives_the_one_after_it_whatever_the_stream_is_kept_in() {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return;
    }
    for (precision, residual) in [
        (CudaPrecision::F32, ResidualPrecision::F32),
        (CudaPrecision::Bf16, ResidualPrecision::Bf16),
        (CudaPrecision::Bf16, ResidualPrecision::F32),
    ] {
        let device = Device::cuda(CudaOptions { precision, residual, ..CudaOptions::default() }).unwrap();
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (96, 96), 3).unwrap());
        let weights = layout.initial(&device, 3);
        let source = data::open("synthetic:train=40,size=96", data::Split::Train, 0).unwrap();
        let of = |norm| {
            let pooling = Pooling { norm, ..Pooling::default() };
            let network = Network { pooling, ..Network::new(&vit, &weights, &device) };
            let go_on = &mut |_| ControlFlow::Continue(());
            extract(network, &*source, &Preparation::Cover((96, 96)), &Default::default(), go_on).unwrap().features
        };
        let again = after_norm(Network::new(&vit, &weights, &device), &of(false)).unwrap();
        assert_eq!(again, of(true), "{precision:?}, {residual:?}");
    }
}

/// The largest distance of two features of an image, relative to their length.
fn deviation(a: &Features, b: &Features) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let of_row = |row: usize| {
        let (a, b) = (a.row(row), b.row(row));
        let difference = norm(&mut a.iter().zip(b).map(|(x, y)| f64::from(x - y)));
        difference / norm(&mut b.iter().map(|&y| f64::from(y)))
    };
    assert_eq!(a.len(), b.len());
    (0..a.len()).map(of_row).fold(0.0, f64::max)
}

#[test]
fn gpu_features_in_f32_are_those_of_the_cpu_and_closer_than_in_bf16() {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return;
    }
    let cpu = features(&Device::cpu(Default::default()).unwrap());
    let gpu = |precision, dtype| {
        let device = Device::cuda(CudaOptions { precision, ..CudaOptions::default() }).unwrap();
        assert_eq!(device.dtype(), dtype);
        deviation(&features(&device), &cpu)
    };
    let (f32, bf16) = (gpu(CudaPrecision::F32, DType::F32), gpu(CudaPrecision::Bf16, DType::Bf16));
    println!("largest relative deviation from the CPU: {f32:.1e} in f32, {bf16:.1e} in bf16");
    assert!(f32 < 1e-5, "{f32}");
    assert!(bf16 > f32 && bf16 < 0.05, "{bf16}");
}

#[test]
fn the_class_token_of_a_gpu_looks_where_that_of_the_cpu_does() {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return;
    }
    let attention = |device: &Device| {
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (96, 96), 3).unwrap());
        let weights = layout.initial(device, 3);
        let pixels: Vec<u8> = (0..2 * 64 * 128 * 3).map(|i| (i * 37 % 251) as u8).collect();
        let data = PixelData::Bytes { pixels: &pixels, mean: &[0.5; 3], deviation: &[0.25; 3] };
        let images = Pixels { count: 2, height: 64, width: 128, channels: 3, data };
        let found = vit.class_attention(&weights, device, &[images]).unwrap();
        device.finish().unwrap();
        found
    };
    let cpu = attention(&Device::cpu(Default::default()).unwrap());
    let options = CudaOptions { precision: CudaPrecision::F32, ..CudaOptions::default() };
    let gpu = attention(&Device::cuda(options).unwrap());
    for (gpu, cpu) in gpu.iter().zip(&cpu) {
        assert_eq!(gpu.grid, (4, 8));
        for (gpu, cpu) in gpu.weights.iter().zip(&cpu.weights) {
            assert!((gpu - cpu).abs() < 1e-5 * cpu, "{gpu} {cpu}");
        }
    }
}

#[test]
fn two_networks_on_a_gpu_that_share_the_images_give_what_one_gives() {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return;
    }
    // Each has a stream of its own, on one GPU or on two.
    let [first, second] =
        [0, 1].map(|_| Device::cuda(CudaOptions { precision: CudaPrecision::F32, ..CudaOptions::default() }).unwrap());
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Tiny, 16, (96, 96), 3).unwrap());
    let weights = layout.initial(&first, 3);
    let twins = [Twin::of(&weights, &second)];
    let source = data::open("synthetic:train=200,size=96", data::Split::Train, 0).unwrap();
    let of = |network: Network<'_>| {
        let read = ReadOptions { batch_size: 16, ..Default::default() };
        let go_on = &mut |_| ControlFlow::Continue(());
        extract(network, &*source, &Preparation::Cover((96, 96)), &read, go_on).unwrap().features
    };
    let alone = Network::new(&vit, &weights, &first);
    assert_eq!(of(Network { twins: &twins, ..alone }), of(alone));
}

/// Signs in 64 dimensions have lengths and cosines without any rounding, and thousands of them are equal.
fn signs(stream: u64, rows: usize) -> Features {
    let mut numbers = Key::new(stream, Purpose::Bench).stream();
    let values = (0..rows * 64).map(|_| if numbers.chance(0.5) { 1.0 } else { -1.0 });
    Features::labelled(64, values.collect(), &vec![0; rows])
}

#[test]
fn neighbours_that_a_gpu_selects_are_those_that_the_cpu_reads() {
    if std::env::var_os("DINO_VMF_TEST_GPU").is_none() {
        eprintln!("skipped: DINO_VMF_TEST_GPU is not set");
        return;
    }
    let gpu = Device::cuda(CudaOptions { precision: CudaPrecision::F32, ..CudaOptions::default() }).unwrap();
    let host = Device::cpu(CpuOptions::default()).unwrap();
    // More than a block of both kinds.
    let (train, test) = (signs(7, 66_000), signs(8, 1030));
    for k in [1, 20, 200] {
        let selected = nearest_rows(Place::new(&host, &gpu), &train, &test, k).unwrap();
        assert!(selected == nearest_rows(&host, &train, &test, k).unwrap(), "k = {k}");
    }
}
