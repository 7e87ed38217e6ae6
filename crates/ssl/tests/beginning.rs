//! Weights to begin with: a full checkpoint as DINO writes it, what of it fits, and that nothing is lost on the way.

use std::collections::HashMap;
use std::path::Path;

use model::weights::{LoadOptions, WeightsFile};
use safetensors::tensor::{Dtype, TensorView};
use ssl::beginning::Beginning;
use ssl::learner::Learner;
use ssl::method;
use ssl::recipe::{Begin, Facts, RawRecipe, Recipe};
use ssl::setup::learner_options;
use tensor::ops::{Grid, PixelData, Pixels};
use tensor::{Device, ParamId, ParamSet};

const OPTIONS: LoadOptions =
    LoadOptions { role: None, image: None, heads: Some(1), interpolation: None, norm_epsilon: None };

const FACTS: Facts = Facts { images: 64, height: 32, width: 32, labelled: true, fingerprint: 7 };

fn recipe(more: &str) -> Recipe {
    recipe_of(12, more)
}

fn recipe_of(prototypes: usize, more: &str) -> Recipe {
    let text = format!(
        "arch = \"vit_nano\"\npatch_size = 8\nhead_hidden = 24\nhead_bottleneck = 16\nout_dim = {prototypes}\n\
         head_batch_norm = false\nprototypes = \"l2\"\n{more}"
    );
    RawRecipe::from_toml(&text, "test").unwrap().resolve(&FACTS).unwrap()
}

fn learner(recipe: &Recipe) -> Learner {
    let (options, method) = (learner_options(recipe).unwrap(), method::of(recipe));
    let device = Device::cpu(Default::default()).unwrap();
    Learner::new(&device, &options, |layout, vit, device| method.build(layout, vit, device)).unwrap()
}

/// Value `i` of parameter `name` in network `network`.
fn value(network: f32, name: &str, i: usize) -> f32 {
    let seed: usize = name.bytes().map(usize::from).sum();
    network + (0.37 * i as f32 + 0.11 * seed as f32).sin()
}

/// What DINO saves: `student.module.backbone.`..., `teacher.head.`..., `dino_loss.center`.
fn write_dino(path: &Path, like: &Learner) {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (lead, network) in [("student.module.", 1.0), ("teacher.", 2.0)] {
        for spec in like.layout().specs() {
            let count = spec.shape.iter().product();
            let bytes = (0..count).flat_map(|i| value(network, &spec.name, i).to_le_bytes()).collect();
            tensors.push((format!("{lead}{}", spec.name), spec.shape.clone(), bytes));
        }
    }
    let center = (0..12).flat_map(|i| value(3.0, "center", i).to_le_bytes()).collect();
    tensors.push(("dino_loss.center".to_owned(), vec![1, 12], center));
    let views: HashMap<&str, TensorView<'_>> = tensors
        .iter()
        .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()))
        .collect();
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[track_caller]
fn assert_values(learner: &Learner, set: &ParamSet, network: f32, name: &str) {
    let id = learner.layout().find(name).unwrap();
    let found = set[id].to_f32();
    let expected: Vec<f32> = (0..found.len()).map(|i| value(network, name, i)).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn a_full_checkpoint_of_dino_gives_both_networks_their_heads_and_the_centre() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut learner = learner(&recipe(""));
    write_dino(&path, &learner);
    let beginning = Beginning::read(&path, &OPTIONS).unwrap();
    let shape = beginning.heads(false).unwrap();
    assert_eq!((shape.prototypes, shape.hidden, shape.bottleneck), (12, 24, 16));
    assert_eq!((shape.layers, shape.batch_norm, shape.patch_prototypes), (3, false, None));
    assert_eq!(beginning.heads(true), None, "MSN calls its prototypes otherwise");

    let taken = learner.begin_with(&beginning);
    for name in
        ["backbone.cls_token", "backbone.blocks.3.mlp.fc2.weight", "head.mlp.2.bias", "head.last_layer.weight_v"]
    {
        assert_values(&learner, &learner.student, 1.0, name);
        assert_values(&learner, &learner.teacher, 2.0, name);
    }
    let center = learner.method.centers_mut().remove(0).1.to_f32();
    assert_eq!(center, (0..12).map(|i| value(3.0, "center", i)).collect::<Vec<_>>());
    assert!(taken.to_string().ends_with("; heads: 8 of 8 tensors, and 1 centre"), "{taken}");
    assert!(taken.two_networks && taken.resampled.is_none() && taken.anew.is_empty());
}

#[test]
fn what_a_run_keeps_of_it_reads_back_as_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (path, kept) = (folder.path().join("checkpoint.safetensors"), folder.path().join("initial.safetensors"));
    write_dino(&path, &learner(&recipe("")));
    let whole = Beginning::read(&path, &OPTIONS).unwrap();
    let options = LoadOptions { heads: None, ..OPTIONS };
    let renormalized = whole.clone().renormalized((&[0.5; 3], &[0.5; 3]), (&[0.4, 0.5, 0.6], &[0.2, 0.3, 0.25]));
    for beginning in [whole.clone(), whole.clone().of_teacher(), whole.clone().without_centers(), renormalized] {
        std::fs::write(&kept, beginning.to_safetensors().unwrap()).unwrap();
        let again = Beginning::read(&kept, &options).unwrap();
        assert!(again == beginning);
        assert_eq!(again.digest(), beginning.digest());
    }
    assert_ne!(whole.digest(), whole.clone().of_teacher().digest());
    // Any value counts.
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(Beginning::read(&path, &OPTIONS).unwrap().digest(), whole.digest());
}

