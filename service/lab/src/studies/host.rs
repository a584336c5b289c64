//! Holders of a store while a load is put on it: our engine or service, a server that others wrote, or a
//! folder of files. All are started alike, asked alike through a [`Target`], and ended alike.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use lumpscope_client::Options;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::{Store, StoreOptions};
use tempfile::TempDir;

use crate::failure::{cannot, cannot_do, peer_failed};
use crate::load::runner::{
    self, Durability, RunOptions, RunOutcome, S3Bucket, Target, random_word,
};
use crate::process::{Children, Interrupt, SERVICE, STORE, Server, serve_one};
use crate::workload::{CommandStream, Sizing};

/// Most requests in flight.
pub(crate) const MOST_CLIENTS: usize = 1024;
/// Name of the bucket of a service that is asked through S3.
const BUCKET: &str = "lumps";

/// A store, ready to be used. Ended when dropped; [`Host::end`] also tells what goes wrong then.
pub(crate) struct Host {
    pub(crate) target: Target,
    /// Program and version, for the report.
    pub(crate) name: String,
    processes: Processes,
    /// Files of its own: keys, data, logs. Removed when the processes have ended.
    _folder: Option<Arc<TempDir>>,
}

/// The processes that work for a host.
enum Processes {
    /// The engine or the bench itself.
    This,
    Service(Box<Server>),
    Children(Children),
}

impl Host {
    /// Our engine in this process, on a store that is there. Its threads are started by the calling thread, and see
    /// the mounts that it sees.
    pub(crate) fn engine(path: &Path, durability: Durability) -> anyhow::Result<Host> {
        let options = StoreOptions {
            queue_limit: 2 * MOST_CLIENTS,
            // A queue that is long because it was asked for is no overload.
            overload_threshold: 2 * MOST_CLIENTS + 1,
            ..StoreOptions::new(STORE)
        };
        let store = Store::open(path, options).with_context(|| path.display().to_string())?;
        let backend = store.info().backend.name();
        Ok(Host {
            name: format!("lumpscope {}, {backend}", env!("CARGO_PKG_VERSION")),
            target: Target::Engine { store, durability },
            processes: Processes::This,
            _folder: None,
        })
    }

    /// Our service through gRPC, on a store that is there. `exe` is the program that understands `serve`; it is
    /// started by the calling thread, and sees the mounts that this thread sees.
    pub(crate) fn grpc(
        (exe, path, probes): (&Path, &Path, bool),
        durability: Durability,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Host> {
        let server = Server::start(SERVICE, serve_one(exe, path, probes), interrupt)?;
        let target = Target::Service {
            service: Options::new(&server.url),
            store: STORE.to_owned(),
            durability: Some(durability),
        };
        Ok(Host::service(target, "gRPC", server, None))
    }

    fn service(target: Target, way: &str, server: Server, keys: Option<Arc<TempDir>>) -> Host {
        Host {
            target,
            name: format!("lumpscope {} through {way}", env!("CARGO_PKG_VERSION")),
            processes: Processes::Service(Box::new(server)),
            _folder: keys,
        }
    }

    /// Servers that others wrote.
    pub(crate) fn children(target: Target, children: Children, folder: TempDir) -> Host {
        Host {
            target,
            name: String::new(),
            processes: Processes::Children(children),
            _folder: Some(Arc::new(folder)),
        }
    }

    /// A folder in which every lump is a file.
    pub(crate) fn files(folder: TempDir, durability: Durability) -> Host {
        Host {
            target: Target::Files {
                dir: folder.path().to_owned(),
                durability,
            },
            name: String::new(),
            processes: Processes::This,
            _folder: Some(Arc::new(folder)),
        }
    }

    /// The processes that work for it.
    pub(crate) fn pids(&self) -> BTreeSet<u32> {
        match &self.processes {
            Processes::Service(server) => BTreeSet::from([server.pid()]),
            Processes::Children(children) => children.pids().collect(),
            Processes::This => BTreeSet::from([std::process::id()]),
        }
    }

    /// `http://HOST:PORT` of our service.
    pub(crate) fn url(&self) -> &str {
        match &self.processes {
            Processes::Service(server) => &server.url,
            _ => "",
        }
    }

    /// Runs the commands on it.
    ///
    /// # Errors
    /// The first command that fails or is answered wrong ends it.
    pub(crate) fn run(
        &self,
        stream: &CommandStream,
        options: &RunOptions,
        interrupt: &Interrupt,
    ) -> anyhow::Result<RunOutcome> {
        let work = runner::run(stream, &self.target, options);
        runtime()?.block_on(interrupt.or_stop(work))
    }

    /// Ends it, in order.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        if let Target::Engine { store, .. } = self.target {
            store.close().context("the store cannot be closed")?;
        }
        Ok(())
    }
}

