//! Addresses, and what is found at them.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Extension, Path, Query, State as Shared};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use train::run::RunReader;

use super::guard::{Guard, guard};
use super::server::Stays;
use super::state::{MOST_COMPARED, State};
use super::view::{self, Sight};
use super::{events, stop, written};
use crate::page;

const SCRIPT: &str = include_str!("../assets/watch.js");
/// Where a page sends the token.
const TOKEN: &str = "x-dino-vmf-token";

type Known = Shared<Arc<State>>;
type Asked = Query<Vec<(String, String)>>;

/// All addresses.
pub(super) fn router(state: Arc<State>, guarded: Guard) -> Router {
    let mut router = Router::new()
        .route("/", get(list))
        .route("/run/{*place}", get(run))
        .route("/report/{*place}", get(report))
        .route("/compare", get(compare))
        .route("/events/list", get(list_events))
        .route("/events/runs", get(run_events))
        .route("/page.js", get(|| async { script(page::SCRIPT) }))
        .route("/watch.js", get(|| async { script(SCRIPT) }));
    if state.token().is_some() {
        router = router.route("/stop/{*place}", post(stop_run));
    } else {
        // An address that others may post to is one that exists: where nobody may stop, it is the method that is wrong.
        router = router.route("/stop/{*place}", get(|| async { StatusCode::NOT_FOUND }));
    }
    router
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "There is nothing here.") })
        .layer(DefaultBodyLimit::max(1 << 10))
        .layer(middleware::from_fn_with_state(Arc::new(guarded), guard))
        .with_state(state)
}

fn script(text: &'static str) -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], text).into_response()
}

/// Why there is no page.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Html(view::notice(&self.1))).into_response()
    }
}

fn refused(status: StatusCode, words: &str) -> Refusal {
    Refusal(status, words.to_owned())
}

/// Runs what reads files on a thread that may wait for them.
async fn reading<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let failed = |_| refused(StatusCode::INTERNAL_SERVER_ERROR, "This page could not be made.");
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

async fn list(Shared(state): Known) -> Result<Response, Refusal> {
    Ok(Html(reading(move || view::list_page(&state)).await?).into_response())
}

async fn run(Shared(state): Known, Path(place): Path<String>) -> Result<Response, Refusal> {
    runs(state, vec![place]).await
}

async fn report(Shared(state): Known, Path(place): Path<String>) -> Result<Response, Refusal> {
    let full = |_| refused(StatusCode::SERVICE_UNAVAILABLE, "Too many reports are being sent.");
    let room = state.reports.clone().try_acquire_owned().map_err(full)?;
    let page = reading(move || written::read(&state.path_of(&place)?)).await?;
    page.map(|page| written::answer(page, room))
        .ok_or_else(|| refused(StatusCode::NOT_FOUND, "There is no report of such a run in the folder."))
}

async fn compare(Shared(state): Known, Query(asked): Asked) -> Result<Response, Refusal> {
    runs(state, places(asked)?).await
}

async fn runs(state: Arc<State>, places: Vec<String>) -> Result<Response, Refusal> {
    let page = reading(move || Sight::of_runs(&state, &places).map(|mut sight| sight.page(&state))).await?;
    page.map(|page| Html(page).into_response())
        .ok_or_else(|| refused(StatusCode::NOT_FOUND, "There is no such run in the folder."))
}

/// The runs that an address names, once each.
fn places(asked: Vec<(String, String)>) -> Result<Vec<String>, Refusal> {
    let mut places: Vec<String> = Vec::new();
    for (key, place) in asked {
        if key == "run" && !places.contains(&place) {
            places.push(place);
        }
    }
    match places.len() {
        0 => Err(refused(StatusCode::BAD_REQUEST, "Tick the runs to compare in the list.")),
        n if n > MOST_COMPARED => {
            let words = format!("At most {MOST_COMPARED} runs can be compared, and these are {n}.");
            Err(refused(StatusCode::BAD_REQUEST, &words))
        }
        _ => Ok(places),
    }
}

async fn list_events(Shared(state): Known, stays: Option<Extension<Stays>>) -> Result<Response, Refusal> {
    streamed(state, Sight::of_list(), stays)
}

async fn run_events(
    Shared(state): Known,
    stays: Option<Extension<Stays>>,
    Query(asked): Asked,
) -> Result<Response, Refusal> {
    let (places, known) = (places(asked)?, state.clone());
    match reading(move || Sight::of_runs(&known, &places)).await? {
        Some(sight) => streamed(state, sight, stays),
        None => Err(refused(StatusCode::NOT_FOUND, "There is no such run in the folder.")),
    }
}

fn streamed(state: Arc<State>, sight: Sight, stays: Option<Extension<Stays>>) -> Result<Response, Refusal> {
    let full = |_| refused(StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.");
    let place = state.streams.clone().try_acquire_owned().map_err(full)?;
    if let Some(Extension(stays)) = stays {
        stays.allow();
    }
    Ok(events::stream(state, sight, place))
}

async fn stop_run(Shared(state): Known, Path(place): Path<String>, headers: HeaderMap, _: Bytes) -> Response {
    let given = headers.get(TOKEN).and_then(|token| token.to_str().ok()).unwrap_or_default();
    if !state.is_token(given) {
        return (StatusCode::FORBIDDEN, "Open the address with the token that `dino-vmf watch` has printed.")
            .into_response();
    }
    let asked = reading(move || {
        let path = state.path_of(&place)?;
        Some(
            RunReader::open(&path)
                .map_err(|error| error.to_string())
                .and_then(|run| stop::stop(&run).map_err(|error| error.to_string())),
        )
    });
    match asked.await {
        Err(refusal) => refusal.into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, "There is no such run in the folder.").into_response(),
        Ok(Some(Err(why))) => (StatusCode::CONFLICT, format!("Not stopped: {why}.")).into_response(),
        Ok(Some(Ok(number))) => {
            format!("Process {number} was asked to stop: it finishes its step and saves.").into_response()
        }
    }
}