/// Features of made-up pixels, normalised in some way, by both networks.
fn features(learner: &Learner, (mean, deviation): (&[f32], &[f32])) -> [Vec<f32>; 2] {
    let pixels: Vec<u8> = (0..2 * 32 * 32 * 3).map(|i| ((i * 37) ^ (i >> 4)) as u8).collect();
    let data = PixelData::Bytes { pixels: &pixels, mean, deviation };
    let images = [Pixels { count: 2, height: 32, width: 32, channels: 3, data }];
    let device = learner.device();
    [&learner.student, &learner.teacher].map(|set| learner.vit().features(set, device, &images).unwrap().to_f32())
}

#[test]
fn a_network_of_other_pixels_sees_what_it_saw() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    let mut learner = learner(&recipe(""));
    write_dino(&path, &learner);
    let beginning = Beginning::read(&path, &OPTIONS).unwrap();
    let (was, is) = ((&[0.5; 3][..], &[0.5; 3][..]), (&[0.485, 0.456, 0.406][..], &[0.229, 0.224, 0.225][..]));
    learner.begin_with(&beginning);
    let expected = features(&learner, was);
    let wrong = features(&learner, is);
    learner.begin_with(&beginning.renormalized(was, is));
    let found = features(&learner, is);
    let distance = |a: &[f32], b: &[f32]| {
        let norm = |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
        norm(&mut a.iter().zip(b).map(|(a, b)| a - b)) / norm(&mut b.iter().copied())
    };
    for ((found, expected), wrong) in found.iter().zip(&expected).zip(&wrong) {
        let (found, without) = (distance(found, expected), distance(wrong, expected));
        println!("{found:.1e}, as it is {without:.1e}");
        assert!(found < 1e-4 && without > 100.0 * found, "{found}, {without}");
    }
}

#[test]
fn a_head_of_another_shape_begins_anew_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    write_dino(&path, &learner(&recipe("")));
    let beginning = Beginning::read(&path, &OPTIONS).unwrap();
    let mut other = learner(&recipe(""));
    let (drawn, mut wide) = (learner(&recipe_of(20, "")), learner(&recipe_of(20, "")));
    let taken = wide.begin_with(&beginning);
    assert_eq!(taken.anew.len(), 2, "{taken}");
    assert!(
        taken.to_string().contains("head.last_layer.weight_g begins anew: [12, 1] in the file, [20, 1] here"),
        "{taken}"
    );
    let direction = wide.layout().find("head.last_layer.weight_v").unwrap();
    assert_eq!(wide.student[direction].to_f32(), drawn.student[direction].to_f32());
    assert_values(&wide, &wide.student, 1.0, "head.mlp.0.weight");
    assert!(wide.method.centers_mut()[0].1.to_f32().iter().all(|x| *x == 0.0), "a centre of 12 prototypes");
    assert_eq!(other.begin_with(&beginning.of_teacher()).heads.len(), 8);
    assert_values(&other, &other.student, 2.0, "backbone.cls_token");
}

#[test]
fn positions_are_interpolated_to_the_grid_of_the_run_by_the_rule_of_their_network() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.safetensors");
    // Learnt for 4 x 4 patches; the run has 2 x 3.
    write_dino(&path, &learner(&recipe("")));
    let beginning = Beginning::read(&path, &OPTIONS).unwrap();
    let mut run = learner(&recipe("global_size = \"16x24\"\n"));
    let taken = run.begin_with(&beginning);
    assert_eq!(taken.resampled, Some(((4, 4), (2, 3))));
    let id = run.layout().find("backbone.pos_embed").unwrap();
    let found = run.teacher[id].to_f32();
    let grid = Grid::new((2, 3), (4, 4), run.vit().config().extras.interpolation);
    let at = |row: usize, column: usize| f64::from(value(2.0, "backbone.pos_embed", row * 64 + column));
    for column in 0..64 {
        assert_eq!(f64::from(found[column]), at(0, column), "the class token has no place");
        for patch in 0..6 {
            let expected: f64 = grid.taps(patch).map(|(learnt, weight)| weight * at(1 + learnt, column)).sum();
            assert!((f64::from(found[(1 + patch) * 64 + column]) - expected).abs() < 1e-6);
        }
    }
}

#[test]
fn the_network_of_the_run_is_that_of_the_file_with_registers_and_layer_scale() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backbone.safetensors");
    let text = "registers = 2\nlayer_scale = true\npositions = \"antialiased\"\nnorm_epsilon = 1e-5\n";
    let given = learner(&recipe(text));
    let metadata = model::weights::describe(given.vit().config());
    let bytes = model::weights::to_safetensors(given.layout(), &given.teacher, "backbone.", metadata).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let beginning = Beginning::read(&path, &LoadOptions::default()).unwrap();
    let asked = RawRecipe::default();
    let asked = asked.beginning_with(Begin::Adapt, beginning.digest(), beginning.config(), "--adapt w", |_| false);
    let recipe = asked.unwrap().resolve(&FACTS).unwrap();
    let mut run = learner(&recipe);
    assert_eq!(run.vit().config(), given.vit().config());
    let taken = run.begin_with(&beginning);
    assert_eq!((taken.heads.len(), beginning.has_heads()), (0, false));
    for (i, spec) in given.layout().specs().iter().enumerate().filter(|(_, spec)| spec.name.starts_with("backbone.")) {
        let id = run.layout().find(&spec.name).unwrap();
        assert_eq!(run.student[id].to_f32(), given.teacher[ParamId(i)].to_f32(), "{}", spec.name);
    }
    assert!(WeightsFile::open(&path).unwrap().beside_backbone(None).is_empty());
}
