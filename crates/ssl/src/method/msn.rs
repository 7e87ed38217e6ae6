//! MSN: a masked view of an image is assigned to the same prototypes as another view of it that the student never sees.
//!
//! Anchors are the views of the student: a random one with some of its patches left out, and focal ones, which are small
//! crops. The target is a view for the teacher alone. With unit vectors y and prototypes w, which are parameters of their own
//! and the same for both networks:
//!
//! ```text
//! p = softmax(<w, y> / tau),   t = softmax(<w, y_target> / (tau T)), scaled by Sinkhorn
//! loss = mean over anchors of -sum_k t_k ln p_k  +  lambda (ln K - H(mean over anchors of p))
//! ```
//!
//! T sharpens the targets, and the second term (me-max) wants all prototypes used. Prototypes have unit length; with
//! `prototypes = vmf` they have free ones, and both logits get the log-normaliser Delta(|w| / tau): MSN-vMF.
//!
//! Sinkhorn and me-max look at all images of a step. Where a step has several parts they are surveyed before the first
//! gradient, and several processes put together what they have seen.

use model::{Kept, Layout, ParamSpec, Projector, PrototypeLayer, Tokens, VitConfig, VitInput};
use random::{Key, Purpose};
use tensor::ops::{self, Logits};
use tensor::{Device, ParamId, ParamSet, Rows, Tensor};
use train::optimizer::{Clip, Treatment};
use train::reduce::{Peers, Reduce};
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::{NotFinite, Position, StepError};

use super::{Method, MethodSpec, Networks, StepPart, backward_backbone, of_all_processes};
use crate::health::{Finding, Health, Moment, Vitals};
use crate::learner::LearnError;
use crate::lengths::LengthOptions;
use crate::penalty::Penalty;
use crate::recipe::{Prototypes, Recipe};
use crate::setup::{head_config, loader_config};
use crate::sinkhorn::sinkhorn;
use crate::target::{Normalizer, log_of_mean};
use crate::view_plan::{Sight, ViewGroup, ViewPlan, Viewer};

/// What the names of the prototypes begin with.
const PROTOTYPES: &str = "prototypes";
/// What the names of the projector's parameters begin with.
const PROJECTOR: &str = "head.mlp";
/// Scalings of the targets.
const SINKHORN_ITERATIONS: usize = 3;

/// What [`Msn`] is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct MsnOptions {
    /// The views.
    pub views: ViewPlan,
    /// The head and the number of its prototypes.
    pub head: model::HeadConfig,
    /// Whether prototypes have unit length, or are vMF components.
    pub prototypes: Prototypes,
    /// Temperature tau of both networks.
    pub temperature: f64,
    /// T, by which the targets are sharpened.
    pub sharpening: f64,
    /// Whether the targets of a step are scaled to use all prototypes equally.
    pub sinkhorn: bool,
    /// lambda of me-max.
    pub me_max_weight: f64,
    /// Weight of KoLeo on the prototypes; none where it is zero.
    pub koleo_weight: f64,
    /// How the prototypes' lengths begin and learn, where they are vMF components.
    pub lengths: LengthOptions,
    /// Patches of a global view.
    pub patches: usize,
    /// Share of the random anchor's that are left out.
    pub patch_drop: f64,
    /// Seed of what is left out.
    pub seed: u64,
}

