//! Held-out images that are training images too, byte for byte: accuracies on them say nothing about new images.
//!
//! Only images of the same size can be the same, and sizes cost no more than listing a folder. So up to
//! [`MOST_JUDGED`] held-out images are looked for, and only those training images are opened that have the size of one of
//! them: of photographs one in a hundred. Where all images have one size, as raw pixels have, up to [`MOST_OPENED`] are.
//! What is compared is the digest of [`super::content`], as in a fingerprint.

use super::{Source, parallel};
use std::collections::{HashMap, HashSet};
use text::{count, thousands};

/// Held-out images that are looked for.
const MOST_JUDGED: usize = 4096;
/// Training images that are opened.
const MOST_OPENED: usize = 1 << 14;
/// Images that a thread takes at a time.
const SHARE: usize = 64;

/// What was found of the images of one source in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Images that are judged; not more than 4,096 of them are looked for.
    pub judged: usize,
    /// Those among them that were found.
    pub found: usize,
    /// Whether there may be more: not every image that could be a copy was opened.
    pub may_be_more: bool,
    /// The first of them, and what it is a copy of.
    pub first: Option<(String, String)>,
}

impl Copies {
    /// Looks for the images of `held_out` in `train`.
    pub fn of(held_out: &dyn Source, train: &dyn Source) -> Self {
        let judged = keyed(held_out, spread(held_out.len(), MOST_JUDGED));
        let sizes: HashSet<u64> = judged.iter().map(|(_, (size, _))| *size).collect();
        let (opened, may_be_more) = fitting(&self::sizes(train), &sizes);
        let mut known: HashMap<(u64, u64), usize> = HashMap::new();
        for (index, key) in keyed(train, opened) {
            known.entry(key).or_insert(index);
        }
        let found: Vec<(usize, usize)> =
            judged.iter().filter_map(|(index, key)| Some((*index, *known.get(key)?))).collect();
        let first = found.first().map(|&(copy, of)| (held_out.name(copy), train.name(of)));
        let may_be_more = may_be_more || held_out.len() > MOST_JUDGED;
        Self { judged: held_out.len(), found: found.len(), may_be_more, first }
    }

    /// Looks for images of a source that are the same as others of it.
    pub fn within(source: &dyn Source) -> Self {
        let sizes = sizes(source);
        let mut times: HashMap<u64, usize> = HashMap::new();
        sizes.iter().flatten().for_each(|&size| *times.entry(size).or_default() += 1);
        let repeated: HashSet<u64> = times.into_iter().filter(|&(_, times)| times > 1).map(|(size, _)| size).collect();
        let (opened, may_be_more) = fitting(&sizes, &repeated);
        let mut same: HashMap<(u64, u64), Vec<usize>> = HashMap::new();
        for (index, key) in keyed(source, opened) {
            same.entry(key).or_default().push(index);
        }
        let mut groups: Vec<Vec<usize>> = same.into_values().filter(|group| group.len() > 1).collect();
        groups.sort_unstable();
        let first = groups.first().map(|group| (source.name(group[0]), source.name(group[1])));
        Self { judged: source.len(), found: groups.iter().map(Vec::len).sum(), may_be_more, first }
    }

    /// `all 12 held-out images` or `at least 3 of 12 held-out images`; none where nothing was found.
    pub fn share(&self, what: &str) -> Option<String> {
        let least = if self.may_be_more { "at least " } else { "" };
        match self.found {
            0 => None,
            1 if self.judged == 1 => Some(format!("the only {what}")),
            found if found == self.judged => Some(format!("all {}", count(found, what))),
            found => Some(format!("{least}{} of {}", thousands(found), count(self.judged, what))),
        }
    }
}

/// The images that have one of the wanted sizes, and whether some were left out because they are too many.
fn fitting(sizes: &[Option<u64>], wanted: &HashSet<u64>) -> (Vec<usize>, bool) {
    let is_wanted = |size: Option<u64>| size.is_some_and(|size| wanted.contains(&size));
    let fitting: Vec<usize> = (0..sizes.len()).filter(|&index| is_wanted(sizes[index])).collect();
    let taken = spread(fitting.len(), MOST_OPENED);
    let are_too_many = taken.len() < fitting.len();
    (taken.into_iter().map(|i| fitting[i]).collect(), are_too_many)
}

/// Sizes of all images; none for one that is empty or cannot be asked.
fn sizes(source: &dyn Source) -> Vec<Option<u64>> {
    parallel::map(source.len(), SHARE, |index| source.stored_bytes(index).filter(|&bytes| bytes > 0))
}

/// Size and digest of some images, without those that cannot be read.
fn keyed(source: &dyn Source, indices: Vec<usize>) -> Vec<(usize, (u64, u64))> {
    let key =
        |index: usize| Some((source.stored_bytes(index).filter(|&bytes| bytes > 0)?, source.content_digest(index)?));
    let keys = parallel::map(indices.len(), SHARE, |i| key(indices[i]));
    indices.into_iter().zip(keys).filter_map(|(index, key)| Some((index, key?))).collect()
}

/// Up to `most` of the numbers below `len`, evenly spread.
fn spread(len: usize, most: usize) -> Vec<usize> {
    let taken = len.min(most);
    (0..taken).map(|i| (i as u128 * len as u128 / taken as u128) as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_images_those_taken_are_spread_evenly_and_more_may_be_copies() {
        assert_eq!(spread(10, 4), [0, 2, 5, 7]);
        assert_eq!((spread(3, 4), spread(0, 4)), (vec![0, 1, 2], vec![]));
        let sizes = vec![Some(7); 2 * MOST_OPENED];
        let (opened, may_be_more) = fitting(&sizes, &HashSet::from([7]));
        assert_eq!((opened.len(), opened[1], may_be_more), (MOST_OPENED, 2, true));
        assert_eq!(fitting(&[Some(7), None, Some(8)], &HashSet::from([8])), (vec![2], false));
    }
}
