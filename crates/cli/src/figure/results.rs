//! `figure prototypes`, `figure precision` and `figure certainty`: results of evaluations, computed now or read from what `--json` has said.

use std::path::{Path, PathBuf};

use ::report::account::names_apart;
use ::report::figure::{Figure, Malformed, certainty, precision, prototypes};
use files::read_text_bounded;
use serde_json::Value;

use super::Place;
use crate::args::{CertaintyArgs, HeadFigureArgs, PrecisionArgs, PrototypesArgs, PrototypesFigureArgs, SplitArg};
use crate::error::CliError;
use crate::eval;
use crate::eval::shelf::Shelf;
use crate::output;
use crate::output_file::Input;
use crate::report;

/// Draws how many prototypes are unique.
pub fn prototypes(args: &PrototypesFigureArgs) -> Result<(), CliError> {
    let place = Place::of(&args.out, &inputs(&args.networks, None))?;
    let computed = |path: &Path| {
        let (weights, how) = (path.to_owned(), args.how.clone());
        let asked = PrototypesArgs { weights, data: None, features: None, split: SplitArg::Train, how, json: true };
        Ok(eval::prototypes::judge(&asked, &Shelf::default())?.record)
    };
    let mut thresholds = args.how.thresholds.clone();
    thresholds.sort_by(f64::total_cmp);
    let wanted = ("thresholds", serde_json::json!(thresholds));
    let networks = each(&args.networks, prototypes::EVALUATION, computed, &wanted, prototypes::Utilisation::of_result)?;
    place.write(&prototypes::figure(&networks))
}

/// Draws accuracies by precision.
pub fn precision(args: &HeadFigureArgs) -> Result<(), CliError> {
    let judge = |asked: PrecisionArgs| Ok(eval::precision::judge(&asked, &Shelf::default())?.record);
    headed(args, precision::EVALUATION, judge, precision::Accuracy::of_result, precision::figure)
}

/// Draws errors by certainty.
pub fn certainty(args: &HeadFigureArgs) -> Result<(), CliError> {
    let judge = |judged: PrecisionArgs| {
        let asked = CertaintyArgs { judged, other: None, calibration_bins: ::eval::certainty::DEFAULT_BINS as u32 };
        Ok(eval::certainty::judge(&asked, &Shelf::default())?.record)
    };
    headed(args, certainty::EVALUATION, judge, certainty::Risks::of_result, certainty::figure)
}

/// Draws what an evaluation of labelled images and the head says of networks.
fn headed<T>(
    args: &HeadFigureArgs,
    evaluation: &'static str,
    judge: impl Fn(PrecisionArgs) -> Result<Value, CliError>,
    of_result: impl Fn(String, &Value) -> Result<T, Malformed>,
    figure: impl Fn(&[T]) -> Figure,
) -> Result<(), CliError> {
    let place = Place::of(&args.out, &inputs(&args.networks, args.data.as_deref()))?;
    if let Some(path) = args.networks.iter().find(|path| !is_result(path)).filter(|_| args.data.is_none()) {
        return Err(CliError::FigureData { path: path.clone() });
    }
    let computed = |path: &Path| {
        let (weights, data, how) = (path.to_owned(), args.data.clone(), args.how.clone());
        judge(PrecisionArgs { weights, data, train: None, test: None, how, json: true })
    };
    let wanted = ("bins", args.how.bins.into());
    place.write(&figure(&each(&args.networks, evaluation, computed, &wanted, of_result)?))
}

/// What the figure needs of each network. A file may have been computed with another value of the setting that shapes the
/// figure; it is drawn as it is, which is said.
fn each<T>(
    paths: &[PathBuf],
    evaluation: &'static str,
    computed: impl Fn(&Path) -> Result<Value, CliError>,
    (key, wanted): &(&str, Value),
    of_result: impl Fn(String, &Value) -> Result<T, Malformed>,
) -> Result<Vec<T>, CliError> {
    let one = |(path, name): (&PathBuf, String)| {
        let result = if is_result(path) { read(path, evaluation)? } else { computed(path)? };
        let found = &result["settings"][*key];
        if is_result(path) && !found.is_null() && found != wanted {
            let path = text::shown(path);
            output::note(&format!(
                "{path}: is drawn as it was computed, with --{key} {}",
                text::excerpt(&listed(found))
            ));
        }
        let malformed = |why: Malformed| wrong(path, evaluation, why.to_string());
        of_result(name, &result).map_err(malformed)
    };
    // Files first looked at would cost less, but a person expects an error of the first to come first.
    let paths = report::distinct(paths);
    paths.iter().zip(names(&paths)).map(one).collect()
}

/// A setting as its flag takes it.
fn listed(value: &Value) -> String {
    match value.as_array() {
        Some(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
        None => value.to_string(),
    }
}

fn is_result(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) && !path.is_dir()
}

fn inputs(networks: &[PathBuf], data: Option<&str>) -> Vec<Input> {
    networks.iter().map(|path| Input::file("RUN", path)).chain(data.map(Input::data)).collect()
}

/// The result in a file.
fn read(path: &Path, evaluation: &'static str) -> Result<Value, CliError> {
    let text = read_text_bounded(path, eval::MOST_BYTES_OF_RESULTS)
        .map_err(|error| wrong(path, evaluation, error.to_string()))?;
    let mut result: Value = serde_json::from_str(&text).map_err(|error| wrong(path, evaluation, error.to_string()))?;
    // What `eval all` stores has the results of several evaluations, each under its name.
    if result["format"] == eval::FORMAT_OF_RESULTS {
        result = match result["results"].get_mut(evaluation) {
            Some(found) => found.take(),
            None => {
                let why = result["skipped"][evaluation]
                    .as_str()
                    .map_or("it was not evaluated".to_owned(), |why| text::message(why).into_owned());
                return Err(wrong(path, evaluation, why));
            }
        };
    }
    match result["evaluation"]["name"].as_str() {
        Some(name) if name == evaluation => Ok(result),
        Some(name) => Err(wrong(path, evaluation, format!("it is one of `eval {}`", text::excerpt(name)))),
        None => Err(wrong(path, evaluation, "it does not say which evaluation it is of".to_owned())),
    }
}

fn wrong(path: &Path, evaluation: &'static str, why: String) -> CliError {
    CliError::FigureResult { path: path.to_owned(), evaluation, why }
}

/// What networks are called: the names of their files or folders; where two of these are the same, all of their paths.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| {
        let of_several = path.file_name().is_some_and(|name| name == eval::RESULTS);
        let name = match is_result(path) {
            // What `eval all` stores always has this name: its folder tells more.
            true if of_several => path.parent().and_then(Path::file_name).or(path.file_stem()),
            true => path.file_stem(),
            false => path.file_name(),
        };
        // `.` and `..` have no name of their own.
        name.map_or_else(|| text::shown(path).into_owned(), |name| text::shown(Path::new(name)).into_owned())
    };
    names_apart(paths.iter().map(short).collect(), paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_networks_apart() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["runs/a", "b.json", "runs/c/"]), ["a", "b", "c"]);
        assert_eq!(of(&["x/run", "y/run"]), ["x/run", "y/run"]);
        assert_eq!(of(&["evaluation/a/results.json", "evaluation/b/results.json"]), ["a", "b"]);
        assert_eq!(of(&["results.json"]), ["results"]);
    }
}
