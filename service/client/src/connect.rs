//! Makes an endpoint from options.

use std::net::IpAddr;
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Uri};

use crate::error::Error;
use crate::options::{Options, Tls, read};

/// Interval of HTTP/2 pings on an idle connection while calls are under way.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The endpoint that the options describe.
pub(crate) fn endpoint(options: &Options) -> Result<Endpoint, Error> {
    let wrong = |why: &str| Error::Server {
        server: options.server.clone(),
        why: why.to_owned(),
    };
    let forms = "write http://HOST:PORT, https://HOST:PORT or unix:PATH";
    let mut endpoint = Endpoint::from_shared(options.server.clone()).map_err(|_| wrong(forms))?;
    if !options.server.starts_with("unix:") {
        let uri: Uri = options.server.parse().map_err(|_| wrong(forms))?;
        let host = uri.host().ok_or_else(|| wrong(forms))?;
        match uri.scheme_str() {
            Some("https") => {
                endpoint = endpoint
                    .tls_config(tls(&options.tls, &wrong)?)
                    .map_err(|error| wrong(&root_cause(&error)))?;
            }
            Some("http") => {
                if options.token.is_some() && !options.token_in_clear && !is_loopback(host) {
                    return Err(wrong(
                        "the token would travel unencrypted to another machine; use https://",
                    ));
                }
            }
            _ => return Err(wrong(forms)),
        }
    }
    Ok(endpoint
        .connect_timeout(options.connect_timeout)
        .initial_stream_window_size(options.window)
        .initial_connection_window_size(options.window)
        .max_frame_size(options.frame)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .tcp_nodelay(true))
}

fn tls(tls: &Tls, wrong: &dyn Fn(&str) -> Error) -> Result<ClientTlsConfig, Error> {
    let ca = tls.ca.as_deref().ok_or_else(|| {
        wrong(
            "https:// needs the certificate of the CA that signed the service's; for a public one, name the system's \
             file, e.g. /etc/ssl/certs/ca-certificates.crt",
        )
    })?;
    let mut config =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("CA certificate", ca)?));
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(
            read("client certificate", certificate)?,
            read("client key", key)?,
        ));
    }
    Ok(match &tls.name {
        Some(name) => config.domain_name(name),
        None => config,
    })
}

/// Whether a host of a URL is this machine. An unknown name is not looked up: it is taken for another machine.
fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The innermost reason of an error: the outer ones only say "transport error".
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::options::Token;

    #[test]
    fn servers_that_make_no_sense_are_refused_with_the_reason() {
        for (server, word) in [
            ("", "http://HOST"),
            ("10.0.0.1:50051", "http://HOST"),
            ("ftp://x:1", "http://HOST"),
            ("https://x:1", "CA"),
            ("http://example.org:1", "unencrypted"),
            ("http://10.1.2.3:1", "unencrypted"),
        ] {
            let mut options = Options::new(server);
            options.token = Some(Token::new("t").unwrap());
            let said = endpoint(&options).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        for server in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost:1",
            "unix:/run/lumpscope.sock",
        ] {
            let mut options = Options::new(server);
            options.token = Some(Token::new("t").unwrap());
            assert!(endpoint(&options).is_ok(), "{server}");
        }
    }
}
