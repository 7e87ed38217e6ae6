//! What the cache holds is what the files hold: changes that leave size and time as they were, damage, leftovers of killed
//! processes, and files that change under a running source.

mod parquet_files;
mod support;

use data::source::open_cached;
use data::{OpenError, Source, Split};
use flate2::{Compression, write::GzEncoder};
use parquet_files::{Column, written};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::archive::Tar;
use support::{TempFolder, bmp};

const RED: [u8; 3] = [200, 10, 20];
const BLUE: [u8; 3] = [1, 2, 250];

fn open(folder: &TempFolder, name: &str) -> Result<Arc<dyn Source>, OpenError> {
    open_cached(folder.0.join(name).to_str().unwrap(), Split::Train, 0, &folder.0.join("cache"))
}

/// Files in the cache with this ending.
fn entries(folder: &TempFolder, ending: &str) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(folder.0.join("cache")) else { return Vec::new() };
    files.map(|file| file.unwrap().path()).filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

/// Gzip that does not compress, so that its size says nothing about its content.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(color: [u8; 3]) -> Vec<u8> {
    Tar::default().image("a.bmp", color).end()
}

fn parquet(color: [u8; 3]) -> Vec<u8> {
    written("optional binary image;", None, &[Column::Bytes(vec![Some(bmp(5, 4, color))])])
}

/// A gzip file of more blocks than one: many images, of which the last is blue.
fn many() -> Vec<u8> {
    let images = (0..400).fold(Tar::default(), |tar, i| tar.image(&format!("{i:03}.bmp"), RED));
    gzip(&images.image("last.bmp", BLUE).end())
}

fn first_pixel(source: &dyn Source, index: usize) -> [u8; 3] {
    source.read(index).unwrap().pixels[..3].try_into().unwrap()
}

/// Gives a file the times of another.
fn with_time_of(path: &Path, about: &fs::Metadata) {
    File::options().write(true).open(path).unwrap().set_modified(about.modified().unwrap()).unwrap();
}

/// Flips a bit in the middle of a file.
fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    let about = fs::metadata(path).unwrap();
    fs::write(path, bytes).unwrap();
    with_time_of(path, &about);
}

#[test]
fn a_file_of_the_same_size_and_time_gives_its_own_images_and_not_those_of_the_old() {
    for (name, make) in
        [("x.tar", tar as fn([u8; 3]) -> Vec<u8>), ("x.tar.gz", |color| gzip(&tar(color))), ("x.parquet", parquet)]
    {
        let (red, blue) = (make(RED), make(BLUE));
        assert_eq!(red.len(), blue.len(), "{name}");
        let folder = TempFolder::new();
        let path = folder.0.join(name);
        let opened = |color: [u8; 3], how: &str| {
            assert_eq!(first_pixel(&*open(&folder, name).unwrap(), 0), color, "{name} {how}");
        };
        fs::write(&path, &red).unwrap();
        let about = fs::metadata(&path).unwrap();
        opened(RED, "first");
        fs::write(&path, &blue).unwrap();
        with_time_of(&path, &about);
        opened(BLUE, "rewritten in place, its time set back");
        // Copied beside it with its times, and renamed over it.
        fs::write(folder.0.join("copy"), &red).unwrap();
        with_time_of(&folder.0.join("copy"), &about);
        fs::rename(&path, folder.0.join("old")).unwrap();
        fs::rename(folder.0.join("copy"), &path).unwrap();
        opened(RED, "replaced by a copy");
        fs::rename(folder.0.join("old"), &path).unwrap();
        opened(BLUE, "moved back");
    }
}

