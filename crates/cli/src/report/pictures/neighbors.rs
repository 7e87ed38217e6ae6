//! Held-out images, and the training images nearest to them.

use std::collections::{BTreeMap, HashMap};

use eval::{Place, nearest_rows};
use report::page::Section;
use report::pictures::neighbors::{self, NEAREST, QUERIES, Query};
use text::{count, thousands};

use super::material::{Material, Set};
use crate::error::CliError;

/// The section of some images.
pub fn section(material: &Material<'_>) -> Result<Section, CliError> {
    let (train, request) = (&material.train, material.request);
    let (asked, what) = material.unseen();
    let is_train = material.held_out.as_ref().is_none_or(|set| set.features.is_empty());
    let queries = queries(asked);
    let place = Place::new(&request.host, &request.device);
    // One more where an image is its own nearest.
    let found =
        nearest_rows(place, &train.features, &asked.features.select(&queries), NEAREST + usize::from(is_train))?;
    let kept = |query: usize, row: usize| !(is_train && row == query);
    let found: Vec<Vec<(usize, f64)>> = queries
        .iter()
        .zip(found)
        .map(|(&query, list)| {
            let others = list.into_iter().filter(|neighbor| kept(query, neighbor.row));
            others.take(NEAREST).map(|neighbor| (neighbor.row, neighbor.similarity)).collect()
        })
        .collect();
    let mut wanted: Vec<usize> = found.iter().flatten().map(|(row, _)| *row).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let pictures: HashMap<usize, _> = wanted.iter().copied().zip(material.pictures(train, &wanted)).collect();
    let shown: Vec<Query> = material
        .pictures(asked, &queries)
        .into_iter()
        .zip(&found)
        .filter_map(|(picture, list)| {
            let near = |(row, cosine): &(usize, f64)| Some((pictures.get(row)?.clone()?, *cosine));
            Some(Query { picture: picture?, nearest: list.iter().filter_map(near).collect() })
        })
        .collect();
    let judged: Vec<bool> = shown
        .iter()
        .flat_map(|query| {
            query.nearest.iter().filter_map(|(near, _)| Some(*near.class.as_ref()? == *query.picture.class.as_ref()?))
        })
        .collect();
    let right = judged.iter().filter(|right| **right).count();
    let score = match judged.len() {
        0 => String::new(),
        all => format!(" {right} of {all} are of the same class (✓)."),
    };
    let about = format!(
        "{}, each with the {NEAREST} most alike of {} by the cosine of their features.{score}",
        count(shown.len(), what),
        thousands(train.features.len() as u64) + " training images",
    );
    Ok(neighbors::section(&about, &shown)?)
}

/// Some images: of every class in turn, where there are classes, and spread evenly where there are none.
fn queries(set: &Set) -> Vec<usize> {
    let images = set.features.len();
    let mut classes: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (row, label) in set.features.labels.iter().enumerate() {
        classes.entry(label.unwrap_or(u32::MAX)).or_default().push(row);
    }
    if classes.len() < 2 {
        let wanted = QUERIES.min(images);
        return (0..wanted).map(|i| i * images / wanted).collect();
    }
    // Of very many classes, those that lie evenly among them.
    let stride = classes.len().div_ceil(QUERIES);
    let lists: Vec<&Vec<usize>> = classes.values().step_by(stride).collect();
    let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
    (0..longest).flat_map(|turn| lists.iter().filter_map(move |list| list.get(turn).copied())).take(QUERIES).collect()
}
