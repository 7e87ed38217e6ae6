//! `study`: a grid of recipes, data and seeds, each run by a `pretrain` of its own, and the table that comes of it.

mod evaluations;
mod figure;
mod folder;
mod found;
mod print;
mod work;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::study::pool::{self, Room};
use ::study::{self as studies, Plan, RunOutcome, StudyFile, StudyRun, Summary};
use ssl::recipe::{Facts, Recipe, ResidualStream};
use tensor::Device;

use self::evaluations::Evaluations;
use self::folder::{Others, StudyFolder};
pub use self::found::State;
use self::print::{list, print};
use self::work::{Ended, Runs, Study};
use crate::args::{AUTO, RecipeArgs, RecipeFlags, SplitArg, StudyArgs};
use crate::error::CliError;
use crate::eval::shelf::Shelf;
use crate::memory;
use crate::output;
use crate::progress::Console;
use crate::signals::Stop;

/// More runs at a time hardly use a GPU better.
const MOST_AT_ONCE: usize = 8;
/// The protocol that looks at images of another kind.
const CERTAINTY: &str = "certainty";
/// The part of a GPU's free memory that runs share.
const SHARE: f64 = 0.92;
/// Bytes that a process takes on a GPU beside what it plans.
const OF_A_PROCESS: u64 = 700 << 20;

