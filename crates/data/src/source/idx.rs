//! IDX, the format of MNIST and its relatives: a header that says how many numbers there are, then the numbers.
//!
//! A gzip file is unpacked into the cache once, because nothing in the middle of one can be read alone. Its header is
//! at the front, so that its length is known before the first byte is written.

use super::OpenError;
use super::cache::Cache;
use super::gzip::{self, Gunzip};
use super::ranges::{Content, Names, Range, Table};
use super::unpacking::Unpacking;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use text::{escape_name, thousands};

/// Name of this parser in the cache. The number changes with what it makes of a file.
const KIND: &str = "idx 1";

/// Sizes that anybody can have meant. The fewest pixels bound the length of the list that a packed file can ask for.
const FEWEST_PIXELS: u64 = 16;
const MOST_PIXELS_A_SIDE: u64 = 1 << 16;
const MOST_CHANNELS: u64 = 64;

/// The digits, and as many classes in nearly every set that came after.
const USUAL_CLASSES: usize = 10;

/// Bytes of the header of a file of labels.
const LABELS_START: u64 = 8;

const BUFFER: usize = 1 << 17;

/// The images of a file, with the labels of another where there are any.
pub(super) fn open(images: &Path, labels: Option<&Path>, cache: &Cache) -> Result<Table, OpenError> {
    let mut input = Input::open(images)?;
    let shape = Shape::of(images, &header(&mut input)?)?;
    if !input.is_gzip {
        let bytes = std::fs::metadata(images).map_err(|error| input.failed(error))?.len();
        if bytes != shape.bytes() {
            return Err(wrong_length(images, shape.bytes(), &thousands(bytes)));
        }
        return table(images, images.to_path_buf(), shape, labels);
    }
    let files: Vec<PathBuf> = std::iter::once(images).chain(labels).map(Path::to_path_buf).collect();
    cache.table(KIND, &files, |unpacking| {
        let unpacked = unpack(images, &shape, unpacking)?;
        table(images, unpacked, shape, labels)
    })
}

/// Reads bytes as if they were a file of images and a file of labels. For fuzzing.
pub(super) fn index_bytes(bytes: &[u8]) {
    let input = || Input::new(Path::new("bytes"), bytes);
    _ = input().and_then(|mut input| Shape::of(input.path, &header(&mut input)?));
    _ = input().and_then(|mut input| {
        let count = header(&mut input)?.first().copied().unwrap_or(0);
        labels_of(&mut Input::new(input.path, bytes)?, count)
    });
}

/// Bytes of a file, unpacked where it is gzip by its content.
struct Input<'a> {
    path: &'a Path,
    bytes: Box<dyn Read + 'a>,
    is_gzip: bool,
}

impl<'a> Input<'a> {
    fn open(path: &'a Path) -> Result<Self, OpenError> {
        let file = File::open(path).map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
        Self::new(path, file)
    }

    fn new(path: &'a Path, mut bytes: impl Read + 'a) -> Result<Self, OpenError> {
        let mut start = Vec::new();
        let read = bytes.by_ref().take(gzip::SIGNATURE.len() as u64).read_to_end(&mut start);
        read.map_err(|source| OpenError::Io { path: path.to_path_buf(), source })?;
        let is_gzip = start == gzip::SIGNATURE;
        let bytes = BufReader::with_capacity(BUFFER, Cursor::new(start).chain(bytes));
        let bytes: Box<dyn Read> = if is_gzip { Box::new(Gunzip::new(bytes)) } else { Box::new(bytes) };
        Ok(Self { path, bytes, is_gzip })
    }

    /// The next bytes; fewer than `buffer` holds only at the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, OpenError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.bytes.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(filled)
    }

    /// Hands on the next `expected` bytes, which have to be all there are. `before` of them were read already.
    fn rest(
        &mut self,
        before: u64,
        expected: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let mut buffer = vec![0; BUFFER];
        let mut done = 0u64;
        loop {
            let read = self.fill(&mut buffer)?;
            done += read as u64;
            if done > expected || (read == 0 && done < expected) {
                let found = thousands(before + done);
                let found = if done > expected { format!("{found} or more") } else { found };
                return Err(wrong_length(self.path, before + expected, &found));
            }
            if read == 0 {
                return Ok(());
            }
            take(&buffer[..read])?;
        }
    }

    fn failed(&self, error: io::Error) -> OpenError {
        if self.is_gzip {
            return gzip::refused(self.path, error);
        }
        OpenError::Io { path: self.path.to_path_buf(), source: error }
    }
}

