//! A run as `inspect` tells of it: what it trains, how far it is, who trains it, and what it has saved.

use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Map, Value, json};
use ssl::recipe::{self, Begin, MethodName, Recipe, WeightsDigest};
use ssl::setup::vit_config;
use text::{bytes, count, thousands};
use train::run::{
    Attempt, Damage, INITIAL_FILE, Identity, Machine, MachineSince, RunConfig, RunReader, RunResult, RunState,
};

use super::backbone::BackboneAccount;
use super::network;
use crate::description;
use crate::error::CliError;
use crate::online_knn;
use crate::outcome;

/// What there is to tell.
pub struct RunAccount {
    path: String,
    recipe: Recipe,
    identity: Option<Identity>,
    /// Steps of the whole run.
    total: u64,
    /// What in the folder is not as the run left it.
    problems: Vec<String>,
    /// Whether its settings are no longer those that it was begun with.
    is_edited: bool,
    state: RunState,
    /// The last step in its log.
    logged: Option<u64>,
    /// The last step whose checkpoint can be used.
    saved: Option<u64>,
    /// Whether checkpoints were written, and none is there any more.
    are_gone: bool,
    checkpoints: Vec<CheckpointAccount>,
    /// The accuracy before the first step, of a run that began with given weights.
    start: Option<f64>,
    /// The last record of a step, and the last one of an evaluation.
    last: Vec<Value>,
    result: Option<RunResult>,
    backbone: Option<BackboneAccount>,
    /// Attempts before this one, which collapsed.
    attempts: Vec<Attempt>,
    /// What it was computed on.
    machines: Vec<MachineSince>,
}

/// A file among the checkpoints.
struct CheckpointAccount {
    step: u64,
    name: String,
    bytes: u64,
    /// Why it cannot be used.
    problem: Option<String>,
}

impl RunAccount {
    /// Reads a run's folder.
    pub fn of(path: &Path) -> Result<Self, CliError> {
        let run = RunReader::open(path)?;
        // Asked first: a run that ends while it is looked at has then written what is read below.
        let activity = run.activity();
        let recipe = recipe::of_run(&run)?;
        let identity = run.identity()?;
        // Settings can be edited; the name of the run is left alone.
        let total = identity.as_ref().map_or(recipe.total_steps(), |identity| identity.steps);
        let (result, mut problems) = match run.checked_result(total) {
            Ok(result) => (result, Vec::new()),
            Err(error) => (None, vec![format!("{error}. The command that started the run judges it again")]),
        };
        let mut backbone = BackboneAccount::of(&run, result.as_ref(), total);
        let (mut saved, mut checkpoints, mut trained_with) = (None, Vec::new(), None);
        for (step, file) in run.checkpoints()? {
            let problem = match run.checkpoint(&file)? {
                Ok(checkpoint) => {
                    let problem = checkpoint.misplaced(step, total).map(|(problem, _)| problem);
                    if problem.is_none() {
                        backbone.iter_mut().for_each(|backbone| backbone.compare(&checkpoint));
                        trained_with = trained_with.or_else(|| description::of_checkpoint(checkpoint.state()));
                    }
                    problem
                }
                // The run is going on, and has removed it since.
                Err(Damage::Io(error)) if error.kind() == ErrorKind::NotFound => continue,
                Err(damage) => Some(damage.to_string()),
            };
            if problem.is_none() {
                saved = saved.or(Some(step));
            }
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            checkpoints.push(CheckpointAccount { step, name, bytes: file.metadata().map_or(0, |m| m.len()), problem });
        }
        let (mut logged, mut losses, mut accuracies) = (None, None, None);
        let start = online_knn::logged_start(&run)?;
        run.each_record(|record| {
            // Of no step, and of no epoch.
            if record.get(online_knn::START).is_some() {
                return;
            }
            logged = logged.max(record["step"].as_u64());
            let last = if record.get("knn_top1").is_some() { &mut accuracies } else { &mut losses };
            *last = Some(record);
        })?;
        if let Some(backbone) = &mut backbone {
            backbone.compare_with_last(logged.max(saved).max(run.last_saved()).unwrap_or(0));
            problems.extend(backbone.problem());
        }
        let edited = identity.as_ref().and_then(|identity| edited(identity, &recipe));
        let is_edited = edited.is_some();
        if let Some(mut edited) = edited {
            if let Some((key, said, now)) = description::difference(&trained_with.unwrap_or_default(), &recipe)? {
                edited += &format!(". It was trained with {key} {said}, and config.toml now means {now}");
            }
            problems.insert(0, edited);
        }
        Ok(Self {
            backbone,
            path: text::shown(path).to_string(),
            identity,
            total,
            problems,
            is_edited,
            start,
            state: RunState::of(activity, result.as_ref()),
            last: losses.into_iter().chain(accuracies).collect(),
            logged,
            recipe,
            saved,
            are_gone: checkpoints.is_empty() && run.last_saved().is_some(),
            checkpoints,
            result,
            attempts: run.attempts()?,
            machines: run.machines(),
        })
    }

