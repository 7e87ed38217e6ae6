//! What sums cost a training step of a real network: the time of steps with them and without, and how long the stream that
//! computes waits for them.

use std::time::{Duration, Instant};

use model::{Arch, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, StepInput};
use ssl::memory::{MemoryNeed, parameter_lengths, plan_and_reserve_with_sums};
use ssl::method::MethodSpec;
use ssl::recipe::{Centering, Prototypes};
use ssl::view_plan::ViewShape;
use tensor::Device;
use tensor::ops::{PixelData, Pixels};
use train::Position;
use train::optimizer::StepValues;
use train::reduce::nccl::LEAST_TO_BEGIN;
use train::reduce::{Reduce, SumMemory, Sums, Until, Wire};

use super::common::{dino_options, learner_options};
use super::company::{AT_THE_END, Company};

/// Images of a step in each process.
const BATCH: usize = 64;
const WARM_UP_STEPS: usize = 3;
const STEPS: usize = 8;

/// When gradients are summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    Never,
    AtTheEnd,
    Early,
}

/// Some steps of a network.
#[derive(Clone, Copy)]
pub struct Cost {
    pub arch: Arch,
    pub when: When,
}

impl Cost {
    pub fn in_words(self) -> String {
        format!("{}, {:?}", self.arch, self.when)
    }

    pub fn of_words(words: &str) -> Self {
        let (arch, when) = words.split_once(", ").unwrap();
        let known = [When::Never, When::AtTheEnd, When::Early];
        let when = known.into_iter().find(|known| format!("{known:?}") == when).unwrap();
        Self { arch: arch.parse().unwrap(), when }
    }

    /// The loss, milliseconds of a step, those in which the stream that computes waits for sums and for numbers of the method,
    /// and how often it waits for sums.
    pub fn measure(self, device: &Device, company: &Company) -> Vec<String> {
        let vit = VitConfig::new(self.arch, 16, (224, 224), 3).unwrap();
        let heads = HeadConfig {
            inputs: vit.dim,
            hidden: 2048,
            bottleneck: 256,
            prototypes: 65_536,
            layers: 3,
            batch_norm: false,
        };
        let method = dino_options((Prototypes::Vmf, Centering::Probability), heads, (224, 96, 8));
        let method: &dyn MethodSpec = &method;
        let options = learner_options(vit, 3.0, 5);
        let group = match self.when {
            When::Never => None,
            When::AtTheEnd => Some(company.where_leave(AT_THE_END)),
            When::Early => Some(company.where_leave(LEAST_TO_BEGIN)),
        };
        let lengths = parameter_lengths(device, &options, method).unwrap();
        let sums = group.as_ref().map_or(SumMemory::default(), |group| group.memory(&lengths, Wire::Exact));
        let need = MemoryNeed { options: &options, method, batch: BATCH, drop_path: 0.0, evaluated: None };
        plan_and_reserve_with_sums(device, &need, sums).unwrap();
        let mut learner =
            Learner::new(device, &options, |layout, vit, device| method.build(layout, vit, device)).unwrap();
        if let Some(group) = group {
            learner = learner.with_reduce(Box::new(group));
            learner.prepare_sums().unwrap();
        }
        self.steps(device, &mut learner, company)
    }

    fn steps(self, device: &Device, learner: &mut Learner, company: &Company) -> Vec<String> {
        let shapes = learner.views().shapes(BATCH);
        let noise = |(seed, shape): (u64, &ViewShape)| {
            let mut stream = Key::new(seed, Purpose::Bench).stream();
            (0..shape.bytes().div_ceil(8)).flat_map(|_| stream.bits().to_le_bytes()).take(shape.bytes()).collect()
        };
        let images: Vec<Vec<u8>> = (0..).zip(&shapes).map(noise).collect();
        let sent: Vec<_> = images.iter().map(|pixels| device.upload_pixels(pixels).unwrap()).collect();
        let group = |(&ViewShape { count, height, width, channels }, pixels)| {
            let data = PixelData::Uploaded { pixels, first: 0, mean: &[0.5; 3], deviation: &[0.25; 3] };
            Pixels { count, height, width, channels, data }
        };
        let groups: Vec<Pixels<'_>> = shapes.iter().zip(&sent).map(group).collect();
        let keys: Vec<u64> = (0..BATCH as u64).collect();
        let values = StepValues { lr: 1e-4, weight_decay: 0.04, momentum: 0.99, frozen: false, waiting_lr: 1.0 };
        let input = StepInput { groups: &groups, keys: &keys, drop_path: None };
        let mut one = |step: usize| learner.step(&input, Position { step: step as u64, epoch: 1 }, &values).unwrap();
        (0..WARM_UP_STEPS).for_each(|i| _ = one(i));
        // All begin to count at the same time, also those that have nothing else to do together.
        let mut together = company.group();
        let mut all_come = || together.any(false, Until::Limit).unwrap();
        device.finish().unwrap();
        all_come();
        let began = Instant::now();
        (0..STEPS).for_each(|i| _ = one(WARM_UP_STEPS + i));
        device.finish().unwrap();
        let each: Duration = began.elapsed() / STEPS as u32;
        all_come();
        let (report, kernels) = device.profile(|| one(WARM_UP_STEPS + STEPS));
        all_come();
        let of = |name: &str| kernels.iter().find(|kernel| (kernel.group, &*kernel.name) == ("nccl", name));
        let times = of("waiting for sums").map_or(0, |kernel| kernel.count);
        let waited = |name: &str| of(name).map_or(0.0, |kernel| kernel.milliseconds);
        let found = [
            report.loss,
            each.as_secs_f64() * 1e3,
            waited("waiting for sums"),
            waited("waiting for numbers"),
            times as f64,
        ];
        found.map(|number| number.to_string()).into()
    }
}
