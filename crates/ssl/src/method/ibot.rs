//! iBOT: DINO on class tokens, and the same self-distillation on patches that the student does not see.
//!
//! The student sees the global views with some patches masked, and the local ones whole. Its class tokens are trained as
//! DINO's are ([`Dino`]); each masked patch is compared with the teacher's token of the same patch, which the teacher has
//! seen:
//!
//! ```text
//! loss = lambda_1 class + lambda_2 patch
//! patch = mean over images and global views of 1 / max(1, masked) sum over masked patches of -sum_k q_k ln p_k
//! ```
//!
//! Patches have a centre and a temperature of their own, and prototypes of their own unless the head is shared. Both of the
//! paper's switches apply to both kinds of token: with vMF prototypes this is iBOT-vMF.

use std::ops::Range;

use model::{Kept, Layout, Masked, ParamSpec, PrototypeLayer, Readout, Tokens, VitConfig, VitInput};
use random::{Key, Purpose};
use tensor::{Device, ParamId, ParamSet, Rows, Tensor, ops};
use train::curve::Curve;
use train::optimizer::Treatment;
use train::reduce::{Peers, Reduce};
use train::run::Record;
use train::state::{SavedState, State, StateError};
use train::{Position, StepError};

use super::dino::{Dino, DinoOptions};
use super::{Method, MethodSpec, Networks, StepPart, backward_backbone, of_all_processes};
use crate::health::{Finding, Health, Moment};
use crate::learner::LearnError;
use crate::loss::{Terms, TokenLoss};
use crate::mask::{GridSize, MaskOptions, Masks};
use crate::penalty::Penalty;
use crate::recipe::Recipe;
use crate::target::Side;
use crate::view_plan::{ViewPlan, Viewer};

/// What stands for a masked patch.
const MASK_TOKEN: &str = "mask_token";
/// Prototypes of patches, where they have their own.
const PATCH_PROTOTYPES: &str = "head.last_layer2";
/// The patches' centre in a checkpoint.
const PATCH_CENTER: &str = "patch_center";
/// The first choices of patches in a checkpoint.
const PATCH_ASSIGNMENTS: &str = "patch_assignments";
/// Values of the teacher's logits that are made at once: patches are many, and go through the prototypes in pieces.
const TEACHER_LOGITS_AT_ONCE: usize = 1 << 26;
/// The same while everything is held that the student's backward pass needs.
const LOGITS_AT_ONCE: usize = 1 << 25;

/// What [`Ibot`] is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct IbotOptions {
    /// Views, head, and what class tokens need.
    pub class: DinoOptions,
    /// Rows and columns of patches of a global view.
    pub grid: GridSize,
    /// How many prototypes patches have of their own; none where they share those of the class tokens.
    pub own_prototypes: Option<usize>,
    /// Temperature of the teacher's patches, by epoch.
    pub patch_temperature: Curve,
    /// First epoch that this temperature is counted from.
    pub patch_temperature_from: u64,
    /// How masks are drawn.
    pub masks: MaskOptions,
    /// Seed of the masks.
    pub seed: u64,
    /// lambda_1.
    pub class_weight: f64,
    /// lambda_2.
    pub patch_weight: f64,
}

impl IbotOptions {
    /// Those of a recipe.
    pub fn of(recipe: &Recipe) -> Self {
        let (size, patch) = (recipe.global_size(), recipe.patch_size());
        Self {
            class: DinoOptions::of(recipe),
            grid: (size.height / patch, size.width / patch),
            own_prototypes: (!recipe.shared_head()).then(|| recipe.patch_out_dim()),
            patch_temperature: Curve::Ramp {
                from: recipe.warmup_teacher_patch_temp(),
                to: recipe.teacher_patch_temp(),
                points: recipe.warmup_teacher_temp_epochs() as u64,
            },
            patch_temperature_from: recipe.mask_start_epoch() as u64,
            masks: MaskOptions {
                shape: recipe.mask_shape(),
                masked_views: recipe.masked_views(),
                ratio: recipe.mask_ratio(),
                first_epoch: recipe.mask_start_epoch() as u64,
            },
            seed: recipe.seed(),
            class_weight: recipe.class_loss_weight(),
            patch_weight: recipe.patch_loss_weight(),
        }
    }

    /// The masks of some images of an epoch, each drawn from the key of its image and view.
    pub fn draw_masks(&self, keys: &[u64], epoch: u64) -> Masks {
        let key = Key::new(self.seed, Purpose::Mask).epoch(epoch);
        let views = self.class.views.seen_by(Viewer::Teacher);
        let of_view = |&view: &usize| {
            let drawn = move |&sample: &u64| self.masks.draw(key.sample(sample).view(view as u32), epoch, self.grid);
            keys.iter().map(drawn)
        };
        Masks { of_views: views.iter().flat_map(of_view).collect() }
    }

