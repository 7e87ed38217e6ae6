//! The loss on a toy problem, against printed digits, in every mode of the paper's ablation; and what must hold for any
//! numbers.

mod common;

use common::{assert_all_digits, assert_digits, f64_device, norm};
use data::views::MultiCrop;
use random::{Key, Purpose};
use ssl::loss::{LossReport, Terms, TokenLoss};
use ssl::recipe::{Centering, Prototypes};
use ssl::target::{Side, TargetOptions};
use ssl::view_plan::{Pairs, ViewPlan};
use tensor::{CpuOptions, Device, Tensor, ops};
use train::reduce::Alone;

const MOMENTUM: f64 = 0.9;
const STUDENT_TEMPERATURE: f64 = 0.1;
const EPSILON: f64 = 1e-12;

fn options(prototypes: Prototypes, centering: Centering) -> TargetOptions {
    TargetOptions { prototypes, centering, center_momentum: MOMENTUM, center_floor: None }
}

/// Images with two global views and others up to `views`.
#[derive(Clone, Copy)]
struct Pairing {
    batch: usize,
    views: usize,
}

impl Pairing {
    fn pairs(self) -> Pairs {
        ViewPlan::multi_crop(&MultiCrop { local_crops: self.views - 2, ..MultiCrop::dino() }, 3).pairs()
    }
}

/// One problem: prototypes shared by both sides, and rows before they are made unit vectors, view by view.
#[derive(Clone)]
struct Problem {
    p: usize,
    pairing: Pairing,
    magnitude: Vec<f64>,
    direction: Vec<f64>,
    student: Vec<f64>,
    teacher: Vec<f64>,
    center: Vec<f64>,
    teacher_temperature: f64,
}

/// What a loss gives for a problem.
struct Outcome {
    report: LossReport,
    d_magnitude: Vec<f64>,
    d_direction: Vec<f64>,
    d_student: Vec<f64>,
    center: Vec<f64>,
}

impl Problem {
    /// The specification's toy: K = 6, p = 16, two images, four views.
    fn toy() -> Self {
        let grid = |rows: usize, f: fn(f64, f64) -> f64| {
            (0..rows * 16).map(|i| f((i / 16) as f64, (i % 16) as f64)).collect::<Vec<_>>()
        };
        Self {
            p: 16,
            pairing: Pairing { batch: 2, views: 4 },
            magnitude: (0..6).map(|k| 1.0 + 0.5 * f64::from(k)).collect(),
            direction: grid(6, |k, j| (1.0 + 0.7 * k + 0.3 * j).sin()),
            student: grid(8, |n, j| (0.5 + 0.8 * n + 0.55 * j).sin()),
            teacher: grid(4, |n, j| (0.2 + 0.9 * n + 0.45 * j).cos()),
            center: (0..6).map(|k| 0.05 * f64::from(k)).collect(),
            teacher_temperature: 0.05,
        }
    }

    /// Random normal values, unit magnitudes and no centre.
    fn random(seed: u64, p: usize, count: usize, pairing: Pairing) -> Self {
        let normal = |stream: u64, n: usize| {
            let mut stream = Key::new(seed, Purpose::Bench).sample(stream).stream();
            (0..n).map(|_| stream.normal()).collect::<Vec<_>>()
        };
        Self {
            p,
            pairing,
            magnitude: vec![1.0; count],
            direction: normal(0, count * p),
            student: normal(1, pairing.views * pairing.batch * p),
            teacher: normal(2, 2 * pairing.batch * p),
            center: vec![0.0; count],
            teacher_temperature: 0.05,
        }
    }

    fn unit_magnitudes(self) -> Self {
        Self { magnitude: vec![1.0; self.magnitude.len()], ..self }
    }

