//! Scores masks as files: those of a published method against what the benchmark's own scorer gives for them, and everything
//! that can be wrong with a result. And the whole way from frames to masks with a small network.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use data::{Image, label_map};
use eval::video::{Propagation, Sequence, VideoError, VideoScore, propagate, score_folder, score_masks, sequences};
use eval::{EvalError, Network};
use model::{Arch, Layout, Vit, VitConfig};
use tensor::{CpuOptions, Device};

fn host(threads: usize) -> Device {
    Device::cpu(CpuOptions { threads: Some(threads), ..Default::default() }).unwrap()
}

fn score(root: &Path, masks: &Path) -> Result<VideoScore, EvalError> {
    score_folder(&sequences(root, &[])?, masks, &host(2), &mut |_| ControlFlow::Continue(()))
}

/// The DAVIS sequences beside the project, if they are there.
fn davis() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    let root = std::env::var("DINO_VMF_TEST_DATA").unwrap_or_else(|_| beside.to_owned());
    let root = Path::new(&root).join("davis2017");
    if !root.is_dir() {
        eprintln!("skipped: no sequences in {}", root.display());
    }
    root.is_dir().then_some(root)
}

#[test]
fn published_masks_score_what_the_benchmark_says() {
    let Some(root) = davis() else { return };
    let expected = fs::read_to_string(root.join("osvos_expected.csv")).unwrap();
    let scores = score(&root, &root.join("Results/osvos")).unwrap();
    assert_eq!(scores.sequences.len(), 3);
    for (sequence, line) in scores.sequences.iter().zip(expected.lines().skip(1)) {
        let mut fields = line.split(',');
        assert_eq!(fields.next(), Some(sequence.name.as_str()));
        let want: Vec<f64> = fields.map(|field| field.parse().unwrap()).collect();
        let [object] = &sequence.objects[..] else { panic!("one object: {sequence:?}") };
        let (j, f) = (object.j, object.f);
        for (found, want) in [j.mean, j.recall, j.decay, f.mean, f.recall, f.decay].into_iter().zip(want) {
            assert!((found - want).abs() < 1e-9, "{}: {found} {want}", sequence.name);
        }
    }
    let overall = scores.overall();
    let means: Vec<f64> = scores.sequences.iter().map(|s| s.objects[0].jf()).collect();
    assert!((overall.jf() - means.iter().sum::<f64>() / 3.0).abs() < 1e-12);
}

/// Frames of the small data set.
const FRAMES: usize = 5;

/// A mask of two objects that move with the frame.
fn mask(frame: usize, (height, width): (usize, usize)) -> Image {
    let mut labels = Image::black(width, height, 1);
    for y in 0..height {
        for x in 0..width {
            let first = (2 + frame..12 + frame).contains(&x) && (3..14).contains(&y);
            let second = (20..27).contains(&x) && (8 + frame..16 + frame).contains(&y);
            labels.pixels[y * width + x] = u8::from(first) + 2 * u8::from(second);
        }
    }
    labels
}

fn write(folder: &Path, frame: usize, labels: &Image) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join(format!("{frame:05}.png")), label_map::to_png(labels).unwrap()).unwrap();
}

/// A data set of one sequence of two objects without frames, and the same masks as a result.
fn small() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (root, result) = (folder.path().join("davis"), folder.path().join("masks"));
    fs::create_dir_all(root.join("ImageSets/2017")).unwrap();
    fs::write(root.join("ImageSets/2017/val.txt"), "moving\n\n").unwrap();
    for frame in 0..FRAMES {
        write(&root.join("Annotations/480p/moving"), frame, &mask(frame, (24, 40)));
        write(&result.join("moving"), frame, &mask(frame, (24, 40)));
    }
    (folder, root, result)
}

