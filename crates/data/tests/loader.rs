//! The loader's promises: same batches for any number of workers and any interruption, bad images named and replaced,
//! defects turned into errors.

mod support;

use data::augment::Filter;
use data::loader::Shard;
use data::{
    Batch, DecodeLimits, Decoding, Loader, LoaderConfig, LoaderError, MultiCrop, ReadError, Source, Split, Stored,
    ViewParams, open, views,
};
use random::{Key, Purpose};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::TempFolder;

fn small_views() -> MultiCrop {
    MultiCrop { global_size: (24, 20), local_size: (12, 12), local_crops: 3, ..MultiCrop::dino() }
}

fn config(workers: usize) -> LoaderConfig {
    LoaderConfig {
        batch_size: 6,
        seed: 11,
        workers,
        prefetch: 3,
        views: small_views(),
        max_bad_share: 0.5,
        ..Default::default()
    }
}

fn synthetic(images: usize) -> Arc<dyn Source> {
    open(&format!("synthetic:train={images},size=32"), Split::Train, 4).unwrap()
}

fn all(mut loader: Loader) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        batches.push(batch);
    }
    assert!(loader.next().unwrap().is_none(), "the end stays the end");
    batches
}

fn load(source: &Arc<dyn Source>, cfg: LoaderConfig, epoch: u64, position: usize, end: u64) -> Vec<Batch> {
    all(Loader::start(Arc::clone(source), cfg, epoch, position, end).unwrap())
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let source = synthetic(40);
    let one = load(&source, config(1), 0, 0, 3);
    assert_eq!(one.len(), 3 * 6);
    for workers in [2, 8] {
        assert!(load(&source, config(workers), 0, 0, 3) == one, "{workers} workers");
    }
    let prefetch = LoaderConfig { prefetch: 1, ..config(3) };
    assert!(load(&source, prefetch, 0, 0, 3) == one);
}

#[test]
fn a_resume_in_the_middle_of_an_epoch_continues_exactly() {
    let source = synthetic(40);
    let whole = load(&source, config(2), 0, 0, 3);
    for (epoch, position) in [(0, 4), (1, 0), (1, 5), (2, 1), (1, 6)] {
        let rest = load(&source, config(3), epoch, position, 3);
        assert!(rest[..] == whole[epoch as usize * 6 + position..], "from {epoch}, {position}");
    }
    assert!(load(&source, config(2), 3, 0, 3).is_empty());
}

/// A folder of photographs with odd sides, made by the encoder that comes with the decoder.
fn photographs(count: usize) -> TempFolder {
    let folder = TempFolder::new();
    for number in 0..count {
        let (width, height) = (401 + 2 * number, 333 - number);
        let level = |i: usize| ((i % (width * 3) / 5 + i / (width * 3) * (number + 1)) / 2) as u8;
        let pixels: Vec<u8> = (0..width * height * 3).map(level).collect();
        let subsampling = libjpeg_turbo_rs::Subsampling::S420;
        let format = libjpeg_turbo_rs::PixelFormat::Rgb;
        let bytes = libjpeg_turbo_rs::compress(&pixels, width, height, format, 90, subsampling).unwrap();
        folder.write(&format!("{number:02}.jpg"), &bytes);
    }
    folder
}

#[test]
fn fast_decoding_is_close_to_exact_and_as_independent_of_workers_and_resumes() {
    let folder = photographs(14);
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    let fast = |workers| LoaderConfig { decoding: Decoding::Fast, ..config(workers) };
    let whole = load(&source, fast(1), 0, 0, 2);
    for workers in [2, 8] {
        assert!(load(&source, fast(workers), 0, 0, 2) == whole, "{workers} workers");
    }
    assert!(load(&source, fast(3), 0, 1, 2)[..] == whole[1..]);

    let exact = load(&source, config(2), 0, 0, 2);
    let bytes = |batches: &[Batch]| -> Vec<u8> {
        batches.iter().flat_map(|b| &b.groups).flat_map(|g| g.pixels.clone()).collect()
    };
    let (a, b) = (bytes(&exact), bytes(&whole));
    let mean = a.iter().zip(&b).map(|(&a, &b)| f64::from(a.abs_diff(b))).sum::<f64>() / a.len() as f64;
    assert!(a != b && mean < 1.0, "the photographs are reduced, and that hardly shows: {mean}");
}

