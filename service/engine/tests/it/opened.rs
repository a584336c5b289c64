//! Lumps that are read piece by piece: the bytes of the version that was opened or a typed error,
//! in little memory, and blocks that nobody else gets meanwhile.

use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{Random, SimDisk};
use crate::support::stepped::{self, Stepped};
use crate::support::{
    Shape, but, content, ctx, ctx_of, disk_dir, options, put, store_file, try_put,
};
use lumpscope_engine::crc32c;
use lumpscope_engine::format::verify::Damage;
use lumpscope_engine::{
    Durability, Error, IoDeclaration, IoOp, IoPurpose, IoSink, LumpData, LumpId, OnDone, Opened,
    Placement, RequestCtx, RequestId, Rest, Store,
};

const SHAPE: Shape = Shape::new(4096, 40, 4000);

/// Waits for what is handed over.
fn wait<T: Send + 'static>(
    submit: impl FnOnce(OnDone<T>) -> Result<(), Error>,
) -> Result<T, Error> {
    let (told, answer) = channel();
    submit(Box::new(move |result, _| told.send(result).unwrap()))?;
    answer.recv().unwrap()
}

fn open(store: &Store, id: u128, offset: u64, len: u64) -> Result<Opened, Error> {
    wait(|done| store.submit_open(ctx(), LumpId(id), (offset, len), done))
}

/// The next piece.
fn take(rest: &mut Rest) -> Result<LumpData, Error> {
    struct Reader(Thread);
    impl Wake for Reader {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Reader(thread::current())));
    loop {
        match rest.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(piece) => return piece.unwrap().0,
            Poll::Pending => thread::park(),
        }
    }
}

/// The bytes of the rest until the end or an error, and how many came at once at most.
fn read_rest(rest: &mut Rest) -> (Vec<u8>, u64, Result<(), Error>) {
    let (mut bytes, mut most) = (Vec::new(), 0);
    while rest.remaining() > 0 {
        match take(rest) {
            Ok(piece) => {
                assert!(piece.verified && !piece.is_empty());
                assert_eq!(piece.crc32c(), crc32c::of(&piece));
                most = most.max(piece.len() as u64);
                bytes.extend_from_slice(&piece);
            }
            Err(error) => return (bytes, most, Err(error)),
        }
    }
    (bytes, most, Ok(()))
}

/// Reads a part of a lump and compares it.
fn check(store: &Store, id: u128, bytes: &[u8], range: Range<u64>, verified: bool) {
    let opened = open(store, id, range.start, range.end - range.start).unwrap();
    let end = range.end.min(bytes.len() as u64);
    let (from, to) = (range.start as usize, end as usize);
    assert_eq!(opened.offset, range.start);
    assert_eq!(opened.length, end - range.start);
    assert_eq!(opened.total_length, bytes.len() as u64);
    let whole = verified && to - from == bytes.len();
    assert_eq!(opened.crc32c, whole.then(|| crc32c::of(bytes)));
    assert_eq!(opened.first.verified, verified);
    let mut got = opened.first.to_vec();
    if let Some(mut rest) = opened.rest {
        assert_eq!(got.len() as u64 + rest.remaining(), opened.length);
        let (more, _, end) = read_rest(&mut rest);
        end.unwrap();
        got.extend(more);
    }
    assert!(got == bytes[from..to], "{range:?} of {}", bytes.len());
}

#[test]
fn any_part_of_any_lump_comes_as_it_was_put() {
    let mut random = Random(12);
    for unit in [512, 4096] {
        let mut disk = SimDisk::new(SHAPE.image());
        disk.unit = unit;
        let mut store = disk.open().unwrap();
        let lens = [0, 1, 65_536, 65_537, 390_000, 500_000, 1 << 20, 8 << 20];
        for (id, len) in (0..).zip(lens) {
            put(&store, id, &content(id, 1, len));
        }
        try_put(&store, 99, &content(99, 1, 3000), Placement::Embedded).unwrap();
        // With lengths that are known from the put, then from the last block.
        for _ in 0..2 {
            for (id, len) in (0..).zip(lens).chain([(99, 3000)]) {
                let bytes = content(id, 1, len);
                let len = len as u64;
                for range in [0..len, 0..u64::MAX, len / 2..u64::MAX, len..len + 5, 0..0] {
                    check(&store, id, &bytes, range, true);
                }
                for _ in 0..8 {
                    let from = random.next() % (len + 1);
                    let to = from + random.next() % (len + 2);
                    check(&store, id, &bytes, from..to, true);
                }
                let outside = open(&store, id, len + 1, 1);
                assert!(matches!(outside, Err(Error::RangeOutside { .. })));
            }
            store.close().unwrap();
            store = disk.open().unwrap();
        }
        let missing = open(&store, 1000, 0, 1);
        assert!(matches!(missing, Err(Error::NotFound { .. })));
        assert_eq!(store.stats().checksum_failures, 0);
        assert_eq!(store.stats().buffer_get_bytes, 0);
    }
}

