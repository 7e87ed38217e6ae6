//! What the prototypes of a run stand for: groups of them, each with the images that chose it.

use std::collections::HashMap;

use eval::Features;
use eval::prototypes::{Assignments, Choice, Directions, Exemplar, VoidSet, assign, duplicates, exemplars};
use eval::subset::sample;
use model::weights::WeightsFile;
use report::page::Section;
use report::pictures::Picture;
use report::pictures::galleries::{self, Group, IMAGES, Prototype};
use ssl::recipe::{Centering, Prototypes as Kind};
use text::{count, thousands};

use super::material::Material;
use crate::args::HeadArgs;
use crate::error::CliError;
use crate::eval::head::Head;

/// Multiplications that the heads of all images take, at most: some seconds on two cores.
const WORK: usize = 60_000_000_000;
/// The tensor of a checkpoint that holds the centre of the class tokens' teacher.
const CENTRE: &str = "center";
/// Prototypes whose directions are compared: their pairs take a second. Which come first is chance.
const COMPARED: usize = 16_384;
/// Directions with a larger cosine are one.
const SAME: f64 = 0.9;
/// Prototypes of the first group, of those that follow, and of a void set, whose members have the same images.
const MOST_USED: usize = 8;
const OF_GROUP: usize = 4;
const OF_VOID: usize = 2;
/// Lengths that differ by less, relative to the largest, mean nothing.
const ONE_LENGTH: f64 = 1e-3;

/// A head, and what images choose.
pub struct Prototypes {
    head: Head,
    /// Rows of the training images that were asked.
    pub rows: Vec<usize>,
    features: Features,
    /// What they chose, by the teacher's logits centred as in training.
    pub chosen: Assignments,
    /// Whether there is a centre, without which few prototypes may have the largest logit of any image.
    is_centred: bool,
    /// The same without a centre: what a void set is judged by.
    plain: Assignments,
}

impl Prototypes {
    /// Loads the head, and asks the training images.
    pub fn of(material: &Material<'_>) -> Result<Self, CliError> {
        let (request, train) = (material.request, &material.train.features);
        let head = Head::load(&material.weights, &HeadArgs::default(), &request.device)?;
        let parameters: usize = head.loaded.weights.iter().map(|tensor| tensor.len()).sum();
        let rows = sample(train.len(), (WORK / parameters.max(1)).max(IMAGES));
        let features = if rows.len() == train.len() { train.clone() } else { train.select(&rows) };
        let progress = &mut |_, _| material.go_on();
        let (choice, device) = (Choice::new(head.kind(), head.temperature), &request.device);
        let plain = assign(&head.loaded, choice, &features, device, progress)?;
        let centre = centre(material, &head)?;
        let chosen = match &centre {
            None => plain.clone(),
            Some(centre) => assign(&head.loaded, choice.centred(centre), &features, device, progress)?,
        };
        Ok(Self { head, rows, features, chosen, is_centred: centre.is_some(), plain })
    }

    fn count(&self, prototype: u32) -> u32 {
        self.chosen.counts[prototype as usize]
    }

    fn kappa(&self, prototype: u32) -> f64 {
        self.head.lengths[prototype as usize] / self.head.temperature
    }

    /// Prototypes that any image chose.
    fn used(&self) -> Vec<u32> {
        (0..self.chosen.counts.len() as u32).filter(|&prototype| self.count(prototype) > 0).collect()
    }

    /// Whether lengths differ, so that some are more certain than others.
    fn has_lengths(&self) -> bool {
        let largest = self.head.lengths.iter().copied().fold(0.0, f64::max);
        let least = self.head.lengths.iter().copied().fold(f64::INFINITY, f64::min);
        largest - least > ONE_LENGTH * largest
    }

    /// Directions of some prototypes.
    fn directions(&self, prototypes: &[u32]) -> Directions {
        let values: Vec<f32> =
            prototypes.iter().flat_map(|&prototype| self.head.directions.of(prototype as usize)).copied().collect();
        Directions::new(self.head.loaded.config.bottleneck, &values, &vec![1.0; prototypes.len()])
    }
}