    /// One image of each view, with the same weights.
    fn worker(&self, image: usize) -> Self {
        let pick = |rows: &[f64]| {
            let rows = rows.chunks(self.p).skip(image).step_by(self.pairing.batch);
            rows.flatten().copied().collect::<Vec<_>>()
        };
        Self {
            pairing: Pairing { batch: 1, ..self.pairing },
            student: pick(&self.student),
            teacher: pick(&self.teacher),
            ..self.clone()
        }
    }

    fn run(&self, device: &Device, options: TargetOptions) -> Outcome {
        let count = self.magnitude.len();
        let tensor = |values: &[f64], columns: usize| device.from_f64(&[values.len() / columns, columns], values);
        let (g, v) = (tensor(&self.magnitude, 1), tensor(&self.direction, self.p));
        let side = |rows: &[f64]| {
            let (y, norms) = ops::l2_normalize(&tensor(rows, self.p), EPSILON);
            let logits = ops::prototype_logits(&y, &g, &v);
            (y, norms, Side { logits, magnitude: &g })
        };
        let (y, norms, student) = side(&self.student);
        let (_, _, teacher) = side(&self.teacher);

        let mut loss = TokenLoss::new(device, count, self.p, options, STUDENT_TEMPERATURE).unwrap();
        loss.target_mut().center_mut().copy_from_f64(&self.center);
        let (mut dg, mut dv) = (device.zeros(&[count, 1]), device.zeros(v.shape()));
        let images = self.pairing.batch;
        let terms = Terms::of_pairs(&self.pairing.pairs(), images, images);
        let teacher = loss.teacher(teacher, self.teacher_temperature);
        let (d_logits, report) = loss.between_views(student, &teacher, images, &terms, &mut dg).unwrap();
        loss.target_mut().end_step(&mut Alone).unwrap();
        let dy = ops::prototype_logits_backward(&y, &g, &v, d_logits, &mut dg, &mut dv);
        let dz = ops::l2_normalize_backward(&y, &norms, EPSILON, &dy);
        Outcome {
            report,
            d_magnitude: dg.to_f64(),
            d_direction: dv.to_f64(),
            d_student: dz.to_f64(),
            center: loss.target().center().to_f64(),
        }
    }

    /// <w_k, y_n> for the teacher's rows, by plain loops.
    fn teacher_logits(&self) -> Vec<Vec<f64>> {
        let unit = |x: &[f64]| {
            let length = norm(x.iter().copied());
            x.iter().map(|x| x / length).collect::<Vec<f64>>()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let prototypes: Vec<Vec<f64>> = self.direction.chunks(self.p).map(unit).collect();
        let logits = |y: &[f64]| {
            let y = unit(y);
            prototypes.iter().zip(&self.magnitude).map(|(w, g)| g * dot(w, &y)).collect::<Vec<f64>>()
        };
        self.teacher.chunks(self.p).map(logits).collect()
    }
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|l| (l - largest).exp()).sum();
    logits.iter().map(|l| (l - largest).exp() / total).collect()
}

/// Largest difference, relative to the largest value.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = a.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / scale
}

#[track_caller]
fn assert_toy(outcome: &Outcome, loss: f64, d_magnitude: Option<[f64; 6]>, d_direction: f64, d_student: f64) {
    assert_digits("loss", outcome.report.loss, loss, 12);
    if let Some(printed) = d_magnitude {
        assert_all_digits("dL/dg", &outcome.d_magnitude, &printed, 10);
    }
    assert_digits("|dL/dv|", norm(outcome.d_direction.iter().copied()), d_direction, 10);
    assert_digits("|dL/dz_s|", norm(outcome.d_student.iter().copied()), d_student, 10);
}

#[test]
fn free_norms_with_logit_centering_give_the_printed_digits() {
    let outcome = Problem::toy().run(&f64_device(), options(Prototypes::None, Centering::Logit));
    let dg = [0.5390014837, 0.369997942, 1.0457414949, 0.7671244092, 0.3777381116, 1.4890720458];
    assert_toy(&outcome, 11.805039575579, Some(dg), 4.7736770518, 4.2626064532);
    let center = [-0.0425979388, -0.011955292, 0.0652069641, 0.1889854029, 0.2984204707, 0.3731320531];
    assert_all_digits("centre", &outcome.center, &center, 10);
}

