//! How much memory a run needs: on a GPU known and taken before its first step, on a CPU estimated.

use model::{ConfigError, DinoHead, DropPath, Layout, Vit};
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, UploadedPixels};

use crate::learner::{LearnError, Learner, LearnerOptions};
use crate::schedule::StepValues;

/// Batches whose pixels are on the GPU at a time: the one in use, those sent ahead, and the one on its way.
const BATCHES: usize = crate::trainer::AHEAD + 2;

/// Drop path makes matrices of other sizes in every step, which do not fit together as closely as those of the plan.
const MARGIN: f64 = 1.03;

/// Images of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewShape {
    /// How many.
    pub count: usize,
    /// Rows of each.
    pub height: usize,
    /// Columns of each.
    pub width: usize,
    /// Channels of each.
    pub channels: usize,
}

impl ViewShape {
    /// Bytes of all their pixels.
    pub fn bytes(self) -> usize {
        self.count * self.height * self.width * self.channels
    }
}

/// Bytes of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Weights, gradients and moments.
    pub state: usize,
    /// Everything at the widest moment of a step.
    pub total: usize,
}

impl MemoryPlan {
    /// In words.
    pub fn in_words(&self) -> String {
        let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
        let (total, state) = (gib(self.total), gib(self.state));
        format!("GPU memory planned: {total:.2} GiB, {state:.2} of it for weights, gradient and moments")
    }
}

/// Takes the steps of a run in thought, and the memory they need in fact. None for a CPU. `drop_path` is the rate of the
/// last block.
pub fn plan_and_reserve(
    device: &Device,
    options: &LearnerOptions,
    views: &[ViewShape],
    batch: usize,
    drop_path: f64,
) -> Result<Option<MemoryPlan>, LearnError> {
    let planned = device.plan(|planner| {
        let mut learner = Learner::blank(planner, options.clone())?;
        let state = planner.memory().live_bytes;
        let images: Vec<Vec<u8>> = views.iter().map(|v| vec![0; v.bytes()]).collect();
        let normal = vec![1.0; views.iter().map(|v| v.channels).max().unwrap_or(0)];
        let pixels: Vec<Pixels<'_>> = views
            .iter()
            .zip(&images)
            .map(|(v, pixels)| Pixels {
                count: v.count,
                height: v.height,
                width: v.width,
                channels: v.channels,
                data: PixelData::Bytes { pixels, mean: &normal[..v.channels], deviation: &normal[..v.channels] },
            })
            .collect();
        let values = StepValues {
            epoch: 0,
            lr: 0.0,
            weight_decay: 0.0,
            momentum: 1.0,
            teacher_temperature: 1.0,
            last_layer_frozen: false,
        };
        let segments = views.iter().map(|v| v.count).sum();
        let drop_path = DropPath::all_taken(drop_path, options.vit.depth, segments);
        // Twice: the copies of weights for matrix products are made in the first step.
        for _ in 0..2 {
            learner.step(&pixels, batch, Some(&drop_path), &values)?;
        }
        Ok::<usize, LearnError>(state)
    });
    let Some((state, used)) = planned else { return Ok(None) };
    let pixels: usize = views.iter().map(|v| UploadedPixels::room(v.bytes(), v.count)).sum();
    let (state, tensors) = (state?, (MARGIN * used.peak_bytes as f64) as usize);
    device.reserve(tensors, BATCHES * pixels)?;
    Ok(Some(MemoryPlan { state, total: tensors + BATCHES * pixels }))
}

/// Values of a token that a block keeps for its backward pass, in units of the embedding's dimension, as measured on a CPU:
/// queries, keys and values, both sides of the GELU, the residual stream and its norms.
const KEPT_OF_BLOCK: usize = 18;
/// The same of a token for the rest: what one block needs while it computes, the ends of the network.
const KEPT_BESIDE: usize = 45;
/// Copies of every parameter: student, teacher, gradient and two moments.
const COPIES: usize = 5;

