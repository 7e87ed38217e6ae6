//! `report` and `runs`: runs as a page, and as a list.

mod list;
mod pictures;

use std::path::{Path, PathBuf};

use files::replace;
use report::account::{Account, told_apart};
use report::page::{self, Section};
use tensor::Device;
use train::run::REPORT_FILE;

use crate::args::ReportArgs;
use crate::error::CliError;
use crate::output;
use crate::output_file::{self, Input, Kind};
use pictures::Request;

pub use list::list;

/// Points of a curve: as many as a wide screen has pixels for one chart.
const POINTS: usize = 400;

/// Writes the page of the runs.
pub fn run(args: &ReportArgs) -> Result<(), CliError> {
    let out = match (&args.out, &args.runs[..]) {
        (None, [run]) => {
            train::run::RunReader::open(run)?;
            output_file::check_report_of_run(run)?
        }
        (out, runs) => {
            let out = out.clone().unwrap_or_else(|| PathBuf::from(REPORT_FILE));
            if !out.extension().is_some_and(|e| e.eq_ignore_ascii_case("html") || e.eq_ignore_ascii_case("htm")) {
                return Err(CliError::PageName { path: out });
            }
            let inputs: Vec<Input> = runs.iter().map(|run| Input::file("RUN", run)).collect();
            output_file::check(&out, Kind::Page, args.force, &inputs)?
        }
    };
    let runs = distinct(&args.runs);
    let sections = match &runs[..] {
        [run] if !args.no_pictures => pictures_of(run, args)?,
        _ => Vec::new(),
    };
    if args.no_pictures && out.exists() {
        output::note(&format!("{}: the page that was there is replaced by one without pictures", text::shown(&out)));
    }
    write(&runs, &sections, &out)?;
    output::result(&format!("{}: open it in a browser", text::shown(args.out.as_ref().unwrap_or(&out))))
}

/// These runs, each once: a pattern that matches one twice means it once.
pub fn distinct(runs: &[PathBuf]) -> Vec<PathBuf> {
    let place = |run: &Path| run.canonicalize().unwrap_or_else(|_| run.to_owned());
    let mut known: Vec<PathBuf> = Vec::new();
    for run in runs {
        if known.iter().any(|there| place(there) == place(run)) {
            output::note(&format!("{}: given twice, and taken once", text::shown(run)));
        } else {
            known.push(run.clone());
        }
    }
    known
}

/// The pictures of a run that somebody asks for: an error where what was asked for cannot be meant.
fn pictures_of(run: &Path, args: &ReportArgs) -> Result<Vec<Section>, CliError> {
    let device = args.inference.open()?.into_first();
    let machine = &args.inference.machine;
    let request = Request {
        run,
        host: machine.host(&device)?,
        device,
        workers: machine.thread_count()?,
        images: args.images.map(|images| images as usize),
        features: args.features.as_deref(),
        should_stop: &|| false,
    };
    pictures::sections(&request)
}

/// Writes the page of some runs to a place that was checked.
fn write(runs: &[PathBuf], sections: &[Section], out: &Path) -> Result<(), CliError> {
    let accounts = runs.iter().map(|run| Account::of(run, POINTS)).collect::<Result<Vec<_>, _>>()?;
    let page = page::page(&told_apart(accounts), sections)?;
    let failed = |source| CliError::Page { path: out.to_owned(), source };
    replace(out, |file| std::io::Write::write_all(file, page.as_bytes())).map_err(failed)
}

/// Where a run was trained, which is where its pictures are made.
pub struct Machine<'a> {
    /// The device that trained.
    pub device: &'a Device,
    /// A CPU beside it, or the same.
    pub host: Device,
    /// Threads that read.
    pub workers: Option<usize>,
    /// Whether somebody wants it to end.
    pub should_stop: &'a dyn Fn() -> bool,
}

/// Writes the report of a run into its folder, as the end of a training does; where it is. Whatever keeps pictures from being
/// made is told in the report.
pub fn of_run(run: &Path, machine: &Machine<'_>) -> Result<PathBuf, CliError> {
    let out = output_file::check_report_of_run(run)?;
    let Machine { device, host, workers, should_stop } = machine;
    let (device, host) = ((*device).clone(), host.clone());
    let request =
        Request { run, device, host, workers: *workers, images: None, features: None, should_stop: *should_stop };
    let sections = pictures::sections(&request).unwrap_or_else(|error| vec![pictures::without(&error)]);
    write(&[run.to_owned()], &sections, &out)?;
    Ok(out)
}
