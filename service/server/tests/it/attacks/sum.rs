//! Must not achieve: to make the service hold more than it says it may, or to keep others waiting,
//! with the worst that clients of one login can do together. The service runs in a cgroup of that
//! size.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::ResponseFuture;
use lumpscope_client::{Body, Client, LumpId, PutOptions};
use lumpscope_proto::v1;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_stream::StreamExt as _;

use super::buffers::{bytes_of_puts, hide, paths};
use super::memory::{Withheld, attack, watch, withheld};
use super::objects::{KEYS, KINDS, S3, hold};
use super::victim::{Locks, OTHER, TOKEN, Victim};
use crate::abuse::wire::{prefixed, put_header};
use crate::common::{body, raw_id};
use crate::door::harness::{LONG, raw_tls};

const MIB: u64 = 1 << 20;
/// Kinds of attack over gRPC.
const GRPC_KINDS: usize = 12;
/// Connections of each kind of attack.
const EACH: usize = 6;
/// Calls on a connection whose replies nobody takes.
const UNREAD: usize = 100;
/// Viewers of the page who take nothing, neither of its stream nor of the slowest requests.
const VIEWERS: usize = 20;
/// Longer than any test, in seconds: nobody is given up for being slow.
const AGES: u64 = 3600;
/// A lump that is read piece by piece, and one that fits into a message.
const LARGE: u128 = 1;
const SMALL: u128 = 2;
/// Lumps that make a long list.
const MANY: u32 = 3000;

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

type Stream = TlsStream<TcpStream>;

/// A call of the attacking login that is not finished.
fn unfinished(path: &'static str, filling: usize, bytes: Bytes) -> Withheld {
    Withheld {
        path,
        token: Some(TOKEN),
        filling,
        bytes,
    }
}

/// A put of 4 MiB of which the last bytes do not come.
fn unfinished_put() -> Withheld {
    let mut bytes = put_header(1 << 91, 4 * MIB).to_vec();
    bytes.extend_from_slice(&withheld(1 << 20));
    unfinished("/lumpscope.v1.LumpStore/Put", 8 << 10, bytes.into())
}

