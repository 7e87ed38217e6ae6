//! MSN's losses on printed digits, the derivative of a whole step, and what a random anchor keeps.

mod common;

use common::toy::{BATCH, Batch, HEAD, VIT};
use common::{assert_digits, f64_device, learner_options, norm};
use model::{HeadConfig, Layout, VitConfig};
use random::{Key, Purpose};
use ssl::learner::Learner;
use ssl::method::msn::{Msn, MsnOptions};
use ssl::method::{Method, Networks, StepPart};
use ssl::recipe::Prototypes;
use ssl::sinkhorn::sinkhorn;
use ssl::view_plan::{Sight, ViewGroup, ViewPlan};
use tensor::{Device, ParamId, ParamSet, Rows, Tensor, ops};
use train::Position;
use train::reduce::Alone;

/// The specification's toy: D = 8, K = 6, three anchor views of two images.
#[test]
fn cross_entropy_and_me_max_are_the_printed_ones() {
    const D: usize = 8;
    const K: usize = 6;
    const ROWS: usize = 6;
    let device = f64_device();
    let values = |rows: usize, phase: f64, step: f64| {
        let values: Vec<f64> = (0..rows * D).map(|i| (phase + step * i as f64).sin()).collect();
        device.from_f64(&[rows, D], &values)
    };
    let (anchors, prototypes) = (values(ROWS, 0.2, 0.47), values(K, 0.9, 0.71));
    let (g, none) = (device.from_f64(&[K, 1], &[1.0; K]), device.zeros(&[K]));
    let unit = |rows: &Tensor| ops::l2_normalize(rows, 1e-12);
    let (y, norms) = unit(&anchors);
    for (with_sinkhorn, loss, d_prototypes, d_anchors) in
        [(false, 9.339449653318, 1.8668670768, 2.0487394299), (true, 10.263708918179, 1.6415845893, 1.9876214082)]
    {
        let raw = ops::prototype_logits(&unit(&values(2, 0.6, 0.33)).0, &g, &prototypes).raw;
        let mut targets = ops::softmax(&raw, 1.0 / (0.1 * 0.25), &none).to_f64();
        if with_sinkhorn {
            sinkhorn(&mut targets, K, 3);
        }
        let targets = device.from_f64(&[2, K], &targets);
        let mut logits = ops::prototype_logits(&y, &g, &prototypes);
        let log_mean = ops::log_mean_softmax(&logits.raw, 10.0, &none);
        let me_max = (K as f64).ln() + log_mean.to_f64().iter().map(|u| u * u.exp()).sum::<f64>();
        assert_digits("me-max", me_max, 0.137532143367, 12);
        let of_me_max = ops::softmax_gradient(&logits.raw, 10.0, &none, &log_mean, 1.0 / ROWS as f64);
        let targets_of: Vec<Vec<usize>> = (0..ROWS).map(|row| vec![row % 2]).collect();
        let weights = [1.0 / ROWS as f64; ROWS];
        let losses = ops::cross_entropy(&mut logits.raw, 10.0, &none, &targets, &targets_of, &weights);
        assert_digits("cross-entropy", losses.iter().sum::<f64>() / ROWS as f64, loss, 12);
        ops::scatter_add(&of_me_max, &Rows::one_each(ROWS), 1.0, &mut logits.raw);
        logits.hold_gradient_of_scaled(10.0);
        let (mut dg, mut dv) = (device.zeros(&[K, 1]), device.zeros(&[K, D]));
        let dy = ops::prototype_logits_backward(&y, &g, &prototypes, logits, &mut dg, &mut dv);
        assert_digits("gradient of the prototypes", norm(dv.to_f64()), d_prototypes, 10);
        let d_rows = ops::l2_normalize_backward(&y, &norms, 1e-12, &dy);
        assert_digits("gradient of the anchors", norm(d_rows.to_f64()), d_anchors, 10);
    }
}

