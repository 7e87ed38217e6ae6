//! The checkpoints of a run: written so that a crash cannot harm an earlier one, read newest first.

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use files::safetensors::WriteError;
use files::{finished_name, remove_if_there};

use super::atomic::replace;
use super::error::RunError;
use super::format::{Checkpoint, Damage, TensorRef, unwritten};
use super::identity::Identity;

/// A folder of files `step-00001234.safetensors`, of which those of one run are written and removed. Others may lie among
/// them: they are never used, changed or removed.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    owner: Identity,
}

/// A checkpoint that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file, where it is now.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
    /// Whether the run's own checkpoint is lost. If not, it is somebody else's file.
    pub is_damaged: bool,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path.display(), self.reason)
    }
}

/// Where a run goes on.
#[derive(Debug)]
pub struct Recovered {
    /// The newest usable checkpoint; none in a run that has not saved one yet.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that cannot be used, newest first.
    pub skipped: Vec<Skipped>,
}

/// A checkpoint that has been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Where somebody else's file of that name is now.
    pub moved: Option<PathBuf>,
}

impl Checkpoints {
    /// The checkpoints of `owner` in `folder`, of which the newest `keep` (at least one) stay.
    pub(super) fn new(folder: PathBuf, keep: usize, owner: Identity) -> Self {
        Self { folder, keep: keep.max(1), owner }
    }

    /// All checkpoints by step, newest first. They may be damaged, or another run's.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, RunError> {
        list(&self.folder)
    }

    /// Saves a checkpoint after `step` steps, then removes those that are no longer to be kept.
    ///
    /// The tensors go straight from where they are to the disk. Older checkpoints are removed only when the new one is
    /// durable. Those of a later step are removed too: the run has come back from before them, so they were unusable.
    pub fn write(&self, step: u64, tensors: &[TensorRef<'_>], state: &str) -> Result<Written, RunError> {
        let path = self.folder.join(file_name(step));
        let writer = unwritten(step, tensors, state, &self.owner).map_err(|error| match error {
            WriteError::Tensor { name, problem } => RunError::BadTensor { name, reason: problem.to_string() },
            other => RunError::Io { action: "write", path: path.clone(), source: io::Error::other(other) },
        })?;
        // Somebody may have cleared it away while the run goes on. Only this folder, never those above it: a run that was
        // deleted as a whole does not come back.
        if !self.folder.exists() {
            fs::create_dir(&self.folder).map_err(|source| RunError::from_io("create", &self.folder, 0, source))?;
        }
        let moved = match path.try_exists() {
            Ok(true) if !self.is_own(&path) => Some(move_aside(&path, ".other-run")?),
            _ => None,
        };
        replace(&path, writer.file_size(), |file| writer.write_to(file))
            .map_err(|error| error.keeping(|| self.newest_own()))?;
        let own = self.list()?.into_iter().filter(|(_, path)| self.is_own(path));
        let (later, up_to_now): (Vec<_>, Vec<_>) = own.partition(|&(found, _)| found > step);
        for (_, path) in later.iter().chain(up_to_now.iter().skip(self.keep)) {
            remove_if_there(path).map_err(|source| RunError::from_io("remove the old checkpoint", path, 0, source))?;
        }
        Ok(Written { path, moved })
    }

    fn is_own(&self, path: &Path) -> bool {
        Checkpoint::is_of(path, &self.owner)
    }

    fn newest_own(&self) -> Option<PathBuf> {
        self.list().unwrap_or_default().into_iter().map(|(_, path)| path).find(|path| self.is_own(path))
    }

    /// The newest own checkpoint whose checksum is right, and the newer ones that were passed over. Changes nothing.
    ///
    /// It is an error if there are checkpoints and none is usable: starting over is not for the program to decide. So is
    /// a file that cannot be read: only a wrong checksum, length or header says that a checkpoint is lost.
    pub fn latest_valid(&self) -> Result<Recovered, RunError> {
        latest_valid(&self.folder, Some(&self.owner))
    }

    /// As [`Checkpoints::latest_valid`], for the process that goes on training: leftovers of a crash are removed, and
    /// damaged checkpoints are renamed to end in `.damaged`, so that they do not count among those to keep.
    pub fn recover(&self) -> Result<Recovered, RunError> {
        self.recover_by(Checkpoint::read_of)
    }

    /// As [`Checkpoints::recover`], with another way to read a file.
    fn recover_by(&self, read: impl Read) -> Result<Recovered, RunError> {
        let is_leftover = |path: &PathBuf| {
            let name = path.file_name().and_then(OsStr::to_str).and_then(finished_name);
            name.is_some_and(|finished| step_of(Path::new(finished)).is_some())
        };
        for path in files(&self.folder)?.into_iter().filter(is_leftover) {
            remove_if_there(&path).map_err(|source| RunError::from_io("remove the leftover", &path, 0, source))?;
        }
        let mut recovered = latest_valid_by(&self.folder, Some(&self.owner), read)?;
        for skipped in recovered.skipped.iter_mut().filter(|skipped| skipped.is_damaged) {
            skipped.path = move_aside(&skipped.path, ".damaged")?;
        }
        Ok(recovered)
    }
}

