//! Two parts of a data set in tar archives: how they are told apart, and how each is labelled.

mod support;

use data::source::open_cached;
use data::{OpenError, Source, Split};
use std::sync::Arc;
use support::TempFolder;
use support::archive::Tar;

const RED: [u8; 3] = [200, 10, 20];

fn open(folder: &TempFolder, name: &str, split: Split) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.0.join(name).to_str().unwrap(), split, 0, &folder.0.join(".cache"))
}

fn tar(names: &[&str]) -> Vec<u8> {
    names.iter().fold(Tar::default(), |tar, name| tar.image(name, RED)).end()
}

/// Images with class numbers in the way of WebDataset.
fn samples(labels: &[(&str, &str)]) -> Vec<u8> {
    let sample = |tar: Tar, (key, label): &(&str, &str)| {
        tar.image(&format!("{key}.jpg"), RED).file(&format!("{key}.cls"), label.as_bytes())
    };
    labels.iter().fold(Tar::default(), sample).end()
}

/// Both parts of a folder with these two archives.
fn parts(train: &[u8], val: &[u8]) -> [Arc<dyn Source>; 2] {
    let folder = TempFolder::new();
    folder.write("train-0.tar", train);
    folder.write("val-0.tar", val);
    [Split::Train, Split::Test].map(|split| open(&folder, "", split).unwrap())
}

fn labels(source: &dyn Source) -> Vec<Option<u32>> {
    (0..source.len()).map(|i| source.label(i)).collect()
}

#[test]
fn a_flat_held_out_archive_leaves_the_labels_of_the_training_part_alone() {
    let [train, test] = parts(&tar(&["dog/1.bmp", "cat/2.bmp"]), &tar(&["3.bmp", "4.bmp"]));
    assert_eq!((train.class_names().len(), labels(&*train)), (2, vec![Some(1), Some(0)]));
    assert!(train.remarks().is_empty(), "{:?}", train.remarks());
    assert_eq!((test.class_names().len(), labels(&*test)), (0, vec![None, None]));
    assert_eq!(test.remarks().len(), 1);
    assert!(test.remarks()[0].contains("no labels") && test.remarks()[0].contains("3.bmp"), "{:?}", test.remarks());
}

#[test]
fn each_part_may_have_its_own_folders_above_the_classes() {
    let [train, test] = parts(&tar(&["n01/1.bmp", "n02/2.bmp"]), &tar(&["val/n02/3.bmp", "val/n01/4.bmp"]));
    assert_eq!(train.class_names(), ["n01", "n02"]);
    assert_eq!((test.class_names(), labels(&*test)), (train.class_names(), vec![Some(1), Some(0)]));
    assert!(test.remarks().is_empty(), "{:?}", test.remarks());
}

#[test]
fn a_held_out_folder_that_is_no_class_means_no_labels_there() {
    let [train, test] = parts(&tar(&["n01/1.bmp", "n02/2.bmp"]), &tar(&["n01/3.bmp", "n03/4.bmp"]));
    assert_eq!((train.class_names().len(), test.class_names().len()), (2, 0));
    assert!(test.remarks()[0].ends_with("n03/4.bmp"), "{:?}", test.remarks());
}

#[test]
fn class_numbers_of_the_training_part_do_not_need_any_in_the_other() {
    let train_tar = samples(&[("a", "0"), ("b", "2")]);
    let [train, test] = parts(&train_tar, &tar(&["c.jpg"]));
    assert_eq!((labels(&*train), labels(&*test)), (vec![Some(0), Some(2)], vec![None]));
    assert!(train.remarks().is_empty() && test.remarks()[0].contains("1 of 1 images have no .cls"));
    // One list of classes, as long as the largest number of either.
    let [train, test] = parts(&train_tar, &samples(&[("c", "4")]));
    assert_eq!((train.class_names().len(), test.class_names().len(), test.label(0)), (5, 5, Some(4)));
}

#[test]
fn a_remark_is_made_for_the_part_that_it_is_about() {
    let whole = Tar::default().image("a.bmp", RED).image("b.bmp", RED).0;
    let [train, test] = parts(&whole[..whole.len() - 500], &tar(&["c.bmp"]));
    assert_eq!((train.remarks().len(), test.remarks().len()), (1, 0));
}

#[test]
fn the_word_training_is_as_good_as_train() {
    let folder = TempFolder::new();
    folder.write("training-0.tar", &tar(&["a.bmp", "b.bmp"]));
    folder.write("validation-0.tar", &tar(&["c.bmp"]));
    assert_eq!(open(&folder, "", Split::Train).unwrap().len(), 2);
    assert_eq!(open(&folder, "", Split::Test).unwrap().len(), 1);
}

#[test]
fn held_out_names_without_training_ones_are_trained_on_and_that_is_said() {
    let folder = TempFolder::new();
    folder.write("val-0.tar", &tar(&["a.bmp"]));
    folder.write("test-0.tar", &tar(&["b.bmp"]));
    let source = open(&folder, "", Split::Train).unwrap();
    assert_eq!(source.len(), 2);
    let remark = &source.remarks()[0];
    assert!(remark.contains("2 file(s) are named as held out") && remark.contains("none is named `train`"), "{remark}");
}

#[test]
fn an_empty_archive_among_several_is_a_remark() {
    for empty in [&b""[..], &[0; 1024], &[0; 10240]] {
        let folder = TempFolder::new();
        folder.write("shards/0.tar", &tar(&["a.bmp"]));
        folder.write("shards/1.tar", empty);
        for spec in ["shards", "shards/{0..1}.tar", "shards/{1,0}.tar"] {
            let source = open(&folder, spec, Split::Train).unwrap_or_else(|error| panic!("{spec}: {error}"));
            assert_eq!(source.len(), 1);
            let remark = &source.remarks()[0];
            assert!(remark.contains("1.tar: ") && remark.contains("empty"), "{remark}");
        }
        assert!(open(&folder, "shards/1.tar", Split::Train).is_err());
    }
}

#[test]
fn the_same_archives_with_another_border_are_other_tables() {
    let folder = TempFolder::new();
    folder.write("train.tar", &tar(&["a.bmp", "b.bmp"]));
    folder.write("val.tar", &tar(&["c.bmp"]));
    let lengths = || {
        let open = |name, split| open(&folder, name, split).unwrap().len();
        [open("", Split::Train), open("", Split::Test), open("{train,val}.tar", Split::Train)]
    };
    assert_eq!(lengths(), [2, 1, 3]);
    assert_eq!(lengths(), [2, 1, 3], "from the cache");
}
