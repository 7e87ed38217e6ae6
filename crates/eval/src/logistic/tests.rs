//! The solver against scikit-learn: `tests/fixtures/logistic.json`, written by `tools/oracle/logistic_fixture.py`.

use std::ops::ControlFlow;

use serde_json::Value;
use tensor::{CpuOptions, Device, Precision};

use super::*;

fn device(precision: Precision, threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision }).unwrap()
}

/// u(stream, i) of `tools/oracle/vit_hash.py`.
fn uniform(stream: u64, i: usize) -> f64 {
    let mut z = ((stream << 32) + i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-52) - 1.0
}

struct Case {
    fixture: Value,
    dim: usize,
    classes: usize,
    train: Vec<f32>,
    labels: Vec<u32>,
    test: Vec<f32>,
}

impl Case {
    fn numbers(&self, key: &str) -> Vec<f64> {
        self.fixture[key].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    }

    fn solver(&self, host: &Device, options: LogisticOptions) -> Solver {
        let parts = vec![0; self.labels.len()];
        let Case { dim, classes, .. } = *self;
        let rows = Rows { dim, values: &self.train, labels: &self.labels, classes, parts: &parts };
        let intercept = self.fixture["intercept"].as_bool().unwrap();
        Solver::new(host, &rows, LogisticOptions { intercept, ..options }).unwrap()
    }
}

/// The cases of the fixture, made again from their closed forms.
fn cases() -> Vec<Case> {
    let fixture: Value = serde_json::from_str(include_str!("../../tests/fixtures/logistic.json")).unwrap();
    let case = |fixture: &Value| {
        let size = |key: &str| fixture[key].as_u64().unwrap() as usize;
        let (dim, classes) = (size("dim"), size("classes"));
        let (noise, offset) = (fixture["noise"].as_f64().unwrap(), fixture["offset"].as_f64().unwrap());
        let features = |labels: &[u32], stream: u64| -> Vec<f32> {
            let value = |at: usize| {
                let (i, j) = (at / dim, at % dim);
                let centre = uniform(20, labels[i] as usize * dim + j);
                let scale = 10f64.powf(-2.0 * j as f64 / dim as f64);
                (scale * (offset + centre + noise * uniform(stream, at))) as f32
            };
            let mut values: Vec<f32> = (0..labels.len() * dim).map(value).collect();
            if fixture["name"] == "fewshot" {
                crate::fewshot::center_and_scale(&mut values, dim);
            }
            values
        };
        let labels: Vec<u32> = (0..size("train")).map(|i| ((7 * i + 2) % classes) as u32).collect();
        let test_labels: Vec<u32> = (0..size("test")).map(|i| ((11 * i + 1) % classes) as u32).collect();
        let (train, test) = (features(&labels, 21), features(&test_labels, 22));
        Case { fixture: fixture.clone(), dim, classes, train, labels, test }
    };
    fixture.as_array().unwrap().iter().map(case).collect()
}

fn path(solver: &Solver, problems: &[Option<usize>], strengths: &[f64]) -> Vec<Fit> {
    let mut fits = Vec::new();
    solver.path(problems, strengths, None, &mut |fit| fits.push(fit), &mut |_| ControlFlow::Continue(())).unwrap();
    fits.sort_by_key(|fit| (fit.problem, fit.strength));
    fits
}

/// The largest share by which the solver's objectives are off scikit-learn's, and how many predictions differ.
fn compare(case: &Case, options: LogisticOptions) -> (f64, usize) {
    let host = device(Precision::F32, 2);
    let solver = case.solver(&host, options);
    let (mut worst, mut different) = (0f64, 0);
    let strengths = case.numbers("strengths");
    let fits = path(&solver, &[None], &strengths);
    assert_eq!(fits.len(), 45);
    let (objectives, protocol) = (case.numbers("objectives"), case.numbers("protocol"));
    for (fit, (objective, protocol)) in fits.iter().zip(objectives.iter().zip(&protocol)) {
        assert!(fit.converged, "{fit:?}");
        assert!(fit.objective <= protocol * (1.0 + 1e-6), "the protocol itself came further: {fit:?} {protocol}");
        worst = worst.max((fit.objective / objective - 1.0).abs());
        let predicted = solver.classifier(fit).predict(&host, &case.test).unwrap();
        let text = case.fixture["predictions"][fit.strength].as_str().unwrap();
        let differs = |(&class, want): (&u32, char)| want.to_digit(10).is_some_and(|want| want != class);
        different += predicted.iter().zip(text.chars()).filter(|&pair| differs(pair)).count();
    }
    (worst, different)
}

#[test]
fn objectives_are_scikit_learns_along_all_strengths() {
    for case in cases() {
        let (worst, different) = compare(&case, LogisticOptions::default());
        assert!(worst < 1e-6 && different == 0, "{}: {worst:e}, {different}", case.fixture["name"]);
    }
}

