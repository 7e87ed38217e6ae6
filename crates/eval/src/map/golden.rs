//! Tests maps against scikit-learn's exact t-SNE: `tests/fixtures/map.json`, written by `tools/oracle/map_fixture.py`.

use std::ops::ControlFlow;

use serde_json::Value;
use tensor::{CpuOptions, Device};

use super::affinities::Affinities;
use super::{MapOptions, descent, map};
use crate::features::Features;
use crate::knn_golden::uniform;

struct Golden {
    fixture: Value,
    features: Features,
}

impl Golden {
    fn read() -> Self {
        let fixture: Value = serde_json::from_str(include_str!("../../tests/fixtures/map.json")).unwrap();
        let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
        let (rows, dim, classes) = (size("rows"), size("dim"), size("classes"));
        let noise = fixture["noise"].as_f64().unwrap();
        let value = |at: usize| {
            let centre = uniform(20, at / dim % classes * dim + at % dim);
            (centre + noise * uniform(21, at)) as f32
        };
        let features = Features::labelled(dim, (0..rows * dim).map(value).collect(), &vec![0; rows]);
        Self { fixture, features }
    }

    fn number(&self, key: &str) -> f64 {
        self.fixture[key].as_f64().unwrap()
    }

    fn list(&self, key: &str) -> Vec<f64> {
        self.fixture[key].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    }

    /// Squared distances of unit vectors, in f64.
    fn distances(&self) -> Vec<f64> {
        let unit = |row: usize| -> Vec<f64> {
            let row: Vec<f64> = self.features.row(row).iter().map(|&x| f64::from(x)).collect();
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter().map(|x| x / length).collect()
        };
        let rows: Vec<Vec<f64>> = (0..self.features.len()).map(unit).collect();
        let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        rows.iter().flat_map(|a| rows.iter().map(|b| apart(a, b))).collect()
    }

    fn affinities(&self) -> Affinities {
        let distances = self.distances().iter().map(|&d| d as f32).collect();
        Affinities::of_distances(distances, self.features.len(), self.number("perplexity"))
    }
}

/// Venna and Kaski's measure, as it is defined: 1 where nobody is a near neighbour on the map who is a far one in truth.
fn trustworthiness(distances: &[f64], places: &[[f32; 2]], k: usize) -> f64 {
    let n = places.len();
    let ranked = |apart: &dyn Fn(usize) -> f64, i: usize| {
        let mut others: Vec<usize> = (0..n).filter(|&j| j != i).collect();
        others.sort_by(|&a, &b| apart(a).total_cmp(&apart(b)));
        others
    };
    let mut penalty = 0;
    for i in 0..n {
        let truth = ranked(&|j| distances[i * n + j], i);
        let on_map = |j: usize| (0..2).map(|axis| f64::from(places[i][axis] - places[j][axis]).powi(2)).sum::<f64>();
        for j in &ranked(&on_map, i)[..k] {
            let rank = truth.iter().position(|other| other == j).unwrap() + 1;
            penalty += rank.saturating_sub(k);
        }
    }
    1.0 - 2.0 * penalty as f64 / (n * k * (2 * n - 3 * k - 1)) as f64
}

#[test]
fn affinities_are_those_of_scikit_learn() {
    let golden = Golden::read();
    let (affinities, wanted) = (golden.affinities(), golden.list("affinities"));
    let n = golden.features.len();
    for (at, wanted) in wanted.iter().enumerate() {
        let p = f64::from(affinities.values[at / n * affinities.stride + at % n]);
        // Both stop within 1e-5 of the entropy; scikit-learn has no p below the smallest f64 that it knows.
        assert!((p - wanted).abs() < 1e-4 * wanted.max(1e-5), "pair {at}: {p} and {wanted}");
    }
}

#[test]
fn the_divergence_of_a_given_map_is_that_of_scikit_learn() {
    let golden = Golden::read();
    let places: Vec<[f64; 2]> = golden.list("places").chunks_exact(2).map(|p| [p[0], p[1]]).collect();
    let ours = descent::divergence(&golden.affinities(), &places);
    assert!((ours - golden.number("kl")).abs() < 1e-4, "{ours} and {}", golden.number("kl"));
}

#[test]
fn a_map_is_as_good_as_that_of_scikit_learn() {
    let golden = Golden::read();
    let host = Device::cpu(CpuOptions { threads: Some(2), ..Default::default() }).unwrap();
    let options = MapOptions { perplexity: golden.number("perplexity"), ..Default::default() };
    let map = map(&golden.features, &options, &host, &mut |_, _| ControlFlow::Continue(())).unwrap();
    let places: Vec<[f64; 2]> = map.places.iter().map(|place| place.map(f64::from)).collect();
    let again = descent::divergence(&golden.affinities(), &places);
    assert!((map.divergence - again).abs() < 1e-3);
    assert!(map.divergence < 1.03 * golden.number("kl"), "{} and {}", map.divergence, golden.number("kl"));
    let (ours, theirs) = (trustworthiness(&golden.distances(), &map.places, 5), golden.number("trustworthiness"));
    assert!(ours > theirs - 0.01, "{ours} and {theirs}");
    // The measure itself, on their map.
    let theirs_again: Vec<[f32; 2]> =
        golden.list("places").chunks_exact(2).map(|p| [p[0] as f32, p[1] as f32]).collect();
    let measured = trustworthiness(&golden.distances(), &theirs_again, 5);
    assert!((measured - theirs).abs() < 1e-3, "{measured} and {theirs}");
}
