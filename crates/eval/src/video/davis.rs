//! A DAVIS folder: `ImageSets/2017/val.txt` names sequences, `JPEGImages/480p/NAME` has the frames of one and
//! `Annotations/480p/NAME` a mask for each.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use data::decode::decode_labels_into;
use data::{DecodeLimits, Image};
use files::{read_bounded, read_bounded_into, read_text_bounded};
use random::StableHash;
use rayon::prelude::*;
use tensor::Device;

use super::error::VideoError;

/// The list of the validation sequences.
const LIST: &str = "ImageSets/2017/val.txt";
const FRAMES: &str = "JPEGImages/480p";
const ANNOTATIONS: &str = "Annotations/480p";
/// No list of sequences is longer.
const LIST_BYTES: u64 = 1 << 20;
/// Marks pixels that belong to no object for certain. They count as background.
const VOID: u8 = 255;

/// A sequence of a video data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Its name, which is that of its folders.
    pub name: String,
    /// The names of its frames without endings, in order.
    pub frames: Vec<String>,
    /// The folder of the frames, where there is one.
    images: Option<PathBuf>,
    /// The folder of the masks.
    annotations: PathBuf,
}

/// The sequences of the DAVIS folder `root`: those that its list names, or those of `only` where that names any.
pub fn sequences(root: &Path, only: &[String]) -> Result<Vec<Sequence>, VideoError> {
    if !only.is_empty() {
        return only.iter().map(|name| Sequence::open(root, name)).collect();
    }
    let list = root.join(LIST);
    let text =
        read_text_bounded(&list, LIST_BYTES).map_err(|source| VideoError::Read { path: list.clone(), source })?;
    let names: Vec<&str> = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Err(VideoError::NoSequences { path: list });
    }
    names.into_iter().map(|name| Sequence::open(root, name)).collect()
}

/// Which files of sequences.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// The annotations.
    Annotations,
    /// The frames.
    Frames,
    /// Masks in this folder, where they are there.
    Masks(&'a Path),
}