/// The centre of the teacher in units of its logits; none where the method has none.
fn centre(material: &Material<'_>, head: &Head) -> Result<Option<Vec<f32>>, CliError> {
    let mut file = WeightsFile::open(&material.weights.path)?;
    let Some(tensor) = file.tensor(CENTRE).filter(|tensor| tensor.shape == [head.lengths.len()]).cloned() else {
        return Ok(None);
    };
    let mut values = file.read(&tensor)?.into_f32();
    // DINO keeps it in units of <w, y>.
    if material.recipe.centering() == Centering::Logit && head.prototypes != Kind::Vmf {
        values.iter_mut().for_each(|value| *value /= head.temperature as f32);
    }
    Ok(values.iter().all(|value| value.is_finite()).then_some(values))
}

/// A group, before it has its pictures.
struct Chosen {
    title: &'static str,
    about: String,
    prototypes: Vec<u32>,
}

/// The section of the groups.
pub fn section(material: &Material<'_>, prototypes: &Prototypes) -> Result<Section, CliError> {
    let (request, set) = (material.request, &material.train);
    let groups = groups(material, prototypes)?;
    let numbers: Vec<u32> = groups.iter().flat_map(|group| group.prototypes.iter().copied()).collect();
    let Prototypes { head, rows, features, chosen, .. } = prototypes;
    let devices = (&request.device, &request.host);
    let found = exemplars(&head.loaded, &head.directions, chosen, features, &numbers, IMAGES, devices)?;
    // Those that chose it; the nearest ones stand in where none did.
    let stands = |list: &Vec<Exemplar>| -> Vec<usize> {
        let is_used = list.iter().any(|exemplar| exemplar.is_chosen);
        list.iter().filter(|exemplar| exemplar.is_chosen == is_used).map(|exemplar| rows[exemplar.row]).collect()
    };
    let shown: Vec<Vec<usize>> = found.iter().map(stands).collect();
    let mut wanted: Vec<usize> = shown.iter().flatten().copied().collect();
    wanted.sort_unstable();
    wanted.dedup();
    let pictures: HashMap<usize, Picture> = material
        .pictures(set, &wanted)
        .into_iter()
        .zip(&wanted)
        .filter_map(|(picture, row)| Some((*row, picture?)))
        .collect();
    let images = rows.len() as f64;
    let has_lengths = prototypes.has_lengths();
    let prototype = |(number, rows): (u32, &Vec<usize>)| Prototype {
        number,
        kappa: has_lengths.then(|| prototypes.kappa(number)),
        percent: 100.0 * f64::from(prototypes.count(number)) / images,
        pictures: rows.iter().filter_map(|row| pictures.get(row)).cloned().collect(),
    };
    let mut ready = numbers.iter().copied().zip(&shown).map(prototype);
    let groups: Vec<Group> = groups
        .into_iter()
        .map(|group| Group {
            title: group.title.to_owned(),
            about: group.about,
            prototypes: ready.by_ref().take(group.prototypes.len()).collect(),
        })
        .collect();
    let about = format!(
        "{} chose {} of {} prototypes (the largest logit of the teacher's head{}, tau {}). A card has the number of a \
         prototype, {}its share of the images, and those that chose it, the nearest first.",
        count(rows.len(), "training image"),
        thousands(chosen.used() as u64),
        thousands(chosen.counts.len() as u64),
        if prototypes.is_centred { ", centred as in training" } else { "" },
        head.temperature,
        if has_lengths { "its concentration κ = |w| / tau, " } else { "" }
    );
    Ok(galleries::section(&about, &groups)?)
}