    fn patches(&self) -> usize {
        self.grid.0 * self.grid.1
    }

    fn patch_prototypes(&self) -> usize {
        self.own_prototypes.unwrap_or(self.class.head.prototypes)
    }

    /// Means over the patches of each view, which stand for them where a centre is linear in them: the logits of all patches
    /// are a large matrix. Of very many views some are taken together.
    fn means_of_patches(&self, patches: &Tensor) -> Tensor {
        let views = patches.rows() / self.patches();
        let least = views.div_ceil(ops::MOST_PARTS).max(1);
        let together = (least..=views).find(|together| views.is_multiple_of(*together)).unwrap_or(1);
        ops::row_means(patches, views / together)
    }
}

impl MethodSpec for IbotOptions {
    fn build(&self, layout: &mut Layout, vit: &VitConfig, device: &Device) -> Result<Box<dyn Method>, LearnError> {
        Ok(Box::new(Ibot::new(layout, vit, device, self.clone())?))
    }

    fn views(&self) -> ViewPlan {
        self.class.views()
    }

    fn reads(&self) -> Tokens {
        Tokens::All
    }

    fn hidden_patches(&self, sample: u64, epoch: u64) -> Vec<Vec<usize>> {
        self.draw_masks(&[sample], epoch).of_views
    }

    fn output_values(&self, student_rows: usize, teacher_rows: usize) -> usize {
        let all = teacher_rows * self.patches();
        let masked = (self.masks.ratio.high * all as f64) as usize;
        let at_once = |values| piece_rows(values, self.patch_prototypes());
        // A centre of logits is made from the means of each view.
        let observed = if self.class.target.observes_linearly() { teacher_rows } else { all };
        let (observed, piece) = (observed.min(at_once(TEACHER_LOGITS_AT_ONCE)), masked.min(at_once(LOGITS_AT_ONCE)));
        let hidden = all * (2 * self.class.head.hidden + self.class.head.bottleneck);
        // Of the teacher logits and targets, of the student logits, and what its projector keeps of masked patches.
        let patches = hidden.max(piece * (3 * self.patch_prototypes() + 5 * self.class.head.hidden));
        // What the centre is made from is of another size, and its memory is no use for the rest.
        self.class.output_values(student_rows, teacher_rows) + patches + observed * self.patch_prototypes()
    }
}

/// The method.
#[derive(Debug)]
pub struct Ibot {
    options: IbotOptions,
    class: Dino,
    mask_token: ParamId,
    /// Those of patches, where they have their own.
    own_prototypes: Option<PrototypeLayer>,
    loss: TokenLoss,
    /// Of prototypes of patches, where they have their own.
    penalty: Penalty,
    health: Health,
    /// The step that is under way, and after it the last one.
    step: PatchReport,
}

/// What a step says of patches.
#[derive(Clone, Debug, Default, PartialEq)]
struct PatchReport {
    class_loss: f64,
    loss: f64,
    /// Sum of the entropies of all targets, and how many these are.
    entropies: f64,
    targets: f64,
    masked: f64,
    assignments: Vec<usize>,
}

impl PatchReport {
    fn teacher_entropy(&self) -> f64 {
        self.entropies / self.targets.max(1.0)
    }
}

/// Rows whose logits over so many prototypes have so many values.
fn piece_rows(values: usize, prototypes: usize) -> usize {
    (values / prototypes).max(1)
}

/// All rows of some images but the first ones of each.
fn patch_rows(images: &Rows, leading: usize) -> Vec<usize> {
    let of_image = |image| images.start(image) + leading..images.start(image) + images.segment_len(image);
    (0..images.segments()).flat_map(of_image).collect()
}

/// Neighbouring pieces of `count` rows.
fn pieces(count: usize, at_once: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(at_once).map(move |first| first..count.min(first + at_once))
}

