//! The 512 bytes before a member of a tar archive, in the dialects that are found: V7, ustar, GNU, and PAX records.

use std::str;

/// Archives are made of blocks of this size.
pub(super) const BLOCK: u64 = 512;

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A regular file.
    File,
    /// A hard or symbolic link. No data follows, whatever the size says.
    Link,
    /// A file with holes in the old GNU layout, data stored without them.
    Sparse,
    /// A folder, device or pipe. No data follows.
    Empty,
    /// The name of the next member, longer than a header can hold.
    LongName,
    /// PAX records about the next member.
    Records,
    /// Something else with data to be passed over: volume labels, global records, names of link targets.
    Other,
}

/// A header, its name still in pieces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub kind: Kind,
    /// Bytes of data that follow.
    pub bytes: u64,
    /// Folder part of the name, in ustar.
    pub prefix: &'a [u8],
    pub name: &'a [u8],
    /// More blocks of the old GNU sparse layout follow the header.
    pub extended: bool,
}

/// Why a block is not a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// All zero: the end of the archive, where there are two.
    Zero,
    /// The sum over the block is not the one it states.
    Checksum,
    /// The size is not a number.
    Size,
}

impl<'a> Header<'a> {
    /// Reads a block. Its checksum decides whether it is a header at all.
    pub(super) fn parse(block: &'a [u8; BLOCK as usize]) -> Result<Self, Invalid> {
        if block.iter().all(|&byte| byte == 0) {
            return Err(Invalid::Zero);
        }
        if !checksum_holds(block) {
            return Err(Invalid::Checksum);
        }
        let field = |from: usize, to: usize| until_zero(&block[from..to]);
        let name = field(0, 100);
        let kind = match block[156] {
            // V7 knows no folders: they are files whose names end in a slash.
            b'0' | 0 if name.ends_with(b"/") => Kind::Empty,
            b'0' | 0 | b'7' => Kind::File,
            b'1' | b'2' => Kind::Link,
            b'3'..=b'6' => Kind::Empty,
            b'S' => Kind::Sparse,
            b'L' => Kind::LongName,
            b'x' | b'X' => Kind::Records,
            _ => Kind::Other,
        };
        let stated = number(&block[124..136]);
        let bytes = match kind {
            Kind::Link | Kind::Empty => 0,
            _ => stated.ok_or(Invalid::Size)?,
        };
        // GNU writes "ustar  " and keeps other things where ustar has its prefix.
        let prefix = if &block[257..263] == b"ustar\0" { field(345, 500) } else { b"" };
        Ok(Self { kind, bytes, prefix, name, extended: kind == Kind::Sparse && block[482] != 0 })
    }
}

/// The sum of all bytes, its own field taken as spaces. A few old programs added signed bytes.
fn checksum_holds(block: &[u8; BLOCK as usize]) -> bool {
    let Some(stated) = number(&block[148..156]) else { return false };
    let (head, tail) = (&block[..148], &block[156..]);
    let spaces = 8 * u64::from(b' ');
    let unsigned: u64 = head.iter().chain(tail).map(|&byte| u64::from(byte)).sum::<u64>() + spaces;
    if unsigned == stated {
        return true;
    }
    let signed: i64 = head.iter().chain(tail).map(|&byte| i64::from(byte as i8)).sum::<i64>() + spaces as i64;
    u64::try_from(signed) == Ok(stated)
}

/// A number: octal digits, or, where the first bit is set, the rest in base 256.
fn number(field: &[u8]) -> Option<u64> {
    match field {
        // 0xff starts a negative number.
        [0x80, rest @ ..] => {
            let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
            let low = low.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes))?;
            high.iter().all(|&byte| byte == 0).then_some(low)
        }
        [0x81..=0xff, ..] => None,
        _ => {
            let text = until_zero(field).trim_ascii();
            if text.is_empty() {
                return Some(0);
            }
            // `from_str_radix` would allow a sign.
            let digits = text.iter().all(u8::is_ascii_digit);
            u64::from_str_radix(str::from_utf8(text).ok().filter(|_| digits)?, 8).ok()
        }
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// What the PAX records before a member change about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Records {
    pub path: Option<Vec<u8>>,
    pub bytes: Option<u64>,
    pub sparse: bool,
}

/// Reads PAX records, `length key=value\n` each. Reading stops at the first that is damaged.
pub(super) fn records(mut data: &[u8]) -> Records {
    let mut found = Records::default();
    while let Some((key, value, rest)) = record(data) {
        match key {
            b"path" if !found.sparse => found.path = Some(value.to_vec()),
            b"size" => found.bytes = str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            // Newer sparse layouts give the member an invented name, and the true one here.
            b"GNU.sparse.name" => (found.sparse, found.path) = (true, Some(value.to_vec())),
            _ if key.starts_with(b"GNU.sparse.") => found.sparse = true,
            _ => {}
        }
        data = rest;
    }
    found
}

/// The first record, as key and value, and what follows it.
fn record(data: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = data.iter().take(20).position(|&byte| byte == b' ')?;
    let length: usize = str::from_utf8(&data[..space]).ok()?.parse().ok()?;
    let (record, rest) = data.split_at_checked(length)?;
    let pair = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = pair.iter().position(|&byte| byte == b'=')?;
    Some((&pair[..equals], &pair[equals + 1..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   12 \0 "), Some(0o12));
        assert_eq!(number(b"\0\0\0\0"), Some(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]), Some((2 << 32) + 1));
        assert_eq!(number(&[0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "more than 64 bits");
        assert_eq!(number(&[0xff; 12]), None, "negative");
        assert_eq!(number(b"+7"), None);
        assert_eq!(number(b"00009"), None);
    }

    #[test]
    fn damaged_records_end_the_reading_and_keep_what_came_before() {
        let found = records(b"14 path=a.jpg\n14 size=123456\nnonsense");
        assert_eq!(found, Records { path: Some(b"a.jpg".to_vec()), ..Records::default() });
        for hostile in
            [&b"0 a=b\n"[..], b"18446744073709551615 a=b\n", b"3 x", b"-5 a=b\n", b"6 a=b", b"5 abc\n", b"1 "]
        {
            assert_eq!(records(hostile), Records::default());
        }
        assert!(records(b"22 GNU.sparse.major=1\n").sparse);
    }
}
