//! Checks of a configuration: values that follow from others are filled in, and each problem is
//! named with its key and remedy.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use lumpscope_units::Size;

use super::ServeConfig;
use crate::error::ServerError;

/// Longest that can be configured for requests under way at the end.
const MAX_DRAIN: Duration = Duration::from_mins(10);
/// Variables of OpenTelemetry with what the collector asks for, tokens among it.
const HEADERS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_HEADERS",
];
/// In a URL of traces: the place of the id.
const TRACE_ID: &str = "{trace_id}";

/// Everything that is wrong, in the order in which it was found.
#[derive(Default)]
pub(crate) struct Problems(Vec<ServerError>);

/// True: what is sent to this host stays on this machine.
fn is_here(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// True: one socket cannot listen where the other does. Port 0: the kernel chooses one. `dual`: as
/// [`is_dual`].
fn meet(one: SocketAddr, other: SocketAddr, dual: bool) -> bool {
    let covers = |one: IpAddr, other: IpAddr| {
        let both = one.is_ipv4() == other.is_ipv4() || (one.is_ipv6() && dual);
        one == other || (one.is_unspecified() && both)
    };
    // `::ffff:127.0.0.1` is an address of IPv4.
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    (covers(a, b) || covers(b, a)) && one.port() == other.port() && one.port() != 0
}

/// True: a socket on `[::]` has the port for IPv4, too, as it has on every Linux that is not told
/// otherwise.
fn is_dual() -> bool {
    let alone = std::fs::read_to_string("/proc/sys/net/ipv6/bindv6only");
    !alone.is_ok_and(|alone| alone.trim() == "1")
}

/// The first problem, if there is any.
pub(super) fn first(problems: Vec<ServerError>) -> Result<(), ServerError> {
    problems.into_iter().next().map_or(Ok(()), Err)
}

impl Problems {
    /// Notes an invalid value, and what to use instead.
    fn unless(&mut self, good: bool, key: &'static str, value: impl ToString, want: impl Display) {
        self.refuse(good, key, value, || format!("invalid; use {want}"));
    }

    /// Notes a value that is out of its range.
    fn within(&mut self, good: bool, key: &'static str, value: impl ToString, range: impl Display) {
        self.refuse(good, key, value, || format!("out of range ({range})"));
    }

    fn refuse(
        &mut self,
        good: bool,
        key: &'static str,
        value: impl ToString,
        why: impl FnOnce() -> String,
    ) {
        if !good {
            self.0.push(ServerError::BadValue {
                key,
                value: value.to_string(),
                why: why(),
            });
        }
    }
}

impl ServeConfig {
    /// This configuration, checked, with everything filled in that follows from other values.
    ///
    /// # Errors
    /// The first value that does not make sense.
    pub fn checked(mut self) -> Result<Self, ServerError> {
        first(self.check())?;
        Ok(self)
    }

    /// Every problem.
    pub(crate) fn check(&mut self) -> Vec<ServerError> {
        let mut problems = Problems(self.check_values());
        self.check_stores(&mut problems);
        problems.0
    }

    /// Every problem but those of the stores.
    pub(super) fn check_values(&mut self) -> Vec<ServerError> {
        let mut problems = Problems::default();
        self.drop_empty();
        self.check_addresses(&mut problems);
        self.check_urls(&mut problems);
        self.check_domains(&mut problems);
        self.check_numbers(&mut problems);
        self.check_sizes(&mut problems);
        self.fill();
        problems.0
    }

    /// Settles everything that follows from other values, after the checks: what nobody wrote is no
    /// problem.
    fn fill(&mut self) {
        self.put_memory = Some(self.put_memory());
        self.get_memory = Some(self.get_memory());
        self.max_overtakes = Some(self.max_overtakes());
        // Numbers of a TOML file have 63 bits.
        self.overload_threshold = Some(self.overload_threshold().min(usize::MAX >> 1));
        self.checkpoint_records = self.checkpoint_records.min(u64::MAX >> 1);
    }

    /// A variable that is set to nothing sets nothing.
    fn drop_empty(&mut self) {
        for text in [
            &mut self.machine,
            &mut self.s3_store,
            &mut self.otlp_endpoint,
            &mut self.trace_url,
        ] {
            text.take_if(|text| text.is_empty());
        }
    }

    fn check_stores(&self, problems: &mut Problems) {
        if self.stores.is_empty() {
            problems.0.push(ServerError::NoStores);
        }
        for (i, store) in self.stores.iter().enumerate() {
            if self.stores[..i]
                .iter()
                .any(|other| other.name == store.name)
            {
                let name = store.name.clone();
                problems.0.push(ServerError::DuplicateName { name });
            }
        }
        let is_there = |name: &String| self.stores.iter().any(|store| store.name == *name);
        for name in &self.take_over {
            problems.unless(
                is_there(name),
                "take-over",
                name,
                "the name of one of the stores",
            );
        }
        let given = self.s3_store.clone().unwrap_or_default();
        let good = self.s3_listen.is_none() || given.is_empty() || is_there(&given);
        problems.unless(good, "s3-store", given, "the name of one of the stores");
    }

    fn check_domains(&self, problems: &mut Problems) {
        let is_label = |label: &str| {
            let known =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=63).contains(&label.len()) && label.bytes().all(known)
        };
        for domain in &self.s3_domain {
            let good = domain.split('.').all(is_label) && domain.parse::<IpAddr>().is_err();
            let want = "a DNS name in small letters, without a port, e.g. s3.example.org";
            problems.unless(good, "s3-domain", domain, want);
        }
    }

    /// Other machines get in only when strangers are kept out.
    fn check_addresses(&self, problems: &mut Problems) {
        let missing = match (&self.tls_cert, &self.tls_key, &self.tls_client_ca) {
            (Some(_), Some(_), _) | (None, None, None) => None,
            (None, ..) => Some("tls-cert"),
            (Some(_), None, _) => Some("tls-key"),
        };
        if let Some(missing) = missing {
            problems.0.push(ServerError::TlsIncomplete { missing });
        }
        let good = self.tls_client_crl.is_none() || self.tls_client_ca.is_some();
        let want = "it with tls-client-ca, whose certificates it revokes";
        let given = self.tls_client_crl.as_deref().unwrap_or(Path::new(""));
        problems.unless(good, "tls-client-crl", given.display(), want);
        let tls = self.tls();
        let known = |ca: bool| self.tokens.is_some() || ca;
        let safe = tls
            .as_ref()
            .is_some_and(|tls| known(tls.client_ca.is_some()));
        // Every request of S3 is signed, so TLS alone keeps strangers out.
        for (key, address, safe) in [
            ("s3-listen", self.s3_listen, tls.is_some()),
            ("listen", Some(self.listen), safe),
            ("metrics-listen", Some(self.metrics_listen), safe),
        ] {
            let remote = address.filter(|address| !address.ip().is_loopback());
            if let Some(address) = remote.filter(|_| !safe && !self.allow_remote) {
                problems.0.push(ServerError::RemoteRefused { key, address });
            }
        }
        let sockets = [
            ("metrics-listen", Some(self.metrics_listen)),
            ("s3-listen", self.s3_listen),
        ];
        let (mut before, dual) = (vec![("listen", self.listen)], is_dual());
        for (key, address) in sockets {
            let Some(address) = address else { continue };
            let first = before.iter().find(|(_, it)| meet(*it, address, dual));
            if let Some((other, taken)) = first {
                problems.refuse(false, key, address, || {
                    format!("taken by {other} = {taken}; use another port")
                });
            }
            before.push((key, address));
        }
        let good = self.s3_listen.is_none() || self.s3_credentials.is_some();
        let want = "a file of access keys, which s3-listen needs";
        problems.unless(good, "s3-credentials", "no file", want);
    }

    fn check_urls(&self, problems: &mut Problems) {
        let parsed = |url: &str| {
            let url = url.parse::<http::Uri>().ok()?;
            let host = url.host().is_some_and(|host| !host.is_empty());
            host.then_some(url)
        };
        if let Some(given) = &self.otlp_endpoint {
            let url = parsed(given).filter(|url| matches!(url.path(), "" | "/"));
            let scheme = url.as_ref().and_then(http::Uri::scheme_str);
            let good = matches!(scheme, Some("http" | "https"));
            problems.unless(
                good,
                "otlp-endpoint",
                given,
                "http://HOST:PORT or https://HOST:PORT",
            );
            let host = url.as_ref().and_then(http::Uri::host).unwrap_or_default();
            let variable = HEADERS
                .into_iter()
                .find(|name| std::env::var_os(name).is_some());
            if let (Some("http"), false, Some(variable)) = (scheme, is_here(host), variable) {
                problems.0.push(ServerError::TokenInClear {
                    key: "otlp-endpoint",
                    url: given.clone(),
                    variable,
                });
            }
        }
        if let Some(given) = &self.trace_url {
            let url = given.replace(TRACE_ID, "0af7651916cd43dd8448eb211c80319c");
            let web = |url: http::Uri| matches!(url.scheme_str(), Some("http" | "https"));
            let good = given.contains(TRACE_ID) && parsed(&url).is_some_and(web);
            let want = "http:// or https:// with {trace_id} where the id of the trace belongs";
            problems.unless(good, "trace-url", given, want);
        }
    }

    fn check_numbers(&self, problems: &mut Problems) {
        let good = (0.0..=1.0).contains(&self.trace_ratio);
        problems.within(good, "trace-ratio", self.trace_ratio, "0 to 1");
        for (key, value, most) in [
            ("queue-depth", self.queue_depth, 4096),
            ("queue-limit", self.queue_limit, 1 << 20),
            ("max-connections", self.max_connections, 1 << 20),
            ("max-streams", self.max_streams as usize, 1 << 16),
        ] {
            problems.within(
                (1..=most).contains(&value),
                key,
                value,
                format!("1 to {most}"),
            );
        }
        for (key, zero, want) in [
            (
                "overload-threshold",
                self.overload_threshold() == 0,
                "at least 1",
            ),
            (
                "scrub-interval",
                self.scrub_interval.is_zero(),
                "at least 1 hour",
            ),
            (
                "body-timeout",
                self.body_timeout.is_zero(),
                "at least 1 second",
            ),
            (
                "handshake-timeout",
                self.handshake_timeout.is_zero(),
                "at least 1 second",
            ),
        ] {
            problems.within(!zero, key, 0, want);
        }
        let drain = self.drain_timeout;
        let (good, want) = (drain <= MAX_DRAIN, "0 to 600 seconds");
        problems.within(good, "drain-timeout", drain.as_secs(), want);
    }

    fn check_sizes(&self, problems: &mut Problems) {
        let budget = self.buffer_budget;
        let given = [
            ("put-memory", self.put_memory, 1 << 20, 1 << 40),
            ("get-memory", self.get_memory, 1 << 20, 1 << 40),
        ];
        let given = given
            .into_iter()
            .filter_map(|(key, size, least, most)| Some((key, size?, least, most)));
        for (key, size, least, most) in [
            ("max-header-bytes", self.max_header_bytes, 1 << 10, 1 << 20),
            ("stream-window", self.stream_window, 64 << 10, 1 << 30),
            (
                "connection-window",
                self.connection_window,
                64 << 10,
                1 << 30,
            ),
            (
                "connection-memory",
                self.connection_memory,
                16 << 20,
                1 << 40,
            ),
            ("frame-size", self.frame_size, 16 << 10, 8 << 20),
            ("max-message", self.max_message, 4 << 10, 1 << 30),
            ("s3-max-body", self.s3_max_body, 1 << 20, 5 << 30),
            // A lump of the largest size must fit.
            ("buffer-budget", budget, 256 << 20, 1 << 40),
        ]
        .into_iter()
        .chain(given)
        {
            let want = format!("{} to {}", Size(least), Size(most));
            problems.within((least..=most).contains(&size.0), key, size, want);
        }
        // A store must have room for what the service lets in: puts get three quarters of its buffers.
        let most = budget.0 - budget.0 / 4;
        if let Some(put) = self.put_memory.filter(|put| put.0 > most) {
            problems.within(false, "put-memory", put, "at most 3/4 of buffer-budget");
        }
        let rest = budget.0.saturating_sub(self.put_memory().0);
        if let Some(get) = self.get_memory.filter(|get| get.0 > rest) {
            let want = "at most buffer-budget less put-memory";
            problems.within(false, "get-memory", get, want);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As bind and listen answer on Linux, in either order.
    #[test]
    fn addresses_meet_where_the_kernel_refuses_the_second() {
        for (one, other, apart, dual) in [
            ("127.0.0.1:7", "127.0.0.1:7", true, true),
            ("127.0.0.1:7", "127.0.0.2:7", false, false),
            ("127.0.0.1:7", "127.0.0.1:8", false, false),
            ("127.0.0.1:0", "127.0.0.1:0", false, false),
            ("0.0.0.0:7", "127.0.0.1:7", true, true),
            ("0.0.0.0:7", "[::1]:7", false, false),
            ("127.0.0.1:7", "[::1]:7", false, false),
            ("[::ffff:127.0.0.1]:7", "127.0.0.1:7", true, true),
            ("[::ffff:127.0.0.1]:7", "[::1]:7", false, false),
            ("[::ffff:0.0.0.0]:7", "127.0.0.1:7", true, true),
            ("[::ffff:0.0.0.0]:7", "[::1]:7", false, false),
            ("[::]:7", "[::1]:7", true, true),
            ("[::]:7", "127.0.0.1:7", false, true),
            ("[::]:7", "0.0.0.0:7", false, true),
            ("[::]:7", "[::ffff:127.0.0.1]:7", false, true),
            ("[::]:7", "127.0.0.1:8", false, false),
        ] {
            let (a, b) = (one.parse().unwrap(), other.parse().unwrap());
            for (a, b) in [(a, b), (b, a)] {
                let found = (meet(a, b, false), meet(a, b, true));
                assert_eq!(found, (apart, dual), "{a} and {b}");
            }
        }
    }
}
