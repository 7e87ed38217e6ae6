//! The void set: prototypes that all point away from the data, and that nothing is assigned to (paper, Section 5.2).

use super::assign::Assignments;
use super::duplicates::{Directions, Duplicates};

/// What the largest set of duplicates is to the data.
#[derive(Clone, Debug, PartialEq)]
pub struct VoidSet {
    /// Its members.
    pub members: usize,
    /// Cosine between the mean direction of its members and the mean of the data's unit vectors: -1 for a set that points away from
    /// all of it. None where one of them has no direction.
    pub cosine: Option<f64>,
    /// Images that chose one of its members: none choose a void set.
    pub images: usize,
}

impl VoidSet {
    /// Of the largest set of duplicates, and what images chose.
    ///
    /// # Panics
    /// When these are not of the same prototypes.
    pub fn of(duplicates: &Duplicates, directions: &Directions, assignments: &Assignments) -> Self {
        let mut direction = vec![0.0; assignments.mean.len()];
        for &member in &duplicates.largest {
            direction.iter_mut().zip(directions.of(member as usize)).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let lengths = (dot(&direction, &direction) * dot(&assignments.mean, &assignments.mean)).sqrt();
        let cosine = (lengths > 0.0).then(|| dot(&direction, &assignments.mean) / lengths);
        let chosen = |&member: &u32| assignments.counts[member as usize] as usize;
        Self { members: duplicates.largest.len(), cosine, images: duplicates.largest.iter().map(chosen).sum() }
    }

    /// Whether it is one: several prototypes, none of them chosen, and pointing away from the data.
    pub fn is_void(&self) -> bool {
        self.members > 1 && self.images == 0 && self.cosine.is_some_and(|cosine| cosine < 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_points_away_and_is_not_chosen_is_void() {
        let directions = Directions::new(2, &[1.0, 0.0, -1.0, 0.1, -1.0, -0.1], &[1.0; 3]);
        let set = |largest: &[u32]| Duplicates {
            threshold: 0.9,
            unique: 2,
            largest: largest.to_vec(),
            components: 2,
            largest_component: 2,
        };
        let data = |counts: &[u32]| Assignments {
            prototypes: vec![0; 5],
            mean: vec![0.5, 0.0],
            entropy: 0.0,
            counts: counts.to_vec(),
        };
        let void = VoidSet::of(&set(&[1, 2]), &directions, &data(&[5, 0, 0]));
        assert_eq!((void.members, void.images, void.is_void()), (2, 0, true));
        assert!((void.cosine.unwrap() + 1.0).abs() < 1e-6);
        let chosen = VoidSet::of(&set(&[1, 2]), &directions, &data(&[3, 0, 2]));
        assert_eq!((chosen.images, chosen.is_void()), (2, false));
        let alone = VoidSet::of(&set(&[0]), &directions, &data(&[0, 5, 0]));
        assert_eq!((alone.cosine, alone.is_void()), (Some(1.0), false));
    }
}
