//! Tar archives for tests, honest and hostile.

use super::bmp;

const BLOCK: usize = 512;

/// A header with a true checksum.
pub fn header(name: &str, size: [u8; 12], kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(&size);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    with_checksum(block)
}

/// The same block with its checksum put right.
pub fn with_checksum(mut block: [u8; BLOCK]) -> [u8; BLOCK] {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

pub fn octal(size: usize) -> [u8; 12] {
    let mut field = [0; 12];
    field[..11].copy_from_slice(format!("{size:011o}").as_bytes());
    field
}

/// An archive that grows member by member.
#[derive(Clone, Default)]
pub struct Tar(pub Vec<u8>);

impl Tar {
    /// A regular file.
    pub fn file(self, name: &str, bytes: &[u8]) -> Self {
        self.member(b'0', name, bytes)
    }

    /// A small image.
    pub fn image(self, name: &str, color: [u8; 3]) -> Self {
        self.file(name, &bmp(5, 4, color))
    }

    /// A member of any kind.
    pub fn member(self, kind: u8, name: &str, bytes: &[u8]) -> Self {
        self.block(header(name, octal(bytes.len()), kind)).data(bytes)
    }

    /// One block as it is.
    pub fn block(mut self, block: [u8; BLOCK]) -> Self {
        self.0.extend(block);
        self
    }

    /// Bytes, filled up to whole blocks.
    pub fn data(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// Records about the next member.
    pub fn records(self, pairs: &[(&str, &str)]) -> Self {
        let record = |(key, value): &(&str, &str)| {
            let rest = format!(" {key}={value}\n");
            // The length counts its own digits.
            let length = (1..).find(|length: &usize| length.to_string().len() + rest.len() == *length).unwrap();
            format!("{length}{rest}")
        };
        let text: String = pairs.iter().map(record).collect();
        self.member(b'x', "records", text.as_bytes())
    }

    /// The bytes of the whole archive.
    pub fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 2 * BLOCK]);
        self.0
    }
}
