//! A step in parts is the whole step, whether one process takes them one after another or several at once.

mod common;

use std::sync::{Arc, Barrier, Mutex};

use common::{dino_options, learner_options};
use model::{DropPath, Extras, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::mask::MaskOptions;
use ssl::method::MethodSpec;
use ssl::method::dino::DinoOptions;
use ssl::method::ibot::IbotOptions;
use ssl::method::msn::MsnOptions;
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::view_plan::{Sight, ViewGroup, ViewPlan};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, DeviceError, ParamSet, Precision};
use train::Position;
use train::curve::Curve;
use train::optimizer::StepValues;
use train::reduce::Reduce;

const BATCH: usize = 6;
const LOCALS: usize = 3;
const GLOBAL: usize = 32;
const LOCAL: usize = 16;

const HEAD: HeadConfig =
    HeadConfig { inputs: 16, hidden: 24, bottleneck: 16, prototypes: 20, layers: 3, batch_norm: false };

/// Every method in several modes.
fn methods() -> Vec<Arc<dyn MethodSpec>> {
    let class = |mode| {
        let mut class: DinoOptions = dino_options(mode, HEAD, (GLOBAL, LOCAL, LOCALS));
        class.target.center_momentum = 0.5;
        class.koleo_weight = 0.1;
        class
    };
    let plain = class((Prototypes::None, Centering::Logit));
    let vmf = class((Prototypes::Vmf, Centering::Probability));
    let ibot = |class: &DinoOptions, own_prototypes| IbotOptions {
        class: class.clone(),
        grid: (4, 4),
        own_prototypes,
        patch_temperature: Curve::Constant(0.05),
        patch_temperature_from: 0,
        masks: MaskOptions {
            shape: MaskShape::Block,
            masked_views: 0.7,
            ratio: Interval { low: 0.2, high: 0.5 },
            first_epoch: 0,
        },
        seed: 5,
        class_weight: 1.0,
        patch_weight: 0.8,
    };
    let global = ViewGroup { size: (GLOBAL, GLOBAL), sights: vec![Sight::Teacher, Sight::Student] };
    let focal = ViewGroup { size: (LOCAL, LOCAL), sights: vec![Sight::Student; LOCALS] };
    let msn = |prototypes, sinkhorn| MsnOptions {
        views: ViewPlan::new(vec![global.clone(), focal.clone()], 3),
        head: HEAD,
        prototypes,
        temperature: 0.1,
        sharpening: 0.25,
        sinkhorn,
        me_max_weight: 1.0,
        koleo_weight: 0.2,
        patches: 16,
        patch_drop: 0.3,
        seed: 5,
    };
    vec![
        Arc::new(plain.clone()),
        Arc::new(class((Prototypes::Vmf, Centering::Logit))),
        Arc::new(vmf.clone()),
        Arc::new(ibot(&plain, None)),
        Arc::new(ibot(&vmf, Some(12))),
        Arc::new(msn(Prototypes::L2, true)),
        Arc::new(msn(Prototypes::Vmf, false)),
    ]
}

fn learner(method: &dyn MethodSpec, accumulate: usize) -> Learner {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F64 }).unwrap();
    let vit = VitConfig {
        dim: 16,
        depth: 3,
        heads: 2,
        mlp_dim: 32,
        patch: 8,
        image: (GLOBAL, GLOBAL),
        channels: 3,
        extras: Extras::NONE,
    };
    let options = LearnerOptions { accumulate, ..learner_options(vit, 3.0, 3) };
    Learner::new(&device, &options, |layout, vit, device| method.build(layout, vit, device)).unwrap()
}