/// Makes a store for one run; the bytes of its data. A device or file that carries anything is refused, unless it
/// is ours to `force`.
pub(crate) fn make(
    path: &Path,
    sizing: &Sizing,
    block_size: u16,
    force: bool,
) -> anyhow::Result<Range<u64>> {
    let options = CreateOptions {
        capacity: Some(sizing.capacity_bytes),
        block_size,
        journal_ratio: sizing.journal_ratio,
        force,
        volatile: true,
        ..CreateOptions::default()
    };
    let geometry = format(path, &options)?.geometry;
    Ok(geometry.data_offset().0..geometry.end().0)
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(cannot_do("start the runtime"))
}

/// The access key of a service that is asked through S3. Gone with the last host that has it.
pub(crate) struct S3Keys {
    folder: Arc<TempDir>,
    access: String,
    secret: String,
    /// The bucket has been made.
    made: bool,
}

impl S3Keys {
    const FILE: &str = "s3.toml";

    pub(crate) fn new() -> anyhow::Result<S3Keys> {
        let failed = cannot("make a directory in", &std::env::temp_dir());
        let folder = tempfile::tempdir().map_err(failed)?;
        let keys = folder.path().join(S3Keys::FILE);
        let (access, secret) = write_keys(&keys).map_err(cannot("write", &keys))?;
        Ok(S3Keys {
            folder: Arc::new(folder),
            access,
            secret,
            made: false,
        })
    }

    /// Starts the service for a store that is there: every lump is an object of one bucket. `etag`: as in `s3-etag`.
    pub(crate) fn start(
        &mut self,
        (exe, path, etag): (&Path, &Path, &str),
        durability: Durability,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Host> {
        let durability = match durability {
            Durability::Synced => "synced",
            Durability::Journaled => "journaled",
        };
        let mut command = serve_one(exe, path, false);
        command.args(["--durability", durability, "--s3-listen", "127.0.0.1:0"]);
        command.args(["--s3-etag", etag, "--s3-credentials"]);
        command.arg(self.folder.path().join(S3Keys::FILE));
        let server = Server::start(SERVICE, command, interrupt)?;
        let failed = |why| peer_failed(SERVICE, why);
        let endpoint = server.s3.clone().unwrap_or_default();
        let bucket = S3Bucket::new(&endpoint, BUCKET, &self.access, &self.secret);
        let bucket = bucket.map_err(failed)?;
        if !std::mem::replace(&mut self.made, true) {
            bucket.create().map_err(failed)?;
        }
        let keys = Some(Arc::clone(&self.folder));
        Ok(Host::service(Target::S3(bucket), "S3", server, keys))
    }
}

/// A file with one access key that may do everything; the key and its secret.
fn write_keys(path: &Path) -> std::io::Result<(String, String)> {
    let (access, secret) = (random_word()?, random_word()?);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    write!(
        file,
        "[[key]]\nname = \"bench\"\naccess = \"{access}\"\nsecret = \"{secret}\"\n\n\
         [[key.allow]]\nbucket = \"{BUCKET}\"\nrights = [\"read\", \"write\"]\n[end]\n"
    )?;
    Ok((access, secret))
}
