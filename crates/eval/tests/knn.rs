//! What the kNN classifier refuses, and what it makes of real (if synthetic) images.

use std::ops::ControlFlow;

use eval::{EvalError, Features, KnnOptions, KnnResult, Preparation, knn, raw_pixels};
use tensor::{CpuOptions, Device, Precision};

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(1), precision: Precision::F32 }).unwrap()
}

fn options(ks: &[usize]) -> KnnOptions {
    KnnOptions { ks: ks.to_vec(), ..Default::default() }
}

fn line() -> Features {
    Features::labelled(2, vec![1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 1.0], &[0, 0, 1, 1])
}

#[test]
fn settings_that_make_no_sense_are_named() {
    let (line, device) = (line(), device());
    let say = |options: &KnnOptions| knn::classify(&line, &line, options, &device).unwrap_err().to_string();
    assert_eq!(say(&options(&[1, 5])), "k = 5: expected 1 to 4, the number of training images");
    assert!(say(&options(&[0])).contains("k = 0"));
    assert!(say(&options(&[])).contains("at least one"));
    for temperature in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let message = say(&KnnOptions { ks: vec![1], temperature });
        assert!(message.contains("temperature"), "{message}");
    }
    // Each image has only the three others to vote.
    let error = knn::leave_one_out(&line, &options(&[4]), &device).unwrap_err();
    assert!(error.to_string().contains("1 to 3"), "{error}");
}

#[test]
fn features_that_cannot_be_judged_are_refused() {
    let (line, device) = (line(), device());
    let classify = |train: &Features, test: &Features| knn::classify(train, test, &options(&[1]), &device).unwrap_err();
    let unlabelled = Features { labels: vec![Some(0), None, Some(1), None], ..line.clone() };
    assert_eq!(
        classify(&unlabelled, &line).to_string(),
        "2 of 4 training images have no label: in a folder the images of a class go into one sub-folder each, in a list the \
         label stands behind the path"
    );
    assert!(matches!(classify(&line, &unlabelled), EvalError::NoLabels { which: "test", unlabelled: 2, .. }));
    let wide = Features::labelled(3, vec![1.0; 3], &[0]);
    assert!(matches!(classify(&line, &wide), EvalError::Width { train: 2, test: 3 }));
    let none = Features { dim: 2, ..Default::default() };
    assert!(matches!(classify(&line, &none), EvalError::Empty { which: "test" }));
    let broken = Features { values: [&line.values[..7], &[f32::NAN]].concat(), ..line.clone() };
    assert!(classify(&line, &broken).to_string().contains("test image 3"));
}

#[test]
fn an_image_votes_for_itself_unless_left_out() {
    // Each class has one image only: leaving it out leaves no right answer.
    let lonely = Features::labelled(2, vec![1.0, 0.0, 0.7, 0.7, 0.0, 1.0], &[0, 1, 2]);
    let itself = knn::classify(&lonely, &lonely, &options(&[1]), &device()).unwrap();
    let others = knn::leave_one_out(&lonely, &options(&[1]), &device()).unwrap();
    assert_eq!(itself, [KnnResult { k: 1, top1: 100.0, top5: 100.0 }]);
    assert_eq!(others, [KnnResult { k: 1, top1: 0.0, top5: 0.0 }]);
}

#[test]
fn a_feature_of_zeros_is_equally_far_from_all() {
    let zero = Features::labelled(2, vec![0.0, 0.0], &[0]);
    let result = knn::classify(&line(), &zero, &options(&[1, 3]), &device()).unwrap();
    assert_eq!((result[0].top1, result[1].top1), (100.0, 100.0), "ties go to the lowest row");
}

#[test]
fn raw_pixels_of_synthetic_images_are_judged_from_end_to_end() {
    let set = |split| {
        let source = data::open("synthetic:train=120,test=60,size=16", split, 0).unwrap();
        let none = &mut |_| ControlFlow::Continue(());
        raw_pixels(&*source, &Preparation::Stretch((16, 16)), &Default::default(), none).unwrap().features
    };
    let (train, test) = (set(data::Split::Train), set(data::Split::Test));
    let results = knn::classify(&train, &test, &options(&[10]), &device()).unwrap();
    assert!(results[0].top1 > 0.0 && results[0].top1 < 60.0, "ten classes, made hard for raw pixels: {results:?}");
    assert!(results[0].top5 >= results[0].top1);
}
