//! A run whose method says that it has collapsed: where it ends, also when it is stopped on the way, and what it leaves.

mod common;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use common::Silent;
use data::{Source, Split};
use model::{Layout, ParamSpec, VitConfig};
use ssl::health::{CollapseKind, Finding, Moment, Verdict};
use ssl::learner::LearnError;
use ssl::method::{self, Method, MethodSpec, Networks, StepPart};
use ssl::pretraining::{self, Extras, Pretraining};
use ssl::recipe::{Facts, RawRecipe, Recipe};
use ssl::view_plan::ViewPlan;
use tensor::{Device, ParamId, ParamSet};
use train::optimizer::Treatment;
use train::reduce::Reduce;
use train::run::{Record, RunFolder};
use train::state::{SavedState, State, StateError};
use train::{NoEvaluation, Outcome, Position, StepError, Trainer};

/// DINO, which claims to have collapsed in these steps.
#[derive(Debug)]
struct Claims<T> {
    inner: T,
    collapsed: Vec<Range<u64>>,
}

impl MethodSpec for Claims<Box<dyn MethodSpec>> {
    fn build(&self, layout: &mut Layout, vit: &VitConfig, device: &Device) -> Result<Box<dyn Method>, LearnError> {
        let inner = self.inner.build(layout, vit, device)?;
        Ok(Box::new(Claims { inner, collapsed: self.collapsed.clone() }))
    }

    fn views(&self) -> ViewPlan {
        self.inner.views()
    }

    fn output_values(&self, student_rows: usize, teacher_rows: usize) -> usize {
        self.inner.output_values(student_rows, teacher_rows)
    }
}

impl Method for Claims<Box<dyn Method>> {
    fn views(&self) -> &ViewPlan {
        self.inner.views()
    }

    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        self.inner.treatment(id, spec)
    }

    fn start_step(&mut self) {
        self.inner.start_step();
    }

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        self.inner.add_gradient(networks, part, reduce, gradient)
    }

    fn is_frozen(&self, at: Position) -> bool {
        self.inner.is_frozen(at)
    }

    fn end_step(&mut self, loss: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.inner.end_step(loss, reduce)
    }

    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        let (record, _) = self.inner.vitals(student, moment, record);
        let is_collapsed = self.collapsed.iter().any(|steps| steps.contains(&moment.step));
        let collapsed = || Finding {
            verdict: Verdict::Collapsed(CollapseKind::OnePrototype),
            words: Some("it has collapsed".to_owned()),
        };
        (record, if is_collapsed { collapsed() } else { Finding::default() })
    }

    fn schedules(&self, at: Position, record: Record) -> Record {
        self.inner.schedules(at, record)
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.inner.save(state);
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.inner.restore(saved)
    }
}

const IMAGES: usize = 24;

/// 600 steps, of which 60 are a tenth; a record every 7, a checkpoint after each step, of which two are kept.
fn recipe(more: &str) -> Recipe {
    let text = "arch = \"vit_nano\"\npatch_size = 8\nlocal_crops = 1\nout_dim = 16\nhead_hidden = 16\nhead_bottleneck = 16\n\
                epochs = 200\nbatch_size = 8\nknn_every = 0\nlog_every = 7\ncheckpoint_minutes = 0\n";
    let facts = Facts { images: IMAGES, height: 16, width: 16, labelled: false, fingerprint: 1 };
    RawRecipe::from_toml(&(text.to_owned() + more), "the test").unwrap().resolve(&facts).unwrap()
}

/// Trains until something ends it, or until as many steps are done as it is stopped after.
fn train(folder: &Path, recipe: &Recipe, collapsed: &[Range<u64>], stop_after: u64) -> (Trainer<Pretraining>, Outcome) {
    let device = Device::cpu(Default::default()).unwrap();
    let source: Arc<dyn Source> = data::open(&format!("synthetic:train={IMAGES},size=16"), Split::Train, 0).unwrap();
    let method = Claims { inner: method::of(recipe), collapsed: collapsed.to_vec() };
    let folder = RunFolder::open(folder, recipe).unwrap();
    let mut trainer =
        pretraining::open(&device, recipe, &method, folder, source, Extras::default(), &mut Silent).unwrap();
    let left = std::cell::Cell::new(stop_after.saturating_sub(trainer.step()));
    let stop = || left.replace(left.get().saturating_sub(1)) == 0;
    let outcome = trainer.run(&mut Silent, &mut NoEvaluation, &stop).unwrap();
    (trainer, outcome)
}

fn teacher(trainer: &Trainer<Pretraining>) -> Vec<u8> {
    trainer.trained().learner().teacher.iter().flat_map(|tensor| tensor.to_le_bytes().into_owned()).collect()
}

fn kept(trainer: &Trainer<Pretraining>) -> Vec<u64> {
    trainer.folder().checkpoints().list().unwrap().into_iter().map(|(step, _)| step).collect()
}

#[test]
fn a_collapse_that_lasts_ends_a_run_at_the_same_step_however_often_it_was_stopped() {
    let place = tempfile::tempdir().unwrap();
    let recipe = recipe("");
    // Too early to count, then one that passes, then one that does not. Records are at 322, 329, ... 385.
    let collapsed = [50..200, 301..310, 318..601];
    let (mut unbroken, outcome) = train(&place.path().join("unbroken"), &recipe, &collapsed, u64::MAX);
    assert_eq!(outcome, Outcome::Collapsed { step: 385, since: 322 });
    assert_eq!(kept(&unbroken), [385, 384, 321], "the newest from before stays, whatever the number to keep");

    let broken = place.path().join("broken");
    for stop_after in [100, 321, 330, 384] {
        let (trainer, outcome) = train(&broken, &recipe, &collapsed, stop_after);
        assert_eq!(outcome, Outcome::Stopped { step: stop_after });
        drop(trainer);
    }
    let (mut resumed, again) = train(&broken, &recipe, &collapsed, u64::MAX);
    assert_eq!((again, kept(&resumed)), (outcome, vec![385, 384, 321]));
    assert_eq!(teacher(&resumed), teacher(&unbroken));
    let lost = teacher(&unbroken);
    assert_eq!((unbroken.return_to_health().unwrap(), resumed.return_to_health().unwrap()), (Some(321), Some(321)));
    assert!(teacher(&unbroken) == teacher(&resumed) && teacher(&unbroken) != lost, "the weights of step 321");
    drop(resumed);

    // The same settings end it again at once; those that are to continue do so from where it is.
    assert_eq!(train(&broken, &recipe, &collapsed, u64::MAX).1, outcome);
    let on = recipe_that_continues();
    assert_eq!(train(&broken, &on, &collapsed, 400).1, Outcome::Stopped { step: 400 });
}

fn recipe_that_continues() -> Recipe {
    recipe("on_collapse = \"continue\"")
}
