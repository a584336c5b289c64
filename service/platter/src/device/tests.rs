use lumpscope_engine::buffer::{AlignedBuf, BufferPool};
use lumpscope_engine::device::sim::blank_image;
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{Durability, IoPurpose, LumpId, Placement, RequestCtx, Store, StoreOptions};

use super::*;
use crate::drive::by_name;
use crate::queue::Order;

fn platter(options: DeviceOptions) -> PlatterDevice {
    let drive = by_name("st1000dm003").unwrap();
    PlatterDevice::new(&drive, Policy::default(), options).unwrap()
}

fn io(token: u64, op: IoOp, offset: u64, buf: Option<AlignedBuf>) -> Io {
    Io {
        token,
        op,
        forced: false,
        offset,
        buf,
        purpose: IoPurpose::LumpData,
        requests: Vec::new(),
    }
}

fn stored(disk: &PlatterDevice) -> u64 {
    disk.put(0, &blank_image(BlockSize::MIN, 64, 20_000, [7; 16]))
        .unwrap();
    let store = Store::open_on(disk.device(), StoreOptions::new("platter")).unwrap();
    let ctx = RequestCtx::default();
    for id in 0..20 {
        let mut lump = store.lump_buf(100_000).unwrap();
        lump.extend(&vec![u8::try_from(id).unwrap(); 100_000])
            .unwrap();
        store
            .put(ctx, LumpId(id), lump, Placement::Data, Durability::Synced)
            .unwrap();
    }
    let before_ns = disk.now_ns();
    for id in 0..20 {
        let want = vec![u8::try_from(id).unwrap(); 100_000];
        assert_eq!(&store.get(ctx, LumpId(id)).unwrap()[..], &want[..]);
    }
    drop(store);
    let store = Store::open_on(disk.device(), StoreOptions::new("platter")).unwrap();
    assert_eq!(store.get(ctx, LumpId(3)).unwrap().len(), 100_000);
    before_ns
}

#[test]
fn a_store_lives_on_it_in_virtual_time() {
    let disk = platter(DeviceOptions::default());
    let puts_ns = stored(&disk);
    // Every put waits for its write and its flush.
    assert!(puts_ns > 20 * 3 * 4_000_000, "{puts_ns}");
    assert!(disk.counts().media_writes >= 20);
}

#[test]
fn a_store_lives_on_it_in_real_time() {
    let disk = platter(DeviceOptions {
        time: Time::Real {
            speed: NonZeroU32::new(1000).unwrap(),
        },
        ..DeviceOptions::default()
    });
    let begin = Instant::now();
    let puts_ns = stored(&disk);
    // How long it really takes is up to the machine; it cannot be less.
    let least = Duration::from_nanos(puts_ns / 1000);
    assert!(begin.elapsed() >= least);
    assert!(puts_ns > 20 * 3 * 4_000_000, "{puts_ns}");
}

#[test]
fn the_queue_orders_what_is_in_flight() {
    let elapsed = |order| {
        let disk = platter(DeviceOptions {
            queueing: Queueing {
                order,
                ..Queueing::default()
            },
            ..DeviceOptions::default()
        });
        let pool = BufferPool::new(512);
        let mut backend = disk.device().backend;
        for token in 0..32 {
            let offset = (token * 7 % 32) * 30_000_000_000 / 512 * 512;
            backend.submit(io(token, IoOp::Read, offset, Some(pool.get(4096))));
        }
        let mut ended = Vec::new();
        while ended.len() < 32 {
            backend.wait(&mut ended, Wait::Forever);
        }
        assert!(
            ended
                .iter()
                .all(|end| end.result.is_ok() && end.buf.is_some())
        );
        disk.now_ns()
    };
    assert!(elapsed(Order::Position) < elapsed(Order::Fifo));
}

#[test]
fn nonsense_is_refused_and_memory_is_bounded() {
    let disk = platter(DeviceOptions {
        memory: 1 << 20,
        ..DeviceOptions::default()
    });
    let size = disk.device().size;
    let pool = BufferPool::new(512);
    let mut backend = disk.device().backend;
    let mut errno = |op, offset, len| {
        let buf = pool.zeroed(len);
        backend.submit(io(1, op, offset, Some(buf)));
        let mut ended = Vec::new();
        backend.wait(&mut ended, Wait::Forever);
        ended
            .remove(0)
            .result
            .err()
            .and_then(|error| error.raw_os_error())
    };
    let invalid = Some(Errno::INVAL.raw_os_error());
    assert_eq!(errno(IoOp::Read, size, 512), invalid);
    assert_eq!(errno(IoOp::Read, 1, 512), invalid);
    assert_eq!(errno(IoOp::Write, u64::MAX - 511, 512), invalid);
    assert_eq!(errno(IoOp::Write, 0, 1 << 20), None);
    let full = Some(Errno::NOSPC.raw_os_error());
    assert_eq!(errno(IoOp::Write, 1 << 21, 512), full);
    assert!(disk.put(size - 1, &[0; 2]).is_err());
    drop(backend);
}

#[test]
fn a_waker_ends_a_wait() {
    let disk = platter(DeviceOptions::default());
    let mut backend = disk.device().backend;
    backend.waker().wake();
    let mut ended = Vec::new();
    backend.wait(&mut ended, Wait::Forever);
    backend.wait(&mut ended, Wait::Until(0));
    backend.wait(&mut ended, Wait::No);
    assert!(ended.is_empty());
    assert!(!disk.advance());
    disk.advance_to(17);
    assert_eq!(disk.now_ns(), 17);
}