/// The digests of several parts, each on a thread of `host`.
pub fn digests<const N: usize>(
    sequences: &[Sequence],
    parts: [Part<'_>; N],
    host: &Device,
) -> Result<[u64; N], VideoError> {
    let found: Vec<_> = host.run(|| parts.par_iter().with_max_len(1).map(|part| digest(sequences, *part)).collect());
    let mut digests = [0; N];
    for (digest, found) in digests.iter_mut().zip(found) {
        *digest = found?;
    }
    Ok(digests)
}

/// Tells these files from any others: a hash of the names of sequences and frames, and of all that the files hold.
fn digest(sequences: &[Sequence], part: Part<'_>) -> Result<u64, VideoError> {
    let (mut hash, mut bytes) = (StableHash::new(), Vec::new());
    let mut add = |bytes: &[u8]| {
        hash.write(&(bytes.len() as u64).to_le_bytes());
        hash.write(bytes);
    };
    for sequence in sequences {
        add(sequence.name.as_bytes());
        for frame in 0..sequence.frames.len() {
            add(sequence.frames[frame].as_bytes());
            let path = match part {
                Part::Annotations => sequence.annotation(frame),
                Part::Frames => sequence.image(frame)?,
                Part::Masks(folder) => folder.join(&sequence.name).join(sequence.mask_name(frame)),
            };
            // The first and the last mask need not be there.
            match read_file_into(&path, &mut bytes) {
                Err(error) if matches!(part, Part::Masks(_)) && error.kind() == ErrorKind::NotFound => {}
                read => {
                    read.map_err(|source| VideoError::Read { path, source })?;
                    add(&bytes);
                }
            }
        }
    }
    Ok(hash.finish())
}

impl Sequence {
    fn open(root: &Path, name: &str) -> Result<Self, VideoError> {
        let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\\', '\0']);
        if !is_name || !text::is_plain(name) {
            return Err(VideoError::Name { name: name.to_owned() });
        }
        let (images, annotations) = (root.join(FRAMES).join(name), root.join(ANNOTATIONS).join(name));
        let frames = names(&annotations, &["png"])?;
        if frames.is_empty() {
            return Err(VideoError::NoAnnotations { sequence: name.to_owned(), folder: annotations });
        }
        let shown = names(&images, &["jpg", "jpeg"])?;
        let unpaired = |frame: &String, there: &Path, missing: &Path| VideoError::Unpaired {
            sequence: name.to_owned(),
            frame: frame.clone(),
            there: there.to_owned(),
            missing: missing.to_owned(),
        };
        // To score masks the frames themselves are not needed.
        if !shown.is_empty() && shown != frames {
            let alone = |of: &[String], others: &[String]| of.iter().find(|f| !others.contains(f)).cloned();
            if let Some(frame) = alone(&shown, &frames) {
                return Err(unpaired(&frame, &images, &annotations));
            }
            if let Some(frame) = alone(&frames, &shown) {
                return Err(unpaired(&frame, &annotations, &images));
            }
        }
        if frames.len() < 3 {
            return Err(VideoError::TooShort { sequence: name.to_owned(), frames: frames.len() });
        }
        let images = (!shown.is_empty()).then_some(images);
        Ok(Self { name: name.to_owned(), frames, images, annotations })
    }

    /// The file of a frame; an error where only masks are there.
    pub(super) fn image(&self, frame: usize) -> Result<PathBuf, VideoError> {
        let no_frames = || {
            // Two folders up from the masks, and down again.
            let root = self.annotations.ancestors().nth(3).unwrap_or(Path::new(""));
            VideoError::NoFrames { sequence: self.name.clone(), folder: root.join(FRAMES).join(&self.name) }
        };
        let folder = self.images.as_ref().ok_or_else(no_frames)?;
        let path = |ending: &str| folder.join(format!("{}.{ending}", self.frames[frame]));
        let there = ["jpg", "jpeg", "JPG", "JPEG"].map(path).into_iter().find(|path| path.is_file());
        Ok(there.unwrap_or_else(|| path("jpg")))
    }

    /// The file name of a frame's mask.
    pub fn mask_name(&self, frame: usize) -> String {
        format!("{}.png", self.frames[frame])
    }

    /// The file of a frame's annotation.
    pub(super) fn annotation(&self, frame: usize) -> PathBuf {
        self.annotations.join(self.mask_name(frame))
    }

    /// The annotation of a frame. What is marked as void is background.
    pub(super) fn truth(&self, frame: usize) -> Result<Image, VideoError> {
        let mut labels = Image::black(1, 1, 1);
        self.read_truth(frame, &mut Vec::new(), &mut labels)?;
        Ok(labels)
    }

    /// The same into `labels`, by way of `bytes`.
    pub(super) fn read_truth(&self, frame: usize, bytes: &mut Vec<u8>, labels: &mut Image) -> Result<(), VideoError> {
        let path = self.annotation(frame);
        read_file_into(&path, bytes).map_err(|source| VideoError::Read { path: path.clone(), source })?;
        decode_file(&path, bytes, labels)?;
        // Written always: without a branch it is done for many pixels at once.
        labels.pixels.iter_mut().for_each(|label| *label = if *label == VOID { 0 } else { *label });
        Ok(())
    }

    /// The mask of a frame, `FOLDER/SEQUENCE/FRAME.png`, into `labels`, by way of `bytes`; and its file.
    pub(super) fn read_mask(
        &self,
        folder: &Path,
        frame: usize,
        bytes: &mut Vec<u8>,
        labels: &mut Image,
    ) -> Result<PathBuf, VideoError> {
        let path = folder.join(&self.name).join(self.mask_name(frame));
        if let Err(source) = read_file_into(&path, bytes) {
            let (sequence, frame) = (self.name.clone(), self.frames[frame].clone());
            return Err(match source.kind() {
                ErrorKind::NotFound => VideoError::NoMask { sequence, frame, path },
                _ => VideoError::Read { path, source },
            });
        }
        decode_file(&path, bytes, labels)?;
        Ok(path)
    }

    /// An error unless an image of this sequence has the size that its first annotation has.
    pub(super) fn check_size(&self, path: &Path, image: &Image, expected: (usize, usize)) -> Result<(), VideoError> {
        let size = (image.height, image.width);
        if size == expected {
            return Ok(());
        }
        Err(VideoError::Size { sequence: self.name.clone(), path: path.to_owned(), size, expected })
    }
}

/// The names, without endings, of a folder's files that end so, in order; none where there is no folder.
fn names(folder: &Path, endings: &[&str]) -> Result<Vec<String>, VideoError> {
    let failed = |source| VideoError::Read { path: folder.to_owned(), source };
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let is_wanted = ending.is_some_and(|ending| endings.contains(&ending.as_str()));
        // Names that begin with a dot are notes of other systems (`._00000.png`).
        match path.file_stem().and_then(|stem| stem.to_str()) {
            Some(stem) if is_wanted && !stem.starts_with('.') => found.push(stem.to_owned()),
            _ => {}
        }
    }
    found.sort();
    Ok(found)
}

/// All that a file holds.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, VideoError> {
    let limit = DecodeLimits::default().file_bytes;
    read_bounded(path, limit).map_err(|source| VideoError::Read { path: path.to_owned(), source })
}

/// The same into `bytes`.
fn read_file_into(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    read_bounded_into(path, DecodeLimits::default().file_bytes, bytes)
}

/// The labels in the bytes of a file.
fn decode_file(path: &Path, bytes: &[u8], labels: &mut Image) -> Result<(), VideoError> {
    decode_labels_into(bytes, &DecodeLimits::default(), labels)
        .map_err(|source| VideoError::Labels { path: path.to_owned(), source })
}
