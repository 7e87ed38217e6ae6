//! Why an image could not be decoded.

use super::FORMATS;
use text::{bytes, thousands};
use thiserror::Error;

/// Why an image could not be decoded.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// No bytes at all.
    #[error("the file is empty")]
    NoBytes,
    /// No known signature at the start.
    #[error("not an image in a known format ({}); it starts with {start:02x?}", FORMATS)]
    UnknownFormat {
        /// The first bytes.
        start: Vec<u8>,
    },
    /// The header promises more than the limits allow.
    #[error(
        "{width} x {height} pixels are more than the limit of {} for a file of its size",
        thousands(*limit)
    )]
    TooManyPixels {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
        /// Pixels that are allowed.
        limit: u64,
    },
    /// One side is longer than any image's, which resizing has to go along.
    #[error("{width} x {height} pixels: a side has more than {} pixels", thousands(*limit))]
    TooLong {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
        /// Pixels of a side that are allowed.
        limit: u64,
    },
    /// More memory would be needed than the limits allow.
    #[error("decoding this {format} takes more memory than the {} that a file of its size may take: {reason}", bytes(*limit))]
    TooMuchMemory {
        /// The format of the content.
        format: &'static str,
        /// Bytes that are allowed.
        limit: u64,
        /// What takes it.
        reason: String,
    },
    /// Decoding would take longer than any useful image does.
    #[error("decoding this {format} is more work than an image of its size may be: {reason}")]
    TooMuchWork {
        /// The format of the content.
        format: &'static str,
        /// What there is too much of.
        reason: String,
    },
    /// The system has no memory at the moment.
    #[error("the system has no memory left to decode this {format}: {reason}")]
    NoMemory {
        /// The format of the content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// A side is zero.
    #[error("the header says {width} x {height} pixels: there is nothing to see")]
    Empty {
        /// Width in the header.
        width: u64,
        /// Height in the header.
        height: u64,
    },
    /// The data ends before the image does.
    #[error("the {format} data is cut short: was the file copied or downloaded completely?")]
    Truncated {
        /// The format of the content.
        format: &'static str,
    },
    /// The data contradicts itself.
    #[error("damaged {format} data: {reason}")]
    Damaged {
        /// The format of the content.
        format: &'static str,
        /// What the decoder said.
        reason: String,
    },
    /// Another number of channels than the network takes.
    #[error("{format} data with {have} channel(s) where {want} are wanted")]
    Channels {
        /// The format of the content.
        format: &'static str,
        /// Channels there are.
        have: usize,
        /// Channels wanted.
        want: usize,
    },
    /// A valid file of a kind that is not supported.
    #[error("{format} of an unsupported kind ({reason}); convert it to 8-bit PNG or JPEG")]
    Unsupported {
        /// The format of the content.
        format: &'static str,
        /// The feature.
        reason: String,
    },
    /// A picture where a map of labels is expected.
    #[error(
        "{what}, where labels are expected: the number of a pixel's object, in an 8-bit PNG with a palette (whose colours do \
         not matter) or in grey. Save it with indexed colours"
    )]
    NoLabels {
        /// What it is.
        what: String,
    },
}
