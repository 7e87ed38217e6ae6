//! One run for each kind of judgement, made of numbers.

use serde_json::{Value, json};
use train::run::KnnTable;

use super::judgement::{Ending, Evidence, judge};
use super::movement::Movement;
use super::verdict::CollapseKind;
use crate::recipe::{Facts, RawRecipe, Recipe};

/// 300 images in batches of 64: 4 steps an epoch, and 3,200 steps that such data needs.
fn recipe(text: &str, labelled: bool) -> Recipe {
    recipe_for(300, text, labelled)
}

fn recipe_for(images: usize, text: &str, labelled: bool) -> Recipe {
    let facts = Facts { images, height: 160, width: 160, labelled, fingerprint: 7 };
    RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap()
}

/// A healthy last record.
fn record(step: u64) -> Value {
    json!({
        "step": step, "epoch": 0, "loss": 3.0, "divergence": 1.0, "teacher_entropy": 2.0, "prototypes_in_use": 60,
        "usage_perplexity": 40.0, "kappa_min": 8.0, "kappa_median": 10.0, "kappa_max": 12.0, "feature_rank": 9.0,
    })
}

fn table(raw_pixels: f64, untrained: f64, trained: f64) -> KnnTable {
    KnnTable { k: 20, judged: String::new(), images: Some(1000), raw_pixels, untrained, is_given: false, trained }
}

const MOVED: Movement = Movement { student: 0.9, teacher: 0.5 };

fn finished(recipe: &Recipe, last: Value, movement: Movement, knn: Option<&KnnTable>) -> (&'static str, String) {
    let (steps, log) = (recipe.total_steps(), [last]);
    let evidence = Evidence { recipe, steps, ending: Ending::Finished, log: &log, movement: Some(movement), knn };
    let judgement = judge(&evidence);
    (judgement.kind.word(), judgement.advice)
}

#[track_caller]
fn says((word, advice): (&str, String), expected: &str, parts: &[&str]) {
    assert_eq!(word, expected, "{advice}");
    for part in parts {
        assert!(advice.contains(part), "{part}: {advice}");
    }
}

#[test]
fn a_network_that_beats_pixels_and_its_start_has_learnt_however_short_the_run() {
    let long = recipe("epochs = 800", true);
    let good = table(33.0, 31.0, 44.0);
    says(finished(&long, record(3200), MOVED, Some(&good)), "learnt", &["44.0 %", "33.0 %", "use its features"]);
    let short = recipe("epochs = 10", true);
    says(finished(&short, record(40), MOVED, Some(&good)), "learnt", &["--epochs 20"]);
}

#[test]
fn a_run_of_few_steps_is_too_short_and_told_how_long_it_should_be() {
    let short = recipe("epochs = 78", true);
    let parts =
        ["312 steps of about 3,200 that 300 images need", "below raw pixels", "--epochs 800", "--global-size 96"];
    says(finished(&short, record(312), MOVED, Some(&table(23.0, 10.0, 11.0))), "too_short", &parts);
    let unlabelled = recipe("epochs = 78", false);
    says(finished(&unlabelled, record(312), MOVED, None), "too_short", &["nothing looks wrong", "rank 9.0"]);
    let small = recipe("epochs = 78\nglobal_size = 64", true);
    let (_, advice) = finished(&small, record(312), MOVED, Some(&table(23.0, 10.0, 11.0)));
    assert!(!advice.contains("--global-size"), "{advice}");
}

#[test]
fn a_run_that_is_long_enough_and_has_not_learnt_is_told_so() {
    let long = recipe("epochs = 800", true);
    let below = table(40.0, 20.0, 30.0);
    says(finished(&long, record(3200), MOVED, Some(&below)), "below_raw_pixels", &["better than the untrained"]);
    let same = table(30.0, 30.0, 31.0);
    says(finished(&long, record(3200), MOVED, Some(&same)), "no_gain", &["no better than raw pixels", "milder crops"]);
}