    /// The last step that the run is known to have done.
    fn step(&self) -> u64 {
        match self.state {
            RunState::Finished => self.total,
            _ => self.logged.max(self.saved).unwrap_or(0),
        }
    }

    /// For people.
    pub fn text(&self) -> Result<String, CliError> {
        let (recipe, facts) = (&self.recipe, self.recipe.facts());
        let mut text = format!("{}: a run of {}\n", self.path, in_words(recipe)?);
        for problem in &self.problems {
            line(&mut text, "warning", problem);
        }
        let labels = if facts.labelled { "labelled" } else { "without labels" };
        let source = recipe.source().map_or(String::new(), |source| format!("{}: ", text::printable(source)));
        let data = format!("{source}{}, {} (the median), {labels}", count(facts.images, "image"), facts.size());
        line(&mut text, "data", &data);
        line(&mut text, "recipe", &summary(recipe));
        if let WeightsDigest(Some(digest)) = recipe.begin_weights() {
            let how = if recipe.begin() == Begin::Adapt { "adapted from" } else { "began with" };
            let top1 =
                self.start.map_or(String::new(), |top1| format!(", kNN top-1 {top1:.1} % before the first step"));
            line(&mut text, "start", &format!("{how} given weights ({digest:016x}, {INITIAL_FILE}){top1}"));
        }
        line(&mut text, "progress", &self.progress());
        for (i, record) in self.last.iter().enumerate() {
            line(&mut text, if i == 0 { "metrics" } else { "" }, &metrics(record));
        }
        for (i, since) in self.machines.iter().enumerate() {
            let from = if i == 0 { String::new() } else { format!("after step {}: ", thousands(since.step)) };
            line(&mut text, if i == 0 { "machine" } else { "" }, &(from + &machine(&since.machine)));
        }
        for (attempt, number) in self.attempts.iter().zip(1..) {
            let what =
                format!("attempt {number} {}; its files are in collapsed-{number}", outcome::of_attempt(attempt));
            line(&mut text, if number == 1 { "attempts" } else { "" }, &what);
        }
        if let Some((_, advice)) =
            self.result.as_ref().and_then(|r| r.judgement.as_ref().filter(|_| r.collapsed.is_some()))
        {
            line(&mut text, "result", &text::printable(advice));
        }
        if let Some(knn) = self.result.as_ref().and_then(|result| result.knn.as_ref()) {
            line(
                &mut text,
                "result",
                &format!(
                    "top-1 kNN (k={}) on {}: raw pixels {:.1} %, {} {:.1} %, trained {:.1} %",
                    knn.k,
                    text::printable(&knn.judged),
                    knn.raw_pixels,
                    if knn.is_given { "at the start" } else { "untrained" },
                    knn.untrained,
                    knn.trained
                ),
            );
        }
        if let Some(backbone) = &self.backbone {
            line(&mut text, "backbone", &backbone.text());
        }
        if self.checkpoints.is_empty() {
            line(&mut text, "checkpoints", if self.are_gone { "none any more" } else { "none yet" });
        }
        for (i, CheckpointAccount { name, bytes: size, problem, .. }) in self.checkpoints.iter().enumerate() {
            let state = problem.as_deref().unwrap_or("sound");
            line(&mut text, if i == 0 { "checkpoints" } else { "" }, &format!("{name}  {}  {state}", bytes(*size)));
        }
        Ok(text)
    }