/// Trains what is missing of a study, and prints its table.
pub fn run(args: &StudyArgs) -> Result<ExitCode, CliError> {
    let (file, text, plan) = read(args)?;
    let selected = selected(&plan, &args.only)?;
    let recipes = resolve(&plan, args)?;
    let others = others(&plan, args)?;
    let out = args.out.clone().unwrap_or_else(|| default_out(&args.file));
    if args.table {
        let folder = StudyFolder::open(&out, &text, others)?;
        let outcomes: Vec<RunOutcome> = plan
            .runs
            .iter()
            .zip(&recipes)
            .map(|(run, recipe)| found::outcome(&folder, &plan, run, recipe, args))
            .collect();
        let summary = Summary::of(&plan, &outcomes);
        folder.write(&summary)?;
        print(&summary, &file, args, &out)?;
        return Ok(conclude(&outcomes));
    }
    let chosen = args.device.choose()?;
    let memory = memory_of_runs(args, &chosen.device, &plan, &recipes)?;
    let most = match (args.at_once, chosen.device.is_gpu() && has_mps()) {
        (Some(given), _) => usize::from(given),
        (None, true) => MOST_AT_ONCE,
        (None, false) => 1,
    };
    let room = chosen.device.free_memory().map(|free| (SHARE * free as f64) as u64);
    let room = Room { at_once: most, memory: room }.for_runs(&memory);
    if args.dry_run {
        list(&plan, &selected, &recipes, &memory, &out, args)?;
        if !plan.evaluate.is_empty() {
            output::note(&format!("each of them is evaluated: {}", plan.evaluate.join(", ")));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let folder = StudyFolder::open(&out, &text, others)?;
    let (cells, runs) = (text::count(plan.cells.len(), "row"), text::count(plan.runs.len(), "run"));
    let part = if args.only.is_empty() { String::new() } else { format!(", {} of them now", selected.len()) };
    output::note(&format!(
        "device  {}\nstudy   {}: {runs} in {cells}{part}, up to {} at a time, into {}",
        chosen.describe(),
        text::shown(&args.file),
        room.at_once,
        text::shown(&out)
    ));
    if chosen.device.is_gpu() && args.at_once.is_none() && !has_mps() {
        output::note(
            "note: one run at a time, since NVIDIA's MPS does not run: without it several take turns, gain little, and a few were \
             seen to end with other bits. `nvidia-cuda-mps-control -d` starts it, --at-once does without",
        );
    }
    // The runs open it themselves, and this process needs it no more. Each has this GPU alone, evaluations too.
    let device = match args.device.device.as_str() {
        AUTO if chosen.device.is_gpu() => "cuda:0",
        given => given,
    };
    drop(chosen);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = (room.at_once > 1).then(|| (cores / room.at_once).max(1));
    let threads = args.device.thread_count()?.or(share);
    let console = Console::new(selected.iter().map(|&run| recipes[run].total_steps()).sum());
    let stop = Stop::listen_and_say(
        &console,
        "stopping: what is at work saves first. Ctrl-C once more, a second from now, ends at once",
    )?;
    let (plan, selected, recipes, folder, console, stop) = (&plan, &selected, &recipes, &folder, &console, &stop);
    let study = Study { plan, selected, recipes, folder, args, device, threads, console, stop };
    let failed = |source: std::io::Error| CliError::StudyFolder { path: out.clone(), what: source.to_string() };

    let mut work = Runs::new(study);
    let order = work.order();
    let ended = pool::run_all(&order, &memory, room, &mut work);
    let Ended { mut outcomes, failure, is_whole } = work.end_of_work();
    console.close();
    let mut is_complete = ended.map_err(failed)?;
    failure.map_or(Ok(()), Err)?;
    let mut not_evaluated = 0;
    if is_complete && !plan.evaluate.is_empty() && outcomes.iter().any(|outcome| outcome.is_finished) {
        console.reopen();
        let mut work = Evaluations::new(study, outcomes);
        let order = work.order();
        let networks = text::count(order.len(), "network");
        console.say(&format!("evaluating {networks}: {}", plan.evaluate.join(", ")));
        // What a run took on the device bounds what its evaluation takes.
        let ended = pool::run_all(&order, &memory, room, &mut work);
        console.close();
        let evaluated = work.end_of_work();
        is_complete = ended.map_err(failed)?;
        evaluated.failure.map_or(Ok(()), Err)?;
        (outcomes, not_evaluated) = (evaluated.outcomes, evaluated.failed);
    }
    let summary = Summary::of(plan, &outcomes);
    if is_whole {
        folder.write(&summary)?;
    }
    print(&summary, &file, args, &out)?;
    if !is_complete {
        output::note("stopped; the same command goes on with what is missing");
        return Ok(ExitCode::from(stop.status()));
    }
    let status = conclude(&outcomes);
    if not_evaluated > 0 {
        let evaluations = text::count(not_evaluated, "evaluation");
        output::note(&format!("{evaluations} failed, for the reasons above; the same command tries again"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(status)
}

/// Says how many runs have failed, if any.
fn conclude(outcomes: &[RunOutcome]) -> ExitCode {
    let failed = outcomes.iter().filter(|outcome| matches!(outcome.ended, studies::Ended::Failed(_))).count();
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    let failed = text::count(failed, "run");
    output::note(&format!("{failed} failed; runs.csv says why, and training the study tries again"));
    ExitCode::FAILURE
}

/// The numbers of the runs that are asked for: all, or those whose names contain one of these texts.
fn selected(plan: &Plan, only: &[String]) -> Result<Vec<usize>, CliError> {
    let is_asked = |name: &str| only.is_empty() || only.iter().any(|text| has_part(name, text));
    let is_unknown = |text: &&String| plan.runs.iter().all(|run| !has_part(&run.name, text));
    if let Some(text) = only.iter().find(is_unknown) {
        let what = format!(
            "no run's name contains {}; they are called like {}, and --dry-run lists them",
            text::excerpt(text),
            plan.runs[0].name
        );
        return Err(::study::StudyError::Meaning { place: "--only".to_owned(), what }.into());
    }
    Ok((0..plan.runs.len()).filter(|&run| is_asked(&plan.runs[run].name)).collect())
}

/// Whether a text is part of a run's name; a number at its end is a whole one, so that `seed=1` is not part of `seed=10`, nor
/// `lr=0` of `lr=0.5`.
fn has_part(name: &str, text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let of_number = |rest: &str| {
        let behind =
            |mark| rest.strip_prefix(mark).is_some_and(|rest: &str| rest.trim_start_matches('-').starts_with(is_digit));
        rest.starts_with(is_digit) || behind('.') || behind('e')
    };
    let is_whole = |end: usize| !(text.ends_with(is_digit) && of_number(&name[end..]));
    name.match_indices(text).any(|(start, found)| is_whole(start + found.len()))
}

/// The file as asked for, its text and its runs.
fn read(args: &StudyArgs) -> Result<(StudyFile, String, Plan), CliError> {
    let place = text::shown(&args.file);
    let (mut file, text) = StudyFile::read(&args.file)?;
    for assignment in &args.data {
        let wrong = || ::study::StudyError::Meaning {
            place: "--data".to_owned(),
            what: format!("{} is not NAME=SRC, with NAME one of the study's data", text::excerpt(assignment)),
        };
        let (name, source) = assignment.split_once('=').ok_or_else(wrong)?;
        file.set_source(name, source)?;
    }
    let plan = Plan::of(&file, &place)?;
    Ok((file, text, plan))
}

/// `studies/NAME`, by the name of the file.
fn default_out(file: &Path) -> PathBuf {
    Path::new("studies").join(file.file_stem().unwrap_or_default())
}

/// What `pretrain` gets to know of a run.
fn recipe_args(run: &StudyRun) -> RecipeArgs {
    RecipeArgs { data: run.source.clone(), recipe: None, set: run.settings.clone(), keys: RecipeFlags::default() }
}

/// The recipes of all runs: what cannot be trained is known before anything is.
fn resolve(plan: &Plan, args: &StudyArgs) -> Result<Vec<Recipe>, CliError> {
    let threads = args.device.thread_count()?;
    // Which images they are matters to what was trained elsewhere; a run of our own looks at that itself.
    let is_compared = args.table || (!args.only.is_empty() && !args.dry_run);
    let mut known: HashMap<(String, usize, String), Facts> = HashMap::new();
    let mut resolve = |run: &StudyRun| {
        let recipe = recipe_args(run);
        let asked = recipe.asked(threads)?;
        let key = (run.source.clone(), asked.channels(), format!("{:?}", asked.orientation()));
        let facts = match known.get(&key) {
            Some(facts) => *facts,
            None => {
                let (_, facts) =
                    if is_compared { recipe.open(&asked)? } else { recipe.data(&asked, SplitArg::Train)? };
                *known.entry(key).or_insert(facts)
            }
        };
        recipe.resolve(asked, &facts, &[])
    };
    let named = |run: &StudyRun| {
        resolve(run).map_err(|error| {
            let place = format!("{}, run {}", text::shown(&args.file), run.name);
            CliError::from(::study::StudyError::Meaning { place, what: error.to_string() })
        })
    };
    plan.runs.iter().map(named).collect()
}

/// The images that certainty is to tell from a run's own, each with its digest: what evaluations need is looked at as well
/// before anything is trained.
fn others(plan: &Plan, args: &StudyArgs) -> Result<Others, CliError> {
    let mut digests = Others::new();
    if !plan.evaluate.iter().any(|protocol| protocol == CERTAINTY) {
        return Ok(digests);
    }
    for run in &plan.runs {
        let Some(other) = run.other.as_deref().filter(|other| !digests.contains_key(*other)) else { continue };
        let source = Shelf::default().judged(other).map_err(|error| {
            let (file, data) = (text::shown(&args.file), &plan.cells[run.cell].data);
            // A name that is none of the study's data is taken for a place.
            let is_known = plan.runs.iter().any(|run| run.source == other);
            let known = if is_known { "" } else { ", which is no other data set of the study" };
            ::study::StudyError::Meaning {
                place: format!("{file} [data.{data}] other{known}"),
                what: error.to_string(),
            }
        })?;
        // A list of runs needs none of it, and all images are read for it.
        let digest = if args.dry_run { String::new() } else { format!("{:016x}", source.fingerprint()) };
        digests.insert(other.to_owned(), digest);
    }
    Ok(digests)
}

/// Bytes of a GPU's memory that each run takes; 0 on a CPU. A seed changes nothing about it.
fn memory_of_runs(args: &StudyArgs, device: &Device, plan: &Plan, recipes: &[Recipe]) -> Result<Vec<u64>, CliError> {
    if !device.is_gpu() {
        return Ok(vec![0; plan.runs.len()]);
    }
    let mut devices: Vec<(ResidualStream, Device)> = Vec::new();
    let mut of_cells: HashMap<usize, u64> = HashMap::new();
    for (run, recipe) in plan.runs.iter().zip(recipes) {
        if of_cells.contains_key(&run.cell) {
            continue;
        }
        let stream = recipe.residual_stream();
        if !devices.iter().any(|(known, _)| *known == stream) {
            devices.push((stream, args.device.choose_for_training(stream, None)?.device));
        }
        if let Some((_, device)) = devices.iter().find(|(known, _)| *known == stream) {
            of_cells.insert(run.cell, memory_of(device, recipe)?);
        }
    }
    Ok(plan.runs.iter().map(|run| of_cells[&run.cell]).collect())
}

fn memory_of(device: &Device, recipe: &Recipe) -> Result<u64, CliError> {
    Ok(memory::plan_of_recipe(device, recipe)?.map_or(0, |plan| plan + OF_A_PROCESS))
}

/// Whether several processes share a GPU side by side rather than by turns.
fn has_mps() -> bool {
    let folder = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or(PathBuf::from("/tmp/nvidia-mps"), PathBuf::from);
    folder.join("control").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_end_of_a_part_is_a_whole_one() {
        let name = "photos+vmf+lr=0.5+seed=10";
        for part in ["seed=10", "vmf", "lr=0.5", "photos+vmf", "lr=0.5+seed"] {
            assert!(has_part(name, part), "{part}");
        }
        for other in ["seed=1", "seed=0", "lr=0", "dino"] {
            assert!(!has_part(name, other), "{other}");
        }
        assert!(has_part("seed=1+seed=10", "seed=1"));
    }
}
