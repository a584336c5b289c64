//! Puts and gets of 1 MiB at several depths: `throughput FILE [LUMPS [COMMIT [BYTES]]]`, COMMIT
//! `ordered`, `checked` or `runs`, BYTES of a lump.
//!
//! Makes a store in FILE (a new file, or an empty block device), measures, and removes the file. The numbers say what the engine and the disk
//! do together, without a network.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use crossbeam_channel::bounded;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::{
    CommitMode, Durability, IoBackendChoice, LumpId, Placement, RequestCtx, Store, StoreOptions,
};

const LUMP: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: throughput FILE [LUMPS]")?;
    let lumps: u64 = arguments.next().map_or(Ok(256), |lumps| lumps.parse())?;
    let commit = match arguments.next().as_deref() {
        None => CommitMode::Auto,
        Some("ordered") => CommitMode::Ordered,
        Some("checked") => CommitMode::Checked,
        Some("runs") => CommitMode::Runs,
        Some(other) => return Err(format!("no way to commit: {other}").into()),
    };
    let bytes: u64 = arguments.next().map_or(Ok(LUMP), |bytes| bytes.parse())?;
    let path = Path::new(&path);
    let capacity = Some((2 * lumps + 64) * (bytes + 4096));
    format(
        path,
        &CreateOptions {
            capacity,
            ..CreateOptions::default()
        },
    )?;
    for io_backend in [IoBackendChoice::Uring, IoBackendChoice::Threads] {
        let mut options = StoreOptions::new("throughput");
        options.io_backend = io_backend;
        options.commit = commit;
        let store = Store::open(path, options)?;
        for depth in [1, 8, 32] {
            run(&store, "put", (lumps, bytes), depth, put)?;
            run(&store, "get", (lumps, bytes), depth, get)?;
        }
        store.close()?;
    }
    if std::fs::metadata(path)?.is_file() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

type Submit = fn(&Store, LumpId, &[u8], Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn Error>>;

fn run(
    store: &Store,
    what: &str,
    (lumps, bytes): (u64, u64),
    depth: usize,
    submit: Submit,
) -> Result<(), Box<dyn Error>> {
    let before = store.stats();
    let payload: Vec<u8> = (0..bytes)
        .map(|at| u8::try_from(at % 251).unwrap_or(0))
        .collect();
    let (permits, returned) = bounded(depth);
    for _ in 0..depth {
        permits.send(())?;
    }
    let begin = Instant::now();
    for id in 0..lumps {
        returned.recv()?;
        let permits = permits.clone();
        let done = Box::new(move || {
            permits
                .send(())
                .expect("the receiver outlives the requests")
        });
        submit(store, LumpId(id.into()), &payload, done)?;
    }
    for _ in 0..depth {
        returned.recv()?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let per_lump = 1.0 / f64::from(u32::try_from(lumps)?);
    let rate = 1.0 / (per_lump * seconds);
    let backend = store.info().backend.name();
    let rate = rate * f64::from(u32::try_from(bytes)?) / f64::from(1 << 20);
    let after = store.stats();
    let each = |count: u64| u32::try_from(count).map(|count| f64::from(count) * per_lump);
    let writes = each(after.writes - before.writes)?;
    let flushes = each(after.flushes - before.flushes)?;
    println!(
        "{backend:8} {what} depth {depth:2}: {rate:7.1} MiB/s, {writes:.2} writes and {flushes:.2} \
         flushes each"
    );
    Ok(())
}

fn put(
    store: &Store,
    id: LumpId,
    payload: &[u8],
    done: Box<dyn FnOnce() + Send>,
) -> Result<(), Box<dyn Error>> {
    let mut buf = store.lump_buf(payload.len() as u64)?;
    buf.extend(payload)?;
    let on_done = Box::new(move |result: Result<_, lumpscope_engine::Error>, _| {
        result.expect("the store has room and the disk works");
        done();
    });
    let (ctx, placement) = (RequestCtx::default(), Placement::Data);
    Ok(store.submit_put(ctx, id, buf, placement, Durability::Synced, on_done)?)
}

fn get(
    store: &Store,
    id: LumpId,
    payload: &[u8],
    done: Box<dyn FnOnce() + Send>,
) -> Result<(), Box<dyn Error>> {
    let len = payload.len();
    let on_done = Box::new(move |result: Result<lumpscope_engine::LumpData, _>, _| {
        assert_eq!(result.expect("the lump was put before").len(), len);
        done();
    });
    Ok(store.submit_get(RequestCtx::default(), id, on_done)?)
}