    fn progress(&self) -> String {
        let (step, total) = (self.step(), self.total);
        let is_lost = self.saved.is_none() && !self.checkpoints.is_empty();
        let goes_on = match self.saved {
            Some(_) if self.is_edited => "it is not continued while its settings are not its own".to_owned(),
            Some(saved) => format!("the command that started it continues it after step {}", thousands(saved)),
            None if is_lost => "no checkpoint can be used: it cannot be continued".to_owned(),
            None if self.are_gone => "its checkpoints are gone: it cannot be continued without them".to_owned(),
            None => "no checkpoint had been written: the command that started it begins again".to_owned(),
        };
        let state = match &self.state {
            RunState::Running { holder } => {
                let saved = self.saved.map_or("nothing".to_owned(), |saved| format!("step {}", thousands(saved)));
                format!("running ({holder}), {saved} is saved")
            }
            RunState::Finished if is_lost => {
                "finished; no checkpoint can be read any more, only the backbone".to_owned()
            }
            RunState::Finished => "finished".to_owned(),
            RunState::Collapsed => "collapsed, which ended it".to_owned(),
            RunState::Stopped => format!("stopped; {goes_on}"),
            RunState::Killed => format!("killed; {goes_on}"),
            RunState::Unfinished => format!("not finished; {goes_on}"),
        };
        let epochs = step as f64 / self.recipe.steps_per_epoch().max(1) as f64;
        let of = count(self.recipe.epochs(), "epoch");
        format!("step {} of {}, {epochs:.1} of {of}: {state}", thousands(step), thousands(total))
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let facts = self.recipe.facts();
        // Values of a recipe are TOML, which for all but a few words is JSON too.
        let value = |text: String| serde_json::from_str(&text).unwrap_or(Value::String(text));
        let recipe: Map<String, Value> =
            self.recipe.explain().into_iter().map(|line| (line.key.to_owned(), value(line.value))).collect();
        let checkpoint = |c: &CheckpointAccount| json!({ "file": c.name, "step": c.step, "bytes": c.bytes, "sound": c.problem.is_none(), "problem": c.problem });
        json!({
            "kind": "run",
            "path": self.path,
            "run": self.identity.as_ref().map(|identity| &identity.run),
            "state": self.state.word(),
            "problems": self.problems,
            "step": self.step(),
            "saved_step": self.saved,
            "total_steps": self.total,
            "steps_per_epoch": self.recipe.steps_per_epoch(),
            "data": {
                "source": self.recipe.source(), "images": facts.images, "height": facts.height, "width": facts.width,
                "labelled": facts.labelled, "fingerprint": format!("{:016x}", facts.fingerprint),
            },
            "recipe": recipe,
            "metrics": self.last.first(),
            "knn_start": self.start,
            "knn_top1": self.last.iter().rev().find_map(|record| record.get("knn_top1")),
            "attempts": self.attempts.iter().map(Attempt::to_json).collect::<Vec<_>>(),
            "machines": self.machines.iter().map(MachineSince::to_json).collect::<Vec<_>>(),
            "checkpoints": self.checkpoints.iter().map(checkpoint).collect::<Vec<_>>(),
            "backbone": self.backbone.as_ref().map(BackboneAccount::json),
            "result": self.result.as_ref().map(RunResult::to_json),
        })
    }
}