impl MsnOptions {
    /// Those of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let (views, patch) = (loader_config(recipe).views, recipe.patch_size());
        let global = ViewGroup { size: views.global_size, sights: vec![Sight::Teacher, Sight::Student] };
        let focal = ViewGroup { size: views.local_size, sights: vec![Sight::Student; views.local_crops] };
        Self {
            views: ViewPlan::new(vec![global, focal], recipe.channels()),
            head: head_config(recipe),
            prototypes: recipe.prototypes(),
            temperature: recipe.student_temp(),
            sharpening: recipe.sharpening(),
            sinkhorn: recipe.sinkhorn(),
            me_max_weight: recipe.me_max_weight(),
            koleo_weight: recipe.koleo_weight(),
            lengths: LengthOptions::of(recipe),
            patches: (views.global_size.0 / patch) * (views.global_size.1 / patch),
            patch_drop: recipe.patch_drop(),
            seed: recipe.seed(),
        }
    }

    /// The patches that the random anchor of each image keeps, in ascending order.
    pub fn draw_kept(&self, keys: &[u64], epoch: u64) -> Vec<Vec<usize>> {
        let patches = self.patches;
        let key = Key::new(self.seed, Purpose::Keep).epoch(epoch);
        let count = (patches as f64 * (1.0 - self.patch_drop)) as usize;
        let of_image = |&sample: &u64| {
            let mut order: Vec<usize> = (0..patches).collect();
            key.sample(sample).stream().shuffle(&mut order);
            order.truncate(count);
            order.sort_unstable();
            order
        };
        keys.iter().map(of_image).collect()
    }
}

impl MethodSpec for MsnOptions {
    fn build(&self, layout: &mut Layout, _: &VitConfig, device: &Device) -> Result<Box<dyn Method>, LearnError> {
        Ok(Box::new(Msn::new(layout, device, self.clone())?))
    }

    fn views(&self) -> ViewPlan {
        self.views.clone()
    }

    fn hidden_patches(&self, sample: u64, epoch: u64) -> Vec<Vec<usize>> {
        let patches = self.patches;
        let kept = self.draw_kept(&[sample], epoch).swap_remove(0);
        // The first view is the target's, the second one the random anchor's.
        vec![Vec::new(), (0..patches).filter(|patch| !kept.contains(patch)).collect()]
    }

    fn output_values(&self, student_rows: usize, teacher_rows: usize) -> usize {
        // Of the student logits and what me-max adds to their gradient, of the teacher logits and targets.
        2 * (student_rows + teacher_rows) * self.head.prototypes
    }
}

/// The method.
#[derive(Debug)]
pub struct Msn {
    options: MsnOptions,
    projector: Projector,
    prototypes: PrototypeLayer,
    normalizer: Normalizer,
    penalty: Penalty,
    health: Health,
    /// What has been seen of the parts of a step, by the first image of each.
    seen: Vec<Seen>,
    /// What is known of the whole step, once everything has been seen.
    known: Option<Known>,
    step: MsnReport,
}

/// What Sinkhorn and me-max need of some images.
#[derive(Debug)]
struct Seen {
    first_image: usize,
    /// t before Sinkhorn, a row for each image.
    targets: Vec<f64>,
    /// ln of the mean over anchors of p; still where it was computed.
    log_mean: Tensor,
}

/// The same of all images of a step.
#[derive(Clone, Debug)]
struct Known {
    /// t, a row for each image of this process.
    targets: Vec<f64>,
    /// ln of the mean over all anchors of p.
    log_mean: Vec<f64>,
}

/// What a step says.
#[derive(Clone, Debug, Default, PartialEq)]
struct MsnReport {
    cross_entropy: f64,
    me_max: f64,
    teacher_entropy: f64,
    assignments: Vec<usize>,
}

/// The student's side of some images.
struct Anchors {
    projected: model::Projected,
    logits: Logits,
    delta: Option<(Tensor, Tensor)>,
}

impl Msn {
    /// Adds the parameters of the projector and the prototypes to a layout.
    pub fn new(layout: &mut Layout, device: &Device, options: MsnOptions) -> Result<Self, vmf::Error> {
        let projector = Projector::new(layout, PROJECTOR, &options.head.projector());
        let (count, p) = (options.head.prototypes, options.head.bottleneck);
        let prototypes = PrototypeLayer::new(layout, PROTOTYPES, count, p);
        options.lengths.begin(layout, &prototypes);
        let normalizer = Normalizer::new(device, options.prototypes, count, p)?;
        let penalty = Penalty::new(options.koleo_weight, &options.lengths);
        let (health, step) = (Health::default(), MsnReport::default());
        Ok(Self { options, projector, prototypes, normalizer, penalty, health, seen: Vec::new(), known: None, step })
    }