#[test]
fn rot_in_any_chunk_ends_the_lump_before_it() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    let bytes = content(1, 1, 2_000_000);
    put(&store, 1, &bytes);
    store.close().unwrap();
    let image = disk.bytes();
    let start = image.windows(64).position(|w| w == &bytes[..64]).unwrap();
    for chunk in 0..bytes.len().div_ceil(65_536) {
        let mut damaged = image.clone();
        damaged[start + chunk * 65_536 + 77] ^= 1;
        let store = SimDisk::new(damaged).open().unwrap();
        let (got, error) = match open(&store, 1, 0, u64::MAX) {
            Err(error) => (Vec::new(), error),
            Ok(opened) => {
                let mut got = opened.first.to_vec();
                let (more, _, end) = read_rest(&mut opened.rest.unwrap());
                got.extend(more);
                (got, end.unwrap_err())
            }
        };
        let Error::ChecksumMismatch(found) = error else {
            panic!("{error}");
        };
        assert!(
            matches!(found.damage, Damage::Chunk { number, .. } if number == chunk as u64),
            "{found}"
        );
        assert!(got.len() <= chunk * 65_536 && got == bytes[..got.len()]);
        assert_eq!(store.stats().checksum_failures, 1);
        // The chunks on both sides of it are good.
        let around = 0..chunk as u64 * 65_536;
        check(&store, 1, &bytes, around.clone(), true);
        let behind = around.end + 65_536;
        if behind < bytes.len() as u64 {
            check(&store, 1, &bytes, behind..u64::MAX, true);
        }
    }
    // Without its last block nothing of it can be told.
    let mut damaged = image;
    damaged[start + bytes.len().next_multiple_of(4096) - 20] ^= 1;
    let store = SimDisk::new(damaged).open().unwrap();
    let opened = open(&store, 1, 0, u64::MAX);
    assert!(matches!(opened, Err(Error::ChecksumMismatch(_))));
}

#[test]
fn lumps_of_another_engine_come_whole() {
    let peer = CannylsImage::new(SHAPE.image());
    let mut canny = peer.open();
    let lens = [0, 300, 65_000, 700_000, 3_000_000];
    for (id, len) in (0..).zip(lens) {
        let data = peer::plain(&content(id, 1, len));
        canny.put(&peer::id(id), &data).unwrap();
    }
    drop(canny);
    let store = SimDisk::new(peer.image()).open().unwrap();
    for (id, len) in (0..).zip(lens) {
        let bytes = content(id, 1, len);
        assert!(open(&store, id, 0, u64::MAX).unwrap().rest.is_none());
        for offset in [0, len as u64 / 3, len as u64] {
            check(&store, id, &bytes, offset..u64::MAX, false);
        }
    }
}

