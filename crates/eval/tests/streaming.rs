//! Features of any number of images are written within the memory of a batch.
//!
//! One test alone in its program, because it counts the memory of the whole of it.

#[path = "../../files/tests/counting/mod.rs"]
mod counting;

use std::ops::ControlFlow;
use std::path::Path;

use eval::{FeatureBatch, FeatureFormat, FeatureTokens, FeatureWriter, Network, Pooling, Preparation, ReadOptions};
use model::{Arch, Vit, VitConfig};
use tensor::{CpuOptions, Device};

const MIB: usize = 1 << 20;

/// The most memory that was taken on the way to all patch tokens of so many images in a file.
fn most_for(images: usize, path: &Path) -> usize {
    let device = Device::cpu(CpuOptions { threads: Some(1), ..Default::default() }).unwrap();
    let mut layout = model::Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig { depth: 1, ..VitConfig::new(Arch::Nano, 4, (32, 32), 3).unwrap() });
    let weights = layout.initial(&device, 0);
    let pooling = Pooling::of(FeatureTokens::Patches);
    let network = Network { pooling, ..Network::new(&vit, &weights, &device) };
    let source = data::open(&format!("synthetic:train={images},size=32"), data::Split::Train, 0).unwrap();
    let options = ReadOptions { batch_size: 16, workers: 1, ..Default::default() };
    let shape = pooling.shape(vit.config(), (32, 32));
    let write = || {
        let format = FeatureFormat::of(path).unwrap();
        let mut file = FeatureWriter::create(format, path, &shape, &*source, &[]).unwrap();
        let go_on = &mut |_| ControlFlow::Continue(());
        let add = &mut |batch: FeatureBatch<'_>| file.add(batch);
        eval::extract_each(network, &*source, &Preparation::Stretch((32, 32)), &options, go_on, add).unwrap();
        file.finish().unwrap();
    };
    counting::most_of(write).1
}

#[test]
fn the_memory_of_features_does_not_grow_with_the_images() {
    let folder = tempfile::tempdir().unwrap();
    // 64 patches of 64 values are 16 KiB an image. A parquet file is written in groups of 16 MiB, which grow by doubling.
    for (name, groups) in [("f.npy", 0), ("f.safetensors", 0), ("f.parquet", 32 * MIB)] {
        let path = folder.path().join(name);
        let (few, many) = (most_for(64, &path), most_for(4096, &path));
        let bytes = std::fs::metadata(&path).unwrap().len() as usize;
        println!("{name}: {} KiB for 64 images, {} KiB for 4,096 of {} MiB", few >> 10, many >> 10, bytes / MIB);
        assert!(bytes > 64 * MIB);
        // What threads hold at the same time differs from run to run.
        assert!(many < few + groups + 4 * MIB, "{name}: {few} bytes for 64 images, {many} for 4,096");
    }
}
