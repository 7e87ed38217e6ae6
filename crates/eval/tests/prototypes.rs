//! What images choose among prototypes, against the logits written out; and heads out of files.

mod common;

use std::ops::ControlFlow;

use eval::certainty::Describer;
use eval::prototypes::{Choice, Directions, PrototypeKind, assign, exemplars, project};
use eval::{EvalError, Features};
use model::weights::{LoadedHead, NetworkRole, WeightsError, WeightsFile};
use model::{HeadConfig, Layout, Projector, PrototypeLayer};
use random::{Key, Purpose, Stream};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize_to_file};
use tensor::{CpuOptions, Device, Precision};

const P: usize = 16;
const K: usize = 40;

fn device(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), precision: Precision::F32 }).unwrap()
}

/// A head whose MLP is the identity, with prototypes of very different lengths.
fn head(device: &Device) -> (LoadedHead, Vec<f64>, Vec<f64>) {
    let mut stream = Key::new(5, Purpose::Bench).stream();
    let directions: Vec<f64> = (0..K * P).map(|_| stream.normal()).collect();
    let lengths: Vec<f64> = (0..K).map(|k| 0.05 + 0.02 * k as f64).collect();
    (common::identity_head(device, P, &directions, &lengths), directions, lengths)
}

fn images(stream: &mut Stream, count: usize) -> Features {
    let values = (0..count * P).map(|_| stream.normal() as f32).collect();
    Features::labelled(P, values, &vec![0; count])
}

fn go_on(_: usize, _: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_centre_is_subtracted_from_every_logit() {
    let host = device(1);
    let (head, ..) = head(&host);
    let images = images(&mut Key::new(8, Purpose::Bench).stream(), 200);
    let choice = Choice::new(PrototypeKind::Vmf, 0.07);
    let of = |centre: &[f32]| assign(&head, choice.centred(centre), &images, &host, &mut go_on).unwrap();
    let plain = assign(&head, choice, &images, &host, &mut go_on).unwrap();
    assert_eq!(plain, of(&[0.0; K]));
    let even = of(&[3.5; K]);
    assert_eq!(even.prototypes, plain.prototypes, "one that is the same for all changes nothing");
    // Whatever is most chosen, a centre far above the others' takes its images away; one far below gives it all.
    let first = plain.counts.iter().position(|count| *count > 0).unwrap();
    let centre = |value: f32| (0..K).map(|k| if k == first { value } else { 0.0 }).collect::<Vec<f32>>();
    assert_eq!(of(&centre(1e4)).counts[first], 0);
    assert_eq!(of(&centre(-1e4)).counts[first], 200);
}

#[test]
fn those_that_chose_a_prototype_stand_for_it_and_then_the_nearest() {
    let host = device(2);
    let (head, directions, lengths) = head(&host);
    let images = images(&mut Key::new(7, Purpose::Bench).stream(), 1300);
    let chosen = assign(&head, Choice::new(PrototypeKind::Plain, 0.07), &images, &host, &mut go_on).unwrap();
    let single = |values: &[f64]| values.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let of_head = Directions::new(P, &single(&directions), &single(&lengths));
    // Prototype 0 is so short that nobody chooses it; the last is the longest.
    let (asked, most) = ([0, K as u32 - 1], 6);
    let shown = exemplars(&head, &of_head, &chosen, &images, &asked, most, (&host, &host)).unwrap();
    assert_eq!(shown, exemplars(&head, &of_head, &chosen, &images, &asked, most, (&host, &device(1))).unwrap());
    for (list, prototype) in shown.iter().zip(asked) {
        let direction = &directions[prototype as usize * P..][..P];
        let norm = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
        let cosine = |row: usize| {
            let row: Vec<f64> = images.row(row).iter().map(|&x| f64::from(x)).collect();
            row.iter().zip(direction).map(|(a, b)| a * b).sum::<f64>() / norm(&row) / norm(direction)
        };
        let mut rows: Vec<usize> = (0..images.len()).collect();
        rows.sort_by(|&a, &b| {
            let is_chosen = |row: usize| chosen.prototypes[row] == prototype;
            is_chosen(b).cmp(&is_chosen(a)).then(cosine(b).total_cmp(&cosine(a)))
        });
        assert_eq!(list.iter().map(|exemplar| exemplar.row).collect::<Vec<_>>(), rows[..most]);
        let counted = list.iter().filter(|exemplar| exemplar.is_chosen).count();
        assert_eq!(counted, most.min(chosen.counts[prototype as usize] as usize));
        assert!(list.iter().all(|exemplar| (f64::from(exemplar.cosine) - cosine(exemplar.row)).abs() < 1e-5));
    }
    assert!(shown[1][0].is_chosen && !shown[0][0].is_chosen);
}

#[test]
fn an_image_gets_the_prototype_of_its_largest_logit() {
    let device = device(2);
    let (head, directions, lengths) = head(&device);
    let images = images(&mut Key::new(6, Purpose::Bench).stream(), 1500);
    let tau = 0.07;
    let unit = |row: &[f64]| -> Vec<f64> {
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| x / norm).collect()
    };
    let mut differ = 0;
    let mut chosen_plainly = Vec::new();
    for kind in [PrototypeKind::Plain, PrototypeKind::Vmf] {
        let found = assign(&head, Choice::new(kind, tau), &images, &device, &mut go_on).unwrap();
        let mut mean = vec![0.0; P];
        for (image, &chosen) in found.prototypes.iter().enumerate() {
            let y = unit(&images.row(image).iter().map(|&x| f64::from(x)).collect::<Vec<_>>());
            mean.iter_mut().zip(&y).for_each(|(mean, y)| *mean += y / 1500.0);
            let logit = |k: usize| {
                let v = unit(&directions[k * P..(k + 1) * P]);
                let cosine: f64 = v.iter().zip(&y).map(|(v, y)| v * y).sum();
                let kappa = lengths[k] / tau;
                // log C_p(kappa) - log C_p(0) of the paper's approximation, Eq. (5).
                let delta = match kind {
                    PrototypeKind::Plain => 0.0,
                    PrototypeKind::Vmf => {
                        let nu = P as f64 / 2.0 - 1.0;
                        let s = (nu * nu + kappa * kappa).sqrt();
                        nu * ((nu + s) / (2.0 * nu)).ln() - s + nu + 0.5 * (s / nu).ln()
                    }
                };
                kappa * cosine + delta
            };
            let best = (0..K).max_by(|&a, &b| logit(a).total_cmp(&logit(b))).unwrap();
            assert!(
                chosen as usize == best || (logit(chosen as usize) - logit(best)).abs() < 1e-4,
                "{kind:?}, image {image}: {chosen} {best}"
            );
        }
        assert!(found.mean.iter().zip(&mean).all(|(a, b)| (a - b).abs() < 1e-6));
        assert_eq!(found.counts.iter().sum::<u32>(), 1500);
        assert!(found.entropy > 0.0 && found.entropy < (K as f64).ln());
        if kind == PrototypeKind::Plain {
            chosen_plainly = found.prototypes;
        } else {
            differ = chosen_plainly.iter().zip(&found.prototypes).filter(|(a, b)| a != b).count();
        }
    }
    assert!(differ > 100, "the log-normaliser decides for {differ} of 1500");
}