#[test]
fn free_norms_with_probability_centering_give_the_printed_digits() {
    let outcome = Problem::toy().run(&f64_device(), options(Prototypes::None, Centering::Probability));
    let dg = [0.5390014906, 0.369997942, 1.0456511994, 0.7671854336, 0.3717759801, 1.490206726];
    assert_toy(&outcome, 11.791096538591, Some(dg), 4.7676211848, 4.2674733255);
    let center = [-2.3773258556, -3.073941087, -0.9511382691, -0.0036435698, 0.0371102288, 0.1577502908];
    assert_all_digits("centre", &outcome.center, &center, 10);
}

#[test]
fn unit_norms_give_the_printed_digits() {
    let toy = Problem::toy().unit_magnitudes();
    let logit = toy.run(&f64_device(), options(Prototypes::L2, Centering::Logit));
    assert_toy(&logit, 5.2023332549, None, 1.5575175719, 1.6779057885);
    let probability = toy.run(&f64_device(), options(Prototypes::L2, Centering::Probability));
    assert_toy(&probability, 5.201685585145, None, 1.5637474302, 1.7565766863);
    let center = [-0.8839234582, -1.1357953122, -0.1683281386, -0.0296106082, 0.0302985156, 0.1572185524];
    assert_all_digits("centre", &probability.center, &center, 10);
}

#[test]
fn vmf_prototypes_give_the_printed_digits_with_either_centering() {
    let logit = [-1.7256131727, -2.70521604, -2.8219875284, -2.0465046331, -1.5843426148, -1.8354034664];
    let probability = [-0.1386294354, -1.4686167285, -0.150712981, -0.0476016442, 0.0409180067, 0.0863710667];
    for (centering, center) in [(Centering::Logit, logit), (Centering::Probability, probability)] {
        let outcome = Problem::toy().run(&f64_device(), options(Prototypes::Vmf, centering));
        let dg = [-1.2434688323, -0.246875189, 0.5282048375, 1.1418437603, 2.0270229302, 2.1956608074];
        assert_toy(&outcome, 14.110618884757, Some(dg), 2.4621469083, 3.3987570875);
        assert_all_digits("centre", &outcome.center, &center, 10);
    }
}

#[test]
fn with_unit_norms_the_log_normaliser_changes_nothing() {
    let toy = Problem::toy().unit_magnitudes();
    let without = toy.run(&f64_device(), options(Prototypes::L2, Centering::Probability));
    let with = toy.run(&f64_device(), options(Prototypes::Vmf, Centering::Probability));
    assert!((with.report.loss - without.report.loss).abs() < 1e-13);
    assert!(difference(&with.d_direction, &without.d_direction) < 1e-13);
    assert!(difference(&with.d_student, &without.d_student) < 1e-13);
    assert!(difference(&with.center, &without.center) < 1e-13);
}

#[test]
fn a_probability_centre_may_be_shifted_by_a_constant() {
    let toy = Problem::toy();
    let shifted = Problem { center: toy.center.iter().map(|c| c - 6f64.ln()).collect(), ..toy.clone() };
    let vmf = options(Prototypes::Vmf, Centering::Probability);
    let (a, b) = (toy.run(&f64_device(), vmf), shifted.run(&f64_device(), vmf));
    assert!((a.report.loss - b.report.loss).abs() < 1e-13);
    assert!(difference(&a.d_student, &b.d_student) < 1e-12);
}