/// About how many bytes a run takes on a CPU, mostly within a tenth.
pub fn estimate_on_cpu(options: &LearnerOptions, views: &[ViewShape], batch: usize) -> Result<usize, ConfigError> {
    let mut layout = Layout::default();
    Vit::new(&mut layout, "", options.vit.clone().checked()?);
    DinoHead::new(&mut layout, "", options.head.clone());
    let parameters: usize = layout.specs().iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
    let (vit, parts) = (&options.vit, options.accumulate.max(1));
    let patches = |v: &ViewShape| (v.height / vit.patch) * (v.width / vit.patch);
    let tokens = views.iter().map(|v| v.count * (patches(v) + 1)).sum::<usize>().div_ceil(parts);
    let rows = views.iter().map(|v| v.count).sum::<usize>().div_ceil(parts);
    // The last block keeps little: it serves the class tokens alone.
    let blocks = vit.depth.saturating_sub(1);
    let of_blocks = if options.checkpoint_activations { blocks + KEPT_OF_BLOCK } else { blocks * KEPT_OF_BLOCK };
    let of_token = (of_blocks + KEPT_BESIDE) * vit.dim + vit.channels * vit.patch * vit.patch;
    // Of the student all rows; of the teacher, with two views an image, logits and targets.
    let logits = (rows + 4 * batch.div_ceil(parts)) * options.head.prototypes;
    let pixels: usize = views.iter().map(|v| v.bytes()).sum();
    let values = COPIES * parameters + tokens * of_token + logits;
    Ok(values * size_of::<f32>() + (crate::trainer::PREFETCH + 1) * pixels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossOptions;
    use crate::optimizer::OptimizerOptions;
    use crate::recipe::{Centering, Prototypes};
    use model::{Arch, HeadConfig, VitConfig};
    use tensor::ops::AdamW;

    const BATCH: usize = 12;

    fn options(arch: Arch, patch: usize, prototypes: usize) -> LearnerOptions {
        let vit = VitConfig::new(arch, patch, (32, 32), 3).unwrap();
        let head =
            HeadConfig { inputs: vit.dim, hidden: 256, bottleneck: 64, prototypes, layers: 3, batch_norm: false };
        let loss = LossOptions {
            prototypes: Prototypes::Vmf,
            centering: Centering::Probability,
            student_temperature: 0.1,
            center_momentum: 0.9,
            center_floor: None,
        };
        let optimizer =
            OptimizerOptions { adam: AdamW::default(), clip: 3.0, train_magnitude: true, decay_magnitude: true };
        LearnerOptions { vit, head, loss, optimizer, seed: 0, accumulate: 1, checkpoint_activations: false }
    }

    /// What is estimated for a run beside what a step of it takes.
    fn ratio(options: LearnerOptions) -> f64 {
        let shape = |views: usize, side| ViewShape { count: views * BATCH, height: side, width: side, channels: 3 };
        let shapes = [shape(2, 32), shape(4, 16)];
        let estimate = estimate_on_cpu(&options, &shapes, BATCH).unwrap();
        let device = Device::cpu(Default::default()).unwrap();
        let images = shapes.map(|s| (0..s.bytes()).map(|i| (i * 7 % 251) as u8).collect::<Vec<u8>>());
        let views: Vec<Pixels<'_>> = shapes
            .iter()
            .zip(&images)
            .map(|(s, pixels)| {
                let data = PixelData::Bytes { pixels, mean: &[0.5; 3], deviation: &[0.25; 3] };
                Pixels { count: s.count, height: s.height, width: s.width, channels: 3, data }
            })
            .collect();
        let values = StepValues {
            epoch: 0,
            lr: 1e-4,
            weight_decay: 0.0,
            momentum: 0.99,
            teacher_temperature: 0.04,
            last_layer_frozen: false,
        };
        Learner::new(&device, options).unwrap().step(&views, BATCH, None, &values).unwrap();
        estimate as f64 / device.memory().peak_bytes as f64
    }

    #[test]
    fn the_estimate_for_a_cpu_is_near_what_a_step_takes() {
        let usual = options(Arch::Tiny, 4, 512);
        let cases = [
            ("usual", usual.clone()),
            ("many prototypes", options(Arch::Tiny, 8, 65_536)),
            ("small", options(Arch::Nano, 4, 512)),
            ("checkpoints", LearnerOptions { checkpoint_activations: true, ..usual.clone() }),
            ("parts", LearnerOptions { accumulate: 4, ..usual }),
        ];
        for (name, options) in cases {
            let ratio = ratio(options);
            println!("{name}: {ratio:.2}");
            assert!((0.85..1.35).contains(&ratio), "{name}: {ratio:.2} of what a step takes");
        }
    }
}
