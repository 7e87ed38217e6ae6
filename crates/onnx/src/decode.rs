//! Protobuf's wire format, read from bytes that nobody has checked.

/// Why bytes are not an ONNX file that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}, in {message}: {problem}")]
pub struct ReadError {
    /// Where in the file.
    pub offset: usize,
    /// The message of ONNX's schema that was being read there.
    pub message: &'static str,
    /// What is wrong.
    pub problem: ReadProblem,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    /// The bytes end before what they promise.
    #[error("the file ends too early, or is no ONNX file")]
    Cut,
    /// A number that does not end within ten bytes.
    #[error("a number has more than 64 bits; this is no ONNX file")]
    LongNumber,
    /// A field of a kind that the format does not have, or has no more.
    #[error("field {field} is of an unknown kind {kind}; this is no ONNX file")]
    Kind {
        /// The field's number.
        field: u64,
        /// Its kind.
        kind: u8,
    },
    /// A field of another kind than the schema says.
    #[error("field {field} should hold {expected}")]
    WrongKind {
        /// The field's number.
        field: u32,
        /// What it should hold.
        expected: &'static str,
    },
    /// A name that is no text.
    #[error("field {field} is no text in UTF-8")]
    NoText {
        /// The field's number.
        field: u32,
    },
    /// Something that has to be there, and there once, is not.
    #[error("it has no {what}, or more than one")]
    NotOne {
        /// What it is.
        what: &'static str,
    },
    /// Two entries of one name.
    #[error("`{name}` is there twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// A size below zero, or above what can be counted.
    #[error("{size} is no size")]
    NoSize {
        /// The number that the file has.
        size: i64,
    },
    /// Elements of a type that is not known here.
    #[error("elements of type {code} are not supported, only f32 (1) and i64 (7)")]
    ElementType {
        /// Its number in ONNX's schema.
        code: u64,
    },
    /// Elements and shape do not fit together.
    #[error("tensor `{name}` of shape {shape:?} should not have {bytes} bytes")]
    TensorSize {
        /// The tensor's name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The bytes of its elements.
        bytes: usize,
    },
    /// A part of ONNX that a vision transformer does not need.
    #[error("{what}: this is not supported")]
    Unsupported {
        /// What it is.
        what: String,
    },
    /// More names and numbers than any vision transformer has.
    #[error("the graph has more than {limit} parts")]
    TooManyParts {
        /// The most that are read.
        limit: usize,
    },
}

/// The fields of a message, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    /// Where in the file `rest` begins.
    offset: usize,
    /// The message's name in the schema.
    pub(crate) message: &'static str,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    /// Its number.
    pub(crate) number: u32,
    content: Wire<'a>,
    /// Where in the file its content begins.
    offset: usize,
    /// The message that it is in.
    message: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    /// Eight bytes: no field that is used here, but one that may have to be skipped.
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

impl<'a> Fields<'a> {
    /// The fields of a message that is a whole file.
    pub(crate) fn of_file(bytes: &'a [u8], message: &'static str) -> Self {
        Self { rest: bytes, offset: 0, message }
    }

    /// An error at the place that has been reached.
    pub(crate) fn error(&self, problem: ReadProblem) -> ReadError {
        ReadError { offset: self.offset, message: self.message, problem }
    }

    /// The next field; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Field<'a>>, ReadError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let (number, kind) = (key >> 3, key as u8 & 7);
        let unknown = self.error(ReadProblem::Kind { field: number, kind });
        let number = u32::try_from(number).ok().filter(|&number| number > 0).ok_or_else(|| unknown.clone())?;
        let start = self.offset;
        let content = match kind {
            0 => Wire::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Fixed64
            }
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(length).unwrap_or(usize::MAX))?)
            }
            5 => {
                let bytes = self.take(4)?;
                Wire::Fixed32(bytes.try_into().map_err(|_| self.error(ReadProblem::Cut))?)
            }
            _ => return Err(unknown),
        };
        let offset = match content {
            Wire::Bytes(bytes) => self.offset - bytes.len(),
            _ => start,
        };
        Ok(Some(Field { number, content, offset, message: self.message }))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.error(ReadProblem::Cut))?;
        self.rest = rest;
        self.offset += count;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, ReadError> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                // The tenth byte has room for one bit.
                if i == 9 && byte > 1 {
                    break;
                }
                self.take(i + 1)?;
                return Ok(value);
            }
        }
        Err(self.error(if self.rest.len() < 10 { ReadProblem::Cut } else { ReadProblem::LongNumber }))
    }
}

impl<'a> Field<'a> {
    /// An error in this field.
    pub(crate) fn error(&self, problem: ReadProblem) -> ReadError {
        ReadError { offset: self.offset, message: self.message, problem }
    }

    fn wrong_kind(&self, expected: &'static str) -> ReadError {
        self.error(ReadProblem::WrongKind { field: self.number, expected })
    }

    /// A whole number.
    pub(crate) fn varint(&self) -> Result<u64, ReadError> {
        match self.content {
            Wire::Varint(value) => Ok(value),
            _ => Err(self.wrong_kind("a whole number")),
        }
    }

