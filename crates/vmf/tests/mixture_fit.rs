//! Fits of mixtures: against planted ones, against an independent implementation, and that the objective never falls.

use random::{Key, Purpose, Stream};
use vmf::{
    Assignment, Error, FitOptions, MixtureFit, PointMatrix, VmfMixture, VonMisesFisher, fit_mixture, refine_mixture,
};

fn stream(case: u64) -> Stream {
    Key::new(30, Purpose::Bench).sample(case).stream()
}

fn fit(points: &PointMatrix, options: &FitOptions) -> MixtureFit {
    fit_mixture(points, options, &mut |_| Ok(())).unwrap()
}

/// u(stream, i) of `tools/oracle/vit_hash.py`.
fn uniform(stream: u64, i: usize) -> f64 {
    let mut z = ((stream << 32) + i as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-52) - 1.0
}

#[test]
fn planted_mixtures_are_recovered() {
    // Sizes such that the standard error of a mean is below 0.01 rad and that of a kappa below 2 %; concentrations such
    // that components do not overlap, for their members to be countable.
    let cases: [(usize, &[f64], &[usize]); 3] = [
        (3, &[300.0, 800.0, 500.0, 1500.0], &[6000, 4000, 8000, 5000]),
        (32, &[150.0, 400.0, 250.0, 800.0], &[5000, 2000, 4000, 3000]),
        (256, &[600.0, 1000.0, 800.0, 2000.0], &[6000, 3000, 4000, 2000]),
    ];
    for (p, kappas, sizes) in cases {
        let mut stream = stream(p as u64);
        let direction = |stream: &mut Stream| (0..p).map(|_| stream.normal()).collect::<Vec<f64>>();
        let planted: Vec<VonMisesFisher> =
            kappas.iter().map(|&kappa| VonMisesFisher::new(&direction(&mut stream), kappa).unwrap()).collect();
        let draws: Vec<f64> = planted
            .iter()
            .zip(sizes)
            .flat_map(|(component, &size)| (0..size).flat_map(|_| component.sample(&mut stream)).collect::<Vec<f64>>())
            .collect();
        let points = PointMatrix::new(p, &draws).unwrap();
        for assignment in [Assignment::Soft, Assignment::Hard] {
            let fit = fit(&points, &FitOptions { assignment, ..FitOptions::new(kappas.len()) });
            assert!(fit.converged);
            let mut members = vec![0; kappas.len()];
            fit.mixture.score(&points).unwrap().iter().for_each(|a| members[a.component] += 1);
            for (component, &size) in planted.iter().zip(sizes) {
                let cosine =
                    |mean: &[f64]| mean.iter().zip(component.mean_direction()).map(|(a, b)| a * b).sum::<f64>();
                let cosines: Vec<f64> = fit.mixture.means().chunks(p).map(cosine).collect();
                let k = (0..cosines.len()).max_by(|&a, &b| cosines[a].total_cmp(&cosines[b])).unwrap();
                let angle = cosines[k].min(1.0).acos();
                assert!(angle < 0.02, "p = {p}, {assignment:?}: a mean is off by {angle}");
                let ratio = fit.mixture.kappas()[k] / component.kappa();
                assert!((ratio - 1.0).abs() < 0.05, "p = {p}, {assignment:?}: a kappa is {ratio} of the planted one");
                assert_eq!(members[k], size, "p = {p}, {assignment:?}");
                let weight = size as f64 / points_of(&draws, p);
                assert!((fit.mixture.weights()[k] - weight).abs() < 1e-3, "p = {p}, {assignment:?}");
            }
        }
    }
}

fn points_of(draws: &[f64], p: usize) -> f64 {
    (draws.len() / p) as f64
}

#[test]
fn the_objective_never_falls() {
    // No structure at all, and overlapping structure with copies: the hardest for a bound to hold.
    for p in [2, 5, 40] {
        let mut stream = stream(100 + p as u64);
        let noise: Vec<f64> = (0..400 * p).map(|_| stream.normal()).collect();
        let mut clumps = noise.clone();
        for (i, row) in clumps.chunks_mut(p).enumerate() {
            row[i % p] += 2.0;
            if i % 9 == 0 {
                row.fill(1.0);
            }
        }
        for rows in [noise, clumps] {
            let points = PointMatrix::new(p, &rows).unwrap();
            for (assignment, shared_kappa) in [
                (Assignment::Soft, false),
                (Assignment::Soft, true),
                (Assignment::Hard, false),
                (Assignment::Hard, true),
            ] {
                let base = FitOptions::new(7);
                let options = FitOptions { assignment, shared_kappa, tolerance: 0.0, largest_kappa: 300.0, ..base };
                for seed in 0..5 {
                    let fit = fit(&points, &FitOptions { seed, starts: 1, ..options.clone() });
                    let worst = fit.objective.windows(2).map(|w| w[1] - w[0]).fold(f64::INFINITY, f64::min);
                    assert!(worst > -1e-12, "p = {p}, {assignment:?}, {shared_kappa}: fell by {}", -worst);
                    assert!(fit.objective.len() > 2);
                    assert!(fit.mixture.kappas().iter().all(|kappa| *kappa <= 300.0));
                }
            }
        }
    }
}

