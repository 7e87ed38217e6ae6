//! Where processes meet: a host, and the ports at which process 0 may be found.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::error::DeskError;

/// How long a taken port is asked for again: a process of the run's last start may be about to end.
const PATIENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Where processes meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host of process 0; none where all run on this machine, and nobody else can connect.
    pub host: Option<String>,
    /// The ports that may be used, the first that is free.
    pub ports: Vec<u16>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            host if host.contains(':') => write!(f, "[{host}]:")?,
            host => write!(f, "{host}:")?,
        }
        match self.ports.as_slice() {
            [first, .., last] => write!(f, "{first} to {last}"),
            ports => ports.iter().try_for_each(|port| write!(f, "{port}")),
        }
    }
}

impl Place {
    /// On this machine alone.
    pub fn here(port: u16) -> Self {
        Self { host: None, ports: vec![port] }
    }

    fn name(&self) -> &str {
        self.host.as_deref().unwrap_or("127.0.0.1")
    }

    /// The addresses of the host.
    pub(super) fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let Some(host) = &self.host else { return Ok(vec![Ipv4Addr::LOCALHOST.into()]) };
        let found: Vec<IpAddr> = (host.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect();
        if found.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(found) }
    }

    /// Where process 0 listens: to its own machine alone, or at the address by which the others know it. A name that
    /// stands for this machine in its own eyes only (127.0.1.1 on Debian), or for a gate before it, says nothing of that address.
    fn own_addresses(&self) -> Result<Vec<IpAddr>, DeskError> {
        let unknown = |source| DeskError::Unknown { host: self.name().to_owned(), source };
        let mut found = self.addresses().map_err(unknown)?;
        if self.host.is_some() {
            found.retain(|address| !address.is_loopback());
            found.extend([IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()]);
        }
        Ok(found)
    }

    /// Begins to listen, at the first port that is free.
    pub fn listen(&self) -> Result<TcpListener, DeskError> {
        self.listen_within(PATIENCE)
    }

    /// The same, where taken ports are asked for again for so long.
    pub(super) fn listen_within(&self, patience: Duration) -> Result<TcpListener, DeskError> {
        let (addresses, began) = (self.own_addresses()?, Instant::now());
        loop {
            let (mut failure, mut is_taken) = (None, false);
            for &port in &self.ports {
                for &address in &addresses {
                    match TcpListener::bind(SocketAddr::new(address, port)) {
                        Ok(listener) => return Ok(listener),
                        // Another address of this machine would be found by some of the others and not by all.
                        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                            is_taken = true;
                            break;
                        }
                        Err(error) => failure = Some(error),
                    }
                }
            }
            if let Some(source) = failure.filter(|_| !is_taken) {
                return Err(DeskError::Closed { place: self.to_string(), source });
            }
            if began.elapsed() >= patience {
                return Err(DeskError::Taken { host: self.name().to_owned(), taken: self.ports.clone() });
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_as_one_writes_it() {
        assert_eq!(Place::here(80).to_string(), "127.0.0.1:80");
        let of = |host: &str, ports: &[u16]| Place { host: Some(host.to_owned()), ports: ports.to_vec() }.to_string();
        assert_eq!(of("gpu03", &[1, 2, 3]), "gpu03:1 to 3");
        assert_eq!(of("fe80::1", &[7]), "[fe80::1]:7");
    }

    #[test]
    fn the_next_port_is_taken_where_one_is_held_and_only_this_machine_can_reach_it() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let listener = Place { host: None, ports: vec![port, 0] }.listen().unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.port() != port && address.ip().is_loopback());
    }

    #[test]
    fn a_port_that_stays_taken_is_named() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let error = Place::here(port).listen_within(Duration::ZERO).unwrap_err().to_string();
        let expected =
            format!("port {port} of 127.0.0.1, where the processes of this run meet, is taken by another program");
        assert_eq!(error, expected);
    }

    #[test]
    fn a_host_that_nobody_knows_is_named() {
        let place = Place { host: Some("no-such-host.invalid".to_owned()), ports: vec![7] };
        let error = place.listen().unwrap_err().to_string();
        assert!(error.starts_with("no-such-host.invalid, where the processes of this run meet, is no host"), "{error}");
    }
}
