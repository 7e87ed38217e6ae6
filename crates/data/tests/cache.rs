//! Indexes that are kept between starts: used while they hold, rebuilt when they do not, and never in the way.

mod support;

use data::source::open_cached;
use data::{OpenError, Source, Split};
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use support::TempFolder;
use support::archive::Tar;

const RED: [u8; 3] = [200, 10, 20];
const BLUE: [u8; 3] = [1, 2, 250];

fn open(folder: &TempFolder, name: &str) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.0.join(name).to_str().unwrap(), Split::Train, 0, &cache(folder))
}

fn cache(folder: &TempFolder) -> PathBuf {
    folder.0.join("cache")
}

/// Files in the cache with this ending.
fn entries(folder: &TempFolder, ending: &str) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(cache(folder)) else { return Vec::new() };
    files.map(|file| file.unwrap().path()).filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn names(source: &dyn Source) -> Vec<String> {
    (0..source.len()).map(|i| source.name(i)).collect()
}

#[test]
fn an_index_is_kept_and_used_until_the_file_changes() {
    let folder = TempFolder::new();
    let (first, second) = (Tar::default().image("a.bmp", RED).end(), Tar::default().image("b.bmp", RED).end());
    folder.write("x.tar", &first);
    let fingerprint = open(&folder, "x.tar").unwrap().fingerprint();
    let index = entries(&folder, ".index").remove(0);
    // A use marks the entry and leaves its content; a new entry would be a new file, with nothing behind its content.
    let mut marked = fs::read(&index).unwrap();
    let year_ago = SystemTime::now() - Duration::from_secs(365 * 24 * 3600);
    fs::File::options().append(true).open(&index).unwrap().set_modified(year_ago).unwrap();
    let before = fs::File::open(&index).unwrap();
    let source = open(&folder, "x.tar").unwrap();
    assert_eq!((names(&*source), source.fingerprint()), (vec!["a.bmp".to_owned()], fingerprint));
    assert!(before.metadata().unwrap().modified().unwrap() > year_ago, "it was used, and is still the same file");
    assert_eq!(fs::read(&index).unwrap(), marked);
    // The same size, another content: seen.
    folder.write("x.tar", &second);
    assert_eq!(names(&*open(&folder, "x.tar").unwrap()), ["b.bmp"]);
    assert_eq!(entries(&folder, ".index").len(), 1, "the new one replaced the old");
    marked = fs::read(&index).unwrap();
    // And written again at once, within the tick of a clock.
    folder.write("x.tar", &first);
    assert_eq!(names(&*open(&folder, "x.tar").unwrap()), ["a.bmp"]);
    assert_ne!(fs::read(&index).unwrap(), marked);
}

#[test]
fn nothing_is_written_beside_the_data() {
    let folder = TempFolder::new();
    folder.write("data/x.tar.gz", &gzip(&Tar::default().image("a.bmp", RED).end()));
    open(&folder, "data/x.tar.gz").unwrap();
    assert_eq!(fs::read_dir(folder.0.join("data")).unwrap().count(), 1);
}

#[test]
fn a_damaged_entry_is_made_again() {
    let folder = TempFolder::new();
    folder.write("x.tar", &Tar::default().image("a.bmp", RED).end());
    open(&folder, "x.tar").unwrap();
    let entry = entries(&folder, ".index").remove(0);
    let good = fs::read(&entry).unwrap();
    for position in 0..good.len() {
        let mut damaged = good.clone();
        damaged[position] ^= 0x10;
        fs::write(&entry, &damaged).unwrap();
        assert_eq!(names(&*open(&folder, "x.tar").unwrap()), ["a.bmp"], "{position}");
        assert_eq!(fs::read(&entry).unwrap(), good, "{position}");
    }
    for length in [0, 1, 20, good.len() - 1] {
        fs::write(&entry, &good[..length]).unwrap();
        assert_eq!(names(&*open(&folder, "x.tar").unwrap()), ["a.bmp"], "{length}");
    }
}

