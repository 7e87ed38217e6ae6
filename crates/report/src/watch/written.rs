//! The report that stands in a run's folder, with the pictures that a live page has not: they need the network and the images.
//!
//! Whoever made the folder made that file too, so it is shown as a stranger's: apart from this server, which it can ask for
//! nothing, and only where it begins as a report does.

use std::fs::{self, Metadata};
use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio::sync::OwnedSemaphorePermit;
use train::run::REPORT_FILE;

use crate::page;

/// Several times the largest report.
const BYTES: u64 = 16 << 20;
/// An origin of its own, from which nothing here can be asked for.
const APART: &str = "sandbox allow-scripts; frame-ancestors 'none'";

/// The file, where there is one in the folder itself that can be shown.
pub(super) fn about(run: &Path) -> Option<Metadata> {
    fs::symlink_metadata(run.join(REPORT_FILE)).ok().filter(|about| about.is_file() && about.len() <= BYTES)
}

/// Its bytes; none where it is not there or no report.
pub(super) fn read(run: &Path) -> Option<Vec<u8>> {
    about(run)?;
    let page = files::read_bounded(&run.join(REPORT_FILE), BYTES).ok()?;
    page.starts_with(page::FIRST_LINE.as_bytes()).then_some(page)
}

/// Sends it. Its place is taken until the last byte is sent.
pub(super) fn answer(page: Vec<u8>, place: OwnedSemaphorePermit) -> Response {
    let sent = Bytes::from_owner(Sent { page, _place: place });
    let policy = format!("{APART}; {}", page::POLICY);
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, &policy)];
    (headers, Body::from(sent)).into_response()
}

struct Sent {
    page: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.page
    }
}
