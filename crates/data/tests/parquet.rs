//! Parquet files as people have them. Those under fixtures/ are pyarrow's; the others come from the writer of the
//! `parquet` crate.

mod parquet_files;
mod support;

use data::{OpenError, ReadError, Source};
use parquet_files::{Column, image, images, labels, message, names, open_file, stored, texts, written};
use std::sync::Arc;
use support::{TempFolder, fixtures};

fn fixture(name: &str, cache: &TempFolder) -> Result<Arc<dyn Source>, OpenError> {
    open_file(&fixtures().join("parquet").join(name), &cache.0)
}

/// Opens a file of these bytes. The folder has to outlive the source.
fn opened(folder: &TempFolder, bytes: &[u8]) -> Result<Arc<dyn Source>, OpenError> {
    folder.write("x.parquet", bytes);
    open_file(&folder.0.join("x.parquet"), &folder.0.join("cache"))
}

fn problem(bytes: &[u8]) -> String {
    message(opened(&TempFolder::new(), bytes))
}

#[test]
fn a_file_of_the_hub_has_its_images_names_labels_and_classes() {
    let cache = TempFolder::new();
    for _ in 0..2 {
        let source = fixture("hub.parquet", &cache).unwrap();
        let expected = ["0.bmp", "hub.parquet row 1", "2.bmp", "hub.parquet row 3", "4.bmp", "hub.parquet row 5"];
        assert_eq!(names(&*source), expected);
        assert_eq!(source.class_names(), ["ant", "bee", "cat"]);
        assert_eq!(labels(&*source), [0, 1, 2, 2, 1, 0].map(Some));
        (0..6).for_each(|i| assert_eq!(stored(&*source, i), image(i)));
        assert!(source.remarks().is_empty(), "{:?}", source.remarks());
        assert_eq!(source.read(3).unwrap().pixels[..3], [30, 20, 170]);
    }
}

#[test]
fn zstd_in_newer_pages_with_texts_for_labels() {
    let cache = TempFolder::new();
    let source = fixture("zstd_v2.parquet", &cache).unwrap();
    assert_eq!(source.class_names(), ["ant", "cat", "dog"]);
    assert_eq!(labels(&*source), [1, 0, 1, 2].map(Some));
    (0..4).for_each(|i| assert_eq!(stored(&*source, i), image(i)));
}