/// Reads a header and returns the sizes in it.
fn header(input: &mut Input) -> Result<Vec<u64>, OpenError> {
    let path = input.path;
    let mut word = || {
        let mut word = [0; 4];
        if input.fill(&mut word)? < word.len() {
            return Err(wrong(path, "not an IDX file: it ends within the header".to_owned()));
        }
        Ok(word)
    };
    let [zero_a, zero_b, kind, sizes] = word()?;
    if zero_a != 0 || zero_b != 0 {
        let problem =
            format!("not an IDX file: it starts with {zero_a:02x} {zero_b:02x}, where IDX has two zero bytes");
        return Err(wrong(path, problem));
    }
    let numbers = match kind {
        0x08 => None,
        0x09 => Some("signed bytes"),
        0x0b => Some("16-bit integers"),
        0x0c => Some("32-bit integers"),
        0x0d => Some("32-bit floats"),
        0x0e => Some("64-bit floats"),
        _ => return Err(wrong(path, format!("not an IDX file: {kind:#04x} is none of its types"))),
    };
    if let Some(numbers) = numbers {
        return Err(wrong(
            path,
            format!("holds {numbers} ({kind:#04x}); only unsigned bytes (0x08) are images or labels"),
        ));
    }
    (0..sizes).map(|_| word().map(|size| u64::from(u32::from_be_bytes(size)))).collect()
}

/// What a file of images holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    count: u64,
    height: u64,
    width: u64,
    channels: u64,
    /// Bytes of the header.
    start: u64,
}

impl Shape {
    fn of(path: &Path, sizes: &[u64]) -> Result<Self, OpenError> {
        let (count, height, width, channels) = match *sizes {
            [count, height, width] => (count, height, width, 1),
            [count, height, width, channels] => (count, height, width, channels),
            _ => {
                let problem = format!(
                    "has {} dimensions: images have 3 (count, rows, columns) or 4 (and channels). Is this the file of \
                     labels?",
                    sizes.len()
                );
                return Err(wrong(path, problem));
            }
        };
        let too_large = height.max(width) > MOST_PIXELS_A_SIDE || channels > MOST_CHANNELS;
        if count == 0 || channels == 0 || too_large || height * width < FEWEST_PIXELS {
            let problem = format!("the header says {count} images of {height} x {width} x {channels}: that cannot be");
            return Err(wrong(path, problem));
        }
        Ok(Self { count, height, width, channels, start: 4 + 4 * sizes.len() as u64 })
    }

    /// Bytes of one image: below 2^38.
    fn image(&self) -> u64 {
        self.height * self.width * self.channels
    }

    /// Bytes of the whole file; a sum that no file can have where it does not fit.
    fn bytes(&self) -> u64 {
        self.image().saturating_mul(self.count).saturating_add(self.start)
    }
}

/// Unpacks a whole file of images and returns where it is.
fn unpack(images: &Path, shape: &Shape, unpacking: &mut Unpacking) -> Result<PathBuf, OpenError> {
    unpacking.expect_bytes(shape.bytes());
    let (mut writer, path) = unpacking.create()?;
    let write = |part: &[u8]| {
        unpacking.advance(part.len() as u64);
        writer.write_all(part).map_err(|error| unpacking.failed(error))
    };
    Input::open(images)?.rest(0, shape.bytes(), write)?;
    unpacking.finish(writer)?;
    Ok(path)
}

/// The labels of `count` images.
fn labels_of(input: &mut Input, count: u64) -> Result<Vec<u32>, OpenError> {
    let sizes = header(input)?;
    let [found] = sizes[..] else {
        let problem = format!("has {} dimensions: labels have one. Is this the file of images?", sizes.len());
        return Err(wrong(input.path, problem));
    };
    if found != count {
        let (found, count) = (thousands(found), thousands(count));
        return Err(wrong(input.path, format!("holds {found} labels for {count} images")));
    }
    let mut labels = Vec::new();
    input.rest(LABELS_START, count, |part| {
        labels.extend(part.iter().map(|&label| u32::from(label)));
        Ok(())
    })?;
    Ok(labels)
}

fn table(images: &Path, file: PathBuf, shape: Shape, labels_file: Option<&Path>) -> Result<Table, OpenError> {
    let labels = match labels_file {
        Some(path) => labels_of(&mut Input::open(path)?, shape.count)?,
        None => Vec::new(),
    };
    let highest = labels.iter().max().map(|&label| label as usize + 1);
    // The files of the other split must come to the same list, whether or not they show the last class.
    let classes = highest.map_or(0, |classes| classes.max(USUAL_CLASSES));
    let name = escape_name(images.file_name().unwrap_or_default().as_encoded_bytes());
    let mut names = Names::default();
    (0..shape.count).for_each(|i| names.push(&format!("{name} #{i}")));
    let bytes = shape.image();
    let content = Content::Pixels {
        height: shape.height as usize,
        width: shape.width as usize,
        channels: shape.channels as usize,
    };
    Ok(Table {
        ranges: (0..shape.count).map(|i| Range { file: 0, offset: shape.start + i * bytes, bytes }).collect(),
        names,
        labels,
        class_names: (0..classes).map(|class| class.to_string()).collect(),
        ..Table::of_files(vec![file], content)
    })
}

fn wrong(path: &Path, problem: String) -> OpenError {
    OpenError::Format { path: path.to_path_buf(), problem }
}

fn wrong_length(path: &Path, expected: u64, found: &str) -> OpenError {
    let expected = thousands(expected);
    wrong(
        path,
        format!("the header promises {expected} bytes, there are {found}. Was it copied or downloaded completely?"),
    )
}