/// Trains on the images `from..to` of each step's batch. Losses, and at the end all weights.
fn train(mut learner: Learner, from: usize, to: usize) -> (Vec<f64>, Vec<f64>) {
    let values = StepValues { lr: 1e-2, weight_decay: 0.1, momentum: 0.9, frozen: false, waiting_lr: 1.0 };
    let mut losses = Vec::new();
    for step in 0..4u64 {
        let key = |view: usize, image: usize| Key::new(step, Purpose::Bench).sample(image as u64).view(view as u32);
        let image = |view: usize, image: usize, side: usize| -> Vec<f64> {
            let mut stream = key(view, image).stream();
            (0..3 * side * side).map(|_| stream.normal()).collect()
        };
        let group = |views: std::ops::Range<usize>, side: usize| -> Vec<f64> {
            views.flat_map(|view| (from..to).flat_map(move |b| image(view, b, side))).collect()
        };
        let (globals, locals) = (group(0..2, GLOBAL), group(2..2 + LOCALS, LOCAL));
        let pixels = |views: usize, side: usize, values| {
            let count = views * (to - from);
            Pixels { count, height: side, width: side, channels: 3, data: PixelData::Values(values) }
        };
        let groups = [pixels(2, GLOBAL, &globals), pixels(LOCALS, LOCAL, &locals)];
        let keys: Vec<u64> = (from as u64..to as u64).collect();
        let rows = learner.views().student_keys(Key::new(step, Purpose::DropPath), &keys);
        let drop_path = DropPath::draw(0.4, 3, rows);
        let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
        losses.push(learner.step(&input, Position { step, epoch: 0 }, &values).unwrap().loss);
    }
    let mut end: Vec<f64> = learner.student.iter().flat_map(|t| t.to_f64()).collect();
    end.extend(learner.teacher.iter().flat_map(|t| t.to_f64()));
    (losses, end)
}

#[track_caller]
fn assert_same(what: &str, got: &(Vec<f64>, Vec<f64>), want: &(Vec<f64>, Vec<f64>)) {
    let off = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (loss_off, weight_off) = (off(&got.0, &want.0), off(&got.1, &want.1));
    assert!(loss_off < 1e-9 && weight_off < 1e-8, "{what}: {loss_off:e}, {weight_off:e}");
}

#[test]
fn parts_add_up_to_the_whole_step() {
    for method in methods() {
        let whole = train(learner(&*method, 1), 0, BATCH);
        // Uneven parts, one image each, and more parts than images.
        for parts in [2, 4, 6, 9] {
            assert_same(&format!("{method:?} in {parts}"), &train(learner(&*method, parts), 0, BATCH), &whole);
        }
    }
}

/// Processes that are threads of this one. What each brings is added up in the order of their numbers.
struct Threads {
    rank: usize,
    brought: Arc<Mutex<Vec<Vec<f64>>>>,
    barrier: Arc<Barrier>,
}

impl Threads {
    fn exchange(&self, here: Vec<f64>) -> Vec<Vec<f64>> {
        self.brought.lock().unwrap()[self.rank] = here;
        self.barrier.wait();
        let all = self.brought.lock().unwrap().clone();
        // Nobody brings the next thing before all have read this one.
        self.barrier.wait();
        all
    }
}

impl Reduce for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.brought.lock().unwrap().len()
    }

    fn sum(&mut self, tensors: &mut ParamSet) -> Result<(), DeviceError> {
        for tensor in tensors.tensors_mut() {
            let all = self.exchange(tensor.to_f64());
            let sum: Vec<f64> = (0..tensor.len()).map(|i| all.iter().map(|rank| rank[i]).sum()).collect();
            tensor.copy_from_f64(&sum);
        }
        Ok(())
    }

    fn gather(&mut self, here: &[f64]) -> Result<Vec<Vec<f64>>, DeviceError> {
        Ok(self.exchange(here.to_vec()))
    }

    fn any(&mut self, here: bool) -> Result<bool, DeviceError> {
        Ok(self.exchange(vec![f64::from(here)]).iter().any(|rank| rank[0] != 0.0))
    }
}

#[test]
fn two_processes_with_half_the_batch_each_train_as_one() {
    for method in methods() {
        let whole = train(learner(&*method, 1), 0, BATCH);
        // The second process takes its half in two parts, which changes nothing.
        let (brought, barrier) = (Arc::new(Mutex::new(vec![Vec::new(); 2])), Arc::new(Barrier::new(2)));
        let spawn = |rank: usize| {
            let threads = Threads { rank, brought: brought.clone(), barrier: barrier.clone() };
            let half = rank * BATCH / 2..(rank + 1) * BATCH / 2;
            let method = method.clone();
            std::thread::spawn(move || {
                train(learner(&*method, 1 + rank).with_reduce(Box::new(threads)), half.start, half.end)
            })
        };
        let ranks = [spawn(0), spawn(1)].map(|thread| thread.join().unwrap());
        assert_eq!(ranks[0].1, ranks[1].1, "both hold the same weights, bit for bit");
        for rank in &ranks {
            assert_same(&format!("{method:?}"), rank, &whole);
        }
    }
}
