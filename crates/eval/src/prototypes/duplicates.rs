//! Prototypes that are one and the same: sets of directions whose cosines are above a threshold.
//!
//! The paper does not say how it groups them. Two ways, both in one pass over the cosines of all pairs, which exist in blocks
//! only:
//!
//! - **leaders**, in index order: a prototype joins the first leader with a cosine above the threshold, and becomes one
//!   where there is none. The number of leaders is the number of unique prototypes.
//! - **connected components** of the graph of all pairs above the threshold: a chain of near ones is one component although
//!   its ends are apart. Never more than there are leaders.

use std::ops::ControlFlow;

use rayon::prelude::*;
use tensor::ops::{self, Affine};
use tensor::{Device, Tensor};

use crate::error::EvalError;

/// Thresholds of the paper: 0.9, and up to 0.99 in its sweep.
pub const DEFAULT_THRESHOLDS: [f64; 4] = [0.9, 0.95, 0.97, 0.99];

/// Prototypes that are compared at once with those before them.
const ROWS: usize = 512;
/// And with how many at once: a block of cosines has 8 MiB.
const PANEL: usize = 4096;
/// Lower bound of the length that a direction is divided by.
const NORMALIZE_EPSILON: f64 = 1e-12;
/// No prototype.
const NONE: u32 = u32::MAX;

/// The directions of prototypes.
#[derive(Clone, Debug, PartialEq)]
pub struct Directions {
    p: usize,
    values: Vec<f32>,
}

impl Directions {
    /// Of vectors v [K, p] of any length, with the lengths g that the head gives them: one below zero turns it round.
    ///
    /// # Panics
    /// When these are not K directions and K lengths.
    pub fn new(p: usize, values: &[f32], lengths: &[f32]) -> Self {
        assert_eq!(values.len(), lengths.len() * p, "p values for each length");
        let unit = |(row, &length): (&[f32], &f32)| {
            let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt().max(NORMALIZE_EPSILON);
            let scale = if length < 0.0 { -norm } else { norm };
            row.iter().map(move |x| (f64::from(*x) / scale) as f32).collect::<Vec<f32>>()
        };
        Self { p, values: values.chunks_exact(p.max(1)).zip(lengths).flat_map(unit).collect() }
    }

    /// K, how many there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.p.max(1)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// A unit vector; nothing but zeros where the prototype had no direction.
    ///
    /// # Panics
    /// When there is no such prototype.
    pub fn of(&self, prototype: usize) -> &[f32] {
        &self.values[prototype * self.p..][..self.p]
    }

    fn matrix(&self, host: &Device, first: usize, count: usize) -> Tensor {
        host.from_f32(&[count, self.p], &self.values[first * self.p..][..count * self.p])
    }
}

/// The sets of one threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Duplicates {
    /// Cosines above it make duplicates.
    pub threshold: f64,
    /// Leaders.
    pub unique: usize,
    /// The members of the largest leader's set, the leader first; of equally large ones that of the lowest leader.
    pub largest: Vec<u32>,
    /// Connected components.
    pub components: usize,
    /// Members of the largest one.
    pub largest_component: usize,
}