#[test]
fn shards_together_load_what_one_loader_would() {
    let source = synthetic(40);
    let whole = load(&source, LoaderConfig { batch_size: 12, ..config(2) }, 0, 0, 2);
    let parts: Vec<Vec<Batch>> = (0..3)
        .map(|number| {
            load(&source, LoaderConfig { batch_size: 4, shard: Shard { number, of: 3 }, ..config(2) }, 0, 0, 2)
        })
        .collect();
    assert_eq!(whole.len(), 6);
    for (position, whole) in whole.iter().enumerate() {
        let samples: Vec<u64> = parts.iter().flat_map(|part| part[position].samples.clone()).collect();
        let keys: Vec<u64> = parts.iter().flat_map(|part| part[position].keys.clone()).collect();
        assert_eq!((&samples, &keys), (&whole.samples, &whole.keys));
        assert_eq!(samples, keys, "every image is readable");
        for (i, part) in parts.iter().enumerate() {
            for slot in 0..4 {
                // The second global view of the same sample.
                assert!(part[position].groups[0].view(4 + slot) == whole.groups[0].view(12 + 4 * i + slot));
            }
        }
    }
    let absurd = LoaderConfig { shard: Shard { number: 3, of: 3 }, ..config(1) };
    assert!(matches!(Loader::start(source, absurd, 0, 0, 1), Err(LoaderError::Setting { setting: "shard", .. })));
}

#[test]
fn grey_and_many_channels_are_loaded_as_asked() {
    let grey = load(&synthetic(12), LoaderConfig { channels: 1, ..config(2) }, 0, 0, 1);
    assert!(
        grey.iter().flat_map(|b| &b.groups).all(|g| g.channels == 1 && g.pixels.len() == g.count * g.height * g.width)
    );
    let levels: BTreeSet<u8> = grey[0].groups[0].pixels.iter().copied().collect();
    assert!(levels.len() > 20, "the pictures are there");

    let source: Arc<dyn Source> = Arc::new(Odd { reads: Arc::default(), panics_at: 9999, channels: 5 });
    let five = load(&source, LoaderConfig { channels: 5, ..config(2) }, 0, 165, 1);
    assert_eq!(five[0].groups[1].pixels.len(), 3 * 6 * 12 * 12 * 5);
}

#[test]
fn an_epoch_visits_every_image_at_most_once_and_epochs_differ() {
    let batches = load(&synthetic(40), config(2), 0, 0, 2);
    for epoch in batches.chunks(6) {
        let samples: Vec<u64> = epoch.iter().flat_map(|b| b.samples.clone()).collect();
        assert_eq!(samples.iter().collect::<BTreeSet<_>>().len(), 36);
    }
    assert_ne!(batches[0].samples, batches[6].samples);
    assert_eq!((batches[8].epoch, batches[8].position), (1, 2));
}

#[test]
fn groups_are_view_major_and_hold_the_views_of_the_recipe() {
    let source = synthetic(12);
    let recipe = small_views();
    for batch in load(&source, config(2), 5, 0, 6) {
        let shapes: Vec<_> = batch.groups.iter().map(|g| (g.count, g.height, g.width, g.channels)).collect();
        assert_eq!(shapes, [(12, 24, 20, 3), (18, 12, 12, 3)]);
        for (b, &sample) in batch.samples.iter().enumerate() {
            let image = source.read(sample as usize).unwrap();
            let made = recipe.views(&image, Key::new(11, Purpose::View).epoch(5).sample(sample));
            for (v, view) in made.iter().enumerate() {
                let (group, v) = if v < 2 { (&batch.groups[0], v) } else { (&batch.groups[1], v - 2) };
                assert!(group.view(v * 6 + b) == view.pixels);
            }
        }
    }
}