    /// A whole number with a sign.
    pub(crate) fn int(&self) -> Result<i64, ReadError> {
        Ok(self.varint()? as i64)
    }

    /// A number.
    pub(crate) fn float(&self) -> Result<f32, ReadError> {
        match self.content {
            Wire::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(self.wrong_kind("a number in single precision")),
        }
    }

    /// Bytes of any meaning.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], ReadError> {
        match self.content {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(self.wrong_kind("bytes")),
        }
    }

    /// A text.
    pub(crate) fn text(&self) -> Result<&'a str, ReadError> {
        str::from_utf8(self.bytes()?).map_err(|_| self.error(ReadProblem::NoText { field: self.number }))
    }

    /// A message of this name in the schema.
    pub(crate) fn message(&self, name: &'static str) -> Result<Fields<'a>, ReadError> {
        Ok(Fields { rest: self.bytes()?, offset: self.offset, message: name })
    }

    /// Whole numbers, of which one field may hold one or, packed, many, given to `take` one by one.
    pub(crate) fn ints(&self, mut take: impl FnMut(i64) -> Result<(), ReadProblem>) -> Result<(), ReadError> {
        let fail = |problem| self.error(problem);
        let mut packed = match self.content {
            Wire::Varint(value) => return take(value as i64).map_err(fail),
            _ => self.message(self.message)?,
        };
        while !packed.rest.is_empty() {
            take(packed.varint()? as i64).map_err(fail)?;
        }
        Ok(())
    }

    /// The little-endian bytes of numbers in single precision, of which one field may hold one or, packed, many.
    pub(crate) fn float_bytes(&self) -> Result<FloatBytes<'a>, ReadError> {
        match self.content {
            Wire::Fixed32(bytes) => Ok(FloatBytes::One(bytes)),
            _ => Ok(FloatBytes::Packed(self.bytes()?)),
        }
    }
}

/// Numbers in single precision as they lie in the file.
pub(crate) enum FloatBytes<'a> {
    One([u8; 4]),
    Packed(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Field<'_>>, ReadProblem> {
        let (mut fields, mut found) = (Fields::of_file(bytes, "Test"), Vec::new());
        while let Some(field) = fields.next().map_err(|error| error.problem)? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn fields_of_every_kind_are_found_and_know_where_they_are() {
        let bytes = [&[0x08, 0x96, 0x01, 0x12, 2][..], b"hi", &[0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 0, 0, 0x80, 0x3f]];
        let bytes = bytes.concat();
        let fields = all(&bytes).unwrap();
        assert_eq!(
            fields.iter().map(|field| (field.number, field.offset)).collect::<Vec<_>>(),
            [(1, 1), (2, 5), (3, 8), (4, 17)]
        );
        assert_eq!(fields[0].varint(), Ok(150));
        assert_eq!(fields[1].text(), Ok("hi"));
        assert_eq!(fields[3].float(), Ok(1.0));
        let wrong = fields[2].text().unwrap_err();
        assert_eq!(wrong.to_string(), "byte 8, in Test: field 3 should hold bytes");
    }

    #[test]
    fn numbers_have_64_bits_and_may_be_packed() {
        let most = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
        assert_eq!(all(&most).unwrap()[0].int(), Ok(-1));
        let above = [&[0x08][..], &[0xff; 9], &[0x02]].concat();
        assert_eq!(all(&above).unwrap_err(), ReadProblem::LongNumber);
        assert_eq!(all(&[&[0x08][..], &[0x80; 20]].concat()).unwrap_err(), ReadProblem::LongNumber);
        for bytes in [&[0x08, 3, 0x08, 0x80, 0x02][..], &[0x0a, 3, 3, 0x80, 0x02]] {
            let mut found = Vec::new();
            for field in all(bytes).unwrap() {
                let push = |value| {
                    found.push(value);
                    Ok(())
                };
                field.ints(push).unwrap();
            }
            assert_eq!(found, [3, 256]);
        }
        let cut = all(&[0x0a, 1, 0x80]).unwrap()[0].ints(|_| Ok(())).unwrap_err();
        assert_eq!((cut.offset, cut.problem), (2, ReadProblem::Cut), "a packed number ends with its field");
    }

    #[test]
    fn what_is_no_protobuf_has_its_own_errors() {
        for cut in [&[0x08][..], &[0x80], &[0x0a, 5, 1], &[0x09, 1], &[0x0d, 1, 2, 3], &[0x12, 0xff, 0xff, 0xff, 0x7f]]
        {
            assert_eq!(all(cut).unwrap_err(), ReadProblem::Cut, "{cut:?}");
        }
        assert_eq!(all(&[0x0b]).unwrap_err(), ReadProblem::Kind { field: 1, kind: 3 });
        assert_eq!(all(&[0x02, 0]).unwrap_err(), ReadProblem::Kind { field: 0, kind: 2 });
        let huge = [&[0xf8][..], &[0xff; 8], &[0x01, 0]].concat();
        assert!(matches!(all(&huge).unwrap_err(), ReadProblem::Kind { field, kind: 0 } if field > 1 << 32));
    }
}
