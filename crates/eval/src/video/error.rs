//! What can be wrong with a video data set, and with masks made for it.

use std::io;
use std::path::PathBuf;

use data::DecodeError;

/// Why a video cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum VideoError {
    /// A file or a folder of the data set cannot be read.
    #[error(
        "{}: cannot be read: {source}. A DAVIS folder has JPEGImages/480p, Annotations/480p and ImageSets/2017/val.txt",
        text::shown(path)
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The list of sequences names none.
    #[error("{}: names no sequence", text::shown(path))]
    NoSequences {
        /// The list.
        path: PathBuf,
    },
    /// A name that is no name of a folder: masks would be written somewhere else.
    #[error("`{}`: a sequence is named by its folder, without a path", text::excerpt(name))]
    Name {
        /// The name.
        name: String,
    },
    /// No annotations.
    #[error("the sequence {sequence} has no annotations: there are no PNG files in {}", text::shown(folder))]
    NoAnnotations {
        /// The sequence.
        sequence: String,
        /// Where they would be.
        folder: PathBuf,
    },
    /// No frames.
    #[error("the sequence {sequence} has no frames: there are no JPEG files in {}", text::shown(folder))]
    NoFrames {
        /// The sequence.
        sequence: String,
        /// Where they would be.
        folder: PathBuf,
    },
    /// Frames and annotations that are not of each other.
    #[error("the sequence {sequence} has frame {frame} in {} and not in {}", text::shown(there), text::shown(missing))]
    Unpaired {
        /// The sequence.
        sequence: String,
        /// The name of the frame, without its ending.
        frame: String,
        /// The folder that has it.
        there: PathBuf,
        /// The folder that does not.
        missing: PathBuf,
    },
    /// The first and the last frame are not judged, and there are no others.
    #[error(
        "the sequence {sequence} has {frames} frame(s): the first and the last are not judged, so that nothing is left"
    )]
    TooShort {
        /// The sequence.
        sequence: String,
        /// Frames there are.
        frames: usize,
    },
    /// The first frame shows nothing to follow.
    #[error("{}: the first annotation shows no object", text::shown(path))]
    NoObjects {
        /// The annotation.
        path: PathBuf,
    },
    /// The result has no mask for a frame.
    #[error("{}: is not there: the result has no mask for frame {frame} of {sequence}", text::shown(path))]
    NoMask {
        /// The sequence.
        sequence: String,
        /// The name of the frame.
        frame: String,
        /// Where the mask would be.
        path: PathBuf,
    },
    /// A mask or a frame of another size.
    #[error(
        "{}: {} x {} pixels, where the sequence {sequence} has {} x {}; masks have the size of the annotations, unscaled",
        text::shown(path), size.1, size.0, expected.1, expected.0
    )]
    Size {
        /// The sequence.
        sequence: String,
        /// The file.
        path: PathBuf,
        /// Its (height, width).
        size: (usize, usize),
        /// What it should be.
        expected: (usize, usize),
    },
    /// More objects than there are.
    #[error(
        "{}: shows object {label}, and the first annotation of {sequence} has {objects}; numbers of objects are those of \
         that annotation, and 0 is the background",
        text::shown(path)
    )]
    MoreObjects {
        /// The sequence.
        sequence: String,
        /// The mask.
        path: PathBuf,
        /// The highest label in it.
        label: u8,
        /// Objects of the sequence.
        objects: u8,
    },
    /// A file that is no mask, or a damaged one.
    #[error("{}: {source}", text::shown(path))]
    Labels {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A frame that cannot be decoded.
    #[error("{}: {source}", text::shown(path))]
    Frame {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A frame whose sides no network takes.
    #[error("{}: {} x {} pixels: its sides are too small or too different for a grid of patches of {patch} pixels", text::shown(path), size.1, size.0)]
    Shape {
        /// The file.
        path: PathBuf,
        /// Its (height, width).
        size: (usize, usize),
        /// Side of a patch.
        patch: usize,
    },
}