#[track_caller]
fn video_error(result: Result<VideoScore, EvalError>) -> VideoError {
    match result {
        Err(EvalError::Video(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_annotations_themselves_score_one_and_void_is_background() {
    let (_folder, root, result) = small();
    let perfect = score(&root, &result).unwrap();
    assert_eq!((perfect.overall().jf(), perfect.sequences[0].frames), (1.0, FRAMES - 2));
    assert_eq!(perfect.sequences[0].objects.len(), 2);
    let annotations = root.join("Annotations/480p/moving");
    for frame in 0..FRAMES {
        let mut labels = mask(frame, (24, 40));
        labels.pixels[0] = 255;
        write(&annotations, frame, &labels);
    }
    assert_eq!(score(&root, &result).unwrap(), perfect);
}

#[test]
fn an_object_that_the_result_lacks_scores_zero() {
    let (_folder, root, result) = small();
    for frame in 0..FRAMES {
        let mut labels = mask(frame, (24, 40));
        labels.pixels.iter_mut().filter(|label| **label == 2).for_each(|label| *label = 0);
        write(&result.join("moving"), frame, &labels);
    }
    let scores = score(&root, &result).unwrap();
    let [first, second] = &scores.sequences[0].objects[..] else { panic!("two objects") };
    assert_eq!((first.jf(), second.jf(), scores.overall().jf()), (1.0, 0.0, 0.5));
}

#[test]
fn the_first_and_the_last_mask_are_not_asked_for_and_any_other_is() {
    let (_folder, root, result) = small();
    for frame in [0, FRAMES - 1] {
        fs::remove_file(result.join(format!("moving/{frame:05}.png"))).unwrap();
    }
    assert_eq!(score(&root, &result).unwrap().overall().jf(), 1.0);
    fs::remove_file(result.join("moving/00002.png")).unwrap();
    let error = video_error(score(&root, &result));
    assert!(matches!(&error, VideoError::NoMask { frame, .. } if frame == "00002"), "{error:?}");
    assert!(error.to_string().contains("no mask for frame 00002 of moving"), "{error}");
}

#[test]
fn a_mask_of_another_size_is_an_error_with_both_sizes() {
    let (_folder, root, result) = small();
    write(&result.join("moving"), 3, &mask(3, (24, 41)));
    let error = video_error(score(&root, &result));
    assert!(matches!(error, VideoError::Size { size: (24, 41), expected: (24, 40), .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("00003.png: 41 x 24 pixels") && said.contains("has 40 x 24"), "{said}");
}

#[test]
fn more_objects_than_the_annotation_has_are_an_error() {
    let (_folder, root, result) = small();
    let mut labels = mask(1, (24, 40));
    labels.pixels[7] = 3;
    write(&result.join("moving"), 1, &labels);
    let error = video_error(score(&root, &result));
    assert!(matches!(error, VideoError::MoreObjects { label: 3, objects: 2, .. }), "{error:?}");
}

#[test]
fn an_rgb_picture_is_no_mask() {
    let (_folder, root, result) = small();
    let png = data::sheet::to_png(&Image::black(40, 24, 3)).unwrap();
    fs::write(result.join("moving/00001.png"), png).unwrap();
    let error = video_error(score(&root, &result));
    assert!(matches!(error, VideoError::Labels { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("00001.png: a PNG of RGB pixels") && said.contains("indexed colours"), "{said}");
}

#[test]
fn a_sequence_without_annotations_is_an_error_that_names_it() {
    let (_folder, root, result) = small();
    fs::write(root.join("ImageSets/2017/val.txt"), "moving\nlost\n").unwrap();
    let error = video_error(score(&root, &result));
    assert!(matches!(&error, VideoError::NoAnnotations { sequence, .. } if sequence == "lost"), "{error:?}");
    let one = sequences(&root, &["moving".to_owned()]).unwrap();
    assert_eq!(one.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["moving"]);
}

#[test]
fn what_cannot_be_a_data_set_is_refused() {
    let (_folder, root, result) = small();
    let annotations = root.join("Annotations/480p/moving");
    // A name that leads out of the folder that masks are written to.
    for name in ["../moving", "a/b", "..", "", "a\\b"] {
        let error = sequences(&root, &[name.to_owned()]).unwrap_err();
        assert!(matches!(error, VideoError::Name { .. }), "{name}: {error}");
    }
    // A frame without an annotation.
    let images = root.join("JPEGImages/480p/moving");
    fs::create_dir_all(&images).unwrap();
    (0..=FRAMES).for_each(|frame| fs::write(images.join(format!("{frame:05}.jpg")), "").unwrap());
    let error = video_error(score(&root, &result));
    assert!(matches!(&error, VideoError::Unpaired { frame, .. } if frame == "00005"), "{error:?}");
    fs::remove_dir_all(&images).unwrap();
    // Nothing to follow.
    write(&annotations, 0, &Image::black(40, 24, 1));
    assert!(matches!(video_error(score(&root, &result)), VideoError::NoObjects { .. }));
    // Nothing to judge.
    (2..FRAMES).for_each(|frame| fs::remove_file(annotations.join(format!("{frame:05}.png"))).unwrap());
    assert!(matches!(video_error(score(&root, &result)), VideoError::TooShort { frames: 2, .. }));
    fs::write(root.join("ImageSets/2017/val.txt"), "\n").unwrap();
    assert!(matches!(video_error(score(&root, &result)), VideoError::NoSequences { .. }));
    fs::remove_file(root.join("ImageSets/2017/val.txt")).unwrap();
    let error = video_error(score(&root, &result));
    assert!(matches!(error, VideoError::Read { .. }) && error.to_string().contains("val.txt"), "{error}");
}

#[test]
fn a_wish_to_stop_is_heeded() {
    let (_folder, root, result) = small();
    let sequences = sequences(&root, &[]).unwrap();
    let stopped = score_folder(&sequences, &result, &host(1), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Stopped)));
}

/// Masks by a small network of random weights.
fn masks(sequence: &Sequence, threads: usize, patch: usize) -> Result<Vec<Image>, EvalError> {
    let device = host(threads);
    let mut layout = Layout::default();
    let vit = Vit::new(&mut layout, "", VitConfig::new(Arch::Nano, patch, (64, 64), 3).unwrap());
    let weights = layout.initial(&device, 0);
    let network = Network::new(&vit, &weights, &device);
    propagate(network, sequence, &Propagation::default(), &device, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn a_network_follows_an_object_from_its_first_mask_alone() {
    let Some(root) = davis() else { return };
    let mut sequence = sequences(&root, &["blackswan".to_owned()]).unwrap().remove(0);
    sequence.frames.truncate(6);
    let made = masks(&sequence, 1, 32).unwrap();
    assert_eq!(made.len(), 6);
    assert!(made.iter().all(|mask| (mask.height, mask.width) == (480, 854)));
    let score = score_masks(&sequence, &made, &host(2)).unwrap();
    // A swan on calm water: it hardly moves in six frames.
    assert!(score.objects[0].j.mean > 0.5, "{score:?}");
    assert_eq!(masks(&sequence, 2, 32).unwrap(), made, "whatever the number of threads");
    // Patches that do not fill the frame.
    let odd = masks(&sequence, 2, 30).unwrap();
    assert!(score_masks(&sequence, &odd, &host(2)).unwrap().objects[0].j.mean > 0.5);
}

#[test]
fn a_sequence_without_frames_can_be_scored_and_not_followed() {
    let (_folder, root, _) = small();
    let sequence = sequences(&root, &[]).unwrap().remove(0);
    let error = masks(&sequence, 1, 32).unwrap_err();
    assert!(matches!(&error, EvalError::Video(VideoError::NoFrames { .. })), "{error:?}");
    assert!(error.to_string().contains("JPEGImages/480p/moving"), "{error}");
}
