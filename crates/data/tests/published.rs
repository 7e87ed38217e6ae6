//! The data sets of the transfer protocol, each laid out as it is downloaded.

mod support;

use data::source::{Published, PublishedSets};
use data::{OpenError, Source};
use std::fs;
use support::TempFolder;

const GRAY: [u8; 3] = [90, 90, 90];

fn folder(images: &[&str], files: &[(&str, &str)]) -> TempFolder {
    let folder = TempFolder::new();
    images.iter().for_each(|name| folder.write_image(name, GRAY));
    files.iter().for_each(|(name, text)| folder.write(name, text.as_bytes()));
    folder
}

fn open(set: Published, folder: &TempFolder) -> Result<PublishedSets, OpenError> {
    set.open(&folder.0, 0)
}

/// Names and classes of a source, after a look at its first image.
fn said(source: &dyn Source) -> Vec<(String, String)> {
    assert_eq!(source.read(0).unwrap().pixels[..3], GRAY);
    let class = |i| source.class_names()[source.label(i).unwrap() as usize].clone();
    (0..source.len()).map(|i| (source.name(i), class(i))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, class)| ((*name).to_owned(), (*class).to_owned())).collect()
}

#[test]
fn aircraft_has_three_lists_and_variants_with_spaces() {
    let images = ["data/images/0034309.jpg", "data/images/1.jpg", "data/images/2.jpg"];
    let lists = [
        ("data/images_variant_train.txt", "0034309 Boeing 737-200\n"),
        ("data/images_variant_val.txt", "1 A300\n"),
        ("data/images_variant_test.txt", "2 Boeing 737-200\n"),
    ];
    let folder = folder(&images, &lists);
    let sets = open(Published::Aircraft, &folder).unwrap();
    assert_eq!(said(&*sets.train), pairs(&[("images/0034309.jpg", "Boeing 737-200")]));
    assert_eq!(said(&*sets.validation.unwrap()), pairs(&[("images/1.jpg", "A300")]));
    assert_eq!(said(&*sets.test), pairs(&[("images/2.jpg", "Boeing 737-200")]));
    assert_eq!(sets.test.class_names(), ["A300", "Boeing 737-200"]);
}

#[test]
fn dtd_takes_its_first_split() {
    let images = ["images/banded/banded_1.jpg", "images/dotted/dotted_2.jpg", "images/banded/banded_3.jpg"];
    let lists = [
        ("labels/train1.txt", "banded/banded_1.jpg\n"),
        ("labels/val1.txt", "dotted/dotted_2.jpg\n"),
        ("labels/test1.txt", "banded/banded_3.jpg\n"),
        ("labels/test2.txt", "of another split\n"),
    ];
    let folder = folder(&images, &lists);
    let sets = open(Published::Dtd, &folder).unwrap();
    assert_eq!(said(&*sets.validation.unwrap()), pairs(&[("images/dotted/dotted_2.jpg", "dotted")]));
    assert_eq!(sets.test.label(0), Some(0));
}

