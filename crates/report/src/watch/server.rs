//! Connections: how many there are at a time, how long each may take, and how large a request is.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper::{Request, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// More than any number of open pages needs; what comes beyond is closed at once.
const CONNECTIONS: usize = 96;
/// How long a request may take to arrive, and how long all of a connection that is no stream of events.
const REQUEST: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
/// How long a stream of events lives. A page that is still open asks again.
pub(super) const STREAM: Duration = Duration::from_secs(600);
/// The largest request, with its headers.
const REQUEST_BYTES: usize = 16 << 10;
const HEADERS: usize = 64;

/// Whether a connection has become a stream of events, which may stay.
#[derive(Clone, Debug, Default)]
pub(super) struct Stays(Arc<AtomicBool>);

impl Stays {
    pub(super) fn allow(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_allowed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Answers requests for as long as the process lives.
pub(super) async fn serve(listener: std::net::TcpListener, router: Router) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No file handles are left, most likely; some come back.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let (stays, router) = (Stays::default(), TowerToHyperService::new(router.clone()));
        let of_connection = stays.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of_connection.clone());
            router.call(request)
        });
        tokio::spawn(async move {
            // One request a connection: nobody holds one that he does not use.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST)
                .keep_alive(false)
                .max_buf_size(REQUEST_BYTES)
                .max_headers(HEADERS)
                .serve_connection(TokioIo::new(stream), answer);
            let mut connection = pin!(connection);
            if timeout(ANSWER, connection.as_mut()).await.is_err() && stays.is_allowed() {
                _ = timeout(STREAM, connection).await;
            }
            drop(place);
        });
    }
}