#[test]
fn threads_change_nothing_and_wrong_settings_are_named() {
    let images = images(&mut Key::new(7, Purpose::Bench).stream(), 100);
    let run = |threads: usize| {
        let device = device(threads);
        assign(&head(&device).0, Choice::new(PrototypeKind::Vmf, 0.07), &images, &device, &mut go_on).unwrap()
    };
    assert_eq!(run(1), run(3));
    let device = device(1);
    let head = head(&device).0;
    let with =
        |tau: f64, images: &Features| assign(&head, Choice::new(PrototypeKind::Vmf, tau), images, &device, &mut go_on);
    for tau in [0.0, -1.0, f64::NAN] {
        assert!(matches!(with(tau, &images), Err(EvalError::Setting { setting: "temperature", .. })));
    }
    let wide = Features::labelled(P + 1, vec![1.0; P + 1], &[0]);
    assert!(matches!(with(0.07, &wide), Err(EvalError::Width { .. })));
    assert!(matches!(with(0.07, &Features { dim: P, ..Default::default() }), Err(EvalError::Empty { .. })));
    let stopped =
        assign(&head, Choice::new(PrototypeKind::Plain, 0.07), &images, &device, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
}

/// A head with batch norm, of random weights.
fn head_with_batch_norm(device: &Device) -> LoadedHead {
    let config = HeadConfig { inputs: P, hidden: 24, bottleneck: P, prototypes: K, layers: 2, batch_norm: true };
    let mut layout = Layout::default();
    let projector = Projector::new(&mut layout, "head.mlp", &config.projector());
    let prototypes = PrototypeLayer::new(&mut layout, "head.last_layer", K, P);
    let mut weights = layout.zeros(device);
    let mut stream = Key::new(8, Purpose::Bench).stream();
    for parameter in weights.tensors_mut() {
        let values: Vec<f64> = (0..parameter.len()).map(|_| 0.3 + stream.normal()).collect();
        parameter.copy_from_f64(&values);
    }
    LoadedHead { config, projector, prototypes, weights }
}

#[test]
fn batch_norm_sees_thousands_of_images_whatever_their_order_by_class() {
    let device = device(2);
    let head = head_with_batch_norm(&device);
    let mut images = images(&mut Key::new(9, Purpose::Bench).stream(), 5000);
    // Sorted by class, as folders are: the first half lies elsewhere than the second.
    images.values[..2500 * P].iter_mut().for_each(|x| *x += 3.0);
    let on_sphere = project(&head, &images, &device).unwrap();
    assert_eq!((on_sphere.dim, on_sphere.len(), &on_sphere.indices), (P, 5000, &images.indices));
    let chosen = assign(&head, Choice::new(PrototypeKind::Plain, 0.1), &images, &device, &mut go_on).unwrap();
    let mean = |d: usize| (0..5000).map(|row| f64::from(on_sphere.row(row)[d])).sum::<f64>() / 5000.0;
    assert!((0..P).all(|d| (chosen.mean[d] - mean(d)).abs() < 1e-9), "the same vectors in both");
    // A part of one class alone would have statistics that take the difference of the classes away.
    let first = |rows: std::ops::Range<usize>| {
        let values = images.values[rows.start * P..rows.end * P].to_vec();
        let part = Features::labelled(P, values, &vec![0; rows.len()]);
        project(&head, &part, &device).unwrap().values
    };
    let apart = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).abs()).fold(0.0, f64::max);
    assert!(apart(&first(0..2500), &on_sphere.values[..2500 * P]) > 0.1);
    let all_mixed: Vec<f32> = (0..5000).step_by(2).flat_map(|row| images.row(row)).copied().collect();
    let mixed = project(&head, &Features::labelled(P, all_mixed, &vec![0; 2500]), &device).unwrap();
    let near = (0..2500).filter(|&i| apart(mixed.row(i), on_sphere.row(2 * i)) < 0.1).count();
    assert!(near > 2000, "statistics of a mixed part are those of all, about: {near}");
}

