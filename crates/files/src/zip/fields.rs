//! Numbers in a record, little-endian.

/// A record whose length is known to the code that reads it: a place beyond it is a mistake there, and reads zeros.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, place: usize) -> [u8; N] {
        self.0.get(place..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    pub fn u16(&self, place: usize) -> u16 {
        u16::from_le_bytes(self.array(place))
    }

    pub fn u32(&self, place: usize) -> u32 {
        u32::from_le_bytes(self.array(place))
    }

    pub fn u64(&self, place: usize) -> u64 {
        u64::from_le_bytes(self.array(place))
    }
}
