//! Images of odd shapes, and images that are refused, on their way through a loader.

mod support;

use data::{DecodeLimits, Loader, LoaderConfig, MultiCrop, ReadError, Source, Split, Stored};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{TempFolder, bmp};

fn config(batch_size: usize) -> LoaderConfig {
    let views = MultiCrop { global_size: (16, 16), local_size: (8, 8), local_crops: 2, ..MultiCrop::dino() };
    LoaderConfig { batch_size, workers: 1, views, max_bad_share: 0.5, ..LoaderConfig::default() }
}

#[test]
fn threads_and_panoramas_have_views_of_their_own_colour() {
    let folder = TempFolder::new();
    for (name, width, height) in [("a", 1, 60_000), ("b", 60_000, 1), ("c", 20_000, 40), ("d", 1, 1)] {
        folder.write(&format!("{name}.bmp"), &bmp(width, height, [200, 200, 200]));
    }
    let source = data::open(folder.spec(), Split::Train, 0).unwrap();
    let mut config = config(4);
    // Left as they are cropped: the colour says whether anything but the image is seen.
    config.finish = false;
    let batch = Loader::start(source, config, 0, 0, 1).unwrap().next().unwrap().unwrap();
    assert!(batch.substituted.is_empty(), "{:?}", batch.substituted);
    assert!(batch.groups.iter().all(|group| group.pixels.iter().all(|&value| value == 200)));
}

/// A source that counts how often its last image is asked for.
struct Counted(Arc<dyn Source>, AtomicUsize);

impl Source for Counted {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn fetch(&self, index: usize, limits: &DecodeLimits, bytes: &mut Vec<u8>) -> Result<Stored, ReadError> {
        self.1.fetch_add(usize::from(index + 1 == self.len()), Ordering::Relaxed);
        self.0.fetch(index, limits, bytes)
    }
    fn label(&self, index: usize) -> Option<u32> {
        self.0.label(index)
    }
    fn class_names(&self) -> &[String] {
        self.0.class_names()
    }
    fn name(&self, index: usize) -> String {
        self.0.name(index)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

#[test]
fn an_image_over_the_bound_is_refused_once_and_not_in_every_epoch() {
    let folder = TempFolder::new();
    (0..3).for_each(|i| folder.write_image(&format!("{i}.bmp"), [9, 9, 9]));
    // A screen of one pixel with a frame of 65,535 x 65,535.
    let gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff\x2c\0\0\0\0\xff\xff\xff\xff\0\x02\x02\x4c\x01\0\x3b";
    folder.write("z.gif", gif);
    let source = Arc::new(Counted(data::open(folder.spec(), Split::Train, 0).unwrap(), AtomicUsize::new(0)));
    let mut loader = Loader::start(source.clone(), config(4), 0, 0, 5).unwrap();
    let mut reasons = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        reasons.extend(batch.substituted.into_iter().map(|bad| bad.reason));
    }
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].contains("more memory than the 480.0 MiB"), "{}", reasons[0]);
    assert_eq!(source.1.load(Ordering::Relaxed), 1, "it was read again");
}
