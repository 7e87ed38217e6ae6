//! Every file under `recipes/` is a recipe that can train, and says in its header what to expect.

use std::fs;
use std::path::{Path, PathBuf};

use ssl::recipe::{Centering, Facts, Prototypes, RawRecipe, Recipe};

const IMAGENET: Facts = Facts { images: 1_281_167, height: 375, width: 500, labelled: true, fingerprint: 0 };
const CIFAR10: Facts = Facts { images: 50_000, height: 32, width: 32, labelled: true, fingerprint: 0 };
const SYNTHETIC: Facts = Facts { images: 4000, height: 48, width: 48, labelled: true, fingerprint: 0 };

fn recipes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Studies are no recipes.
        if path.ends_with("studies") {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn imagenet(name: &str) -> Recipe {
    RawRecipe::from_file(&recipes().join("imagenet").join(name)).unwrap().resolve(&IMAGENET).unwrap()
}

#[test]
fn every_recipe_resolves_without_a_warning_and_its_header_names_command_and_expectation() {
    let mut found = Vec::new();
    files(&recipes(), &mut found);
    assert!(found.len() >= 13, "{found:?}");
    for path in found {
        let facts = match path.file_stem().unwrap().to_str() {
            Some("cifar10") => CIFAR10,
            Some(name) if name.starts_with("synthetic") => SYNTHETIC,
            _ => IMAGENET,
        };
        let recipe =
            RawRecipe::from_file(&path).and_then(|raw| raw.resolve(&facts)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(recipe.warnings(), Vec::<String>::new(), "{}", path.display());
        let text = fs::read_to_string(&path).unwrap();
        let header: String = text.lines().take_while(|line| line.starts_with('#')).collect();
        let relative = path.strip_prefix(recipes()).unwrap().display().to_string();
        assert!(header.contains(&format!("dino-vmf pretrain --recipe recipes/{relative}")), "{relative}");
        assert!(header.contains("Paper: ") || header.contains("Expected: "), "{relative}");
    }
}

#[test]
fn the_ablation_pair_differs_in_prototypes_and_centering_only() {
    let differences = imagenet("dino-s16-100ep.toml").same_run(&imagenet("dino-vmf-s16-100ep.toml")).unwrap_err();
    let keys: Vec<&str> = differences.iter().map(|difference| difference.key.as_str()).collect();
    assert_eq!(keys, ["prototypes", "centering"]);
}

#[test]
fn the_main_runs_have_the_released_settings_of_their_size() {
    let small = imagenet("dino-vmf-s16.toml");
    assert_eq!((small.epochs(), small.steps_per_epoch(), small.peak_lr()), (800, 1251, 2e-3));
    assert_eq!((small.clip_grad(), small.freeze_last_layer(), small.warmup_teacher_temp_epochs()), (0.0, 1, 30));
    let base = imagenet("dino-vmf-b16.toml");
    assert_eq!((base.arch(), base.epochs(), base.steps_per_epoch()), (model::Arch::Base, 400, 2502));
    assert_eq!((base.clip_grad(), base.freeze_last_layer(), base.warmup_teacher_temp_epochs()), (0.3, 3, 50));
    assert!((base.peak_lr() - 1.5e-3).abs() < 1e-18);
    for recipe in [small, base] {
        assert_eq!((recipe.prototypes(), recipe.centering()), (Prototypes::Vmf, Centering::Probability));
        assert_eq!((recipe.local_crops(), recipe.out_dim(), recipe.momentum_teacher()), (10, 65_536, 0.996));
    }
}
