//! Who may ask for what, before anything is looked up; and what every answer says to the browser.
//!
//! A page of another site can make a browser ask this server. It cannot read the answer, unless it has a name of its own
//! that points here (DNS rebinding): the browser then sends that name as `Host`, which is refused. It can neither post nor
//! listen to events.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, ORIGIN, REFERRER_POLICY};
use axum::http::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Scripts come from here alone, and nothing else from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src data:; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The address at which requests are answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    address: SocketAddr,
}

impl Guard {
    pub(super) fn of(address: SocketAddr) -> Self {
        Self { address }
    }

    /// Whether a `Host` means this server. A name other than `localhost` may mean any machine, and another one tomorrow; an
    /// address is what it is.
    fn is_this(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(80)),
        };
        let ip: Option<IpAddr> =
            name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name).parse().ok();
        let own = self.address.ip();
        let is_known = match ip {
            None => name.eq_ignore_ascii_case("localhost"),
            Some(ip) => ip.is_loopback() || ip == own || own.is_unspecified(),
        };
        is_known && port == Some(self.address.port())
    }

    fn refusal(&self, method: &Method, path: &str, host: Option<&str>, headers: &HeaderMap) -> Option<StatusCode> {
        let named: Vec<&str> = headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
        if named.is_empty() {
            return Some(StatusCode::BAD_REQUEST);
        }
        if named.len() > 1 || !named.into_iter().chain(host).all(|host| self.is_this(host)) {
            return Some(StatusCode::FORBIDDEN);
        }
        let is_stop = path.starts_with("/stop/") && method == Method::POST;
        if method != Method::GET && !is_stop {
            return Some(StatusCode::METHOD_NOT_ALLOWED);
        }
        let word = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_foreign = matches!(word("sec-fetch-site"), "cross-site" | "same-site");
        let origin = word(ORIGIN.as_str());
        let is_ours = origin.is_empty() || origin.strip_prefix("http://").is_some_and(|host| self.is_this(host));
        let is_a_link = method == Method::GET && word("sec-fetch-mode") == "navigate";
        ((is_foreign && !is_a_link) || !is_ours).then_some(StatusCode::FORBIDDEN)
    }
}

/// Refuses what is not for this server, and adds to every answer what the browser must heed, unless the answer is stricter.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let host = request.uri().authority().map(|authority| authority.as_str());
    let mut response = match guard.refusal(request.method(), request.uri().path(), host, request.headers()) {
        None => next.run(request).await,
        Some(status) => (status, status.canonical_reason().unwrap_or_default()).into_response(),
    };
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
    }
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_mean_another_machine_are_refused() {
        let guard = Guard::of("127.0.0.1:8017".parse().unwrap());
        for host in ["127.0.0.1:8017", "localhost:8017", "LOCALHOST:8017", "[::1]:8017"] {
            assert!(guard.is_this(host), "{host}");
        }
        for host in [
            "evil.example:8017",
            "localhost",
            "127.0.0.1",
            "localhost:80",
            "localhost.evil.example:8017",
            "127.0.0.1.evil.example:8017",
            "localhost:8017:8017",
            "192.168.1.5:8017",
            "[::1]",
            "::1",
            "",
            ":8017",
            "localhost:",
            "localhost:8017@evil.example",
        ] {
            assert!(!guard.is_this(host), "{host}");
        }
        let open = Guard::of("0.0.0.0:80".parse().unwrap());
        assert!(open.is_this("192.168.1.5") && open.is_this("192.168.1.5:80") && !open.is_this("my-machine:80"));
        let other = Guard::of("192.168.1.5:9".parse().unwrap());
        assert!(other.is_this("192.168.1.5:9") && !other.is_this("192.168.1.6:9"));
    }

    #[test]
    fn pages_of_other_sites_may_link_here_and_nothing_else() {
        let guard = Guard::of("127.0.0.1:8017".parse().unwrap());
        let ask = |method: Method, path: &str, more: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost:8017"));
            for (name, value) in more {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            guard.refusal(&method, path, None, &headers)
        };
        assert_eq!(ask(Method::GET, "/", &[]), None);
        assert_eq!(ask(Method::GET, "/", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), None);
        let forbidden = Some(StatusCode::FORBIDDEN);
        assert_eq!(ask(Method::GET, "/", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]), forbidden);
        assert_eq!(ask(Method::POST, "/stop/a", &[("origin", "http://localhost:8017")]), None);
        for origin in ["http://evil.example", "null", "https://localhost:8017", "http://localhost:3000"] {
            assert_eq!(ask(Method::POST, "/stop/a", &[("origin", origin)]), forbidden, "{origin}");
        }
        let navigation = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        assert_eq!(ask(Method::POST, "/stop/a", &navigation), forbidden);
        for method in [Method::POST, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS, Method::CONNECT] {
            assert_eq!(ask(method.clone(), "/", &[]), Some(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
        assert_eq!(guard.refusal(&Method::GET, "/", None, &HeaderMap::new()), Some(StatusCode::BAD_REQUEST));
    }
}