#[test]
fn tighter_tolerances_come_nearer() {
    for case in cases() {
        let (worst, different) =
            compare(&case, LogisticOptions { gap: 1e-11, max_iterations: 100_000, ..Default::default() });
        assert!(worst < 2e-8 && different == 0, "{}: {worst:e}, {different}", case.fixture["name"]);
    }
}

#[test]
fn folds_side_by_side_are_the_folds_alone() {
    let case = &cases()[0];
    let parts: Vec<usize> = (0..case.labels.len()).map(|i| i * 7 % 5).collect();
    let rows = Rows { dim: case.dim, values: &case.train, labels: &case.labels, classes: case.classes, parts: &parts };
    let solver = Solver::new(&device(Precision::F64, 2), &rows, LogisticOptions::default()).unwrap();
    let strengths = [1e-2, 1.0, 1e2];
    let together = path(&solver, &[Some(0), Some(1), Some(2), Some(3), Some(4)], &strengths);
    assert_eq!(together.len(), 15);
    for fit in &together {
        let alone = &path(&solver, &[Some(fit.problem)], &strengths)[fit.strength];
        assert!((fit.objective / alone.objective - 1.0).abs() < 1e-8);
        let keep = |row: &usize| parts[*row] != fit.problem;
        let kept: Vec<usize> = (0..case.labels.len()).filter(keep).collect();
        let values: Vec<f32> =
            kept.iter().flat_map(|&row| &case.train[row * case.dim..][..case.dim]).copied().collect();
        let labels: Vec<u32> = kept.iter().map(|&row| case.labels[row]).collect();
        let (dim, classes) = (case.dim, case.classes);
        let rows = Rows { dim, values: &values, labels: &labels, classes, parts: &vec![0; kept.len()] };
        let apart = Solver::new(&device(Precision::F64, 1), &rows, LogisticOptions::default()).unwrap();
        let apart = apart.fit(strengths[fit.strength], None).unwrap();
        assert!((fit.objective / apart.objective - 1.0).abs() < 1e-7, "{fit:?} {apart:?}");
    }
    let (predicted, labels) = solver.predict_part(3, &together[0]);
    assert_eq!((predicted.len(), labels.len()), (60, 60));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let case = &cases()[1];
    let run = |threads| {
        let host = device(Precision::F32, threads);
        let solver = case.solver(&host, LogisticOptions::default());
        let fits = path(&solver, &[None], &[1e-3, 10.0]);
        solver.classifier(&fits[0])
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn a_refit_from_the_solution_is_done_at_once() {
    let case = &cases()[0];
    let solver = case.solver(&device(Precision::F64, 1), LogisticOptions::default());
    let fit = solver.fit(0.1, None).unwrap();
    assert!(fit.iterations > 5);
    assert!(solver.fit(0.1, Some(fit.point())).unwrap().iterations < 3);
}

#[test]
fn what_cannot_be_fitted_is_named() {
    let host = device(Precision::F32, 1);
    let good = Rows { dim: 2, values: &[1.0, 0.0, 0.0, 1.0], labels: &[0, 1], classes: 2, parts: &[0, 0] };
    let say = |rows: &Rows<'_>| Solver::new(&host, rows, LogisticOptions::default()).unwrap_err().to_string();
    let broken = Rows { values: &[1.0, 0.0, f32::NAN, 1.0], ..good };
    assert!(say(&broken).contains("training image 1 is not finite"), "{}", say(&broken));
    let beyond = Solver::new(&host, &Rows { labels: &[0, 2], ..good }, LogisticOptions::default());
    assert!(matches!(beyond, Err(EvalError::Label { which: "training", label: 2, classes: 2 })));
    assert!(say(&Rows { classes: 1, labels: &[0, 0], ..good }).contains("classes = 1"));
    assert!(say(&Rows { values: &[], labels: &[], parts: &[], ..good }).contains("no training images"));
    let solver = Solver::new(&host, &good, LogisticOptions::default()).unwrap();
    for strength in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(solver.fit(strength, None).unwrap_err().to_string().contains("strength"), "{strength}");
    }
    let all_in_one = solver.path(&[Some(0)], &[1.0], None, &mut |_| {}, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(all_in_one, Err(EvalError::Empty { which: "training" })));
    let stopped = solver.path(&[None], &[1.0], None, &mut |_| {}, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
    for options in [
        LogisticOptions { tolerance: 0.0, ..Default::default() },
        LogisticOptions { gap: f64::NAN, ..Default::default() },
        LogisticOptions { max_iterations: 0, ..Default::default() },
    ] {
        assert!(matches!(Solver::new(&host, &good, options), Err(EvalError::Setting { .. })), "{options:?}");
    }
}