#[test]
fn a_given_backbone_that_has_not_gained_is_told_what_could_help() {
    const GIVEN: &str = "begin_weights = \"0123456789abcdef\"\nstart = \"random\"";
    let same = table(30.0, 30.0, 31.0);
    let advice = |text: &str, steps| {
        let recipe = recipe(&format!("{text}\n{GIVEN}"), true);
        let (word, advice) = finished(&recipe, record(steps), MOVED, Some(&same));
        assert_eq!(word, "no_gain", "{advice}");
        advice
    };
    // There is no pull to weaken.
    let short = advice("begin = \"init\"\nepochs = 10", 40);
    assert!(short.contains("40 steps are few: --epochs 20"), "{short}");
    let long = advice("begin = \"init\"\nepochs = 800", 3200);
    assert!(long.contains("Next: more images, in another --out"), "{long}");
    let held = advice("begin = \"adapt\"\nepochs = 10", 40);
    assert!(held.contains("a higher backbone_lr with a weaker pull"), "{held}");
    let free = advice("begin = \"adapt\"\nepochs = 10\npull = 0", 40);
    assert!(free.contains("Next: more images, or a higher backbone_lr, in"), "{free}");
}

#[test]
fn the_curve_says_what_to_try_next() {
    let long = recipe("epochs = 800", true);
    let knn = table(40.0, 20.0, 30.0);
    let judged = |curve: [f64; 4]| {
        let mut log: Vec<Value> =
            (0..4).map(|i| json!({ "step": 800 * i, "epoch": 199 + 200 * i, "knn_top1": curve[i] })).collect();
        log.push(record(3200));
        let evidence = Evidence {
            recipe: &long,
            steps: 3200,
            ending: Ending::Finished,
            log: &log,
            movement: Some(MOVED),
            knn: Some(&knn),
        };
        judge(&evidence).advice
    };
    assert!(judged([10.0, 15.0, 20.0, 30.0]).contains("still rising: --epochs 1600"));
    assert!(judged([20.0, 39.0, 35.0, 30.0]).contains("best after epoch 400 (39.0 %) and fell since: a lower lr"));
}

#[test]
fn a_teacher_that_stays_at_its_start_is_told_why() {
    let still = recipe("epochs = 800\nmomentum_teacher = 1", true);
    let same = table(30.0, 25.0, 25.0);
    let parts = ["momentum_teacher 1 does not let it follow", "leave momentum_teacher out"];
    let movement = Movement { student: 0.9, teacher: 0.0 };
    says(finished(&still, record(3200), movement, Some(&same)), "did_not_move", &parts);
    let slow = recipe("epochs = 800\nmomentum_teacher = 0.9999999", true);
    let movement = Movement { student: 0.9, teacher: 1e-5 };
    says(finished(&slow, record(3200), movement, Some(&same)), "did_not_move", &["0.9999999 does not let"]);
    let frozen = recipe("epochs = 800\nlr = 1e-12\nmin_lr = 0", true);
    let movement = Movement { student: 1e-9, teacher: 1e-9 };
    says(finished(&frozen, record(3200), movement, Some(&same)), "did_not_move", &["lr 0.000000000001 is too low"]);
}

#[test]
fn a_collapse_is_told_with_the_setting_that_fits() {
    let uniform = |recipe: &Recipe| {
        let ln_k = (recipe.out_dim() as f64).ln();
        let mut last = record(recipe.total_steps());
        (last["loss"], last["teacher_entropy"]) = (json!(ln_k), json!(ln_k));
        last
    };
    let fast = recipe("epochs = 800\nlr = 10", false);
    let (word, advice) = finished(&fast, uniform(&fast), MOVED, None);
    assert!(!advice.contains("teacher_temp"), "{advice}");
    says((word, advice), "collapsed", &["lr 10 is 20000 times", "another --out"]);
    let soft = recipe("epochs = 800\nteacher_temp = 0.07\nhead_batch_norm = false", true);
    let knn = table(30.0, 25.0, 25.0);
    let parts = ["batch normalisation in the head", "Try head_batch_norm = true", "another --out"];
    says(finished(&soft, uniform(&soft), MOVED, Some(&knn)), "collapsed", &parts);
    // Before the warm-up is over a uniform teacher says nothing.
    let short = recipe("epochs = 20\nteacher_temp = 0.07", false);
    says(finished(&short, uniform(&short), MOVED, None), "too_short", &["still uniform, as it is at first"]);
    // Not uniform, but worse than before the first step, at a learning rate that explains it.
    let brief = recipe("epochs = 20\nlr = 10", true);
    says(finished(&brief, record(80), MOVED, Some(&table(33.0, 31.0, 15.0))), "collapsed", &["ruined", "lr 10"]);
}

