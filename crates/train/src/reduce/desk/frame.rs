//! What travels between a process and the desk: frames of a length, a kind and a body.
//!
//! Whoever reads knows the longest frame that can come and takes no memory for a longer one. A frame that means nothing is an
//! error that ends the connection it came by, and nothing else.

use std::io::{self, Read, Write};

use super::super::group::Word;
use super::super::{Awaited, PeerError, Until};

/// The most numbers that a process brings to the desk itself; more go through the carrier.
pub const FEW: usize = 1024;
/// The most characters of an explanation.
const LONGEST_TEXT: usize = 2000;

/// What a process says to the desk.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToDesk {
    /// It has come to a meeting.
    Came {
        /// The number of the meeting, from 0.
        meeting: u64,
        /// Until when it waits.
        until: Until,
        brought: Brought,
    },
    /// It waits in the carrier, for the n-th time from 1.
    Carrying(u64),
    /// It no longer does: all n have been carried, or the last was not.
    Carried { times: u64, well: bool },
    /// It ends, in order.
    Bye,
}

/// What the desk says to a process.
#[derive(Clone, Debug)]
pub(super) enum FromDesk {
    /// What all have brought to a meeting.
    Together { meeting: u64, all: Vec<Brought> },
    /// There will be no more meetings.
    Over(PeerError),
    /// Somebody will not come to what this process waits for in the carrier.
    InVain,
    /// The process that keeps the desk ends, in order.
    Bye,
}

/// What a process has brought to a meeting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Brought {
    pub word: Word,
    /// How many numbers it has.
    pub length: u64,
    /// They themselves, where they are few.
    pub numbers: Vec<f64>,
}

/// The longest frame that a process sends to the desk.
pub(super) const LONGEST_TO_DESK: usize = 64 + 8 * FEW;

/// The longest frame that the desk sends to one of so many processes.
pub(super) fn longest_from_desk(ranks: usize) -> usize {
    64 + LONGEST_TEXT * 4 + ranks * (32 + 8 * FEW)
}

/// Something that is no frame.
pub(super) fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Reads a frame of at most so many bytes.
pub(super) fn read_frame(from: &mut impl Read, longest: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > longest {
        return Err(nonsense("a frame is longer than any that is sent"));
    }
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(frame)
}

/// Writes a frame at once, so that no packet holds a part of it alone.
pub(super) fn write_frame(to: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(4 + frame.len());
    bytes.extend((frame.len() as u32).to_le_bytes());
    bytes.extend(frame);
    to.write_all(&bytes)
}

/// The body of a frame that is being read.
pub(super) struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    fn take(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| nonsense("a frame is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn number(&mut self) -> io::Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(|_| nonsense("a number is too short"))?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn text(&mut self) -> io::Result<String> {
        let length = usize::try_from(self.number()?).map_err(|_| nonsense("a text is too long"))?;
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| nonsense("a text is none"))
    }

    /// Nothing must be left.
    pub fn end(self) -> io::Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(nonsense("a frame is too long")) }
    }

    fn brought(&mut self) -> io::Result<Brought> {
        let word = match self.byte()? {
            0 => Word::Numbers,
            1 => Word::No,
            2 => Word::Yes,
            _ => return Err(nonsense("a word that nobody knows")),
        };
        let length = self.number()?;
        let here = self.number()?;
        if here != 0 && here != length || here > FEW as u64 {
            return Err(nonsense("more numbers than are brought to the desk"));
        }
        let numbers = (0..here).map(|_| self.number().map(f64::from_bits)).collect::<io::Result<_>>()?;
        Ok(Brought { word, length, numbers })
    }
}

pub(super) fn put_number(to: &mut Vec<u8>, number: u64) {
    to.extend(number.to_le_bytes());
}

pub(super) fn put_text(to: &mut Vec<u8>, text: &str) {
    let cut: String = text.chars().take(LONGEST_TEXT).collect();
    put_number(to, cut.len() as u64);
    to.extend(cut.as_bytes());
}

fn put_brought(to: &mut Vec<u8>, brought: &Brought) {
    to.push(match brought.word {
        Word::Numbers => 0,
        Word::No => 1,
        Word::Yes => 2,
    });
    put_number(to, brought.length);
    put_number(to, brought.numbers.len() as u64);
    brought.numbers.iter().for_each(|number| put_number(to, number.to_bits()));
}

impl ToDesk {
    pub fn to_frame(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        match self {
            Self::Came { meeting, until, brought } => {
                frame.push(1);
                put_number(&mut frame, *meeting);
                frame.push(u8::from(*until == Until::Done));
                put_brought(&mut frame, brought);
            }
            Self::Carrying(times) => {
                frame.push(2);
                put_number(&mut frame, *times);
            }
            Self::Carried { times, well } => {
                frame.push(3);
                put_number(&mut frame, *times);
                frame.push(u8::from(*well));
            }
            Self::Bye => frame.push(4),
        }
        frame
    }

    pub fn of_frame(frame: &[u8]) -> io::Result<Self> {
        let mut body = Body(frame);
        let said = match body.byte()? {
            1 => {
                let meeting = body.number()?;
                let until = if body.byte()? == 0 { Until::Limit } else { Until::Done };
                Self::Came { meeting, until, brought: body.brought()? }
            }
            2 => Self::Carrying(body.number()?),
            3 => Self::Carried { times: body.number()?, well: body.byte()? != 0 },
            4 => Self::Bye,
            _ => return Err(nonsense("a kind of frame that nobody knows")),
        };
        body.end()?;
        Ok(said)
    }
}