fn learner(device: &Device, prototypes: Prototypes, sinkhorn: bool) -> Learner<Msn> {
    let global = ViewGroup { size: (32, 32), sights: vec![Sight::Teacher, Sight::Student] };
    let focal = ViewGroup { size: (16, 16), sights: vec![Sight::Student; 2] };
    let options = MsnOptions {
        views: ViewPlan::new(vec![global, focal], 3),
        head: HeadConfig { prototypes: 10, ..HEAD },
        prototypes,
        temperature: 0.2,
        sharpening: 0.4,
        sinkhorn,
        me_max_weight: 1.7,
        koleo_weight: 0.3,
        lengths: Default::default(),
        patches: 16,
        patch_drop: 0.3,
        seed: 3,
    };
    let build = |layout: &mut Layout, _: &VitConfig, device: &Device| Msn::new(layout, device, options).map(Box::new);
    let mut learner = Learner::new(device, &learner_options(VIT, 0.0, 5), build).unwrap();
    for i in 0..learner.student.len() {
        let mut stream = Key::new(8, Purpose::Bench).sample(i as u64).stream();
        let id = ParamId(i);
        let mut moved = |t: &Tensor| t.to_f64().iter().map(|x| x + 0.15 * stream.normal()).collect::<Vec<f64>>();
        let (student, teacher) = (moved(&learner.student[id]), moved(&learner.teacher[id]));
        learner.student[id].copy_from_f64(&student);
        learner.teacher[id].copy_from_f64(&teacher);
    }
    learner
}

/// The loss of a step, and its gradient by every parameter.
fn gradient(learner: &mut Learner<Msn>) -> (f64, ParamSet) {
    let batch = Batch::new(1);
    let groups = batch.pixels();
    let plan = learner.views().clone();
    let views = plan.part(&groups, BATCH, 0..BATCH);
    let at = Position { step: 0, epoch: 0 };
    let (drop_path, backbone_learns, leaving) = (None, true, None);
    let part = StepPart { views, keys: &[4, 9], step_images: BATCH, drop_path, at, backbone_learns, leaving };
    let mut gradient = learner.student.zeros_like();
    let (device, vit) = (learner.device().clone(), learner.vit().clone());
    let networks = Networks { device: &device, vit: &vit, student: &learner.student, teacher: &learner.teacher };
    learner.method.start_step();
    let loss = learner.method.add_gradient(&networks, &part, &mut Alone, &mut gradient).unwrap();
    (loss, gradient)
}

/// Of everything but the prototypes: the targets depend on those too, and are taken as they are.
#[test]
fn the_gradient_of_a_step_is_that_of_its_loss() {
    const H: f64 = 1e-4;
    for (prototypes, sinkhorn) in [(Prototypes::L2, true), (Prototypes::Vmf, false)] {
        let mut learner = learner(&f64_device(), prototypes, sinkhorn);
        let (_, found) = gradient(&mut learner);
        for i in 0..learner.student.len() {
            let (id, name) = (ParamId(i), learner.layout().specs()[i].name.clone());
            if name.starts_with("prototypes") {
                continue;
            }
            let (start, found) = (learner.student[id].to_f64(), found[id].to_f64());
            let scale = found.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
            for j in (0..start.len()).step_by(1 + start.len() / 3) {
                let mut at = |step: f64| {
                    let mut moved = start.clone();
                    moved[j] += step;
                    learner.student[id].copy_from_f64(&moved);
                    gradient(&mut learner).0
                };
                let (near, far) = (at(H) - at(-H), at(2.0 * H) - at(-2.0 * H));
                let error = ((8.0 * near - far) / (12.0 * H) - found[j]).abs() / scale;
                assert!(error < 1e-7, "{name}[{j}]: off by {error:e}");
            }
            learner.student[id].copy_from_f64(&start);
        }
    }
}

#[test]
fn a_random_anchor_keeps_its_share_of_patches_whatever_stands_beside_it() {
    let learner = learner(&f64_device(), Prototypes::L2, true);
    let keys: Vec<u64> = (0..2000).collect();
    let kept = learner.method.options().draw_kept(&keys, 1);
    assert!(kept.iter().all(|kept| kept.len() == 11 && kept.is_sorted_by(|a, b| a < b)), "floor(16 * 0.7)");
    assert_eq!(kept[7], learner.method.options().draw_kept(&[7], 1)[0]);
    assert_ne!(kept[7], learner.method.options().draw_kept(&[7], 2)[0]);
    for patch in 0..16 {
        let share = kept.iter().filter(|kept| kept.contains(&patch)).count() as f64 / 2000.0;
        assert!((share - 11.0 / 16.0).abs() < 0.06, "{patch}: {share}");
    }
}
