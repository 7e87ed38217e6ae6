//! Repeated augmentation: an image comes several times in a row, each time as another view, and an epoch stays as long.

use data::loader::{epoch_order, repetition};
use data::{Batch, Loader, LoaderConfig, MultiCrop, Split, open};

fn load(workers: usize, repeats: usize, position: usize) -> Vec<Batch> {
    let source = open("synthetic:train=20,size=16", Split::Train, 0).unwrap();
    let views = MultiCrop { repeats, ..MultiCrop::supervised((12, 12)) };
    let config = LoaderConfig { batch_size: 8, workers, seed: 4, views, ..LoaderConfig::default() };
    let mut loader = Loader::start(source, config, 0, position, 2).unwrap();
    std::iter::from_fn(|| loader.next().unwrap()).collect()
}

#[test]
fn an_epoch_shows_fewer_images_and_each_of_them_several_times() {
    let batches = load(2, 3, 0);
    assert_eq!(batches.len(), 4, "two epochs of 20 / 8 batches");
    let turns = |epoch: u64| epoch_order(4, epoch, 20).into_iter().flat_map(|i| [u64::from(i); 3]).take(16);
    for (epoch, batches) in batches.chunks(2).enumerate() {
        assert!(batches.iter().flat_map(|b| b.keys.clone()).eq(turns(epoch as u64)));
        assert!(batches.iter().all(|b| b.samples == b.keys && b.groups.len() == 1 && b.groups[0].count == 8));
    }
    // Image 2 of the first epoch begins in the first batch and ends in the second.
    let group = |batch: usize, slot: usize| batches[batch].groups[0].view(slot);
    assert!(group(0, 6) != group(0, 7) && group(0, 7) != group(1, 0) && group(0, 6) != group(1, 0));
    assert_eq!([(0, 6), (0, 7), (1, 0)].map(|(position, slot)| repetition(position, 8, slot, 3)), [0, 1, 2]);
}

#[test]
fn neither_workers_nor_a_resume_change_a_view() {
    let whole = load(1, 3, 0);
    assert!(load(4, 3, 0) == whole);
    assert!(load(2, 3, 1)[..] == whole[1..]);
    // Without repetitions, the first view of an image is the same.
    let once = load(2, 1, 0);
    assert_eq!(once[0].groups[0].view(1), whole[0].groups[0].view(3));
}