#[test]
fn damage_of_what_was_unpacked_is_found_when_it_is_read_and_mended_with_a_word() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &many());
    let last = open(&folder, "x.tgz").unwrap().len() - 1;
    let unpacked = entries(&folder, ".data").remove(0);
    let good = fs::read(&unpacked).unwrap();
    // In the pixels of the last image, where nothing but a checksum tells.
    let place = good.len() - 1024 - 512 + 60;
    assert_eq!(good[place], BLUE[2]);
    damage(&unpacked, place);
    let source = open(&folder, "x.tgz").unwrap();
    assert_eq!((first_pixel(&*source, 0), source.take_news().len()), (RED, 0), "another block");
    assert_eq!(first_pixel(&*source, last), BLUE);
    let news = source.take_news();
    assert!(news.len() == 1 && news[0].contains("was damaged, and was made again"), "{news:?}");
    assert_eq!(fs::read(&unpacked).unwrap(), good);
    assert!(open(&folder, "x.tgz").unwrap().remarks().is_empty(), "the word is said once");
    // Many threads at once stumble over the next damage.
    damage(&unpacked, place);
    let source = open(&folder, "x.tgz").unwrap();
    std::thread::scope(|scope| {
        (0..8).for_each(|_| _ = scope.spawn(|| assert_eq!(first_pixel(&*source, last), BLUE)));
    });
    assert_eq!(source.take_news().len(), 1);
    // A disk that damages it again is told as such, and not blamed on the image. A new start tries again.
    damage(&unpacked, 60);
    let message = source.read(0).unwrap_err().to_string();
    assert!(message.contains("damaged, for the second time. Is the disk failing?"), "{message}");
    assert_eq!(first_pixel(&*open(&folder, "x.tgz").unwrap(), 0), RED);
}

#[test]
fn damage_is_not_mended_with_another_file_of_the_same_layout() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &gzip(&tar(RED)));
    let source = open(&folder, "x.tgz").unwrap();
    damage(&entries(&folder, ".data")[0], 512 + 60);
    let good = fs::read(folder.0.join("x.tgz")).unwrap();
    folder.write("x.tgz", &gzip(&tar(BLUE)));
    for _ in 0..2 {
        let message = source.read(0).unwrap_err().to_string();
        assert!(message.contains("the data it was made from has changed"), "{message}");
    }
    // That it failed is no damage of its own: with the right file back, it is mended.
    folder.write("x.tgz", &good);
    assert_eq!(first_pixel(&*source, 0), RED);
}

#[cfg(unix)]
#[test]
fn other_rights_of_a_file_do_not_unpack_it_again() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempFolder::new();
    folder.write("x.tgz", &gzip(&tar(RED)));
    open(&folder, "x.tgz").unwrap();
    let written = |path: &PathBuf| (fs::metadata(path).unwrap().modified().unwrap(), path.clone());
    let before: Vec<_> = entries(&folder, ".data").iter().map(written).collect();
    fs::set_permissions(folder.0.join("x.tgz"), fs::Permissions::from_mode(0o600)).unwrap();
    open(&folder, "x.tgz").unwrap();
    assert_eq!(entries(&folder, ".data").iter().map(written).collect::<Vec<_>>(), before);
}

#[cfg(unix)]
#[test]
fn two_files_that_take_turns_under_one_path_keep_what_was_unpacked_of_each() {
    // As two machines do, which stage their own copy and share a cache.
    let folder = TempFolder::new();
    let path = folder.0.join("x.tgz");
    for (name, color) in [("one", RED), ("two", BLUE)] {
        folder.write(name, &gzip(&tar(color)));
    }
    let mut unpacked = Vec::new();
    for (name, color) in [("one", RED), ("two", BLUE), ("one", RED), ("two", BLUE)] {
        fs::rename(folder.0.join(name), &path).unwrap();
        assert_eq!(first_pixel(&*open(&folder, "x.tgz").unwrap(), 0), color);
        fs::rename(&path, folder.0.join(name)).unwrap();
        let times = entries(&folder, ".data").into_iter().map(|path| fs::metadata(path).unwrap().modified().unwrap());
        let mut times: Vec<_> = times.collect();
        times.sort();
        unpacked.push(times);
    }
    assert_eq!((unpacked[1].len(), &unpacked[1]), (2, &unpacked[3]));
    // The one that was replaced goes when nobody has used it for a week.
    let weeks_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(14 * 24 * 3600);
    for entry in entries(&folder, "") {
        File::options().append(true).open(entry).unwrap().set_modified(weeks_ago).unwrap();
    }
    folder.write("x.tgz", &gzip(&tar(RED)));
    open(&folder, "x.tgz").unwrap();
    assert_eq!(entries(&folder, ".data").len(), 1);
}

