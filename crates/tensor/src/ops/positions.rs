//! Position embeddings of a grid of patches from those of the grid that they were learnt for.

/// Learnt rows or columns and their weights.
type Taps = Vec<(usize, f64)>;

/// How positions are interpolated where an image has another grid than the learnt one. All are bicubic; the programs that
/// people train with differ in the rest, and a network has to be run as where it comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// DINO and iBOT, and what is trained here: coordinates are mapped with the scale (n + 0.1) / learnt.
    #[default]
    Dino,
    /// Coordinates are mapped with the scale n / learnt: Hugging Face's models, and MSN on square images.
    Plain,
    /// The same, with the kernel widened where a grid shrinks, as images are resized: timm, and DINOv2 with registers.
    Antialiased,
}

/// A grid of patches, and how its position embeddings come from the learnt grid.
#[derive(Clone, Debug)]
pub struct Grid {
    height: usize,
    width: usize,
    learnt_width: usize,
    /// Whether the learnt embeddings are taken as they are.
    is_learnt: bool,
    /// For each row and each column of the grid: the learnt rows and columns it mixes, and their weights.
    rows: Vec<Taps>,
    columns: Vec<Taps>,
}

impl Grid {
    /// The learnt embeddings as they are where the grids agree, else interpolated.
    pub fn new((height, width): (usize, usize), learnt: (usize, usize), rule: Interpolation) -> Self {
        let is_learnt = (height, width) == learnt;
        let axis = |n: usize, learnt: usize| match rule {
            _ if is_learnt => (0..n).map(|i| vec![(i, 1.0)]).collect(),
            Interpolation::Dino => bicubic(n, learnt, (n as f64 + 0.1) / learnt as f64),
            Interpolation::Plain => bicubic(n, learnt, n as f64 / learnt as f64),
            Interpolation::Antialiased => antialiased(n, learnt),
        };
        let (rows, columns) = (axis(height, learnt.0), axis(width, learnt.1));
        Self { height, width, learnt_width: learnt.1, is_learnt, rows, columns }
    }

    /// Number of patches.
    pub fn patches(&self) -> usize {
        self.height * self.width
    }

    pub(crate) fn is_learnt(&self) -> bool {
        self.is_learnt
    }

    /// The learnt positions that make up position `patch`, with their weights.
    pub fn taps(&self, patch: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let (row, column) = (patch / self.width, patch % self.width);
        self.rows[row].iter().flat_map(move |&(y, wy)| {
            self.columns[column].iter().map(move |&(x, wx)| (y * self.learnt_width + x, wy * wx))
        })
    }
}

/// The bicubic kernel with the parameter `a` at a distance from its centre.
fn kernel(a: f64, distance: f64) -> f64 {
    match distance.abs() {
        t if t <= 1.0 => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
        t if t < 2.0 => ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a,
        _ => 0.0,
    }
}

/// Four taps with a = -0.75, edges repeated.
fn bicubic(n: usize, learnt: usize, scale: f64) -> Vec<Taps> {
    let last = learnt as isize - 1;
    (0..n)
        .map(|i| {
            let source = (i as f64 + 0.5) / scale - 0.5;
            let base = source.floor();
            let t = source - base;
            let tap = |d: isize| ((base as isize + d).clamp(0, last) as usize, kernel(-0.75, t - d as f64));
            (-1..=2).map(tap).collect()
        })
        .collect()
}

/// a = -0.5, the kernel as wide as a cell of the new grid is, and what falls over an edge left out.
fn antialiased(n: usize, learnt: usize) -> Vec<Taps> {
    let scale = learnt as f64 / n as f64;
    let stretch = scale.max(1.0);
    (0..n)
        .map(|i| {
            let center = scale * (i as f64 + 0.5);
            let first = (center - 2.0 * stretch + 0.5).max(0.0) as usize;
            let end = ((center + 2.0 * stretch + 0.5) as usize).min(learnt);
            let tap = |j: usize| (j, kernel(-0.5, (j as f64 + 0.5 - center) / stretch));
            let mut taps: Taps = (first..end).map(tap).collect();
            let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
            taps
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first row of grid[r, c] = sin(0.37 (14 r + c)) on another grid.
    fn first_row(grid: (usize, usize), rule: Interpolation) -> Vec<f64> {
        let learnt: Vec<f64> = (0..196).map(|i| (0.37 * f64::from(i)).sin()).collect();
        let (columns, grid) = (grid.1, Grid::new(grid, (14, 14), rule));
        (0..columns).map(|p| grid.taps(p).map(|(i, w)| w * learnt[i]).sum()).collect()
    }

    #[track_caller]
    fn assert_row(grid: (usize, usize), rule: Interpolation, want: &[f64]) {
        for (got, want) in first_row(grid, rule).iter().zip(want) {
            assert!((got - want).abs() < 5.1e-9, "{rule:?} {got} {want}");
        }
    }

    #[test]
    fn interpolated_positions_follow_the_published_vector() {
        // vit.md: 14 -> 6, first row.
        let want = [-0.43428076, 0.37869161, 0.9258493, 0.83380666, 0.18987975, -0.60891144];
        assert_row((6, 6), Interpolation::Dino, &want);
    }

    #[test]
    fn a_grid_equal_to_the_learnt_one_is_taken_as_it_is() {
        for rule in [Interpolation::Dino, Interpolation::Plain, Interpolation::Antialiased] {
            let grid = Grid::new((3, 5), (3, 5), rule);
            for p in 0..15 {
                assert_eq!(grid.taps(p).collect::<Vec<_>>(), [(p, 1.0)]);
            }
        }
    }
}
