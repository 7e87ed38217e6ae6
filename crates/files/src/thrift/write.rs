//! Writing structures into memory: they are small.

/// The number of each type in the protocol.
const INT32: u8 = 5;
const INT64: u8 = 6;
const TEXT: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Writes one structure, its fields in ascending order.
///
/// ```
/// use files::thrift::{StructWriter, Thrift};
/// let mut bytes = Vec::new();
/// let mut fields = StructWriter::new(&mut bytes);
/// fields.int32(1, -3);
/// fields.text(4, "four");
/// fields.end();
/// let mut found = Vec::new();
/// Thrift::new(&bytes[..], bytes.len() as u64).numbers(|id, value| {
///     found.push((id, value));
///     Ok(())
/// })?;
/// assert_eq!(found, [(1, -3)]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StructWriter<'a> {
    out: &'a mut Vec<u8>,
    last: i16,
}

impl<'a> StructWriter<'a> {
    /// Begins a structure at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: 0 }
    }

    /// A whole number of 32 bits.
    pub fn int32(&mut self, id: i16, value: i32) {
        self.field(id, INT32);
        put_varint(self.out, zigzag(value.into()));
    }

    /// A whole number of 64 bits.
    pub fn int64(&mut self, id: i16, value: i64) {
        self.field(id, INT64);
        put_varint(self.out, zigzag(value));
    }

    /// A text.
    pub fn text(&mut self, id: i16, value: &str) {
        self.field(id, TEXT);
        put_text(self.out, value);
    }

    /// A structure whose fields `write` writes.
    pub fn structure(&mut self, id: i16, write: impl FnOnce(&mut StructWriter<'_>)) {
        self.field(id, STRUCT);
        element(self.out, write);
    }

    /// A list of structures.
    pub fn structures<T>(&mut self, id: i16, items: &[T], mut write: impl FnMut(&mut StructWriter<'_>, &T)) {
        self.list(id, STRUCT, items.len());
        items.iter().for_each(|item| element(self.out, |fields| write(fields, item)));
    }

    /// A list of whole numbers of 32 bits.
    pub fn int32s(&mut self, id: i16, items: &[i32]) {
        self.list(id, INT32, items.len());
        items.iter().for_each(|&item| put_varint(self.out, zigzag(item.into())));
    }

    /// A list of texts.
    pub fn texts(&mut self, id: i16, items: &[&str]) {
        self.list(id, TEXT, items.len());
        items.iter().for_each(|item| put_text(self.out, item));
    }

    /// Ends the structure.
    pub fn end(self) {
        self.out.push(0);
    }

    /// The number of a field, as the distance from the one before it where that is small.
    fn field(&mut self, id: i16, kind: u8) {
        match id.checked_sub(self.last) {
            Some(step @ 1..=15) => self.out.push((step as u8) << 4 | kind),
            _ => {
                self.out.push(kind);
                put_varint(self.out, zigzag(id.into()));
            }
        }
        self.last = id;
    }

    fn list(&mut self, id: i16, kind: u8, items: usize) {
        self.field(id, LIST);
        if items < 15 {
            self.out.push((items as u8) << 4 | kind);
        } else {
            self.out.push(0xf0 | kind);
            put_varint(self.out, items as u64);
        }
    }
}

fn element(out: &mut Vec<u8>, write: impl FnOnce(&mut StructWriter<'_>)) {
    let mut fields = StructWriter::new(out);
    write(&mut fields);
    fields.end();
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A number of seven bits a byte, the lowest first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A whole number with its sign in the lowest bit.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Thrift, signed};
    use super::*;

    #[test]
    fn numbers_of_every_size_are_read_as_they_were_written() {
        for value in [0, 1, -1, 63, 64, -64, 127, 128, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, zigzag(value));
            let mut left = bytes.iter();
            let read = super::super::varint(|| Ok(*left.next().unwrap())).unwrap();
            assert_eq!((signed(read), left.len()), (value, 0));
        }
    }

    #[test]
    fn fields_far_apart_and_long_lists_are_read_as_they_were_written() {
        let (many, mut bytes) = ((0..300).collect::<Vec<i32>>(), Vec::new());
        let mut fields = StructWriter::new(&mut bytes);
        fields.int32s(1, &many);
        fields.texts(40, &["a", "é"]);
        fields.structures(41, &[7i64, 8], |inner, item| inner.int64(2, *item));
        fields.structure(42, |inner| inner.text(1, "in"));
        fields.end();
        let (mut numbers, mut texts, mut inner) = (Vec::new(), Vec::new(), Vec::new());
        let mut thrift = Thrift::new(&bytes[..], bytes.len() as u64);
        let read = thrift.fields(|thrift, id, _| match id {
            1 => thrift.list(Kind::Int, |thrift| thrift.int().map(|value| numbers.push(value as i32))),
            40 => thrift.list(Kind::Text, |thrift| thrift.text().map(|text| texts.push(text))),
            41 => thrift.list(Kind::Struct, |thrift| {
                thrift.numbers(|id, value| {
                    inner.push((id, value));
                    Ok(())
                })
            }),
            42 => thrift.fields(|thrift, _, _| thrift.text().map(|text| texts.push(text))),
            other => panic!("field {other}"),
        });
        read.unwrap();
        assert_eq!((numbers, thrift.left()), (many, 0));
        assert_eq!((texts.join(" "), inner), ("a é in".to_owned(), vec![(2, 7), (2, 8)]));
    }
}
