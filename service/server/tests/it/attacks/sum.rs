//! Must not achieve: to make the service hold more than it says it may, with the worst that known
//! clients can do together. It runs in a cgroup of that size, where one can be made.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::buffers::{bytes_of_puts, hide, paths};
use super::memory::{Withheld, attack, watch, withheld};
use super::victim::{Locks, Victim};
use crate::abuse::wire::put_header;
use crate::common::{body, channel, get, put};
use crate::door::harness::LONG;

const MIB: u64 = 1 << 20;

/// A cgroup with a limit of memory; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Puts a process into a cgroup of its own; `None`: none can be made here.
    fn confine(pid: u32, limit: u64) -> Option<Self> {
        for (controller, file) in [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ] {
            let folder = PathBuf::from(controller).join(format!("lumpscope-attack-{pid}"));
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            let cgroup = Self(folder.clone());
            let limited = set(&folder.join(file), limit);
            let moved = set(&folder.join("cgroup.procs"), pid.into());
            if limited.and(moved).is_ok() {
                return Some(cgroup);
            }
        }
        None
    }
}

/// Writes a file of a cgroup; where there is none, the folder is not one.
fn set(file: &Path, value: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(file)?;
    file.write_all(value.to_string().as_bytes())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The process that was in it may take a moment to be gone.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A put of 4 MiB of which the last bytes do not come.
fn unfinished_put() -> Withheld {
    let mut bytes = put_header(1 << 91, 4 * MIB).to_vec();
    bytes.extend_from_slice(&withheld(1 << 20));
    Withheld {
        path: "/lumpscope.v1.LumpStore/Put",
        token: None,
        filling: 8 << 10,
        bytes: bytes.into(),
    }
}

fn unfinished(path: &'static str, len: usize) -> Withheld {
    Withheld {
        path,
        token: None,
        filling: 14 << 10,
        bytes: withheld(len),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worst_mix_of_known_clients() {
    let sizes = [
        ("put-memory", 32 * MIB),
        ("get-memory", 32 * MIB),
        ("connection-memory", 64 * MIB),
    ];
    let victim = Victim::with(Locks::None, &sizes);
    let sum = victim.sum();
    let cgroup = Cgroup::confine(victim.pid(), sum);
    eprintln!("sum: {} MiB, cgroup: {}", sum >> 20, cgroup.is_some());
    let grpc = victim.grpc;
    let mut clients = JoinSet::new();
    for number in 0..40 {
        clients.spawn(async move {
            match number % 5 {
                0 => drop(hide(grpc, paths()).await),
                1 => {
                    let _open = hide(grpc, bytes_of_puts(60)).await;
                    std::future::pending().await
                }
                kind => {
                    let call = match kind {
                        2 => unfinished_put(),
                        3 => unfinished("/lumpscope.v1.LumpStore/PutSmall", 1 << 20),
                        _ => unfinished("/lumpscope.v1.LumpStore/DeleteMany", 1 << 20),
                    };
                    let stream = TcpStream::connect(grpc).await.unwrap();
                    attack(stream, call).await;
                }
            }
        });
    }
    watch(&victim, sum).await;
    let mut client = LumpStoreClient::new(channel(&format!("http://{grpc}")).await);
    // Small enough for the reserve: what is larger waits for those that hold the memory.
    for id in 1..=4 {
        let lump = body(id, 50_000);
        let stored = put(&mut client, "s", id, &lump);
        timeout(LONG, stored).await.expect("it is stored").unwrap();
        assert_eq!(get(&mut client, "s", id).await.unwrap(), lump);
    }
    assert!(victim.peak() < sum);
    clients.abort_all();
    drop(victim);
    drop(cgroup);
}
