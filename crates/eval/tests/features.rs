//! Features of a source: the same however they are read, and what happens to images and networks that are broken.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use data::{DecodeLimits, Image, ReadError, Source, Split, Stored};
use eval::{
    EvalError, Extraction, FeatureBatch, FeatureTokens, FeatureWriter, Features, InputSpec, Network, OnlineKnn,
    OnlineKnnOptions, Pooling, Preparation, ReadOptions, ReadProgress, after_norm, extract, extract_each, raw_pixels,
    save,
};
use model::{Extras, Layout, Readout, Vit, VitConfig};
use safetensors::SafeTensors;
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, ParamSet, Precision};

/// Images of any size and shape; some cannot be read.
struct Made {
    images: Vec<Option<Image>>,
    class_names: Vec<String>,
}

impl Source for Made {
    fn len(&self) -> usize {
        self.images.len()
    }
    fn fetch(&self, index: usize, _: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        let Some(Image { height, width, channels, pixels }) = self.images[index].clone() else {
            return Err(ReadError::FileTooLarge { name: self.name(index), limit: 7 });
        };
        *bytes = pixels;
        Ok(Stored::Pixels { height, width, channels })
    }
    fn label(&self, index: usize) -> Option<u32> {
        (!self.class_names.is_empty()).then_some(index as u32 % 2)
    }
    fn class_names(&self) -> &[String] {
        &self.class_names
    }
    fn name(&self, index: usize) -> String {
        format!("made \"{index}\".png")
    }
    fn describe(&self) -> String {
        "made".to_owned()
    }
    fn fingerprint(&self) -> u64 {
        0
    }
}

fn picture(number: usize, width: usize, height: usize) -> Image {
    let level = |i: usize| ((i * 31 + number * 97) ^ (i >> 3)) as u8;
    Image::from_pixels(width, height, 3, (0..width * height * 3).map(level).collect())
}

fn made(broken: &[usize]) -> Made {
    let image = |i: usize| (!broken.contains(&i)).then(|| picture(i, 20 + i, 17 + (i * 5) % 13));
    Made { images: (0..11).map(image).collect(), class_names: vec!["é".to_owned(), "dog".to_owned()] }
}

struct Net {
    vit: Vit,
    weights: ParamSet,
    device: Device,
}

impl Net {
    fn new(channels: usize) -> Self {
        Self::of(channels, Extras::NONE)
    }

    fn with(extras: Extras) -> Self {
        Self::of(3, extras)
    }

    fn of(channels: usize, extras: Extras) -> Self {
        let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F32 }).unwrap();
        let config =
            VitConfig { dim: 64, depth: 2, heads: 1, mlp_dim: 64, patch: 4, image: (12, 16), channels, extras };
        let mut layout = Layout::default();
        let vit = Vit::new(&mut layout, "", config);
        let weights = layout.initial(&device, 7);
        Self { vit, weights, device }
    }

    fn extract(&self, source: &dyn Source, options: &ReadOptions) -> Result<Extraction, EvalError> {
        let network = Network::new(&self.vit, &self.weights, &self.device);
        extract(network, source, &Preparation::Cover((12, 16)), options, &mut |_| ControlFlow::Continue(()))
    }
}

