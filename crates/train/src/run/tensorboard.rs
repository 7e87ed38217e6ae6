//! TensorBoard events: scalar summaries in the TFRecord framing, with the few protobuf fields that they need.
//!
//! A new file for each start of the process. A resumed run leaves old files alone and opens its own with a session-start
//! event, at which TensorBoard forgets what it had seen from that step on.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::RunError;
use super::metrics::Record;

/// How the name of an events file begins.
pub(super) const EVENTS: &str = "events.out.tfevents.";

/// An open events file.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: File,
}

impl EventLog {
    /// Creates an events file in `folder` for a process whose first step is `first_step`.
    pub fn create(folder: &Path, first_step: u64) -> Result<Self, RunError> {
        let (path, file) = create_new(folder)?;
        let mut log = Self { path, file };
        log.write(&Message::event(0).text(field::FILE_VERSION, "brain.Event:2"))?;
        let start = Message::new().varint(field::SESSION_STATUS, field::SESSION_START);
        log.write(&Message::event(first_step).message(field::SESSION_LOG, &start))?;
        Ok(log)
    }

    /// Writes the numbers of a record as scalars.
    pub fn append(&mut self, record: &Record) -> Result<(), RunError> {
        let mut summary = Message::new();
        for (tag, value) in record.scalars() {
            let scalar = Message::new().text(field::TAG, tag).float(field::SIMPLE_VALUE, value as f32);
            summary = summary.message(field::SUMMARY_VALUE, &scalar);
        }
        self.write(&Message::event(record.step()).message(field::SUMMARY, &summary))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, event: &Message) -> Result<(), RunError> {
        let record = frame(&event.0);
        // One write, so that a kill leaves at most the end of one record missing; readers stop there.
        self.file
            .write_all(&record)
            .map_err(|source| RunError::from_io("write", &self.path, record.len() as u64, source))
    }
}

/// Opens a file that no earlier start has used. TensorBoard reads the files of a folder in the order of their names.
fn create_new(folder: &Path) -> Result<(PathBuf, File), RunError> {
    let name = format!("{EVENTS}{:010}.{}", now().round(), host_name());
    let mut attempt = 0;
    loop {
        let path = folder.join(if attempt == 0 { name.clone() } else { format!("{name}.{attempt}") });
        match File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(source) => return Err(RunError::from_io("create", &path, 0, source)),
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The machine's name where the system says it, only with characters that any file system takes.
fn host_name() -> String {
    let told = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").or_else(|_| std::env::var("COMPUTERNAME")).ok())
        .unwrap_or_default();
    let name: String = told.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(63).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// A TFRecord: length, its masked checksum, data, its masked checksum.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// The format rotates and shifts its checksums, so that the checksum of data that contains checksums stays useful.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Field numbers of `tensorflow/core/util/event.proto` and `framework/summary.proto`.
mod field {
    pub const WALL_TIME: u64 = 1;
    pub const STEP: u64 = 2;
    pub const FILE_VERSION: u64 = 3;
    pub const SUMMARY: u64 = 5;
    pub const SESSION_LOG: u64 = 7;
    pub const SUMMARY_VALUE: u64 = 1;
    pub const TAG: u64 = 1;
    pub const SIMPLE_VALUE: u64 = 2;
    pub const SESSION_STATUS: u64 = 1;
    /// A value, not a field: `SessionLog.SessionStatus.START`.
    pub const SESSION_START: u64 = 1;
}

/// A protobuf message under construction.
struct Message(Vec<u8>);

impl Message {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn event(step: u64) -> Self {
        Self::new().double(field::WALL_TIME, now()).varint(field::STEP, step)
    }

    fn key(mut self, number: u64, wire_type: u64) -> Self {
        push_varint(&mut self.0, number << 3 | wire_type);
        self
    }

    fn varint(self, number: u64, value: u64) -> Self {
        let mut message = self.key(number, 0);
        push_varint(&mut message.0, value);
        message
    }

    fn double(self, number: u64, value: f64) -> Self {
        let mut message = self.key(number, 1);
        message.0.extend(value.to_le_bytes());
        message
    }

    fn float(self, number: u64, value: f32) -> Self {
        let mut message = self.key(number, 5);
        message.0.extend(value.to_le_bytes());
        message
    }

    fn bytes(self, number: u64, value: &[u8]) -> Self {
        let mut message = self.key(number, 2);
        push_varint(&mut message.0, value.len() as u64);
        message.0.extend(value);
        message
    }

    fn text(self, number: u64, value: &str) -> Self {
        self.bytes(number, value.as_bytes())
    }

    fn message(self, number: u64, value: &Message) -> Self {
        self.bytes(number, &value.0)
    }
}

/// Seven bits at a time, lowest first, the top bit set on all but the last.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the TFRecord framing apart, checking both checksums.
    fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_at(8);
            let (length_crc, rest) = rest.split_at(4);
            assert_eq!(length_crc, masked_crc(length).to_le_bytes());
            let (data, rest) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            let (data_crc, rest) = rest.split_at(4);
            assert_eq!(data_crc, masked_crc(data).to_le_bytes());
            records.push(data.to_vec());
            bytes = rest;
        }
        records
    }

    /// Takes a message apart into (field number, raw value) pairs.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
            let value = bytes[..=end].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
            *bytes = &bytes[end + 1..];
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let length = match key & 7 {
                0 => {
                    let value = varint(&mut bytes).to_le_bytes().to_vec();
                    found.push((key >> 3, value));
                    continue;
                }
                1 => 8,
                2 => varint(&mut bytes) as usize,
                5 => 4,
                other => panic!("wire type {other}"),
            };
            let (value, rest) = bytes.split_at(length);
            found.push((key >> 3, value.to_vec()));
            bytes = rest;
        }
        found
    }

    #[test]
    fn scalars_are_framed_and_encoded_as_events() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(folder.path(), 300).unwrap();
        log.append(&Record::new(300).number("loss", 9.5).whole("epoch", 3)).unwrap();
        let events: Vec<_> = records(&fs::read(log.path()).unwrap()).iter().map(|event| fields(event)).collect();

        assert_eq!(events[0][2], (3, b"brain.Event:2".to_vec()));
        assert_eq!(events[1][1], (2, 300u64.to_le_bytes().to_vec()));
        assert_eq!(events[1][2], (7, vec![1 << 3, 1]));
        let summary = fields(&events[2][2].1);
        let scalars: Vec<_> = summary.iter().map(|(_, value)| fields(value)).collect();
        assert_eq!(scalars[0], [(1, b"loss".to_vec()), (2, 9.5f32.to_le_bytes().to_vec())]);
        assert_eq!(scalars[1], [(1, b"epoch".to_vec()), (2, 3f32.to_le_bytes().to_vec())]);
        assert_eq!((events.len(), scalars.len()), (3, 2));
    }

    #[test]
    fn the_checksum_mask_is_the_formats() {
        // CRC-32C of "123456789" is the algorithm's published check value.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(masked_crc(b"123456789"), 0xc78a_b0e5);
    }

    #[test]
    fn two_starts_within_a_second_write_two_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) =
            (EventLog::create(folder.path(), 0).unwrap(), EventLog::create(folder.path(), 5).unwrap());
        assert!(first.path() < second.path());
        let name = first.path().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("events.out.tfevents."));
    }
}
