//! The map of the features: training images on a plane, coloured by class, or by prototype where that tells more.

use std::collections::BTreeMap;

use eval::map::{MapOptions, map};
use eval::subset::sample;
use report::page::Section;
use report::pictures::map::{self as drawing, COLORS, POINTS, Point, TILES};
use text::count;

use super::galleries::Prototypes;
use super::material::Material;
use super::thumbnails::{self, Square};
use crate::error::CliError;

/// Colours that reach fewer of a hundred points say little.
const ENOUGH: usize = 40;

/// What points are coloured by.
struct Groups {
    /// Class or prototype of each point.
    of_points: Vec<Option<u32>>,
    /// The largest groups, the largest first.
    largest: Vec<u32>,
}

impl Groups {
    fn of(of_points: Vec<Option<u32>>) -> Self {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        of_points.iter().flatten().for_each(|group| *counts.entry(*group).or_default() += 1);
        let mut largest: Vec<(u32, usize)> = counts.into_iter().collect();
        largest.sort_by_key(|&(group, count)| (std::cmp::Reverse(count), group));
        // All classes where each has its colour; then they are in their own order.
        let mut largest: Vec<u32> = largest.into_iter().take(COLORS).map(|(group, _)| group).collect();
        largest.sort_unstable();
        Self { of_points, largest }
    }

    fn place(&self, point: usize) -> Option<usize> {
        let group = self.of_points[point]?;
        self.largest.iter().position(|&other| other == group)
    }

    /// Points that have a colour.
    fn reach(&self) -> usize {
        (0..self.of_points.len()).filter(|&point| self.place(point).is_some()).count()
    }
}

/// The section of the map.
pub fn section(material: &Material<'_>, prototypes: Option<&Prototypes>) -> Result<Section, CliError> {
    let (request, train) = (material.request, &material.train);
    // Of those that were asked for their prototype, where there are any.
    let all: Vec<usize> = match prototypes {
        Some(prototypes) => prototypes.rows.clone(),
        None => (0..train.features.len()).collect(),
    };
    let picked = sample(all.len(), POINTS);
    let rows: Vec<usize> = picked.iter().map(|&at| all[at]).collect();
    let features = train.features.select(&rows);
    let places = map(&features, &MapOptions::default(), &request.host, &mut |_, _| material.go_on())?.places;
    let by_class = Groups::of(features.labels.clone());
    let by_prototype = prototypes
        .map(|prototypes| Groups::of(picked.iter().map(|&at| Some(prototypes.chosen.prototypes[at])).collect()));
    let tells_more = |other: &Groups| by_class.reach() * 100 < ENOUGH * rows.len() && other.reach() > by_class.reach();
    let (groups, is_class) = match by_prototype.filter(tells_more) {
        Some(groups) => (groups, false),
        None => (by_class, true),
    };
    let named = |group: u32| match train.source.class_names().get(group as usize) {
        Some(name) if is_class => name.clone(),
        _ if is_class => format!("class {group}"),
        _ => format!("prototype #{group}"),
    };
    let side = if material.recipe.facts().size().short() >= TILES.0 { TILES.0 } else { TILES.1 };
    let square = Square { side, recipe: material.recipe, host: &request.host };
    let images = thumbnails::read(&*train.source, &features.indices, square);
    let points: Vec<Point> = images
        .into_iter()
        .enumerate()
        .map(|(point, image)| Point {
            place: places[point],
            group: groups.place(point),
            name: train.name(rows[point]),
            class: groups.of_points[point].map(named),
            image,
        })
        .collect();
    let by = match (is_class, groups.largest.is_empty()) {
        (_, true) => String::new(),
        (true, _) => ", coloured by class (no label was used in training)".to_owned(),
        (false, _) => ", coloured by the prototype that they chose".to_owned(),
    };
    let about = format!(
        "{}{by}. Images whose features are alike lie near each other (t-SNE of the cosine); distances between far groups mean \
         little. A point shows its image under the pointer.",
        count(points.len(), "training image")
    );
    let names: Vec<String> = groups.largest.iter().map(|&group| named(group)).collect();
    Ok(drawing::section(&about, &names, &points)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_groups_have_colours_in_their_own_order() {
        let of_points: Vec<Option<u32>> = (0..100).map(|i| if i == 0 { None } else { Some((i % 13) as u32) }).collect();
        let groups = Groups::of(of_points);
        // 1 to 8 have eight points each, the others seven.
        assert_eq!(groups.largest, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((groups.place(0), groups.place(14), groups.place(12)), (None, Some(1), None));
        assert_eq!(groups.reach(), 8 * 8 + 2 * 7);
        assert_eq!(Groups::of(vec![None; 3]).reach(), 0);
    }
}
