//! A server that others wrote, started by us: on loopback, with credentials that nobody else
//! knows, in a directory that goes with it.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::failure::{PeerFailed, peer_failed};
use crate::load::runner::{REGION, S3Bucket, Target, WeedVolumes, random_word};
use crate::process::{Children, Interrupt, in_path};
use crate::studies::host::Host;

/// How long it may take to say its version.
const PATIENCE: Duration = Duration::from_secs(60);
/// Name of the bucket.
const BUCKET: &str = "lumps";
/// Starts tried: another process can take the port between two looks.
const STARTS: usize = 3;
/// Most ports that a server takes.
const PORTS: usize = 8;

/// A program that keeps objects in a directory.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name of the program.
    pub(super) name: &'static str,
    /// Argument that prints its version.
    version: &'static str,
    /// Says how to get it.
    how: &'static str,
    /// Arguments, environment and files that it needs.
    serve: fn(&Serving<'_>, &mut Command) -> io::Result<()>,
    /// It works when this succeeds; what is asked then.
    ready: fn(&Serving<'_>) -> Result<Target, String>,
}

/// Ports, folder and keys of a server that is to be started.
struct Serving<'a> {
    /// Ports of loopback that were free: first the one that clients ask.
    ports: [u16; PORTS],
    /// Its own, empty.
    folder: &'a Path,
    /// The access key: `GK` and 24 hexadecimal digits, which every server takes.
    key: &'a str,
    /// 64 hexadecimal digits.
    secret: &'a str,
}

pub(super) static MINIO: Kind = Kind {
    name: "minio",
    version: "--version",
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
    ready: |serving| serving.bucket(),
};

pub(super) static VERSITYGW: Kind = Kind {
    name: "versitygw",
    version: "--version",
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
    ready: |serving| serving.bucket(),
};

pub(super) static GARAGE: Kind = Kind {
    name: "garage",
    version: "--version",
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
    ready: |serving| serving.bucket(),
};

pub(super) static S3S_FS: Kind = Kind {
    name: "s3s-fs",
    version: "--version",
    how: "put it in PATH; cargo builds it: cargo install s3s-fs --features binary --locked",
    serve: |serving, command| {
        let port = serving.ports[0].to_string();
        command.args(["--host", "127.0.0.1", "--port", &port]);
        command.args(["--access-key", serving.key, "--secret-key", serving.secret]);
        command.arg(serving.data()?);
        Ok(())
    },
    ready: |serving| serving.bucket(),
};

/// `go install` refuses modules that replace others: it is built from a copy.
const WEED_HOW: &str = "put it in PATH; ./dev bench peers builds it with Go from a copy of \
                        github.com/seaweedfs/seaweedfs";

pub(super) static WEED: Kind = Kind {
    name: "weed",
    version: "version",
    how: WEED_HOW,
    serve: |serving, command| serving.weed(command),
    ready: |serving| {
        let volumes = WeedVolumes::new(&format!("127.0.0.1:{}", serving.ports[1]));
        volumes.ready()?;
        Ok(Target::Weed(volumes))
    },
};

