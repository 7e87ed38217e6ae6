//! Which rows of a packed token matrix an operation works on.

use std::sync::{Arc, OnceLock};

use crate::cuda::DeviceRows;

/// Some segments of a packed matrix, in order, and where they lie in the compact matrix made of them alone.
///
/// All crops of a batch are one matrix [tokens, dim]; a segment is the rows of one crop. `Rows` says which segments (or
/// which part of each) take part: all of them, those that drop path keeps, or only the class tokens. An operation
/// reads the named rows of the large matrix and writes a compact one, or the other way round.
#[derive(Clone)]
pub struct Rows {
    inner: Arc<Inner>,
}

struct Inner {
    source_rows: usize,
    /// The form that a GPU needs, once one has asked for it.
    on_device: OnceLock<DeviceRows>,
    starts: Vec<usize>,
    offsets: Vec<usize>,
}

impl Rows {
    /// All rows of a matrix whose segments have these lengths.
    pub fn all(lengths: impl IntoIterator<Item = usize>) -> Self {
        let mut offsets = vec![0];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length);
        }
        let starts = offsets[..offsets.len() - 1].to_vec();
        Self::of(offsets[offsets.len() - 1], starts, offsets)
    }

    /// All rows of a matrix whose segments are single rows.
    pub fn one_each(segments: usize) -> Self {
        Self::all(std::iter::repeat_n(1, segments))
    }

    /// Neighbouring rows of a matrix with `source_rows`, as one segment.
    ///
    /// # Panics
    /// When they are beyond the matrix.
    pub fn range(source_rows: usize, rows: std::ops::Range<usize>) -> Self {
        assert!(rows.end <= source_rows, "rows of a matrix of {source_rows}");
        Self::of(source_rows, vec![rows.start], vec![0, rows.len()])
    }

    /// Some rows of a matrix with `source_rows`, in ascending order; neighbours form a segment.
    ///
    /// # Panics
    /// When they are not ascending, or beyond the matrix.
    pub fn some(source_rows: usize, rows: &[usize]) -> Self {
        assert!(rows.is_sorted_by(|a, b| a < b), "rows in ascending order");
        assert!(rows.last().is_none_or(|&last| last < source_rows), "rows of a matrix of {source_rows}");
        let (mut starts, mut offsets) = (Vec::new(), vec![0]);
        for neighbours in rows.chunk_by(|a, b| a + 1 == *b) {
            starts.push(neighbours[0]);
            offsets.push(offsets[offsets.len() - 1] + neighbours.len());
        }
        Self::of(source_rows, starts, offsets)
    }

    /// The segments whose flag is set.
    ///
    /// # Panics
    /// When there is not one flag for each segment.
    pub fn keep(&self, flags: &[bool]) -> Self {
        assert_eq!(flags.len(), self.segments(), "one flag for each segment");
        let kept = (0..self.segments()).filter(|&s| flags[s]);
        self.pick(kept.map(|s| (self.start(s), self.segment_len(s))))
    }

    /// The first row of every segment: the class tokens.
    pub fn first_of_each(&self) -> Self {
        self.pick((0..self.segments()).filter(|&s| self.segment_len(s) > 0).map(|s| (self.start(s), 1)))
    }

    /// All but the first `n` rows of every segment: the patch tokens.
    pub fn all_but_first(&self, n: usize) -> Self {
        let segments = (0..self.segments()).filter(|&s| self.segment_len(s) > n);
        self.pick(segments.map(|s| (self.start(s) + n, self.segment_len(s) - n)))
    }

    /// The same segments numbered in the compact matrix that they form.
    pub fn compact(&self) -> Self {
        Self::all((0..self.segments()).map(|s| self.segment_len(s)))
    }

    fn pick(&self, ranges: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut starts = Vec::new();
        let mut offsets = vec![0];
        for (start, len) in ranges {
            starts.push(start);
            offsets.push(offsets[offsets.len() - 1] + len);
        }
        Self::of(self.inner.source_rows, starts, offsets)
    }

    fn of(source_rows: usize, starts: Vec<usize>, offsets: Vec<usize>) -> Self {
        Self { inner: Arc::new(Inner { source_rows, starts, offsets, on_device: OnceLock::new() }) }
    }

    /// The form that a GPU needs, made once. Rows belong to the tensors of one device.
    pub(crate) fn on_device(&self, make: impl FnOnce() -> DeviceRows) -> &DeviceRows {
        self.inner.on_device.get_or_init(make)
    }

    /// Whether it has been made.
    pub(crate) fn is_on_device(&self) -> bool {
        self.inner.on_device.get().is_some()
    }

    /// Whether both are copies of one and the same.
    pub(crate) fn is_same(&self, other: &Rows) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Rows of the large matrix.
    pub fn source_rows(&self) -> usize {
        self.inner.source_rows
    }

    /// Rows of the compact matrix.
    pub fn count(&self) -> usize {
        self.inner.offsets[self.segments()]
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.inner.starts.len()
    }

    /// Where segment `s` begins in the large matrix.
    pub fn start(&self, s: usize) -> usize {
        self.inner.starts[s]
    }

    /// Rows of segment `s`.
    pub fn segment_len(&self, s: usize) -> usize {
        self.inner.offsets[s + 1] - self.inner.offsets[s]
    }

    /// Where each segment begins in the compact matrix, with its end as a last entry.
    pub fn offsets(&self) -> &[usize] {
        &self.inner.offsets
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} rows in {} segments", self.count(), self.source_rows(), self.segments())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_segments_keep_their_place_in_the_source_and_close_up_in_the_compact_matrix() {
        let rows = Rows::all([3, 2, 4]).keep(&[true, false, true]);
        assert_eq!((rows.source_rows(), rows.count(), rows.segments()), (9, 7, 2));
        assert_eq!((rows.start(0), rows.start(1)), (0, 5));
        assert_eq!(rows.offsets(), [0, 3, 7]);
        let patches = rows.all_but_first(1);
        assert_eq!((patches.start(1), patches.count(), patches.segments()), (6, 5, 2));
        let class = rows.first_of_each();
        assert_eq!((class.start(1), class.count()), (5, 2));
        assert_eq!((rows.compact().source_rows(), rows.compact().count()), (7, 7));
        let range = Rows::range(9, 2..6);
        assert_eq!((range.source_rows(), range.count(), range.start(0)), (9, 4, 2));
        let some = Rows::some(9, &[1, 2, 7]);
        assert_eq!((some.source_rows(), some.count(), some.segments(), some.start(1)), (9, 3, 2, 7));
    }
}
