//! `eval finetune`: a classifier and the network under it, trained on labelled images and judged after every epoch.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::{Source, Split};
use eval::finetune::{self, Best, Facts, FineTuneConfig, FineTuneRecipe, FineTuning, Judge, Kind, Parts};
use eval::{InputSpec, ReadOptions, ReadProgress};
use model::weights::to_safetensors;
use serde_json::{Value, json};
use text::count;
use train::run::{BACKBONE_FILE, RESULT_FILE, RunConfig, RunFolder, RunReader, RunResult, checksum};
use train::{Outcome, Trainer};

use super::record::{self, Evaluation};
use super::sets::{Provenance, check_labels};
use crate::args::{FinetuneArgs, RecipeArg};
use crate::description;
use crate::device::Chosen;
use crate::error::CliError;
use crate::images;
use crate::output;
use crate::progress::Console;
use crate::signals::Stop;
use crate::terminal::Terminal;
use crate::weights::{self, Weights};

const FINETUNE: Evaluation = Evaluation { name: "finetune", version: 1 };
/// The key of a fine-tuning's own numbers in `result.json`.
const OWN: &str = "finetune";
/// Time between two lines on the images that are judged.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// All that a run is made of, once it is clear.
struct Job<'a> {
    args: &'a FinetuneArgs,
    device: Chosen,
    weights: Weights,
    train: Arc<dyn Source>,
    test: Arc<dyn Source>,
    input: InputSpec,
    config: FineTuneConfig,
}

/// Trains, or goes on with what an earlier start of the same command began.
pub fn run(args: &FinetuneArgs) -> Result<ExitCode, CliError> {
    let job = Job::of(args)?;
    let folder = RunFolder::open(&args.out, &job.config)?;
    let total = job.config.total_steps();
    if let Some(result) = finished(&args.out, total)? {
        let out = text::shown(&args.out);
        output::note(&format!("{out}: this run is finished; give another --out to train anew"));
        return job.print(&result).map(|()| ExitCode::SUCCESS);
    }
    folder.discard_result()?;
    job.introduce();
    images::warn_of_copies(&*job.train, Some(&*job.test));
    job.train(folder)
}

impl<'a> Job<'a> {
    fn of(args: &'a FinetuneArgs) -> Result<Self, CliError> {
        let device = args.machine.choose()?;
        let weights = weights::load(&args.weights, &args.network, &device.device)?;
        let (train, test) = (images::open(&args.data, Split::Train)?, images::open(&args.data, Split::Test)?);
        check_labels(&*train, "training")?;
        check_labels(&*test, "test")?;
        same_classes(&*train, &*test)?;
        let mut input = weights.input.with_size(args.network.image_size);
        if let Some(orientation) = args.orientation {
            input = input.oriented(orientation);
        }
        let kind = match args.recipe {
            RecipeArg::Beit => Kind::Beit,
            RecipeArg::Deit => Kind::Deit,
        };
        let facts = Facts { images: train.len(), width: weights.loaded.vit.config().dim };
        let recipe = FineTuneRecipe::resolve(kind, &facts, &given(args)?)?;
        let steps_per_epoch = (train.len() / recipe.batch_size) as u64;
        let config = FineTuneConfig {
            recipe,
            weights: description::weights_digest(&weights),
            input: input.metadata().map(|(_, value)| value).join(" "),
            data: (train.fingerprint(), test.fingerprint()),
            classes: train.class_names().len(),
            steps_per_epoch,
        };
        Ok(Self { args, device, weights, train, test, input, config })
    }

    /// Says what comes, every setting with its reason.
    fn introduce(&self) {
        let recipe = &self.config.recipe;
        let widest = |of: fn(&finetune::Setting) -> usize| recipe.settings().iter().map(of).max().unwrap_or(0);
        let (keys, values) = (widest(|s| s.key.len()), widest(|s| s.value.len()));
        let row = |s: &finetune::Setting| format!("\n  {:keys$}  {:>values$}  {}", s.key, s.value, s.why);
        output::note(&format!(
            "device  {}\ndata    {} ({}), judged on {}\nrun     {}: {} in {} of {}\nrecipe  {}{}",
            self.device.describe(),
            self.train.describe(),
            count(self.config.classes, "class"),
            self.test.describe(),
            text::shown(&self.args.out),
            count(self.config.total_steps() as usize, "step"),
            count(recipe.epochs as usize, "epoch"),
            self.config.steps_per_epoch,
            recipe.kind.name(),
            recipe.settings().iter().map(row).collect::<String>(),
        ));
    }