impl Ibot {
    /// Adds the parameters of the head, of patch prototypes and of the mask token to a layout.
    pub fn new(
        layout: &mut Layout,
        vit: &VitConfig,
        device: &Device,
        options: IbotOptions,
    ) -> Result<Self, vmf::Error> {
        let class = Dino::new(layout, device, options.class.clone())?;
        let p = options.class.head.bottleneck;
        let own_prototypes = options.own_prototypes.map(|count| {
            let own = PrototypeLayer::new(layout, PATCH_PROTOTYPES, count, p);
            options.class.lengths.begin(layout, &own);
            own
        });
        let mask_token = layout.add(MASK_TOKEN, &[1, vit.dim], model::Init::Constant(0.0));
        let DinoOptions { target, student_temperature, .. } = options.class;
        let loss = TokenLoss::new(device, options.patch_prototypes(), p, target, student_temperature)?;
        let (health, step) = (Health::default(), PatchReport::default());
        let penalty = Penalty::new(options.class.koleo_weight, &options.class.lengths);
        Ok(Self { options, class, mask_token, own_prototypes, loss, penalty, health, step })
    }

    /// What it is made from.
    pub fn options(&self) -> &IbotOptions {
        &self.options
    }

    /// The centre of class tokens, and that of patches.
    pub fn centers(&self) -> (&Tensor, &Tensor) {
        (self.class.loss().target().center(), self.loss.target().center())
    }

    /// Mean loss of class tokens and of masked patches in the last step.
    pub fn losses(&self) -> (f64, f64) {
        (self.step.class_loss, self.step.loss)
    }

    fn prototypes(&self) -> &PrototypeLayer {
        self.own_prototypes.as_ref().unwrap_or(&self.class.head().prototypes)
    }

    fn patch_temperature(&self, at: Position) -> f64 {
        self.options.patch_temperature.at(at.epoch.saturating_sub(self.options.patch_temperature_from))
    }

    /// As many masked patches as there can be.
    fn largest_masks(&self, images: usize) -> Masks {
        let views = self.options.class.views.seen_by(Viewer::Teacher).len();
        let most = (self.options.masks.ratio.high * self.options.patches() as f64) as usize;
        Masks { of_views: vec![(0..most).collect(); views * images] }
    }

    /// [`Method::add_gradient`] with these masks.
    pub fn add_gradient_masked(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        masks: &Masks,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let Networks { device, vit, student, teacher } = *networks;
        let readout = Readout { tokens: Tokens::All, ..Readout::default() };
        let mut seen = vit.read(teacher, device, &part.views.seen_by(Viewer::Teacher), &readout)?;
        let seen = seen.swap_remove(0);
        let (views, patches) = (masks.of_views.len(), self.options.patches());
        let leading = vit.config().leading_tokens();
        let of_views = Rows::all(std::iter::repeat_n(leading + patches, views));
        let class_targets = ops::gather(&seen, &of_views.first_of_each(), 1.0);
        let projector = &self.class.head().projector;
        let of_patches = ops::gather(&seen, &of_views.all_but_first(leading), 1.0);
        let targets = projector.infer_with(teacher, &of_patches, reduce)?;
        drop(of_patches);
        drop(seen);
        self.observe_patches(teacher, &targets, part.at);

        let images = part.views.seen_by(Viewer::Student);
        let of_images = images.iter().flat_map(|g| std::iter::repeat_n(g.patches(vit.config().patch), g.count));
        let all_patches: usize = of_images.clone().sum();
        let masked = Rows::some(all_patches, &masks.rows(patches));
        let masked = (masks.count() > 0).then_some(Masked { patches: &masked, token: self.mask_token });
        let input = VitInput { drop_path: part.drop_path, masked, ..VitInput::images(&images) };
        // Of the student's tokens those that the loss is of: class tokens, and masked patches behind them.
        let hidden = |image: usize| masks.of_views.get(image).map_or(&[][..], Vec::as_slice);
        let read = Kept::new(leading, of_images.enumerate().map(|(image, count)| (count, Some(hidden(image)))));
        let (tokens, saved) = vit.forward_some(student, device, &input, &read)?;
        let class_rows = read.segments().first_of_each();
        let class = ops::gather(&tokens, &class_rows, 1.0);

        let weight = self.options.class_weight;
        let (d_class, class_loss, mut penalty) =
            self.class.class_loss(networks, part, (class, class_targets), weight, reduce, gradient)?;
        let mut d_tokens = device.zeros(tokens.shape());
        ops::scatter_add(&d_class, &class_rows, 1.0, &mut d_tokens);
        let of_patches = patch_rows(read.segments(), leading);
        let sides = ((&tokens, &of_patches[..]), &targets);
        let patch_loss = self.patch_loss(networks, part, masks, sides, &mut d_tokens, reduce, gradient)?;
        drop((tokens, targets));
        if let Some(own) = &self.own_prototypes {
            penalty += self.penalty.add_gradient(own, student, part.share(), gradient);
        }
        // The mask token comes last in the layout, and its gradient from the very end of the backward pass.
        let heads = vit.parameters().end..self.mask_token.0;
        backward_backbone(networks, part, (saved, &d_tokens), heads, reduce, gradient)?;
        self.step.class_loss += class_loss / self.options.class_weight;
        self.step.loss += patch_loss / self.options.patch_weight;
        self.step.targets += masks.count() as f64;
        self.step.masked += masks.count() as f64 / (views * patches) as f64 * part.share();
        Ok(class_loss + patch_loss + penalty)
    }

