//! The type of an array's elements, as NumPy writes it: `<i4`, `|u1`, `>f8`.

/// What kind of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Signed,
    Unsigned,
    Float,
}

/// A number in an array: a whole number of at most 8 bytes, or a float of 2, 4 or 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    kind: Kind,
    size: usize,
    is_big_endian: bool,
}

impl Element {
    /// The type of this name; none for anything that is not a plain number, such as texts, objects and records.
    pub fn of(name: &str) -> Option<Self> {
        let (order, rest) = match name.as_bytes().first()? {
            order @ (b'<' | b'>' | b'|' | b'=') => (*order, &name[1..]),
            _ => (b'=', name),
        };
        let kind = match rest.as_bytes().first()? {
            b'i' => Kind::Signed,
            b'u' => Kind::Unsigned,
            b'f' => Kind::Float,
            _ => return None,
        };
        let size = match &rest[1..] {
            "1" if kind != Kind::Float => 1,
            "2" => 2,
            "4" => 4,
            "8" => 8,
            _ => return None,
        };
        // Where no order is said it is that of the machine that wrote it; those that run NumPy are little-endian.
        Some(Self { kind, size, is_big_endian: order == b'>' })
    }

    /// The same type in another byte order: `<`, `>`, `=` or `|`.
    pub(super) fn ordered(self, order: &str) -> Self {
        Self { is_big_endian: order == ">", ..self }
    }

    /// Bytes of one.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether these are whole numbers.
    pub fn is_integer(&self) -> bool {
        self.kind != Kind::Float
    }

    /// A whole number from its bytes; none for a float, for one beyond 63 bits, and for another number of bytes.
    pub fn integer(&self, bytes: &[u8]) -> Option<i64> {
        let (first, whole) = (bytes.first()?, self.whole(bytes)?);
        let sign = if self.is_big_endian { *first } else { *bytes.last()? };
        match self.kind {
            Kind::Float => None,
            Kind::Unsigned => i64::try_from(whole).ok(),
            Kind::Signed if sign & 0x80 == 0 => i64::try_from(whole).ok(),
            // The ones that a wider number has before it.
            Kind::Signed if self.size == 8 => Some(whole as i64),
            Kind::Signed => Some((whole | (u64::MAX << (8 * self.size))) as i64),
        }
    }

    /// Any of these numbers as a float.
    pub fn float(&self, bytes: &[u8]) -> Option<f64> {
        match (self.kind, self.size) {
            (Kind::Float, 2) => Some(half::f16::from_bits(self.whole(bytes)? as u16).to_f64()),
            (Kind::Float, 4) => Some(f32::from_bits(self.whole(bytes)? as u32).into()),
            (Kind::Float, _) => Some(f64::from_bits(self.whole(bytes)?)),
            _ => self.integer(bytes).map(|value| value as f64),
        }
    }

    /// The bits of one.
    fn whole(&self, bytes: &[u8]) -> Option<u64> {
        if bytes.len() != self.size {
            return None;
        }
        let add = |whole: u64, byte: &u8| whole << 8 | u64::from(*byte);
        Some(if self.is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(name: &str, bytes: &[u8]) -> Option<i64> {
        Element::of(name).unwrap().integer(bytes)
    }

    #[test]
    fn whole_numbers_of_every_width_and_order() {
        assert_eq!([integer("|i1", &[0xff]), integer("|u1", &[0xff])], [Some(-1), Some(255)]);
        assert_eq!([integer("<i2", &[0xfe, 0xff]), integer(">i2", &[0xff, 0xfe])], [Some(-2), Some(-2)]);
        assert_eq!([integer("<u4", &[1, 0, 0, 0x80]), integer(">i4", &[0, 0, 1, 2])], [Some(0x8000_0001), Some(258)]);
        assert_eq!(integer("<i8", &i64::MIN.to_le_bytes()), Some(i64::MIN));
        assert_eq!(integer("<u8", &u64::MAX.to_le_bytes()), None, "beyond 63 bits");
        assert_eq!(integer("<f4", &1f32.to_le_bytes()), None);
        assert_eq!([integer("<i4", &[1, 0]), integer("<i4", &[])], [None, None]);
    }

    #[test]
    fn floats_and_names_that_are_no_numbers() {
        assert_eq!(Element::of(">f8").unwrap().float(&1.5f64.to_be_bytes()), Some(1.5));
        assert_eq!(Element::of("f4").unwrap().float(&(-0.25f32).to_le_bytes()), Some(-0.25));
        assert_eq!(Element::of("<i2").unwrap().float(&[3, 0]), Some(3.0));
        assert_eq!(Element::of("<f2").unwrap().float(&[0, 0xc0]), Some(-2.0));
        for name in ["", "<", "|O", "<U5", "<f1", "i3", "<c8", "|b1", "V8", "é4"] {
            assert_eq!(Element::of(name), None, "{name}");
        }
    }
}
