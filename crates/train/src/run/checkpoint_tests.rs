//! What becomes of checkpoints: written, kept, damaged, set aside.

use super::super::format::Element;
use super::super::format::tests::with_tensors;
use super::super::identity::tests::named;
use super::*;
use files::safetensors::Header;

fn store() -> (tempfile::TempDir, Checkpoints) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().to_owned(), 2, named("mine"));
    (folder, checkpoints)
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn save(checkpoints: &Checkpoints, step: u64) -> PathBuf {
    let state = format!("{{\"epoch\": {step}, \"name\": \"\\\"ü\"}}");
    with_tensors(step, |tensors| checkpoints.write(step, tensors, &state).unwrap().path)
}

fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().into_iter().map(|(step, _)| step).collect()
}

#[test]
fn a_checkpoint_reads_back_bit_for_bit() {
    let (_folder, checkpoints) = store();
    let path = save(&checkpoints, 7);
    assert!(path.ends_with("step-00000007.safetensors"));
    let read = checkpoints.latest_valid().unwrap().checkpoint.unwrap();
    assert_eq!((read.step(), read.state()), (7, "{\"epoch\": 7, \"name\": \"\\\"ü\"}"));
    let weight = read.tensor("student.weight").unwrap();
    assert_eq!((weight.shape, weight.element), (&[3, 2][..], Element::F32));
    assert_eq!(weight.bytes, floats(&[1.0, f32::NAN, -0.0, 7.0, 5.0, 6.0]));
    assert_eq!(read.tensor("center").unwrap().bytes, 0.1f64.to_le_bytes());
    assert_eq!(read.tensors().count(), 4);
    assert!(read.tensor("teacher").is_none());
}

#[test]
fn the_same_state_gives_the_same_file() {
    let ((_a, first), (_b, second)) = (store(), store());
    assert_eq!(fs::read(save(&first, 3)).unwrap(), fs::read(save(&second, 3)).unwrap());
}

#[test]
fn only_the_newest_are_kept() {
    let (_folder, checkpoints) = store();
    for step in [1, 5, 100_000_000, 20] {
        save(&checkpoints, step);
    }
    assert_eq!(steps(&checkpoints), [20, 5], "the one of step 100000000 lies in an abandoned future");
    save(&checkpoints, 123_456_789);
    assert_eq!(steps(&checkpoints), [123_456_789, 20]);
}

#[test]
fn the_newest_from_before_a_collapse_is_spared_while_it_lasts() {
    let (_folder, checkpoints) = store();
    [1, 5, 10, 15].into_iter().for_each(|step| _ = save(&checkpoints, step));
    let collapsed = checkpoints.clone().sparing(Some(12));
    for step in [20, 25, 30] {
        save(&collapsed, step);
        assert!(steps(&collapsed).contains(&10), "{:?}", steps(&collapsed));
    }
    assert_eq!(steps(&checkpoints), [30, 25, 10]);
    assert_eq!(checkpoints.newest_before(12).unwrap().unwrap().step(), 10);
    assert!(checkpoints.newest_before(10).unwrap().is_none());
    save(&checkpoints, 35);
    assert_eq!(steps(&checkpoints), [35, 30], "a run that is well again keeps as many as ever");
    checkpoints.remove_all_but(Some(30)).unwrap();
    assert_eq!(steps(&checkpoints), [30]);
}

#[test]
fn a_damaged_newest_checkpoint_gives_way_to_the_one_before_and_is_set_aside() {
    let (folder, checkpoints) = store();
    save(&checkpoints, 10);
    let newest = save(&checkpoints, 20);
    let mut bytes = fs::read(&newest).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&newest, bytes).unwrap();
    let leftover = files::unfinished_path(&folder.path().join("step-00000030.safetensors"));
    fs::write(&leftover, "half").unwrap();

    assert_eq!(checkpoints.latest_valid().unwrap().checkpoint.unwrap().step(), 10);
    assert!(leftover.exists() && newest.exists(), "looking changes nothing");

    let recovered = checkpoints.recover().unwrap();
    assert_eq!(recovered.checkpoint.unwrap().step(), 10);
    let message = recovered.skipped[0].to_string();
    assert!(message.contains("step-00000020.safetensors.damaged is damaged: its checksum is"), "{message}");
    assert!(!leftover.exists() && !newest.exists() && recovered.skipped[0].path.exists());
    save(&checkpoints, 20);
    assert_eq!(steps(&checkpoints), [20, 10]);
}

/// A file that gives its first `left` bytes and then fails.
struct Failing {
    file: fs::File,
    left: usize,
    kind: ErrorKind,
}

impl io::Read for Failing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let wanted = bytes.len().min(self.left);
        if wanted == 0 && !bytes.is_empty() {
            // What a file does that was cut after it was opened.
            return if self.kind == ErrorKind::UnexpectedEof { Ok(0) } else { Err(self.kind.into()) };
        }
        self.left -= wanted;
        self.file.read(&mut bytes[..wanted])
    }
}

