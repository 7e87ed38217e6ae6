//! How much memory a run needs: on a GPU known and taken before its first step, on a CPU estimated.

use model::{DropPath, Layout, Tokens, Vit};
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, ParamSet, UploadedPixels};
use train::Position;
use train::feed::UPLOADED_AT_ONCE;
use train::optimizer::StepValues;
use train::reduce::{Alone, PeerError, Peers, Recipient, Reduce, SumMemory, Sums, Until, Wire};

use crate::health::RANK_ROWS;
use crate::learner::{LearnError, Learner, LearnerOptions, StepInput};
use crate::method::MethodSpec;
use crate::setup::PREFETCH;
use crate::view_plan::{ViewShape, Viewer};

/// Drop path makes matrices of other sizes in every step, which do not fit together as closely as those of the plan.
const MARGIN: f64 = 1.03;

/// Bytes of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights, gradients and moments.
    pub state: usize,
    /// Everything at the widest moment of a step.
    pub total: usize,
    /// What sums with other processes take: a part of the total, and what their library has taken beside it.
    pub sums: SumMemory,
}

impl MemoryPlan {
    /// In words.
    pub fn in_words(&self) -> String {
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        let (total, state) = (gib(self.total), gib(self.state));
        let mut words =
            format!("GPU memory planned: {total:.2} GiB, {state:.2} of it for weights, gradient and moments");
        let SumMemory { staging, own } = self.sums;
        if staging > 0 {
            words += &format!(", {:.2} for gradients on their way", gib(staging));
        }
        if own > 0 {
            words += &format!("; NCCL has taken {:.2} GiB beside it", gib(own as usize));
        }
        words
    }
}

/// A run whose memory is to be known.
#[derive(Clone, Copy, Debug)]
pub struct MemoryNeed<'a> {
    /// The networks and the optimiser.
    pub options: &'a LearnerOptions,
    /// The method.
    pub method: &'a dyn MethodSpec,
    /// Images of a step.
    pub batch: usize,
    /// Drop-path rate of the last block.
    pub drop_path: f64,
    /// Images whose features are computed at once between the steps, by an evaluation.
    pub evaluated: Option<ViewShape>,
}

/// How much memory a run would take on a GPU; none for a CPU.
pub fn plan(device: &Device, need: &MemoryNeed<'_>) -> Result<Option<MemoryPlan>, LearnError> {
    let sums = SumMemory::default();
    let Some((state, used)) = device.count_memory(|planner| rehearse(planner, need, sums)) else { return Ok(None) };
    let (state, (tensors, images)) = (state?, room(used.peak_bytes, need));
    Ok(Some(MemoryPlan { state, total: tensors + images, sums }))
}

/// Plans the memory of a run that is to follow on this device, and takes that much. None for a CPU.
pub fn plan_and_reserve(device: &Device, need: &MemoryNeed<'_>) -> Result<Option<MemoryPlan>, LearnError> {
    plan_and_reserve_with_sums(device, need, SumMemory::default())
}

/// The same for one of several processes, whose sums with the others take this.
pub fn plan_and_reserve_with_sums(
    device: &Device,
    need: &MemoryNeed<'_>,
    sums: SumMemory,
) -> Result<Option<MemoryPlan>, LearnError> {
    let Some((state, used)) = device.plan(|planner| rehearse(planner, need, sums)) else { return Ok(None) };
    let (state, (tensors, images)) = (state?, room(used.peak_bytes, need));
    device.reserve(tensors, images)?;
    Ok(Some(MemoryPlan { state, total: tensors + images, sums }))
}

/// Bytes for tensors, and those for the images that are sent ahead.
fn room(peak: usize, need: &MemoryNeed<'_>) -> (usize, usize) {
    let views = need.method.views().shapes(need.batch);
    let of_batch: usize = views.iter().map(|v| UploadedPixels::room(v.bytes(), v.count)).sum();
    ((MARGIN * peak as f64) as usize, UPLOADED_AT_ONCE * of_batch)
}

/// How many numbers each parameter of a run has.
pub fn parameter_lengths(
    device: &Device,
    options: &LearnerOptions,
    method: &dyn MethodSpec,
) -> Result<Vec<usize>, LearnError> {
    let mut layout = Layout::default();
    Vit::new(&mut layout, "", options.vit.clone().checked()?);
    method.build(&mut layout, &options.vit, device)?;
    Ok(layout.specs().iter().map(|spec| spec.shape.iter().product()).collect())
}

