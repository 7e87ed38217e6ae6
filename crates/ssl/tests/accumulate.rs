//! A step in parts is the whole step.

use model::{DropPath, HeadConfig, VitConfig};
use random::{Key, Purpose};
use ssl::learner::{Learner, LearnerOptions};
use ssl::loss::LossOptions;
use ssl::optimizer::OptimizerOptions;
use ssl::recipe::{Centering, Prototypes};
use ssl::schedule::StepValues;
use tensor::ops::{AdamW, PixelData, Pixels};
use tensor::{CpuOptions, Device, Precision};

const BATCH: usize = 5;
const LOCALS: usize = 3;

/// Losses, and at the end all weights and the centre.
fn train(prototypes: Prototypes, centering: Centering, accumulate: usize) -> (Vec<f64>, Vec<f64>) {
    let device = Device::cpu(CpuOptions { threads: Some(2), precision: Precision::F64 }).unwrap();
    let options = LearnerOptions {
        vit: VitConfig { dim: 16, depth: 3, heads: 2, mlp_dim: 32, patch: 8, image: (32, 32), channels: 3 },
        head: HeadConfig { inputs: 16, hidden: 24, bottleneck: 16, prototypes: 20, layers: 3, batch_norm: false },
        loss: LossOptions { prototypes, centering, student_temperature: 0.1, center_momentum: 0.5, center_floor: None },
        optimizer: OptimizerOptions { adam: AdamW::default(), clip: 3.0, train_magnitude: true, decay_magnitude: true },
        seed: 3,
        accumulate,
        checkpoint_activations: false,
    };
    let mut learner = Learner::new(&device, options).unwrap();
    let values = StepValues {
        epoch: 0,
        lr: 1e-2,
        weight_decay: 0.1,
        momentum: 0.9,
        teacher_temperature: 0.04,
        last_layer_frozen: false,
    };
    let noise = |seed: u64, count: usize| -> Vec<f64> {
        let mut stream = Key::new(seed, Purpose::Bench).stream();
        (0..count).map(|_| stream.normal()).collect()
    };
    let mut losses = Vec::new();
    for step in 0..4u64 {
        let (globals, locals) =
            (noise(2 * step, 2 * BATCH * 3 * 32 * 32), noise(2 * step + 1, LOCALS * BATCH * 3 * 16 * 16));
        let group = |views: usize, side, values| Pixels {
            count: views * BATCH,
            height: side,
            width: side,
            channels: 3,
            data: PixelData::Values(values),
        };
        let views = [group(2, 32, &globals[..]), group(LOCALS, 16, &locals[..])];
        let keys = (0..((2 + LOCALS) * BATCH) as u64).map(|s| Key::new(step, Purpose::DropPath).sample(s));
        let drop_path = DropPath::draw(0.4, 3, keys);
        losses.push(learner.step(&views, BATCH, Some(&drop_path), &values).unwrap().loss.loss);
    }
    let mut end: Vec<f64> = learner.student.iter().flat_map(|t| t.to_f64()).collect();
    end.extend(learner.loss.center().to_f64());
    (losses, end)
}

#[test]
fn parts_add_up_to_the_whole_step() {
    for (prototypes, centering) in [
        (Prototypes::None, Centering::Logit),
        (Prototypes::Vmf, Centering::Logit),
        (Prototypes::Vmf, Centering::Probability),
    ] {
        let (losses, end) = train(prototypes, centering, 1);
        // Uneven parts, one image each, and more parts than images.
        for parts in [2, 5, 9] {
            let (got, weights) = train(prototypes, centering, parts);
            let off = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            let (loss_off, weight_off) = (off(&got, &losses), off(&weights, &end));
            assert!(
                loss_off < 1e-9 && weight_off < 1e-8,
                "{prototypes:?} {centering:?} in {parts}: {loss_off:e}, {weight_off:e}"
            );
        }
    }
}
