//! Several parquet files: those of one part, and the parts of a set.

mod parquet_files;
mod support;

use data::source::open_cached;
use data::{Source, Split};
use parquet_files::{Column, image, images, labels, message, stored, texts, written};
use std::sync::Arc;
use support::TempFolder;

#[test]
fn several_files_are_one_source_in_the_order_of_their_names() {
    let folder = TempFolder::new();
    let schema = "optional binary image; optional int64 label;";
    let numbers = |numbers: [i64; 2]| Column::Int64(numbers.map(Some).to_vec());
    folder.write("train-00001-of-00002.parquet", &written(schema, None, &[images(2), numbers([4, 0])]));
    folder.write("train-00000-of-00002.parquet", &written(schema, None, &[images(2), numbers([1, 2])]));
    let source = open_cached(folder.spec(), Split::Train, 0, &folder.0.join("cache")).unwrap();
    assert_eq!(labels(&*source), [1, 2, 4, 0].map(Some));
    assert_eq!(source.class_names().len(), 5);
    assert_eq!(source.name(2), "train-00001-of-00002.parquet row 0");
    assert_eq!([0, 1, 2, 3].map(|i| stored(&*source, i)), [0, 1, 0, 1].map(image));
}

#[test]
fn files_that_do_not_belong_together_are_told_apart() {
    let names = |list: &str| {
        format!(r#"{{"image": {{"_type": "Image"}}, "label": {{"_type": "ClassLabel", "names": [{list}]}}}}"#)
    };
    let numbers = || Column::Int64(vec![Some(0); 2]);
    let schema = "optional binary image; optional int64 label;";
    let first = written(schema, Some(&names(r#""a", "b""#)), &[images(2), numbers()]);
    let text = "optional binary image; optional binary label (UTF8);";
    for (second, what) in [
        (written(schema, Some(&names(r#""b", "a""#)), &[images(2), numbers()]), "classes have other names"),
        (
            written("optional binary img; optional int64 label;", None, &[images(2), numbers()]),
            "images are in another column",
        ),
        (written("optional binary image;", None, &[images(2)]), "labels are in another column"),
        (written(text, None, &[images(2), texts(&["a", "b"])]), "labels are in another column, or of another type"),
    ] {
        let folder = TempFolder::new();
        folder.write("1.parquet", &first);
        folder.write("2.parquet", &second);
        let message = message(open_cached(folder.spec(), Split::Train, 0, &folder.0.join("cache")));
        assert!(message.contains("2.parquet: its ") && message.contains(what), "{message}");
    }
}

#[test]
fn both_parts_number_their_texts_alike() {
    let folder = TempFolder::new();
    let schema = "optional binary image; optional binary label (UTF8);";
    folder.write("train.parquet", &written(schema, None, &[images(3), texts(&["cat", "ant", "bee"])]));
    folder.write("test.parquet", &written(schema, None, &[images(2), texts(&["cat", "dog"])]));
    let open = |split| open_cached(folder.spec(), split, 0, &folder.0.join("cache")).unwrap();
    let (train, test) = (open(Split::Train), open(Split::Test));
    assert_eq!(train.class_names(), ["ant", "bee", "cat", "dog"]);
    assert_eq!(test.class_names(), train.class_names());
    assert_eq!((labels(&*train), labels(&*test)), ([2, 0, 1].map(Some).to_vec(), [2, 3].map(Some).to_vec()));
}

#[test]
fn a_folder_and_patterns_of_its_files_do_not_share_what_the_cache_keeps() {
    let folder = TempFolder::new();
    let schema = "optional binary image; optional binary label (UTF8);";
    folder.write("train.parquet", &written(schema, None, &[images(3), texts(&["cat", "ant", "bee"])]));
    folder.write("test.parquet", &written(schema, None, &[images(2), texts(&["cat", "dog"])]));
    let spec = |name: &str| folder.0.join(name).to_str().unwrap().to_owned();
    let mut cases = [
        (folder.spec().to_owned(), Split::Train, 3),
        (folder.spec().to_owned(), Split::Test, 2),
        (spec("{train,test}.parquet"), Split::Train, 5),
        (spec("{test,train}.parquet"), Split::Train, 5),
        (spec("*.parquet"), Split::Train, 5),
    ];
    for cache in ["folder first", "patterns first"] {
        // Twice: built, and from the cache.
        for (spec, split, count) in cases.iter().chain(&cases) {
            let source: Arc<dyn Source> = open_cached(spec, *split, 0, &folder.0.join(cache)).unwrap();
            assert_eq!(source.len(), *count, "{cache}: {spec} {split:?}");
        }
        cases.reverse();
    }
}
