//! How much of a GPU's memory a run needs, known and taken before its first step.

use model::DropPath;
use tensor::Device;
use tensor::ops::{PixelData, Pixels};

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
    fn bytes(self) -> usize {
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
    let pixels: usize = views.iter().map(|v| v.bytes()).sum();
    let (state, tensors) = (state?, (MARGIN * used.peak_bytes as f64) as usize);
    device.reserve(tensors, BATCHES * pixels)?;
    Ok(Some(MemoryPlan { state, total: tensors + BATCHES * pixels }))
}
