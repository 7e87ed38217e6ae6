//! Changes, sent to a page as they happen: server-sent events.
//!
//! A round looks whether anything has changed and renders it. Rounds follow each other at most once a second, and so slowly
//! that a page takes about a hundredth of one core: whoever trains on this machine must not notice.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::server::STREAM;
use super::state::State;
use super::view::{Change, Sight};

/// The least time between two rounds, and the most.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(10);
/// A round is followed by a rest that is so many times as long.
const REST: u32 = 100;
/// How often a stream says that it is alive, by which those that nobody reads are found.
const ALIVE: Duration = Duration::from_secs(15);

/// A stream of events for one page.
struct Pages {
    state: Arc<State>,
    sight: Sight,
    wait: Duration,
    ends: Instant,
    _place: OwnedSemaphorePermit,
}

/// Sends what changes in what is looked at, beginning with all of it.
pub(super) fn stream(state: Arc<State>, sight: Sight, place: OwnedSemaphorePermit) -> Response {
    let pages = Pages { state, sight, wait: Duration::ZERO, ends: Instant::now() + STREAM, _place: place };
    let events = stream::unfold(pages, |pages| async move {
        let (change, pages) = pages.next().await?;
        let event = Event::default().event(change.name).data(change.data).retry(LEAST);
        Some((Ok::<_, Infallible>(event), pages))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

impl Pages {
    /// The next change; none where the stream has lived long enough, or nothing can be looked at any more.
    async fn next(mut self) -> Option<(Change, Self)> {
        loop {
            sleep(self.wait).await;
            if Instant::now() >= self.ends {
                return None;
            }
            let Self { state, mut sight, .. } = self;
            let round = tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let round = sight.look(&state);
                (state, sight, round, begun.elapsed())
            });
            let (state, sight, round, spent) = round.await.ok()?;
            let wait = match round.is_behind {
                // A long log is read on at half of one core: somebody waits for it.
                true => spent,
                false => (REST * spent).clamp(LEAST, MOST),
            };
            self = Self { state, sight, wait, ends: self.ends, _place: self._place };
            if let Some(change) = round.change {
                return Some((change, self));
            }
        }
    }
}