#[test]
fn a_probability_centre_moves_towards_the_log_of_the_mean_probability() {
    // Small magnitudes, so that the plain mean does not underflow.
    let toy = Problem { magnitude: vec![0.2; 6], ..Problem::toy() };
    let rows: Vec<Vec<f64>> = toy
        .teacher_logits()
        .iter()
        .map(|row| softmax(&row.iter().map(|l| l / toy.teacher_temperature).collect::<Vec<_>>()))
        .collect();
    let mean = |k: usize| rows.iter().map(|row| row[k]).sum::<f64>() / rows.len() as f64;
    let plain: Vec<f64> = (0..6).map(|k| MOMENTUM * toy.center[k] + (1.0 - MOMENTUM) * mean(k).ln()).collect();
    let outcome = toy.run(&f64_device(), options(Prototypes::None, Centering::Probability));
    assert!(difference(&plain, &outcome.center) < 1e-13);
}

#[test]
fn equal_prototypes_get_equal_centres() {
    let mut problem = Problem::random(4, 16, 6, Pairing { batch: 3, views: 4 });
    problem.direction.copy_within(0..16, 5 * 16);
    let outcome = problem.run(&f64_device(), options(Prototypes::Vmf, Centering::Probability));
    assert_eq!(outcome.center[0], outcome.center[5]);
    assert_ne!(outcome.center[0], outcome.center[1]);
}

#[test]
fn two_views_make_two_terms() {
    let problem = Problem::random(5, 16, 7, Pairing { batch: 3, views: 2 });
    assert_eq!(problem.pairing.pairs().terms(), 2);
    assert_eq!(Pairing { batch: 3, views: 10 }.pairs().terms(), 18);
    assert_eq!(Pairing { batch: 3, views: 12 }.pairs().terms(), 22);

    let temper = |rows: Vec<Vec<f64>>, tau: f64| {
        rows.iter().map(|r| softmax(&r.iter().map(|l| l / tau).collect::<Vec<_>>())).collect::<Vec<_>>()
    };
    let q = temper(problem.teacher_logits(), problem.teacher_temperature);
    let student_as_teacher = Problem { teacher: problem.student.clone(), ..problem.clone() };
    let p = temper(student_as_teacher.teacher_logits(), STUDENT_TEMPERATURE);
    let cross = |q: &[f64], p: &[f64]| -q.iter().zip(p).map(|(q, p)| q * p.ln()).sum::<f64>();
    // Rows 0..3 are the first view, 3..6 the second; each meets the other view of its own image.
    let pairs = (0..3).map(|b| cross(&q[b], &p[3 + b]) + cross(&q[3 + b], &p[b]));
    let want = pairs.sum::<f64>() / 6.0;
    let got = problem.run(&f64_device(), options(Prototypes::None, Centering::Logit)).report.loss;
    assert!((got - want).abs() < 1e-13, "{got} {want}");
}

#[test]
fn a_student_that_agrees_with_its_teacher_pays_the_entropy() {
    let mut problem = Problem::random(6, 16, 9, Pairing { batch: 2, views: 4 });
    problem.teacher_temperature = STUDENT_TEMPERATURE;
    problem.teacher.copy_within(0..32, 32);
    problem.student = problem.teacher.repeat(2);
    let rows = problem.teacher_logits();
    let entropy = |row: &[f64]| {
        let q = softmax(&row.iter().map(|l| l / STUDENT_TEMPERATURE).collect::<Vec<_>>());
        -q.iter().map(|q| q * q.ln()).sum::<f64>()
    };
    let want = rows.iter().map(|row| entropy(row)).sum::<f64>() / rows.len() as f64;
    for prototypes in [Prototypes::None, Prototypes::L2, Prototypes::Vmf] {
        let outcome = problem.run(&f64_device(), options(prototypes, Centering::Probability));
        assert!((outcome.report.loss - want).abs() < 1e-13, "{prototypes}: {} {want}", outcome.report.loss);
        assert!((outcome.report.teacher_entropy - want).abs() < 1e-13);
        assert!(norm(outcome.d_student) < 1e-13, "{prototypes}: no gradient at the minimum");
    }
}