/// Takes the steps of a run on a device that computes nothing; the bytes of its weights, gradients and moments.
fn rehearse(planner: &Device, need: &MemoryNeed<'_>, sums: SumMemory) -> Result<usize, LearnError> {
    let views = need.method.views().shapes(need.batch);
    let learner = Learner::blank(planner, need.options, |layout, vit, device| need.method.build(layout, vit, device))?;
    let mut learner = learner.with_reduce(Box::new(Rehearsing));
    let state = planner.memory().live_bytes;
    // Right behind the state, as in the run.
    let _staging = (sums.staging > 0).then(|| planner.empty_exact(&[sums.staging.div_ceil(size_of::<f32>())]));
    let normal = vec![1.0; views.iter().chain(&need.evaluated).map(|v| v.channels).max().unwrap_or(0)];
    let images: Vec<Vec<u8>> = views.iter().map(|v| vec![0; v.bytes()]).collect();
    let groups: Vec<Pixels<'_>> = views.iter().zip(&images).map(|(v, bytes)| pixels(v, bytes, &normal)).collect();
    let values = StepValues { lr: 0.0, weight_decay: 0.0, momentum: 1.0, frozen: false, waiting_lr: 1.0 };
    let rows = need.method.views().seen_by(Viewer::Student).len() * need.batch;
    let drop_path = DropPath::all_taken(need.drop_path, need.options.vit.depth, rows);
    let keys = vec![0; need.batch];
    // Twice: the copies of weights for matrix products are made in the first step.
    for _ in 0..2 {
        let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
        learner.step(&input, Position { step: 0, epoch: 0 }, &values)?;
    }
    // What the log says of features, and what an evaluation computes between the steps.
    let logged = views.first().map(|group| ViewShape { count: group.count.min(RANK_ROWS), ..*group });
    for shape in logged.into_iter().chain(need.evaluated) {
        learner.teacher_features(&[pixels(&shape, &vec![0; shape.bytes()], &normal)])?;
    }
    Ok(state)
}

/// Stands for the other processes while a step is rehearsed, in which nothing is computed: what they would send is there already.
struct Rehearsing;

impl Peers for Rehearsing {
    fn rank(&self) -> usize {
        Alone.rank()
    }

    fn ranks(&self) -> usize {
        Alone.ranks()
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, PeerError> {
        Alone.gather(here)
    }
}

impl Sums for Rehearsing {
    fn sum(&mut self, tensors: &mut ParamSet, wire: Wire) -> Result<(), PeerError> {
        Alone.sum(tensors, wire)
    }

    fn put_together(&mut self, _: &ParamSet, _: Recipient<'_>) -> Result<(), PeerError> {
        Ok(())
    }
}

impl Reduce for Rehearsing {
    fn any(&mut self, here: bool, until: Until) -> Result<bool, PeerError> {
        Alone.any(here, until)
    }

