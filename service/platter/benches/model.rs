//! How many requests a second the model serves: `cargo bench -p lumpscope-platter`.
//! Nothing is asserted.

#![expect(missing_docs, reason = "criterion_group makes a public function")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lumpscope_platter::disk::{Disk, Policy, Request};
use lumpscope_platter::drive::DRIVES;
use lumpscope_platter::queue::{Order, Queueing, Station};

const REQUESTS: u64 = 10_000;

fn serve(disk: &mut Disk, requests: &[Request]) -> u64 {
    let mut now_ns = 0;
    for request in requests {
        if let Ok(served) = disk.serve(now_ns, request) {
            now_ns = served.done_ns;
        }
    }
    now_ns
}

fn one_at_a_time(criterion: &mut Criterion) {
    let Ok(disk) = Disk::new(&DRIVES[0], Policy::default()) else {
        return;
    };
    let mut random = fastrand::Rng::with_seed(1);
    let mut anywhere = || random.u64(0..200_000_000) * 8;
    let kinds = [
        (
            "random reads of 4 KiB",
            (0..REQUESTS)
                .map(|_| Request::read(anywhere(), 8))
                .collect(),
        ),
        (
            "reads of 1 MiB in a row",
            (0..REQUESTS)
                .map(|one| Request::read(one * 2048, 2048))
                .collect(),
        ),
        (
            "writes of 1 MiB in a row",
            (0..REQUESTS)
                .map(|one| Request::write(one * 2048, 2048))
                .collect(),
        ),
        (
            "random writes of 4 KiB",
            (0..REQUESTS)
                .map(|_| Request::write(anywhere(), 8))
                .collect::<Vec<_>>(),
        ),
    ];
    let mut group = criterion.benchmark_group("serve");
    group.throughput(Throughput::Elements(REQUESTS));
    for (name, requests) in kinds {
        group.bench_function(name, |bencher| {
            let fresh = || disk.clone();
            let run = |mut disk: Disk| black_box(serve(&mut disk, &requests));
            bencher.iter_batched(fresh, run, BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// Keeps 32 random reads outstanding.
fn queued(mut station: Station) -> u64 {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut sent, mut ended) = (0, 0);
    while ended < REQUESTS {
        while sent < REQUESTS && station.outstanding() < 32 {
            let request = Request::read(random.u64(0..200_000_000) * 8, 8);
            if station.submit(station.now_ns(), sent, &request).is_err() {
                return 0;
            }
            sent += 1;
        }
        let Some(next_ns) = station.next_ns() else {
            return 0;
        };
        if station.advance(next_ns, |_| ended += 1).is_err() {
            return 0;
        }
    }
    station.now_ns()
}

fn in_a_queue(criterion: &mut Criterion) {
    let Ok(disk) = Disk::new(&DRIVES[0], Policy::default()) else {
        return;
    };
    let mut group = criterion.benchmark_group("32 random reads outstanding");
    group.throughput(Throughput::Elements(REQUESTS));
    for order in Order::ALL {
        group.bench_function(order.to_string(), |bencher| {
            let queueing = Queueing {
                order,
                ..Queueing::default()
            };
            let fresh = || Station::new(disk.clone(), queueing);
            bencher.iter_batched(
                fresh,
                |station| black_box(queued(station)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, one_at_a_time, in_a_queue);
criterion_main!(benches);