    /// Notes what the centre of patches moves towards, by all patches that the teacher sees, masked or not.
    fn observe_patches(&mut self, teacher: &ParamSet, targets: &Tensor, at: Position) {
        let tau = self.patch_temperature(at);
        let is_linear = self.options.class.target.observes_linearly();
        let means = is_linear.then(|| self.options.means_of_patches(targets));
        let targets = means.as_ref().unwrap_or(targets);
        let count = targets.rows();
        for piece in pieces(count, piece_rows(TEACHER_LOGITS_AT_ONCE, self.options.patch_prototypes())) {
            let weight = piece.len();
            let y = ops::gather(targets, &Rows::range(count, piece), 1.0);
            let prototypes = self.prototypes();
            let (logits, magnitude) = (prototypes.logits(teacher, &y), &teacher[prototypes.magnitude()]);
            let side = self.loss.teacher(Side { logits, magnitude }, tau);
            self.loss.observe(&side, weight);
        }
    }

    /// The pieces in which masked patches go through the student's head. Where what a row becomes depends on the other rows
    /// of its piece, all processes take as many, so that a piece has about as many rows in all of them together as in one
    /// process; some are empty where a process has few masked patches.
    fn masked_pieces(&self, count: usize, peers: &mut dyn Peers) -> Result<Vec<Range<usize>>, StepError> {
        let at_once = piece_rows(LOGITS_AT_ONCE, self.options.patch_prototypes());
        let own: Vec<Range<usize>> = pieces(count, at_once).collect();
        if peers.ranks() == 1 || !self.class.head().projector.sees_whole_batch() {
            return Ok(own);
        }
        let all: f64 = peers.gather(&[count as f64])?.iter().flatten().sum();
        let most = (all as usize).div_ceil(at_once);
        Ok((0..most).map(|piece| piece * count / most..(piece + 1) * count / most).collect())
    }

    /// Adds the gradient of the masked patches to that of the student's tokens; their share of the loss.
    fn patch_loss(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        masks: &Masks,
        ((tokens, of_student), targets): ((&Tensor, &[usize]), &Tensor),
        d_tokens: &mut Tensor,
        peers: &mut dyn Peers,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let Networks { student, teacher, .. } = *networks;
        let of_teacher = masks.rows(self.options.patches());
        let views = masks.of_views.len() / part.views.images().max(1);
        let weights = masks.weights(self.options.patch_weight / (part.step_images * views) as f64);
        let (count, tau) = (of_teacher.len(), self.patch_temperature(part.at));
        let magnitude = self.prototypes().magnitude();
        let mut loss = 0.0;
        for piece in self.masked_pieces(count, peers)? {
            let projector = &self.class.head().projector;
            if piece.is_empty() {
                // Forward, then backward: the others have rows, and wait for this process.
                projector.stand_by(peers)?;
                projector.stand_by(peers)?;
                continue;
            }
            let seen = ops::gather(targets, &Rows::some(targets.rows(), &of_teacher[piece.clone()]), 1.0);
            let logits = self.prototypes().logits(teacher, &seen);
            let side = self.loss.teacher(Side { logits, magnitude: &teacher[magnitude] }, tau);
            let distributions = self.loss.targets(&side)?;
            drop(side);

            let rows = Rows::some(tokens.rows(), &of_student[piece.clone()]);
            let projected = projector.forward(student, ops::gather(tokens, &rows, 1.0), peers)?;
            let logits = self.prototypes().logits(student, &projected.y);
            let predictions = Side { logits, magnitude: &student[magnitude] };
            let terms = Terms::one_to_one(weights[piece.clone()].to_vec());
            let (d_logits, of_piece) =
                self.loss.cross_entropy(predictions, &distributions, &terms, &mut gradient[magnitude])?;
            loss += of_piece;
            let dy = self.prototypes().backward(student, &projected.y, d_logits, gradient);
            let d_rows = self.class.head().projector.backward(student, projected, &dy, gradient, peers)?;
            ops::scatter_add(&d_rows, &rows, 1.0, d_tokens);
            self.step.entropies += piece.len() as f64 * distributions.entropy;
            self.step.assignments.extend(distributions.assignments);
        }
        Ok(loss)
    }
}

