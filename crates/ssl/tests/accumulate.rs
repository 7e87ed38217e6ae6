//! A step in parts is the whole step, whether one process takes them one after another or several at once.

mod common;

use std::sync::{Arc, Barrier, Mutex};

use common::{dino, dino_options, learner_options};
use model::{DropPath, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions, StepInput};
use ssl::method::dino::{Dino, DinoOptions};
use ssl::recipe::{Centering, Prototypes};
use tensor::ops::{PixelData, Pixels};
use tensor::{CpuOptions, Device, DeviceError, ParamSet, Precision};
use train::Position;
use train::optimizer::StepValues;
use train::reduce::Reduce;

const BATCH: usize = 6;
const LOCALS: usize = 3;
const GLOBAL: usize = 32;
const LOCAL: usize = 16;

const MODES: [(Prototypes, Centering); 3] = [
    (Prototypes::None, Centering::Logit),
    (Prototypes::Vmf, Centering::Logit),
    (Prototypes::Vmf, Centering::Probability),
];

fn learner(mode: (Prototypes, Centering), accumulate: usize) -> Learner<Dino> {
    let device = Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F64 }).unwrap();
    let vit = VitConfig { dim: 16, depth: 3, heads: 2, mlp_dim: 32, patch: 8, image: (GLOBAL, GLOBAL), channels: 3 };
    let head = HeadConfig { inputs: 16, hidden: 24, bottleneck: 16, prototypes: 20, layers: 3, batch_norm: false };
    let mut method: DinoOptions = dino_options(mode, head, (GLOBAL, LOCAL, LOCALS));
    method.target.center_momentum = 0.5;
    dino(&device, &LearnerOptions { accumulate, ..learner_options(vit, 3.0, 3) }, &method)
}

/// Trains on the images `from..to` of each step's batch. Losses, and at the end all weights and the centre.
fn train(mut learner: Learner<Dino>, from: usize, to: usize) -> (Vec<f64>, Vec<f64>) {
    let values = StepValues { lr: 1e-2, weight_decay: 0.1, momentum: 0.9, frozen: false };
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
        let keys = (0..2 + LOCALS).flat_map(|view| (from..to).map(move |b| (view, b))).map(|(view, b)| key(view, b));
        let drop_path = DropPath::draw(0.4, 3, keys);
        let keys: Vec<u64> = (from as u64..to as u64).collect();
        let input = StepInput { groups: &groups, keys: &keys, drop_path: Some(&drop_path) };
        losses.push(learner.step(&input, Position { step, epoch: 0 }, &values).unwrap().loss);
    }
    let mut end: Vec<f64> = learner.student.iter().flat_map(|t| t.to_f64()).collect();
    end.extend(learner.teacher.iter().flat_map(|t| t.to_f64()));
    end.extend(learner.method.loss().target().center().to_f64());
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
    for mode in MODES {
        let whole = train(learner(mode, 1), 0, BATCH);
        // Uneven parts, one image each, and more parts than images.
        for parts in [2, 4, 6, 9] {
            assert_same(&format!("{mode:?} in {parts}"), &train(learner(mode, parts), 0, BATCH), &whole);
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
    for mode in MODES {
        let whole = train(learner(mode, 1), 0, BATCH);
        // The second process takes its half in two parts, which changes nothing.
        let (brought, barrier) = (Arc::new(Mutex::new(vec![Vec::new(); 2])), Arc::new(Barrier::new(2)));
        let spawn = |rank: usize| {
            let threads = Threads { rank, brought: brought.clone(), barrier: barrier.clone() };
            let half = rank * BATCH / 2..(rank + 1) * BATCH / 2;
            std::thread::spawn(move || {
                train(learner(mode, 1 + rank).with_reduce(Box::new(threads)), half.start, half.end)
            })
        };
        let ranks = [spawn(0), spawn(1)].map(|thread| thread.join().unwrap());
        assert_eq!(ranks[0].1, ranks[1].1, "both hold the same weights, bit for bit");
        for rank in &ranks {
            assert_same(&format!("{mode:?}"), rank, &whole);
        }
    }
}
