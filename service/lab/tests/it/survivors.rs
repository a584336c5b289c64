//! Verification on a real engine in a file: it passes when all is well, and finds each way in
//! which a store can be wrong.
use std::time::Duration;

use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::{Durability as Durable, LumpId, Placement, RequestCtx, Store, StoreOptions};
use lumpscope_lab::load::runner::{
    Durability, Mismatch, RunError, RunOptions, Target, Verified, run, verify_survivors,
};
use lumpscope_lab::workload::{Command, CommandStream, Workload};

const TEXT: &str = "Command { 20.times { New(5000); }; Embed(100); New(0); }
    Unordered[100] { <20%> OverWrite(3K); <40%> Get; <20%> New(1K); <20%> Delete; }
    Command { DeleteRange(10, 50); 5.times { Get; }; }";

const OPTIONS: RunOptions = RunOptions {
    clients: 4,
    verify_bytes: true,
    skip: 0,
    time: None,
};

struct Ran {
    stream: CommandStream,
    store: Store,
    _folder: tempfile::TempDir,
}

fn target(store: &Store) -> Target {
    Target::Engine {
        store: store.clone(),
        durability: Durability::Journaled,
    }
}

async fn ran(text: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = CreateOptions {
        capacity: Some(16 << 20),
        journal_ratio: 0.2,
        ..CreateOptions::default()
    };
    format(&path, &options).unwrap();
    let stream = Workload::parse(text).unwrap().generate().unwrap();
    let store = Store::open(&path, StoreOptions::new("test")).unwrap();
    let on = target(&store);
    let outcome = run(&stream, &on, &OPTIONS).await.unwrap();
    drop(on);
    let counted = outcome.latencies.overall().unwrap().count;
    assert_eq!(counted, stream.commands.len());
    store.close().unwrap();
    let store = Store::open(&path, StoreOptions::new("test")).unwrap();
    Ran {
        stream,
        store,
        _folder: folder,
    }
}

impl Ran {
    async fn verify(&self) -> Result<Verified, RunError> {
        verify_survivors(&self.stream, &target(&self.store)).await
    }

    async fn wrong(&self) -> Mismatch {
        match self.verify().await {
            Err(RunError::Wrong { what, .. }) => what,
            other => panic!("nothing wrong was found: {other:?}"),
        }
    }

    fn put(&self, id: u64, bytes: &[u8]) {
        let mut lump = self.store.lump_buf(bytes.len() as u64).unwrap();
        lump.extend(bytes).unwrap();
        let (ctx, id) = (RequestCtx::default(), LumpId(id.into()));
        let put = self
            .store
            .put(ctx, id, lump, Placement::Data, Durable::Journaled);
        put.unwrap();
    }

    fn get(&self, id: u64) -> Vec<u8> {
        let lump = self.store.get(RequestCtx::default(), LumpId(id.into()));
        lump.unwrap()[..].to_vec()
    }

    fn delete(&self, id: u64) {
        let (ctx, id) = (RequestCtx::default(), LumpId(id.into()));
        self.store.delete(ctx, id, Durable::Journaled).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_lives_is_there_after_reopening() {
    let ran = ran(TEXT).await;
    let alive = ran.stream.survivors();
    let bytes = alive.values().map(|lump| lump.size).sum();
    let lumps = alive.len() as u64;
    assert!(lumps > 5);
    assert_eq!(ran.verify().await.unwrap(), Verified { lumps, bytes });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_found() {
    let ran = ran(TEXT).await;
    let alive = ran.stream.survivors();
    let (&id, _) = alive.iter().find(|(_, lump)| lump.size > 1000).unwrap();
    let right = ran.get(id);

    let mut flipped = right.clone();
    flipped[777] ^= 1;
    ran.put(id, &flipped);
    assert_eq!(ran.wrong().await, Mismatch::Byte { offset: 777 });

    ran.put(id, &right[1..]);
    let (expected, found) = (right.len() as u64, right.len() as u64 - 1);
    assert_eq!(ran.wrong().await, Mismatch::Length { expected, found });

    ran.delete(id);
    assert_eq!(ran.wrong().await, Mismatch::Lost(id.into()));

    ran.put(id, &right);
    ran.put(1 << 40, b"a stranger");
    assert_eq!(ran.wrong().await, Mismatch::Extra(1 << 40));

    ran.delete(1 << 40);
    ran.verify().await.unwrap();
}

/// The original's content does not change with an overwrite; ours does, so that this is found.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_overwrite_is_found() {
    let ran = ran("Command { New(3000); }").await;
    let old = ran.get(1);
    let mut longer = ran.stream.clone();
    longer.commands.push(Command::Put { id: 1, size: 3000 });
    let verified = verify_survivors(&longer, &target(&ran.store)).await;
    let wrong = verified.unwrap_err().to_string();
    assert!(wrong.contains("is not the byte that was put"), "{wrong}");
    assert_eq!(ran.get(1), old);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_hold_a_workload_too_and_time_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let stream = Workload::parse(TEXT).unwrap().generate().unwrap();
    let target = Target::Files {
        dir: folder.path().to_owned(),
        durability: Durability::Synced,
    };
    let outcome = run(&stream, &target, &OPTIONS);
    outcome.await.unwrap();
    let verified = verify_survivors(&stream, &target).await;
    assert_eq!(verified.unwrap().lumps, stream.survivors().len() as u64);

    let endless = "Command { 10.times { New(4K); }; 1000000.times { OverWrite(4K); }; }";
    let stream = Workload::parse(endless).unwrap().generate().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        skip: 10,
        time: Some(Duration::from_millis(50)),
        ..OPTIONS
    };
    let target = Target::Files {
        dir: folder.path().to_owned(),
        durability: Durability::Synced,
    };
    let outcome = run(&stream, &target, &options);
    let counted = outcome.await.unwrap().latencies.overall().unwrap().count;
    assert!(counted > 0 && counted < 1_000_000, "{counted}");
}