/// How the settings in a folder differ from those that its run was begun with, of which only digests are kept; none where
/// they do not.
fn edited(identity: &Identity, recipe: &Recipe) -> Option<String> {
    let (begun, now) = (&identity.digests, recipe.digests());
    let mut differ = Vec::new();
    if identity.steps != recipe.total_steps() {
        let (begun, now) = (thousands(identity.steps), thousands(recipe.total_steps()));
        differ.push(format!("it means {now} steps, and the run has {begun}"));
    }
    if begun.recipe != now.recipe {
        differ.push("values that shape the result are others".to_owned());
    }
    if begun.data != now.data {
        differ.push("it names other data".to_owned());
    }
    (!differ.is_empty()).then(|| {
        format!(
            "config.toml is not what this run was begun with: {}. What is told below of data and recipe is the edited file; \
             put it back as it was",
            differ.join(", ")
        )
    })
}

fn line(text: &mut String, title: &str, content: &str) {
    // Writing into a string does not fail.
    _ = writeln!(text, "  {title:11}  {content}");
}

fn in_words(recipe: &Recipe) -> Result<String, CliError> {
    let centering = match recipe.method() {
        MethodName::Dino | MethodName::Ibot => format!(", centering {}", recipe.centering()),
        MethodName::Msn => String::new(),
    };
    Ok(format!(
        "{}, prototypes {}{centering}; {}: {}",
        recipe.method(),
        recipe.prototypes(),
        recipe.arch(),
        network(&vit_config(recipe)?)
    ))
}

/// What a run was computed on, in a line.
fn machine(machine: &Machine) -> String {
    let memory = machine.memory.map_or(String::new(), |memory| format!(", {}", bytes(memory)));
    let driver = machine.driver.as_ref().map_or(String::new(), |driver| format!(", driver {driver}"));
    let Machine { program, system, processor, cores, device, .. } = machine;
    let cores = count(*cores as usize, "core");
    text::printable(&format!("{processor}, {cores}{memory}; {device}{driver}; {system}; {program}")).into_owned()
}

/// The keys that tell runs apart most often; config.toml has all.
fn summary(recipe: &Recipe) -> String {
    const SHOWN: [&str; 10] = [
        "epochs",
        "batch_size",
        "lr",
        "out_dim",
        "global_size",
        "local_size",
        "local_crops",
        "teacher_temp",
        "momentum_teacher",
        "seed",
    ];
    let lines = recipe.explain();
    let shown = lines.iter().filter(|line| SHOWN.contains(&line.key));
    shown.map(|line| format!("{} {}", line.key, line.value)).collect::<Vec<_>>().join(", ")
}

/// What of a record of the log tells most; metrics.jsonl has all.
fn metrics(record: &Value) -> String {
    const SHOWN: [&str; 8] = [
        "loss",
        "divergence",
        "teacher_entropy",
        "prototypes_in_use",
        "kappa_median",
        "feature_rank",
        "images_per_second",
        "knn_top1",
    ];
    let shown = SHOWN.iter().filter_map(|&key| match record.get(key)? {
        Value::Number(x) if x.is_f64() => Some(format!("{key} {}", short(x.as_f64()?))),
        value => Some(format!("{key} {value}")),
    });
    let step = record.get("step").map_or(String::new(), |step| format!("step {step}: "));
    step + &shown.collect::<Vec<_>>().join(", ")
}

/// About four significant digits.
fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if (1e-3..1e5).contains(&a) => {
            let digits = (3 - a.log10().floor() as i32).max(0) as usize;
            format!("{x:.digits$}")
        }
        _ => format!("{x:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_four_digits() {
        assert_eq!(
            [0.0, 0.123456, 8.31777, 1234.5, 123456.0, 1e-6].map(short),
            ["0", "0.1235", "8.318", "1234", "1.23e5", "1.00e-6"]
        );
    }

    #[test]
    fn a_record_begins_with_its_step() {
        let record = serde_json::json!({ "prototypes_in_use": 3, "loss": 2.0, "epoch": 3, "step": 7 });
        assert_eq!(metrics(&record), "step 7: loss 2.000, prototypes_in_use 3");
    }
}