#[test]
fn a_run_that_a_collapse_ended_is_told_since_when_and_what_to_try() {
    let recipe = recipe("epochs = 800\nhead_batch_norm = false", true);
    let ln_k = (recipe.out_dim() as f64).ln();
    let mut last = record(1600);
    (last["loss"], last["teacher_entropy"]) = (json!(ln_k), json!(ln_k));
    let log = [last];
    let ending = Ending::Collapsed { since: 1280 };
    let evidence = Evidence { recipe: &recipe, steps: 1600, ending, log: &log, movement: None, knn: None };
    let judgement = judge(&evidence);
    let parts = ["from step 1,280 on", "after step 1,600 of 3,200", "the teacher is uniform", "head_batch_norm = true"];
    assert_eq!((judgement.collapse, judgement.kind.word()), (Some(CollapseKind::Uniform), "collapsed"));
    assert_eq!(judgement.remedy.unwrap().assignments(), "head_batch_norm = true");
    says((judgement.kind.word(), judgement.advice), "collapsed", &parts);
}

#[test]
fn features_of_rank_one_are_no_collapse_where_knn_says_that_they_are_good() {
    let long = recipe("epochs = 800", true);
    let mut last = record(3200);
    last["feature_rank"] = json!(1.02);
    says(finished(&long, last.clone(), MOVED, Some(&table(33.0, 31.0, 44.0))), "learnt", &["44.0 %"]);
    says(finished(&long, last, MOVED, Some(&table(33.0, 31.0, 32.0))), "collapsed", &["effective rank is 1.02"]);
}

/// Two runs on Imagenette that ended almost uniform, and were told no more than to train for longer.
#[test]
fn a_run_that_is_nearly_uniform_and_has_learnt_nothing_is_not_called_short() {
    // 2,480 steps of about 6,200 that such data needs.
    let facts = Facts { images: 8000, height: 160, width: 160, labelled: true, fingerprint: 7 };
    let recipe = |text: &str| {
        let text = format!("epochs = 40\nbatch_size = 128\nout_dim = 4096\nhead_batch_norm = true\n{text}");
        RawRecipe::from_toml(&text, "test").unwrap().resolve(&facts).unwrap()
    };
    let judged = |recipe: &Recipe, entropy: f64, rank: f64, trained: f64| {
        let mut last = record(recipe.total_steps());
        (last["teacher_entropy"], last["loss"], last["feature_rank"]) = (json!(entropy), json!(8.2), json!(rank));
        finished(recipe, last, MOVED, Some(&table(38.7, 32.3, trained)))
    };
    let fast = recipe("momentum_teacher = 0.94\nmomentum_teacher_end = 0.99");
    let parts =
        ["Nearly collapsed: after 2,480 steps", "6.9 of ln 4096 = 8.3", "rank 2.7", "momentum_teacher = 0.97 and"];
    says(judged(&fast, 6.9, 2.7, 31.0), "collapsed", &parts);
    let sharp = recipe("warmup_teacher_temp = 0.025\nwarmup_teacher_temp_epochs = 15");
    let parts = ["nearly uniform", "7.4 of", "rank 4.2", "Try warmup_teacher_temp = 0.04"];
    says(judged(&sharp, 7.4, 4.2, 34.2), "collapsed", &parts);
    // What is as uniform and has learnt is well, and what is short may still learn.
    assert_eq!(judged(&fast, 6.9, 2.7, 55.0).0, "learnt");
    assert_eq!(judged(&fast, 3.0, 20.0, 31.0).0, "too_short");
    let text = "epochs = 10\nbatch_size = 128\nout_dim = 4096";
    let short = RawRecipe::from_toml(text, "test").unwrap().resolve(&facts).unwrap();
    assert_eq!(judged(&short, 6.9, 2.7, 31.0).0, "too_short");
}

#[test]
fn without_labels_health_is_all_that_is_claimed() {
    let parts = ["No labels to judge by; nothing looks wrong (60 of 128 prototypes in use, features of rank 9.0)"];
    says(finished(&recipe("epochs = 800", false), record(3200), MOVED, None), "no_labels_healthy", &parts);
    let failed = finished(&recipe("epochs = 800", true), record(3200), MOVED, None);
    says(failed, "not_judged", &["kNN could not be computed"]);
    let one_class = finished(&recipe("epochs = 1", true), record(4), MOVED, Some(&table(100.0, 100.0, 100.0)));
    says(one_class, "not_judged", &["no gain could be seen"]);
}