/// Asks for replies of which the client has no room for a byte.
async fn unread(stream: Stream, path: &str, message: impl Message) {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (client, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(async move {
        // It ends with the test.
        let _ = connection.await;
    });
    let message = prefixed(0, &message.encode_to_vec());
    let mut replies: Vec<ResponseFuture> = Vec::new();
    for _ in 0..UNREAD {
        let request = http::Request::post(format!("https://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {TOKEN}"));
        let Ok(mut ready) = client.clone().ready().await else {
            break;
        };
        let (reply, mut body) = ready
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        body.send_data(message.clone(), true).unwrap();
        replies.push(reply);
    }
    std::future::pending().await
}

fn get(id: u128) -> v1::GetRequest {
    v1::GetRequest {
        store: "s".to_owned(),
        id: raw_id(id),
        ..Default::default()
    }
}

/// One connection of an attack of this kind.
async fn one(kind: usize, stream: Stream) {
    const SERVICE: &str = "/lumpscope.v1.LumpStore";
    let filling = 14 << 10;
    match kind {
        0 => {
            let _open = hide(stream, paths(120)).await;
            std::future::pending().await
        }
        1 => {
            let _open = hide(stream, bytes_of_puts(60, TOKEN)).await;
            std::future::pending().await
        }
        2 => attack(stream, unfinished_put()).await,
        3 => {
            let call = "/lumpscope.v1.LumpStore/PutSmall";
            attack(stream, unfinished(call, filling, withheld(1 << 20))).await;
        }
        4 => {
            let call = "/lumpscope.v1.LumpStore/DeleteMany";
            attack(stream, unfinished(call, filling, withheld(1 << 20))).await;
        }
        5 => {
            let call = "/lumpscope.v1.LumpStore/Head";
            attack(stream, unfinished(call, filling, withheld(100))).await;
        }
        6 => unread(stream, &format!("{SERVICE}/Get"), get(LARGE)).await,
        7 => {
            let asked = v1::GetSmallRequest {
                get: Some(get(SMALL)),
            };
            unread(stream, &format!("{SERVICE}/GetSmall"), asked).await;
        }
        8 => {
            let asked = v1::ListSlowestRequest {
                limit: u32::MAX,
                ..Default::default()
            };
            unread(stream, "/lumpscope.v1.Observe/ListSlowest", asked).await;
        }
        9 => {
            let asked = v1::TraceRequest::default();
            unread(stream, "/lumpscope.v1.Observe/Trace", asked).await;
        }
        10 => {
            let asked = v1::RecordRequest::default();
            unread(stream, "/lumpscope.v1.Observe/Record", asked).await;
        }
        _ => {
            let asked = v1::ListRequest {
                store: "s".to_owned(),
                page_size: 10_000,
                ..Default::default()
            };
            unread(stream, &format!("{SERVICE}/List"), asked).await;
        }
    }
}

/// What the attackers ask for.
async fn fill(client: &Client) {
    let options = PutOptions::default();
    for (id, len) in [(LARGE, 4 << 20), (SMALL, 1 << 20)] {
        let lump = Body::from(body(id, len));
        client.put("s", LumpId(id), lump, &options).await.unwrap();
    }
    let mut puts = JoinSet::new();
    for number in 0..MANY {
        let client = client.clone();
        let id = LumpId(1 << 64 | u128::from(number));
        puts.spawn(async move {
            let lump = Bytes::from_static(b"x");
            let stored = client
                .put_small("s", id, lump, &PutOptions::default())
                .await;
            stored.unwrap();
        });
        if puts.len() >= 64 {
            puts.join_next().await.unwrap().unwrap();
        }
    }
    puts.join_all().await;
}

/// Asks for the page's stream, or for other data of it.
async fn view(victim: &Victim, token: &str, data: &str) -> Stream {
    let stream = raw_tls(victim.metrics, &victim.authority, b"http/1.1").await;
    let mut stream = stream.unwrap();
    let asked = format!(
        "GET /api/v1/{data} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.unwrap();
    stream
}

/// Says how long something took that must be done while the attackers hold what they hold.
async fn timed<T>(what: &str, done: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let result = timeout(LONG, done).await;
    let result = result.unwrap_or_else(|_| panic!("somebody else waits for {what}"));
    eprintln!("somebody else: {what} in {:?}", begun.elapsed());
    result
}

/// Requests of another login.
async fn somebody_else(victim: &Victim) {
    let client = timed("a connection", victim.client(OTHER)).await;
    let options = PutOptions::default();
    for (id, len) in [(1 << 90, 50_000), (2 << 90, 1 << 20)] {
        let (id, lump) = (LumpId(id), body(id, len));
        let put = client.put("s", id, Body::from(lump.clone()), &options);
        timed("a put", put).await.unwrap();
        let got = timed("a get", client.get("s", id, None)).await.unwrap();
        assert!(got.bytes == lump);
        let put = client.put_small("s", id, lump.clone(), &options);
        timed("a put in one message", put).await.unwrap();
        let got = timed("a get in one message", client.get_small("s", id, None)).await;
        assert!(got.unwrap().bytes == lump);
    }
    let large = timed("a large get", client.get("s", LumpId(LARGE), None)).await;
    assert!(large.unwrap().bytes == body(LARGE, 4 << 20));
    timed("a head", client.head("s", LumpId(LARGE)))
        .await
        .unwrap();
    let listed = async { client.list("s", None, None).next().await };
    timed("a list", listed).await.unwrap().unwrap();
    let ids: Vec<_> = (0..10_000).map(|id| LumpId(3 << 90 | id)).collect();
    timed("a delete of many", client.delete_many("s", &ids))
        .await
        .unwrap();
    for (data, holds) in [("live", "event: frame"), ("slowest", "\"requests\"")] {
        let page = async {
            let mut page = view(victim, OTHER, data).await;
            let mut got = Vec::new();
            while !String::from_utf8_lossy(&got).contains(holds) {
                let read = page.read_buf(&mut got).await.unwrap();
                assert!(read > 0, "the page's data have ended");
            }
        };
        timed("the page", page).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worst_mix_of_known_clients() {
    worst_mix(32 * MIB, 64 * MIB, EACH).await;
}

/// With as much memory for connections as the default, and more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it takes a gigabyte"]
async fn the_worst_mix_with_a_gigabyte_for_connections() {
    worst_mix(64 * MIB, 1024 * MIB, 2 * EACH).await;
}

/// The mix against a service with so much memory, on so many connections of each kind.
async fn worst_mix(bodies: u64, connections: u64, each: usize) {
    let settings = [
        ("put-memory", bodies),
        ("get-memory", bodies),
        ("buffer-budget", 4 * bodies),
        ("connection-memory", connections),
        ("body-timeout", AGES),
    ];
    let victim = Victim::with_keys(Locks::TlsAndTokens, &settings, KEYS);
    let sum = victim.sum();
    let cgroup = Cgroup::confine(victim.pid(), sum);
    if cgroup.is_none() {
        lumpscope_needs::missing("a cgroup with a limit of memory cannot be made here");
    }
    // Dropped in this order: a cgroup with a process in it stays.
    let confined = (victim, cgroup);
    let victim = &confined.0;
    eprintln!("the sum: {} MiB", sum >> 20);
    let s3 = |access| S3::new(victim, access);
    fill(&victim.client(TOKEN).await).await;
    s3("AKKNOWN").fill().await;
    let mut attackers = JoinSet::new();
    for number in 0..GRPC_KINDS * each {
        let stream = raw_tls(victim.grpc, &victim.authority, b"h2")
            .await
            .unwrap();
        attackers.spawn(one(number % GRPC_KINDS, stream));
    }
    for number in 0..KINDS * each {
        let s3 = s3("AKKNOWN");
        attackers.spawn(hold(s3.connect().await, s3.attack(number % KINDS)));
    }
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS {
        viewers.push(view(victim, TOKEN, "live").await);
        viewers.push(view(victim, TOKEN, "slowest?limit=500").await);
    }
    watch(victim, sum).await;
    somebody_else(victim).await;
    timed("S3", s3("AKOTHER").serves()).await;
    assert!(
        attackers.try_join_next().is_none(),
        "the attackers hold no more what they held"
    );
    let peak = victim.peak();
    eprintln!("most memory: {} of {} MiB", peak >> 20, sum >> 20);
    assert!(peak < sum);
    attackers.abort_all();
    drop(viewers);
}
