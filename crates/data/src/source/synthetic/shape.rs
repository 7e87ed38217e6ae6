//! Outlines as signed distances: negative inside, in units of the shape's radius.

/// A class's outline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Disk,
    Cross,
}

impl Shape {
    pub(super) const ALL: [Shape; 2] = [Shape::Disk, Shape::Cross];

    pub(super) fn plural(self) -> &'static str {
        match self {
            Shape::Disk => "disks",
            Shape::Cross => "crosses",
        }
    }

    /// Signed distance of (x, y) to the outline; the shape lies within the circle of radius [`Self::REACH`].
    #[inline]
    pub(super) fn distance(self, x: f32, y: f32) -> f32 {
        match self {
            Shape::Disk => (x * x + y * y).sqrt() - 0.95,
            Shape::Cross => {
                let bar = |along: f32, across: f32| (along.abs() - 1.05).max(across.abs() - 0.36);
                bar(x, y).min(bar(y, x))
            }
        }
    }

    /// Radius of a circle around every shape.
    pub(super) const REACH: f32 = 1.17;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_lie_within_their_reach_and_cover_like_areas() {
        for shape in Shape::ALL {
            let mut inside = 0;
            for i in 0..400 {
                for j in 0..400 {
                    let (x, y) = ((i as f32 - 199.5) / 133.0, (j as f32 - 199.5) / 133.0);
                    if shape.distance(x, y) < 0.0 {
                        inside += 1;
                        assert!(x * x + y * y <= Shape::REACH * Shape::REACH, "{shape:?} at {x}, {y}");
                    }
                }
            }
            let area = inside as f32 / (133.0 * 133.0);
            assert!((1.6..3.1).contains(&area), "{shape:?} covers {area}");
        }
    }
}
