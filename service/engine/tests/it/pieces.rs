//! Lumps that are written while they come in: as good as others when they are put, and nothing when
//! they are not.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::support::sim::{Random, SimDisk};
use crate::support::stepped::{self, Stepped, answer};
use crate::support::{Shape, but, content, ctx, disk_dir, get, options, put, store_file};
use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::crc32c;
use lumpscope_engine::device::sim::{Fault, FaultKind};
use lumpscope_engine::{
    CommitMode, Durability, Error, FindingKind, IoDeclaration, IoOp, IoPurpose, IoSink, LumpBuf,
    LumpId, Placement, PutCondition, PutOptions, PutOutcome, RequestCtx, RequestId, Store,
    StoreOptions,
};

const SHAPE: Shape = Shape::new(4096, 40, 4000);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Waits without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Thread(std::thread::Thread);
    impl Wake for Thread {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Thread(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn begin(store: &Store, id: u128, len: usize) -> Result<LumpBuf, Error> {
    let lump = (LumpId(id), len as u64);
    store.lump_buf_in_pieces(ctx(), lump, PutCondition::Always)
}

/// Puts a lump that comes in parts of `part` bytes.
fn put_in_parts(store: &Store, id: u128, bytes: &[u8], part: usize) -> Result<PutOutcome, Error> {
    let mut buf = begin(store, id, bytes.len())?;
    for part in bytes.chunks(part) {
        block_on(buf.write(part))?;
    }
    assert_eq!(buf.crc32c(), Some(crc32c::of(bytes)));
    store.put_with(ctx(), LumpId(id), buf, PutOptions::default())
}

#[test]
fn they_are_as_they_were_written() {
    let mut random = Random(5);
    for (unit, commit) in [(512, CommitMode::Ordered), (4096, CommitMode::Runs)] {
        let mut disk = SimDisk::new(SHAPE.image());
        disk.unit = unit;
        let options = but(options(), |it| it.commit = commit);
        let store = Store::open_on(disk.device(), options.clone()).unwrap();
        // The trailer alone is the last piece, or the last piece is as long as it can be.
        let lens = [
            0,
            1,
            MIB,
            500 * KIB,
            504 * KIB - 30,
            1008 * KIB,
            1010 * KIB,
            6 * MIB + 17,
        ];
        for (id, len) in (0..).zip(lens) {
            let bytes = content(id, 1, len);
            let part = 1 + random.below(600 * KIB);
            let outcome = put_in_parts(&store, id, &bytes, part).unwrap();
            assert!(outcome.created);
            let expected = Some(&bytes[..]);
            assert_eq!(get(&store, id).as_deref(), expected, "{len} in {part}");
        }
        assert_eq!(store.stats().buffer_used_bytes, 0);
        store.close().unwrap();
        let store = Store::open_on(disk.device(), options).unwrap();
        for (id, len) in (0..).zip(lens) {
            assert_eq!(get(&store, id), Some(content(id, 1, len)));
        }
    }
}

#[test]
fn too_many_bytes_and_too_few_are_refused() {
    let store = SimDisk::new(SHAPE.image()).open().unwrap();
    let bytes = content(1, 1, 2 * MIB);
    let mut buf = begin(&store, 1, 2 * MIB - 1).unwrap();
    let long = block_on(buf.write(&bytes));
    assert!(matches!(long, Err(Error::LengthMismatch { .. })));
    block_on(buf.write(&bytes[..MIB])).unwrap();
    let short = store.put_with(ctx(), LumpId(1), buf, PutOptions::default());
    assert!(matches!(short, Err(Error::LengthMismatch { .. })));
    assert_eq!(get(&store, 1), None);
}

fn open_stepped(options: StoreOptions) -> Stepped {
    let disk = stepped::disk(2000, 200_000, stepped::steady(100_000, 100_000));
    Stepped::open(disk, options)
}

/// A buffer that is being filled, and comes back then.
type Filling = Pin<Box<dyn Future<Output = Result<LumpBuf, Error>>>>;

fn fill(it: &Stepped, (id, len): (u128, usize), ctx: RequestCtx) -> Filling {
    let lump = (LumpId(id), len as u64);
    let absent = PutCondition::IfAbsent;
    let buf = it.store.lump_buf_in_pieces(ctx, lump, absent);
    let bytes = content(id, 1, len);
    Box::pin(async move {
        let mut buf = buf?;
        for part in bytes.chunks(64 * KIB) {
            buf.write(part).await?;
        }
        Ok(buf)
    })
}

fn poll(it: &Stepped, filling: &mut Filling) -> Poll<Result<LumpBuf, Error>> {
    let _time = virtual_time(it.disk.now_ns());
    let mut context = Context::from_waker(Waker::noop());
    filling.as_mut().poll(&mut context)
}

/// Goes on until the buffer is full, or cannot be filled.
fn filled(it: &mut Stepped, filling: &mut Filling) -> Result<LumpBuf, Error> {
    for _ in 0..100_000 {
        if let Poll::Ready(result) = poll(it, filling) {
            return result;
        }
        it.advance();
    }
    panic!("it goes on for ever");
}

#[test]
fn what_is_given_up_at_any_moment_leaves_nothing() {
    for steps in 0..20 {
        let mut it = open_stepped(StoreOptions::new("test"));
        let commits = it.store.stats().commits;
        let mut filling = fill(&it, (1, 4 * MIB), ctx());
        for _ in 0..steps {
            if poll(&it, &mut filling).is_ready() {
                break;
            }
            it.advance();
        }
        drop(filling);
        it.settle();
        it.step();
        let stats = it.store.stats();
        assert_eq!(stats.data_used_bytes, 0, "after {steps} steps");
        assert_eq!((stats.commits, stats.buffer_used_bytes), (commits, 0));
        it.close();
    }
}

#[test]
fn a_lump_of_any_size_takes_little_memory() {
    let options = StoreOptions {
        // No more than the pieces of one lump need, and gets after it.
        buffer_budget: 4 * MIB as u64,
        piece_bytes: 512 * KIB as u64,
        ..StoreOptions::new("test")
    };
    let mut it = open_stepped(options);
    let mut filling = fill(&it, (1, 30 * MIB), ctx());
    let mut most = 0;
    let buf = loop {
        if let Poll::Ready(buf) = poll(&it, &mut filling) {
            break buf.unwrap();
        }
        it.advance();
        most = most.max(it.store.stats().buffer_used_bytes);
    };
    assert_eq!(most, it.store.pieces_memory());
    let (times, waited_ns) = buf.piece_times().unwrap();
    assert!(times.data_ns > 0 && waited_ns > 0);
    assert!(put_buf(&mut it, buf).unwrap().created);
    it.model.insert(1, content(1, 1, 30 * MIB));
    it.check_all();
}

#[test]
fn a_full_store_and_a_lump_that_is_there_are_found_with_the_first_piece() {
    let mut it = open_stepped(StoreOptions::new("test"));
    (1..4).for_each(|id| it.put(id, 25 * MIB, Placement::Data));
    let mut filling = fill_of(&it, 4, 30 * MIB);
    let full = filled(&mut it, &mut filling).unwrap_err();
    assert!(matches!(full, Error::StoreFull { .. }), "{full}");
    let mut filling = fill_of(&it, 1, 2 * MIB);
    let there = filled(&mut it, &mut filling).unwrap_err();
    assert!(matches!(there, Error::AlreadyExists { .. }), "{there}");
    // Blocks that are about to be freed are waited for.
    let (done, deleted) = answer();
    it.store
        // Beside what is free.
        .submit_delete(ctx(), LumpId(3), Durability::Journaled, done)
        .unwrap();
    it.wait(&deleted).unwrap();
    let mut filling = fill_of(&it, 4, 30 * MIB);
    assert!(poll(&it, &mut filling).is_pending());
    filled(&mut it, &mut filling).unwrap();
}

fn fill_of(it: &Stepped, id: u128, len: usize) -> Filling {
    fill(it, (id, len), ctx())
}

#[test]
fn a_late_lump_is_given_up() {
    let mut it = open_stepped(StoreOptions::new("test"));
    let ctx = RequestCtx {
        deadline: Some(it.disk.now_ns() + 250_000),
        drop_when_late: true,
        ..ctx()
    };
    let mut filling = fill(&it, (1, 16 * MIB), ctx);
    let late = filled(&mut it, &mut filling).unwrap_err();
    assert!(matches!(late, Error::DeadlineExceeded { .. }), "{late}");
    drop(filling);
    it.settle();
    it.step();
    assert_eq!(it.store.stats().data_used_bytes, 0);
}

#[test]
fn a_store_that_closes_ends_what_comes_in() {
    let store = SimDisk::new(SHAPE.image()).open().unwrap();
    let mut buf = begin(&store, 1, 4 * MIB).unwrap();
    let bytes = content(1, 1, 4 * MIB);
    block_on(buf.write(&bytes[..MIB])).unwrap();
    store.close().unwrap();
    let closed = block_on(buf.write(&bytes[MIB..]));
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
}

#[test]
fn a_place_that_is_refused_is_left_by_the_next_put() {
    for (commit, last) in [(CommitMode::Ordered, false), (CommitMode::Runs, true)] {
        let mut it = open_stepped(but(options(), |it| it.commit = commit));
        let len = 2 * MIB;
        let data = (2 + 2000) * 512_u64;
        // The first place, in its middle or in its last piece.
        let spot = data + if last { len as u64 } else { MIB as u64 };
        it.disk.inject(Fault {
            within: spot - 512 * KIB as u64..spot + 500,
            ..Fault::always(IoOp::Write, FaultKind::Errno(libc::EIO))
        });
        let mut filling = fill_of(&it, 1, len);
        let refused = match filled(&mut it, &mut filling) {
            Err(error) => error,
            Ok(buf) => put_buf(&mut it, buf).unwrap_err(),
        };
        assert!(matches!(refused, Error::PlaceRefused { .. }), "{refused}");
        drop(filling);
        it.settle();
        let mut filling = fill_of(&it, 1, len);
        let buf = filled(&mut it, &mut filling).unwrap();
        assert!(put_buf(&mut it, buf).unwrap().created);
        it.model.insert(1, content(1, 1, len));
        it.check_all();
        let place = (len as u64 + 200 + 1024).next_multiple_of(512);
        assert_eq!(it.store.stats().bad_bytes, place);
        assert_eq!(it.store.stats().data_used_bytes, 2 * place);
        let found = it.store.scrub_status().findings.list;
        let kinds: Vec<_> = found.iter().map(|found| found.kind).collect();
        assert_eq!(kinds, [FindingKind::Write]);
        assert_eq!(it.store.failed(), None);
    }
}

fn put_buf(it: &mut Stepped, buf: LumpBuf) -> Result<PutOutcome, Error> {
    let (done, answer) = answer();
    it.store
        .submit_put_with(ctx(), LumpId(1), buf, PutOptions::default(), done)?;
    it.wait(&answer)
}

#[test]
fn no_place_is_to_blame_where_a_disk_refuses_all() {
    let mut it = open_stepped(but(options(), |it| it.commit = CommitMode::Ordered));
    let data = (2 + 2000) * 512_u64;
    it.disk.inject(Fault {
        within: data..u64::MAX,
        ..Fault::always(IoOp::Write, FaultKind::Errno(libc::EIO))
    });
    for round in 0..8 {
        let mut filling = fill_of(&it, 1, 2 * MIB);
        let refused = filled(&mut it, &mut filling).unwrap_err();
        // Once a trial write has failed, too, nothing is begun.
        let is_told = matches!(refused, Error::PlaceRefused { .. })
            || round > 0 && matches!(refused, Error::OutOfService { .. });
        assert!(is_told, "{refused}");
        drop(filling);
        it.settle();
        it.step();
        let stats = it.store.stats();
        assert!(stats.data_used_bytes < 7 * MIB as u64, "three are kept");
        assert_eq!(stats.bad_bytes, 0);
    }
}

#[test]
fn large_lumps_pass_while_there_is_plenty() {
    let mut it = open_stepped(but(options(), |it| it.queue_depth = 2));
    it.step();
    let sizes = [4 * MIB - 1, 4 * MIB, 12 * MIB, 13 * MIB];
    let passes = |it: &Stepped| sizes.map(|len| it.store.passes(len as u64));
    assert_eq!(passes(&it), [false, true, true, false]);
    // Two are written, and two wait.
    let puts = [0, 1, 2, 3].map(|id| it.submit_put(id, 1000, Placement::Data));
    assert_eq!(passes(&it), [false; 4]);
    for put in puts {
        it.wait(&put).unwrap();
    }
    assert_eq!(passes(&it), [false, true, true, false]);
}

/// Writes of lumps that were declared: requests, first byte and length.
#[derive(Default)]
struct Writes(Mutex<Vec<(Vec<RequestId>, u64, u64)>>);

impl IoSink for Writes {
    fn submitted(&self, io: &IoDeclaration<'_>) {
        if io.op == IoOp::Write && io.purpose == IoPurpose::LumpData {
            let write = (io.requests.to_vec(), io.offset, io.len);
            self.0.lock().unwrap().push(write);
        }
    }

    fn completed(&self, _token: u64, _end_ns: u64, _error: Option<i32>) {}
}

#[test]
fn every_piece_is_declared_for_its_request() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let writes = Arc::new(Writes::default());
    let sink: Arc<dyn IoSink> = Arc::clone(&writes) as _;
    let options = but(options(), |it| it.io_sink = Some(sink));
    let store = Store::open(&path, options).unwrap();
    put(&store, 9, b"before");
    writes.0.lock().unwrap().clear();
    put_in_parts(&store, 1, &content(1, 1, 2 * MIB), 100_000).unwrap();
    let declared = writes.0.lock().unwrap().clone();
    let lens: Vec<u64> = declared.iter().map(|(.., len)| len >> 10).collect();
    assert_eq!(lens, [1020, 1020, 12]);
    let mut pairs = declared.windows(2);
    assert!(pairs.all(|pair| pair[0].1 + pair[0].2 == pair[1].1));
    let mut of = declared.iter().map(|(requests, ..)| requests);
    assert!(of.all(|requests| *requests == [ctx().id]));
    assert_eq!(get(&store, 1), Some(content(1, 1, 2 * MIB)));
}