/// Groups prototypes at each threshold, on the threads of `host`. `progress` is told how many of K are done, and may stop.
///
/// It takes K^2 / 2 products of p numbers, and memory for the directions twice and a few MiB.
///
/// # Panics
/// When `host` is a GPU.
pub fn duplicates(
    directions: &Directions,
    thresholds: &[f64],
    host: &Device,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<Duplicates>, EvalError> {
    assert!(!host.is_gpu(), "cosines are computed on the host");
    if let Some(wrong) = thresholds.iter().find(|threshold| !(**threshold > 0.0 && **threshold < 1.0)) {
        let expected = "a cosine between 0 and 1".to_owned();
        return Err(EvalError::Setting { setting: "threshold", value: wrong.to_string(), expected });
    }
    let count = directions.len();
    let panel = |first: usize| {
        let rows = PANEL.min(count - first);
        (directions.matrix(host, first, rows), host.zeros(&[rows]))
    };
    let panels: Vec<(Tensor, Tensor)> = (0..count).step_by(PANEL).map(panel).collect();
    let mut groups: Vec<Groups> = thresholds.iter().map(|&threshold| Groups::new(threshold, count)).collect();
    let least = thresholds.iter().copied().fold(1.0, f64::min) as f32;
    for first in (0..count).step_by(ROWS) {
        let rows = ROWS.min(count - first);
        let block = directions.matrix(host, first, rows);
        // What each row has found among the prototypes before the block, by threshold.
        let mut found: Vec<Vec<Found>> = vec![vec![Found::default(); groups.len()]; rows];
        for (i, (panel, bias)) in panels.iter().enumerate().take_while(|(i, _)| i * PANEL < first) {
            let width = panel.rows().min(first - i * PANEL);
            let cosines = ops::linear(&block, &Affine::new(panel, bias).part(0..width)).to_f32();
            host.finish()?;
            let groups = &groups;
            host.run(|| {
                let of_rows = found.par_iter_mut().zip(cosines.par_chunks_exact(width));
                of_rows.for_each(|(found, cosines)| look(cosines, least, i * PANEL, groups, found));
            });
        }
        let no_bias = host.zeros(&[rows]);
        let within = ops::linear(&block, &Affine::new(&block, &no_bias)).to_f32();
        host.finish()?;
        let settle = |(t, groups): (usize, &mut Groups)| {
            for (row, cosines) in within.chunks_exact(rows).enumerate() {
                groups.settle(first, row, &cosines[..row], &found[row][t]);
            }
            groups.relabel(first + rows);
        };
        host.run(|| groups.par_iter_mut().enumerate().for_each(settle));
        if progress(first + rows, count).is_break() {
            return Err(EvalError::Stopped);
        }
    }
    Ok(groups.into_iter().map(Groups::finish).collect())
}

/// What a prototype has found among earlier ones.
#[derive(Clone, Debug)]
struct Found {
    /// The first leader.
    leader: u32,
    /// Components, ascending.
    components: Vec<u32>,
}

impl Default for Found {
    fn default() -> Self {
        Self { leader: NONE, components: Vec::new() }
    }
}

/// Notes the duplicates among `cosines` with the prototypes from `first` on.
fn look(cosines: &[f32], least: f32, first: usize, groups: &[Groups], found: &mut [Found]) {
    const STRIDE: usize = 32;
    for (chunk, cosines) in cosines.chunks(STRIDE).enumerate() {
        // Duplicates are rare in most heads: many at once are passed over in vectors.
        if !cosines.iter().fold(false, |any, &cosine| any | (cosine > least)) {
            continue;
        }
        for (i, &cosine) in cosines.iter().enumerate().filter(|(_, cosine)| **cosine > least) {
            let other = first + chunk * STRIDE + i;
            for (groups, found) in groups.iter().zip(&mut *found).filter(|(g, _)| f64::from(cosine) > g.threshold) {
                if found.leader == NONE && groups.leader[other] == other as u32 {
                    found.leader = other as u32;
                }
                let component = groups.component[other];
                // The next is most often of the same one.
                if found.components.last() != Some(&component)
                    && let Err(place) = found.components.binary_search(&component)
                {
                    found.components.insert(place, component);
                }
            }
        }
    }
}

/// The sets of one threshold, as far as they are known.
struct Groups {
    threshold: f64,
    /// The leader of each prototype.
    leader: Vec<u32>,
    /// A tree for each component: the next towards its root, which has the lowest number.
    component: Vec<u32>,
}

impl Groups {
    fn new(threshold: f64, count: usize) -> Self {
        Self { threshold, leader: vec![NONE; count], component: (0..count as u32).collect() }
    }

    /// Places prototype `first + row`, with its cosines to those of its block before it and what it has found before the block.
    fn settle(&mut self, first: usize, row: usize, cosines: &[f32], found: &Found) {
        let own = first + row;
        let (threshold, mut leader) = (self.threshold, found.leader);
        for &component in &found.components {
            self.unite(own as u32, component);
        }
        for (i, _) in cosines.iter().enumerate().filter(|(_, cosine)| f64::from(**cosine) > threshold) {
            let other = (first + i) as u32;
            if leader == NONE && self.leader[other as usize] == other {
                leader = other;
            }
            self.unite(own as u32, other);
        }
        self.leader[own] = if leader == NONE { own as u32 } else { leader };
    }

    fn root(&self, mut prototype: u32) -> u32 {
        while self.component[prototype as usize] != prototype {
            prototype = self.component[prototype as usize];
        }
        prototype
    }

    fn unite(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.component[a.max(b) as usize] = a.min(b);
    }

    /// Lets each of the first `count` prototypes name its root.
    fn relabel(&mut self, count: usize) {
        // A root has the lowest number of its component, so what comes before is done.
        for prototype in 0..count {
            self.component[prototype] = self.component[self.component[prototype] as usize];
        }
    }

    fn finish(self) -> Duplicates {
        let sizes = |names: &[u32]| {
            let mut sizes = vec![0usize; names.len()];
            names.iter().for_each(|&name| sizes[name as usize] += 1);
            sizes
        };
        let (sets, components) = (sizes(&self.leader), sizes(&self.component));
        let largest = sets.iter().copied().max().unwrap_or(0);
        let leader = sets.iter().position(|&size| size == largest).unwrap_or(0) as u32;
        let members = self.leader.iter().zip(0..).filter(|(of, _)| **of == leader).map(|(_, member)| member);
        Duplicates {
            threshold: self.threshold,
            unique: sets.iter().filter(|size| **size > 0).count(),
            largest: members.collect(),
            components: components.iter().filter(|size| **size > 0).count(),
            largest_component: components.iter().copied().max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use random::{Key, Purpose};
    use tensor::{CpuOptions, Precision};

    fn host(threads: usize) -> Device {
        Device::cpu(CpuOptions { threads: Some(threads), precision: Precision::F32 }).unwrap()
    }

    fn go_on(_: usize, _: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn directions(p: usize, values: &[f32]) -> Directions {
        Directions::new(p, values, &vec![1.0; values.len() / p])
    }

    /// Prototypes in some dozens of clusters of many widths, so that thresholds matter.
    fn clustered(count: usize, p: usize) -> Directions {
        let mut stream = Key::new(11, Purpose::Bench).stream();
        let centers: Vec<Vec<f64>> = (0..40).map(|_| (0..p).map(|_| stream.normal()).collect()).collect();
        let mut values = Vec::new();
        for _ in 0..count {
            let center = &centers[stream.below(40) as usize];
            let width = 0.6 * stream.uniform();
            values.extend(center.iter().map(|x| (x + width * stream.normal()) as f32));
        }
        directions(p, &values)
    }

    /// The algorithm as it is written down, and components by walking from each: the oracle.
    fn plainly(directions: &Directions, threshold: f64) -> Duplicates {
        let count = directions.len();
        let near = |a: usize, b: usize| {
            let cosine: f32 = directions.of(a).iter().zip(directions.of(b)).map(|(a, b)| a * b).sum();
            f64::from(cosine) > threshold
        };
        let (mut free, mut sets) = (vec![true; count], Vec::new());
        for leader in 0..count {
            if free[leader] {
                let set: Vec<u32> = (leader..count)
                    .filter(|&i| free[i] && (i == leader || near(leader, i)))
                    .map(|i| i as u32)
                    .collect();
                set.iter().for_each(|&i| free[i as usize] = false);
                sets.push(set);
            }
        }
        let (mut seen, mut components) = (vec![false; count], Vec::new());
        for start in 0..count {
            let (mut waiting, mut size) = (vec![start], 0);
            while let Some(at) = waiting.pop() {
                if !std::mem::replace(&mut seen[at], true) {
                    size += 1;
                    waiting.extend((0..count).filter(|&i| !seen[i] && near(at, i)));
                }
            }
            components.extend(Some(size).filter(|&size| size > 0));
        }
        let most = sets.iter().map(Vec::len).max().unwrap();
        Duplicates {
            threshold,
            unique: sets.len(),
            largest: sets.into_iter().find(|set| set.len() == most).unwrap(),
            components: components.len(),
            largest_component: components.into_iter().max().unwrap(),
        }
    }

    #[test]
    fn sets_across_blocks_and_panels_are_those_of_the_plain_algorithm() {
        // More than a panel and some blocks; in f32 a cosine next to a threshold may fall on either side, and none is here.
        let directions = clustered(PANEL + ROWS + 77, 12);
        let thresholds = [0.99, 0.9, 0.97];
        let found = duplicates(&directions, &thresholds, &host(2), &mut go_on).unwrap();
        assert_eq!(found, duplicates(&directions, &thresholds, &host(1), &mut go_on).unwrap());
        for (found, threshold) in found.iter().zip(thresholds) {
            let plain = plainly(&directions, threshold);
            assert_eq!(found, &plain);
            assert!(plain.largest.len() > 3 && plain.components <= plain.unique && plain.unique < directions.len());
        }
    }

    #[test]
    fn a_chain_is_one_component_of_several_sets() {
        // Directions 20 degrees apart: neighbours have a cosine of 0.94, the next ones 0.77.
        let fan: Vec<f32> = (0..5)
            .flat_map(|i| [(f32::to_radians(20.0) * i as f32).cos(), (f32::to_radians(20.0) * i as f32).sin()])
            .collect();
        let found = duplicates(&directions(2, &fan), &[0.9, 0.95], &host(1), &mut go_on).unwrap();
        assert_eq!((found[0].unique, found[0].largest.as_slice()), (3, &[0, 1][..]));
        assert_eq!((found[0].components, found[0].largest_component), (1, 5));
        assert_eq!((found[1].unique, found[1].components, found[1].largest_component), (5, 5, 1));
    }

    #[test]
    fn length_does_not_count_but_its_sign_does() {
        let values = [1.0, 0.0, 50.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        let turned = Directions::new(2, &values, &[1.0, 3.0, -1.0, 1.0]);
        let found = duplicates(&turned, &[0.9], &host(1), &mut go_on).unwrap();
        // The last one has no direction, and is like none.
        assert_eq!((found[0].unique, found[0].largest.as_slice()), (3, &[0, 1][..]));
        let all = duplicates(&directions(1, &[2.0; 700]), &[0.9], &host(1), &mut go_on).unwrap();
        assert_eq!((all[0].unique, all[0].largest.len(), all[0].components), (1, 700, 1));
    }

    #[test]
    fn thresholds_that_are_no_cosines_are_refused_and_a_wish_to_stop_is_heard() {
        for wrong in [0.0, 1.0, -0.5, f64::NAN] {
            let error = duplicates(&directions(1, &[1.0]), &[0.9, wrong], &host(1), &mut go_on).unwrap_err();
            assert!(matches!(error, EvalError::Setting { setting: "threshold", .. }));
        }
        let stopped = duplicates(&directions(1, &[1.0]), &[0.9], &host(1), &mut |_, _| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(EvalError::Stopped)));
    }
}