#[test]
fn without_local_views_there_is_one_group_and_with_equal_sizes_there_are_two() {
    let none = LoaderConfig { views: MultiCrop { local_crops: 0, ..small_views() }, ..config(2) };
    assert_eq!(load(&synthetic(8), none, 0, 0, 1)[0].groups.len(), 1);
    let equal = LoaderConfig { views: MultiCrop { local_size: (24, 20), ..small_views() }, ..config(2) };
    assert_eq!(load(&synthetic(8), equal, 0, 0, 1)[0].groups.len(), 2);
}

#[test]
fn recycled_batches_do_not_change_what_follows() {
    let source = synthetic(40);
    let expected = load(&source, config(2), 0, 0, 2);
    let mut loader = Loader::start(source, config(2), 0, 0, 2).unwrap();
    for expected in expected {
        let batch = loader.next().unwrap().unwrap();
        assert!(batch == expected);
        loader.recycle(batch);
    }
    // A batch of another shape is not taken.
    let other =
        Batch { epoch: 0, position: 0, samples: vec![], keys: vec![], groups: vec![], substituted: vec![], turned: 0 };
    loader.recycle(other);
}

/// Images of one colour each, in which some files are broken.
fn folder_with_broken(total: usize, broken: &[usize]) -> TempFolder {
    let folder = TempFolder::new();
    for i in 0..total {
        let name = format!("{i:03}.bmp");
        if broken.contains(&i) {
            folder.write(&name, b"BM broken");
        } else {
            folder.write_image(&name, [i as u8, 0, 0]);
        }
    }
    folder
}

#[test]
fn a_bad_image_is_replaced_by_the_next_of_the_order_and_named_once() {
    let folder = folder_with_broken(20, &[3, 7, 8]);
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    let cfg = |workers| LoaderConfig { batch_size: 4, ..config(workers) };
    let batches = load(&source, cfg(1), 0, 0, 3);
    for workers in [2, 8] {
        assert!(load(&source, cfg(workers), 0, 0, 3) == batches, "{workers} workers");
    }
    for (epoch, batches) in batches.chunks(5).enumerate() {
        let order = data::loader::epoch_order(11, epoch as u64, 20);
        let shown: Vec<u64> = batches.iter().flat_map(|b| b.samples.clone()).collect();
        let keys: Vec<u64> = batches.iter().flat_map(|b| b.keys.clone()).collect();
        assert!(keys.iter().map(|&key| key as u32).eq(order.iter().copied()), "a key is the image whose turn it was");
        let substituted: BTreeSet<u64> = keys.iter().zip(&shown).filter(|(k, s)| k != s).map(|(&k, _)| k).collect();
        assert_eq!(substituted, BTreeSet::from([3, 7, 8]), "the substitute is shown, under the key of the other");
        for (rank, &sample) in shown.iter().enumerate() {
            let readable = (0..20).map(|step| order[(rank + step) % 20]).find(|i| ![3, 7, 8].contains(i));
            assert_eq!(Some(sample as u32), readable, "epoch {epoch}, rank {rank}");
            // Views are drawn for the image whose turn it was, so a substitute does not repeat its own.
            let key = Key::new(11, Purpose::View).epoch(epoch as u64).sample(order[rank].into());
            let views = small_views().views(&source.read(sample as usize).unwrap(), key);
            assert!(batches[rank / 4].groups[0].view(rank % 4) == views[0].pixels);
        }
    }
    let named: Vec<_> = batches.iter().flat_map(|b| b.substituted.clone()).collect();
    assert_eq!(named.iter().map(|s| s.index).collect::<BTreeSet<_>>(), BTreeSet::from([3, 7, 8]));
    assert_eq!(named.len(), 3, "each is named once: {named:?}");
    let third = named.iter().find(|s| s.index == 3).unwrap();
    assert_eq!(third.name, "003.bmp");
    assert!(third.reason.contains("BMP"), "{}", third.reason);
}