#[test]
fn what_cannot_be_made_again_is_an_error_that_says_why() {
    let folder = TempFolder::new();
    folder.write("x.parquet", &parquet(RED));
    let source = open(&folder, "x.parquet").unwrap();
    let unpacked = entries(&folder, ".data").remove(0);
    damage(&unpacked, 60);
    assert_eq!(first_pixel(&*source, 0), RED);
    assert_eq!(source.take_news().len(), 1);
    // Damaged again, and with nothing left to make it from.
    let source = open(&folder, "x.parquet").unwrap();
    damage(&unpacked, 60);
    fs::remove_file(folder.0.join("x.parquet")).unwrap();
    let message = source.read(0).unwrap_err().to_string();
    assert!(message.contains("in the cache is damaged, and cannot be made again"), "{message}");
    assert!(message.contains("x.parquet"), "{message}");
}

#[test]
fn an_index_is_not_made_from_a_damaged_archive_in_the_cache() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &many());
    folder.write("y.tgz", &gzip(&tar(BLUE)));
    let names = |source: &dyn Source| (0..source.len()).map(|i| source.name(i)).collect::<Vec<_>>();
    let before = names(&*open(&folder, "x.tgz").unwrap());
    let unpacked = entries(&folder, ".data").remove(0);
    // The name of the first member, for an index that is not there yet.
    damage(&unpacked, 1);
    let both = open(&folder, "{x,y}.tgz").unwrap();
    assert_eq!(names(&*both)[..before.len()], before.iter().map(|name| format!("x.tgz/{name}")).collect::<Vec<_>>());
    assert!(both.remarks().iter().any(|remark| remark.contains("was damaged")), "{:?}", both.remarks());
}

#[test]
fn a_damaged_index_is_made_again_with_a_word() {
    let folder = TempFolder::new();
    folder.write("x.tar", &tar(RED));
    assert!(open(&folder, "x.tar").unwrap().remarks().is_empty());
    damage(&entries(&folder, ".index")[0], 40);
    let source = open(&folder, "x.tar").unwrap();
    assert!(source.remarks()[0].contains("x.tar was damaged, and was made again"), "{:?}", source.remarks());
    // An entry of another version is no damage.
    let index = entries(&folder, ".index").remove(0);
    let bytes = fs::read(&index).unwrap();
    fs::write(&index, [b"dino-vmf index 2\n", &bytes[17..]].concat()).unwrap();
    assert!(open(&folder, "x.tar").unwrap().remarks().is_empty());
}

#[test]
fn what_was_unpacked_and_then_removed_is_made_again_under_a_running_source() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &gzip(&tar(RED)));
    let source = open(&folder, "x.tgz").unwrap();
    entries(&folder, "").iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(first_pixel(&*source, 0), RED);
}

#[test]
fn a_file_that_changes_under_a_running_source_is_an_error_and_not_another_image() {
    let folder = TempFolder::new();
    for (name, first, second) in [
        ("x.tar", tar(RED), tar(BLUE)),
        ("data_batch_1.bin", vec![1; 3073], vec![2; 3073]),
        ("train-images-idx3-ubyte", idx(1), idx(2)),
    ] {
        folder.write(name, &first);
        let about = fs::metadata(folder.0.join(name)).unwrap();
        let source = open(&folder, name).unwrap();
        folder.write("new", &second);
        with_time_of(&folder.0.join("new"), &about);
        fs::rename(folder.0.join("new"), folder.0.join(name)).unwrap();
        let message = source.read(0).unwrap_err().to_string();
        assert!(message.contains("has changed since it was indexed"), "{name}: {message}");
    }
}

fn idx(value: u8) -> Vec<u8> {
    let mut bytes = [[0, 0, 8, 3], [0, 0, 0, 1], [0, 0, 0, 4], [0, 0, 0, 4]].concat();
    bytes.extend([value; 16]);
    bytes
}

#[test]
fn leftovers_of_a_killed_unpacking_go_and_the_work_of_a_living_process_stays() {
    let folder = TempFolder::new();
    folder.write("x.tgz", &gzip(&tar(RED)));
    open(&folder, "x.tgz").unwrap();
    let unpacked = entries(&folder, ".data").remove(0);
    let killed = files::unfinished_path(&unpacked);
    fs::write(&killed, b"half").unwrap();
    let (_living, in_work) = files::create_unfinished(&unpacked).unwrap();
    folder.write("y.tgz", &gzip(&tar(BLUE)));
    open(&folder, "y.tgz").unwrap();
    assert_eq!(entries(&folder, ".tmp"), [in_work]);
}