#[test]
fn a_cache_that_cannot_be_written_costs_a_remark_for_a_plain_archive() {
    let folder = TempFolder::new();
    folder.write("x.tar", &Tar::default().image("a.bmp", RED).end());
    folder.write("cache", b"a file where the folder should be");
    let source = open(&folder, "x.tar").unwrap();
    assert_eq!(source.read(0).unwrap().pixels[..3], RED);
    let remark = &source.remarks()[0];
    assert!(remark.contains("could not be kept") && remark.contains("DINO_VMF_CACHE"), "{remark}");
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error_when_something_has_to_be_unpacked() {
    let folder = TempFolder::new();
    folder.write("x.tar.gz", &gzip(&Tar::default().image("a.bmp", RED).end()));
    folder.write("cache", b"a file where the folder should be");
    let error = open(&folder, "x.tar.gz").err().unwrap();
    assert!(matches!(error, OpenError::Cache { .. }), "{error}");
    let (message, cache) = (error.to_string(), cache(&folder).display().to_string());
    assert!(message.starts_with(&cache) && message.contains("DINO_VMF_CACHE"), "{message}");
}

#[test]
fn a_gzip_archive_is_unpacked_once_and_read_in_any_order() {
    let folder = TempFolder::new();
    let tar = Tar::default().image("a.bmp", RED).image("b.bmp", BLUE).end();
    folder.write("x.tgz", &gzip(&tar));
    let source = open(&folder, "x.tgz").unwrap();
    assert_eq!((source.read(1).unwrap().pixels[0], source.read(0).unwrap().pixels[0]), (BLUE[0], RED[0]));
    let unpacked = entries(&folder, ".data");
    assert_eq!(unpacked.len(), 1);
    assert_eq!(fs::read(&unpacked[0]).unwrap(), tar);
    let written = fs::metadata(&unpacked[0]).unwrap().modified().unwrap();
    open(&folder, "x.tgz").unwrap();
    assert_eq!(fs::metadata(&unpacked[0]).unwrap().modified().unwrap(), written, "not unpacked again");
    // Lost or cut short: rebuilt.
    fs::remove_file(&unpacked[0]).unwrap();
    assert_eq!(open(&folder, "x.tgz").unwrap().read(0).unwrap().pixels[..3], RED);
    fs::write(&unpacked[0], &tar[..600]).unwrap();
    assert_eq!(open(&folder, "x.tgz").unwrap().read(1).unwrap().pixels[..3], BLUE);
}

#[test]
fn one_more_shard_leaves_what_was_unpacked_of_the_others() {
    let folder = TempFolder::new();
    for i in 0..3 {
        folder.write(&format!("x-{i}.tgz"), &gzip(&Tar::default().image(&format!("{i}.bmp"), [i; 3]).end()));
    }
    assert_eq!(open(&folder, "x-{0..1}.tgz").unwrap().len(), 2);
    let written = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let before: Vec<_> = entries(&folder, ".data").into_iter().map(|path| (written(&path), path)).collect();
    let source = open(&folder, "x-{0..2}.tgz").unwrap();
    assert_eq!((source.len(), source.read(2).unwrap().pixels[0]), (3, 2));
    assert_eq!((before.len(), entries(&folder, ".data").len()), (2, 3));
    assert!(before.iter().all(|(time, path)| written(path) == *time));
}

#[test]
fn what_was_unpacked_before_a_change_is_removed_and_a_running_source_keeps_reading_it() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &gzip(&Tar::default().image("a.bmp", RED).end()));
    let running = open(&folder, "x.tgz").unwrap();
    running.read(0).unwrap();
    folder.write("x.tgz", &gzip(&Tar::default().image("b.bmp", BLUE).image("c.bmp", BLUE).end()));
    assert_eq!(open(&folder, "x.tgz").unwrap().len(), 2);
    assert_eq!(entries(&folder, ".data").len(), 1);
    assert_eq!(running.read(0).unwrap().pixels[..3], RED);
}

