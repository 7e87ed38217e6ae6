//! What there is to tell of a run: what it trains, on what, how far it is, what its numbers mean, and what became of them.

use std::path::{Path, PathBuf};

use serde_json::Value;
use ssl::health::{Course, Vitals};
use ssl::recipe::{self, Begin, Recipe};
use train::run::{Activity, Attempt, MachineSince, RunError, RunReader, RunResult, RunState};

use crate::history::History;
use crate::settings::{self, Setting};

/// Why nothing can be told of a run.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// It is no run, or its files cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A picture does not become a file.
    #[error(transparent)]
    Picture(#[from] data::encode::EncodeError),
    /// There is nothing to tell of.
    #[error("no run is given")]
    NoRun,
}

/// A run, as it is told of.
#[derive(Clone, Debug)]
pub struct Account {
    /// What its folder is called.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What became of it.
    pub state: RunState,
    /// What it trains.
    pub recipe: Recipe,
    /// Every setting, with where it came from.
    pub settings: Vec<Setting>,
    /// The last step that its log or its checkpoints tell of.
    pub step: u64,
    /// Its numbers over the steps.
    pub history: History,
    /// What it is worth, where it has ended.
    pub result: Option<RunResult>,
    /// What its last numbers mean.
    pub verdict: Verdict,
    /// Attempts before this one, which collapsed.
    pub attempts: Vec<Attempt>,
    /// The machines that it was computed on, oldest first; none where it does not say.
    pub machines: Vec<MachineSince>,
}

/// How a run is doing, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether there is reason for joy, for patience, or for another run.
    pub tone: Tone,
    /// In a sentence.
    pub words: String,
}

/// The mood of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// It has learnt something.
    Good,
    /// Nothing is wrong, and nothing is shown yet.
    Open,
    /// Something is wrong.
    Bad,
}

impl Tone {
    /// One word, which pages and scripts rely on.
    pub fn word(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Open => "open",
            Tone::Bad => "bad",
        }
    }
}

/// Names that tell what is at these paths apart: the given ones, or all of their paths where two of those are the same.
pub fn names_apart(names: Vec<String>, paths: &[PathBuf]) -> Vec<String> {
    let is_clear = (1..names.len()).all(|i| !names[..i].contains(&names[i]));
    if is_clear { names } else { paths.iter().map(|path| text::shown(path).into_owned()).collect() }
}

/// The same runs under names that tell them apart.
pub fn told_apart(mut runs: Vec<Account>) -> Vec<Account> {
    let (names, paths): (_, Vec<PathBuf>) = runs.iter().map(|run| (run.name.clone(), run.path.clone())).unzip();
    runs.iter_mut().zip(names_apart(names, &paths)).for_each(|(run, name)| run.name = name);
    runs
}

/// Whether these runs were trained on the same images: without that, their numbers are of different tasks.
pub fn are_of_same_images(runs: &[Account]) -> bool {
    let images = |run: &Account| (run.recipe.facts().images, run.recipe.facts().fingerprint);
    runs.windows(2).all(|pair| images(&pair[0]) == images(&pair[1]))
}

impl Account {
    /// Reads a run. Its log is kept as `points` to twice as many points of each number.
    pub fn of(path: &Path, points: usize) -> Result<Self, ReportError> {
        let run = RunReader::open(path)?;
        // Asked first: a run that ends while it is looked at has then written what is read below.
        let activity = run.activity();
        let (mut history, mut last) = (History::keeping(points), None);
        run.each_record(|record| {
            history.add(&record);
            if record.get("loss").is_some() {
                last = Some(record);
            }
        })?;
        Self::with_log(&run, activity, history, last.as_ref())
    }

    /// The same of a run whose log was read already: what it holds, and its last record with a loss.
    pub(crate) fn with_log(
        run: &RunReader,
        activity: Option<Activity>,
        history: History,
        last: Option<&Value>,
    ) -> Result<Self, ReportError> {
        let path = run.root();
        let recipe = recipe::of_run(run)?;
        let settings = settings::of(&recipe, &run.config()?.0);
        let total = run.identity()?.map_or(recipe.total_steps(), |identity| identity.steps);
        let result = run.result(total);
        let step = history.last_step().max(run.last_saved()).unwrap_or(0);
        let state = RunState::of(activity, result.as_ref());
        let verdict = verdict(&recipe, &state, result.as_ref(), last);
        let (attempts, machines) = (run.attempts()?, run.machines());
        let (path, name) = (path.to_owned(), name_of(path));
        Ok(Self { name, path, state, recipe, settings, step, history, result, verdict, attempts, machines })
    }

