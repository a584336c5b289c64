//! An S3 server that others wrote, started by us: on loopback, with credentials that nobody else
//! knows, in a directory that goes with it.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::failure::{PeerFailed, peer_failed};
use crate::load::runner::{REGION, S3Bucket, random_word};
use crate::process::Interrupt;
use crate::process::tie_to_parent;

/// How long it may take to serve.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Name of the bucket.
const BUCKET: &str = "lumps";
/// Starts tried: another process can take the port between two looks.
const STARTS: usize = 3;

/// A program that serves a directory through S3.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name of the program.
    pub(super) name: &'static str,
    /// Says how to get it.
    how: &'static str,
    /// Arguments, environment and files that it needs.
    serve: fn(&Serving<'_>, &mut Command) -> io::Result<()>,
}

/// What a server is told.
struct Serving<'a> {
    /// Ports of loopback that were free: the S3 endpoint's, and another.
    ports: [u16; 2],
    /// Its own, empty.
    folder: &'a Path,
    /// The access key: `GK` and 24 hexadecimal digits, which every server takes.
    key: &'a str,
    /// 64 hexadecimal digits.
    secret: &'a str,
}

pub(super) static MINIO: Kind = Kind {
    name: "minio",
    how: "put its server in PATH; it can be built with Go: go mod init scratch && \
          go get github.com/minio/minio@latest && go build -o minio github.com/minio/minio",
    serve: |serving, command| {
        let address = format!("127.0.0.1:{}", serving.ports[0]);
        command.args(["server", "--quiet", "--address", &address]);
        command.arg("--certs-dir").arg(serving.folder);
        command.arg(serving.data()?);
        command.env("MINIO_ROOT_USER", serving.key);
        command.env("MINIO_ROOT_PASSWORD", serving.secret);
        // No console, nobody is asked for updates.
        command.env("MINIO_BROWSER", "off");
        command.env("MINIO_UPDATE", "off");
        Ok(())
    },
};

pub(super) static VERSITYGW: Kind = Kind {
    name: "versitygw",
    how: "put it in PATH; it can be built with Go: \
          go install github.com/versity/versitygw/cmd/versitygw@latest",
    serve: |serving, command| {
        let address = format!("127.0.0.1:{}", serving.ports[0]);
        command.args(["--port", &address, "--quiet", "posix"]);
        command.arg(serving.data()?);
        command.env("ROOT_ACCESS_KEY", serving.key);
        command.env("ROOT_SECRET_KEY", serving.secret);
        Ok(())
    },
};

pub(super) static GARAGE: Kind = Kind {
    name: "garage",
    how: "put it in PATH; cargo builds it in minutes: cargo install garage --locked",
    serve: |serving, command| {
        let file = serving.folder.join("garage.toml");
        fs::write(&file, serving.garage())?;
        command.arg("-c").arg(file);
        command.args(["server", "--single-node", "--default-access-key"]);
        command.env("GARAGE_DEFAULT_ACCESS_KEY", serving.key);
        command.env("GARAGE_DEFAULT_SECRET_KEY", serving.secret);
        Ok(())
    },
};

pub(super) static S3S_FS: Kind = Kind {
    name: "s3s-fs",
    how: "put it in PATH; cargo builds it: cargo install s3s-fs --features binary --locked",
    serve: |serving, command| {
        let port = serving.ports[0].to_string();
        command.args(["--host", "127.0.0.1", "--port", &port]);
        command.args(["--access-key", serving.key, "--secret-key", serving.secret]);
        command.arg(serving.data()?);
        Ok(())
    },
};

impl Serving<'_> {
    /// A directory for the objects.
    fn data(&self) -> io::Result<PathBuf> {
        let data = self.folder.join("data");
        fs::create_dir(&data)?;
        Ok(data)
    }

    /// Garage as it is delivered, but for places and addresses.
    fn garage(&self) -> String {
        let [s3, rpc] = self.ports;
        let [meta, data] = ["meta", "data"].map(|name| self.folder.join(name));
        format!(
            "metadata_dir = {meta:?}\ndata_dir = {data:?}\nreplication_factor = 1\n\
             rpc_secret = \"{}\"\nrpc_bind_addr = \"127.0.0.1:{rpc}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc}\"\n\
             [s3_api]\ns3_region = \"{REGION}\"\napi_bind_addr = \"127.0.0.1:{s3}\"\n",
            self.secret
        )
    }
}

