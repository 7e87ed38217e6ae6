//! What the integration tests share: fixtures, checksums, images by formula, folders that clean up after themselves.
#![allow(dead_code)] // Every test binary compiles this and uses a part of it.

pub mod archive;
pub mod draws;

use data::Image;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The shared real data, where this machine has it; says so and returns none where not.
pub fn real_data(folder: &str) -> Option<PathBuf> {
    let root = std::env::var_os("DINO_VMF_TEST_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    let path = root.join(folder);
    if !path.is_dir() {
        println!("skipped: {} is not there (DINO_VMF_TEST_DATA can say where it is)", path.display());
        return None;
    }
    Some(path)
}

/// CRC-32 as zlib computes it.
pub fn crc32(bytes: &[u8]) -> u64 {
    let table: [u32; 256] = std::array::from_fn(|i| {
        (0..8).fold(i as u32, |crc, _| if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 })
    });
    let crc = bytes.iter().fold(!0u32, |crc, &b| table[usize::from(crc as u8 ^ b)] ^ (crc >> 8));
    u64::from(!crc)
}

/// The images of tools/oracle/augment_fixtures.py, by the same formulas.
pub fn make_image(kind: &str, seed: u64, width: usize, height: usize) -> Image {
    let byte = |i: usize| -> u8 {
        if kind == "smooth" {
            let (channel, x, y) = ((i % 3) as u64, (i / 3 % width) as u64, (i / 3 / width) as u64);
            let v = (x * (2 + seed % 5) + y * (3 + seed % 4) + x * y / 9 + channel * 90) % 510;
            return if v < 256 { v as u8 } else { (510 - v) as u8 };
        }
        let i = if kind == "gray" { i / 3 } else { i } as u64;
        let mut z = (i + (seed << 32) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z >> 56) as u8
    };
    Image::from_pixels(width, height, 3, (0..width * height * 3).map(byte).collect())
}

/// One case of a fixture: a list, read from front to back.
pub struct Case {
    values: Vec<Value>,
    next: usize,
}

impl Case {
    pub fn value(&mut self) -> &Value {
        self.next += 1;
        &self.values[self.next - 1]
    }

    pub fn number(&mut self) -> f64 {
        self.value().as_f64().unwrap()
    }

    pub fn whole(&mut self) -> usize {
        self.value().as_u64().unwrap() as usize
    }

    pub fn flag(&mut self) -> bool {
        self.value().as_bool().unwrap()
    }

    pub fn text(&mut self) -> String {
        self.value().as_str().unwrap().to_owned()
    }

    /// The input image: kind, seed, width, height.
    pub fn image(&mut self) -> Image {
        let (kind, seed) = (self.text(), self.whole() as u64);
        let (width, height) = (self.whole(), self.whole());
        make_image(&kind, seed, width, height)
    }

    /// The last value: the checksum of the expected result.
    pub fn expect(mut self, bytes: &[u8]) {
        let shown = format!("{:?}", self.values);
        assert_eq!(crc32(bytes), self.whole() as u64, "{shown}");
        assert_eq!(self.next, self.values.len(), "the case was read to its end: {shown}");
    }
}

/// The cases of a fixture of augment_fixtures.py.
pub fn cases(name: &str) -> Vec<Case> {
    let path = fixtures().join("augment").join(name).with_extension("json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cases: Vec<Vec<Value>> = serde_json::from_str(&text).unwrap();
    assert!(!cases.is_empty());
    cases.into_iter().map(|values| Case { values, next: 0 }).collect()
}

/// The lines of a fixture of augment_many.py or rand_augment.py: an operation and the checksum of each of its results.
pub fn checksums(name: &str) -> Vec<(String, Vec<u64>)> {
    let text = std::fs::read_to_string(fixtures().join("augment").join(name)).unwrap();
    let sum = |digits: &[u8; 8]| u64::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    let line = |line: &str| {
        let (operation, sums) = line.split_once(' ').unwrap();
        (operation.to_owned(), sums.as_bytes().as_chunks::<8>().0.iter().map(sum).collect())
    };
    text.lines().map(line).collect()
}

/// A folder that is removed at the end of a test.
pub struct TempFolder(pub PathBuf);

impl TempFolder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("data-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file, with the folders above it.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes a small BMP of one colour, the simplest real image there is.
    pub fn write_image(&self, name: &str, color: [u8; 3]) {
        self.write(name, &bmp(5, 4, color));
    }

    pub fn spec(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A 24-bit BMP of one colour.
pub fn bmp(width: u32, height: u32, [r, g, b]: [u8; 3]) -> Vec<u8> {
    let row = (width * 3).next_multiple_of(4);
    let mut bytes = b"BM".to_vec();
    for field in [54 + row * height, 0, 54, 40, width, height, 24 << 16 | 1, 0, row * height, 2835, 2835, 0, 0] {
        bytes.extend(field.to_le_bytes());
    }
    for _ in 0..height {
        let start = bytes.len();
        (0..width).for_each(|_| bytes.extend([b, g, r]));
        bytes.resize(start + row as usize, 0);
    }
    bytes
}
