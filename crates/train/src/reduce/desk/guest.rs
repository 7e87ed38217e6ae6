//! How a process other than 0 finds the desk, and listens to it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::super::waiting::Next;
use super::super::{PeerError, Until, Waiting};
use super::connection::{broke, prepare, settle};
use super::error::DeskError;
use super::frame::{FromDesk, longest_from_desk, read_frame};
use super::greeting::{Answer, Greeting, Hurried, IN_TIME};
use super::hall::IN_VAIN;
use super::participant::Participant;
use super::place::Place;

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How soon it is tried again, at first and later.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_millis(500);
/// How long a name that stands for no address is asked for again.
const NAMES_WITHIN: Duration = Duration::from_secs(10);

/// Connects to the desk, as soon as there is one.
pub(super) fn find(place: &Place, greeting: &Greeting, waiting: &Waiting) -> Result<TcpStream, DeskError> {
    let (began, mut said, mut nap) = (Instant::now(), false, SOON);
    loop {
        let last = match place.addresses() {
            Ok(addresses) => {
                let each =
                    |port: &u16| addresses.iter().map(|&address| SocketAddr::new(address, *port)).collect::<Vec<_>>();
                match try_all(place.ports.iter().flat_map(each), greeting) {
                    Tried::Found(stream) => return Ok(stream),
                    Tried::Refused(why) => return Err(DeskError::Refused { place: place.to_string(), why }),
                    Tried::Nobody(last) => last,
                }
            }
            Err(source) if began.elapsed() >= NAMES_WITHIN => {
                let host = place.host.clone().unwrap_or_default();
                return Err(DeskError::Unknown { host, source });
            }
            Err(source) => source.to_string(),
        };
        let waited = began.elapsed();
        match waiting.after(waited, Until::Limit, said) {
            Next::Wait(_) => {}
            Next::Notice => {
                said = true;
                let rank = greeting.rank;
                (waiting.say)(&format!("waiting: process {rank} does not find process 0 at {place}: {last}"));
            }
            Next::GiveUp => {
                return Err(DeskError::Nobody { place: place.to_string(), seconds: waited.as_secs(), last });
            }
        }
        thread::sleep(nap);
        nap = (nap * 2).min(LATER);
    }
}

/// What came of an attempt.
enum Tried {
    Found(TcpStream),
    Refused(String),
    Nobody(String),
}

fn try_all(addresses: impl Iterator<Item = SocketAddr>, greeting: &Greeting) -> Tried {
    let mut first = None;
    for address in addresses {
        let last = match greet(address, greeting) {
            Ok((stream, Answer::Welcome)) => return Tried::Found(stream),
            Ok((_, Answer::Refused(why))) => return Tried::Refused(why),
            Ok((_, Answer::OtherRun)) => format!("another run meets at {address}"),
            Err(error) => format!("{address}: {error}"),
        };
        first.get_or_insert(last);
    }
    Tried::Nobody(first.unwrap_or_else(|| "it has no address".to_owned()))
}

fn greet(address: SocketAddr, greeting: &Greeting) -> io::Result<(TcpStream, Answer)> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_WITHIN)?;
    // A port that nobody listens at may be the one that the system has just given this connection.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    prepare(&stream)?;
    let mut hurried = Hurried::new(&stream, IN_TIME);
    greeting.send(&mut hurried)?;
    let answer = Answer::receive(&mut hurried).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            io::Error::other("another program answers there")
        }
        _ => error,
    })?;
    settle(&stream)?;
    Ok((stream, answer))
}

/// Listens to the desk until it is gone.
pub(super) fn listen(
    mut stream: TcpStream,
    ranks: usize,
    participant: Arc<Participant>,
) -> Result<Mutex<TcpStream>, DeskError> {
    let to_desk = stream.try_clone()?;
    let longest = longest_from_desk(ranks);
    let listen = move || {
        loop {
            match read_frame(&mut stream, longest).and_then(|frame| FromDesk::of_frame(&frame, ranks)) {
                Ok(FromDesk::Bye) => {
                    participant.hear(FromDesk::Bye);
                    // What process 0 has carried arrives soon, or never.
                    if !participant.leaves_within(IN_VAIN) {
                        participant.give_up();
                    }
                    return;
                }
                Ok(said) => participant.hear(said),
                Err(error) => {
                    let why = format!("process 0 is gone ({})", broke(&error));
                    participant.hear(FromDesk::Over(PeerError::Lost(why)));
                    return;
                }
            }
        }
    };
    thread::Builder::new().name("desk".into()).spawn(listen)?;
    Ok(Mutex::new(to_desk))
}