#[test]
fn with_the_statistics_of_others_an_image_is_described_alone() {
    let device = device(2);
    let head = head_with_batch_norm(&device);
    let mut stream = Key::new(10, Purpose::Bench).stream();
    let (train, judged) = (images(&mut stream, 300), images(&mut stream, 40));
    let describe = |describer: &Describer<'_>, features: &Features| {
        let found = describer.describe(features, &device, &mut go_on).unwrap();
        found.iter().map(|certainty| certainty.log_density.unwrap()).collect::<Vec<f64>>()
    };
    let describer = || Describer::new(&head, PrototypeKind::Vmf, 0.1, &device).unwrap();
    let near = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
    let by_train = describer().normalized_by(&train).unwrap();
    let all = describe(&by_train, &judged);
    let part: Vec<usize> = (5..9).collect();
    assert!(near(&describe(&by_train, &judged.select(&part)), &all[5..9]));
    assert!(!near(&describe(&describer(), &judged.select(&part)), &all[5..9]), "by the statistics of four");
    // Those of the images themselves are what they have without.
    assert!(near(&describe(&by_train, &train), &describe(&describer(), &train)));
    let wide = Features::labelled(P + 1, vec![1.0; P + 1], &[0]);
    assert!(matches!(describer().normalized_by(&wide), Err(EvalError::Width { .. })));
    let none = Features { dim: P, ..Default::default() };
    assert!(matches!(describer().normalized_by(&none), Err(EvalError::Empty { .. })));
}

#[test]
fn with_the_statistics_of_others_an_image_chooses_alone_and_as_it_is_described() {
    let device = device(2);
    let head = head_with_batch_norm(&device);
    let mut stream = Key::new(11, Purpose::Bench).stream();
    let (train, mut judged) = (images(&mut stream, 300), images(&mut stream, 40));
    // Elsewhere than the training images, so that their own statistics would bring them back.
    judged.values.iter_mut().for_each(|x| *x = 0.5 * *x + 1.0);
    let choice = Choice::new(PrototypeKind::Plain, 0.1);
    let of = |choice: Choice<'_>, images: &Features| assign(&head, choice, images, &device, &mut go_on);
    let by_train = of(choice.normalized_by(&train), &judged).unwrap();
    let describer = Describer::new(&head, PrototypeKind::Plain, 0.1, &device).unwrap().normalized_by(&train).unwrap();
    let described = describer.describe(&judged, &device, &mut go_on).unwrap();
    let components: Vec<u32> = described.iter().map(|certainty| certainty.component).collect();
    assert_eq!(by_train.prototypes, components);
    let part: Vec<usize> = (5..9).collect();
    let alone = of(choice.normalized_by(&train), &judged.select(&part)).unwrap();
    assert_eq!(alone.prototypes, by_train.prototypes[5..9]);
    assert_ne!(of(choice, &judged).unwrap().prototypes, by_train.prototypes, "by the statistics of the judged");
    let none = Features { dim: P, ..Default::default() };
    assert!(matches!(of(choice.normalized_by(&none), &judged), Err(EvalError::Empty { .. })));
}