#[test]
fn two_workers_with_half_the_batch_each_agree_with_one() {
    let modes = [
        (Prototypes::None, Centering::Logit),
        (Prototypes::None, Centering::Probability),
        (Prototypes::Vmf, Centering::Logit),
        (Prototypes::Vmf, Centering::Probability),
    ];
    for (prototypes, centering) in modes {
        let toy = Problem::toy();
        let options = options(prototypes, centering);
        let whole = toy.run(&f64_device(), options);
        let halves = [0, 1].map(|image| toy.worker(image).run(&f64_device(), options));
        let average = |f: fn(&Outcome) -> &[f64]| {
            f(&halves[0]).iter().zip(f(&halves[1])).map(|(a, b)| 0.5 * (a + b)).collect::<Vec<f64>>()
        };
        assert!((0.5 * (halves[0].report.loss + halves[1].report.loss) - whole.report.loss).abs() < 1e-13);
        assert!(difference(&whole.d_magnitude, &average(|o| &o.d_magnitude)) < 1e-12);
        assert!(difference(&whole.d_direction, &average(|o| &o.d_direction)) < 1e-12);

        // The batch statistic that a worker moved its centre by, and how two of them combine.
        let statistic = |o: &Outcome, k: usize| (o.center[k] - MOMENTUM * toy.center[k]) / (1.0 - MOMENTUM);
        for k in 0..6 {
            let (a, b) = (statistic(&halves[0], k), statistic(&halves[1], k));
            let combined = match centering {
                Centering::Logit => 0.5 * (a + b),
                Centering::Probability => a.max(b) + (0.5 * (1.0 + (-(a - b).abs()).exp())).ln(),
            };
            assert!((combined - statistic(&whole, k)).abs() < 1e-11, "{prototypes} {centering} {k}");
        }
    }
}

#[test]
fn sharp_prototypes_keep_a_finite_centre_in_single_precision_where_the_mean_probability_underflows() {
    let device = Device::cpu(CpuOptions { threads: Some(2), ..CpuOptions::default() }).unwrap();
    let (count, p, tau) = (65_536, 256, 0.04);
    let mut problem = Problem::random(7, p, count, Pairing { batch: 4, views: 2 });
    problem.magnitude.fill(40.0);
    problem.teacher_temperature = tau;

    let underflows = mean_probabilities_of_zero(&device, &problem);
    assert!(underflows > 1000, "the plain mean must underflow for this test to mean anything: {underflows}");
    let vmf = options(Prototypes::Vmf, Centering::Probability);
    for _ in 0..2 {
        let (single, double) = (problem.run(&device, vmf), problem.run(&f64_device(), vmf));
        assert!(single.report.loss.is_finite() && single.center.iter().all(|c| c.is_finite()));
        assert!(single.d_magnitude.iter().chain(&single.d_student).all(|d| d.is_finite()));
        assert!((single.report.loss / double.report.loss - 1.0).abs() < 1e-5);
        assert!(difference(&double.center, &single.center) < 1e-5, "finite, but not the centre");
        problem.center = double.center;
    }
}

/// Prototypes whose batch-mean teacher probability is zero in single precision.
fn mean_probabilities_of_zero(device: &Device, problem: &Problem) -> usize {
    let tensor = |values: &[f64], columns: usize| device.from_f64(&[values.len() / columns, columns], values);
    let (y, _) = ops::l2_normalize(&tensor(&problem.teacher, problem.p), EPSILON);
    let logits = ops::prototype_logits(&y, &tensor(&problem.magnitude, 1), &tensor(&problem.direction, problem.p));
    let shift: Tensor = device.zeros(&[problem.magnitude.len()]);
    let q = ops::softmax(&logits.raw, 1.0 / problem.teacher_temperature, &shift);
    ops::column_sums(&q).to_f64().iter().filter(|q| **q == 0.0).count()
}