    /// What it is made from.
    pub fn options(&self) -> &MsnOptions {
        &self.options
    }

    /// Cross-entropy and me-max of the last step.
    pub fn losses(&self) -> (f64, f64) {
        (self.step.cross_entropy, self.step.me_max)
    }

    /// The prototypes.
    pub fn prototypes(&self) -> &PrototypeLayer {
        &self.prototypes
    }

    fn anchors(&self) -> usize {
        self.options.views.seen_by(Viewer::Student).len()
    }

    /// The student's logits of a part's anchors, of whose random one these patches are kept.
    fn anchor_logits(
        &self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        kept: &[Vec<usize>],
        peers: &mut dyn Peers,
    ) -> Result<(Anchors, model::VitSaved), StepError> {
        let Networks { device, vit, student, .. } = *networks;
        let views = part.views.seen_by(Viewer::Student);
        let patch = vit.config().patch;
        let of_images = views.iter().flat_map(|group| std::iter::repeat_n(group.patches(patch), group.count));
        let whole = |(row, patches)| (patches, kept.get(row).map(Vec::as_slice));
        let tokens = Kept::new(vit.config().leading_tokens(), of_images.enumerate().map(whole));
        let input = VitInput { drop_path: part.drop_path, kept: Some(&tokens), ..VitInput::images(&views) };
        let (features, saved) = vit.forward(student, device, &input, Tokens::Class)?;
        let projected = self.projector.forward(student, features, peers)?;
        let logits = self.prototypes.logits(student, &projected.y);
        let delta = self.normalizer.at(&student[self.prototypes.magnitude()], self.options.temperature);
        Ok((Anchors { projected, logits, delta }, saved))
    }

    /// The targets of a part before Sinkhorn, a row for each image.
    fn sharpened_targets(
        &self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        peers: &mut dyn Peers,
    ) -> Result<Vec<f64>, StepError> {
        let Networks { device, vit, student, teacher } = *networks;
        let features = vit.features(teacher, device, &part.views.seen_by(Viewer::Teacher))?;
        let y = self.projector.infer_with(teacher, &features, peers)?;
        // The student's prototypes: they are parameters of the loss rather than of a network.
        let raw = self.prototypes.logits(student, &y).raw;
        let MsnOptions { temperature, sharpening, .. } = self.options;
        let delta = self.normalizer.at(&student[self.prototypes.magnitude()], temperature);
        let shift = self.normalizer.shift(&delta);
        let sharpened = ops::add_scaled(shift, 1.0 / sharpening - 1.0, shift);
        Ok(ops::softmax(&raw, 1.0 / (temperature * sharpening), &sharpened).to_f64())
    }

    /// What the rest of a step has to know of a part, and the part's anchors.
    fn look_at(
        &self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        kept: &[Vec<usize>],
        peers: &mut dyn Peers,
    ) -> Result<(Seen, Anchors, model::VitSaved), StepError> {
        // The targets first: a GPU computes the anchors while the host scales the targets.
        let targets = self.sharpened_targets(networks, part, peers)?;
        let (anchors, saved) = self.anchor_logits(networks, part, kept, peers)?;
        let shift = self.normalizer.shift(&anchors.delta);
        let log_mean = ops::log_mean_softmax(&anchors.logits.raw, 1.0 / self.options.temperature, shift);
        Ok((Seen { first_image: part.views.first_image(), targets, log_mean }, anchors, saved))
    }

