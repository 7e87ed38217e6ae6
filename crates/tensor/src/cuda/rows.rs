//! The rows of an operation as a kernel needs them.

use std::sync::Arc;

use super::{Cuda, CudaBuffer, arguments};
use crate::rows::Rows;
use crate::tensor::DType;

/// Maps between the packed and the compact matrix of some [`Rows`], and where segments begin in the compact one.
pub(crate) struct DeviceRows {
    /// One upload for all rows that were prepared together.
    _sent: Arc<CudaBuffer>,
    /// Address in it of the offsets of segments in the compact matrix; its end is the last of them.
    offsets: u64,
    /// Both maps; none where the two matrices are the same.
    maps: Option<(CudaBuffer, CudaBuffer)>,
    groups: Vec<Group>,
}

/// Neighbouring segments of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub first: usize,
    pub segments: usize,
    pub length: usize,
}

/// Words of what `row_maps` reads for one pair of maps: four addresses and two numbers.
const JOB_WORDS: usize = 10;

/// Blocks that leave a GPU idle, so that they may as well be large.
const FEW_BLOCKS: usize = 128;

impl DeviceRows {
    /// The device's form of some rows, with one copy and one kernel for all of them: small ones cost the stream more time
    /// than their work.
    fn make(cuda: &Cuda, all: &[&Rows]) -> Vec<Self> {
        let is_part = |rows: &&&Rows| rows.count() != rows.source_rows();
        let jobs = all.iter().filter(is_part).count();
        let places: usize = all.iter().map(|rows| rows.offsets().len() + rows.segments()).sum();
        let sent = Arc::new(cuda.scratch((jobs * JOB_WORDS + places) * size_of::<i32>()));
        let address = |word: usize| sent.address() + (word * size_of::<i32>()) as u64;
        // First what the kernel reads for each pair of maps, then the beginnings of all segments.
        let (mut head, mut tail): (Vec<i32>, Vec<i32>) = (Vec::new(), Vec::new());
        let made = all.iter().map(|rows| {
            let offsets = address(jobs * JOB_WORDS + tail.len());
            tail.extend(rows.offsets().iter().map(|&offset| offset as i32));
            let starts = address(jobs * JOB_WORDS + tail.len());
            tail.extend((0..rows.segments()).map(|s| rows.start(s) as i32));
            let maps = is_part(&rows).then(|| {
                let map = |rows| cuda.allocate(rows, DType::F32);
                let (source_of, compact_of) = (map(rows.count()), map(rows.source_rows()));
                for address in [starts, offsets, source_of.address(), compact_of.address()] {
                    head.extend([address as i32, (address >> 32) as i32]);
                }
                head.extend([rows.segments() as i32, rows.source_rows() as i32]);
                (source_of, compact_of)
            });
            Self { _sent: sent.clone(), offsets, maps, groups: groups(rows) }
        });
        let made = made.collect();
        head.append(&mut tail);
        cuda.upload(sent.address(), &head);
        let blocks = all.iter().map(|rows| rows.segments() + 1).max().unwrap_or(0);
        // A few segments may be as many rows as hundreds of others, and nobody shares the work of a block.
        let threads = if blocks * jobs <= FEW_BLOCKS { 1024 } else { 64 };
        let grid = (blocks as u32, jobs as u32, 1);
        cuda.launch(("residual", "row_maps"), grid, (threads, 1), 0, &arguments![sent.address()]);
        made
    }

    /// Where each segment begins in the compact matrix.
    pub(crate) fn offsets(&self) -> u64 {
        self.offsets
    }

    /// The packed row of each compact one; null for the identity.
    pub(crate) fn source_of(&self) -> u64 {
        self.maps.as_ref().map_or(0, |(source_of, _)| source_of.address())
    }

    /// The compact row of each packed one, or -1; null for the identity.
    pub(crate) fn compact_of(&self) -> u64 {
        self.maps.as_ref().map_or(0, |(_, compact_of)| compact_of.address())
    }

    /// Whether packed and compact matrix are the same.
    pub(crate) fn is_whole(&self) -> bool {
        self.maps.is_none()
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }
}

fn groups(rows: &Rows) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for s in 0..rows.segments() {
        let length = rows.segment_len(s);
        match groups.last_mut().filter(|g| g.length == length) {
            Some(group) => group.segments += 1,
            None => groups.push(Group { first: s, segments: 1, length }),
        }
    }
    groups
}

impl Cuda {
    /// The device's form of some rows, made when first asked for.
    pub(crate) fn rows<'a>(&self, rows: &'a Rows) -> &'a DeviceRows {
        rows.on_device(|| DeviceRows::make(self, &[rows]).swap_remove(0))
    }

    /// Makes the device's form of those rows that do not have it.
    pub(crate) fn prepare_rows(&self, all: &[&Rows]) {
        let mut missing: Vec<&Rows> = Vec::new();
        for &rows in all {
            if !rows.is_on_device() && !missing.iter().any(|other| other.is_same(rows)) {
                missing.push(rows);
            }
        }
        if missing.is_empty() {
            return;
        }
        for (rows, made) in missing.iter().zip(DeviceRows::make(self, &missing)) {
            rows.on_device(|| made);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_one_length_form_a_group() {
        let group = |first, segments, length| Group { first, segments, length };
        assert_eq!(groups(&Rows::all([5, 5, 3, 3, 3, 5])), [group(0, 2, 5), group(2, 3, 3), group(5, 1, 5)]);
        assert_eq!(groups(&Rows::all([])), []);
    }
}