/// A file with these tensors, whose elements count up.
fn file(folder: &std::path::Path, tensors: &[(&str, &[usize])]) -> WeightsFile {
    let path = folder.join("head.safetensors");
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape)| (0..count(shape)).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect())
        .collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, shape), bytes)| (*name, TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap()));
    serialize_to_file(views, None, &path).unwrap();
    WeightsFile::open(&path).unwrap()
}

#[test]
fn heads_come_out_of_files_of_each_kind() {
    let (folder, device) = (tempfile::tempdir().unwrap(), device(1));
    let dino: [(&str, &[usize]); 8] = [
        ("teacher.head.mlp.0.weight", &[5, 3]),
        ("teacher.head.mlp.0.bias", &[5]),
        ("teacher.head.mlp.2.weight", &[5, 5]),
        ("teacher.head.mlp.2.bias", &[5]),
        ("teacher.head.mlp.4.weight", &[2, 5]),
        ("teacher.head.mlp.4.bias", &[2]),
        ("teacher.head.last_layer.weight_g", &[7, 1]),
        ("teacher.head.last_layer.weight_v", &[7, 2]),
    ];
    let head = file(folder.path(), &dino).load_head(Some(NetworkRole::Teacher), &device).unwrap().unwrap();
    let HeadConfig { inputs, hidden, bottleneck, prototypes, layers, batch_norm } = head.config;
    assert_eq!((inputs, hidden, bottleneck, prototypes, layers, batch_norm), (3, 5, 2, 7, 3, false));
    assert_eq!(head.weights[head.prototypes.magnitude()].to_f64()[6], 0.75);
    assert!(file(folder.path(), &dino).load_head(Some(NetworkRole::Student), &device).unwrap().is_none());
    // A later PyTorch, one layer, and no lengths.
    let bare: [(&str, &[usize]); 3] = [
        ("head.mlp.weight", &[2, 3]),
        ("head.mlp.bias", &[2]),
        ("head.last_layer.parametrizations.weight.original1", &[7, 2]),
    ];
    let head = file(folder.path(), &bare).load_head(None, &device).unwrap().unwrap();
    assert_eq!((head.config.layers, head.weights[head.prototypes.magnitude()].to_f64()), (1, vec![1.0; 7]));
    // MSN: batch norm, and prototypes beside the networks.
    let msn: [(&str, &[usize]); 7] = [
        ("target_encoder.fc.fc1.weight", &[4, 3]),
        ("target_encoder.fc.fc1.bias", &[4]),
        ("target_encoder.fc.bn1.weight", &[4]),
        ("target_encoder.fc.bn1.bias", &[4]),
        ("target_encoder.fc.fc2.weight", &[2, 4]),
        ("target_encoder.fc.fc2.bias", &[2]),
        ("prototypes", &[9, 2]),
    ];
    let head = file(folder.path(), &msn).load_head(Some(NetworkRole::Teacher), &device).unwrap().unwrap();
    assert_eq!((head.config.prototypes, head.config.batch_norm, head.config.layers), (9, true, 2));
    assert!(file(folder.path(), &[("cls_token", &[1, 1, 3])]).load_head(None, &device).unwrap().is_none());
}

#[test]
fn heads_that_are_not_whole_are_refused() {
    let (folder, device) = (tempfile::tempdir().unwrap(), device(1));
    let said = |tensors: &[(&str, &[usize])]| {
        let error = file(folder.path(), tensors).load_head(None, &device).unwrap_err();
        assert!(matches!(error, WeightsError::Head { .. }), "{error}");
        error.to_string()
    };
    let last = ("head.last_layer.weight_v", &[7, 2][..]);
    assert!(said(&[last]).contains("no MLP before them"));
    assert!(said(&[last, ("head.mlp.weight", &[2, 3])]).contains("`head.mlp.bias` is not there"));
    assert!(
        said(&[last, ("head.mlp.weight", &[4, 3])]).contains("its MLP ends with 4 values, and its prototypes have 2")
    );
    assert!(said(&[("head.last_layer.weight_v", &[7]), ("head.mlp.weight", &[2, 3])]).contains("is no matrix"));
    let gap = [last, ("head.mlp.0.weight", &[4, 3]), ("head.mlp.0.bias", &[4]), ("head.mlp.5.weight", &[2, 4])];
    assert!(said(&gap).contains("`head.mlp.2.weight` is not there"));
    let short = [last, ("head.mlp.weight", &[2, 3]), ("head.mlp.bias", &[2]), ("head.last_layer.weight_g", &[6, 1])];
    assert!(said(&short).contains("has the shape [6, 1] instead of [7, 1]"));
    assert!(said(&[last, ("head.mlp.x.weight", &[2, 3])]).contains("in no known place"));
}