#[test]
fn a_stopped_run_is_told_how_to_go_on_and_what_speaks_against_it() {
    let recipe = recipe("epochs = 800", true);
    let judged = |log: &[Value]| {
        let evidence =
            Evidence { recipe: &recipe, steps: 700, ending: Ending::Stopped, log, movement: None, knn: None };
        let judgement = judge(&evidence);
        assert_eq!(judgement.kind.word(), "unfinished");
        judgement.advice
    };
    let log = [json!({ "step": 600, "epoch": 149, "knn_top1": 21.0 }), record(700)];
    let expected = "Unfinished: stopped after step 700 of 3200, kNN top-1 21.0 % so far. Run the same command again to \
                    continue";
    assert_eq!(judged(&log), expected);
    let mut bad = record(700);
    bad["usage_perplexity"] = json!(1.0);
    let said = judged(&[bad]);
    assert!(said.contains("and the teacher gives one prototype to every view") && said.contains("changed"), "{said}");
}

#[test]
fn a_learning_rate_that_is_out_of_the_usual_is_named_however_short_the_run() {
    let parts = ["Too short to tell", "Try lr = 0.0005: lr 10 is 20000 times DINO's", "another --out with that"];
    let unlabelled = recipe("epochs = 20\nlr = 10", false);
    let (word, advice) = finished(&unlabelled, record(80), MOVED, None);
    assert!(!advice.contains("nothing looks wrong") && !advice.contains("--epochs"), "{advice}");
    says((word, advice), "too_short", &parts);
    let labelled = recipe("epochs = 20\nlr = 10", true);
    says(finished(&labelled, record(80), MOVED, Some(&table(31.0, 30.0, 31.0))), "too_short", &parts);
    // A log that was never written to does not hide it.
    says(finished(&unlabelled, json!({}), MOVED, None), "too_short", &parts);
    let long = recipe("epochs = 800\nlr = 10", false);
    says(finished(&long, record(3200), MOVED, None), "no_labels_healthy", &["lr 10 is 20000 times"]);
    let no_gain = recipe("epochs = 800\nlr = 10", true);
    says(finished(&no_gain, record(3200), MOVED, Some(&table(30.0, 30.0, 31.0))), "no_gain", &["lr 10 is 20000 times"]);
}

#[test]
fn numbers_of_a_handful_of_images_are_not_taken_for_health() {
    for (images, said) in [(1, "a training on 1 image "), (31, "a training on 31 images ")] {
        for epochs in [1, 800] {
            let few = recipe_for(images, &format!("epochs = {epochs}"), false);
            let judged = finished(&few, record(few.total_steps()), MOVED, None);
            says(judged, "too_few_images", &[said, "Next: hundreds of images"]);
        }
    }
    let enough = recipe_for(32, "epochs = 800", false);
    says(finished(&enough, record(enough.total_steps()), MOVED, None), "no_labels_healthy", &[]);
    let labelled = recipe_for(24, "epochs = 9", true);
    let judged = finished(&labelled, record(27), MOVED, Some(&table(30.0, 30.0, 31.0)));
    says(judged, "too_short", &["--epochs 800", "more of them help more than more epochs"]);
}

#[test]
fn the_epochs_of_an_advised_run_are_those_of_the_sentence() {
    let epochs = |recipe: &Recipe, knn: Option<&KnnTable>| {
        let (steps, log) = (recipe.total_steps(), [record(recipe.total_steps())]);
        let movement = Some(MOVED);
        let judgement = judge(&Evidence { recipe, steps, ending: Ending::Finished, log: &log, movement, knn });
        let asks = |epochs: usize| judgement.advice.contains(&format!("--epochs {epochs} "));
        assert!(judgement.epochs.map_or(!judgement.advice.contains("--epochs"), asks), "{judgement:?}");
        judgement.epochs
    };
    let good = table(33.0, 31.0, 44.0);
    assert_eq!(epochs(&recipe("epochs = 10", true), Some(&good)), Some(20));
    assert_eq!(epochs(&recipe("epochs = 800", true), Some(&good)), None);
    assert_eq!(epochs(&recipe("epochs = 78", false), None), Some(800));
    assert_eq!(epochs(&recipe("epochs = 78\nlr = 10", false), None), None, "longer would not help");
}