    /// Steps of an epoch.
    pub fn steps_per_epoch(&self) -> f64 {
        self.recipe.steps_per_epoch().max(1) as f64
    }

    /// How much of it is done, from 0 to 1.
    pub fn progress(&self) -> f64 {
        (self.step as f64 / self.recipe.total_steps().max(1) as f64).clamp(0.0, 1.0)
    }

    /// The method in the field's words: `DINO-vMF`, `iBOT`.
    pub fn method(&self) -> String {
        let vmf = if self.recipe.prototypes().as_str() == "vmf" { "-vMF" } else { "" };
        let name = match self.recipe.method().as_str() {
            "dino" => "DINO",
            "ibot" => "iBOT",
            "msn" => "MSN",
            other => other,
        };
        format!("{name}{vmf}")
    }

    /// The command of the longer run that its judgement advises: what was given, without the length. None where none is
    /// advised, or where it began with weights, of which its folder does not say where they were.
    pub fn longer(&self) -> Option<String> {
        let epochs = self.result.as_ref()?.advised_epochs?;
        let data = self.recipe.source().filter(|_| self.recipe.begin() == Begin::Drawn)?;
        let path = match self.path.file_name() {
            Some(_) => self.path.clone(),
            // `.` has no name that another one could stand beside.
            None => self.path.canonicalize().ok()?,
        };
        let out = path.with_file_name(format!("{}-{epochs}-epochs", path.file_name()?.to_string_lossy()));
        let mut words = ["dino-vmf", "pretrain", "--data", data].map(str::to_owned).to_vec();
        for setting in self.settings.iter().filter(|setting| setting.is_asked_for()) {
            let (key, value) = (&setting.key, setting.value.trim_matches('"'));
            match key.as_str() {
                "epochs" | "knn_every" | "extension" | "extended_from" => {}
                "method" => words.extend(["--method".to_owned(), value.to_owned()]),
                _ => words.extend(["--set".to_owned(), format!("{key}={value}")]),
            }
        }
        words.extend([
            "--epochs".to_owned(),
            epochs.to_string(),
            "--out".to_owned(),
            out.to_string_lossy().into_owned(),
        ]);
        Some(words.iter().map(|word| text::shell(word)).collect::<Vec<_>>().join(" "))
    }

    /// The images in a word: the name of their folder or file, `synthetic` for those built in.
    pub fn data(&self) -> String {
        let source = self.recipe.source().unwrap_or("-");
        let path = text::path_of(source);
        path.file_name().map_or_else(|| source.to_owned(), |name| text::shown(Path::new(name)).into_owned())
    }

    /// The last accuracy of kNN in per cent, where there are labels.
    pub fn knn(&self) -> Option<f64> {
        let logged = || self.history.column("knn_top1").and_then(|column| column.last());
        self.result.as_ref().and_then(|result| result.knn.as_ref()).map(|knn| knn.trained).or_else(logged)
    }
}

/// The folder's own name, also where it is given as `.`.
pub(crate) fn name_of(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let absolute = absolute.canonicalize().unwrap_or(absolute);
    absolute
        .file_name()
        .map_or_else(|| "run".to_owned(), |name| text::escape_name(name.as_encoded_bytes()).into_owned())
}

fn verdict(recipe: &Recipe, state: &RunState, result: Option<&RunResult>, last: Option<&Value>) -> Verdict {
    if let Some((word, words)) = result.and_then(|result| result.judgement.clone()) {
        let tone = match word.as_str() {
            "learnt" => Tone::Good,
            "too_short" | "no_labels_healthy" | "not_judged" | "too_few_images" | "unfinished" => Tone::Open,
            _ => Tone::Bad,
        };
        return Verdict { tone, words };
    }
    let course = Course::of(recipe);
    let Some(record) = last else {
        return Verdict { tone: Tone::Open, words: "No loss is logged yet".to_owned() };
    };
    let step = record["step"].as_u64().unwrap_or(0);
    let rank = record.get("feature_rank").and_then(Value::as_f64);
    let found = Vitals::of_record(record, course.teacher_views)
        .and_then(|vitals| course.in_words(course.verdict(step, &vitals, rank), &vitals, rank));
    match (found, state) {
        (Some(words), _) => Verdict { tone: Tone::Bad, words: capitalised(&words) },
        (None, RunState::Running { .. }) => {
            Verdict { tone: Tone::Open, words: "It is training, and nothing looks wrong".to_owned() }
        }
        (None, _) => Verdict {
            tone: Tone::Open,
            words:
                "It stopped before its end, and nothing looked wrong: the same command goes on from its last checkpoint"
                    .to_owned(),
        },
    }
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