impl FromDesk {
    pub fn to_frame(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        match self {
            Self::Together { meeting, all } => {
                frame.push(1);
                put_number(&mut frame, *meeting);
                put_number(&mut frame, all.len() as u64);
                all.iter().for_each(|brought| put_brought(&mut frame, brought));
            }
            Self::Over(PeerError::Late(awaited)) => {
                frame.push(2);
                put_number(&mut frame, awaited.seconds);
                put_number(&mut frame, awaited.ranks.len() as u64);
                awaited.ranks.iter().for_each(|&rank| put_number(&mut frame, rank as u64));
            }
            Self::Over(PeerError::Lost(why)) => {
                frame.push(3);
                put_text(&mut frame, why);
            }
            Self::Over(other) => {
                frame.push(3);
                put_text(&mut frame, &other.to_string());
            }
            Self::InVain => frame.push(4),
            Self::Bye => frame.push(5),
        }
        frame
    }

    /// Of a desk for so many processes.
    pub fn of_frame(frame: &[u8], ranks: usize) -> io::Result<Self> {
        let mut body = Body(frame);
        let said = match body.byte()? {
            1 => {
                let meeting = body.number()?;
                if body.number()? != ranks as u64 {
                    return Err(nonsense("a meeting of another number of processes"));
                }
                let all = (0..ranks).map(|_| body.brought()).collect::<io::Result<_>>()?;
                Self::Together { meeting, all }
            }
            2 => {
                let (seconds, count) = (body.number()?, body.number()?);
                if count > ranks as u64 {
                    return Err(nonsense("more are awaited than there are"));
                }
                let ranks = (0..count).map(|_| body.number().map(|rank| rank as usize)).collect::<io::Result<_>>()?;
                Self::Over(PeerError::Late(Awaited { ranks, seconds }))
            }
            3 => Self::Over(PeerError::Lost(body.text()?)),
            4 => Self::InVain,
            5 => Self::Bye,
            _ => return Err(nonsense("a kind of frame that nobody knows")),
        };
        body.end()?;
        Ok(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brought(numbers: &[f64]) -> Brought {
        Brought { word: Word::Numbers, length: numbers.len() as u64, numbers: numbers.to_vec() }
    }

    #[test]
    fn what_is_said_arrives_as_it_is() {
        let many = Brought { word: Word::Yes, length: 1 << 40, numbers: Vec::new() };
        let full = brought(&[f64::MAX; FEW]);
        for said in [
            ToDesk::Came { meeting: 7, until: Until::Done, brought: many.clone() },
            ToDesk::Came { meeting: 0, until: Until::Limit, brought: full.clone() },
            ToDesk::Carrying(3),
            ToDesk::Carried { times: 3, well: false },
            ToDesk::Bye,
        ] {
            let frame = said.to_frame();
            assert!(frame.len() <= LONGEST_TO_DESK);
            assert_eq!(ToDesk::of_frame(&frame).unwrap(), said);
        }
        let late = PeerError::Late(Awaited { ranks: vec![1, 2], seconds: 9 });
        for said in [
            FromDesk::Together { meeting: 7, all: vec![full.clone(), many, full] },
            FromDesk::Over(late),
            FromDesk::Over(PeerError::Lost("\u{1f980}".repeat(LONGEST_TEXT + 1))),
            FromDesk::InVain,
            FromDesk::Bye,
        ] {
            let frame = said.to_frame();
            assert!(frame.len() <= longest_from_desk(3));
            let read = FromDesk::of_frame(&frame, 3).unwrap();
            assert_eq!(read.to_frame(), frame);
        }
        let nan = ToDesk::Came { meeting: 0, until: Until::Limit, brought: brought(&[f64::NAN]) };
        let ToDesk::Came { brought, .. } = ToDesk::of_frame(&nan.to_frame()).unwrap() else { panic!("it came") };
        assert_eq!(brought.numbers[0].to_bits(), f64::NAN.to_bits());
    }

    #[test]
    fn random_bytes_are_errors_and_cost_no_memory() {
        for seed in 0..20_000_u64 {
            let mut draws = random::Key::new(seed, random::Purpose::Bench).stream();
            // Small numbers are kinds and lengths more often.
            let most = if seed % 2 == 0 { 6 } else { 256 };
            let bytes: Vec<u8> = (0..seed % 97).map(|_| draws.below(most) as u8).collect();
            // Whatever they are, they are read to some end.
            _ = ToDesk::of_frame(&bytes);
            _ = FromDesk::of_frame(&bytes, 3);
            _ = read_frame(&mut &bytes[..], LONGEST_TO_DESK);
        }
        assert!(read_frame(&mut &u32::MAX.to_le_bytes()[..], LONGEST_TO_DESK).is_err(), "nothing was taken for it");
        assert!(read_frame(&mut &[0; 4][..], LONGEST_TO_DESK).is_err(), "an empty frame");
        let whole = ToDesk::Came { meeting: 1, until: Until::Limit, brought: brought(&[1.0, 2.0]) }.to_frame();
        for end in 0..whole.len() {
            assert!(ToDesk::of_frame(&whole[..end]).is_err(), "{end} bytes");
        }
        assert!(ToDesk::of_frame(&[&whole[..], &[0]].concat()).is_err(), "one too many");
        let mut liar = whole.clone();
        liar[19..27].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(ToDesk::of_frame(&liar).is_err(), "more numbers than there are");
    }
}
