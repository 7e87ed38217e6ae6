//! Walking through an archive, member by member.

use super::header::{BLOCK, Header, Invalid, Kind, Records, records};
use super::window::Window;
use std::io::{self, Read, Seek};

/// Longer names are of no use, and an attempt to fill the memory.
const NAME_BYTES: u64 = 64 << 10;
const RECORDS_BYTES: u64 = 1 << 20;

/// A file in the archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// Its whole name, as the archive has it.
    pub name: Vec<u8>,
    /// Where its data starts.
    pub offset: u64,
    /// How long it is. A half-written member says more than there is.
    pub bytes: u64,
    /// False for links and sparse files: the bytes there are not those of the file.
    pub plain: bool,
}

/// Where an archive stops making sense.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The file ends within a member.
    CutShort,
    /// No header where one has to be.
    At(u64),
}

/// The members of an archive, and at its end the damage that ended it early.
pub(super) struct Members<R> {
    window: Window<R>,
    /// Where the next header is.
    at: u64,
    pub damage: Option<Damage>,
}

impl<R: Read + Seek> Members<R> {
    pub(super) fn new(input: R) -> io::Result<Self> {
        Ok(Self { window: Window::new(input)?, at: 0, damage: None })
    }

    /// Bytes of the archive.
    pub(super) fn length(&self) -> u64 {
        self.window.length
    }

    /// The next file or link; none at the end or where the archive is damaged.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut about = About::default();
        let mut zero_blocks = 0;
        loop {
            let data = self.at.saturating_add(BLOCK);
            let block = self.window.view(self.at, BLOCK as usize)?;
            let Some(block) = block.first_chunk() else {
                // The zero blocks at the end are often missing, and so is the filling of the last member.
                if !block.is_empty() || about != About::default() || self.at == 0 {
                    self.stop(Damage::CutShort);
                }
                return Ok(None);
            };
            let header = match Header::parse(block) {
                Ok(header) => header,
                Err(Invalid::Zero) if zero_blocks == 0 => {
                    zero_blocks += 1;
                    self.at = data;
                    continue;
                }
                Err(Invalid::Zero) => return Ok(None),
                Err(Invalid::Checksum | Invalid::Size) => {
                    self.stop(Damage::At(self.at));
                    return Ok(None);
                }
            };
            zero_blocks = 0;
            let (kind, stated, extended) = (header.kind, header.bytes, header.extended);
            let own_name = match kind {
                Kind::File | Kind::Link | Kind::Sparse => full_name(&header),
                _ => Vec::new(),
            };
            let data = if extended { self.after_extensions(data)? } else { data };
            let bytes = match kind {
                Kind::File | Kind::Sparse => about.records.bytes.unwrap_or(stated),
                _ => stated,
            };
            let end = data.saturating_add(bytes);
            if end > self.window.length {
                self.stop(Damage::CutShort);
            }
            self.at = end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
            match kind {
                Kind::LongName if bytes <= NAME_BYTES => {
                    let name = self.window.view(data, bytes as usize)?;
                    about.long_name = Some(name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec());
                }
                Kind::Records if bytes <= RECORDS_BYTES => {
                    about.records = records(self.window.view(data, bytes as usize)?);
                    about.unusable |= about.records.path.as_ref().is_some_and(|path| path.len() as u64 > NAME_BYTES);
                }
                Kind::LongName | Kind::Records => about.unusable = true,
                Kind::File | Kind::Link | Kind::Sparse => {
                    let plain = kind == Kind::File && !about.records.sparse && !about.unusable;
                    let name = about.name().unwrap_or(own_name);
                    return Ok(Some(Member { name, offset: data, bytes, plain }));
                }
                Kind::Empty => about = About::default(),
                Kind::Other => {}
            }
        }
    }

    /// The first bytes of a member's data, at most `limit`.
    pub(super) fn start(&mut self, member: &Member, limit: usize) -> io::Result<&[u8]> {
        let count = usize::try_from(member.bytes).map_or(limit, |bytes| bytes.min(limit));
        self.window.view(member.offset, count)
    }

    /// The old GNU layout lists the pieces of a sparse file in blocks between header and data.
    fn after_extensions(&mut self, mut at: u64) -> io::Result<u64> {
        loop {
            let more = self.window.view(at, BLOCK as usize)?.get(504).is_some_and(|&flag| flag != 0);
            at = at.saturating_add(BLOCK);
            if !more {
                return Ok(at);
            }
        }
    }

    /// The first damage is the cause of all that follow.
    fn stop(&mut self, damage: Damage) {
        self.damage.get_or_insert(damage);
    }
}

/// What the blocks before a member's own header say about it.
#[derive(Default, PartialEq, Eq)]
struct About {
    long_name: Option<Vec<u8>>,
    records: Records,
    /// Its name or its records are too long to be read.
    unusable: bool,
}

impl About {
    fn name(self) -> Option<Vec<u8>> {
        self.records.path.or(self.long_name).filter(|_| !self.unusable)
    }
}

fn full_name(header: &Header) -> Vec<u8> {
    match header.prefix {
        b"" => header.name.to_vec(),
        prefix => [prefix, b"/", header.name].concat(),
    }
}
