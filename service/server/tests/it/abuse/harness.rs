//! A service that is abused, and what must be true of it afterwards.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lumpscope_proto::v1;
use lumpscope_server::config::ServeConfig;
use tokio::sync::{Mutex, MutexGuard};

use crate::common::{self, Running};

/// "It happens eventually": far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which the service gives up a put.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
/// Bytes the process may grow by, with everything the tests themselves hold.
const GROWTH: u64 = 700 << 20;
/// Metrics that must be zero at rest.
const AT_REST: [&str; 6] = [
    "lumpscope_requests_in_progress",
    "lumpscope_body_memory_bytes",
    "lumpscope_store_buffer_used_bytes",
    "lumpscope_store_queue_length",
    "lumpscope_store_pending_requests",
    "lumpscope_store_requests_in_progress",
];

/// One at a time: the memory of the process is that of one service.
static TURN: Mutex<()> = Mutex::const_new(());

pub(crate) struct Abused {
    pub(crate) service: Running,
    acknowledged: BTreeSet<u128>,
    resident: u64,
    next: u128,
    _folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Abused {
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// A service with a short patience, and whatever `change` makes of it.
    pub(crate) async fn with(change: impl FnOnce(&mut ServeConfig)) -> Self {
        let turn = TURN.lock().await;
        let folder = common::folder();
        let path = common::store_file(folder.path(), "abused", 96 << 20, 4096, 0.05);
        let mut config = common::config(&[("s", &path)]);
        config.body_timeout = SILENCE;
        change(&mut config);
        Self {
            service: Running::with(config).await,
            acknowledged: BTreeSet::new(),
            resident: resident(),
            next: 1,
            _folder: folder,
            _turn: turn,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.service.grpc["http://".len()..].parse().unwrap()
    }

    /// A lump was acknowledged to somebody.
    pub(crate) fn acknowledge(&mut self, id: u128) {
        self.acknowledged.insert(id);
    }

    /// Puts a lump of its own and reads it again.
    pub(crate) async fn works(&mut self) {
        let (id, bytes) = (self.next, common::body(self.next, 100_000));
        self.next += 1;
        let client = &mut self.service.client;
        common::put(client, "s", id, &bytes).await.unwrap();
        self.acknowledged.insert(id);
        assert_eq!(common::get(client, "s", id).await.unwrap(), bytes);
    }

    /// The sum of a metric over its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (status, text) = self.service.http_get("/metrics").await;
        assert_eq!(status, 200);
        let of_name = |line: &&str| line.split(['{', ' ']).next() == Some(name);
        let mut lines = text.lines().filter(of_name).peekable();
        assert!(lines.peek().is_some(), "no metric {name}");
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Waits until nothing is in progress and nothing held.
    pub(crate) async fn at_rest(&self) {
        let begin = Instant::now();
        for name in AT_REST {
            loop {
                let value = self.metric(name).await;
                if value.abs() < 0.5 {
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{name} stays at {value}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn lumps(&mut self) -> BTreeSet<u128> {
        let mut ids = BTreeSet::new();
        let mut request = v1::ListRequest {
            store: "s".to_owned(),
            page_size: 10_000,
            ..Default::default()
        };
        loop {
            let page = self.service.client.list(request.clone()).await.unwrap();
            let page = page.into_inner();
            let id = |raw: &bytes::Bytes| u128::from_be_bytes(raw[..].try_into().unwrap());
            ids.extend(page.ids.iter().map(id));
            if page.next_page_token.is_empty() {
                return ids;
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Everything that must be true after an abuse; then the service stops in order.
    pub(crate) async fn survived(mut self) {
        self.works().await;
        self.at_rest().await;
        let lumps = self.lumps().await;
        let partial: Vec<_> = lumps.difference(&self.acknowledged).collect();
        let lost: Vec<_> = self.acknowledged.difference(&lumps).collect();
        assert!(
            partial.is_empty(),
            "never acknowledged, but visible: {partial:?}"
        );
        assert!(lost.is_empty(), "acknowledged, but gone: {lost:?}");
        let grown = resident().saturating_sub(self.resident);
        assert!(
            grown < GROWTH,
            "the process has grown by {} MiB",
            grown >> 20
        );
        let (status, health) = self.service.http_get("/healthz").await;
        assert_eq!(status, 200, "{health}");
        self.service.stop().await;
    }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// A random generator whose seed a failing test shows. `LUMPSCOPE_SEED` repeats one.
pub(crate) fn random() -> fastrand::Rng {
    let given = std::env::var("LUMPSCOPE_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("LUMPSCOPE_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
