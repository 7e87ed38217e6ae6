//! Every operation of RandAugment against timm and Pillow, byte for byte, on 160 random images, magnitudes and directions each.
//!
//! tools/oracle/rand_augment.py draws the same cases and wrote the checksums.

mod support;

use data::augment::Operation;
use support::draws::Draws;
use support::{checksums, crc32};

#[test]
fn every_operation_gives_the_bytes_of_timm_and_pillow() {
    let operations = checksums("rand_augment.txt");
    assert_eq!(operations.len(), Operation::COUNT);
    for (k, (operation, sums)) in operations.into_iter().enumerate() {
        assert!(sums.len() >= 160);
        for (n, expected) in sums.into_iter().enumerate() {
            let mut d = Draws(((k as u64 + 100) << 32) + n as u64);
            let mut image = d.image();
            let magnitude = if d.whole(0, 7) == 0 { 10.0 } else { d.uniform(0.0, 10.0) };
            let parameters = Operation::at(k, magnitude, d.chance(0.5));
            let size = (image.width, image.height);
            parameters.apply(&mut image);
            assert_eq!(crc32(&image.pixels), expected, "{operation}, case {n}: {parameters:?} on {size:?}");
        }
    }
}
