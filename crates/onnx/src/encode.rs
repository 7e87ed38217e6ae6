//! Protobuf's wire format, written: a message in memory, with gaps where weights will be streamed.
//!
//! A message stands behind its length, so all lengths have to be known before the first byte is written. The lengths of
//! weights follow from their shapes; everything else is small and simply encoded.

use crate::graph::Tensor;

/// Kinds of fields.
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;
const FIXED32: u32 = 5;

/// A message, of which the weights are still elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Message<'a> {
    /// The message without its weights.
    pub(crate) bytes: Vec<u8>,
    /// Where in `bytes` which weights belong, and how many bytes they have.
    pub(crate) weights: Vec<(usize, &'a Tensor<'a>, u64)>,
}

impl<'a> Message<'a> {
    /// Bytes of the whole message.
    pub(crate) fn len(&self) -> u64 {
        // A tensor counts its bytes in a `usize`, and there are not enough tensors to overflow; saturating all the same.
        self.weights.iter().fold(self.bytes.len() as u64, |sum, &(_, _, size)| sum.saturating_add(size))
    }

    /// A whole number.
    pub(crate) fn varint(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.raw_varint(value);
    }

    /// A whole number with a sign, in the same form: a negative one takes ten bytes.
    pub(crate) fn int(&mut self, field: u32, value: i64) {
        self.varint(field, value as u64);
    }

    /// A number.
    pub(crate) fn float(&mut self, field: u32, value: f32) {
        self.tag(field, FIXED32);
        self.bytes.extend(value.to_le_bytes());
    }

    /// A text.
    pub(crate) fn text(&mut self, field: u32, text: &str) {
        self.tag(field, LENGTH_DELIMITED);
        self.raw_varint(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    /// A message inside this one.
    pub(crate) fn message(&mut self, field: u32, inner: Message<'a>) {
        self.tag(field, LENGTH_DELIMITED);
        self.raw_varint(inner.len());
        let start = self.bytes.len();
        self.bytes.extend(inner.bytes);
        self.weights.extend(inner.weights.into_iter().map(|(at, tensor, size)| (start + at, tensor, size)));
    }

    /// The elements of a tensor, `size` bytes. Their place is noted and nothing is copied: they are written from where they are, between
    /// the bytes of the message.
    pub(crate) fn weights(&mut self, field: u32, tensor: &'a Tensor<'a>, size: u64) {
        self.tag(field, LENGTH_DELIMITED);
        self.raw_varint(size);
        self.weights.push((self.bytes.len(), tensor, size));
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.raw_varint(u64::from(field << 3 | kind));
    }

    /// Seven bits a byte, the lowest first; the eighth says that more follow.
    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_protobuf_documentation() {
        let mut message = Message::default();
        message.varint(1, 150);
        message.text(2, "testing");
        message.int(16, -2);
        message.float(3, 1.0);
        let mut inner = Message::default();
        inner.varint(1, 150);
        message.message(3, inner);
        let expected = [
            &[0x08, 0x96, 0x01, 0x12, 0x07][..],
            b"testing",
            &[0x80, 0x01, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x1d, 0, 0, 0x80, 0x3f],
            &[0x1a, 0x03, 0x08, 0x96, 0x01],
        ];
        assert_eq!(message.bytes, expected.concat());
    }
}