#[test]
fn an_independent_implementation_agrees() {
    const P: usize = 8;
    let rows: Vec<f64> =
        (0..150 * P).map(|at| uniform(20, (at / P % 3) * P + at % P) + 0.9 * uniform(21, at)).collect();
    let points = PointMatrix::new(P, &rows).unwrap();
    let means: Vec<f64> = (0..3 * P).map(|at| uniform(22, at)).collect();
    let begin = VmfMixture::new(P, &[1.0; 3], &means, &[2.0, 3.0, 4.0]).unwrap();
    let mut fit: Option<MixtureFit> = None;
    let mut compared = 0;
    for line in include_str!("fixtures/mixture.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["fit", assignment, kappa] = words[..] {
            let assignment = if assignment == "hard" { Assignment::Hard } else { Assignment::Soft };
            let base = FitOptions { iterations: 30, ..FitOptions::new(3) };
            let options = FitOptions { assignment, shared_kappa: kappa == "shared", tolerance: 0.0, ..base };
            fit = Some(refine_mixture(&points, begin.clone(), &options, &mut |_| Ok(())).unwrap());
            continue;
        }
        let fit = fit.as_ref().unwrap();
        let mixture = &fit.mixture;
        let (found, tolerance) = match words[0] {
            "objective" => (&fit.objective[..], 1e-12),
            "weights" => (mixture.weights(), 1e-11),
            "kappas" => (mixture.kappas(), 1e-9),
            _ => (mixture.means(), 1e-11),
        };
        let wanted: Vec<f64> = words[1..].iter().map(|word| word.parse().unwrap()).collect();
        // Hard assignments may come to rest before the last step.
        assert!(found.len() == wanted.len() || fit.converged && found.len() < wanted.len(), "{}", words[0]);
        for (found, wanted) in found.iter().zip(&wanted) {
            assert!((found - wanted).abs() < tolerance * wanted.abs().max(1.0), "{}: {found} {wanted}", words[0]);
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared} numbers");
}

#[test]
fn components_that_lose_all_members_are_given_up() {
    // Three places, five components.
    let rows = [1.0, 0.0, 0.0, 1.0, -1.0, -1.0].repeat(20);
    let points = PointMatrix::new(2, &rows).unwrap();
    for assignment in [Assignment::Soft, Assignment::Hard] {
        let fit = fit(&points, &FitOptions { assignment, ..FitOptions::new(5) });
        let total: f64 = fit.mixture.weights().iter().sum();
        assert!((total - 1.0).abs() < 1e-12);
        assert!(fit.objective.iter().all(|o| o.is_finite()));
        assert!(fit.mixture.kappas().iter().all(|kappa| *kappa <= 1e5));
        if assignment == Assignment::Hard {
            assert_eq!(fit.mixture.weights().iter().filter(|w| **w > 0.0).count(), 3);
        }
    }
}

#[test]
fn more_starts_are_never_worse_and_a_seed_says_which() {
    let mut stream = stream(7);
    let rows: Vec<f64> = (0..300 * 4).map(|_| stream.normal()).collect();
    let points = PointMatrix::new(4, &rows).unwrap();
    let best =
        |starts, seed| *fit(&points, &FitOptions { starts, seed, ..FitOptions::new(6) }).objective.last().unwrap();
    assert!(best(8, 1) >= best(2, 1) && best(2, 1) >= best(1, 1));
    assert_eq!(best(3, 5), best(3, 5));
    assert_ne!(best(1, 1), best(1, 2));
}

#[test]
fn settings_that_cannot_be_meant_are_refused_and_a_watcher_may_stop() {
    let points = PointMatrix::new(2, &[1.0, 0.0, 0.0, 1.0, 0.6, 0.8]).unwrap();
    let refused = |options: FitOptions| fit_mixture(&points, &options, &mut |_| Ok(())).unwrap_err();
    assert_eq!(refused(FitOptions::new(4)), Error::Components { components: 4, points: 3 });
    assert_eq!(refused(FitOptions::new(0)), Error::Components { components: 0, points: 3 });
    let base = FitOptions::new(2);
    for options in [
        FitOptions { starts: 0, ..base.clone() },
        FitOptions { tolerance: f64::NAN, ..base.clone() },
        FitOptions { largest_kappa: 0.0, ..base.clone() },
    ] {
        assert!(matches!(refused(options), Error::FitSetting { .. }));
    }
    assert_eq!(PointMatrix::new(2, &[1.0, 0.0, 0.0, 0.0]), Err(Error::NoDirection { row: 1, length: 0.0 }));
    assert_eq!(fit_mixture(&points, &base, &mut |_| Err(Error::EmptyMixture)), Err(Error::EmptyMixture));
}
