//! The rows of an operation as a kernel needs them.

use super::{Cuda, CudaBuffer, arguments};
use crate::rows::Rows;
use crate::tensor::DType;

/// Maps between the packed and the compact matrix of some [`Rows`], and where segments begin in the compact one.
pub(crate) struct DeviceRows {
    /// Where segments begin in the compact matrix and where it ends, then where they begin in the packed one.
    places: CudaBuffer,
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

impl DeviceRows {
    fn new(cuda: &Cuda, rows: &Rows) -> Self {
        let starts = (0..rows.segments()).map(|s| rows.start(s));
        // One copy for both: a small copy costs the stream as much as a small kernel.
        let places: Vec<i32> = rows.offsets().iter().copied().chain(starts).map(|x| x as i32).collect();
        let places = cuda.uploaded(&places);
        let maps = (rows.count() != rows.source_rows()).then(|| {
            let starts = places.address() + (rows.offsets().len() * size_of::<i32>()) as u64;
            let (source_of, compact_of) =
                (cuda.allocate(rows.count(), DType::F32), cuda.allocate(rows.source_rows(), DType::F32));
            let arguments = arguments![
                starts,
                places.address(),
                rows.segments() as i32,
                rows.source_rows() as i32,
                source_of.address(),
                compact_of.address(),
            ];
            cuda.launch(("residual", "row_maps"), (rows.segments() as u32 + 1, 1, 1), (64, 1), 0, &arguments);
            (source_of, compact_of)
        });
        Self { places, maps, groups: groups(rows) }
    }

    /// Where each segment begins in the compact matrix.
    pub(crate) fn offsets(&self) -> u64 {
        self.places.address()
    }

    /// The packed row of each compact one; null for the same.
    pub(crate) fn source_of(&self) -> u64 {
        self.maps.as_ref().map_or(0, |(source_of, _)| source_of.address())
    }

    /// The compact row of each packed one, or -1; null for the same.
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
        rows.on_device(|| DeviceRows::new(self, rows))
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