    /// Trains until the end or a stop.
    fn train(&self, folder: RunFolder) -> Result<ExitCode, CliError> {
        let (recipe, total, device) = (&self.config.recipe, self.config.total_steps(), &self.device.device);
        let workers = self.args.machine.thread_count()?.unwrap_or(ReadOptions::default().workers);
        let read = ReadOptions { workers, ..ReadOptions::default() };
        let console = Console::with_words(total);
        let told = Cell::new((Instant::now(), usize::MAX));
        let progress = |done| tell(&console, &told, done);
        let mut judge = Judge::new(self.test.clone(), recipe.kind, self.input, read, &progress)?;
        let stop = Stop::listen(&console)?;
        let faster = |_: f64| "Fewer --epochs, a smaller --image-size or a GPU take less".to_owned();
        let mut terminal = Terminal::new(&console, recipe.epochs as usize, recipe.batch_size, &faster)
            .watching(vec![self.train.clone(), self.test.clone()]);
        let Weights { loaded, normalization, .. } = &self.weights;
        let parts = Parts {
            device,
            config: loaded.vit.config(),
            backbone: (&loaded.layout, &loaded.weights),
            normalization,
            input: self.input,
            recipe,
            train: self.train.clone(),
            workers,
        };
        let trained = finetune::open(parts, folder, &mut terminal).map_err(CliError::from).and_then(|mut trainer| {
            terminal.begin(trainer.step(), total, &device.describe());
            let outcome = trainer.run(&mut terminal, &mut judge, &|| stop.requested())?;
            Ok((trainer, outcome))
        });
        console.close();
        let (trainer, outcome) = trained?;
        if terminal.skipped() > 0 {
            output::note(&format!("skipped because unreadable: {}", count(terminal.skipped(), "image")));
        }
        let backbone = self.export(&trainer)?;
        if let Outcome::Stopped { step } = outcome {
            output::note(&format!("stopped after step {step} of {total}; the same command goes on from there"));
            if self.args.json {
                let results =
                    json!({ "outcome": "stopped", "steps": step, "run": text::shown(&self.args.out).to_string() });
                output::json(&self.record(results))?;
            }
            return Ok(ExitCode::from(stop.status()));
        }
        let result = self.conclude(&trainer, backbone)?;
        self.print(&result)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the network as it is now; the file's checksum.
    fn export(&self, trainer: &Trainer<FineTuning>) -> Result<String, CliError> {
        let (tuner, total) = (trainer.trained().tuner(), self.config.total_steps());
        let mut said = trainer.trained().description().to_vec();
        said.push(("fine_tuned", self.config.recipe.kind.name().to_owned()));
        said.push(("class_names", json!(self.train.class_names()).to_string()));
        said.extend(description::unfinished(trainer.step(), total));
        let bytes = to_safetensors(tuner.layout(), tuner.weights(), "", said)?;
        tuner.device().finish()?;
        trainer.folder().write(BACKBONE_FILE, &bytes)?;
        Ok(checksum(&bytes))
    }

    /// Writes what a finished run is worth.
    fn conclude(&self, trainer: &Trainer<FineTuning>, backbone: String) -> Result<Value, CliError> {
        let run = RunReader::open(&self.args.out)?;
        let loss = run.last_record("loss")?.and_then(|record| record.get("loss")?.as_f64());
        let result = RunResult {
            steps: trainer.step(),
            collapsed: None,
            loss,
            verdict: None,
            knn: None,
            substitutes: trainer.substitutes().images,
            backbone: Some(backbone),
            judgement: None,
            advised_epochs: None,
        };
        let mut object = result.to_json();
        object[OWN] = match finetune::best(&run)? {
            Some(Best { top1, epoch, last_top1, last_top5, last_epoch }) => json!({
                "top1": top1, "epoch": epoch, "last_top1": last_top1, "last_top5": last_top5, "last_epoch": last_epoch,
            }),
            None => Value::Null,
        };
        trainer.folder().write(RESULT_FILE, format!("{object:#}\n").as_bytes())?;
        Ok(object)
    }

    fn record(&self, results: Value) -> Value {
        let recipe = &self.config.recipe;
        let number = |text: &str| match text.parse::<u64>() {
            Ok(whole) => json!(whole),
            Err(_) => text.parse::<f64>().map_or(Value::Null, |number| json!(number)),
        };
        let mut settings: serde_json::Map<String, Value> =
            recipe.settings().iter().map(|setting| (setting.key.to_owned(), number(&setting.value))).collect();
        settings.insert("recipe".to_owned(), json!(recipe.kind.name()));
        settings.insert("input".to_owned(), json!(self.config.input));
        let sources = [("train", &*self.train), ("test", &*self.test)];
        let from = Provenance::of_network(&self.weights, &self.device.device, &self.args.data, &sources);
        record::object(FINETUNE, Value::Object(settings), &from, results)
    }

    /// Prints the result of a finished run.
    fn print(&self, result: &Value) -> Result<(), CliError> {
        let out = text::shown(&self.args.out).to_string();
        let own = &result[OWN];
        if self.args.json {
            let results = json!({
                "outcome": "finished", "run": out, "steps": result["steps"], "loss": result["loss"],
                "train_images": self.train.len(), "test_images": self.test.len(), "classes": self.config.classes,
                "top1": own["top1"], "best_epoch": own["epoch"], "last_top1": own["last_top1"], "last_top5": own["last_top5"],
            });
            return output::json(&self.record(results));
        }
        let number = |key: &str| own.get(key).and_then(Value::as_f64);
        let judged = count(self.test.len(), "held-out image");
        let epochs = count(self.config.recipe.epochs as usize, "epoch");
        let accuracies = match (number("top1"), number("epoch"), number("last_top1"), number("last_top5")) {
            (Some(top1), Some(epoch), Some(last), Some(last5)) => format!(
                "fine-tuned by the {} recipe, {epochs}; on {judged}:\n  best top-1   {top1:6.2} %  after epoch {epoch}\n  \
                 last top-1   {last:6.2} %\n  last top-5   {last5:6.2} %\n",
                self.config.recipe.kind.name()
            ),
            _ => format!("fine-tuned, {epochs}; no epoch could be judged: the lines above say why\n"),
        };
        let run = text::shell(&self.args.out.display().to_string());
        output::result(&format!(
            "{accuracies}\nweights   {run}/{BACKBONE_FILE} (after the last step, with the classifier, in timm's names)\n"
        ))
    }
}

/// Says now and then how many of the held-out images are judged. `told` is when that was said, or a pass began, and how many
/// were done then.
fn tell(console: &Console, told: &Cell<(Instant, usize)>, ReadProgress { done, total, .. }: ReadProgress) {
    let (last, before) = told.get();
    if done <= before {
        told.set((Instant::now(), done));
    } else if done < total && last.elapsed() >= TELL_EVERY {
        told.set((Instant::now(), done));
        console.say(&format!("judged {} of {} held-out images", text::thousands(done), text::thousands(total)));
    } else {
        told.set((last, done));
    }
}

/// What was given as settings.
fn given(args: &FinetuneArgs) -> Result<Vec<(String, String)>, CliError> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(ssl::recipe::RecipeError::NotAnAssignment { text: text.clone() }),
    };
    let mut given = args.set.iter().map(pair).collect::<Result<Vec<_>, ssl::recipe::RecipeError>>()?;
    // A flag of its own counts more.
    let flags = [("epochs", &args.epochs), ("batch_size", &args.batch_size), ("lr", &args.lr), ("seed", &args.seed)];
    given.extend(flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))));
    Ok(given)
}

/// Two folders whose classes differ would count them differently.
fn same_classes(train: &dyn Source, test: &dyn Source) -> Result<(), CliError> {
    let (ours, theirs) = (train.class_names(), test.class_names());
    let name = |names: &[String], class: usize| names.get(class).cloned().unwrap_or_else(|| "no class".to_owned());
    match (0..ours.len().max(theirs.len())).find(|&class| ours.get(class) != theirs.get(class)) {
        Some(class) => Err(CliError::OtherSplitClasses { class, train: name(ours, class), test: name(theirs, class) }),
        None => Ok(()),
    }
}

/// The result of a run that has nothing left to do.
fn finished(out: &Path, total: u64) -> Result<Option<Value>, CliError> {
    let run = RunReader::open(out)?;
    let Some(result) = run.result(total).filter(|result| run.has_backbone_of(result)) else { return Ok(None) };
    let mut object = result.to_json();
    let text = files::read_text_bounded(&out.join(RESULT_FILE), 1 << 20).unwrap_or_default();
    let saved: Value = serde_json::from_str(&text).unwrap_or_default();
    object[OWN] = saved.get(OWN).cloned().unwrap_or_default();
    Ok(Some(object))
}