#[test]
fn a_lump_that_is_gone_is_read_to_its_end() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    // Two of three fit, so an overwrite needs the blocks of the version before.
    let len = 7 << 20;
    let versions: Vec<Vec<u8>> = (0..4).map(|version| content(1, version, len)).collect();
    for replaced in [true, false] {
        put(&store, 1, &versions[0]);
        let opened = open(&store, 1, 0, u64::MAX).unwrap();
        let mut rest = opened.rest.unwrap();
        if replaced {
            put(&store, 1, &versions[1]);
        }
        store.delete(ctx(), LumpId(1), Durability::Synced).unwrap();
        // The blocks of the second version come back at once, and those that are read do not.
        for id in 2..8 {
            let version = &versions[2 + id as usize % 2];
            put(&store, id, version);
            check(&store, id, version, 0..u64::MAX, true);
            store.delete(ctx(), LumpId(id), Durability::Synced).unwrap();
        }
        put(&store, 9, &versions[2]);
        // Nobody waits for a client that takes its time.
        let full = try_put(&store, 10, &versions[3], Placement::Data);
        assert!(matches!(full, Err(Error::StoreFull { .. })), "{full:?}");
        let mut got = opened.first.to_vec();
        let (more, most, end) = read_rest(&mut rest);
        end.unwrap();
        got.extend(more);
        assert!(got == versions[0] && most <= 3 << 20);
        assert!(matches!(open(&store, 1, 0, 1), Err(Error::NotFound { .. })));
        drop(rest);
        drop(opened.first);
        // They are free now.
        loop {
            match try_put(&store, 10, &versions[3], Placement::Data) {
                Ok(_) => break,
                // The last piece has still to let go of them.
                Err(Error::StoreFull { .. }) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        for id in [9, 10] {
            store.delete(ctx(), LumpId(id), Durability::Synced).unwrap();
        }
    }
}

#[test]
fn a_store_that_closes_ends_what_is_open() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    put(&store, 1, &content(1, 1, 7 << 20));
    let mut rest = open(&store, 1, 0, u64::MAX).unwrap().rest.unwrap();
    store.close().unwrap();
    let (got, _, end) = read_rest(&mut rest);
    assert!(matches!(end, Err(Error::Closed)), "{end:?}");
    assert!(got.len() <= 4 << 20, "{}", got.len());
}

fn stepped(budget: u64) -> Stepped {
    let options = but(options(), |it| it.buffer_budget = budget);
    let disk = stepped::disk(2000, 200_000, stepped::steady(100_000, 100_000));
    Stepped::open(disk, options)
}

/// The next piece, if it has come.
fn come(rest: &mut Rest) -> Option<Result<LumpData, Error>> {
    match rest.poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(piece) => Some(piece.unwrap().0),
        Poll::Pending => None,
    }
}

fn next(it: &mut Stepped, rest: &mut Rest) -> Result<LumpData, Error> {
    let mut piece = None;
    it.until(|_| {
        piece = come(rest);
        piece.is_some()
    });
    piece.unwrap()
}

#[test]
fn a_large_lump_takes_the_memory_of_its_pieces() {
    // Far less than the lump has.
    let mut it = stepped(24 << 20);
    let len = 16 << 20;
    it.put(1, len, Placement::Data);
    let opened = it.submit_open(1, ctx());
    let opened = it.wait(&opened).unwrap();
    let mut got = opened.first.to_vec();
    let mut before = opened.first;
    let mut rest = opened.rest.unwrap();
    let mut most = it.store.stats().buffer_get_bytes;
    while rest.remaining() > 0 {
        // One is kept, as by a transport that sends it, while the next is read.
        let piece = next(&mut it, &mut rest).unwrap();
        most = most.max(it.store.stats().buffer_get_bytes);
        got.extend_from_slice(&piece);
        before = piece;
    }
    drop(before);
    assert!(got == it.model[&1]);
    assert!(most <= 6 << 20, "{most} bytes at a time");
    assert_eq!(it.store.stats().buffer_get_bytes, 0);
}

#[test]
fn pieces_are_read_ahead_of_their_reader_and_not_far() {
    let mut it = stepped(1 << 30);
    it.put(1, 16 << 20, Placement::Data);
    let opened = it.submit_open(1, ctx());
    let mut rest = it.wait(&opened).unwrap().rest.unwrap();
    for taken in 1..=7 {
        it.settle();
        let held = it.store.stats().buffer_get_bytes;
        assert!(held <= 2 << 20, "{held}");
        assert_eq!(rest.is_read(), taken == 7);
        come(&mut rest).expect("it was read meanwhile").unwrap();
    }
    it.settle();
    // Those that nobody takes go with their reader.
    drop(rest);
    assert_eq!(it.store.stats().buffer_get_bytes, 0);
}

