//! A method that nobody will ship, in one file against the public trait: the loss is the mean squared distance of student
//! and teacher features. It is trained by the loop that trains all methods, killed in the middle, and goes on to the bits
//! of an unbroken run.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::Silent;
use data::views::MultiCrop;
use data::{Source, Split};
use model::{Layout, Tokens, VitConfig, VitInput};
use ssl::health::{Finding, Moment};
use ssl::learner::LearnError;
use ssl::method::{Method, MethodSpec, Networks, StepPart};
use ssl::pretraining::{self, Extras};
use ssl::recipe::{Facts, RawRecipe, Recipe};
use ssl::setup::loader_config;
use ssl::view_plan::{Sight, ViewGroup, ViewPlan, Viewer};
use tensor::{Device, ParamSet};
use train::reduce::Reduce;
use train::run::{Record, RunFolder, RunReader};
use train::state::{SavedState, State, StateError};
use train::{NoEvaluation, NotFinite, Outcome, Position, StepError};

/// The student sees the first global view and all local ones, the teacher the second: each student row is drawn to the
/// teacher's row of its image.
#[derive(Clone, Debug)]
struct FeatureDistance {
    views: ViewPlan,
}

impl FeatureDistance {
    fn of(recipe: &Recipe) -> Self {
        let MultiCrop { global_size, local_size, local_crops, .. } = loader_config(recipe).views;
        let globals = ViewGroup { size: global_size, sights: vec![Sight::Student, Sight::Teacher] };
        let locals = ViewGroup { size: local_size, sights: vec![Sight::Student; local_crops] };
        Self { views: ViewPlan::new(vec![globals, locals], 3) }
    }
}

impl MethodSpec for FeatureDistance {
    fn build(&self, _: &mut Layout, _: &VitConfig, _: &Device) -> Result<Box<dyn Method>, LearnError> {
        Ok(Box::new(Distance { views: self.views.clone(), loss: 0.0, steps: 0 }))
    }

    fn views(&self) -> ViewPlan {
        self.views.clone()
    }

    fn output_values(&self, _: usize, _: usize) -> usize {
        0
    }
}

#[derive(Debug)]
struct Distance {
    views: ViewPlan,
    loss: f64,
    /// Steps taken: a value of the method's own in the checkpoint.
    steps: u64,
}

impl Method for Distance {
    fn views(&self) -> &ViewPlan {
        &self.views
    }

    fn start_step(&mut self) {}

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        _: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let Networks { device, vit, student, teacher } = *networks;
        let targets = vit.features(teacher, device, &part.views.seen_by(Viewer::Teacher))?;
        let images = part.views.seen_by(Viewer::Student);
        let input = VitInput { drop_path: part.drop_path, ..VitInput::images(&images) };
        let (features, saved) = vit.forward(student, device, &input, Tokens::Class)?;
        let (rows, dim) = (features.rows(), features.columns());
        let weight = 1.0 / (part.step_images * rows / part.views.images() * dim) as f64;
        let (y, t) = (features.to_f64(), targets.to_f64());
        let target_of = |i: usize| t[(i / dim % part.views.images()) * dim + i % dim];
        let difference: Vec<f64> = y.iter().enumerate().map(|(i, y)| y - target_of(i)).collect();
        let loss = difference.iter().map(|d| d * d).sum::<f64>() * weight;
        if !loss.is_finite() {
            return Err(NotFinite { term: "the distance".into() }.into());
        }
        let d_features: Vec<f64> = difference.iter().map(|d| 2.0 * weight * d).collect();
        vit.backward(student, saved, &device.from_f64(features.shape(), &d_features), gradient);
        Ok(loss)
    }

    fn end_step(&mut self, loss: f64, _: &mut dyn Reduce) -> Result<(), StepError> {
        self.loss = loss;
        self.steps += 1;
        Ok(())
    }

    fn vitals(&self, _: &ParamSet, _: &Moment, record: Record) -> (Record, Finding) {
        (record.number("loss", self.loss).whole("steps_of_method", self.steps as i64), Finding::default())
    }

    fn schedules(&self, _: Position, record: Record) -> Record {
        record
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        state.value("steps_of_method", self.steps);
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.steps = saved.number("steps_of_method")?;
        Ok(())
    }
}

const IMAGES: usize = 96;

fn recipe() -> Recipe {
    let text = "arch = \"vit_nano\"\npatch_size = 8\nglobal_size = 32\nlocal_size = 16\nlocal_crops = 2\nepochs = 10\n\
                batch_size = 8\nknn_every = 0\nlog_every = 1\ncheckpoint_minutes = 0\nlr = 1e-3\ndrop_path = 0.1";
    let facts = Facts { images: IMAGES, height: 32, width: 32, labelled: false, fingerprint: 1 };
    RawRecipe::from_toml(text, "the test").unwrap().resolve(&facts).unwrap()
}

/// Trains into a folder to the end.
fn train(folder: &Path) -> (u64, Vec<u8>) {
    let (recipe, device) = (recipe(), Device::cpu(Default::default()).unwrap());
    let source: Arc<dyn Source> = data::open(&format!("synthetic:train={IMAGES},size=32"), Split::Train, 0).unwrap();
    let method = FeatureDistance::of(&recipe);
    let folder = RunFolder::open(folder, &recipe).unwrap();
    let mut trainer =
        pretraining::open(&device, &recipe, &method, folder, source, Extras::default(), &mut Silent).unwrap();
    let first = trainer.step();
    assert_eq!(trainer.run(&mut Silent, &mut NoEvaluation, &|| false).unwrap(), Outcome::Finished);
    let weights = trainer.trained().learner().student.iter().flat_map(|t| t.to_le_bytes().into_owned()).collect();
    (first, weights)
}

/// The other half of the test below: trains in a process that is killed. Does nothing unless asked to.
#[test]
fn child() {
    if let Some(folder) = std::env::var_os("OWN_METHOD_FOLDER") {
        train(Path::new(&folder));
    }
}

#[test]
fn a_method_in_one_file_learns_and_survives_a_kill_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, unbroken) = (folder.path().join("broken"), folder.path().join("unbroken"));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("OWN_METHOD_FOLDER", &broken)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let steps = || RunReader::open(&broken).and_then(|run| run.checkpoints()).ok()?.first().map(|&(step, _)| step);
    while steps().is_none_or(|step| step < 30) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let (resumed_at, weights) = train(&broken);
    assert!((30..120).contains(&resumed_at), "killed after step {resumed_at}");
    let (began_at, expected) = train(&unbroken);
    assert_eq!(began_at, 0);
    assert!(weights == expected, "the weights of a run that was killed are those of an unbroken one");

    let log = |run: &Path| -> Vec<(u64, f64, u64)> {
        let records = RunReader::open(run).unwrap().metrics().unwrap();
        let number = |r: &serde_json::Value, key: &str| r[key].as_u64().unwrap();
        let row =
            |r: &serde_json::Value| (number(r, "step"), r["loss"].as_f64().unwrap(), number(r, "steps_of_method"));
        records.iter().map(row).collect()
    };
    let losses = log(&broken);
    assert_eq!(losses, log(&unbroken));
    assert!(losses.iter().all(|(step, _, of_method)| step == of_method), "the method's own state was resumed");
    let mean = |part: &[(u64, f64, u64)]| part.iter().map(|(_, loss, _)| loss).sum::<f64>() / part.len() as f64;
    let (first, last) = (mean(&losses[..24]), mean(&losses[losses.len() - 24..]));
    assert!(last < 0.5 * first, "the distance fell from {first:.4} to {last:.4}");
}
