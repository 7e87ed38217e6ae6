//! iBOT's loss on printed digits, the derivative of a whole step, and the masks it draws.

mod common;

use common::toy::{BATCH, Batch, HEAD, VIT};
use common::{assert_all_digits, assert_digits, dino_options, f64_device, learner_options};
use data::views::MultiCrop;
use model::Layout;
use random::{Key, Purpose};
use serde_json::Value;
use ssl::learner::Learner;
use ssl::loss::{Terms, TokenLoss};
use ssl::mask::{MaskOptions, Masks};
use ssl::method::dino::DinoOptions;
use ssl::method::ibot::{Ibot, IbotOptions};
use ssl::method::{Method, Networks, StepPart};
use ssl::recipe::{Centering, Interval, MaskShape, Prototypes};
use ssl::target::{Side, TargetOptions};
use ssl::view_plan::ViewPlan;
use tensor::{Device, ParamId, ParamSet, Tensor, ops};
use train::Position;
use train::curve::Curve;
use train::reduce::Alone;

/// The specification's toy: K = 5, two images, nine patches, two global and two local views; logits are given.
#[test]
fn the_loss_of_class_tokens_and_patches_is_the_printed_one() {
    const K: usize = 5;
    let device = f64_device();
    let values = |rows: usize, phase: f64, step: f64| {
        let values: Vec<f64> = (0..rows * K).map(|i| (phase + step * i as f64).sin()).collect();
        device.from_f64(&[rows, K], &values)
    };
    // Prototypes along the axes: what is compared with them is the logit.
    let (g, axes) = (device.from_f64(&[K, 1], &[1.0; K]), identity(&device, K));
    let side = |rows: &Tensor| Side { logits: ops::prototype_logits(rows, &g, &axes), magnitude: &g };
    let options = TargetOptions {
        prototypes: Prototypes::None,
        centering: Centering::Logit,
        center_momentum: 0.9,
        center_floor: None,
    };
    let loss = || TokenLoss::new(&device, K, 16, options, 0.1).unwrap();
    let mut unused = device.zeros(&[K, 1]);

    let mut class = loss();
    let joined = [values(4, 0.1, 0.37).to_f64(), values(4, 0.5, 0.61).to_f64()].concat();
    let teacher = class.teacher(side(&values(4, 0.3, 0.53)), 0.04);
    let plan = ViewPlan::multi_crop(&MultiCrop { local_crops: 2, ..MultiCrop::dino() }, 3);
    let terms = Terms::of_pairs(&plan.pairs(), 2, 2);
    let student = device.from_f64(&[8, K], &joined);
    let (_, report) = class.between_views(side(&student), &teacher, 2, &terms, &mut unused).unwrap();
    class.target_mut().end_step(&mut Alone).unwrap();
    assert_digits("class", report.loss, 3.149792501095, 12);
    let centre = [0.0194320107, 0.0213595067, 0.0174262561, 0.0087114873, -0.0023935905];
    assert_all_digits("centre of class tokens", &class.target().center().to_f64(), &centre, 10);

    // Masks by view and by the number n of a patch among those of both images; the second image's second view has none.
    let is_masked = |row: usize| (0.7 * (row / 18) as f64 + 0.1 + 1.3 * (row % 18) as f64).sin() > 0.2;
    let masked: Vec<usize> = (0..27).filter(|&row| is_masked(row)).collect();
    let count = |row: usize| masked.iter().filter(|&&other| other / 9 == row / 9).count();
    let weights = masked.iter().map(|&row| 1.0 / (count(row) * 2 * 2) as f64).collect();
    let mut patch = loss();
    let all = patch.teacher(side(&values(36, 0.4, 0.29)), 0.07);
    patch.observe(&all, 36);
    let rows = tensor::Rows::some(36, &masked);
    let targets = patch.teacher(side(&ops::gather(&values(36, 0.4, 0.29), &rows, 1.0)), 0.07);
    let targets = patch.targets(&targets).unwrap();
    let student = side(&ops::gather(&values(36, 0.2, 0.41), &rows, 1.0));
    let (_, loss) = patch.cross_entropy(student, &targets, &Terms::one_to_one(weights), &mut unused).unwrap();
    patch.target_mut().end_step(&mut Alone).unwrap();
    assert_digits("patch", loss, 4.957863337621, 12);
    let centre = [0.0020658639, 0.0027692946, 0.0032414553, 0.0034429148, 0.0033568487];
    assert_all_digits("centre of patches", &patch.target().center().to_f64(), &centre, 10);
}

fn identity(device: &Device, size: usize) -> Tensor {
    let values: Vec<f64> = (0..size * size).map(|i| f64::from(u8::from(i / size == i % size))).collect();
    device.from_f64(&[size, size], &values)
}

fn masks_of(shape: MaskShape) -> MaskOptions {
    MaskOptions { shape, masked_views: 0.5, ratio: Interval { low: 0.1, high: 0.5 }, first_epoch: 2 }
}