fn read_failing(path: &Path, left: usize, kind: ErrorKind) -> Result<Checkpoint, Damage> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut file = Failing { file, left, kind };
    let header = Header::read(&mut file, length)?;
    Checkpoint::read_tensors(path, header, &mut file, None)
}

#[test]
fn a_disk_that_fails_is_an_error_and_no_checkpoint_is_set_aside() {
    let (folder, checkpoints) = store();
    save(&checkpoints, 10);
    let newest = save(&checkpoints, 20);
    let length = fs::metadata(&newest).unwrap().len() as usize;
    for left in [0, 5, 8, 100, length - 1] {
        for kind in
            [ErrorKind::Other, ErrorKind::TimedOut, ErrorKind::PermissionDenied, ErrorKind::StaleNetworkFileHandle]
        {
            let recovered = checkpoints.recover_by(|path: &Path, _: Option<&Identity>| read_failing(path, left, kind));
            let message = recovered.unwrap_err().to_string();
            assert!(message.contains("step-00000020.safetensors: cannot read: "), "{left}, {kind}: {message}");
            assert_eq!(steps(&checkpoints), [20, 10]);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing was changed");
        }
        let cut = |path: &Path, _: Option<&Identity>| match path == newest {
            true => read_failing(path, left, ErrorKind::UnexpectedEof),
            false => Checkpoint::read(path),
        };
        let recovered = latest_valid_by(folder.path(), None, cut).unwrap();
        assert_eq!(recovered.checkpoint.unwrap().step(), 10, "a file that has been cut is damaged");
        assert!(recovered.skipped[0].reason.contains("is damaged: it ends before"), "{:?}", recovered.skipped);
    }
    assert_eq!(checkpoints.recover().unwrap().checkpoint.unwrap().step(), 20, "the disk is back");
}

#[test]
fn a_folder_named_like_a_checkpoint_is_an_error_and_stays() {
    let (folder, checkpoints) = store();
    save(&checkpoints, 10);
    let strange = folder.path().join("step-00000020.safetensors");
    fs::create_dir(&strange).unwrap();
    let message = checkpoints.recover().unwrap_err().to_string();
    assert!(message.ends_with("step-00000020.safetensors: cannot read: it is not a file"), "{message}");
    assert!(strange.is_dir());
    assert_eq!(steps(&checkpoints), [20, 10]);
}

#[test]
fn a_renamed_checkpoint_is_not_taken_for_another_step() {
    let (folder, checkpoints) = store();
    save(&checkpoints, 10);
    fs::copy(save(&checkpoints, 20), folder.path().join("step-00000021.safetensors")).unwrap();
    let recovered = checkpoints.latest_valid().unwrap();
    assert_eq!(recovered.checkpoint.unwrap().step(), 20);
    assert!(recovered.skipped[0].reason.contains("it holds step 20"));
}

#[test]
fn only_damaged_checkpoints_are_an_error_and_none_at_all_are_a_fresh_start() {
    let (folder, checkpoints) = store();
    assert!(checkpoints.recover().unwrap().checkpoint.is_none());
    fs::write(folder.path().join("notes.txt"), "not a checkpoint").unwrap();
    let path = save(&checkpoints, 1);
    fs::write(&path, "gone").unwrap();
    let message = checkpoints.recover().unwrap_err().to_string();
    assert!(message.contains("no checkpoint is usable") && message.contains("step-00000001"), "{message}");
    assert!(path.exists(), "nothing was changed");
}

#[test]
fn a_checkpoint_of_another_version_is_not_thrown_away() {
    let (_folder, checkpoints) = store();
    save(&checkpoints, 10);
    let newest = save(&checkpoints, 20);
    let bytes = fs::read(&newest).unwrap();
    let (old, new) = (b"\"version\":\"2\"", b"\"version\":\"3\"");
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    fs::write(&newest, [&bytes[..at], new, &bytes[at + new.len()..]].concat()).unwrap();
    let message = checkpoints.recover().unwrap_err().to_string();
    assert!(message.contains("has checkpoint format 3; this program reads formats 1 and 2"), "{message}");
    assert_eq!(steps(&checkpoints), [20, 10]);
}

#[test]
fn tensors_that_contradict_themselves_are_not_written() {
    let (_folder, checkpoints) = store();
    let bytes = floats(&[1.0, 2.0]);
    let short = TensorRef { name: "w", shape: &[3], element: Element::F32, bytes: &bytes };
    let right = TensorRef { shape: &[2], ..short };
    let message = checkpoints.write(1, &[short], "{}").unwrap_err().to_string();
    assert_eq!(message, "tensor `w` cannot be saved: shape [3] does not have 8 bytes");
    assert!(checkpoints.write(1, &[right, right], "{}").unwrap_err().to_string().contains("two tensors"));
    assert_eq!(steps(&checkpoints), Vec::<u64>::new());
}
