//! The images that stand for a prototype: those that chose it, the nearest first, and where too few did, the nearest others.

use std::cmp::Ordering;

use model::weights::LoadedHead;
use rayon::prelude::*;
use tensor::Device;

use super::assign::Assignments;
use super::duplicates::Directions;
use super::project::each_part;
use crate::error::EvalError;
use crate::features::Features;

/// Images that are looked at together.
const AT_ONCE: usize = 1024;

/// An image near a prototype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// Its row among the features.
    pub row: usize,
    /// <v_k, y>: how near it is, 1 for the same direction.
    pub cosine: f32,
    /// Whether it chose this prototype.
    pub is_chosen: bool,
}

/// Up to `most` images for each of some prototypes, on the threads of `host`. The assignments are those of the same features.
///
/// # Panics
/// When `host` is a GPU, the assignments are of other images, or there is no such prototype.
pub fn exemplars(
    head: &LoadedHead,
    directions: &Directions,
    assignments: &Assignments,
    features: &Features,
    prototypes: &[u32],
    most: usize,
    devices: (&Device, &Device),
) -> Result<Vec<Vec<Exemplar>>, EvalError> {
    let (device, host) = devices;
    assert!(!host.is_gpu(), "the nearest are chosen on the host");
    assert_eq!(assignments.prototypes.len(), features.len(), "an assignment for each image");
    let p = head.config.bottleneck;
    let mut found: Vec<Vec<Exemplar>> = vec![Vec::new(); prototypes.len()];
    each_part(head, features, device, None, AT_ONCE, |rows, y| {
        host.run(|| {
            found.par_iter_mut().zip(prototypes).for_each(|(found, &prototype)| {
                let direction = directions.of(prototype as usize);
                found.extend(rows.iter().zip(y.chunks_exact(p)).map(|(&row, y)| Exemplar {
                    row,
                    cosine: y.iter().zip(direction).map(|(&a, b)| a as f32 * b).sum(),
                    is_chosen: assignments.prototypes[row] == prototype,
                }));
                found.sort_unstable_by(better_first);
                found.truncate(most);
            });
        });
        Ok(())
    })?;
    Ok(found)
}

/// Those that chose the prototype, then by nearness, then by row: no two are equal.
fn better_first(a: &Exemplar, b: &Exemplar) -> Ordering {
    b.is_chosen.cmp(&a.is_chosen).then(b.cosine.total_cmp(&a.cosine)).then(a.row.cmp(&b.row))
}