#[test]
fn features_are_those_of_each_image_alone_whatever_the_batch_and_the_workers() {
    let (net, source) = (Net::new(3), made(&[]));
    let all = net.extract(&source, &ReadOptions { batch_size: 64, workers: 3, ..Default::default() }).unwrap().features;
    assert_eq!((all.dim, all.len(), all.indices.len()), (64, 11, 11));
    for options in [
        ReadOptions { batch_size: 1, workers: 1, ..Default::default() },
        ReadOptions { batch_size: 4, workers: 2, ..Default::default() },
    ] {
        let others = net.extract(&source, &options).unwrap().features;
        assert!(all.values.iter().zip(&others.values).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    let image = Preparation::Cover((12, 16)).apply(&source.read(5).unwrap()).unwrap();
    let chw: Vec<f64> = data::normalize_chw(&image).into_iter().map(f64::from).collect();
    let pixels = Pixels { count: 1, height: 12, width: 16, channels: 3, data: PixelData::Values(&chw) };
    let want = net.vit.features(&net.weights, &net.device, &[pixels]).unwrap().to_f32();
    assert!(all.row(5).iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{:?} {want:?}", all.row(5));
}

#[test]
fn tokens_from_before_the_norm_give_those_after_it_to_the_bit() {
    let (net, source, options) = (Net::new(3), made(&[3]), ReadOptions::default());
    let after = net.extract(&source, &options).unwrap().features;
    let network = Network::new(&net.vit, &net.weights, &net.device);
    let pooled = Network { pooling: Pooling { norm: false, ..Pooling::default() }, ..network };
    let go_on = &mut |_| ControlFlow::Continue(());
    let before = extract(pooled, &source, &Preparation::Cover((12, 16)), &options, go_on).unwrap().features;
    assert_ne!(before, after);
    assert_eq!(after_norm(network, &before).unwrap(), after);
}

#[test]
fn images_that_cannot_be_used_are_skipped_and_named() {
    let (net, mut source) = (Net::new(3), made(&[0, 4, 5, 10]));
    source.images[2] = Some(Image::black(9, 9, 5));
    source.images[7] = Some(Image::black(1, 1_000_000, 3));
    let whole = net.extract(&made(&[]), &ReadOptions::default()).unwrap().features;
    for batch_size in [2, 64] {
        let Extraction { features, skipped, .. } =
            net.extract(&source, &ReadOptions { batch_size, workers: 2, ..Default::default() }).unwrap();
        assert_eq!(features.indices, [1, 3, 6, 8, 9]);
        assert_eq!(features.labels, [Some(1), Some(1), Some(0), Some(0), Some(1)]);
        assert_eq!(skipped.iter().map(|s| s.index).collect::<Vec<_>>(), [0, 2, 4, 5, 7, 10]);
        assert_eq!(skipped[0].name, "made \"0\".png");
        assert!(skipped[0].reason.contains("limit of 7 bytes"));
        assert!(skipped[1].reason.contains("5 channel(s)") && skipped[4].reason.contains("too long and thin"));
        for (row, &index) in features.indices.iter().enumerate() {
            assert!(features.row(row).iter().zip(whole.row(index)).all(|(a, b)| (a - b).abs() < 1e-5));
        }
    }
}

#[test]
fn a_source_without_one_usable_image_is_an_error_that_names_some() {
    let source = made(&(0..11).collect::<Vec<_>>());
    let message = Net::new(3).extract(&source, &ReadOptions::default()).unwrap_err().to_string();
    assert!(
        message.starts_with("none of the 11 images can be used (made). The first:\n  made \"0\".png: "),
        "{message}"
    );
    assert_eq!(message.lines().count(), 11);
}

#[test]
fn progress_counts_to_the_end_and_can_stop() {
    let (net, source) = (Net::new(3), made(&[1]));
    let network = Network::new(&net.vit, &net.weights, &net.device);
    let (mut seen, options) = (Vec::new(), ReadOptions { batch_size: 4, workers: 2, ..Default::default() });
    let all = &mut |p: ReadProgress| {
        seen.push((p.done, p.total, p.skipped));
        ControlFlow::Continue(())
    };
    extract(network, &source, &Preparation::Cover((12, 16)), &options, all).unwrap();
    assert_eq!(seen, [(4, 11, 1), (8, 11, 1), (11, 11, 1)]);
    let stop = &mut |_| ControlFlow::Break(());
    let stopped = extract(network, &source, &Preparation::Cover((12, 16)), &options, stop);
    assert!(matches!(stopped, Err(EvalError::Stopped)));
}

#[test]
fn networks_and_settings_that_cannot_work_are_refused() {
    let source = made(&[]);
    let four = Net::new(4).extract(&source, &ReadOptions::default());
    assert!(matches!(&four, Err(EvalError::NothingReadable { first, .. }) if first[0].reason.contains("4 are wanted")));
    let mut net = Net::new(3);
    for options in
        [ReadOptions { batch_size: 0, ..Default::default() }, ReadOptions { workers: 0, ..Default::default() }]
    {
        assert!(matches!(net.extract(&source, &options), Err(EvalError::Setting { .. })));
    }
    let network = Network::new(&net.vit, &net.weights, &net.device);
    let go_on = &mut |_| ControlFlow::Continue(());
    let small = extract(network, &source, &Preparation::Cover((3, 16)), &ReadOptions::default(), go_on);
    assert!(matches!(small, Err(EvalError::Network(_))), "an image below a patch");
    net.weights.tensors_mut()[0].fill(f64::NAN);
    let error = net.extract(&source, &ReadOptions::default()).unwrap_err();
    assert!(matches!(&error, EvalError::NotFinite { name } if name == "made \"0\".png"), "{error}");
}

#[test]
fn every_choice_of_tokens_is_what_the_network_gives_for_an_image_alone() {
    let (net, source) = (Net::with(Extras { registers: 2, ..Extras::NONE }), made(&[2]));
    let image = Preparation::Cover((12, 16)).apply(&source.read(5).unwrap()).unwrap();
    let chw: Vec<f64> = data::normalize_chw(&image).into_iter().map(f64::from).collect();
    let pixels = Pixels { count: 1, height: 12, width: 16, channels: 3, data: PixelData::Values(&chw) };
    for norm in [true, false] {
        let readout = Readout { tokens: model::Tokens::All, layers: 2, norm };
        let images = Pixels { data: PixelData::Values(&chw), ..pixels };
        let read = net.vit.read(&net.weights, &net.device, &[images], &readout).unwrap();
        let read: Vec<Vec<f32>> = read.iter().map(|tokens| tokens.to_f32()).collect();
        let (first, last) = (&read[0], &read[1]);
        // A class token, two registers and twelve patches of 64 values.
        assert_eq!(last.len(), 15 * 64);
        let patches = &last[3 * 64..];
        let mean: Vec<f32> = (0..64).map(|i| patches[i..].iter().step_by(64).sum::<f32>() / 12.0).collect();
        let class = |layer: &[f32]| layer[..64].to_vec();
        for (tokens, layers, want) in [
            (FeatureTokens::Class, 1, class(last)),
            (FeatureTokens::Class, 2, [class(first), class(last)].concat()),
            (FeatureTokens::Mean, 1, mean.clone()),
            (FeatureTokens::Both, 1, [class(last), mean.clone()].concat()),
            (FeatureTokens::Both, 2, [class(first), class(last), mean.clone()].concat()),
            (FeatureTokens::Patches, 1, patches.to_vec()),
        ] {
            let pooling = Pooling { tokens, layers, norm };
            let network = Network { pooling, ..Network::new(&net.vit, &net.weights, &net.device) };
            let options = ReadOptions { batch_size: 4, workers: 2, ..Default::default() };
            let go_on = &mut |_| ControlFlow::Continue(());
            let found = extract(network, &source, &Preparation::Cover((12, 16)), &options, go_on).unwrap().features;
            assert_eq!((found.len(), found.dim), (10, want.len()), "{pooling:?}");
            // Image 2 is left out.
            let worst = found.row(4).iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{pooling:?}: {worst}");
        }
    }
}

#[test]
fn features_are_handed_on_batch_by_batch_into_files_of_the_same_rows() {
    let (net, source) = (Net::new(3), made(&[4]));
    let pooling = Pooling::of(FeatureTokens::Patches);
    let network = Network { pooling, ..Network::new(&net.vit, &net.weights, &net.device) };
    let (prepare, go_on) = (Preparation::Cover((12, 16)), &mut |_| ControlFlow::Continue(()));
    let options = ReadOptions { batch_size: 3, workers: 2, ..Default::default() };
    let whole = extract(network, &source, &prepare, &options, go_on).unwrap().features;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.safetensors");
    let shape = pooling.shape(net.vit.config(), (12, 16));
    let format = eval::FeatureFormat::Safetensors;
    let mut file = FeatureWriter::create(format, &path, &shape, &source, &pooling.metadata()).unwrap();
    let mut batches = Vec::new();
    let pass = extract_each(network, &source, &prepare, &options, go_on, &mut |batch: FeatureBatch<'_>| {
        batches.push(batch.indices.len());
        file.add(batch)
    });
    assert_eq!((pass.unwrap().skipped.len(), batches), (1, vec![3, 2, 3, 2]));
    file.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let features = read.tensor("features").unwrap();
    let values: Vec<f32> = features.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!((features.shape(), values == whole.values), (&[10, 12, 64][..], true));
    assert_eq!(eval::save::description(format, &path).unwrap()["tokens"], "patches");
}

#[test]
fn raw_pixels_are_the_normalised_image() {
    let source = made(&[3]);
    let go_on = &mut |_| ControlFlow::Continue(());
    let found = raw_pixels(&source, &Preparation::Stretch((5, 6)), &ReadOptions::default(), go_on).unwrap();
    assert_eq!((found.features.dim, found.features.len(), found.skipped.len()), (90, 10, 1));
    let image = data::augment::resize(&source.read(4).unwrap(), (5, 6), data::augment::Filter::Bicubic);
    let chw = data::normalize_chw(&image);
    // Row 3 is image 4, and its values go pixel by pixel.
    for (i, &value) in found.features.row(3).iter().enumerate() {
        assert_eq!(value, chw[i % 3 * 30 + i / 3]);
    }
}

fn some_features() -> (Features, Made) {
    let values = (0..9).map(|i| i as f32 * 0.5 - 1.0).collect();
    let features = Features { dim: 3, values, indices: vec![1, 2, 6], labels: vec![Some(1), None, Some(0)] };
    (features, made(&[]))
}

#[test]
fn a_safetensors_file_of_features_has_labels_names_and_classes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.safetensors");
    let (features, source) = some_features();
    save(&path, &features, &source, &[]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = file.tensor("features").unwrap();
    assert_eq!((tensor.dtype(), tensor.shape()), (safetensors::Dtype::F32, &[3, 3][..]));
    let values: Vec<f32> = tensor.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(values, features.values);
    let labels = file.tensor("labels").unwrap();
    let labels: Vec<i64> = labels.data().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect();
    assert_eq!(labels, [1, -1, 0]);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let notes: HashMap<String, String> =
        header.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let list = |key: &str| -> Vec<String> { serde_json::from_str(&notes[key]).unwrap() };
    assert_eq!(list("names"), ["made \"1\".png", "made \"2\".png", "made \"6\".png"]);
    assert_eq!(list("class_names"), ["é", "dog"]);
    assert_eq!(notes["format"], "dino-vmf features");

    let unlabelled = Features { labels: vec![None; 3], ..features };
    save(&path, &unlabelled, &source, &[]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().names(), ["features"]);
}

#[test]
fn an_npy_file_is_a_header_and_the_matrix_with_a_table_and_a_note_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.npy");
    let (features, source) = some_features();
    save(&path, &features, &source, &[("weights_hash", "7".to_owned())]).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values: Vec<f32> = bytes[start..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    assert_eq!(values, features.values);
    let table = std::fs::read_to_string(folder.path().join("f.csv")).unwrap();
    let rows = ["0,\"made \"\"1\"\".png\",1,dog", "1,\"made \"\"2\"\".png\",,", "2,\"made \"\"6\"\".png\",0,é"];
    assert_eq!(table, format!("row,name,label,class\n{}\n", rows.join("\n")));
    let description = || eval::save::description(eval::FeatureFormat::Npy, &path);
    let said = description().unwrap();
    assert_eq!((said["weights_hash"].as_str(), said["format"].as_str()), ("7", "dino-vmf features"));
    // What the note says counts only while all three files are of the same features.
    std::fs::remove_file(folder.path().join("f.csv")).unwrap();
    assert_eq!(description(), None);
    save(&path, &Features::labelled(1, vec![1.0], &[0]), &source, &[]).unwrap();
    assert!(!description().unwrap().contains_key("weights_hash"));
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(description(), None);
}

#[test]
fn what_cannot_be_written_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (features, source) = some_features();
    let error = save(&folder.path().join("f.csv"), &features, &source, &[]).unwrap_err();
    assert!(error.to_string().contains("written as .safetensors, .npy (with a .csv of names"), "{error}");
    let error = save(&folder.path().join("none/f.npy"), &features, &source, &[]).unwrap_err();
    assert!(matches!(error, EvalError::Write { .. }), "{error}");
    let taken = folder.path().join("folder.npy");
    std::fs::create_dir(&taken).unwrap();
    assert!(matches!(save(&taken, &features, &source, &[]), Err(EvalError::Write { .. })));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [taken]);
}

