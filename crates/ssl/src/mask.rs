//! Which patches of a view the student does not see.
//!
//! Drawn from a key for each view of each image, so that a resumed run and another number of processes draw the same ones.
//! iBOT's rule: some views stay whole; of the others a share of the patches, drawn anew for each, is covered by rectangles
//! (`Block`) or by single patches (`Random`).

use random::{Key, Stream};

use crate::recipe::{Interval, MaskShape};

/// Rectangles that are tried before a mask is taken as it is.
const TRIES: usize = 10;
/// Narrowest rectangle, height by width; the widest is its inverse.
const NARROWEST: f64 = 0.3;

/// How masks are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskOptions {
    /// Of what they are made.
    pub shape: MaskShape,
    /// The share of the views that are masked.
    pub masked_views: f64,
    /// The shares of a masked view's patches that are covered, at most.
    pub ratio: Interval,
    /// The first epoch with masks.
    pub first_epoch: u64,
}

/// Rows and columns of patches.
pub type GridSize = (usize, usize);

impl MaskOptions {
    /// The covered patches of one view, row by row and in ascending order.
    pub fn draw(&self, key: Key, epoch: u64, grid: GridSize) -> Vec<usize> {
        if epoch < self.first_epoch {
            return Vec::new();
        }
        let mut stream = key.stream();
        // In this order, so that the draws of a view do not depend on whether it is masked.
        let ratio = stream.uniform_in(self.ratio.low, self.ratio.high);
        if stream.uniform() >= self.masked_views {
            return Vec::new();
        }
        let most = ratio * (grid.0 * grid.1) as f64;
        match self.shape {
            MaskShape::Block => blocks(&mut stream, most, grid),
            MaskShape::Random => singles(&mut stream, most, grid),
        }
    }
}

/// The patches of some images that the student does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// For each global view, view by view over the images: its masked patches in ascending order.
    pub of_views: Vec<Vec<usize>>,
}

impl Masks {
    /// Masked patches in all.
    pub fn count(&self) -> usize {
        self.of_views.iter().map(Vec::len).sum()
    }

    /// Their rows in a matrix with a row for each of the `patches` of each global view.
    pub(crate) fn rows(&self, patches: usize) -> Vec<usize> {
        let of_view = |(view, masked): (usize, &Vec<usize>)| {
            masked.iter().map(move |patch| view * patches + patch).collect::<Vec<_>>()
        };
        self.of_views.iter().enumerate().flat_map(of_view).collect()
    }

    /// What each masked patch weighs: all of a view together as much as one view does.
    pub(crate) fn weights(&self, of_view: f64) -> Vec<f64> {
        self.of_views.iter().flat_map(|patches| vec![of_view / patches.len().max(1) as f64; patches.len()]).collect()
    }
}

/// The smallest area from which a rectangle is drawn.
fn smallest_area((rows, columns): GridSize) -> f64 {
    ((rows.min(columns) / 3) as f64).powi(2)
}

/// Rectangles until `most` patches are covered, or none is found any more that fits into what is left.
fn blocks(stream: &mut Stream, most: f64, grid: GridSize) -> Vec<usize> {
    let (rows, columns) = grid;
    let mut covered = vec![false; rows * columns];
    let mut count = 0;
    while (count as f64) < most {
        let added = (0..TRIES).find_map(|_| one_block(stream, most - count as f64, grid, &mut covered));
        match added {
            Some(patches) => count += patches,
            None => break,
        }
    }
    (0..covered.len()).filter(|&patch| covered[patch]).collect()
}

/// One rectangle that covers something new and not more than `room`: how many patches. None where the one that was drawn
/// does not fit.
fn one_block(stream: &mut Stream, room: f64, (rows, columns): GridSize, covered: &mut [bool]) -> Option<usize> {
    // Where little room is left the bounds are reversed, and a draw between them is as good.
    let area = stream.uniform_in(smallest_area((rows, columns)), room);
    let aspect = stream.uniform_in(NARROWEST.ln(), -NARROWEST.ln()).exp();
    let height = (area * aspect).sqrt().round_ties_even() as usize;
    let width = (area / aspect).sqrt().round_ties_even() as usize;
    if height >= rows || width >= columns {
        return None;
    }
    let top = stream.below((rows - height + 1) as u64) as usize;
    let left = stream.below((columns - width + 1) as u64) as usize;
    let patches = (top..top + height).flat_map(|row| (left..left + width).map(move |column| row * columns + column));
    let new: Vec<usize> = patches.filter(|&patch| !covered[patch]).collect();
    if new.is_empty() || new.len() as f64 > room {
        return None;
    }
    new.iter().for_each(|&patch| covered[patch] = true);
    Some(new.len())
}

/// Single patches, as many as fit into `most`.
fn singles(stream: &mut Stream, most: f64, (rows, columns): GridSize) -> Vec<usize> {
    let mut patches: Vec<usize> = (0..rows * columns).collect();
    let count = (most as usize).min(patches.len());
    for place in 0..count {
        let other = place + stream.below((patches.len() - place) as u64) as usize;
        patches.swap(place, other);
    }
    patches.truncate(count);
    patches.sort_unstable();
    patches
}
