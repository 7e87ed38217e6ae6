//! Tar archives as people have them: every dialect, WebDataset shards, class folders, and archives made to do harm.

mod support;

use data::source::{fuzz, open_cached};
use data::{OpenError, Source, Split};
use std::sync::Arc;
use support::archive::{Tar, header, octal, with_checksum};
use support::{TempFolder, bmp, fixtures};

const RED: [u8; 3] = [200, 10, 20];
const BLUE: [u8; 3] = [1, 2, 250];

/// Opens an archive of these bytes.
fn opened(bytes: &[u8]) -> Result<Arc<dyn Source>, OpenError> {
    let folder = TempFolder::new();
    folder.write("x.tar", bytes);
    let source = open_cached(folder.0.join("x.tar").to_str().unwrap(), Split::Train, 0, &folder.0.join("cache"))?;
    // Keeps the archive open: the folder goes at the end of this function.
    _ = source.read(0);
    Ok(source)
}

fn names(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|i| source.name(i)).collect()
}

fn labels(source: &dyn Source) -> Vec<Option<u32>> {
    (0..source.len()).map(|i| source.label(i)).collect()
}

fn problem(bytes: &[u8]) -> String {
    match opened(bytes) {
        Ok(source) => panic!("opened: {:?}", names(&*source)),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_dialect_gives_the_same_images() {
    let long = [
        "a.bmp".to_owned(),
        "cat/b.bmp".to_owned(),
        format!("cat/{}/{}.bmp", "m".repeat(70), "n".repeat(71)),
        format!("cat/{}/{}.bmp", "x".repeat(140), "y".repeat(151)),
    ];
    for (dialect, count) in [("v7", 2), ("ustar", 3), ("gnu", 4), ("oldgnu", 4), ("pax", 4)] {
        let bytes = std::fs::read(fixtures().join("tar").join(dialect).with_extension("tar")).unwrap();
        let source = opened(&bytes).unwrap();
        assert_eq!(names(&*source), long[..count], "{dialect}");
        for i in 0..count {
            let first = 3 * i as u8 + 1;
            assert_eq!(source.read(i).unwrap().pixels[..3], [first, first + 1, first + 2], "{dialect} {i}");
        }
        assert!(source.remarks().is_empty(), "{:?}", source.remarks());
    }
}

#[test]
fn another_image_of_the_same_name_and_size_is_other_data() {
    let fingerprint =
        |color| opened(&Tar::default().image("a.bmp", RED).image("b.bmp", color).0).unwrap().fingerprint();
    assert_eq!(fingerprint(RED), fingerprint(RED));
    assert_ne!(fingerprint(RED), fingerprint(BLUE));
}

#[test]
fn sparse_images_are_left_out_and_counted() {
    for dialect in ["sparse_gnu", "sparse_pax"] {
        let bytes = std::fs::read(fixtures().join("tar").join(dialect).with_extension("tar")).unwrap();
        let source = opened(&bytes).unwrap();
        assert_eq!(names(&*source), ["a.bmp"], "{dialect}");
        assert!(
            source.remarks()[0].starts_with("1 image(s) left out that are links, sparse"),
            "{:?}",
            source.remarks()
        );
        assert!(source.remarks()[0].ends_with("holes.bmp"), "{:?}", source.remarks());
    }
}

#[test]
fn the_map_of_an_old_sparse_file_is_passed_over() {
    let mut sparse = header("holes.jpg", octal(512), b'S');
    sparse[257..265].copy_from_slice(b"ustar  \0");
    sparse[482] = 1;
    let mut more = [b'7'; 512];
    more[504] = 1;
    let mut last = [b'7'; 512];
    last[504] = 0;
    let tar = Tar::default().block(with_checksum(sparse)).block(more).block(last).data(&[9; 512]).image("a.bmp", RED);
    assert_eq!(names(&*opened(&tar.end()).unwrap()), ["a.bmp"]);
}

#[test]
fn links_are_left_out_and_followed_by_no_data() {
    let tar = Tar::default()
        .block(header("soft.jpg", octal(4096), b'2'))
        .block(header("hard.jpg", octal(4096), b'1'))
        .block(header("folder.jpg", octal(4096), b'5'))
        .image("a.bmp", RED);
    let source = opened(&tar.end()).unwrap();
    assert_eq!(names(&*source), ["a.bmp"]);
    assert!(source.remarks()[0].starts_with("2 image(s)") && source.remarks()[0].ends_with("soft.jpg"));
}

#[test]
fn names_are_only_names() {
    let tar = Tar::default()
        .image("../../../etc/a.bmp", RED)
        .image("/absolute/b.bmp", BLUE)
        .image("./c.bmp", RED)
        .image("evil\x1b[31m\n.bmp", RED);
    let source = opened(&tar.end()).unwrap();
    assert_eq!(names(&*source), ["../../../etc/a.bmp", "absolute/b.bmp", "c.bmp", "evil\\x1b[31m\\x0a.bmp"]);
    assert_eq!(source.read(1).unwrap().pixels[..3], BLUE);
}

#[test]
fn hidden_files_and_those_of_macos_are_passed_over() {
    let tar = Tar::default()
        .image("._a.bmp", RED)
        .image("x/._a.bmp", RED)
        .image(".git/a.bmp", RED)
        .image("a.bmp", RED)
        .file("notes.txt", b"hello");
    assert_eq!(names(&*opened(&tar.end()).unwrap()), ["a.bmp"]);
}

#[test]
fn a_half_written_member_is_listed_fails_when_read_and_is_named() {
    let whole = Tar::default().image("a.bmp", RED).image("b.bmp", BLUE).0;
    let source = opened(&whole[..whole.len() - 500]).unwrap();
    assert_eq!(names(&*source), ["a.bmp", "b.bmp"]);
    assert_eq!(source.read(0).unwrap().pixels[..3], RED);
    let error = source.read(1).unwrap_err().to_string();
    assert!(error.starts_with("b.bmp: ") && error.contains("bytes too early"), "{error}");
    assert!(source.remarks()[0].contains("ends in the middle of b.bmp"), "{:?}", source.remarks());
    // Only the filling of the last block is missing: nothing is lost.
    let padding = 1024 - bmp(5, 4, BLUE).len() - 512;
    let source = opened(&whole[..whole.len() - padding]).unwrap();
    assert_eq!(source.read(1).unwrap().pixels[..3], BLUE);
    assert!(source.remarks().is_empty());
    // Half a header.
    let source = opened(&whole[..1024 + 100]).unwrap();
    assert_eq!(names(&*source), ["a.bmp"]);
    assert!(source.remarks()[0].contains("is cut short"), "{:?}", source.remarks());
}

#[test]
fn sizes_beyond_everything_take_no_memory() {
    let mut huge = [0xff; 12];
    huge[..4].copy_from_slice(&[0x80, 0, 0, 0]);
    let mut most = octal(0);
    most[..11].fill(b'7');
    for size in [huge, most] {
        let tar = Tar::default().image("a.bmp", RED).block(header("b.bmp", size, b'0'));
        let source = opened(&tar.end()).unwrap();
        assert_eq!(source.len(), 2);
        let error = source.read(1).unwrap_err().to_string();
        assert!(error.contains("limit of") || error.contains("too early"), "{error}");
        // The same in the records.
        let tar = Tar::default().image("a.bmp", RED).records(&[("size", "18446744073709551615")]).image("b.bmp", RED);
        assert!(opened(&tar.end()).unwrap().read(1).is_err());
    }
    // Negative, or no number at all: no header.
    for size in [[0xff; 12], *b"twelve bytes"] {
        let tar = Tar::default().image("a.bmp", RED).block(header("b.bmp", size, b'0')).image("c.bmp", RED);
        let source = opened(&tar.end()).unwrap();
        assert_eq!(names(&*source), ["a.bmp"]);
        assert!(source.remarks()[0].contains("damaged at byte 1024"), "{:?}", source.remarks());
    }
}

#[test]
fn a_size_in_base_256_is_understood() {
    let bytes = bmp(5, 4, RED);
    let mut size = [0; 12];
    (size[0], size[11]) = (0x80, bytes.len() as u8);
    let tar = Tar::default().block(header("a.bmp", size, b'0')).data(&bytes).image("b.bmp", BLUE);
    let source = opened(&tar.end()).unwrap();
    assert_eq!((source.read(0).unwrap().pixels[0], source.read(1).unwrap().pixels[0]), (RED[0], BLUE[0]));
}

#[test]
fn long_names_of_hostile_size_are_not_read() {
    let claimed = Tar::default().image("a.bmp", RED).block(header("long", octal(1 << 40 >> 8), b'L'));
    assert_eq!(names(&*opened(&claimed.end()).unwrap()), ["a.bmp"]);
    // One that is really there makes the next member unusable, and no other.
    for kind in [b'L', b'x'] {
        let name = vec![b'n'; (1 << 20) + 1];
        let tar = Tar::default().member(kind, "long", &name).image("cut.bmp", RED).image("a.bmp", RED);
        let source = opened(&tar.end()).unwrap();
        assert_eq!(names(&*source), ["a.bmp"]);
        assert!(source.remarks()[0].contains("names without end"), "{:?}", source.remarks());
    }
}

#[test]
fn records_name_a_member_and_global_ones_do_not() {
    let tar = Tar::default()
        .member(b'g', "global", b"18 path=all.jpg\n\0\0")
        .records(&[("mtime", "17.5"), ("path", "grüße/ü.bmp")])
        .image("short.bmp", RED)
        .image("next.bmp", RED);
    assert_eq!(names(&*opened(&tar.end()).unwrap()), ["grüße/ü.bmp", "next.bmp"]);
}

#[test]
fn what_comes_before_damage_is_kept() {
    let tar = Tar::default().image("a.bmp", RED).image("b.bmp", BLUE).image("c.bmp", RED).end();
    let mut damaged = tar.clone();
    damaged[1024] ^= 1;
    let source = opened(&damaged).unwrap();
    assert_eq!(names(&*source), ["a.bmp"]);
    assert!(
        source.remarks()[0].contains("damaged at byte 1024; what comes after is not used"),
        "{:?}",
        source.remarks()
    );
    let mut damaged = tar.clone();
    damaged[0] ^= 1;
    assert!(problem(&damaged).contains("not a tar archive"));
    assert!(problem(&[]).contains("empty"));
}

#[test]
fn the_end_is_two_zero_blocks_and_what_follows_is_ignored() {
    let lone = Tar::default().image("a.bmp", RED).data(&[0; 512]).image("b.bmp", RED);
    let mut tar = lone.end();
    tar.extend(Tar::default().image("after.bmp", RED).0);
    tar.extend(b"trailing garbage");
    let source = opened(&tar).unwrap();
    assert_eq!(names(&*source), ["a.bmp", "b.bmp"]);
    assert!(source.remarks().is_empty());
    // No end at all is common, too.
    let source = opened(&Tar::default().image("a.bmp", RED).0).unwrap();
    assert!(source.remarks().is_empty());
}

#[test]
fn an_archive_without_images_says_what_it_holds() {
    let message = problem(&Tar::default().file("notes.txt", b"hello").end());
    assert!(message.contains("no images") && message.contains("such as notes.txt"), "{message}");
}

#[test]
fn cls_members_are_class_numbers() {
    let tar = Tar::default()
        .file("0001.cls", b"3\n")
        .image("0001.jpg", RED)
        .file("0001.json", b"{}")
        .image("0002.jpg", RED)
        .file("0002.cls", b"1")
        .image("0002.seg.png", BLUE)
        .image("0003.png", RED)
        .image("0003.webp", RED)
        .file("0003.cls", b"0");
    let source = opened(&tar.end()).unwrap();
    assert_eq!(names(&*source), ["0001.jpg", "0002.jpg", "0003.png"]);
    assert_eq!(labels(&*source), [Some(3), Some(1), Some(0)]);
    assert_eq!(source.class_names(), ["0", "1", "2", "3"]);
    assert!(source.remarks()[0].starts_with("2 image(s) left out that belong to a sample"), "{:?}", source.remarks());
}

#[test]
fn labels_that_are_no_numbers_are_not_used_and_that_is_said() {
    for label in [&b"cat"[..], b"-1", b"4294967296", b"99999999", b"1234567890123456789", b""] {
        let tar = Tar::default().image("a.jpg", RED).file("a.cls", b"0").image("b.jpg", RED).file("b.cls", label);
        let source = opened(&tar.end()).unwrap();
        assert!(source.class_names().is_empty());
        assert_eq!(labels(&*source), [None, None]);
        assert!(source.remarks()[0].contains("1 of 2 images have no .cls"), "{:?}", source.remarks());
    }
}

#[test]
fn an_archive_of_images_alone_is_like_a_folder() {
    let tar = Tar::default().image("a.1.jpg", RED).image("a.2.jpg", RED).image("a.jpg", RED).image("a.png", RED);
    assert_eq!(opened(&tar.end()).unwrap().len(), 4);
}

#[test]
fn folders_inside_are_classes_when_every_image_lies_in_one() {
    let classes = |names: &[&str]| {
        let tar = names.iter().fold(Tar::default(), |tar, name| tar.image(name, RED));
        let source = opened(&tar.end()).unwrap();
        (source.class_names().to_vec(), labels(&*source))
    };
    let both = vec!["cat".to_owned(), "dog".to_owned()];
    let (names, labels) = classes(&["dog/1.bmp", "cat/deep/2.bmp", "./cat/3.bmp"]);
    assert_eq!((names, labels), (both.clone(), vec![Some(1), Some(0), Some(0)]));
    // A folder that all share is where the archive was made.
    assert_eq!(classes(&["pets/dog/1.bmp", "pets/cat/2.bmp"]).0, both);
    // Parts of a data set are no classes.
    assert_eq!(classes(&["train/dog/1.bmp", "val/cat/2.bmp"]).0, both);
    assert!(classes(&["train/1.bmp", "val/2.bmp"]).0.is_empty());
    assert!(classes(&["dog/1.bmp", "cat/2.bmp", "stray.bmp"]).0.is_empty());
    assert!(classes(&["only/1.bmp", "only/2.bmp"]).0.is_empty());
}

#[test]
fn any_bytes_are_survived() {
    let tar = Tar::default()
        .records(&[("path", "a.jpg"), ("GNU.sparse.name", "x")])
        .image("a.bmp", RED)
        .member(b'L', "long", b"b.bmp")
        .image("short", RED)
        .file("c.cls", b"7")
        .image("c.jpg", RED)
        .end();
    for cut in (0..tar.len()).step_by(61) {
        fuzz::tar(&tar[..cut]);
    }
    // Damage that a checksum would catch, with the checksum put right.
    let mut stream = random::Key::new(0, random::Purpose::Bench).stream();
    for _ in 0..3000 {
        let mut hostile = tar.clone();
        for _ in 0..3 {
            let block = stream.below(hostile.len() as u64 / 512) as usize * 512;
            let byte = stream.below(512) as usize;
            hostile[block + byte] = stream.below(256) as u8;
            let block: &mut [u8; 512] = (&mut hostile[block..block + 512]).try_into().unwrap();
            *block = with_checksum(*block);
        }
        fuzz::tar(&hostile);
    }
}