#[test]
fn food_has_json_lists_in_the_folder_of_its_archive() {
    let images = ["food-101/images/sushi/7.jpg", "food-101/images/pho/8.jpg", "food-101/images/sushi/9.jpg"];
    let lists = [
        ("food-101/meta/train.json", r#"{"sushi": ["sushi/7"], "pho": ["pho/8"]}"#),
        ("food-101/meta/test.json", r#"{"sushi": ["sushi/9"], "pho": []}"#),
    ];
    let folder = folder(&images, &lists);
    let sets = open(Published::Food101, &folder).unwrap();
    assert_eq!(said(&*sets.train), pairs(&[("images/pho/8.jpg", "pho"), ("images/sushi/7.jpg", "sushi")]));
    assert!(sets.validation.is_none());
    assert_eq!(sets.test.label(0), Some(1));
    folder.write("food-101/meta/test.json", b"[1, 2]");
    let error = open(Published::Food101, &folder).unwrap_err().to_string();
    assert!(error.contains("no object of lists"), "{error}");
}

#[test]
fn pets_are_numbered_by_breed() {
    let images = ["images/Abyssinian_100.jpg", "images/great_pyrenees_3.jpg", "images/Abyssinian_7.jpg"];
    let lists = [
        ("annotations/trainval.txt", "# a comment\nAbyssinian_100 2 1 1\ngreat_pyrenees_3 1 2 1\n"),
        ("annotations/test.txt", "Abyssinian_7 2 1 1\n"),
    ];
    let folder = folder(&images, &lists);
    let sets = open(Published::Pets, &folder).unwrap();
    assert_eq!(sets.train.class_names(), ["great_pyrenees", "Abyssinian"]);
    assert_eq!((sets.train.label(0), sets.test.label(0)), (Some(1), Some(1)));
}

#[test]
fn sun_has_classes_of_one_or_two_folders() {
    let images = ["SUN397/a/abbey/sun_1.jpg", "SUN397/c/church/indoor/sun_2.jpg", "SUN397/a/abbey/sun_3.jpg"];
    let lists = [
        ("Partitions/Training_01.txt", "/a/abbey/sun_1.jpg\r\n/c/church/indoor/sun_2.jpg\r\n"),
        ("Partitions/Testing_01.txt", "/a/abbey/sun_3.jpg\r\n"),
    ];
    let folder = folder(&images, &lists);
    let sets = open(Published::Sun397, &folder).unwrap();
    assert_eq!(sets.train.class_names(), ["/a/abbey", "/c/church/indoor"]);
    assert_eq!(said(&*sets.test), pairs(&[("a/abbey/sun_3.jpg", "/a/abbey")]));
}

#[test]
fn caltech_is_drawn_unless_lists_say_which() {
    let names: Vec<String> = ["ant", "BACKGROUND_Google"]
        .iter()
        .flat_map(|class| (0..40).map(move |i| format!("101_ObjectCategories/{class}/image_{i:04}.jpg")))
        .collect();
    let folder = folder(&names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    let sets = open(Published::Caltech101, &folder).unwrap();
    assert_eq!(sets.train.len() + sets.test.len(), 80);
    // 30 draws of 40 with replacement meet 21.3 images on average.
    assert!((30..58).contains(&sets.train.len()), "{}", sets.train.len());
    assert_eq!(sets.train.class_names(), ["BACKGROUND_Google", "ant"]);
    let names_of = |sets: &PublishedSets| said(&*sets.train);
    assert_eq!(names_of(&sets), names_of(&open(Published::Caltech101, &folder).unwrap()));
    assert_ne!(names_of(&sets), names_of(&Published::Caltech101.open(&folder.0, 1).unwrap()));
    folder.write("train.txt", b"ant/image_0003.jpg\n");
    folder.write("test.txt", b"ant/image_0004.jpg\nBACKGROUND_Google/image_0001.jpg\n");
    let sets = open(Published::Caltech101, &folder).unwrap();
    assert_eq!((sets.train.len(), sets.test.len()), (1, 2));
}

/// A MATLAB file with one row of bytes for each name, not packed.
fn matlab(variables: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![b' '; 124];
    bytes.extend([0, 1, b'I', b'M']);
    let element = |kind: u32, data: &[u8]| {
        let mut element = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        element.extend(data);
        element.resize(element.len().next_multiple_of(8), 0);
        element
    };
    for (name, values) in variables {
        let size = [1u32.to_le_bytes(), (values.len() as u32).to_le_bytes()].concat();
        let parts =
            [element(6, &[9, 0, 0, 0, 0, 0, 0, 0]), element(5, &size), element(1, name.as_bytes()), element(2, values)];
        bytes.extend(element(14, &parts.concat()));
    }
    bytes
}

#[test]
fn flowers_are_numbered_from_one_in_matlab_files() {
    let images = ["jpg/image_00001.jpg", "jpg/image_00002.jpg", "jpg/image_00003.jpg"];
    let folder = folder(&images, &[]);
    folder.write("imagelabels.mat", &matlab(&[("labels", &[2, 1, 2])]));
    let write =
        |tests: &[u8]| folder.write("setid.mat", &matlab(&[("trnid", &[3]), ("valid", &[1]), ("tstid", tests)]));
    write(&[2]);
    let sets = open(Published::Flowers102, &folder).unwrap();
    assert_eq!(said(&*sets.train), pairs(&[("jpg/image_00003.jpg", "002")]));
    assert_eq!((sets.train.label(0), sets.test.label(0)), (Some(1), Some(0)));
    for beyond in [0, 4] {
        write(&[beyond]);
        let error = open(Published::Flowers102, &folder).unwrap_err().to_string();
        assert!(error.contains(&format!("`tstid` has image {beyond}, and there are 3 labels")), "{error}");
    }
    folder.write("imagelabels.mat", &matlab(&[("labels", &[2, 0, 2])]));
    assert!(open(Published::Flowers102, &folder).unwrap_err().to_string().contains("has the label 0"));
}

#[test]
fn split_files_that_cannot_be_followed_are_refused() {
    let images = ["images/banded/banded_1.jpg"];
    let lists = [("labels/train1.txt", "banded/banded_1.jpg\n"), ("labels/val1.txt", "banded/banded_1.jpg\n")];
    let folder = folder(&images, &lists);
    let say = |test: &str| {
        folder.write("labels/test1.txt", test.as_bytes());
        open(Published::Dtd, &folder).unwrap_err().to_string()
    };
    let error = say("banded/banded_1.jpg\nbanded/banded_8.jpg\nbanded/banded_9.jpg\n");
    assert!(
        error.contains("names 2 images that are not there, the first:") && error.contains("banded_8.jpg"),
        "{error}"
    );
    assert!(say("\n").contains("names no images"));
    assert!(say("banded_1.jpg").contains("line 1 is not understood: banded_1.jpg"));
    assert!(say("../../../etc/passwd").contains("outside of the data set"));
    fs::remove_file(folder.0.join("labels/test1.txt")).unwrap();
    assert!(matches!(open(Published::Dtd, &folder), Err(OpenError::Io { .. })));
    let other = open(Published::Pets, &folder).unwrap_err().to_string();
    assert!(other.contains("is not laid out as this data set is downloaded"), "{other}");
    let nowhere = Published::Sun397.open(&folder.0.join("none"), 0);
    assert!(matches!(nowhere, Err(OpenError::Missing { .. })));
}

#[test]
fn every_data_set_has_a_name_of_its_own() {
    let mut names: Vec<&str> = Published::ALL.iter().map(|set| set.name()).collect();
    names.dedup();
    assert_eq!(names.len(), 9);
}