#[test]
fn too_many_bad_images_are_an_error_that_lists_ten() {
    let broken: Vec<usize> = (0..15).collect();
    let folder = folder_with_broken(30, &broken);
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    let cfg = LoaderConfig { max_bad_share: 0.4, ..config(2) };
    let mut loader = Loader::start(source, cfg, 0, 0, 9).unwrap();
    let error = loop {
        match loader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("half of the images are bad"),
            Err(error) => break error,
        }
    };
    let LoaderError::TooManyBad { count, images: 30, ref first, .. } = error else { panic!("{error}") };
    assert!(count > 12 && first.len() == 10, "{error}");
    assert_eq!(error.to_string().lines().filter(|line| line.contains(".bmp: ")).count(), 10);
    assert!(matches!(loader.next(), Err(LoaderError::Stopped)));
}

#[test]
fn when_nothing_can_be_read_that_is_said() {
    let folder = folder_with_broken(8, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let source = open(folder.spec(), Split::Train, 0).unwrap();
    let cfg = LoaderConfig { max_bad_share: 1.0, ..config(2) };
    let error = Loader::start(Arc::clone(&source), cfg, 0, 0, 1).unwrap().next().unwrap_err();
    assert!(matches!(error, LoaderError::NothingReadable { images: 8, .. }), "{error}");
    let strict = LoaderConfig { max_bad_share: 0.0, ..config(2) };
    let error = Loader::start(source, strict, 0, 0, 1).unwrap().next().unwrap_err();
    assert!(matches!(error, LoaderError::TooManyBad { .. }), "{error}");
}

/// A source that counts reads and fails as told.
struct Odd {
    reads: Arc<AtomicUsize>,
    panics_at: usize,
    channels: usize,
}

impl Source for Odd {
    fn len(&self) -> usize {
        1000
    }
    fn fetch(&self, index: usize, _: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        assert_ne!(index, self.panics_at, "told to");
        *bytes = vec![0; 81 * self.channels];
        Ok(Stored::Pixels { height: 9, width: 9, channels: self.channels })
    }
    fn label(&self, _: usize) -> Option<u32> {
        None
    }
    fn class_names(&self) -> &[String] {
        &[]
    }
    fn name(&self, index: usize) -> String {
        format!("odd {index}")
    }
    fn describe(&self) -> String {
        "odd".to_owned()
    }
    fn fingerprint(&self) -> u64 {
        0
    }
}

#[test]
fn a_panic_in_a_worker_is_an_error_that_names_the_image() {
    let source = Arc::new(Odd { reads: Arc::default(), panics_at: 17, channels: 3 });
    let mut loader = Loader::start(source, config(3), 0, 0, 1).unwrap();
    let error = loop {
        match loader.next() {
            Ok(batch) => assert!(batch.is_some(), "image 17 comes up once in the epoch"),
            Err(error) => break error,
        }
    };
    let LoaderError::WorkerPanicked { name, message } = &error else { panic!("{error}") };
    assert_eq!(name, "odd 17");
    assert!(message.contains("told to"), "{message}");
}

#[test]
fn images_with_channels_that_cannot_become_colour_are_bad_images() {
    let source = Arc::new(Odd { reads: Arc::default(), panics_at: 9999, channels: 5 });
    let cfg = LoaderConfig { max_bad_share: 0.01, ..config(2) };
    let error = Loader::start(source, cfg, 0, 0, 1).unwrap().next().unwrap_err();
    assert!(error.to_string().contains("5 channel(s) where 3 are wanted"), "{error}");
}

#[test]
fn no_more_is_read_ahead_than_prefetch_allows_and_dropping_ends_the_threads() {
    let reads = Arc::new(AtomicUsize::new(0));
    let source = Arc::new(Odd { reads: Arc::clone(&reads), panics_at: 9999, channels: 3 });
    let weak = Arc::downgrade(&source);
    let mut loader = Loader::start(source, config(4), 0, 0, 100).unwrap();
    for _ in 0..5 {
        loader.next().unwrap();
    }
    drop(loader);
    // Five batches taken and three ahead, of six images each.
    assert!(reads.load(Ordering::Relaxed) <= 8 * 6, "{reads:?}");
    assert!(weak.upgrade().is_none(), "no thread still holds the source");
}

#[test]
fn settings_without_sense_are_typed_errors() {
    let start = |cfg| match Loader::start(synthetic(40), cfg, 0, 0, 1) {
        Ok(_) => panic!("started"),
        Err(error) => error,
    };
    let error = start(LoaderConfig { batch_size: 41, ..config(1) });
    assert!(matches!(error, LoaderError::BatchTooLarge { batch_size: 41, images: 40, .. }), "{error}");
    assert!(error.to_string().contains("at most 40"));
    let bad = [
        LoaderConfig { batch_size: 0, ..config(1) },
        LoaderConfig { workers: 0, ..config(1) },
        LoaderConfig { prefetch: 0, ..config(1) },
        LoaderConfig { max_bad_share: f64::NAN, ..config(1) },
    ];
    for cfg in bad {
        assert!(matches!(start(cfg), LoaderError::Setting { .. }));
    }
    let views = MultiCrop { local_scale: (0.5, 0.2), ..small_views() };
    assert!(matches!(start(LoaderConfig { views, ..config(1) }), LoaderError::Views(_)));
    let late = Loader::start(synthetic(40), config(1), 0, 7, 1);
    assert!(matches!(late.err(), Some(LoaderError::Setting { setting: "start_position", .. })));
}

#[test]
fn a_batch_that_the_memory_cannot_hold_is_an_error() {
    let views =
        MultiCrop { global_size: (16384, 16384), local_crops: 1000, local_size: (16384, 16384), ..small_views() };
    let source = open("synthetic:train=100000,size=16", Split::Train, 0).unwrap();
    let cfg = LoaderConfig { batch_size: 100_000, views, prefetch: 2, ..config(1) };
    let error = Loader::start(source, cfg, 0, 0, 1).unwrap().next().unwrap_err();
    assert!(matches!(error, LoaderError::OutOfMemory { .. }), "{error}");
}

#[test]
fn the_callers_waiting_time_is_counted() {
    let mut loader = Loader::start(synthetic(40), config(1), 0, 0, 1).unwrap();
    loader.next().unwrap();
    assert!(!loader.waited().is_zero());
    assert_eq!(loader.batches_per_epoch(), 6);
}

#[test]
fn parameters_can_be_given_by_hand() {
    let image = synthetic(12).read(0).unwrap();
    let crop = data::augment::Rect { top: 2, left: 3, height: 20, width: 21 };
    let plain = ViewParams {
        crop,
        size: (20, 21),
        filter: Filter::Bicubic,
        flip: false,
        operations: Default::default(),
        finish: views::Finish::default(),
    };
    assert_eq!(views::apply(&image, &plain), data::augment::crop(&image, crop));
}

#[test]
fn views_that_are_finished_elsewhere_become_those_of_the_loader() {
    let load = |finish| {
        let config = LoaderConfig { finish, ..config(2) };
        let mut loader = Loader::start(synthetic(12), config, 0, 0, 2).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = loader.next().unwrap() {
            batches.push(batch.clone());
            // Used again for a later batch.
            loader.recycle(batch);
        }
        batches
    };
    let (finished, cut) = (load(true), load(false));
    assert_eq!((finished.len(), cut.len()), (4, 4));
    let (mut maker, mut changed) = (views::ViewMaker::default(), 0);
    for (finished, cut) in finished.iter().zip(&cut) {
        assert_eq!(finished.samples, cut.samples);
        for (finished, cut) in finished.groups.iter().zip(&cut.groups) {
            assert_eq!((finished.finish.len(), cut.finish.len()), (0, cut.count));
            for (i, finish) in cut.finish.iter().enumerate() {
                let mut view = data::Image::from_pixels(cut.width, cut.height, 3, cut.view(i).to_vec());
                maker.finish(finish, &mut view);
                assert_eq!(view.pixels, finished.view(i));
                changed += usize::from(cut.view(i) != finished.view(i));
            }
        }
    }
    assert!(changed > 60, "{changed} of 120 views were changed");
}
