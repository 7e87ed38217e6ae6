//! Text lists of images, as people and programs write them.

mod support;

use data::source::{fuzz, open_cached};
use data::{OpenError, Source, Split};
use std::fs;
use std::sync::Arc;
use support::TempFolder;

const RED: [u8; 3] = [200, 10, 20];

/// A folder with the images that the lists here name.
fn images() -> TempFolder {
    let folder = TempFolder::new();
    for name in ["a.bmp", "b.bmp", "c d.bmp", "e,f.bmp", "sub/g.bmp"] {
        folder.write_image(name, RED);
    }
    folder
}

fn open_list(folder: &TempFolder, name: &str, text: impl AsRef<[u8]>) -> Result<Arc<dyn Source>, OpenError> {
    folder.write(name, text.as_ref());
    open_cached(folder.0.join(name).to_str().unwrap(), Split::Train, 0, &folder.0.join("cache"))
}

/// Names and class names, by image.
fn said(source: &dyn Source) -> Vec<(String, String)> {
    let class = |i| source.label(i).map_or(String::new(), |label| source.class_names()[label as usize].clone());
    (0..source.len()).map(|i| (source.name(i), class(i))).collect()
}

fn expect(name: &str, text: &str, expected: &[(&str, &str)]) {
    let folder = images();
    let source = open_list(&folder, name, text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let expected: Vec<_> = expected.iter().map(|&(name, class)| (name.to_owned(), class.to_owned())).collect();
    assert_eq!(said(&*source), expected, "{text:?}");
    assert_eq!(source.read(0).unwrap().pixels[..3], RED);
}

fn problem(name: &str, text: impl AsRef<[u8]>) -> String {
    match open_list(&images(), name, text) {
        Ok(source) => panic!("opened: {:?}", said(&*source)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_line_is_a_path_unless_all_lines_say_more() {
    expect("x.txt", "a.bmp\nc d.bmp\nsub/g.bmp", &[("a.bmp", ""), ("c d.bmp", ""), ("sub/g.bmp", "")]);
    expect("x.lst", "e,f.bmp\na.bmp", &[("e,f.bmp", ""), ("a.bmp", "")]);
    // One line without a number: the others end in one by chance.
    expect("x.txt", "a.bmp\nimage 7", &[("a.bmp", ""), ("image 7", "")]);
}

#[test]
fn labels_stand_after_a_space_a_tab_or_a_comma() {
    let both = [("a.bmp", "1"), ("c d.bmp", "0")];
    expect("x.txt", "a.bmp 1\nc d.bmp   0\n", &both);
    expect("x.txt", "a.bmp\t1\nc d.bmp\t0", &both);
    expect("x.list", "a.bmp,1\nc d.bmp, 0", &both);
    expect("x.csv", "a.bmp,1\nc d.bmp,0", &both);
    expect("x.csv", "1,a.bmp\n0,c d.bmp", &both);
    expect("x.tsv", "a.bmp\tbig dog\nb.bmp\tcat", &[("a.bmp", "big dog"), ("b.bmp", "cat")]);
}

#[test]
fn comments_blank_lines_byte_order_marks_and_dos_line_ends_do_no_harm() {
    expect("x.txt", "\u{feff}# images\r\n\r\na.bmp 0\r\n   \r\nb.bmp 1\r\n", &[("a.bmp", "0"), ("b.bmp", "1")]);
}

#[test]
fn a_csv_may_have_a_heading_and_quotes() {
    expect("x.csv", "id,Label,File_Name\n7,cat,a.bmp\n8,ant,b.bmp", &[("a.bmp", "cat"), ("b.bmp", "ant")]);
    expect("x.csv", "path\na.bmp\nb.bmp", &[("a.bmp", ""), ("b.bmp", "")]);
    let quoted = [("e,f.bmp", "a, b"), ("quo\"te.bmp", "c"), ("a.bmp", "")];
    expect("x.csv", "path,label\n\"e,f.bmp\",\"a, b\"\n\"quo\"\"te.bmp\",c", &quoted[..2]);
    // A quote that never closes is a character.
    expect("x.csv", "a.bmp,\"x\nb.bmp,y", &[("a.bmp", "\"x"), ("b.bmp", "y")]);
}

#[test]
fn a_heading_of_unknown_words_is_known_by_the_images_below_it() {
    let both = [("a.bmp", "2"), ("b.bmp", "0")];
    expect("x.csv", "image_id,label\na.bmp,2\nb.bmp,0", &both);
    expect("x.csv", "photo,kind\na.bmp,2\nb.bmp,0", &both);
    expect("x.tsv", "kind\tphoto\n2\ta.bmp\n0\tb.bmp", &both);
    expect("x.csv", "number,photo,cls\n7,a.bmp,2\n8,b.bmp,0", &both);
    // Of two columns for paths, the one with images.
    expect("x.csv", "image_id,file_name,label\n7,a.bmp,2\n8,b.bmp,0", &both);
    let folder = images();
    let source = open_list(&folder, "x.csv", "image_id,label\na.bmp,2\nb.bmp,0").unwrap();
    assert_eq!((source.label(0), source.class_names().len()), (Some(2), 3), "numbers keep their value");
}

#[test]
fn columns_that_nobody_named_are_not_taken_for_labels() {
    let folder = images();
    for text in ["a.bmp,12,40,dog\nb.bmp,1,2,cat", "file_name,text\na.bmp,a photo\nb.bmp,another"] {
        let source = open_list(&folder, "x.csv", text).unwrap();
        assert_eq!((source.len(), source.label(0)), (2, None));
        assert!(source.remarks()[0].starts_with("no labels: "), "{:?}", source.remarks());
    }
}

#[test]
fn class_numbers_keep_their_value_and_names_are_sorted() {
    let folder = images();
    let source = open_list(&folder, "x.txt", "a.bmp 7\nb.bmp 2").unwrap();
    assert_eq!((source.label(0), source.label(1), source.class_names().len()), (Some(7), Some(2), 8));
    let source = open_list(&folder, "x.csv", "a.bmp,zebra\nb.bmp,7").unwrap();
    assert_eq!(source.class_names(), ["7", "zebra"]);
    assert_eq!((source.label(0), source.label(1)), (Some(1), Some(0)));
}

#[test]
fn labels_that_are_missing_negative_or_enormous_are_not_used_and_that_is_said() {
    let folder = images();
    for (text, why) in [
        ("a.bmp,1\nb.bmp,", "labels are not used: line 2 has no label: b.bmp,. Give it one, or remove the line"),
        ("a.bmp,1\nb.bmp,\na.bmp,", "labels are not used: 2 of 3 lines have none; line 2 has no label: b.bmp,"),
        ("a.bmp,1\nb.bmp,-1", "class numbers go from 0 to 999999"),
        ("a.bmp,1\nb.bmp,99999999999", "class numbers go from 0 to 999999"),
    ] {
        let source = open_list(&folder, "x.csv", text).unwrap();
        assert!(source.class_names().is_empty() && source.label(0).is_none(), "{text}");
        assert!(source.remarks().iter().any(|remark| remark.contains(why)), "{:?}", source.remarks());
    }
}

#[test]
fn a_line_that_lacks_the_label_of_the_others_is_named() {
    let folder = images();
    for (name, text) in [
        ("x.txt", "# images\na.bmp 1\nb.bmp\nc d.bmp 0"),
        ("x.txt", "# images\na.bmp\t1\nb.bmp\nc d.bmp\t0"),
        ("x.txt", "# images\na.bmp,1\nb.bmp\nc d.bmp,0"),
        ("x.tsv", "# images\na.bmp\t1\nb.bmp\nc d.bmp\t0"),
    ] {
        let source = open_list(&folder, name, text).unwrap();
        assert_eq!((source.len(), source.name(2), source.label(0)), (3, "c d.bmp".to_owned(), None), "{text}");
        assert_eq!(
            source.remarks(),
            ["labels are not used: line 3 has no label: b.bmp. Give it one, or remove the line"]
        );
    }
}

#[test]
fn images_that_are_listed_again_are_counted() {
    let folder = images();
    let remarks = |text: &str| open_list(&folder, "x.txt", text).unwrap().remarks().to_vec();
    assert!(remarks("a.bmp\nb.bmp").is_empty());
    let said = remarks("a.bmp\nb.bmp\nb.bmp");
    assert!(said[0].starts_with("1 line of the list names an image once more, the first: b.bmp."), "{said:?}");
    let said = remarks("a.bmp 1\nb.bmp 2\nb.bmp 2\na.bmp 1\nb.bmp 1");
    assert!(said[0].starts_with("3 lines of the list name an image once more, the first: b.bmp."), "{said:?}");
}

#[test]
fn a_missing_file_is_a_bad_sample_and_a_list_of_missing_files_is_an_error() {
    let folder = images();
    let source = open_list(&folder, "x.txt", "gone.bmp\na.bmp").unwrap();
    let error = source.read(0).unwrap_err().to_string();
    assert!(error.starts_with("gone.bmp: "), "{error}");
    let message = problem("x.txt", "gone.bmp\nlost.bmp");
    assert!(message.contains("none of its first 2 image(s)") && message.contains("gone.bmp"), "{message}");
    assert!(message.contains("folder of the list"), "{message}");
}

#[test]
fn paths_may_be_absolute() {
    let folder = images();
    let text = folder.0.join("a.bmp").display().to_string();
    assert_eq!(open_list(&TempFolder::new(), "x.txt", text).unwrap().read(0).unwrap().pixels[..3], RED);
}

#[test]
fn a_folder_in_the_list_is_a_bad_sample() {
    let folder = images();
    let source = open_list(&folder, "x.txt", "sub\na.bmp").unwrap();
    assert!(source.read(0).unwrap_err().to_string().contains("not a file"));
}

#[test]
fn what_is_no_list_says_so() {
    assert!(problem("x.txt", "").contains("empty"));
    assert!(problem("x.txt", "\n# nothing\n").contains("lists no images"));
    assert!(problem("x.txt", b"a.bmp\nb\xff.bmp\n").contains("line 2 is not UTF-8"));
    assert!(problem("x.txt", b"\xff\xfea\0.\0b\0m\0p\0").contains("UTF-16"));
    assert!(problem("x.csv", b"a\0b").contains("not a text"));
    assert!(problem("x.csv", "path,label\na.bmp,1\n,2").contains("line 3 has no path"));
}

#[test]
fn a_list_larger_than_any_is_refused_before_it_is_read() {
    let folder = images();
    let path = folder.0.join("x.txt");
    std::fs::File::create(&path).unwrap().set_len((1 << 30) + 1).unwrap();
    let error = open_cached(path.to_str().unwrap(), Split::Train, 0, &folder.0).err().unwrap().to_string();
    assert!(error.contains("larger than 1,073,741,824 bytes"), "{error}");
}

#[test]
fn a_list_is_all_for_training() {
    let folder = images();
    open_list(&folder, "x.txt", "a.bmp").unwrap();
    let error = open_cached(folder.0.join("x.txt").to_str().unwrap(), Split::Test, 0, &folder.0).err().unwrap();
    assert!(matches!(error, OpenError::NoTestSplit { .. }), "{error}");
}

#[test]
fn a_fingerprint_changes_with_paths_sizes_contents_and_labels() {
    let folder = images();
    let fingerprint = |text: &str| open_list(&folder, "x.txt", text).unwrap().fingerprint();
    let first = fingerprint("a.bmp 0\nb.bmp 1");
    assert_ne!(fingerprint("a.bmp 1\nb.bmp 0"), first);
    assert_ne!(fingerprint("b.bmp 0\na.bmp 1"), first);
    folder.write_image("a.bmp", [1, 2, 3]);
    assert_ne!(fingerprint("a.bmp 0\nb.bmp 1"), first, "another photograph of the same size");
    folder.write("a.bmp", b"other");
    assert_ne!(fingerprint("a.bmp 0\nb.bmp 1"), first);
}

#[test]
fn any_bytes_are_survived() {
    let text = "\u{feff}path,label\n\"a,\"\"b.jpg\",c\n# x\n\t ,\n\"\n\r\né.jpg\t-7\n".as_bytes();
    for cut in 0..text.len() {
        fuzz::list(&text[..cut]);
        fuzz::list(&text[cut..]);
    }
    let mut stream = random::Key::new(0, random::Purpose::Bench).stream();
    for _ in 0..3000 {
        let mut hostile = text.to_vec();
        for _ in 0..3 {
            let at = stream.below(hostile.len() as u64) as usize;
            hostile[at] = b"\",\t\n #-9\xc3\0"[stream.below(10) as usize];
        }
        fuzz::list(&hostile);
    }
}

#[test]
fn an_endless_line_is_refused_and_never_printed_back() {
    let folder = TempFolder::new();
    folder.write_image("a.bmp", [1; 3]);
    let long = vec![b'x'; 20 << 20];
    folder.write("list.txt", &[b"a.bmp\n", &long[..], b"\n"].concat());
    folder.write("list.csv", &[b"path,label\n,", &long[..60_000], b"\n"].concat());
    for (list, expected) in [("list.txt", "line 2 is longer than 65536 bytes"), ("list.csv", "line 2 has no path")] {
        let path = folder.0.join(list);
        let message = data::open(path.to_str().unwrap(), data::Split::Train, 0).err().unwrap().to_string();
        assert!(message.contains(expected) && message.len() < 1000, "{}", message.len());
    }
}

#[test]
fn lists_named_after_their_split_are_the_splits_of_a_folder() {
    let folder = TempFolder::new();
    for i in 0..4u8 {
        folder.write_image(&format!("pictures/{i}.bmp"), [i; 3]);
    }
    let open = |split| data::open(folder.spec(), split, 0).unwrap();
    for (extension, separator) in [("tsv", "\t"), ("csv", ","), ("txt", "\t")] {
        let line = |(i, class): (u8, &str)| format!("pictures/{i}.bmp{separator}{class}\n");
        let train: String = [(0, "cat"), (2, "dog"), (3, "eel")].map(line).concat();
        folder.write(&format!("train.{extension}"), train.as_bytes());
        folder.write(&format!("val.{extension}"), line((1, "eel")).as_bytes());
        let (train, test) = (open(data::Split::Train), open(data::Split::Test));
        assert_eq!((train.len(), test.len(), test.name(0)), (3, 1, "pictures/1.bmp".to_owned()), "{extension}");
        assert_eq!((test.label(0), test.class_names()), (Some(2), train.class_names()), "the classes of training");
        // A class that training does not know.
        folder.write(&format!("val.{extension}"), line((1, "fox")).as_bytes());
        let test = open(data::Split::Test);
        assert_eq!((test.label(0), test.remarks().len()), (None, 1), "{:?}", test.remarks());
        fs::remove_file(folder.0.join(format!("val.{extension}"))).unwrap();
        assert!(matches!(data::open(folder.spec(), data::Split::Test, 0), Err(data::OpenError::NoTestSplit { .. })));
        fs::remove_file(folder.0.join(format!("train.{extension}"))).unwrap();
    }
    // A text that only happens to be called so is named, and the images are used.
    folder.write("train.txt", b"remember to buy milk\n");
    let source = open(data::Split::Train);
    assert_eq!(source.len(), 4);
    assert!(source.remarks().iter().any(|remark| remark.contains("train.txt")), "{:?}", source.remarks());
    // Nor does it break what asks for held-out images, of which there are none.
    let held_out = data::open(folder.spec(), data::Split::Test, 0).err().unwrap();
    assert!(matches!(held_out, OpenError::NoTestSplit { .. }), "{held_out}");
    assert_eq!(data::open_all(folder.spec(), 0).unwrap().len(), 4);
    // A held-out list beside a good one for training is meant, and said to be broken.
    folder.write("train.txt", b"pictures/0.bmp\n");
    folder.write("val.txt", b"remember to buy milk\n");
    let broken = data::open(folder.spec(), data::Split::Test, 0).err().unwrap();
    assert!(broken.to_string().contains("val.txt"), "{broken}");
}