/// The running server; killed, and its files removed, when dropped.
#[derive(Debug)]
pub(super) struct S3Server {
    child: Child,
    pub(super) bucket: S3Bucket,
    // Removed when the child is gone.
    _folder: TempDir,
}

/// A program that is there.
#[derive(Debug)]
pub(super) struct Found {
    kind: &'static Kind,
    path: PathBuf,
}

impl Kind {
    /// The one in `PATH`.
    pub(super) fn find(&'static self) -> Result<Found, String> {
        let (kind, how) = (self, self.how);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut files = std::env::split_paths(&path).map(|folder| folder.join(self.name));
        let path = files.find(|file| file.is_file());
        let path = path.ok_or_else(|| format!("it is not in PATH: {how}"))?;
        Ok(Found { kind, path })
    }
}

impl Found {
    /// First line of its version.
    pub(super) fn version(&self, interrupt: &Interrupt) -> anyhow::Result<String> {
        let mut command = Command::new(&self.path);
        command.arg("--version");
        let printed = interrupt.run(command, START_PATIENCE)?;
        let mut lines = printed.lines();
        Ok(lines.next().unwrap_or(self.kind.name).to_owned())
    }
}

impl S3Server {
    /// Starts it over a new directory in `dir`, and makes a bucket.
    pub(super) fn start(
        program: &Found,
        dir: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<S3Server> {
        let mut tries = 0;
        loop {
            tries += 1;
            match S3Server::try_start(program, dir, interrupt) {
                Err(error) if error.is::<PeerFailed>() && tries < STARTS => {}
                other => return other,
            }
        }
    }

    fn try_start(program: &Found, dir: &Path, interrupt: &Interrupt) -> anyhow::Result<S3Server> {
        let kind = program.kind;
        let failed = |why: String| peer_failed(kind.name, why);
        let io = |error: io::Error| failed(error.to_string());
        let folder = tempfile::tempdir_in(dir).map_err(io)?;
        let log = folder.path().join("log");
        let word = || random_word().map_err(io);
        let (key, secret) = (format!("GK{}", &word()?[..24]), word()? + &word()?);
        let serving = Serving {
            ports: free_ports().map_err(io)?,
            folder: folder.path(),
            key: &key,
            secret: &secret,
        };
        let mut command = Command::new(&program.path);
        (kind.serve)(&serving, &mut command).map_err(io)?;
        // Nothing in anybody's home.
        command.env("HOME", folder.path());
        let output = File::create(&log).map_err(io)?;
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(io)?);
        command.stderr(output);
        tie_to_parent(&mut command, None);
        let child = command
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let endpoint = format!("http://127.0.0.1:{}", serving.ports[0]);
        let bucket = S3Bucket::new(&endpoint, BUCKET, &key, &secret).map_err(failed)?;
        let mut server = S3Server {
            child,
            bucket,
            _folder: folder,
        };
        server.wait_until_ready(kind, &log, interrupt)?;
        Ok(server)
    }

    /// Number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// It serves when the bucket can be made.
    fn wait_until_ready(
        &mut self,
        kind: &Kind,
        log: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let patience = Instant::now() + START_PATIENCE;
        while let Err(why) = self.bucket.create() {
            interrupt.check()?;
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || Instant::now() > patience {
                let said = fs::read_to_string(log).unwrap_or_default();
                let said = said.trim().lines().last().unwrap_or("nothing").to_owned();
                return Err(peer_failed(
                    kind.name,
                    format!("did not serve ({why}); it said: {said}"),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Two ports of loopback that nobody uses now.
fn free_ports() -> io::Result<[u16; 2]> {
    let listen = || TcpListener::bind("127.0.0.1:0");
    let (one, two) = (listen()?, listen()?);
    Ok([one.local_addr()?.port(), two.local_addr()?.port()])
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already. What it stored goes: nothing need be in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
