//! What the connections of both sides have in common.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// How long a write may take before the other side counts as gone. What is written is small: it waits only where the other side
/// has not read for long.
const WRITE_WITHIN: Duration = Duration::from_secs(20);

/// Makes a connection one that sends at once, and whose end is noticed also where a machine or a cable is gone.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    // Some systems give an accepted connection what its listener has.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    notice_its_end(stream);
    Ok(())
}

/// Makes a connection one that lasts, after a greeting that had to be done in time: nothing need be said on it for long.
pub(super) fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(Some(WRITE_WITHIN))
}

/// The system asks the other machine whether it is there, the process on it need not do anything: one that computes, or is
/// stopped by a person, is not taken for gone. About 25 s. Where a system cannot do that, ends are noticed that are told.
#[cfg(target_os = "linux")]
fn notice_its_end(stream: &TcpStream) {
    use rustix::net::sockopt;
    let every = Duration::from_secs(5);
    _ = sockopt::set_socket_keepalive(stream, true);
    _ = sockopt::set_tcp_keepidle(stream, every);
    _ = sockopt::set_tcp_keepintvl(stream, every);
    _ = sockopt::set_tcp_keepcnt(stream, 4);
    _ = sockopt::set_tcp_user_timeout(stream, 25_000);
}

#[cfg(not(target_os = "linux"))]
fn notice_its_end(_: &TcpStream) {}

/// What the end of a connection means, for people.
pub(super) fn broke(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "its connection broke: it has crashed or was killed".to_owned()
        }
        io::ErrorKind::InvalidData => format!("it says what nobody understands: {error}"),
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "its machine does not answer any more".to_owned()
        }
        _ => format!("its connection broke: {error}"),
    }
}
