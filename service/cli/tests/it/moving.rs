//! `evacuate` and `grow`: stores moved to other disks and made larger, and disks with bad spots.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Running, body, connect, folder, get, put, store_file};
use crate::failing_disks::{Loop, text};
use crate::process::PROGRAM;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};
use lumpscope_needs::{Need, alone};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn lumpscope(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
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
                    store
                        .put(ctx, id, buf, Placement::Data, Durability::Synced)
                        .unwrap();
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
    let lumps = list.as_array().unwrap().iter();
    lumps
        .map(|lump| lump["id"].as_str().unwrap().to_owned())
        .collect()
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
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = folder();
    let small = Loop::over(dir.path().join("lumpscope-small.img"));
    let formatted = CreateOptions::default();
    let room = format(&small.device, &formatted)
        .unwrap()
        .geometry
        .data_len()
        .0;
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
    let stores: Vec<(&str, &Path)> = stores
        .iter()
        .map(|(name, path)| (*name, path.as_path()))
        .collect();
    Running::start(&stores).await
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
    assert_eq!(
        part["lumps"].as_u64().unwrap() + rest["lumps"].as_u64().unwrap(),
        10_000 - 20
    );
    let said = ends(4, &command);
    assert!(said.contains("20 lumps are missing"), "{said}");
    // A lump that somebody else has put there is left alone, unless told otherwise.
    let mut client = connect(&running.grpc).await;
    for bytes in [b"other".to_vec(), b"12345".to_vec()] {
        put(&mut client, "new", 5, &bytes.clone().into())
            .await
            .unwrap();
        let same = bytes.len() == content(5).len();
        let report = json(
            if same { 0 } else { 4 },
            &with(&["--start", "5", "--end", "6"]),
        );
        assert_eq!(report["lumps"], 0);
        let report = json(4, &with(&["--start", "5", "--end", "6", "--compare"]));
        assert_eq!(ids(&report["missing"]).len(), 1);
        assert!(get(&mut client, "new", 5).await.unwrap() == bytes);
    }
    ends(
        0,
        &with(&["--start", "5", "--end", "6", "--compare", "--replace"]),
    );
    assert!(get(&mut client, "new", 5).await.unwrap() == content(5));
    // What makes no sense is refused.
    let said = ends(1, &["evacuate", "old", "old", "--server", &running.grpc]);
    assert!(said.contains("are the same store"), "{said}");
    let said = ends(1, &["evacuate", "old", "none", "--server", &running.grpc]);
    assert!(said.contains("no store \"none\""), "{said}");
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
    assert!(
        begun.elapsed() > Duration::from_millis(800),
        "8 MiB at 8 MiB a second"
    );
    let mut client = connect(&there.grpc).await;
    for id in 1..=8 {
        assert!(get(&mut client, "new", id).await.unwrap() == bytes);
    }
    here.stop().await;
    there.stop().await;
}
