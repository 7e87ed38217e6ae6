//! Grounds: patterns of cells, each cell with a tone of its own. A pattern has a period but no fixed place or tones.

/// A class's ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texture {
    Rows,
    Columns,
    Diagonals,
    Checks,
    Dots,
}

impl Texture {
    pub(super) const ALL: [Texture; 5] =
        [Texture::Rows, Texture::Columns, Texture::Diagonals, Texture::Checks, Texture::Dots];

    pub(super) fn plural(self) -> &'static str {
        match self {
            Texture::Rows => "rows",
            Texture::Columns => "columns",
            Texture::Diagonals => "diagonals",
            Texture::Checks => "checks",
            Texture::Dots => "dots",
        }
    }

    /// The cell that a point lies in, or `None` between cells. (x, y) is in periods.
    #[inline]
    pub(super) fn cell(self, x: f32, y: f32) -> Option<(i32, i32)> {
        let index = |t: f32| t.floor() as i32;
        match self {
            Texture::Rows => Some((0, index(y))),
            Texture::Columns => Some((0, index(x))),
            Texture::Diagonals => Some((0, index((x + y) * DIAGONAL))),
            Texture::Checks => Some((index(x * CHECK), index(y * CHECK))),
            Texture::Dots => {
                let (dx, dy) = (x - x.floor() - 0.5, y - y.floor() - 0.5);
                (dx * dx + dy * dy < DOT_RADIUS * DOT_RADIUS).then(|| (index(x), index(y)))
            }
        }
    }
}

/// Checks are a little coarser than stripes, so that both hold about as many edges.
const CHECK: f32 = 0.8;
/// Diagonal stripes are as wide as rows and columns.
const DIAGONAL: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// Of a dot, in periods.
const DOT_RADIUS: f32 = 0.4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_as_long_as_its_ground_says() {
        // A step of 1.2 periods along x, and one along y: do they lead into another cell?
        let changes = |texture: Texture| {
            let at = |x, y| texture.cell(x, y).unwrap();
            let start = at(0.5, 0.5);
            (at(1.7, 0.5) != start, at(0.5, 1.7) != start)
        };
        assert_eq!(changes(Texture::Rows), (false, true));
        assert_eq!(changes(Texture::Columns), (true, false));
        assert_eq!(changes(Texture::Diagonals), (true, true));
        // A diagonal goes on to the right and up, and is as wide as a row is high.
        let diagonal = |x, y| Texture::Diagonals.cell(x, y).unwrap();
        assert_eq!(diagonal(0.5, 0.5), diagonal(3.5, -2.5));
        let across = |t: f32| diagonal(t * DIAGONAL, t * DIAGONAL).1;
        assert_eq!((across(0.01), across(0.99), across(1.01), across(4.99)), (0, 0, 1, 4));
        assert_eq!(changes(Texture::Checks), (true, true));
        assert_eq!(changes(Texture::Dots), (true, true));
    }

    #[test]
    fn dots_cover_half_of_their_ground_and_the_others_all_of_it() {
        for texture in Texture::ALL {
            let n = 500;
            let inside = |i: &usize| texture.cell((i % n) as f32 / 50.0, (i / n) as f32 / 50.0).is_some();
            let share = (0..n * n).filter(inside).count() as f32 / (n * n) as f32;
            let expected = if texture == Texture::Dots { 0.4..0.6 } else { 0.999..1.001 };
            assert!(expected.contains(&share), "{texture:?}: {share}");
        }
    }
}