    fn told(&mut self, word: f64, until: Until) -> Result<f64, PeerError> {
        Alone.told(word, until)
    }
}

fn pixels<'a>(shape: &ViewShape, bytes: &'a [u8], normal: &'a [f32]) -> Pixels<'a> {
    let ViewShape { count, height, width, channels } = *shape;
    let data = PixelData::Bytes { pixels: bytes, mean: &normal[..channels], deviation: &normal[..channels] };
    Pixels { count, height, width, channels, data }
}

/// Values of a token that a block keeps for its backward pass, in units of the embedding's dimension, as measured on a CPU:
/// queries, keys and values, both sides of the GELU, the residual stream and its norms.
const KEPT_OF_BLOCK: usize = 18;
/// The same of a token for the rest: what one block needs while it computes, the ends of the network.
const KEPT_BESIDE: usize = 45;
/// Copies of every parameter: student, teacher, gradient and two moments.
const COPIES: usize = 5;

/// About how many bytes a run takes on this CPU, mostly within a tenth.
pub fn estimate_on_cpu(device: &Device, need: &MemoryNeed<'_>) -> Result<usize, LearnError> {
    let MemoryNeed { options, method, batch, .. } = *need;
    let (vit, parts) = (&options.vit, options.accumulate.max(1));
    let parameters: usize = parameter_lengths(device, options, method)?.iter().sum();
    let plan = method.views();
    let views = plan.shapes(batch);
    // What the student sees: the teacher keeps nothing.
    let of_sizes = plan.sizes_seen_by(Viewer::Student).map(|size| vit.tokens(size)).sum::<usize>();
    let tokens = (batch * of_sizes).div_ceil(parts);
    let blocks = match method.reads() {
        // The last block keeps little: it serves the class tokens alone.
        Tokens::Class => vit.depth.saturating_sub(1),
        Tokens::All => vit.depth,
    };
    let of_blocks = if options.checkpoint_activations { blocks + KEPT_OF_BLOCK } else { blocks * KEPT_OF_BLOCK };
    let of_token = (of_blocks + KEPT_BESIDE) * vit.dim + vit.channels * vit.patch * vit.patch;
    let rows = |viewer| plan.seen_by(viewer).len() * batch.div_ceil(parts);
    let outputs = method.output_values(rows(Viewer::Student), rows(Viewer::Teacher));
    let pixels: usize = views.iter().map(|v| v.bytes()).sum();
    // Attention weighs every pair of tokens. Each thread has room for one head of one view: once for the forward pass, twice
    // for the backward pass, which holds the weights beside their gradient; rounded up by an eighth at most.
    let pairs = views.iter().map(|v: &ViewShape| vit.tokens((v.height, v.width)).pow(2)).max().unwrap_or(0);
    let of_threads = 3 * pairs * device.threads() / 8 * 9;
    // What a pull leads back to is a copy of its own.
    let copies = COPIES + usize::from(options.optimizer.pull > 0.0);
    let values = copies * parameters + tokens * of_token + outputs + of_threads;
    Ok(values * size_of::<f32>() + (PREFETCH + 1) * pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::MaskOptions;
    use crate::method::dino::DinoOptions;
    use crate::method::ibot::IbotOptions;
    use crate::method::msn::MsnOptions;
    use crate::recipe::{Centering, Interval, MaskShape, Prototypes};
    use crate::target::TargetOptions;
    use crate::view_plan::{Sight, ViewGroup, ViewPlan};
    use data::views::MultiCrop;
    use model::{Arch, HeadConfig, VitConfig};
    use tensor::CpuOptions;
    use tensor::ops::AdamW;
    use train::curve::Curve;
    use train::optimizer::OptimizerOptions;
    use train::reduce::Share;

    const BATCH: usize = 12;

    fn options(arch: Arch, patch: usize, prototypes: usize) -> (LearnerOptions, DinoOptions) {
        let vit = VitConfig::new(arch, patch, (32, 32), 3).unwrap();
        let views = MultiCrop { global_size: (32, 32), local_size: (16, 16), local_crops: 4, ..MultiCrop::dino() };
        let method = DinoOptions {
            views: ViewPlan::multi_crop(&views, 3),
            head: HeadConfig { inputs: vit.dim, hidden: 256, bottleneck: 64, prototypes, layers: 3, batch_norm: false },
            target: TargetOptions {
                prototypes: Prototypes::Vmf,
                centering: Centering::Probability,
                center_momentum: 0.9,
                center_floor: None,
            },
            student_temperature: 0.1,
            teacher_temperature: Curve::Constant(0.04),
            decay_magnitude: true,
            frozen_epochs: 0,
            koleo_weight: 0.0,
            lengths: Default::default(),
        };
        let optimizer = OptimizerOptions { adam: AdamW::default(), clip: 3.0, pull: 0.0 };
        (
            LearnerOptions {
                backbone: Default::default(),
                vit,
                optimizer,
                start: Default::default(),
                seed: 0,
                accumulate: 1,
                checkpoint_activations: false,
                wire: Default::default(),
                share: Share::WHOLE,
            },
            method,
        )
    }

    /// Few large images, where attention counts most.
    fn large_views() -> (LearnerOptions, DinoOptions) {
        let (mut options, mut method) = options(Arch::Nano, 4, 64);
        options.vit = VitConfig::new(Arch::Nano, 4, (192, 192), 3).unwrap();
        let views = MultiCrop { global_size: (192, 192), local_crops: 0, ..MultiCrop::dino() };
        method.views = ViewPlan::multi_crop(&views, 3);
        (options, method)
    }

    /// iBOT with as many masked patches as its estimate is for.
    fn ibot(class: DinoOptions, grid: usize, own_prototypes: Option<usize>) -> IbotOptions {
        IbotOptions {
            class,
            grid: (grid, grid),
            own_prototypes,
            patch_temperature: Curve::Constant(0.07),
            patch_temperature_from: 0,
            masks: MaskOptions {
                shape: MaskShape::Random,
                masked_views: 1.0,
                ratio: Interval { low: 0.5, high: 0.5 },
                first_epoch: 0,
            },
            seed: 0,
            class_weight: 1.0,
            patch_weight: 1.0,
        }
    }

    fn msn(of: DinoOptions, patches: usize) -> MsnOptions {
        let global = ViewGroup { size: (32, 32), sights: vec![Sight::Teacher, Sight::Student] };
        let focal = ViewGroup { size: (16, 16), sights: vec![Sight::Student; 4] };
        MsnOptions {
            views: ViewPlan::new(vec![global, focal], 3),
            head: HeadConfig { batch_norm: true, ..of.head },
            prototypes: Prototypes::L2,
            temperature: 0.1,
            sharpening: 0.25,
            sinkhorn: true,
            me_max_weight: 1.0,
            koleo_weight: 0.0,
            lengths: Default::default(),
            patches,
            patch_drop: 0.15,
            seed: 0,
        }
    }

    /// What is estimated for a run beside what a step of it takes.
    fn ratio(options: &LearnerOptions, method: &dyn MethodSpec, batch: usize) -> f64 {
        let device = Device::cpu(CpuOptions { threads: Some(16), ..Default::default() }).unwrap();
        let need = MemoryNeed { options, method, batch, drop_path: 0.0, evaluated: None };
        let estimate = estimate_on_cpu(&device, &need).unwrap();
        let shapes = method.views().shapes(batch);
        let images: Vec<Vec<u8>> =
            shapes.iter().map(|s| (0..s.bytes()).map(|i| (i * 7 % 251) as u8).collect()).collect();
        let groups: Vec<Pixels<'_>> =
            shapes.iter().zip(&images).map(|(s, bytes)| pixels(s, bytes, &[0.5; 3])).collect();
        let values = StepValues { lr: 1e-4, weight_decay: 0.0, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
        let keys: Vec<u64> = (0..batch as u64).collect();
        let input = StepInput { groups: &groups, keys: &keys, drop_path: None };
        let mut learner = Learner::new(&device, options, |l, v, d| method.build(l, v, d)).unwrap();
        learner.step(&input, Position { step: 0, epoch: 0 }, &values).unwrap();
        estimate as f64 / device.memory().peak_bytes as f64
    }

    #[test]
    fn the_words_of_a_plan_say_what_sums_take() {
        let plan = |staging, own| MemoryPlan { state: 1 << 30, total: 5 << 30, sums: SumMemory { staging, own } };
        let alone = "GPU memory planned: 5.00 GiB, 1.00 of it for weights, gradient and moments";
        assert_eq!(plan(0, 0).in_words(), alone);
        assert_eq!(plan(0, 1 << 29).in_words(), format!("{alone}; NCCL has taken 0.50 GiB beside it"));
        let rounded = format!("{alone}, 0.25 for gradients on their way; NCCL has taken 0.50 GiB beside it");
        assert_eq!(plan(1 << 28, 1 << 29).in_words(), rounded);
    }

    #[test]
    fn the_estimate_for_a_cpu_is_near_what_a_step_takes() {
        let (usual, method) = options(Arch::Tiny, 4, 512);
        let cases = [
            ("usual", (usual.clone(), method.clone())),
            ("many prototypes", options(Arch::Tiny, 8, 65_536)),
            ("small", options(Arch::Nano, 4, 512)),
            ("checkpoints", (LearnerOptions { checkpoint_activations: true, ..usual.clone() }, method.clone())),
            ("parts", (LearnerOptions { accumulate: 4, ..usual }, method)),
        ];
        for (name, (options, method)) in cases {
            let ratio = ratio(&options, &method, BATCH);
            println!("{name}: {ratio:.2}");
            assert!((0.85..1.35).contains(&ratio), "{name}: {ratio:.2} of what a step takes");
        }
    }

    #[test]
    fn it_is_for_the_other_methods_too() {
        let (usual, method) = options(Arch::Tiny, 4, 512);
        let (few_patches, many) = options(Arch::Tiny, 8, 65_536);
        let parts = LearnerOptions { accumulate: 4, ..usual.clone() };
        let cases: [(&str, &LearnerOptions, Box<dyn MethodSpec>); 6] = [
            ("iBOT", &usual, Box::new(ibot(method.clone(), 8, None))),
            ("iBOT with many prototypes", &few_patches, Box::new(ibot(many.clone(), 4, None))),
            ("iBOT with prototypes of its own for patches", &usual, Box::new(ibot(method.clone(), 8, Some(8192)))),
            ("iBOT in parts", &parts, Box::new(ibot(method.clone(), 8, None))),
            ("MSN", &usual, Box::new(msn(method, 64))),
            ("MSN with many prototypes", &few_patches, Box::new(msn(many, 16))),
        ];
        for (name, options, method) in cases {
            let ratio = ratio(options, &*method, BATCH);
            println!("{name}: {ratio:.2}");
            assert!((0.85..1.35).contains(&ratio), "{name}: {ratio:.2} of what a step takes");
        }
    }

    #[test]
    fn attention_counts_where_views_are_large() {
        let (options, method) = large_views();
        let ratio = ratio(&options, &method, 1);
        assert!((0.85..1.35).contains(&ratio), "{ratio:.2} of what a step takes");
    }
}
