//! The products are held to plain loops, the whole to planted mixtures.

use random::{Key, Purpose, Stream};
use tensor::{CpuOptions, Device};
use vmf::{Assignment, PointMatrix, Points, VonMisesFisher, refine_mixture};

use super::*;

fn host(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap()
}

fn go_on(_: FitProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Draws of components around nearly orthogonal directions, as f32 features of any length.
fn planted(p: usize, kappas: &[f64], each: usize, stream: &mut Stream) -> (Vec<VonMisesFisher>, Features) {
    let around = |k: usize| {
        let mut noise: Vec<f64> = (0..p).map(|_| 0.2 * stream.normal() / (p as f64).sqrt()).collect();
        noise[k] += 1.0;
        noise
    };
    let directions: Vec<Vec<f64>> = (0..kappas.len()).map(around).collect();
    let component = |(direction, &kappa): (&Vec<f64>, &f64)| VonMisesFisher::new(direction, kappa).unwrap();
    let components: Vec<VonMisesFisher> = directions.iter().zip(kappas).map(component).collect();
    let labels: Vec<u32> = (0..each * kappas.len()).map(|i| (i % kappas.len()) as u32).collect();
    let values = labels.iter().enumerate().flat_map(|(i, &label)| {
        let length = 1.0 + (i % 7) as f64;
        components[label as usize].sample(stream).into_iter().map(move |x| (length * x) as f32)
    });
    let features = Features::labelled(p, values.collect(), &labels);
    (components, features)
}

#[test]
fn planted_components_and_the_likelihood_of_new_draws_are_recovered() {
    for p in [3, 32, 256] {
        let mut stream = Key::new(40, Purpose::Bench).sample(p as u64).stream();
        let kappas = [2.0, 3.0, 4.0].map(|x| x * 3.0 * (p as f64).max(40.0));
        let (components, all) = planted(p, &kappas, 5000, &mut stream);
        let half = all.len() / 2;
        let part = |from: usize, to: usize| {
            let labels: Vec<u32> = all.labels[from..to].iter().flatten().copied().collect();
            Features::labelled(p, all.values[from * p..to * p].to_vec(), &labels)
        };
        let (train, test) = (part(0, half), part(half, all.len()));
        let fit = fit(&train, &FitOptions::new(3), &host(2), &mut go_on).unwrap();
        for component in &components {
            let cosine = |mean: &[f64]| mean.iter().zip(component.mean_direction()).map(|(a, b)| a * b).sum::<f64>();
            let angles: Vec<f64> = fit.mixture.means().chunks(p).map(|m| cosine(m).min(1.0).acos()).collect();
            let k = (0..3).min_by(|&a, &b| angles[a].total_cmp(&angles[b])).unwrap();
            assert!(angles[k] < 0.02, "p = {p}: {}", angles[k]);
            assert!((fit.mixture.kappas()[k] / component.kappa() - 1.0).abs() < 0.05, "p = {p}");
        }
        let score = score(&fit.mixture, &test, &host(2)).unwrap();
        assert_eq!((score.agreement.unwrap().purity, score.used), (1.0, 3));
        // What the true mixture gives the same draws, with weights of a third.
        let truth: f64 = (0..test.len())
            .map(|row| {
                let length = test.row(row).iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
                let unit: Vec<f64> = test.row(row).iter().map(|&x| f64::from(x) / length).collect();
                let label = test.labels[row].unwrap() as usize;
                components[label].log_density(&unit).unwrap() - 3f64.ln()
            })
            .sum::<f64>()
            / test.len() as f64;
        assert!(score.log_likelihood < truth + 0.01 && score.log_likelihood > truth - 0.1, "p = {p}: {truth}");
    }
}

#[test]
fn passes_are_those_of_plain_loops_on_any_number_of_threads() {
    let mut stream = Key::new(41, Purpose::Bench).stream();
    // More rows than a block has.
    let (_, features) = planted(5, &[4.0, 9.0], 3000, &mut stream);
    let rows: Vec<f64> = features.values.iter().map(|&x| f64::from(x)).collect();
    let plain = PointMatrix::new(5, &rows).unwrap();
    let begin = VmfMixture::new(5, &[1.0; 4], &rows[..20], &[3.0; 4]).unwrap();
    for (assignment, shared_kappa) in [(Assignment::Soft, false), (Assignment::Hard, true)] {
        let options = FitOptions { assignment, shared_kappa, iterations: 12, tolerance: 0.0, ..FitOptions::new(4) };
        let wanted = refine_mixture(&plain, begin.clone(), &options, &mut |_| Ok(())).unwrap();
        let fits = [1, 3].map(|threads| {
            let points = FeaturePoints::new(&features, "training", &host(threads)).unwrap();
            assert_eq!((points.count(), points.dimension()), (6000, 5));
            refine_mixture(&points, begin.clone(), &options, &mut |_| Ok(())).unwrap()
        });
        assert_eq!(fits[0], fits[1]);
        assert_eq!(fits[0].objective.len(), wanted.objective.len());
        for (found, wanted) in fits[0].objective.iter().zip(&wanted.objective) {
            assert!((found - wanted).abs() < 1e-11, "{found} {wanted}");
        }
        for (found, wanted) in fits[0].mixture.means().iter().zip(wanted.mixture.means()) {
            assert!((found - wanted).abs() < 1e-9, "{found} {wanted}");
        }
    }
}

#[test]
fn one_step_on_the_weights_never_makes_the_likelihood_fall() {
    let mut stream = Key::new(42, Purpose::Bench).stream();
    let (_, features) = planted(8, &[20.0, 30.0, 40.0], 200, &mut stream);
    let directions: Vec<f32> = (0..12 * 8).map(|_| stream.normal() as f32).collect();
    let prototypes = prototype_mixture(8, &directions, &[1.0; 12], 0.1).unwrap();
    let fitted = reweighted(&prototypes, &features, &host(2)).unwrap();
    assert!((fitted.weights().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    let of = |mixture| score(mixture, &features, &host(2)).unwrap().log_likelihood;
    assert!(of(&fitted) > of(&prototypes));
}

#[test]
fn features_that_are_no_points_are_refused_and_a_fit_can_be_stopped() {
    let line = Features::labelled(2, vec![1.0, 0.0, 0.0, 1.0, 3.0, 4.0], &[0, 1, 1]);
    let say = |features: &Features, components| {
        fit(features, &FitOptions::new(components), &host(1), &mut go_on).unwrap_err().to_string()
    };
    let broken = Features { values: vec![1.0, 0.0, f32::NAN, 1.0, 3.0, 4.0], ..line.clone() };
    assert!(say(&broken, 2).contains("training image 1 is not finite"), "{}", say(&broken, 2));
    let zero = Features { values: vec![1.0, 0.0, 0.0, 0.0, 3.0, 4.0], ..line.clone() };
    assert!(say(&zero, 2).contains("training image 1"), "{}", say(&zero, 2));
    assert!(say(&line, 4).contains("4 components for 3 points"));
    assert!(matches!(say(&Features { dim: 2, ..Default::default() }, 1), message if message.contains("no training")));
    let stopped = fit(&line, &FitOptions::new(2), &host(1), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
    let narrow = VmfMixture::new(3, &[1.0], &[1.0, 0.0, 0.0], &[1.0]).unwrap();
    assert!(score(&narrow, &line, &host(1)).is_err());
    // Labels are not needed, and then nothing is said of them.
    let unlabelled = Features { labels: vec![None; 3], ..line.clone() };
    let fit = fit(&unlabelled, &FitOptions::new(2), &host(1), &mut go_on).unwrap();
    assert_eq!(score(&fit.mixture, &unlabelled, &host(1)).unwrap().agreement, None);
}
