//! The random cases of tools/oracle/augment_many.py and rand_augment.py, drawn again.

use super::make_image;
use data::Image;
use data::augment::Rect;

/// SplitMix64, as in tools/oracle/augment_many.py.
pub struct Draws(pub u64);

impl Draws {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Both ends included.
    pub fn whole(&mut self, low: usize, high: usize) -> usize {
        low + (self.bits() % (high - low + 1) as u64) as usize
    }

    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (self.bits() >> 11) as f64 * (-53f64).exp2() * (high - low)
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform(0.0, 1.0) < p
    }

    pub fn image(&mut self) -> Image {
        let kind = ["noise", "smooth", "smooth", "gray"][self.whole(0, 3)];
        let (seed, largest) = (self.whole(0, 9999), [12, 80, 230][self.whole(0, 2)]);
        let (width, height) = (self.whole(1, largest), self.whole(1, largest));
        make_image(kind, seed as u64, width, height)
    }

    pub fn rect(&mut self, image: &Image) -> Rect {
        let (height, width) = (self.whole(1, image.height), self.whole(1, image.width));
        Rect { top: self.whole(0, image.height - height), left: self.whole(0, image.width - width), height, width }
    }

    /// (height, width) drawn in the order that Pillow wants: width first.
    pub fn width_first(&mut self, most: usize) -> (usize, usize) {
        let width = self.whole(1, most);
        (self.whole(1, most), width)
    }
}
