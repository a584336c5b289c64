//! The service that is attacked: a process of its own, so that its memory is its own.

use std::fs::{File, Permissions};
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lumpscope_client::{Client, Options, Token};
use lumpscope_server::config::ServeConfig;
use lumpscope_server::memory_sum;
use lumpscope_server::serve::{ServeS3, Service};
use lumpscope_server::telemetry::logs;
use lumpscope_units::Size;

use crate::common;
use crate::door::harness::{Authority, LONG, token, tokens};

/// Names the folder of the service to the process that is it.
const FOLDER: &str = "LUMPSCOPE_VICTIM";
/// The file in which it says where it listens.
const READY: &str = "ready";
/// The file of the certificate that signs the service's.
const CA: &str = "ca.pem";
/// The file of the access keys of S3.
const KEYS: &str = "keys.toml";
/// The file of its log.
const LOG: &str = "log";
/// Most connections, which are part of the sum of memory.
const CONNECTIONS: usize = 256;
/// The token that may do everything.
pub(crate) const TOKEN: &str = "a-token-of-the-attacks";
/// That of another login, with the same rights.
pub(crate) const OTHER: &str = "a-token-of-somebody-else";

/// How the service is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    /// Neither TLS nor tokens.
    None,
    TlsAndTokens,
}

pub(crate) struct Victim {
    child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) metrics: SocketAddr,
    /// `None`: it does not serve S3.
    pub(crate) s3: Option<SocketAddr>,
    pub(crate) authority: Authority,
    folder: tempfile::TempDir,
}

impl Victim {
    pub(crate) fn start(locks: Locks) -> Self {
        Self::with(locks, &[])
    }

    /// One with other settings: the name of each and its bytes, or its seconds.
    pub(crate) fn with(locks: Locks, sizes: &[(&str, u64)]) -> Self {
        Self::with_keys(locks, sizes, "")
    }

    /// One that serves S3 to these access keys.
    pub(crate) fn with_keys(locks: Locks, sizes: &[(&str, u64)], keys: &str) -> Self {
        let folder = common::folder();
        if !keys.is_empty() {
            let file = folder.path().join(KEYS);
            std::fs::write(&file, keys).unwrap();
            std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        }
        for (name, bytes) in sizes {
            std::fs::write(folder.path().join(name), bytes.to_string()).unwrap();
        }
        common::store_file(folder.path(), "victim", 64 << 20, 4096, 0.05);
        let authority = Authority::new();
        if locks == Locks::TlsAndTokens {
            authority.files(folder.path());
            let scopes = "scopes = [\"read\", \"write\", \"observe\"]";
            let entries = [token("known", TOKEN, scopes), token("other", OTHER, scopes)];
            tokens(folder.path(), &entries);
            std::fs::write(folder.path().join(CA), &authority.pem).unwrap();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attacks::victim::the_victim_itself", "--ignored"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(folder.path().join(LOG)).unwrap())
            .spawn()
            .unwrap();
        let listening = addresses(&folder.path().join(READY));
        let [grpc, metrics] = [0, 1].map(|at| listening[at]);
        Self {
            child,
            grpc,
            metrics,
            s3: listening.get(2).copied(),
            authority,
            folder,
        }
    }

    /// A client with a token, by TLS, which tries again what was refused for a time.
    pub(crate) async fn client(&self, token: &str) -> Client {
        let mut options = Options::new(format!("https://{}", self.grpc));
        options.tls.ca = Some(self.folder.path().join(CA));
        options.tls.name = Some("localhost".to_owned());
        options.token = Some(Token::new(token).unwrap());
        Client::connect(options).await.unwrap()
    }

    pub(crate) fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join(LOG)).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Most memory that the service has had resident, in bytes.
    pub(crate) fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Memory that it has resident now.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS:")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most that clients can make it hold, as it says itself.
    pub(crate) fn sum(&self) -> u64 {
        memory_sum(&config(self.folder.path()))
    }

    fn memory(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // A process that has ended already is no trouble here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn addresses(ready: &Path) -> Vec<SocketAddr> {
    let begun = std::time::Instant::now();
    loop {
        match std::fs::read_to_string(ready) {
            Ok(text) if text.ends_with('\n') => {
                return text.lines().map(|line| line.parse().unwrap()).collect();
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
        assert!(begun.elapsed() < LONG, "the service does not start");
    }
}

fn config(folder: &Path) -> ServeConfig {
    let store = folder.join("lumpscope-victim.lusf");
    let mut config = common::config(&[("s", &store)]);
    let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
    (config.tls_cert, config.tls_key) = (file("cert.pem"), file("key.pem"));
    config.tokens = file("tokens.toml");
    config.s3_credentials = file(KEYS);
    let any = config.metrics_listen;
    config.s3_listen = config.s3_credentials.as_ref().map(|_| any);
    let number = |name: &str| -> Option<u64> {
        let text = file(name).map(|path| std::fs::read_to_string(path).unwrap());
        text.map(|text| text.parse().unwrap())
    };
    let size = |name: &str| number(name).map(Size);
    config.max_connections = CONNECTIONS;
    config.put_memory = size("put-memory").or(config.put_memory);
    config.get_memory = size("get-memory").or(config.get_memory);
    config.connection_memory = size("connection-memory").unwrap_or(config.connection_memory);
    config.buffer_budget = size("buffer-budget").unwrap_or(config.buffer_budget);
    let seconds = number("body-timeout").map(Duration::from_secs);
    config.body_timeout = seconds.unwrap_or(config.body_timeout);
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is the process that the attacks start"]
async fn the_victim_itself() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let config = config(&folder);
    logs::start(config.log_format, &config.log).unwrap();
    let serve_s3 = config.s3_listen.map(|_| lumpscope_s3::serve as ServeS3);
    let service = Service::start_with(config, serve_s3, |_, _| Ok(()));
    let service = service.await.unwrap();
    let all = [Some(service.grpc), Some(service.metrics), service.s3];
    let all = all.into_iter().flatten();
    let addresses: String = all.map(|address| format!("{address}\n")).collect();
    std::fs::write(folder.join(READY), addresses).unwrap();
    // Its parent holds the other end, and is gone when this ends.
    let parent = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    let ended = service.run_until(async {
        let _ = parent.await;
    });
    ended.await.unwrap();
}
