//! `evacuate` and `grow`: stores moved to other disks and made larger, and disks with bad spots.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Client, Running, body, connect, folder, get, put, raw_id, store_file};
use crate::failing_disks::{Loop, text};
use crate::process::{program, run_with};
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};
use lumpscope_needs::{LOOPS, alone};
use lumpscope_proto::v1;
use serde_json::Value;
use tonic::Code;

const MIB: u64 = 1 << 20;

fn lumpscope(arguments: &[&str]) -> Output {
    run_with(arguments, b"")
}

#[track_caller]
pub(crate) fn ends(code: i32, arguments: &[&str]) -> String {
    let output = lumpscope(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}{told}");
    said + &told
}

#[track_caller]
pub(crate) fn json(code: i32, arguments: &[&str]) -> Value {
    let output = lumpscope(&[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn open(path: &Path) -> Store {
    Store::open(path, StoreOptions::new("test")).unwrap()
}

/// Puts lumps of up to 2000 bytes, many at a time.
pub(crate) fn fill(path: &Path, lumps: std::ops::Range<u128>) {
    let store = open(path);
    std::thread::scope(|scope| {
        for part in 0..32 {
            let (store, lumps) = (&store, lumps.clone());
            scope.spawn(move || {
                for id in lumps.filter(|id| id % 32 == part) {
                    let bytes = content(id);
                    let mut buf = store.lump_buf_waiting(bytes.len() as u64).unwrap();
                    buf.extend(&bytes).unwrap();
                    let (ctx, id) = (RequestCtx::default(), LumpId(id));
                    let stored = store.put(ctx, id, buf, Placement::Data, Durability::Synced);
                    stored.unwrap();
                }
            });
        }
    });
    store.close().unwrap();
}

fn content(id: u128) -> bytes::Bytes {
    body(id, usize::try_from(id % 2000).unwrap())
}

/// Damages 20 places of a store that nobody uses; the lumps that lie there.
fn make_spots(path: &Path) -> BTreeSet<String> {
    let inspector = Inspector::open(path).unwrap();
    let lumps: Vec<_> = inspector.lumps(LumpId(0)).collect();
    drop(inspector);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let mut hit = BTreeSet::new();
    for spot in 0..20 {
        let lump = &lumps[spot * lumps.len() / 20 + 3];
        file.write_all_at(&[0xa5; 512], lump.offset).unwrap();
        hit.insert(lump.id.to_string());
    }
    hit
}

pub(crate) fn ids(list: &Value) -> BTreeSet<String> {
    let id = |lump: &Value| lump["id"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(id).collect()
}

#[track_caller]
pub(crate) fn holds(path: &Path, lumps: std::ops::Range<u128>, but: &BTreeSet<String>) {
    ends(0, &["check", text(path)]);
    let store = open(path);
    for id in lumps {
        let lump = store.get(RequestCtx::default(), LumpId(id));
        assert_eq!(lump.is_ok(), !but.contains(&LumpId(id).to_string()), "{id}");
        if let Ok(lump) = lump {
            assert!(lump[..] == content(id)[..], "{id}");
        }
    }
    store.close().unwrap();
}

#[test]
fn a_raw_disk_grows() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = folder();
    let small = Loop::over(dir.path().join("lumpscope-small.img"));
    let formatted = CreateOptions::default();
    let formatted = format(&small.device, &formatted).unwrap();
    let room = formatted.geometry.data_len().0;
    fill(&small.device, 0..1000);
    let none = BTreeSet::new();
    // The disk below becomes larger.
    let said = ends(1, &["grow", text(&small.device)]);
    assert!(said.contains("make the device larger"), "{said}");
    small.resize(96 * MIB);
    let grown = json(0, &["grow", text(&small.device)]);
    assert!(grown["after_bytes"].as_u64().unwrap() > 2 * room, "{grown}");
    holds(&small.device, 0..1000, &none);
    fill(&small.device, 1000..9000);
    holds(&small.device, 0..9000, &none);
}

async fn service(stores: &[(&str, &PathBuf)]) -> Running {
    let stores = stores.iter().map(|(name, path)| (*name, path.as_path()));
    Running::start(&stores.collect::<Vec<_>>()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_with_bad_spots_is_evacuated_while_it_is_served() {
    let dir = folder();
    let old = store_file(dir.path(), "old", 64 * MIB, 512, 0.1);
    let new = store_file(dir.path(), "new", 64 * MIB, 512, 0.1);
    fill(&old, 0..10_000);
    let lost = make_spots(&old);
    let running = service(&[("old", &old), ("new", &new)]).await;
    let command = ["evacuate", "old", "new", "--server", &running.grpc];
    let with =
        |more: &'static [&'static str]| command.iter().chain(more).copied().collect::<Vec<&str>>();
    // A range of ids, then all that is left.
    let part = json(4, &with(&["--end", "3e8", "--at-once", "16"]));
    let found: BTreeSet<String> = ids(&part["missing"]);
    assert!(found.is_subset(&lost) && found.len() < lost.len(), "{part}");
    assert_eq!(part["lumps"], 1000 - found.len());
    let rest = json(4, &with(&["--at-once", "16"]));
    assert_eq!(ids(&rest["missing"]), lost);
    assert_eq!(rest["already_there"], part["lumps"]);
    let all = part["lumps"].as_u64().unwrap() + rest["lumps"].as_u64().unwrap();
    assert_eq!(all, 10_000 - 20);
    let said = ends(4, &command);
    assert!(said.contains("20 lumps are missing"), "{said}");
    // A lump that somebody else has put there is left alone, unless told otherwise.
    let mut client = connect(&running.grpc).await;
    let five = ["--start", "5", "--end", "6"];
    for bytes in [b"other".to_vec(), b"123456".to_vec()] {
        let stored = put(&mut client, "new", 5, &bytes.clone().into()).await;
        stored.unwrap();
        let report = json(4, &[&command[..], &five].concat());
        assert_eq!(report["lumps"], 0);
        assert_eq!(report["replaced"], 0);
        assert_eq!(report["differing"].as_array().unwrap().len(), 1);
        let same = bytes.len() == content(5).len();
        let trusting = [&command[..], &five, &["--trust-lengths"]].concat();
        let said = ends(if same { 0 } else { 4 }, &trusting);
        let last = said.lines().last().unwrap();
        let trusted = last.contains("1 lump already present were not compared");
        assert!(!same || trusted, "{said}");
        assert!(get(&mut client, "new", 5).await.unwrap() == bytes);
    }
    let report = json(0, &[&command[..], &five, &["--replace"]].concat());
    assert_eq!(report["replaced"], 1);
    assert!(get(&mut client, "new", 5).await.unwrap() == content(5));
    // What makes no sense is refused.
    let said = ends(1, &["evacuate", "old", "old", "--server", &running.grpc]);
    assert!(said.contains("are the same store"), "{said}");
    for stores in [["old", "none"], ["none", "new"]] {
        let command = [&["evacuate"], &stores[..], &["--server", &running.grpc]];
        let said = ends(3, &command.concat());
        assert!(said.contains("no store \"none\""), "{said}");
    }
    running.stop().await;
    holds(&new, 0..10_000, &lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evacuation_to_another_service_is_paced_and_refuses_what_is_too_small() {
    let dir = folder();
    let old = store_file(dir.path(), "old", 32 * MIB, 4096, 0.1);
    let new = store_file(dir.path(), "new", 32 * MIB, 4096, 0.1);
    let tiny = store_file(dir.path(), "tiny", MIB, 4096, 0.1);
    let here = service(&[("old", &old)]).await;
    let there = service(&[("new", &new), ("tiny", &tiny)]).await;
    let mut client = connect(&here.grpc).await;
    let bytes = body(1, 1 << 20);
    for id in 1..=8 {
        put(&mut client, "old", id, &bytes).await.unwrap();
    }
    let to = ["--server", &here.grpc, "--to-server", &there.grpc];
    let said = ends(1, &[&["evacuate", "old", "tiny"], &to[..]].concat());
    assert!(said.contains("too small"), "{said}");
    let begun = std::time::Instant::now();
    let paced = [&["evacuate", "old", "new", "--rate", "8M"], &to[..]].concat();
    assert_eq!(json(0, &paced)["lumps"], 8);
    // 8 MiB at 8 MiB a second.
    assert!(begun.elapsed() > Duration::from_millis(800));
    let mut client = connect(&there.grpc).await;
    for id in 1..=8 {
        assert!(get(&mut client, "new", id).await.unwrap() == bytes);
    }
    here.stop().await;
    there.stop().await;
}

/// Stores old and new of a service, and the command that moves the one to the other.
struct Move {
    running: Running,
    client: Client,
    _dir: tempfile::TempDir,
}

impl Move {
    async fn new() -> Self {
        let dir = folder();
        let stores = ["old", "new"].map(|name| store_file(dir.path(), name, 64 * MIB, 4096, 0.1));
        let running = service(&[("old", &stores[0]), ("new", &stores[1])]).await;
        let client = connect(&running.grpc).await;
        Self {
            running,
            client,
            _dir: dir,
        }
    }

    async fn put(&mut self, store: &str, id: u128, seed: u128) {
        let bytes = body(seed, LEN);
        put(&mut self.client, store, id, &bytes).await.unwrap();
    }

    async fn delete(&mut self, store: &str, id: u128) {
        self.client.delete(deletion(store, id)).await.unwrap();
    }

    /// Moves, with more arguments.
    #[track_caller]
    fn evacuate(&self, code: i32, more: &[&str]) -> String {
        let command = ["evacuate", "old", "new", "--server", &self.running.grpc];
        ends(code, &[&command[..], more].concat())
    }

    /// Begins to move, slowly, and is killed when so many lumps are there.
    async fn is_killed_after(&mut self, lumps: usize) {
        let mut moving = program()
            .args(["evacuate", "old", "new", "--server", &self.running.grpc])
            .args(["--rate", "700K"])
            .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while self.ids("new").await.len() < lumps {
            let ended = moving.try_wait().unwrap();
            assert!(ended.is_none(), "it ended before it was killed: {ended:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        moving.kill().unwrap();
        moving.wait().unwrap();
    }

    #[track_caller]
    fn admin(&self, arguments: &[&str]) {
        let server = ["--server", &self.running.grpc];
        ends(0, &[&["admin"], arguments, &server].concat());
    }

    async fn ids(&mut self, store: &str) -> Vec<u128> {
        let request = v1::ListRequest {
            store: store.to_owned(),
            ..Default::default()
        };
        let reply = self.client.list(request).await.unwrap().into_inner();
        assert!(reply.next_page_token.is_empty());
        let id = |raw: &bytes::Bytes| u128::from_be_bytes(raw[..].try_into().unwrap());
        reply.ids.iter().map(id).collect()
    }

    /// Both stores have the same lumps, byte by byte.
    async fn is_equal(&mut self) {
        let ids = self.ids("old").await;
        assert_eq!(self.ids("new").await, ids);
        for id in ids {
            let old = get(&mut self.client, "old", id).await.unwrap();
            let new = get(&mut self.client, "new", id).await.unwrap();
            assert!(new == old, "{id}");
        }
    }
}

/// Bytes of each lump: none can be told from another by its length.
const LEN: usize = 70_000;

fn deletion(store: &str, id: u128) -> v1::DeleteRequest {
    v1::DeleteRequest {
        store: store.to_owned(),
        id: raw_id(id),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_between_two_passes_is_replaced_and_deleted() {
    let mut stores = Move::new().await;
    for id in 1..=3 {
        stores.put("old", id, id).await;
    }
    stores.evacuate(0, &[]);
    stores.put("old", 1, 5).await;
    stores.delete("old", 2).await;
    stores.put("old", 4, 4).await;
    let said = stores.evacuate(0, &[]);
    assert!(said.contains("1 replaced, 1 deleted"), "{said}");
    assert!(said.contains("accepts changes"), "{said}");
    stores.is_equal().await;
    // Lumps of other origin: nothing is touched, or only what is in the range.
    stores.put("new", 9, 9).await;
    let said = stores.evacuate(1, &[]);
    assert!(said.contains("has 1 lump in this range"), "{said}");
    stores.evacuate(0, &["--start", "1", "--end", "9"]);
    assert_eq!(stores.ids("new").await, [1, 3, 4, 9]);
    // A lump that was put into the target since is of other origin, too.
    stores.put("new", 1, 7).await;
    let said = stores.evacuate(4, &["--start", "1", "--end", "9"]);
    assert!(said.contains("1 lump in \"new\" that differ"), "{said}");
    assert!(get(&mut stores.client, "new", 1).await.unwrap() == body(7, LEN));
    stores.evacuate(0, &["--replace"]);
    stores.is_equal().await;
    stores.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evacuation_that_was_killed_knows_its_copies() {
    let mut stores = Move::new().await;
    for id in 1..=40 {
        stores.put("old", id, id).await;
    }
    stores.is_killed_after(3).await;
    let copied = stores.ids("new").await;
    assert!(copied.len() < 40, "it was not interrupted");
    stores.put("old", copied[0], 100).await;
    stores.delete("old", copied[1]).await;
    // Once more before it is done: the copies of both are known.
    stores.is_killed_after(copied.len() + 3).await;
    stores.put("old", copied[2], 101).await;
    let said = stores.evacuate(0, &[]);
    assert!(said.contains("2 replaced, 1 deleted"), "{said}");
    stores.is_equal().await;
    stores.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_evacuation_takes_no_lump_of_other_origin_for_its_copy() {
    let mut stores = Move::new().await;
    for id in 1..=40 {
        stores.put("old", id, id).await;
    }
    stores.is_killed_after(3).await;
    stores.put("new", 50, 50).await;
    stores.put("new", 1, 7).await;
    let said = stores.evacuate(1, &[]);
    assert!(said.contains("the first is"), "{said}");
    let said = stores.evacuate(4, &["--end", "30"]);
    assert!(said.contains("1 lump in \"new\" that differ"), "{said}");
    assert!(get(&mut stores.client, "new", 50).await.unwrap() == body(50, LEN));
    stores.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evacuation_without_a_place_for_its_note_says_so_once() {
    let mut stores = Move::new().await;
    stores.put("old", 1, 1).await;
    let output = program()
        .args(["evacuate", "old", "new", "--server", &stores.running.grpc])
        .env_remove("XDG_STATE_HOME")
        .env_remove("HOME")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let found = said.matches("cannot note").count();
    assert!(found == 1 && said.contains("nor HOME"), "{said}");
    stores.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_written_is_not_said_to_be_equal_until_it_refuses_changes() {
    let mut stores = Move::new().await;
    for id in 1..=32 {
        stores.put("old", id, id).await;
    }
    let writers = [0, 1, 2, 3].map(|n| Writer::start(&stores.running.grpc, n));
    for writer in &writers {
        writer.changes(1).await;
    }
    for _ in 0..3 {
        let said = stores.evacuate(4, &[]);
        assert!(said.contains("\"old\" was changed meanwhile"), "{said}");
    }
    stores.admin(&["drain", "old", "--changes-only"]);
    let acknowledged = stores.ids("old").await;
    for writer in writers {
        let refused = writer.end.await.unwrap();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("admin resume"), "{refused}");
    }
    assert_eq!(stores.ids("old").await, acknowledged);
    let said = stores.evacuate(0, &[]);
    let last = said.lines().last().unwrap();
    assert!(last.ends_with("and no others"), "{said}");
    stores.is_equal().await;
    // Taken back.
    stores.admin(&["resume", "old"]);
    stores.put("old", 1, 1).await;
    stores.running.stop().await;
}

/// Puts and deletes lumps of the store old until it is refused.
struct Writer {
    made: Arc<AtomicU64>,
    end: tokio::task::JoinHandle<tonic::Status>,
}

impl Writer {
    fn start(grpc: &str, number: u128) -> Self {
        let made = Arc::<AtomicU64>::default();
        let (grpc, count) = (grpc.to_owned(), Arc::clone(&made));
        let end = tokio::spawn(async move {
            let mut client = connect(&grpc).await;
            for turn in 0.. {
                let id = 1 + (turn * 4 + number) % 40;
                let done = match turn % 3 {
                    0 => client.delete(deletion("old", id)).await.map(drop),
                    _ => {
                        let bytes = body(turn, LEN);
                        put(&mut client, "old", id, &bytes).await.map(drop)
                    }
                };
                if let Err(refused) = done {
                    return refused;
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
            unreachable!()
        });
        Self { made, end }
    }

    async fn changes(&self, least: u64) {
        while self.made.load(Ordering::SeqCst) < least {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