    /// Puts together what was seen, in all processes.
    fn put_together(&mut self, reduce: &mut dyn Reduce) -> Result<Known, StepError> {
        let columns = self.options.head.prototypes;
        let mut seen = std::mem::take(&mut self.seen);
        seen.sort_by_key(|seen| seen.first_image);
        let mut targets: Vec<f64> = seen.iter().flat_map(|seen| seen.targets.iter().copied()).collect();
        let (mine, alone) = (targets.len() / columns, reduce.ranks() == 1);
        if alone {
            check_finite(&targets)?;
            if self.options.sinkhorn {
                sinkhorn(&mut targets, columns, SINKHORN_ITERATIONS);
            }
        }
        let of_part = |s: &Seen| ((s.targets.len() / columns) as f64, s.log_mean.to_f64());
        let means: Vec<(f64, Vec<f64>)> = seen.iter().map(of_part).collect();
        let mut log_mean = log_of_mean(&means.iter().map(|(images, mean)| (*images, &mean[..])).collect::<Vec<_>>());
        if alone {
            check_finite(&log_mean)?;
        } else {
            let sent: Vec<f64> = log_mean.iter().chain(&targets).copied().collect();
            let everywhere = reduce.gather(&sent)?;
            check_finite(everywhere.iter().flatten())?;
            let rows = |rank: &Vec<f64>| ((rank.len() - columns) / columns) as f64;
            let means: Vec<(f64, &[f64])> = everywhere.iter().map(|rank| (rows(rank), &rank[..columns])).collect();
            log_mean = log_of_mean(&means);
            if self.options.sinkhorn {
                let before: usize = everywhere[..reduce.rank()].iter().map(|rank| rank.len() - columns).sum();
                let mut all: Vec<f64> = everywhere.iter().flat_map(|rank| rank[columns..].iter().copied()).collect();
                sinkhorn(&mut all, columns, SINKHORN_ITERATIONS);
                targets = all[before..before + mine * columns].to_vec();
            }
        }
        self.step.me_max = (columns as f64).ln() + log_mean.iter().map(|u| u * u.exp()).sum::<f64>();
        Ok(Known { targets, log_mean })
    }

    /// [`Method::add_gradient`] with these patches kept of each image's random anchor.
    pub fn add_gradient_kept(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        kept: &[Vec<usize>],
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let (known, anchors, saved) = match self.known.take() {
            Some(known) => {
                let (anchors, saved) = self.anchor_logits(networks, part, kept, reduce)?;
                (known, anchors, saved)
            }
            None => {
                let (seen, anchors, saved) = self.look_at(networks, part, kept, reduce)?;
                self.seen.push(seen);
                (self.put_together(reduce)?, anchors, saved)
            }
        };
        let Known { targets, log_mean } = &*self.known.insert(known);
        let (device, columns) = (networks.device, self.options.head.prototypes);
        let (images, first) = (part.views.images(), part.views.first_image());
        let own = &targets[first * columns..(first + images) * columns];
        let targets = device.exact_from_f64(&[images, columns], own);
        let slope = device.exact_from_f64(&[columns], log_mean);
        let all = (part.step_images * self.anchors()) as f64;

        let Anchors { projected, mut logits, delta } = anchors;
        let (scale, rows) = (1.0 / self.options.temperature, logits.raw.rows());
        let shift = self.normalizer.shift(&delta);
        let weight = self.options.me_max_weight / all;
        let of_me_max = ops::softmax_gradient(&logits.raw, scale, shift, &slope, weight);
        let targets_of: Vec<Vec<usize>> = (0..rows).map(|row| vec![row % images]).collect();
        let weights = vec![1.0 / all; rows];
        let losses = ops::cross_entropy(&mut logits.raw, scale, shift, &targets, &targets_of, &weights);
        // Here, where the host waits in any case, and not behind the backward pass.
        let summaries = ops::row_summaries(&targets);
        ops::scatter_add(&of_me_max, &Rows::one_each(rows), 1.0, &mut logits.raw);
        let cross_entropy = losses.iter().sum::<f64>() / all;
        if !cross_entropy.is_finite() {
            return Err(NotFinite { term: "the student's logits".into() }.into());
        }
        logits.hold_gradient_of_scaled(scale);
        if let Some((_, slope)) = &delta {
            ops::add_shift_gradient(&logits.raw, slope, &mut gradient[self.prototypes.magnitude()]);
        }
        let student = networks.student;
        let dy = self.prototypes.backward(student, &projected.y, logits, gradient);
        let d_features = self.projector.backward(student, projected, &dy, gradient, reduce)?;
        let penalty = self.penalty.add_gradient(&self.prototypes, student, part.share(), gradient);
        let heads = networks.vit.parameters().end..gradient.len();
        backward_backbone(networks, part, (saved, &d_features), heads, reduce, gradient)?;

        let share = part.share();
        let entropy = summaries.iter().map(|(entropy, _)| entropy).sum::<f64>() / images as f64;
        self.step.teacher_entropy += share * entropy;
        self.step.assignments.extend(summaries.into_iter().map(|(_, best)| best));
        self.step.cross_entropy += cross_entropy;
        // The shares of the parts add up to the loss; me-max is of all of them together.
        Ok(cross_entropy + share * self.options.me_max_weight * self.step.me_max + penalty)
    }
}

