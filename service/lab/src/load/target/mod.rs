//! The stores that a load is put on: a service through gRPC, the engine in this process, a
//! directory of files, a bucket of an S3 server, a pool of Ceph, volumes of SeaweedFS.

mod download;
mod engine;
mod files;
mod memory;
mod rados;
mod s3;
mod service;
mod weed;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use lumpscope_client::{Client, Options, Retry};
pub use lumpscope_engine::Durability;
use lumpscope_engine::Placement;

use engine::EngineClient;
use files::FilesClient;
use rados::RadosClient;
pub use rados::RadosPool;
pub use s3::S3Bucket;
use s3::S3Client;
pub(crate) use s3::{REGION, random_word};
use service::ServiceClient;
use weed::WeedClient;
pub use weed::WeedVolumes;

/// The store that a load is put on.
#[derive(Clone)]
pub enum Target {
    /// Through gRPC.
    Service {
        /// How to reach it; each call is tried once.
        service: Options,
        /// Name of the store.
        store: String,
        /// `None`: as the service is configured.
        durability: Option<Durability>,
    },
    /// In this process.
    Engine {
        /// Opened and closed by the caller.
        store: lumpscope_engine::Store,
        /// Failures that an acknowledged change survives.
        durability: Durability,
    },
    /// Every lump is a file, written with `O_DIRECT`.
    Files {
        /// An empty directory.
        dir: PathBuf,
        /// Failures that an acknowledged change survives.
        durability: Durability,
    },
    /// A bucket of an S3 server.
    S3(S3Bucket),
    /// A pool of Ceph.
    Rados(RadosPool),
    /// Volumes of SeaweedFS, each put with its fsync.
    Weed(WeedVolumes),
}

/// An answer, and how long the call took that it came from.
#[derive(Debug)]
pub struct Answer<T> {
    /// The answer itself.
    pub value: T,
    /// Time of the call alone: neither making the content nor checking it.
    pub latency: Duration,
}

impl<T> Answer<T> {
    /// Of a call that began then and has ended now.
    fn since(begin: Instant, value: T) -> Answer<T> {
        Answer {
            latency: begin.elapsed(),
            value,
        }
    }
}

/// Why one command failed; the command is added by who knows it.
#[derive(Debug)]
pub enum Failure {
    /// The store refused, or did not answer.
    Refused(Refusal),
    /// The answer contradicts what was done before.
    Wrong(Mismatch),
}

/// Refusal of a store.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The service, or the connection to it.
    #[error("{0}")]
    Service(Box<lumpscope_client::Error>),
    /// Neither of them: a file system, a server that others wrote.
    #[error("{0}")]
    Peer(String),
    /// The engine, in this process.
    #[error(transparent)]
    Engine(Box<lumpscope_engine::Error>),
}

/// How an answer differs from what must be there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Mismatch {
    #[error("{found} bytes were read where {expected} were put")]
    Length { expected: u64, found: u64 },
    #[error("CRC32C of the bytes is {found:08x}, of what was put {expected:08x}")]
    Checksum { expected: u32, found: u32 },
    /// The first byte that differs.
    #[error("byte {offset} is not the byte that was put")]
    Byte { offset: usize },
    /// True: a new lump existed already; false: an old one did not.
    #[error("{}", existed(*.0))]
    Existed(bool),
    #[error("{found} lumps were deleted where {expected} were alive")]
    Deleted { expected: u64, found: u64 },
    #[error("lump {0:032x} must be there, and is not")]
    Lost(u128),
    #[error("lump {0:032x} is there, and must not be")]
    Extra(u128),
}

fn existed(yes: bool) -> &'static str {
    match yes {
        true => "the lump was there before it was put",
        false => "the lump is gone although it was never deleted",
    }
}

impl From<Mismatch> for Failure {
    fn from(what: Mismatch) -> Failure {
        Failure::Wrong(what)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::peer(error)
    }
}

impl From<ureq::Error> for Failure {
    fn from(error: ureq::Error) -> Failure {
        Failure::peer(error)
    }
}

impl From<download::Error> for Failure {
    fn from(error: download::Error) -> Failure {
        Failure::peer(error)
    }
}

impl Failure {
    /// For what makes no answers that could be wrong.
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Failure::Refused(refusal) => refusal,
            Failure::Wrong(what) => Refusal::Peer(what.to_string()),
        }
    }

    /// For what only says why in words.
    fn peer(error: impl fmt::Display) -> Failure {
        Failure::Refused(Refusal::Peer(error.to_string()))
    }
}

/// One client of a store, with one request at a time.
#[async_trait]
pub trait StoreClient: Send {
    /// True: there was no such lump before; `None`: the store does not say.
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure>;

    /// The lump in pieces.
    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure>;

    /// True: the lump was there; `None`: the store does not say.
    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure>;

    /// All ids in ascending order.
    async fn list(&mut self) -> Result<Vec<u128>, Failure>;

    /// Deletes the ids from `start` to before `end`; answers how many there were. On a store
    /// without ranges, lists and deletes each.
    async fn delete_range(&mut self, start: u128, end: u128) -> Result<Answer<u64>, Failure> {
        let begin = Instant::now();
        let mut deleted = 0;
        let found = self.list().await?;
        for id in found.into_iter().filter(|id| (start..end).contains(id)) {
            self.delete(id).await?;
            deleted += 1;
        }
        Ok(Answer::since(begin, deleted))
    }

    /// Id of the last request in the service; `None`: requests have no ids here.
    fn last_request(&self) -> Option<u64> {
        None
    }
}

impl Target {
    /// This kind, whose acknowledged changes survive this, where that is told with each.
    pub(crate) fn with_durability(&self, wanted: Durability) -> Target {
        let mut target = self.clone();
        match &mut target {
            Target::Service { durability, .. } => *durability = Some(wanted),
            Target::Engine { durability, .. } | Target::Files { durability, .. } => {
                *durability = wanted;
            }
            Target::S3(_) | Target::Rados(_) | Target::Weed(_) => {}
        }
        target
    }

    /// A client of its own, with a connection of its own where there are connections.
    ///
    /// # Errors
    /// Nobody answers.
    pub(super) async fn connect(
        &self,
    ) -> Result<Box<dyn StoreClient>, Box<lumpscope_client::Error>> {
        Ok(match self {
            Target::Service {
                service: options,
                store,
                durability,
            } => {
                let options = Options {
                    retry: Retry::never(),
                    ..options.clone()
                };
                let client = Client::connect(options).await.map_err(Box::new)?;
                service(client, store, *durability)
            }
            Target::Engine { store, durability } => Box::new(EngineClient {
                store: store.clone(),
                durability: *durability,
            }),
            Target::Files { dir, durability } => Box::new(FilesClient::new(dir, *durability)),
            Target::S3(bucket) => Box::new(S3Client::new(bucket.clone())),
            Target::Rados(pool) => Box::new(RadosClient::new(pool.clone())),
            Target::Weed(volumes) => Box::new(WeedClient::new(volumes.clone())),
        })
    }
}

/// A client of a store of the service, on this connection; `durability` as in
/// [`Target::Service`].
#[must_use]
pub fn service(
    client: Client,
    store: &str,
    durability: Option<Durability>,
) -> Box<dyn StoreClient> {
    Box::new(ServiceClient::new(client, store, durability))
}