/// How a file is read as a checkpoint, of this run where there is one.
trait Read: Fn(&Path, Option<&Identity>) -> Result<Checkpoint, Damage> {}

impl<F: Fn(&Path, Option<&Identity>) -> Result<Checkpoint, Damage>> Read for F {}

/// All checkpoints in a folder by step, newest first. They may be damaged, or of any run.
pub(super) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RunError> {
    let mut found: Vec<(u64, PathBuf)> =
        files(folder)?.into_iter().filter_map(|path| Some((step_of(&path)?, path))).collect();
    found.sort_by_key(|&(step, _)| Reverse(step));
    Ok(found)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, RunError> {
    let failed = |source| RunError::reading(folder, source);
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

/// As [`Checkpoints::latest_valid`]. Without an owner, in a run that an earlier version began, any checkpoint will do.
pub(super) fn latest_valid(folder: &Path, owner: Option<&Identity>) -> Result<Recovered, RunError> {
    latest_valid_by(folder, owner, Checkpoint::read_of)
}

fn latest_valid_by(folder: &Path, owner: Option<&Identity>, read: impl Read) -> Result<Recovered, RunError> {
    let mut skipped = Vec::new();
    let last_step = owner.map_or(u64::MAX, |owner| owner.steps);
    for (step, path) in list(folder)? {
        let (reason, is_damaged) = match read(&path, owner) {
            Ok(checkpoint) => match checkpoint.misplaced(step, last_step) {
                None => return Ok(Recovered { checkpoint: Some(checkpoint), skipped }),
                Some(misplaced) => misplaced,
            },
            // A reader beside a running training may see a file vanish: a newer one has been written since.
            Err(Damage::Io(error)) if error.kind() == ErrorKind::NotFound => continue,
            // Nothing is damaged: the disk may answer next time, or another user may read it. Falling back would throw
            // away steps that are there.
            Err(Damage::Io(error)) => return Err(RunError::reading(&path, error)),
            // Nor here: another version of this program can go on from it.
            Err(damage @ Damage::Version { .. }) => {
                return Err(RunError::OtherVersion { path, reason: damage.to_string() });
            }
            Err(damage) => {
                let is_damaged = !matches!(damage, Damage::NotOurs(_) | Damage::Foreign(_));
                (damage.to_string(), is_damaged)
            }
        };
        skipped.push(Skipped { path, reason, is_damaged });
    }
    if skipped.is_empty() {
        return Ok(Recovered { checkpoint: None, skipped });
    }
    Err(RunError::NoValidCheckpoint { folder: folder.to_owned(), skipped })
}

/// Renames a file to one that ends in `ending`, or in `ending` and a number: what was set aside before stays.
fn move_aside(path: &Path, ending: &str) -> Result<PathBuf, RunError> {
    let numbered = |number: usize| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(if number == 1 { ending.to_owned() } else { format!("{ending}-{number}") });
        PathBuf::from(aside)
    };
    let aside = (1..).map(numbered).find(|aside| !aside.exists()).unwrap_or_else(|| numbered(1));
    fs::rename(path, &aside).map_err(|source| RunError::from_io("set the file aside", path, 0, source))?;
    Ok(aside)
}

fn file_name(step: u64) -> String {
    format!("step-{step:08}.safetensors")
}

/// The step in a checkpoint's name; none if that is not exactly how this program names it.
fn step_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let step = name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()?;
    (file_name(step) == name).then_some(step)
}

#[cfg(test)]
mod tests {
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
                let recovered =
                    checkpoints.recover_by(|path: &Path, _: Option<&Identity>| read_failing(path, left, kind));
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
}
