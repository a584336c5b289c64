//! Every disk I/O is declared before it is done, with the requests it is done for.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::support::{Shape, buf, content, ctx_of, disk_dir, options, store_file};
use lumpscope_engine::{
    Durability, IoBackendChoice, IoDeclaration, IoOp, IoPurpose, IoSink, LumpId, Placement, Store,
};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    requests: Vec<u64>,
    purpose: IoPurpose,
    op: IoOp,
    offset: u64,
    len: u64,
}

/// An I/O with its begin and end in nanoseconds.
type Times = (Declared, u64, Option<u64>);

#[derive(Debug, Default)]
struct Recorder {
    /// By token.
    ios: Mutex<BTreeMap<u64, Times>>,
    /// Threads that are in the kernel, and for which token; 0: for an `io_uring`.
    inside: Mutex<HashMap<ThreadId, u64>>,
    /// How often threads entered for a token, and for an `io_uring`.
    entered: AtomicUsize,
    driven: AtomicUsize,
}

impl Recorder {
    fn take(&self) -> Vec<Declared> {
        let ios = std::mem::take(&mut *self.ios.lock().unwrap());
        let ended = |(io, begin, end): Times| {
            assert!(end.is_some_and(|end| begin <= end), "{io:?}");
            io
        };
        ios.into_values().map(ended).collect()
    }

    fn enter(&self, token: u64) {
        let thread = std::thread::current().id();
        let before = self.inside.lock().unwrap().insert(thread, token);
        assert_eq!(before, None, "it left before");
    }
}

impl IoSink for Recorder {
    fn submitted(&self, io: &IoDeclaration<'_>) {
        let declared = Declared {
            requests: io.requests.iter().map(|request| request.0).collect(),
            purpose: io.purpose,
            op: io.op,
            offset: io.offset,
            len: io.len,
        };
        let begun = (declared, io.begin_ns, None);
        let old = self.ios.lock().unwrap().insert(io.token, begun);
        assert!(old.is_none(), "token {} is used twice", io.token);
    }

    fn entering(&self, token: u64) {
        let known = self.ios.lock().unwrap().get(&token).map(|io| io.2);
        assert_eq!(known, Some(None), "token {token} is declared and not ended");
        self.enter(token);
        self.entered.fetch_add(1, Ordering::Relaxed);
    }

    fn drives_ring(&self) {
        self.enter(0);
        self.driven.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self) {
        let thread = std::thread::current().id();
        let left = self.inside.lock().unwrap().remove(&thread);
        assert!(left.is_some(), "it never entered");
    }

    fn completed(&self, token: u64, end_ns: u64, error: Option<i32>) {
        assert_eq!(error, None);
        self.ios.lock().unwrap().get_mut(&token).unwrap().2 = Some(end_ns);
    }
}

fn open(path: &Path, io_backend: IoBackendChoice) -> (Store, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let mut options = options();
    options.io_backend = io_backend;
    options.io_sink = Some(Arc::<Recorder>::clone(&recorder));
    (Store::open(path, options).unwrap(), recorder)
}

fn put(store: &Store, request: u64, id: u128, len: usize) {
    let (ctx, buf) = (ctx_of(request), buf(store, &content(id, 1, len)));
    let done = store.put(ctx, LumpId(id), buf, Placement::Data, Durability::Synced);
    done.unwrap();
}

#[test]
fn a_put_and_a_get_are_exactly_their_ios() {
    for backend in [IoBackendChoice::Threads, IoBackendChoice::Uring] {
        let dir = disk_dir();
        let path = store_file(&dir, Shape::new(4096, 4, 3000));
        // The first change of a store without checked copies of its headers gives it some.
        let (store, _) = open(&path, backend);
        put(&store, 6, 2, 1);
        store.close().unwrap();
        let (store, recorder) = open(&path, backend);
        let at_open = recorder.take();
        let entered = recorder.entered.load(Ordering::Relaxed);
        let driven = recorder.driven.load(Ordering::Relaxed);
        match backend {
            IoBackendChoice::Threads => assert_eq!((entered, driven), (at_open.len(), 0)),
            _ => assert!(entered == 0 && driven > 0, "{entered} {driven}"),
        }
        assert!(at_open.iter().all(|io| io.requests.is_empty()));
        assert!(at_open.iter().any(|io| io.purpose == IoPurpose::Recovery));

        let io = |requests: &[u64], purpose, op, offset, len| Declared {
            requests: requests.to_vec(),
            purpose,
            op,
            offset,
            len,
        };
        let data = 7 * 4096;
        let flush = |request| io(&[request], IoPurpose::Flush, IoOp::Flush, 0, 0);
        put(&store, 7, 1, 5_000_000);
        store.close().unwrap();
        // With room for checksums and a link behind the payload.
        let len = (5_000_000_u64 + 500 + 1024).next_multiple_of(4096);
        // The journal is written in whole pages.
        let page = u64::from(store_unit(&path)).max(4096);
        let want = [
            io(&[7], IoPurpose::LumpData, IoOp::Write, data, len),
            flush(7),
            io(&[7], IoPurpose::Journal, IoOp::Write, 8192, page),
            flush(7),
            // The copies, at close.
            io(&[], IoPurpose::JournalHeader, IoOp::Write, 0, 8192),
            io(&[], IoPurpose::Flush, IoOp::Flush, 0, 0),
        ];
        assert_eq!(recorder.take(), want);

        let (store, recorder) = open(&path, backend);
        recorder.take();
        let ctx = ctx_of(8);
        store.head(ctx, LumpId(1)).unwrap();
        store.head(ctx, LumpId(1)).unwrap();
        store.get(ctx, LumpId(1)).unwrap();
        let read = |at, len| io(&[8], IoPurpose::LumpData, IoOp::Read, at, len);
        let want = [read(data + len - 4096, 4096), read(data, len)];
        assert_eq!(recorder.take(), want);
    }
}

fn store_unit(path: &Path) -> u32 {
    let store = Store::open(path, options()).unwrap();
    store.info().logical_block_size
}

#[test]
fn what_the_store_does_for_itself_names_no_request() {
    let dir = disk_dir();
    let path = store_file(&dir, Shape::new(512, 10, 300));
    let (store, recorder) = open(&path, IoBackendChoice::Auto);
    for request in 1..400 {
        put(&store, request, u128::from(request) % 20, 100);
    }
    store.close().unwrap();
    let ios = recorder.take();
    let of = |purpose| ios.iter().filter(move |io| io.purpose == purpose);
    assert!(of(IoPurpose::JournalHeader).count() > 3);
    assert!(of(IoPurpose::JournalHeader).all(|io| io.requests.is_empty()));
    let reads = |io: &&Declared| io.op == IoOp::Read;
    let mut journal = of(IoPurpose::Journal).filter(reads);
    assert!(journal.all(|io| io.requests.is_empty()));
    assert_eq!(of(IoPurpose::LumpData).count(), 399);
    assert!(of(IoPurpose::LumpData).all(|io| io.requests.len() == 1));
}
