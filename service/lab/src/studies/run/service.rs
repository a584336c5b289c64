//! A workload on our service, through gRPC or S3.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lumpscope_client::Options;
use tempfile::TempDir;

use super::RunStats;
use super::engine::EngineRun;
use crate::failure::{cannot, peer_failed};
use crate::load::grpc::STORE;
use crate::load::runner::{self, Durability, RunError, S3Bucket, Target, random_word};
use crate::process::Interrupt;
use crate::process::{SERVICE, Server, serve};
use crate::workload::CommandStream;

/// Name of the bucket of a service that is asked through S3.
const BUCKET: &str = "lumps";

/// The command that serves a store that is there.
fn served(exe: &Path, path: &Path, probes: bool) -> Command {
    let mut command = Command::new(exe);
    serve(&mut command, [(STORE, path)], probes);
    command
}

/// Runs the commands through a service that is started for a store that is there, and ends that.
/// `exe` is the program that understands `serve`; it is started by the calling thread, and sees the
/// mounts that this thread sees.
pub(crate) fn on_service(
    exe: &Path,
    stream: &CommandStream,
    path: &Path,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let start = || start_grpc((exe, path, false), run.durability, interrupt);
    through(("gRPC", start), stream, run, interrupt)
}

/// Starts the service for a store that is there, to be asked through gRPC.
pub(crate) fn start_grpc(
    (exe, path, probes): (&Path, &Path, bool),
    durability: Durability,
    interrupt: &Interrupt,
) -> anyhow::Result<(Server, Target)> {
    let server = Server::start(SERVICE, served(exe, path, probes), interrupt)?;
    let target = Target::Service {
        service: Options::new(&server.url),
        store: STORE.to_owned(),
        durability: Some(durability),
    };
    Ok((server, target))
}

/// Runs on the service through S3: every lump is an object of one bucket. `etag`: as in `s3-etag`.
pub(crate) fn on_s3(
    (exe, etag): (&Path, &str),
    stream: &CommandStream,
    path: &Path,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let mut keys = S3Keys::new()?;
    let start = || keys.start((exe, path, etag), run.durability, interrupt);
    through(("S3", start), stream, run, interrupt)
}

/// The access key of a service that is asked through S3. Gone when dropped.
pub(crate) struct S3Keys {
    folder: TempDir,
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
        let made = false;
        Ok(S3Keys {
            folder,
            access,
            secret,
            made,
        })
    }

    /// Starts the service for a store that is there. `etag`: as in `s3-etag`.
    pub(crate) fn start(
        &mut self,
        (exe, path, etag): (&Path, &Path, &str),
        durability: Durability,
        interrupt: &Interrupt,
    ) -> anyhow::Result<(Server, Target)> {
        let durability = match durability {
            Durability::Synced => "synced",
            Durability::Journaled => "journaled",
        };
        let mut command = served(exe, path, false);
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
        Ok((server, Target::S3(bucket)))
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

/// Runs the commands through a service of our own, and once more starts it to verify.
fn through(
    (way, mut start): (&str, impl FnMut() -> anyhow::Result<(Server, Target)>),
    stream: &CommandStream,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let runtime = super::runtime()?;
    let (server, target) = start()?;
    let finished = Arc::new(AtomicU64::new(0));
    let outcome = runtime.block_on(interrupt.or_stop(runner::run(
        stream,
        &target,
        &run.options,
        finished,
    )))?;
    // Ends it in order, and waits for that.
    drop(server);
    let verified = if run.verify {
        let (_server, target) = start()?;
        let verify = runner::verify_survivors(stream, &target);
        Some(runtime.block_on(interrupt.or_stop(verify))?)
    } else {
        None
    };
    let durability = super::promise(run.durability).to_owned();
    let engine = format!("lumpscope {} through {way}", env!("CARGO_PKG_VERSION"));
    Ok(RunStats::new(engine, durability, outcome, verified))
}

/// Runs the commands on an empty store of a service that runs already, and deletes what they put.
/// It cannot be reopened, so what lives is compared without that.
pub(crate) fn on_running_service(
    target: &Target,
    stream: &CommandStream,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let runtime = super::runtime()?;
    runtime.block_on(interrupt.or_stop(runner::insist_on_empty(target)))?;
    let done = runtime.block_on(interrupt.or_stop(async {
        let finished = Arc::new(AtomicU64::new(0));
        let outcome = runner::run(stream, target, &run.options, finished).await?;
        let verified = if run.verify {
            Some(runner::verify_survivors(stream, target).await?)
        } else {
            None
        };
        Ok::<_, RunError>((outcome, verified))
    }));
    // The store was empty: whatever became of the run, what is there now is ours.
    let cleared = runtime.block_on(runner::delete_all(stream, target));
    let (outcome, verified) = done?;
    cleared?;
    let durability = super::promise(run.durability).to_owned();
    let engine = "a running service through gRPC".to_owned();
    Ok(RunStats::new(engine, durability, outcome, verified))
}
