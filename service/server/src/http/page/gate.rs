//! Access to the page's data.
//!
//! The rules are those of gRPC, with the right observe. Browsers bring two additional dangers: a
//! page of another site that sends requests in the name of the viewer, and DNS rebinding. Against
//! the first, requests that the browser marks as coming from elsewhere are refused; against the
//! second, without TLS and without a login only host names are answered that no other site can own.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, WWW_AUTHENTICATE};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use super::answer::failed;
use crate::door::{Connection, Door, Right};

/// Lets a request through, with its caller, or says why not.
pub(super) async fn admit(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let door = &api.door;
    if let Err(why) = check(door, request.headers()) {
        return failed(StatusCode::FORBIDDEN, why);
    }
    let connection = Connection::of(request.extensions());
    let caller = match door.caller(connection, request.headers()) {
        Ok(caller) => caller,
        Err(denied) => {
            let challenge = [(WWW_AUTHENTICATE, "Bearer")];
            let refused = failed(StatusCode::UNAUTHORIZED, &denied.to_string());
            return (challenge, refused).into_response();
        }
    };
    if !caller.has(Right::Observe) {
        let metrics = &door.metrics;
        metrics.login_failed(connection, "scope", caller.name());
        let why = format!("{:?} lacks the scope \"observe\"", caller.name());
        return failed(StatusCode::FORBIDDEN, &why);
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Refuses what the page of another site may have sent.
pub(crate) fn check(door: &Door, headers: &HeaderMap) -> Result<(), &'static str> {
    from_here(headers)?;
    if door.reloader.has_login_or_tls() {
        return Ok(());
    }
    by_a_safe_name(headers)
}

/// Refuses what a browser sends in the name of another site. Other programs do not say.
fn from_here(headers: &HeaderMap) -> Result<(), &'static str> {
    match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err("another web site asks: only the page of this service may"),
    }
}

/// Refuses a name that might be somebody else's.
fn by_a_safe_name(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut sent = headers.get_all(HOST).iter();
    let host = match (sent.next(), sent.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    let safe = host.is_some_and(|host| {
        let port = host.port().map_or(0, |port| 1 + port.as_str().len());
        // Nothing stands before the host or between it and the port.
        let is_all = host.host().len() + port == host.as_str().len();
        let host = host.host();
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let known = host.eq_ignore_ascii_case("localhost");
        is_all && (known || bare.unwrap_or(host).parse::<IpAddr>().is_ok())
    });
    if safe {
        return Ok(());
    }
    Err(
        "without a login the data is served by an IP address or as localhost only, because any web \
         site could make a name of its own mean this machine: use http://127.0.0.1:PORT, or \
         configure `tokens` or TLS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nobody_can_own_are_safe() {
        for (host, safe) in [
            ("127.0.0.1:9464", true),
            ("10.1.2.3", true),
            ("[::1]:9464", true),
            ("localhost:9464", true),
            ("LocalHost", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:9464", false),
            ("[::1].evil.example:9464", false),
            ("somebody@localhost:9464", false),
            ("evil.example", false),
            ("lumpscope:9464", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            assert_eq!(by_a_safe_name(&headers).is_ok(), safe, "{host:?}");
        }
        assert!(by_a_safe_name(&HeaderMap::new()).is_err());
        let mut two = HeaderMap::new();
        two.append(HOST, "localhost".parse().unwrap());
        two.append(HOST, "evil.example".parse().unwrap());
        assert!(by_a_safe_name(&two).is_err());
    }

    #[test]
    fn other_sites_may_not_ask() {
        for (site, fine) in [
            ("same-origin", true),
            ("none", true),
            ("same-site", false),
            ("cross-site", false),
            ("what", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("sec-fetch-site", site.parse().unwrap());
            assert_eq!(from_here(&headers).is_ok(), fine, "{site}");
        }
        assert!(from_here(&HeaderMap::new()).is_ok());
    }
}