fn groups(material: &Material<'_>, prototypes: &Prototypes) -> Result<Vec<Chosen>, CliError> {
    let used = prototypes.used();
    let mut groups = Vec::new();
    let mut by_use = used.clone();
    by_use.sort_by_key(|&prototype| std::cmp::Reverse(prototypes.count(prototype)));
    let share: u32 = by_use.iter().take(MOST_USED).map(|&prototype| prototypes.count(prototype)).sum();
    let percent = 100.0 * f64::from(share) / prototypes.rows.len() as f64;
    let most_used = by_use[..by_use.len().min(MOST_USED)].to_vec();
    let about = format!("{percent:.0} % of the images chose one of these {}.", most_used.len());
    groups.push(Chosen { title: "Most used", about, prototypes: most_used });
    // No prototype is both.
    let of_group = OF_GROUP.min(used.len() / 2);
    if prototypes.has_lengths() && of_group > 0 {
        let mut by_kappa = used.clone();
        by_kappa.sort_by(|&a, &b| prototypes.kappa(b).total_cmp(&prototypes.kappa(a)));
        let certain = by_kappa.iter().copied().take(of_group).collect();
        let least = by_kappa.iter().rev().copied().take(of_group).collect();
        let about = |which: &str| format!("The {which} κ among those that any image chose.");
        groups.push(Chosen { title: "Most certain", about: about("largest"), prototypes: certain });
        groups.push(Chosen { title: "Least certain", about: about("smallest"), prototypes: least });
    } else {
        let why = if of_group == 0 {
            "Fewer than two were chosen by any of these images"
        } else {
            "All prototypes of the teacher have one length"
        };
        let about = format!("{why}: none is more certain than another.");
        groups.push(Chosen { title: "Most and least certain", about, prototypes: Vec::new() });
    }
    groups.push(duplicate_group(material, prototypes, &used)?);
    groups.push(void_group(material, prototypes)?);
    Ok(groups)
}

/// The largest set of prototypes in use that are one and the same.
fn duplicate_group(material: &Material<'_>, prototypes: &Prototypes, used: &[u32]) -> Result<Chosen, CliError> {
    let progress = &mut |_, _| material.go_on();
    let compared = &used[..used.len().min(COMPARED)];
    let found = duplicates(&prototypes.directions(compared), &[SAME], &material.request.host, progress)?;
    let members: Vec<u32> = found.iter().flat_map(|set| &set.largest).map(|&at| compared[at as usize]).collect();
    let unique = found.first().map_or(0, |set| set.unique);
    let (about, prototypes) = match members.len() {
        0 | 1 => (
            "No two of the prototypes that these images chose point the same way: all cosines are below 0.9."
                .to_owned(),
            Vec::new(),
        ),
        several => {
            let about = format!(
                "The {} that these images chose are {} that differ (cosine above {SAME} is the same). The largest set has \
                 {several}; these are of it.",
                count(compared.len(), "prototype"),
                thousands(unique as u64)
            );
            (about, members.into_iter().take(OF_GROUP).collect())
        }
    };
    Ok(Chosen { title: "Duplicates", about, prototypes })
}

/// Prototypes that point away from all images, all in one direction.
fn void_group(material: &Material<'_>, prototypes: &Prototypes) -> Result<Chosen, CliError> {
    let progress = &mut |_, _| material.go_on();
    let all = prototypes.chosen.counts.len();
    let compared: Vec<u32> = (0..all.min(COMPARED) as u32).collect();
    let directions = prototypes.directions(&compared);
    let found = duplicates(&directions, &[SAME], &material.request.host, progress)?;
    let among =
        if compared.len() < all { format!(" (of the first {})", thousands(COMPARED as u64)) } else { String::new() };
    let void = found.first().map(|set| (set, VoidSet::of(set, &directions, &prototypes.plain)));
    let (about, prototypes) = match void {
        Some((set, void)) if void.is_void() => {
            let about = format!(
                "{}{among} point away from the images, all in one direction (cosine with the images' mean {:.2}), and none \
                 has the largest logit of any image. The nearest images are shown.",
                count(void.members, "prototype"),
                void.cosine.unwrap_or(f64::NAN)
            );
            (about, set.largest.iter().copied().take(OF_VOID).collect())
        }
        _ => (
            format!("There is no void set: no set of prototypes{among} points away from the images as one."),
            Vec::new(),
        ),
    };
    Ok(Chosen { title: "Void", about, prototypes })
}
