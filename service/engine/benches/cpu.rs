//! Cost of a request without a disk: `cargo bench -p lumpscope-engine`.
//!
//! The disk and the threads are measured by `lumpscope bench engine`; this is for changes of the
//! code between them. Nothing is asserted.

#![expect(missing_docs, reason = "criterion_group makes a public function")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lumpscope_engine::format::geometry::{Geometry, RegionSizes};
use lumpscope_engine::format::record::Record;
use lumpscope_engine::format::sums::PayloadSums;
use lumpscope_engine::format::{Header, Portion, header};
use lumpscope_engine::measure::{IndexProbe, QueueProbe};
use lumpscope_engine::units::{BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset};
use lumpscope_engine::{LumpId, QueuePolicy};

/// Ids far apart, as hashes are.
fn id(n: u64) -> LumpId {
    LumpId(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn geometry() -> Geometry {
    let block_size = BlockSize::new(4096).expect("a multiple of 512");
    let sizes = RegionSizes::divide(ByteLen(1 << 40), block_size, 0.01).expect("there is room");
    let header = Header {
        minor: header::MINOR_VERSION,
        block_size,
        uuid: [7; 16],
        journal_len: sizes.journal_len,
        data_len: sizes.data_len,
    };
    Geometry::new(ByteOffset(0), &header)
}

fn records(c: &mut Criterion) {
    let portion = Portion::new(BlockIndex(77), BlockCount(257)).expect("a portion has blocks");
    let put = Record::Put { id: id(1), portion };
    let bytes = put.to_bytes();
    c.bench_function("record encode", |b| b.iter(|| black_box(&put).to_bytes()));
    c.bench_function("record decode", |b| {
        b.iter(|| Record::decode(black_box(&bytes)))
    });
}

fn checksums(c: &mut Criterion) {
    let mut group = c.benchmark_group("payload checksums");
    for len in [4 << 10, 1 << 20] {
        let payload = vec![0x5a; len];
        let len = payload.len() as u64;
        group.throughput(Throughput::Bytes(len));
        group.bench_function(format!("{len} bytes"), |b| {
            b.iter(|| {
                let mut sums = PayloadSums::new(len);
                sums.update(black_box(&payload));
                sums.finish()
            });
        });
    }
    group.finish();
}

fn index(c: &mut Criterion) {
    const LUMPS: u64 = 100_000;
    let geometry = geometry();
    let mut full = IndexProbe::new(&geometry);
    for n in 0..LUMPS {
        full.insert(id(n), n);
    }
    let mut n = 0;
    c.bench_function("index get of 100000", |b| {
        b.iter(|| {
            n = (n + 1) % LUMPS;
            full.contains(id(n))
        });
    });
    let mut n = 0;
    c.bench_function("index replace of 100000", |b| {
        b.iter(|| {
            n = (n + 1) % LUMPS;
            full.insert(id(n), n);
        });
    });
}

/// Work of the owner thread for each waiting get, beside the disk.
fn orders(c: &mut Criterion) {
    const WAITING: u64 = 1000;
    let place = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    for policy in [QueuePolicy::Fifo, QueuePolicy::Position] {
        let mut queue = QueueProbe::new(policy, u32::MAX);
        let mut n = 0;
        while n < WAITING {
            n += 1;
            queue.push(place(n));
        }
        c.bench_function(&format!("next of 1000, {}", policy.name()), |b| {
            b.iter(|| {
                n += 1;
                queue.push(place(n));
                queue.pop()
            });
        });
    }
}

criterion_group!(benches, orders, records, checksums, index);
criterion_main!(benches);
