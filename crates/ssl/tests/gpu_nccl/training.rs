//! Small trainings of every method, in a part of the processes that share their images.

use std::ops::Range;

use model::DropPath;
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::mask::MaskOptions;
use ssl::method::MethodSpec;
use ssl::method::ibot::IbotOptions;
use ssl::method::msn::MsnOptions;
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::{Sight, ViewGroup, ViewPlan, ViewShape};
use tensor::ops::{PixelData, Pixels};
use tensor::{Device, Tensor};
use train::Position;
use train::curve::Curve;
use train::optimizer::StepValues;
use train::reduce::{Share, Wire};

use super::common::{dino_options, learner_options};
use super::company::{AT_THE_END, Company};
use super::gpu_training::{LOCALS, SIDES, head, learner, views_of, vit};

/// Images of a step, in all processes together.
const BATCH: usize = 24;
/// Steps whose losses are held against those of one process.
pub const STEPS: usize = 50;
/// Steps whose bits are held against those of another training: what differs in bits does so soon.
pub const FEW: usize = 10;

/// The methods that are trained.
pub const METHODS: [&str; 6] =
    ["dino", "dino with batch norm", "ibot", "ibot with batch norm", "msn", "msn with batch norm"];

fn method(name: &str) -> Box<dyn MethodSpec> {
    let views = (SIDES.0, SIDES.1, LOCALS);
    let batch_norm = name.ends_with("batch norm");
    let class = dino_options((Prototypes::Vmf, Centering::Probability), head(batch_norm), views);
    let grid = SIDES.0 / 16;
    match name.split(' ').next() {
        Some("dino") => Box::new(class),
        Some("ibot") => Box::new(IbotOptions {
            class,
            grid: (grid, grid),
            own_prototypes: Some(200),
            patch_temperature: Curve::Constant(0.07),
            patch_temperature_from: 0,
            masks: MaskOptions {
                shape: MaskShape::Random,
                masked_views: 0.75,
                ratio: Interval { low: 0.2, high: 0.6 },
                first_epoch: 0,
            },
            seed: 3,
            class_weight: 1.0,
            patch_weight: 1.0,
        }),
        _ => Box::new(MsnOptions {
            views: ViewPlan::new(
                vec![
                    ViewGroup { size: (SIDES.0, SIDES.0), sights: vec![Sight::Teacher, Sight::Student] },
                    ViewGroup { size: (SIDES.1, SIDES.1), sights: vec![Sight::Student; LOCALS] },
                ],
                3,
            ),
            head: head(batch_norm),
            prototypes: Prototypes::L2,
            temperature: 0.1,
            sharpening: 0.25,
            sinkhorn: true,
            me_max_weight: 1.0,
            koleo_weight: 0.0,
            lengths: Default::default(),
            patches: grid * grid,
            patch_drop: 0.3,
            seed: 3,
        }),
    }
}

/// The loss of a step on some of its images.
fn step(learner: &mut Learner, step: usize, images: Range<usize>) -> f64 {
    let shapes = learner.views().shapes(BATCH);
    let views: Vec<Vec<u8>> = views_of(learner.views(), step, BATCH)
        .iter()
        .zip(&shapes)
        .map(|(pixels, shape)| {
            let bytes = shape.height * shape.width * shape.channels;
            let of_view = |view: &[u8]| view[images.start * bytes..images.end * bytes].to_vec();
            pixels.chunks(BATCH * bytes).flat_map(of_view).collect()
        })
        .collect();
    let group = |(shape, pixels): (&ViewShape, &'_ Vec<u8>)| {
        let &ViewShape { count, height, width, channels } = shape;
        (count / BATCH * images.len(), height, width, channels, pixels.clone())
    };
    let groups: Vec<_> = shapes.iter().zip(&views).map(group).collect();
    let groups: Vec<Pixels<'_>> = groups
        .iter()
        .map(|(count, height, width, channels, pixels)| Pixels {
            count: *count,
            height: *height,
            width: *width,
            channels: *channels,
            data: PixelData::Bytes { pixels, mean: &[0.5; 3], deviation: &[0.25; 3] },
        })
        .collect();
    let keys: Vec<u64> = images.map(|image| image as u64).collect();
    let rows = learner.views().student_keys(Key::new(step as u64, Purpose::DropPath), &keys);
    let drop_path = DropPath::draw(0.1, learner.vit().config().depth, rows);
    let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
    let lr = 1e-4 * step as f64 / STEPS as f64;
    let values = StepValues { lr, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
    learner.step(&input, Position { step: step as u64, epoch: 1 }, &values).unwrap().loss
}

/// One training, in words that pass from process to process.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    pub method: &'a str,
    /// Whether gradients travel rounded.
    pub rounded: bool,
    /// Whether they leave as soon as they are final.
    pub early: bool,
    /// Whether each process keeps a share of the moments.
    pub shared: bool,
    pub steps: usize,
}

impl<'a> Training<'a> {
    pub fn in_words(&self) -> String {
        let Self { method, rounded, early, shared, steps } = self;
        format!("{method}, {rounded}, {early}, {shared}, {steps}")
    }

    pub fn of_words(words: &'a str) -> Self {
        let parts: Vec<&str> = words.split(", ").collect();
        let &[method, rounded, early, shared, steps] = &parts[..] else { panic!("{words:?} is no training") };
        let is = |part: &str| part.parse().unwrap();
        Self { method, rounded: is(rounded), early: is(early), shared: is(shared), steps: steps.parse().unwrap() }
    }

    /// Trains: the losses, and behind those of a few steps and behind all a digest of the weights.
    pub fn run(&self, device: &Device, (rank, ranks): (usize, usize), company: Option<&Company>) -> Vec<String> {
        let wire = if self.rounded { Wire::Bf16 } else { Wire::Exact };
        let share = if self.shared { Share { number: rank, of: ranks } } else { Share::WHOLE };
        let options = LearnerOptions { wire, share, ..learner_options(vit(), 3.0, 5) };
        let mut learner = learner(device, &options, &*method(self.method));
        if let Some(company) = company {
            learner = learner.with_reduce(Box::new(company.where_leave(if self.early { 1 } else { AT_THE_END })));
            learner.prepare_sums().unwrap();
        }
        let images = rank * BATCH / ranks..(rank + 1) * BATCH / ranks;
        let mut found = Vec::new();
        for i in 0..self.steps {
            found.push(format!("{:016x}", step(&mut learner, i, images.clone()).to_bits()));
            if i + 1 == FEW || i + 1 == self.steps {
                let weights = learner.student.iter().chain(learner.teacher.iter()).flat_map(Tensor::to_f32);
                let digest = weights.fold(0_u64, |sum, x| sum.rotate_left(5).wrapping_mul(31) ^ u64::from(x.to_bits()));
                found.push(format!("{DIGEST}{digest:016x}"));
            }
        }
        device.finish().unwrap();
        found
    }
}

/// What stands before a digest.
const DIGEST: char = 'w';

/// What a training has found in its first few steps.
pub fn first_of(found: &[String]) -> &[String] {
    &found[..=FEW]
}

/// The losses of a training.
pub fn losses(found: &[String]) -> Vec<f64> {
    let loss = |word: &&String| !word.starts_with(DIGEST);
    found.iter().filter(loss).map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap())).collect()
}

/// The largest relative difference of two trainings, over the steps of the shorter one.
pub fn worst_difference(these: &[String], those: &[String]) -> f64 {
    losses(these).into_iter().zip(losses(those)).map(|(a, b)| ((a - b) / b).abs()).fold(0.0, f64::max)
}