impl Method for Ibot {
    fn views(&self) -> &ViewPlan {
        self.class.views()
    }

    fn treatment(&self, id: ParamId, spec: &ParamSpec) -> Treatment {
        let own = self.own_prototypes.as_ref();
        let of_own = own.and_then(|own| self.options.class.treatment_of(own, id, spec));
        let usual = of_own.unwrap_or_else(|| self.class.treatment(id, spec));
        // The gradient of the mask token comes back through the backbone.
        Treatment { waits: id == self.mask_token, ..usual }
    }

    fn start_step(&mut self) {
        self.class.start_step();
        self.penalty.start_step();
        self.loss.target_mut().start_step();
        self.step = PatchReport::default();
    }

    fn add_gradient(
        &mut self,
        networks: &Networks<'_>,
        part: &StepPart<'_>,
        reduce: &mut dyn Reduce,
        gradient: &mut ParamSet,
    ) -> Result<f64, StepError> {
        let masks = if networks.device.is_planner() {
            self.largest_masks(part.keys.len())
        } else {
            self.options.draw_masks(part.keys, part.at.epoch)
        };
        self.add_gradient_masked(networks, part, &masks, reduce, gradient)
    }

    fn is_frozen(&self, at: Position) -> bool {
        self.class.is_frozen(at)
    }

    fn end_step(&mut self, _: f64, reduce: &mut dyn Reduce) -> Result<(), StepError> {
        let PatchReport { class_loss, loss, entropies, targets, masked, .. } = self.step;
        let everywhere = reduce.gather(&[class_loss, loss, entropies, targets, masked])?;
        let sum = |i: usize| everywhere.iter().map(|rank| rank[i]).sum::<f64>();
        let assignments = of_all_processes(std::mem::take(&mut self.step.assignments), reduce)?;
        self.health.observe(&assignments);
        let [class_loss, loss, entropies, targets, masked] = [0, 1, 2, 3, 4].map(sum);
        self.step = PatchReport { class_loss, loss, entropies, targets, masked, assignments };
        self.loss.target_mut().end_step(reduce)?;
        self.class.end_step(class_loss + self.class.penalty(), reduce)
    }

    fn centers_mut(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        let mut centers = self.class.centers_mut();
        centers.push((PATCH_CENTER, self.loss.target_mut().center_mut()));
        centers
    }

    fn vitals(&self, student: &ParamSet, moment: &Moment, record: Record) -> (Record, Finding) {
        let PatchReport { class_loss, loss, masked, .. } = self.step;
        let teacher_entropy = self.step.teacher_entropy();
        let penalty = self.class.penalty() + self.penalty.loss();
        let total = self.options.class_weight * class_loss + self.options.patch_weight * loss + penalty;
        let (record, finding) = self.class.vitals_with(student, moment, record, total);
        let magnitude = &student[self.prototypes().magnitude()];
        let patches = self.health.vitals(loss, teacher_entropy, magnitude, self.options.class.student_temperature);
        let record = record
            .number("class_loss", class_loss)
            .number("patch_loss", loss)
            .number("patch_teacher_entropy", teacher_entropy)
            .whole("patch_prototypes_in_use", patches.prototypes_in_use as i64)
            .number("patch_usage_perplexity", patches.usage_perplexity)
            .number("masked_share", masked);
        let record = if self.own_prototypes.is_some() { self.penalty.add_to(record, "patch_") } else { record };
        // What there is to say of class tokens comes first.
        let temperature = self.options.patch_temperature.at(u64::MAX);
        let finding = if finding == Finding::default() {
            moment.judge_patches(&patches, self.options.patch_prototypes(), temperature)
        } else {
            finding
        };
        (record, finding)
    }

    fn schedules(&self, at: Position, record: Record) -> Record {
        self.class.schedules(at, record).number("patch_teacher_temperature", self.patch_temperature(at))
    }

    fn save<'a>(&'a self, state: &mut State<'a>) {
        self.class.save(state);
        self.loss.target().save(PATCH_CENTER, state);
        state.value(PATCH_ASSIGNMENTS, self.health.assignments().collect::<Vec<u32>>());
    }

    fn restore(&mut self, saved: &SavedState<'_>) -> Result<(), StateError> {
        self.class.restore(saved)?;
        self.loss.target_mut().restore(PATCH_CENTER, saved)?;
        self.health = Health::restore(saved.all_numbers(PATCH_ASSIGNMENTS)?.into_iter().map(|k| k as u32));
        Ok(())
    }
}
