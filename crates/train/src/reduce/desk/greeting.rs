//! How a process that comes to the desk shows that it belongs to the run, and what it is answered.
//!
//! Anybody may connect. Whoever does not say in time, in few bytes and with the run's token who it is, is sent away and changes
//! nothing.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::frame::{Body, nonsense, put_number, put_text, read_frame, write_frame};

/// What the first bytes of a connection are. The last one is the version of what is said at the desk.
const MAGIC: [u8; 8] = *b"dvmfdsk\x01";
/// The most bytes of a greeting, and of its answer.
const LONGEST: usize = 4096;
/// How long a greeting and its answer may take.
pub(super) const IN_TIME: Duration = Duration::from_secs(5);

/// Who somebody says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    /// The program's version.
    pub version: String,
    /// What the processes of one run have in common and others do not know.
    pub token: String,
    pub rank: usize,
    pub ranks: usize,
}

/// What the desk says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome,
    /// It belongs to another run: its own desk may be elsewhere, or come later.
    OtherRun,
    /// It belongs to this run and cannot take part.
    Refused(String),
}

impl Greeting {
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut frame = Vec::new();
        put_text(&mut frame, &self.version);
        put_text(&mut frame, &self.token);
        put_number(&mut frame, self.rank as u64);
        put_number(&mut frame, self.ranks as u64);
        to.write_all(&MAGIC)?;
        write_frame(to, &frame)
    }

    pub fn receive(from: &mut impl Read) -> io::Result<Self> {
        let mut magic = MAGIC;
        from.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(nonsense("it does not begin like a process of a run"));
        }
        let frame = read_frame(from, LONGEST)?;
        let mut body = Body(&frame);
        let (version, token) = (body.text()?, body.text()?);
        let mut number = || usize::try_from(body.number()?).map_err(|_| nonsense("a number is too large"));
        let (rank, ranks) = (number()?, number()?);
        body.end()?;
        Ok(Self { version, token, rank, ranks })
    }

    /// What process 0, which greets so itself, answers to another one whose number is free.
    pub fn answer_to(&self, other: &Self) -> Answer {
        if other.token != self.token {
            return Answer::OtherRun;
        }
        let (rank, here, there) = (other.rank, &self.version, &other.version);
        if there != here {
            return Answer::Refused(format!(
                "the program's version is {there} in process {rank} and {here} in process 0"
            ));
        }
        if other.ranks != self.ranks {
            let (there, here) = (other.ranks, self.ranks);
            return Answer::Refused(format!("process {rank} is one of {there} and process 0 one of {here}"));
        }
        if rank == 0 || rank >= self.ranks {
            return Answer::Refused(format!("another process is process {rank}, or none is: there are {}", self.ranks));
        }
        Answer::Welcome
    }
}

impl Answer {
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut frame = Vec::new();
        match self {
            Self::Welcome => frame.push(1),
            Self::OtherRun => frame.push(2),
            Self::Refused(why) => {
                frame.push(3);
                put_text(&mut frame, &why.chars().take(LONGEST / 8).collect::<String>());
            }
        }
        write_frame(to, &frame)
    }

    pub fn receive(from: &mut impl Read) -> io::Result<Self> {
        let frame = read_frame(from, LONGEST)?;
        let mut body = Body(&frame);
        let answer = match body.byte()? {
            1 => Self::Welcome,
            2 => Self::OtherRun,
            3 => Self::Refused(body.text()?),
            _ => return Err(nonsense("an answer that nobody knows")),
        };
        body.end()?;
        Ok(answer)
    }
}

/// A connection that must be done by some time, however slowly the other side sends.
pub(super) struct Hurried<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Hurried<'a> {
    pub fn new(stream: &'a TcpStream, most: Duration) -> Self {
        Self { stream, until: Instant::now() + most }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(into)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(rank: usize) -> Greeting {
        Greeting { version: "1.2.3".to_owned(), token: "of this run".to_owned(), rank, ranks: 4 }
    }

    #[test]
    fn greetings_and_answers_arrive_as_they_are() {
        let mut bytes = Vec::new();
        greeting(3).send(&mut bytes).unwrap();
        assert_eq!(Greeting::receive(&mut &bytes[..]).unwrap(), greeting(3));
        for end in 0..bytes.len() {
            assert!(Greeting::receive(&mut &bytes[..end]).is_err(), "{end} bytes");
        }
        bytes[0] ^= 1;
        assert!(Greeting::receive(&mut &bytes[..]).is_err(), "another beginning");
        for answer in [Answer::Welcome, Answer::OtherRun, Answer::Refused("\u{e9}".repeat(900))] {
            let mut bytes = Vec::new();
            answer.send(&mut bytes).unwrap();
            let read = Answer::receive(&mut &bytes[..]).unwrap();
            assert!(read == answer || matches!(read, Answer::Refused(why) if why.len() == LONGEST / 4));
        }
    }

    #[test]
    fn whoever_differs_is_told_in_what() {
        let first = greeting(0);
        assert_eq!(first.answer_to(&greeting(3)), Answer::Welcome);
        let other = Greeting { token: "of another".to_owned(), version: "0".to_owned(), ..greeting(1) };
        assert_eq!(first.answer_to(&other), Answer::OtherRun, "whatever else it is");
        for (other, expected) in [
            (
                Greeting { version: "1.2.4".to_owned(), ..greeting(1) },
                "version is 1.2.4 in process 1 and 1.2.3 in process 0",
            ),
            (Greeting { ranks: 8, ..greeting(5) }, "process 5 is one of 8 and process 0 one of 4"),
            (greeting(0), "another process is process 0"),
            (greeting(4), "or none is: there are 4"),
            (greeting(usize::MAX), "there are 4"),
        ] {
            let Answer::Refused(why) = first.answer_to(&other) else { panic!("{other:?}") };
            assert!(why.contains(expected), "{why}");
        }
    }
}