#[test]
fn many_lumps_that_are_open_share_little_memory() {
    let mut it = stepped(16 << 20);
    for id in 0..3 {
        it.put(id, 8 << 20, Placement::Data);
    }
    let mut opening: Vec<_> = (0..24)
        .map(|at| {
            let opened = it.submit_open(at % 3, ctx());
            (at % 3, opened)
        })
        .collect();
    // All are read at once: each piece gets its memory in its turn.
    let mut reading = Vec::new();
    while !(opening.is_empty() && reading.is_empty()) {
        it.step();
        let mut taken = 0;
        opening.retain(|(id, opened)| {
            let Ok(opened) = opened.try_recv().map(Result::unwrap) else {
                return true;
            };
            taken += 1;
            reading.push((*id, opened.first.to_vec(), opened.rest.unwrap()));
            false
        });
        // What has come is taken: nobody waits for one who has memory and waits himself.
        for (_, got, rest) in &mut reading {
            while rest.remaining() > 0
                && let Some(piece) = come(rest)
            {
                taken += 1;
                got.extend_from_slice(&piece.unwrap());
            }
        }
        for (id, got, _) in reading.extract_if(.., |(_, _, rest)| rest.remaining() == 0) {
            assert!(got == it.model[&id]);
        }
        // What was taken gives memory to somebody.
        assert!(it.pass() || taken > 0, "nothing happens any more");
    }
    assert_eq!(it.store.stats().buffer_get_bytes, 0);
}

#[test]
fn pieces_have_the_deadline_of_their_lump_and_no_limit_of_their_own() {
    let mut it = stepped(1 << 30);
    it.put(1, 8 << 20, Placement::Data);
    let ctx = RequestCtx {
        deadline: Some(it.disk.now_ns() + 1_000_000),
        drop_when_late: true,
        max_queue_len: Some(0),
        ..ctx()
    };
    let opened = it.submit_open(1, ctx);
    let mut rest = it.wait(&opened).unwrap().rest.unwrap();
    // Somebody waits, and the piece is not refused for it.
    let waiting = it.submit_get(1);
    next(&mut it, &mut rest).unwrap();
    it.wait(&waiting).unwrap();
    it.settle();
    it.disk.advance_to(it.disk.now_ns() + 2_000_000);
    // Those that were read in time are good.
    let late = loop {
        if let Err(late) = next(&mut it, &mut rest) {
            break late;
        }
    };
    assert!(matches!(late, Error::DeadlineExceeded { .. }), "{late:?}");
}

/// Reads of lumps that were declared: requests, first byte and length.
#[derive(Default)]
struct Reads(Mutex<Vec<(Vec<RequestId>, u64, u64)>>);

impl IoSink for Reads {
    fn submitted(&self, io: &IoDeclaration<'_>) {
        if io.op == IoOp::Read && io.purpose == IoPurpose::LumpData {
            let read = (io.requests.to_vec(), io.offset, io.len);
            self.0.lock().unwrap().push(read);
        }
    }

    fn completed(&self, _token: u64, _end_ns: u64, _error: Option<i32>) {}
}

#[test]
fn every_read_of_a_lump_is_declared_for_its_request() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let reads = Arc::new(Reads::default());
    let sink: Arc<dyn IoSink> = Arc::clone(&reads) as _;
    let options = but(options(), |it| it.io_sink = Some(sink));
    let store = Store::open(&path, options).unwrap();
    put(&store, 1, &content(1, 1, 8 << 20));
    let mine = ctx_of(77);
    let opened = wait(|done| store.submit_open(mine, LumpId(1), (0, u64::MAX), done));
    read_rest(&mut opened.unwrap().rest.unwrap()).2.unwrap();
    let mut declared = reads.0.lock().unwrap().clone();
    let mut of = declared.iter().map(|(requests, ..)| requests);
    assert!(of.all(|requests| *requests == [RequestId(77)]));
    // Each block once: those of the payload in pieces, and the one with the checksums.
    declared.sort_unstable_by_key(|(_, offset, _)| *offset);
    let lens: Vec<u64> = declared.iter().map(|(.., len)| len >> 10).collect();
    assert_eq!(lens, [2048, 2048, 2048, 2048, 4]);
    let behind = declared.windows(2);
    assert!({ behind }.all(|pair| pair[0].1 + pair[0].2 == pair[1].1));
}