#[test]
fn damaged_and_cut_gzip_is_an_error_that_leaves_nothing_behind() {
    let folder = TempFolder::new();
    let good = gzip(&Tar::default().image("a.bmp", RED).end());
    let mut wrong_sum = good.clone();
    let sum = wrong_sum.len() - 6;
    wrong_sum[sum] ^= 1;
    for bytes in [&good[..good.len() - 12], &wrong_sum] {
        folder.write("x.tar.gz", bytes);
        let message = open(&folder, "x.tar.gz").err().unwrap().to_string();
        assert!(message.contains("damaged gzip data") && message.contains("completely"), "{message}");
        assert!(entries(&folder, "").is_empty(), "{:?}", entries(&folder, ""));
    }
}

#[test]
fn a_gzip_bomb_is_refused_and_leaves_nothing_behind() {
    let folder = TempFolder::new();
    let mut tar = Tar::default().image("a.bmp", RED).0;
    tar.resize(80 << 20, 0);
    folder.write("bomb.tar.gz", &gzip(&tar));
    let message = open(&folder, "bomb.tar.gz").err().unwrap().to_string();
    assert!(message.contains("unpack to more than"), "{message}");
    assert!(entries(&folder, "").is_empty());
}

#[test]
fn patterns_for_the_same_files_share_an_entry_and_a_renamed_file_is_seen() {
    let folder = TempFolder::new();
    let tar = |name: &str| Tar::default().image(name, RED).end();
    folder.write("one/x.tar", &tar("a.bmp"));
    folder.write("one/y.tar", &tar("b.bmp"));
    for pattern in ["one/{x,y}.tar", "one/*.tar"] {
        assert_eq!(names(&*open(&folder, pattern).unwrap()), ["x.tar/a.bmp", "y.tar/b.bmp"]);
    }
    assert_eq!(entries(&folder, ".index").len(), 1);
    fs::rename(folder.0.join("one/y.tar"), folder.0.join("one/z.tar")).unwrap();
    assert_eq!(names(&*open(&folder, "one/*.tar").unwrap()), ["x.tar/a.bmp", "z.tar/b.bmp"]);
}

#[test]
fn files_of_others_in_the_cache_folder_are_left_alone() {
    let folder = TempFolder::new();
    folder.write("cache/thesis.tmp", b"a year of work");
    folder.write("x.tgz", &gzip(&Tar::default().image("a.bmp", RED).end()));
    let year_ago = SystemTime::now() - Duration::from_secs(365 * 24 * 3600);
    let thesis = fs::File::options().append(true).open(cache(&folder).join("thesis.tmp")).unwrap();
    thesis.set_modified(year_ago).unwrap();
    open(&folder, "x.tgz").unwrap();
    assert_eq!(fs::read(cache(&folder).join("thesis.tmp")).unwrap(), b"a year of work");
}

#[test]
fn an_entry_in_use_stays_and_one_that_nobody_used_for_months_goes() {
    let folder = TempFolder::new();
    let months_ago = SystemTime::now() - Duration::from_secs(120 * 24 * 3600);
    for name in ["x.tgz", "y.tgz"] {
        folder.write(name, &gzip(&Tar::default().image("a.bmp", RED).end()));
        open(&folder, name).unwrap();
    }
    for file in entries(&folder, "") {
        fs::File::options().append(true).open(file).unwrap().set_modified(months_ago).unwrap();
    }
    open(&folder, "x.tgz").unwrap();
    // Tidied up when something new comes in.
    folder.write("z.tar", &Tar::default().image("a.bmp", RED).end());
    open(&folder, "z.tar").unwrap();
    assert_eq!((entries(&folder, ".index").len(), entries(&folder, ".data").len()), (3, 1));
    assert_eq!(open(&folder, "x.tgz").unwrap().read(0).unwrap().pixels[..3], RED);
}

#[test]
fn many_threads_may_build_the_same_entry() {
    let folder = TempFolder::new();
    let tar = (0..50).fold(Tar::default(), |tar, i| tar.image(&format!("{i}.bmp"), [i; 3])).end();
    folder.write("x.tgz", &gzip(&tar));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let source = open(&folder, "x.tgz").unwrap();
                (0..50).for_each(|i| assert_eq!(source.read(i).unwrap().pixels[0], i as u8));
            });
        }
    });
    assert_eq!(
        (entries(&folder, ".index").len(), entries(&folder, ".data").len(), entries(&folder, "").len()),
        (2, 1, 3)
    );
}