pub(super) static WEED_S3: Kind = Kind {
    name: "weed",
    version: "version",
    how: WEED_HOW,
    serve: |serving, command| {
        serving.weed(command)?;
        let [s3, _, _, _, _, filer, filer_grpc, s3_grpc] = serving.ports;
        let keys = serving.folder.join("keys.json");
        let credentials = json!({"accessKey": serving.key, "secretKey": serving.secret});
        let may = ["Admin", "Read", "Write", "List"];
        let identity = json!({"name": "bench", "credentials": [credentials], "actions": may});
        fs::write(&keys, json!({"identities": [identity]}).to_string())?;
        command.args(["-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.arg(format!("-s3.config={}", keys.display()));
        let ports = [
            ("s3.port", s3),
            ("s3.port.grpc", s3_grpc),
            ("filer.port", filer),
            ("filer.port.grpc", filer_grpc),
        ];
        command.args(ports.map(port_argument));
        Ok(())
    },
    // Everything in buckets with fsync: what it is told by `fs.configure` of its shell.
    ready: |serving| {
        let path = "etc/seaweedfs/filer.conf?saveInside=true";
        let url = format!("http://127.0.0.1:{}/{path}", serving.ports[5]);
        let synced = json!({"locations": [{"locationPrefix": "/buckets/", "fsync": true}]});
        let told = ureq::put(url).send(synced.to_string());
        told.map_err(|error| error.to_string())?;
        serving.bucket()
    },
};

impl Serving<'_> {
    /// A directory for the objects.
    fn data(&self) -> io::Result<PathBuf> {
        let data = self.folder.join("data");
        fs::create_dir(&data)?;
        Ok(data)
    }

    /// Makes the bucket.
    fn bucket(&self) -> Result<Target, String> {
        let endpoint = format!("http://127.0.0.1:{}", self.ports[0]);
        let bucket = S3Bucket::new(&endpoint, BUCKET, self.key, self.secret)?;
        bucket.create()?;
        Ok(Target::S3(bucket))
    }

    /// SeaweedFS in one process that tells nobody of it.
    fn weed(&self, command: &mut Command) -> io::Result<()> {
        let [_, master, master_grpc, volume, volume_grpc, ..] = self.ports;
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        command.arg("-master.telemetry=false");
        command.arg(format!("-dir={}", self.data()?.display()));
        let ports = [
            ("master.port", master),
            ("master.port.grpc", master_grpc),
            ("volume.port", volume),
            ("volume.port.grpc", volume_grpc),
        ];
        command.args(ports.map(port_argument));
        Ok(())
    }

    /// Garage as it is delivered, but for places and addresses.
    fn garage(&self) -> String {
        let [s3, rpc, ..] = self.ports;
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

/// A port as SeaweedFS is told of it.
fn port_argument((name, port): (&str, u16)) -> String {
    format!("-{name}={port}")
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
        let path = in_path(self.name).ok_or_else(|| format!("it is not in PATH: {how}"))?;
        Ok(Found { kind, path })
    }
}

impl Found {
    /// First line of its version.
    pub(super) fn version(&self, interrupt: &Interrupt) -> anyhow::Result<String> {
        let mut command = Command::new(&self.path);
        command.arg(self.kind.version);
        let printed = interrupt.run(command, PATIENCE)?;
        let mut lines = printed.lines();
        Ok(lines.next().unwrap_or(self.kind.name).to_owned())
    }
}

/// Starts a program that is there over a new directory in `dir`; its files go with it.
pub(super) fn start(program: &Found, dir: &Path, interrupt: &Interrupt) -> anyhow::Result<Host> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_start(program, dir, interrupt) {
            Err(error) if error.is::<PeerFailed>() && tries < STARTS => {}
            other => return other,
        }
    }
}

fn try_start(program: &Found, dir: &Path, interrupt: &Interrupt) -> anyhow::Result<Host> {
    let kind = program.kind;
    let failed = |error: io::Error| peer_failed(kind.name, error.to_string());
    let folder = tempfile::tempdir_in(dir).map_err(failed)?;
    let word = || random_word().map_err(failed);
    let (key, secret) = (format!("GK{}", &word()?[..24]), word()? + &word()?);
    let serving = Serving {
        ports: free_ports().map_err(failed)?,
        folder: folder.path(),
        key: &key,
        secret: &secret,
    };
    let mut command = Command::new(&program.path);
    (kind.serve)(&serving, &mut command).map_err(failed)?;
    // Nothing in anybody's home.
    command.env("HOME", folder.path());
    let log = folder.path().join("log");
    let mut children = Children::default();
    children.start(command, &log).map_err(failed)?;
    let ready = || (kind.ready)(&serving);
    let target = children.wait((kind.name, &log), interrupt, ready)?;
    Ok(Host::children(target, children, folder))
}

/// Ports of loopback that nobody uses now.
pub(super) fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}