fn learner(device: &Device, own_prototypes: Option<usize>) -> Learner<Ibot> {
    let options = IbotOptions {
        class: DinoOptions {
            koleo_weight: 0.2,
            lengths: Default::default(),
            ..dino_options((Prototypes::Vmf, Centering::Probability), HEAD, (32, 16, 2))
        },
        grid: (4, 4),
        own_prototypes,
        patch_temperature: Curve::Constant(0.06),
        patch_temperature_from: 0,
        masks: masks_of(MaskShape::Block),
        seed: 3,
        class_weight: 0.8,
        patch_weight: 1.3,
    };
    let build = |layout: &mut Layout, vit: &model::VitConfig, device: &Device| {
        Ibot::new(layout, vit, device, options).map(Box::new)
    };
    let mut learner = Learner::new(device, &learner_options(VIT, 0.0, 5), build).unwrap();
    // Larger than at a start: every parameter then matters to the loss. And a teacher that is somebody else.
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
fn gradient(learner: &mut Learner<Ibot>, masks: &Masks) -> (f64, ParamSet) {
    let batch = Batch::new(1);
    let groups = batch.pixels();
    let plan = learner.views().clone();
    let views = plan.part(&groups, BATCH, 0..BATCH);
    let at = Position { step: 0, epoch: 0 };
    let (drop_path, backbone_learns, leaving) = (None, true, None);
    let part = StepPart { views, keys: &[0; BATCH], step_images: BATCH, drop_path, at, backbone_learns, leaving };
    let mut gradient = learner.student.zeros_like();
    let (device, vit) = (learner.device().clone(), learner.vit().clone());
    let networks = Networks { device: &device, vit: &vit, student: &learner.student, teacher: &learner.teacher };
    learner.method.start_step();
    let loss = learner.method.add_gradient_masked(&networks, &part, masks, &mut Alone, &mut gradient).unwrap();
    (loss, gradient)
}

#[test]
fn the_gradient_of_a_step_is_that_of_its_loss() {
    const H: f64 = 1e-4;
    let masks = Masks { of_views: vec![vec![0, 1, 5], vec![], vec![2, 3, 9, 14, 15], vec![7]] };
    for own_prototypes in [None, Some(20)] {
        let mut learner = learner(&f64_device(), own_prototypes);
        let (_, found) = gradient(&mut learner, &masks);
        for i in 0..learner.student.len() {
            let (id, name) = (ParamId(i), learner.layout().specs()[i].name.clone());
            let (start, found) = (learner.student[id].to_f64(), found[id].to_f64());
            let scale = found.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
            for j in (0..start.len()).step_by(1 + start.len() / 3) {
                let mut at = |step: f64| {
                    let mut moved = start.clone();
                    moved[j] += step;
                    learner.student[id].copy_from_f64(&moved);
                    gradient(&mut learner, &masks).0
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
fn masks_are_those_of_an_image_and_view_whatever_stands_beside_it() {
    let learner = learner(&f64_device(), None);
    let (all, some) =
        (learner.method.options().draw_masks(&[4, 9, 7], 2), learner.method.options().draw_masks(&[7, 4], 2));
    assert_eq!(all.of_views.len(), 6);
    assert_eq!((&some.of_views[0], &some.of_views[3]), (&all.of_views[2], &all.of_views[3]));
    let many: Vec<u64> = (0..40).collect();
    assert_eq!(learner.method.options().draw_masks(&many, 1).count(), 0, "before the first epoch with masks");
    assert_ne!(learner.method.options().draw_masks(&many, 2), learner.method.options().draw_masks(&many, 3));
}

#[test]
fn masks_have_the_described_distribution() {
    const DRAWS: usize = 10_000;
    let cases: Vec<Value> = serde_json::from_str(include_str!("fixtures/mask_statistics.json")).unwrap();
    for case in &cases {
        let number = |key: &str| case[key].as_f64().unwrap();
        let shape = MaskShape::of_word(case["shape"].as_str().unwrap()).unwrap();
        let side = |i: usize| case["grid"][i].as_u64().unwrap() as usize;
        let (rows, columns) = (side(0), side(1));
        let key = Key::new(1, Purpose::Mask);
        let drawn = (0..DRAWS).map(|i| masks_of(shape).draw(key.sample(i as u64), 2, (rows, columns)));
        let (masked, whole): (Vec<Vec<usize>>, Vec<_>) = drawn.partition(|mask| !mask.is_empty());
        let n = masked.len() as f64;
        // Five standard errors: a test that fails once in a million draws of its seed.
        let near = |what: &str, got: f64, want: f64, deviation: f64| {
            let error = 5.0 * deviation / n.sqrt();
            assert!((got - want).abs() < error, "{shape} {rows}x{columns}, {what}: {got} is not {want} within {error}");
        };
        let chance = |what: &str, got: usize, want: f64| near(what, got as f64 / n, want, (want * (1.0 - want)).sqrt());
        near("whole", whole.len() as f64 / DRAWS as f64, number("whole"), 0.5);
        let patches = (rows * columns) as f64;
        let mean = masked.iter().map(|mask| mask.len() as f64 / patches).sum::<f64>() / n;
        near("mean", mean, number("mean"), number("deviation"));
        for (i, share) in [0.25, 0.5, 0.75].into_iter().enumerate() {
            let quartile = case["quartiles"][i].as_f64().unwrap();
            let below = masked.iter().filter(|mask| (mask.len() as f64 / patches) < quartile - 1e-9).count() as f64 / n;
            let up_to = masked.iter().filter(|mask| mask.len() as f64 / patches <= quartile + 1e-9).count() as f64 / n;
            let error = 5.0 * (share * (1.0 - share) / n).sqrt();
            assert!(below < share + error && share - error < up_to, "{shape}, quartile {i}: {below} to {up_to}");
        }
        let middle = (rows / 2) * columns + columns / 2;
        chance("corner", masked.iter().filter(|mask| mask.contains(&0)).count(), number("corner"));
        chance("middle", masked.iter().filter(|mask| mask.contains(&middle)).count(), number("middle"));
        let has_right = |mask: &[usize], patch: usize| patch % columns + 1 < columns && mask.contains(&(patch + 1));
        let neighbours =
            |mask: &Vec<usize>| mask.iter().filter(|&&patch| has_right(mask, patch)).count() as f64 / mask.len() as f64;
        let mean = masked.iter().map(neighbours).sum::<f64>() / n;
        near("neighbours", mean, number("neighbours"), number("neighbours_deviation"));
    }
}