#[test]
fn gzip_with_delta_encoded_labels_and_no_list_of_classes() {
    let cache = TempFolder::new();
    let source = fixture("gzip.parquet", &cache).unwrap();
    assert_eq!(source.class_names(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(labels(&*source), [3, 0, 7, 3].map(Some));
    (0..4).for_each(|i| assert_eq!(stored(&*source, i), image(i)));
}

#[test]
fn lz4_with_columns_that_cannot_be_null_and_names_that_have_to_be_guessed() {
    let cache = TempFolder::new();
    let source = fixture("lz4.parquet", &cache).unwrap();
    assert_eq!(labels(&*source), [1, 0, 1, 0].map(Some));
    (0..4).for_each(|i| assert_eq!(stored(&*source, i), image(i)));
}

#[test]
fn a_missing_image_stays_in_the_list_and_fails_when_it_is_read() {
    let cache = TempFolder::new();
    let source = fixture("nulls.parquet", &cache).unwrap();
    assert_eq!(names(&*source), ["0.bmp", "nulls.parquet row 1", "far/away.jpg", "nulls.parquet row 3"]);
    for i in [1, 2] {
        let error = source.read(i).unwrap_err();
        assert!(matches!(error, ReadError::Decode { .. }), "{error}");
        assert!(error.to_string().starts_with(&source.name(i)) && error.reason().contains("empty"), "{error}");
    }
    assert_eq!((stored(&*source, 0), stored(&*source, 3)), (image(0), image(3)));
    // One label is null, so that none can be used.
    assert_eq!(labels(&*source), [None; 4]);
    assert!(source.class_names().is_empty());
    let remarks = source.remarks().join("\n");
    for part in [
        "2 row(s) have no image, the first: nulls.parquet row 1",
        "only the path of an image, which is not supported, such as far/away.jpg",
        "column label has none for 1 of 4 images",
    ] {
        assert!(remarks.contains(part), "{remarks}");
    }
}

#[test]
fn minus_one_everywhere_is_a_set_without_labels() {
    let cache = TempFolder::new();
    let source = fixture("unlabelled.parquet", &cache).unwrap();
    assert_eq!((source.len(), labels(&*source)), (3, vec![None; 3]));
    assert!(source.class_names().is_empty() && source.remarks().is_empty(), "{:?}", source.remarks());
}

#[test]
fn what_is_not_supported_is_named_with_a_way_out() {
    let cache = TempFolder::new();
    for (name, part) in [
        ("brotli.parquet", "packed with Brotli; write it again with snappy"),
        ("delta.parquet", "a delta encoding of bytes; write it again"),
        ("lists.parquet", "no column of images"),
    ] {
        let message = message(fixture(name, &cache));
        assert!(message.contains(name) && message.contains(part), "{message}");
    }
    assert_eq!(std::fs::read_dir(&cache.0).unwrap().count(), 0, "nothing half unpacked is left");
}

#[test]
fn a_file_without_images_is_an_error_that_lists_its_columns() {
    let ints = || Column::Int64(vec![Some(1), Some(2)]);
    let cases = [
        ("optional int64 label;", None, vec![ints()], "no column of images", "label (int64)"),
        (
            "optional binary url (UTF8); optional double score;",
            None,
            vec![texts(&["a", "b"]), Column::Double(vec![None, Some(0.5)])],
            "no column of images",
            "url (string), score (double)",
        ),
        ("optional int64 image;", None, vec![ints()], "no column of images", "image (int64)"),
        (
            "required group image { optional binary path (UTF8); }",
            None,
            vec![texts(&["a", "b"])],
            "no column of images",
            "image {path}",
        ),
        (
            "optional int64 img; optional binary other;",
            Some(r#"{"img": {"_type": "Image"}}"#),
            vec![ints(), images(2)],
            "column img should be images",
            "img (int64), other (binary)",
        ),
        (
            "optional binary left; optional binary right;",
            None,
            vec![images(2), images(2)],
            "several columns could be the images",
            "left (binary), right (binary)",
        ),
    ];
    for (schema, features, columns, what, list) in cases {
        let message = problem(&written(schema, features, &columns));
        assert!(message.contains("x.parquet: ") && message.contains(what) && message.contains(list), "{message}");
    }
    let message = problem(&written("optional binary image;", None, &[Column::Bytes(Vec::new())]));
    assert!(message.contains("none of its 0 row(s) holds an image"), "{message}");
}

#[test]
fn images_that_are_only_paths_are_an_error_with_one_of_them() {
    let schema = "required group image { optional binary bytes; optional binary path (UTF8); }";
    let message = problem(&written(schema, None, &[Column::Bytes(vec![None; 2]), texts(&["a/1.jpg", "a/2.jpg"])]));
    assert!(message.contains("2 row(s) hold only the path") && message.contains("such as a/1.jpg"), "{message}");
}

#[test]
fn the_only_binary_column_is_the_images_whatever_it_is_called() {
    let folder = TempFolder::new();
    let bytes =
        written("optional binary stuff; optional int32 LABEL;", None, &[images(2), Column::Int32(vec![Some(1); 2])]);
    let source = opened(&folder, &bytes).unwrap();
    assert_eq!((stored(&*source, 1), labels(&*source)), (image(1), vec![Some(1); 2]));
}

#[test]
fn a_column_cls_is_the_labels() {
    let folder = TempFolder::new();
    let schema = "optional binary image; optional int64 Cls;";
    let source = opened(&folder, &written(schema, None, &[images(2), Column::Int64(vec![Some(1), Some(0)])])).unwrap();
    assert_eq!(labels(&*source), [1, 0].map(Some));
}

#[test]
fn among_several_the_best_name_wins_and_the_others_are_remarked() {
    let features = r#"{"mask": {"_type": "Image"}, "image": {"_type": "Image"},
        "coarse_label": {"_type": "ClassLabel", "names": ["x"]}, "fine_label": {"_type": "ClassLabel", "names": ["p", "q"]}}"#;
    let schema = "optional binary mask; optional binary image; optional int64 coarse_label; optional int64 fine_label;";
    let label = |label: i64| Column::Int64(vec![Some(label); 2]);
    let masks = Column::Bytes(vec![Some(b"mask".to_vec()); 2]);
    let folder = TempFolder::new();
    let source = opened(&folder, &written(schema, Some(features), &[masks, images(2), label(0), label(1)])).unwrap();
    assert_eq!((stored(&*source, 1), source.label(1)), (image(1), Some(1)));
    assert_eq!(source.class_names(), ["p", "q"]);
    let remarks = source.remarks().join("\n");
    assert!(remarks.contains("the images are those of column image, not mask"), "{remarks}");
    assert!(remarks.contains("the labels are those of column fine_label, not coarse_label"), "{remarks}");
}

#[test]
fn labels_of_a_wrong_type_are_left_out_with_a_remark() {
    let folder = TempFolder::new();
    let bytes = written(
        "optional binary image; optional double label;",
        None,
        &[images(2), Column::Double(vec![Some(1.5); 2])],
    );
    let source = opened(&folder, &bytes).unwrap();
    assert!(source.class_names().is_empty() && source.label(0).is_none());
    assert!(source.remarks()[0].contains("column label is not used") && source.remarks()[0].contains("double"));
}

#[test]
fn a_label_without_a_name_is_an_error() {
    let features = r#"{"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}"#;
    for wrong in [2, -2] {
        let labels = Column::Int64(vec![Some(1), Some(wrong)]);
        let message =
            problem(&written("optional binary image; optional int64 label;", Some(features), &[images(2), labels]));
        assert!(
            message.contains(&format!("row 1 of the data has label {wrong}, but there are 2 classes")),
            "{message}"
        );
    }
}

#[test]
fn names_are_cut_to_a_bearable_length_and_shown_without_control_characters() {
    let folder = TempFolder::new();
    let schema = "required group image { optional binary bytes; optional binary path (UTF8); }";
    let long = "x".repeat(100_000);
    let source = opened(&folder, &written(schema, None, &[images(2), texts(&["\u{1b}[2Ja.jpg", &long])])).unwrap();
    assert_eq!(source.name(0), "\\x1b[2Ja.jpg");
    assert!(source.name(1).len() < 300 && source.name(1).ends_with("..."));
}
