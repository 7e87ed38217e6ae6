//! The pictures of a report: computed from a run's network and images, and shown by [`report::pictures`].
//!
//! Nothing here is needed for a report. What cannot be shown (images that have moved, a network without a head) is told in
//! the section that it would have been in.

mod attention;
mod galleries;
mod map;
mod material;
mod neighbors;
mod stored;
mod thumbnails;

use std::path::Path;

use report::page::Section;
use report::pictures;
use ssl::recipe;
use tensor::Device;
use train::run::RunReader;

use crate::error::{CliError, message};
use crate::views;
use galleries::Prototypes;
use material::{Data, Material};

/// Images whose views are shown, and how many of them on one sheet.
const SHEETS: (usize, usize) = (4, 2);

/// What pictures are made of, and where.
pub struct Request<'a> {
    /// The folder of the run.
    pub run: &'a Path,
    /// Where its network computes.
    pub device: Device,
    /// A CPU beside it, or the same.
    pub host: Device,
    /// Threads that read.
    pub workers: Option<usize>,
    /// Training images; as many as take a few seconds where nobody says.
    pub images: Option<usize>,
    /// Features that are there already.
    pub features: Option<&'a Path>,
    /// Whether somebody wants it to end.
    pub should_stop: &'a dyn Fn() -> bool,
}

/// The sections of a run. An error where something was asked for that cannot be meant.
pub fn sections(request: &Request<'_>) -> Result<Vec<Section>, CliError> {
    if (request.should_stop)() {
        let run = text::shell(&request.run.display().to_string());
        let why =
            format!("The run was asked to stop, and has not waited for pictures; `dino-vmf report {run}` makes them.");
        return Ok(vec![Section::without("Pictures", &why)]);
    }
    let recipe = recipe::of_run(&RunReader::open(request.run)?)?;
    let data = match Data::of(&recipe) {
        Ok(data) => data,
        Err(error) => return Ok(vec![without(&error)]),
    };
    let sheet = views::draw(&data.train, &recipe, SHEETS.0, SHEETS.1, 0, true);
    let sheet = sheet.and_then(|(sheets, about)| Ok(pictures::views(&sheets, &format!("{about}."))?));
    let mut sections = vec![told("What the network sees in training", sheet)];
    let material = match Material::gather(request, &recipe, data) {
        Ok(material) => material,
        // Somebody gave these, and can give others.
        Err(error @ CliError::OtherFeatures { .. }) => return Err(error),
        Err(error) => {
            sections.push(without(&error));
            return Ok(sections);
        }
    };
    let prototypes = Prototypes::of(&material);
    sections.push(told("Map of the features", map::section(&material, prototypes.as_ref().ok())));
    let galleries = prototypes.and_then(|prototypes| galleries::section(&material, &prototypes));
    sections.push(told("What the prototypes stand for", galleries));
    sections.push(told("Nearest neighbours", neighbors::section(&material)));
    sections.push(told("Where it looks", attention::section(&material)));
    Ok(sections)
}

/// The section that stands for all pictures where there are none.
pub fn without(error: &CliError) -> Section {
    Section::without("Pictures", &why(error))
}

/// A section, or why there is none.
fn told(title: &str, section: Result<Section, CliError>) -> Section {
    section.unwrap_or_else(|error| Section::without(title, &why(&error)))
}

fn why(error: &CliError) -> String {
    format!("There is nothing to show here: {}.", message(error).trim_end_matches('.'))
}
