//! Where connections come in: TCP and UNIX socket, TLS, tokens, and the limits that keep one client
//! from taking what the others need.
//!
//! ```text
//! accept.rs ─▶ handshake.rs (tls.rs) ─▶ io.rs ─▶ tonic or axum
//!     │                                   │          │ every request: its Connection, its Caller
//!     └ limits, idle, stop                └ close()  └ grpc/auth.rs, http/ ─▶ reload.rs (logins.rs)
//! ```
//!
//! A request over the UNIX socket needs no token: whoever can open the socket has logged in with
//! the file system. Over TCP every request needs one as soon as there is a file of tokens, on a
//! loopback address too, because other users of the machine can reach it.

mod accept;
mod authority;
mod caller;
mod connection;
mod crowd;
mod handshake;
mod http1;
mod io;
mod keys;
mod logins;
mod metrics;
mod reload;
mod revocation;
mod tls;
mod unix;

use std::path::Path;
use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::watch;

pub use caller::{Caller, Right};
pub use connection::{ActiveCall, Connection, Peer};
pub use http1::{HttpLimits, serve_http};
pub use keys::{Access, Credentials, Grants};
pub use logins::Denied;
pub use metrics::{DoorMetrics, ENTRANCES};
pub use reload::{Reloaded, Reloader};

pub use accept::{Entrance, Leave, Listener, accept};
pub use handshake::Protocol;
pub use io::Admitted;
pub(crate) use unix::{SocketFile, listen as listen_unix};

use crate::config::ServeConfig;
use crate::error::ServerError;

/// State shared by all entrances. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Door {
    /// The certificate and the logins in force.
    pub reloader: Arc<Reloader>,
    /// Counters of the door.
    pub metrics: Arc<DoorMetrics>,
}

impl Door {
    /// Reads certificates and tokens.
    ///
    /// # Errors
    /// A file that cannot be read or used.
    pub fn new(config: &ServeConfig) -> Result<Self, ServerError> {
        let metrics = Arc::new(DoorMetrics::default());
        let reloader = Arc::new(Reloader::new(config, Arc::clone(&metrics))?);
        Ok(Self { reloader, metrics })
    }

    /// Caller of a request with these headers on this connection.
    ///
    /// # Errors
    /// Why the caller is not known; it has been counted and logged.
    pub fn caller(
        &self,
        connection: Option<&Connection>,
        headers: &HeaderMap,
    ) -> Result<Caller, Denied> {
        let caller = self.reloader.caller(connection, headers);
        match (&caller, connection) {
            (Ok(_), Some(connection)) => connection.log_in(),
            (Ok(_), None) => {}
            (Err(denied), _) => self.metrics.login_failed(connection, denied.reason(), ""),
        }
        caller
    }
}

/// Completes when the login of a call is in force no more, and says why.
pub fn withdrawn(
    caller: &Caller,
    connection: Option<&Connection>,
) -> impl Future<Output = Denied> + Send + use<> {
    let caller = caller.withdrawn().clone();
    let connection = connection.map(|connection| connection.withdrawn().clone());
    async move {
        let certificate = async {
            match connection {
                Some(certificate) => certificate.cancelled_owned().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = caller.cancelled() => Denied::Unknown,
            () = certificate => Denied::Certificate,
        }
    }
}

/// Completes when the service is told to stop.
pub async fn told(mut stopped: watch::Receiver<bool>) {
    // An error means that the service is gone, which is a stop too.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Caller of `headers` if the file of tokens had these bytes. For the fuzz targets.
///
/// # Errors
/// The file has a mistake; inside, why the caller is not known.
#[doc(hidden)]
pub fn try_login(file: &[u8], headers: &HeaderMap) -> Result<Result<Caller, Denied>, ServerError> {
    let logins = logins::Logins::of_file(Path::new("tokens.toml"), file)?;
    Ok(logins.caller(None, headers))
}