#[test]
fn photographs_are_read_and_prepared_without_a_skip() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let shared = std::env::var("DINO_VMF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let folder = Path::new(&shared).join("imagenet300");
    let Ok(source) = data::open(&folder.to_string_lossy(), Split::Train, 0) else {
        eprintln!("skipped: no images in {}", folder.display());
        return;
    };
    let mut skipped = None;
    let go_on = &mut |p: ReadProgress| {
        skipped = Some(p.skipped);
        if p.done < 24 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let options = ReadOptions { batch_size: 8, workers: 2, ..Default::default() };
    let result = raw_pixels(&*source, &Preparation::Cover((32, 48)), &options, go_on);
    assert!(matches!(result, Ok(_) | Err(EvalError::Stopped)));
    assert_eq!(skipped, Some(0));
}

#[test]
fn the_online_knn_tells_of_images_that_cannot_be_read() {
    let device = Device::cpu(CpuOptions::default()).unwrap();
    let options = OnlineKnnOptions {
        voters: 11,
        queries: 11,
        k: 3,
        temperature: 0.07,
        input: InputSpec::center((16, 16)),
        read: ReadOptions { batch_size: 4, workers: 2, ..ReadOptions::default() },
    };
    let judge = |train: &[usize], held_out: Option<&[usize]>| {
        let held_out = held_out.map(|broken| Arc::new(made(broken)) as Arc<dyn Source>);
        let knn = OnlineKnn::new(Arc::new(made(train)), held_out, options, device.clone()).unwrap();
        knn.raw_pixels_top1(&|| false).unwrap();
        knn.describe()
    };
    assert_eq!(judge(&[], Some(&[])), "11 held-out images by 11 training images");
    let told = judge(&[1, 2], Some(&[4]));
    assert_eq!(told, "11 held-out images by 11 training images, less 3 that cannot be read");
    assert_eq!(judge(&[7], None), "11 training images, each by all others, less 1 that cannot be read");
}