/// Refuses numbers that are not finite. All processes see the same ones, and stop together.
fn check_finite<'a>(numbers: impl IntoIterator<Item = &'a f64>) -> Result<(), NotFinite> {
    let term = "the targets or the student's logits".to_owned();
    if numbers.into_iter().all(|x| x.is_finite()) { Ok(()) } else { Err(NotFinite { term }) }
}

impl Method for Msn {
    fn views(&self) -> &ViewPlan {
        &self.options.views
    }

    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        let usual = Treatment { clip: Clip::ByGlobalNorm, ..Treatment::usual(spec) };
        let is_length = id == self.prototypes.magnitude();
        if is_length || id == self.prototypes.direction() {
            let trained = !is_length || self.options.prototypes == Prototypes::Vmf;
            let usual = Treatment { trained, decays: false, clip: Clip::No, followed: false, ..usual };
            return if is_length { self.options.lengths.treatment(usual) } else { usual };
        }
        usual
    }

    fn start_step(&mut self) {
        (self.seen, self.known, self.step) = (Vec::new(), None, MsnReport::default());
        self.penalty.start_step();
    }

    fn surveys(&self) -> bool {
        true
    }

    fn survey(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
    ) -> Result<(), StepError> {
        let kept = self.options.draw_kept(part.keys, part.at.epoch);
        let (seen, ..) = self.look_at(networks, part, &kept, reduce)?;
        self.seen.push(seen);
        Ok(())
    }

    fn end_survey(&mut self, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        self.known = Some(self.put_together(reduce)?);
        Ok(())
    }

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let kept = self.options.draw_kept(part.keys, part.at.epoch);
        self.add_gradient_kept(networks, part, &kept, reduce, gradient)
    }

    fn end_step(&mut self, _: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        let MsnReport { cross_entropy, teacher_entropy, .. } = self.step;
        let everywhere = reduce.gather(&[cross_entropy, teacher_entropy])?;
        let sum = |i: usize| everywhere.iter().map(|rank| rank[i]).sum::<f64>();
        (self.step.cross_entropy, self.step.teacher_entropy) = (sum(0), sum(1));
        self.step.assignments = of_all_processes(std::mem::take(&mut self.step.assignments), reduce)?;
        self.health.observe(&self.step.assignments);
        self.known = None;
        Ok(())
    }

    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        let MsnReport { cross_entropy, me_max, teacher_entropy, .. } = self.step;
        let magnitude = &student[self.prototypes.magnitude()];
        let vitals = self.health.vitals(cross_entropy, teacher_entropy, magnitude, self.options.temperature);
        let total = cross_entropy + self.options.me_max_weight * me_max + self.penalty.loss();
        let found = moment.judge(&vitals);
        let record = Vitals { loss: total, ..vitals }.add_to(record);
        let record = record.number("class_loss", cross_entropy).number("me_max", me_max);
        (self.penalty.add_to(record, ""), found)
    }

    fn schedules(&self, _: Position, record: Record) -> Record {
        record
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        state.value("assignments", self.health.assignments().collect::<Vec<u32>>());
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.health = Health::restore(saved.all_numbers("assignments")?.into_iter().map(|k| k as u32));
        Ok(())
    }
}
