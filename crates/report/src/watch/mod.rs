//! The pages of runs, served live on this machine while they train.
//!
//! ```text
//! server   connections: how many, how long, how large            ─► guard   who may ask for what
//! routes   addresses: the list, a run, a comparison, events, stop ─► view    what they show, as HTML
//!                                                                       written the report in a run's folder
//! events   what has changed, sent as it changes                    ─► state   what is known of the runs
//!                                                                       list, row    all runs, a glance at each
//!                                                                       live, log    those looked at, their logs read on
//! ```
//!
//! Nothing is done while nobody looks. Whatever a request names is looked up among the runs that were found; no path is made
//! of it. Only a run whose folder says that it trains can be asked to save and stop, and only where that was allowed.

mod events;
mod guard;
mod list;
mod live;
mod log;
mod place;
mod routes;
mod row;
mod server;
mod signature;
mod state;
mod stop;
mod view;
mod written;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use state::State;

/// The port that is tried first where none is given.
const USUAL_PORT: u16 = 8017;
/// Threads that read files.
const READERS: usize = 3;

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of the runs.
    pub folder: PathBuf,
    /// The address that is listened at.
    pub host: IpAddr,
    /// The port; where none is given, a usual one, or any that is free.
    pub port: Option<u16>,
    /// Whether whoever has the token may ask a run to save and stop.
    pub may_stop: bool,
}

impl Options {
    /// The runs of a folder, for this machine alone, to look at.
    pub fn of(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), host: Ipv4Addr::LOCALHOST.into(), port: None, may_stop: false }
    }
}

/// Why runs cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The address is taken, not this machine's, or not allowed.
    #[error("{address} cannot be listened at: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system has no randomness for a token.
    #[error("the system gives no random token: {0}")]
    Token(String),
    /// The server could not be started.
    #[error("the server cannot be started: {0}")]
    Start(io::Error),
}

/// A server that listens, and does not answer yet.
///
/// ```no_run
/// use report::watch::{Options, Watch};
/// let watch = Watch::bind(&Options::of("runs"))?;
/// println!("{}", watch.address_to_open());
/// watch.serve()?;
/// # Ok::<(), report::watch::WatchError>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

impl Watch {
    /// Takes the address.
    pub fn bind(options: &Options) -> Result<Self, WatchError> {
        let bind = |port: u16| {
            let address = SocketAddr::new(options.host, port);
            TcpListener::bind(address).map_err(|source| WatchError::Bind { address, source })
        };
        let listener = match options.port {
            Some(port) => bind(port)?,
            None => bind(USUAL_PORT).or_else(|_| bind(0))?,
        };
        let address = listener.local_addr().map_err(WatchError::Start)?;
        let token = options.may_stop.then(token).transpose()?;
        Ok(Self { listener, address, state: Arc::new(State::new(&options.folder, token)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser. The token is behind a `#`, where no browser sends it anywhere.
    pub fn address_to_open(&self) -> String {
        let token = self.state.token().map_or(String::new(), |token| format!("#token={token}"));
        let host = match self.address.ip() {
            ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), self.address.port()),
            _ => self.address,
        };
        format!("http://{host}/{token}")
    }

    /// Answers until the process ends.
    pub fn serve(self) -> Result<(), WatchError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(READERS)
            .thread_name("watch")
            .build()
            .map_err(WatchError::Start)?;
        let router = routes::router(self.state, guard::Guard::of(self.address));
        runtime.block_on(server::serve(self.listener, router)).map_err(WatchError::Start)
    }
}

/// 128 random bits in hexadecimal digits.
fn token() -> Result<String, WatchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| WatchError::Token(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
