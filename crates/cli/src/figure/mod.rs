//! `figure`: a drawing into a file, and its numbers into another one beside it. Figures of results are in [`results`].

mod results;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::report::account::{Account, are_of_same_images, told_apart};
use ::report::figure::circle::{self, Component};
use ::report::figure::{self, Figure};
use files::replace;

use crate::args::{CircleArgs, CurvesArgs, FigureCommand, FigureOut, NormalizerArgs};
use crate::error::CliError;
use crate::output;
use crate::output_file::{self, Input, Kind, OutputFileError};
use crate::report;

/// Pixels of a PNG for each unit of a drawing: sharp in print.
const ZOOM: f32 = 3.0;
/// Points of a curve: more than there are evaluations in any run.
const POINTS: usize = 4000;

/// Draws a figure.
pub fn run(command: &FigureCommand) -> Result<(), CliError> {
    match command {
        FigureCommand::Circle(args) => circle(args),
        FigureCommand::Normalizer(args) => normalizer(args),
        FigureCommand::Curves(args) => curves(args),
        FigureCommand::Prototypes(args) => results::prototypes(args),
        FigureCommand::Precision(args) => results::precision(args),
        FigureCommand::Certainty(args) => results::certainty(args),
    }
}

/// The two files of a figure, checked before any work.
struct Place {
    drawing: PathBuf,
    numbers: PathBuf,
    /// Why the numbers may not be written, unless they are there already.
    refused: Option<OutputFileError>,
    is_png: bool,
    asked: PathBuf,
}

impl Place {
    fn of(out: &FigureOut, inputs: &[Input]) -> Result<Self, CliError> {
        let extension = out.out.extension().map(|e| e.to_ascii_lowercase());
        let is_png = match extension.as_ref().and_then(|e| e.to_str()) {
            Some("png") => true,
            Some("svg") => false,
            _ => return Err(CliError::FigureName { path: out.out.clone() }),
        };
        let kind = if is_png { Kind::Png } else { Kind::Svg };
        let drawing = output_file::check(&out.out, kind, out.force, inputs)?;
        // The same figure may have been drawn in the other format: then its numbers are there already.
        let beside = out.out.with_extension("csv");
        let (numbers, refused) = match output_file::check(&beside, Kind::Csv, out.force, inputs) {
            Ok(numbers) => (numbers, None),
            Err(error @ OutputFileError::Exists { .. }) => (beside, Some(error)),
            Err(error) => return Err(error.into()),
        };
        Ok(Self { drawing, numbers, refused, is_png, asked: out.out.clone() })
    }

    fn write(self, figure: &Figure) -> Result<(), CliError> {
        let (svg, table) = (figure.svg(), figure.table.csv());
        if let Some(refused) = self.refused {
            let there = files::read_bounded(&self.numbers, table.len() as u64 + 1);
            if there.map_or(true, |there| there != table.as_bytes()) {
                return Err(refused.into());
            }
        }
        let drawing = if self.is_png { figure::png(&svg, ZOOM)? } else { svg.into_bytes() };
        let put = |path: &Path, bytes: &[u8]| {
            let failed = |source| CliError::Page { path: path.to_owned(), source };
            replace(path, |file| file.write_all(bytes)).map_err(failed)
        };
        put(&self.drawing, &drawing)?;
        put(&self.numbers, table.as_bytes())?;
        let csv = self.asked.with_extension("csv");
        output::result(&format!("{}, and its numbers in {}", text::shown(&self.asked), text::shown(&csv)))
    }
}

fn circle(args: &CircleArgs) -> Result<(), CliError> {
    let place = Place::of(&args.out, &[])?;
    let components = args.component.iter().map(|text| component(text)).collect::<Result<Vec<_>, _>>()?;
    let components = if components.is_empty() { circle::paper().to_vec() } else { components };
    place.write(&circle::figure(&components))
}

/// `DEGREES:KAPPA[:WEIGHT]`.
fn component(text: &str) -> Result<Component, CliError> {
    let numbers: Option<Vec<f64>> = text.split(':').map(|part| part.trim().parse().ok()).collect();
    let (degrees, kappa, weight) = match numbers.as_deref() {
        Some([degrees, kappa]) => (*degrees, *kappa, 1.0),
        Some([degrees, kappa, weight]) => (*degrees, *kappa, *weight),
        _ => return Err(CliError::FigureComponent { given: text.to_owned() }),
    };
    let is_sound = degrees.is_finite() && (0.0..=1e6).contains(&kappa) && weight.is_finite() && weight > 0.0;
    match is_sound {
        true => Ok(Component { degrees, kappa, weight }),
        false => Err(CliError::FigureComponent { given: text.to_owned() }),
    }
}

fn normalizer(args: &NormalizerArgs) -> Result<(), CliError> {
    let place = Place::of(&args.out, &[])?;
    let mut dimensions: Vec<usize> = Vec::new();
    for &p in &args.dimensions {
        if !dimensions.contains(&(p as usize)) {
            dimensions.push(p as usize);
        }
    }
    let normalizer = figure::normalizer::figure(&dimensions, figure::normalizer::RANGE)?;
    place.write(&normalizer)
}

fn curves(args: &CurvesArgs) -> Result<(), CliError> {
    let inputs: Vec<Input> = args.runs.iter().map(|run| Input::file("RUN", run)).collect();
    let place = Place::of(&args.out, &inputs)?;
    let runs = report::distinct(&args.runs);
    let runs = runs.iter().map(|run| Account::of(run, POINTS)).collect::<Result<Vec<_>, _>>()?;
    let has_values = |run: &Account| run.history.column(&args.key).is_some_and(|column| column.last().is_some());
    let (runs, without): (Vec<_>, Vec<_>) = told_apart(runs).into_iter().partition(has_values);
    let figure = figure::curves::figure(&runs, &args.key);
    if figure.charts.iter().all(|chart| chart.is_empty()) {
        let known: BTreeSet<&str> = runs.iter().chain(&without).flat_map(|run| run.history.keys()).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(CliError::NoSuchNumber { key: args.key.clone(), known: text::printable(&known).into_owned() });
    }
    for run in &without {
        let key = text::printable(&args.key);
        output::note(&format!("{}: has logged no {key}, and is left out", text::shown(&run.path)));
    }
    if !are_of_same_images(&runs) {
        output::note("these runs were not trained on the same images: their curves are of different tasks");
    }
    place.write(&figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_an_angle_a_concentration_and_perhaps_a_weight() {
        assert_eq!(component("90:20").unwrap(), Component { degrees: 90.0, kappa: 20.0, weight: 1.0 });
        assert_eq!(component("-30:4:0.3").unwrap().weight, 0.3);
        for wrong in ["", "90", "90:-1", "90:inf", "a:b", "1:2:0", "1:2:3:4", "nan:1"] {
            assert!(component(wrong).is_err(), "{wrong}");
        }
    }
}
