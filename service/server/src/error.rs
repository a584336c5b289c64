//! Everything that keeps the service from starting or from ending in order.
//!
//! Each message is one line: what was wrong, where, and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the service did not start or did not end in order.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ServerError {
    /// The configuration file cannot be understood.
    #[error("{}, line {line}: {why}", path.display())]
    ConfigParse {
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        why: String,
    },
    /// A value that makes no sense.
    #[error("{key}: {value} is {why}")]
    BadValue {
        key: &'static str,
        /// The value as given.
        value: String,
        /// What is wrong with it, and what is accepted.
        why: String,
    },
    /// There is nothing to serve.
    #[error("no store is given: add --store NAME=PATH, or `store = [\"NAME=PATH\"]` to the file")]
    NoStores,
    /// Two stores with one name.
    #[error("two stores are named {name:?}: give each its own name")]
    DuplicateName { name: String },
    /// Two names for one device or file.
    #[error(
        "stores {first:?} and {second:?} are the same device or file ({}): serve it once",
        path.display()
    )]
    SameDevice {
        first: String,
        second: String,
        path: PathBuf,
    },
    /// TLS needs more than was given.
    #[error("TLS needs a certificate and its key: {missing} is missing; give both or neither")]
    TlsIncomplete { missing: &'static str },
    /// An address that other machines can reach.
    #[error(
        "{key} = {address} can be reached by other machines: give it TLS (--tls-cert, --tls-key) \
         and a login (--tokens or --tls-client-ca), use a loopback address such as 127.0.0.1, or \
         add --allow-remote if everybody on the network may do everything"
    )]
    RemoteRefused {
        key: &'static str,
        address: SocketAddr,
    },
    /// A token that others could read on its way.
    #[error(
        "{key}: {url} is another machine, to which the token of {variable} would travel unencrypted: \
         use https://, a collector on this machine, or leave the variable out"
    )]
    TokenInClear {
        key: &'static str,
        /// Where it would go.
        url: String,
        variable: &'static str,
    },
    /// A file of settings, certificates or tokens cannot be used.
    #[error("{}: {why}", path.display())]
    DoorFile { path: PathBuf, why: String },
    /// Files of the door that a reload has not taken.
    #[error(
        "{}; what these files said before stays in force, all others are reloaded",
        wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    NotReloaded {
        /// What is wrong with each.
        wrong: Vec<Self>,
    },
    /// The UNIX socket cannot be listened on.
    #[error("cannot listen on the UNIX socket {}: {why}", path.display())]
    UnixSocket { path: PathBuf, why: String },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} ({key}): {source}; choose another port, 0 for any")]
    Bind {
        key: &'static str,
        address: SocketAddr,
        source: io::Error,
    },
    /// The names of objects could not be read from a store.
    #[error("store {name:?}: its objects cannot be opened for S3: {source}")]
    OpenObjects {
        name: String,
        source: Box<lumpscope_objects::ObjectError>,
    },
    /// A store cannot be opened.
    #[error("cannot open store {name:?} at {}: {source}{}", path.display(), lacking_rights(source))]
    OpenStore {
        name: String,
        path: PathBuf,
        #[source]
        source: Box<lumpscope_engine::Error>,
    },
    /// No device has the image of a store, or several have.
    #[error("cannot open store {name:?}: {why}")]
    FindStore { name: String, why: String },
    /// A store could not be closed in order.
    #[error("store {name:?} did not close in order: {source}; check its device")]
    CloseStore {
        name: String,
        #[source]
        source: lumpscope_engine::Error,
    },
    /// The stores were not closed in time.
    #[error(
        "the stores were not closed within {} s: a disk does not answer; what was acknowledged as \
         synced is safe", after.as_secs()
    )]
    CloseLate {
        /// How long was waited.
        after: std::time::Duration,
    },
    /// The log filter cannot be understood.
    #[error("log = {filter:?} is no filter: {why}; write for example \"info\"")]
    LogFilter { filter: String, why: String },
    /// gRPC ended without being told to.
    #[error("the gRPC service ended by itself: the log says where it panicked; report this")]
    Ended,
    /// The runtime or a signal handler cannot be made.
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// An argument of a command makes no sense.
    #[error("{0}")]
    Argument(String),
    /// Privileges could not be given up.
    #[error(transparent)]
    Privileges(#[from] crate::privileges::PrivilegeError),
}

impl ServerError {
    /// The settings without which this says nothing.
    pub(crate) fn keys(&self) -> &[&'static str] {
        match self {
            Self::BadValue { key, .. } if *key == "s3-store" => &["s3-store", "store"],
            Self::BadValue { key, .. } => std::slice::from_ref(key),
            Self::NoStores => &["store"],
            Self::TlsIncomplete { missing } => std::slice::from_ref(missing),
            Self::RemoteRefused { .. } => &[
                "tls-cert",
                "tls-key",
                "tls-client-ca",
                "tokens",
                "allow-remote",
            ],
            _ => &[],
        }
    }
}

/// Remedy when the system refused.
fn lacking_rights(error: &lumpscope_engine::Error) -> &'static str {
    match error {
        lumpscope_engine::Error::System { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            "; give the user that serves the right to read and write it (a raw disk: the group \
             disk) and name its folder in add-store-from, or, when it is to be added as root, start \
             with --keep-privileges and without --user"
        }
        _ => "",
    }
}
