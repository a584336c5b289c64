//! An S3 server that others wrote, started by us: on loopback, with credentials that nobody else
//! knows, in a directory that goes with it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use ureq::Agent;

use crate::failure::{PeerFailed, peer_failed};
use crate::load::runner::{S3Bucket, random_word};
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
    /// Name of the program, and of its option.
    pub(super) name: &'static str,
    /// Says how to get it.
    how: &'static str,
    /// Path of what answers when it serves.
    health: &'static str,
}

pub(super) const MINIO: Kind = Kind {
    name: "minio",
    how: "give its server with --minio, or put it in PATH; it can be built with Go: go mod init scratch && \
          go get github.com/minio/minio@latest && go build -o minio github.com/minio/minio",
    health: "/minio/health/ready",
};

pub(super) const VERSITYGW: Kind = Kind {
    name: "versitygw",
    how: "give it with --versitygw, or put it in PATH; it can be built with Go: \
          go install github.com/versity/versitygw/cmd/versitygw@latest",
    health: "/health",
};

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
    /// The given program, or the one in `PATH`.
    pub(super) fn find(&'static self, given: Option<&Path>) -> Result<Found, String> {
        let (kind, how) = (self, self.how);
        if let Some(path) = given {
            return match path.canonicalize() {
                Ok(path) if path.is_file() => Ok(Found { kind, path }),
                _ => Err(format!("there is no program {}: {how}", path.display())),
            };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut files = std::env::split_paths(&path).map(|folder| folder.join(self.name));
        let path = files.find(|file| file.is_file());
        let path = path.ok_or_else(|| format!("it is not in PATH: {how}"))?;
        Ok(Found { kind, path })
    }

    /// Arguments and environment that serve `data` at `address`.
    fn serve(&self, command: &mut Command, address: &str, data: &Path, keys: (&str, &str)) {
        let (key, secret) = keys;
        if self.name == VERSITYGW.name {
            command.args(["--port", address, "--health", self.health, "--quiet"]);
            command
                .env("ROOT_ACCESS_KEY", key)
                .env("ROOT_SECRET_KEY", secret);
            command.arg("posix").arg(data);
            return;
        }
        command.args(["server", "--quiet", "--address", address]);
        let certificates = data.parent().unwrap_or(data);
        command.arg("--certs-dir").arg(certificates).arg(data);
        command.env("MINIO_ROOT_USER", key);
        command.env("MINIO_ROOT_PASSWORD", secret);
        // No console, nobody is asked for updates.
        command
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off");
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
        let io = |error: std::io::Error| failed(error.to_string());
        let folder = tempfile::tempdir_in(dir).map_err(io)?;
        let data = folder.path().join("data");
        fs::create_dir(&data).map_err(io)?;
        let log = folder.path().join("log");
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").map_err(io)?;
            listener.local_addr().map_err(io)?.to_string()
        };
        let (key, secret) = (random_word().map_err(io)?, random_word().map_err(io)?);
        let mut command = Command::new(&program.path);
        kind.serve(&mut command, &address, &data, (&key, &secret));
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
        let endpoint = format!("http://{address}");
        let bucket = S3Bucket::new(&endpoint, BUCKET, &key, &secret).map_err(failed)?;
        let mut server = S3Server {
            child,
            bucket,
            _folder: folder,
        };
        server.wait_until_ready((kind, &endpoint), &log, interrupt)?;
        server.bucket.create().map_err(failed)?;
        Ok(server)
    }

    /// Number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_ready(
        &mut self,
        (kind, endpoint): (&Kind, &str),
        log: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let agent = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(2)))
            .build()
            .new_agent();
        let url = format!("{endpoint}{}", kind.health);
        let patience = Instant::now() + START_PATIENCE;
        while agent.get(&url).call().is_err() {
            interrupt.check()?;
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || Instant::now() > patience {
                let said = fs::read_to_string(log).unwrap_or_default();
                let said = said.trim().lines().last().unwrap_or("nothing").to_owned();
                return Err(peer_failed(
                    kind.name,
                    format!("did not serve; it said: {said}"),
                ));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already. What it stored goes: nothing need be in order.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_with_the_way_to_get_it() {
        let why = MINIO.find(Some(Path::new("/no/such/minio"))).unwrap_err();
        assert!(
            why.contains("/no/such/minio") && why.contains("go get"),
            "{why}"
        );
        assert_ne!(random_word().unwrap(), random_word().unwrap());
    }
}
