//! Once a worker has seen its largest image, making views takes no memory from the system any more.

use data::views::ViewMaker;
use data::{DecodeLimits, Image, MultiCrop, Reader, Split, open};
use random::{Key, Purpose};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's memory, with a count of how often it was asked for some.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

#[test]
fn views_of_images_already_seen_take_no_memory() {
    let source = open("synthetic:train=8,size=96", Split::Train, 0).unwrap();
    let recipe = MultiCrop { global_size: (64, 48), local_size: (32, 32), ..MultiCrop::dino() };
    let mut reader = Reader::new(DecodeLimits::default(), 3);
    let (mut maker, mut image, mut view) = (ViewMaker::default(), Image::black(1, 1, 3), Image::black(1, 1, 3));
    let mut images = Vec::new();
    for index in 0..source.len() {
        reader.read(&*source, index, &mut image).unwrap();
        images.push(image.clone());
    }
    let mut make_all = |epoch: u64| {
        for (index, image) in images.iter().enumerate() {
            let key = Key::new(1, Purpose::View).epoch(epoch).sample(index as u64);
            for number in 0..recipe.count() {
                maker.make(image, &recipe.draw(number, image.height, image.width, key), &mut view);
            }
        }
    };
    // Crops differ from epoch to epoch, and with them the filters; after some, the largest has come up.
    (0..20).for_each(&mut make_all);
    (0..20).for_each(&mut make_all);
    let before = CALLS.load(Ordering::Relaxed);
    (0..20).for_each(&mut make_all);
    assert_eq!(CALLS.load(Ordering::Relaxed) - before, 0);
}
