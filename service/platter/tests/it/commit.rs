//! The price of a commit on a disk with an arm: clients that wait for each put, in virtual time, so
//! the figures are those of the model on any machine. `--nocapture` prints them.

use std::sync::mpsc::{Receiver, channel};

use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::device::sim::blank_image;
use lumpscope_engine::format::header::Header;
use lumpscope_engine::units::{BlockSize, ByteLen};
use lumpscope_engine::{
    CommitMode, Driver, Durability, Error, LumpId, Placement, PutOutcome, RequestCtx, Store,
    StoreOptions,
};
use lumpscope_platter::device::{DeviceOptions, PlatterDevice};
use lumpscope_platter::{disk::Policy, drive};

/// Blocks of the ring, 4 MiB, and bytes of data, 8 GiB: a hundredth of the drive.
const RING_BLOCKS: u64 = 1024;
const DATA_BYTES: u64 = 8 << 30;
/// From an answer to the next put of this client.
const PAUSE_NS: u64 = 500_000;
/// Puts that are measured, and those before.
const PUTS: usize = 48;
const WARM_UP: usize = 8;

struct Committer {
    /// When it puts next, or the answer that it waits for.
    at: Result<u64, Receiver<Result<PutOutcome, Error>>>,
    since_ns: u64,
}

struct Bench {
    disk: PlatterDevice,
    store: Store,
    driver: Driver,
    clients: Vec<Committer>,
    puts: u128,
    /// Times of the puts that have ended.
    took_ns: Vec<u64>,
}

/// Puts a second, the median time of a put in nanoseconds, flushes.
#[derive(Debug, Clone, Copy)]
struct Found {
    puts_a_second: u64,
    median_ns: u64,
    flushes: u64,
}

impl Bench {
    fn new(commit: CommitMode, fua: bool, clients: usize) -> Bench {
        let drive = drive::by_name("st1000dm003").unwrap();
        let options = DeviceOptions {
            fua,
            ..DeviceOptions::default()
        };
        let disk = PlatterDevice::new(&drive, Policy::default(), options).unwrap();
        let block_size = BlockSize::new(4096).unwrap();
        let header = Header {
            minor: 1,
            block_size,
            uuid: [7; 16],
            journal_len: ByteLen((1 + RING_BLOCKS) * block_size.bytes()),
            data_len: ByteLen(DATA_BYTES),
        };
        disk.put(0, &blank_image(block_size, RING_BLOCKS, 1, [7; 16]))
            .unwrap();
        disk.put(0, &header.encode()).unwrap();
        let options = StoreOptions {
            commit,
            ..StoreOptions::new("platter")
        };
        let (store, driver) = Store::open_stepped(disk.device(), options).unwrap();
        let at = disk.now_ns();
        let clients = (0..clients).map(|_| Committer {
            at: Ok(at),
            since_ns: at,
        });
        Bench {
            disk,
            store,
            driver,
            clients: clients.collect(),
            puts: 0,
            took_ns: Vec::new(),
        }
    }

    /// Each client does what it can do now.
    fn act(&mut self, len: usize) {
        let now_ns = self.disk.now_ns();
        for client in &mut self.clients {
            if let Err(answer) = &client.at
                && let Ok(answer) = answer.try_recv()
            {
                answer.unwrap();
                self.took_ns.push(now_ns - client.since_ns);
                client.at = Ok(now_ns + PAUSE_NS);
            }
            if client.at.as_ref().is_ok_and(|&at| at <= now_ns) {
                let _time = virtual_time(now_ns);
                let mut lump = self.store.lump_buf(len as u64).unwrap();
                lump.extend(&vec![7; len]).unwrap();
                let (told, answer) = channel();
                let done = Box::new(move |result, _| drop(told.send(result)));
                let (id, ctx) = (LumpId(self.puts), RequestCtx::default());
                let (place, durability) = (Placement::Data, Durability::Synced);
                self.store
                    .submit_put(ctx, id, lump, place, durability, done)
                    .unwrap();
                self.puts += 1;
                client.since_ns = now_ns;
                client.at = Err(answer);
            }
        }
    }

    fn run(&mut self, len: usize, puts: usize) {
        let end = self.took_ns.len() + puts;
        while self.took_ns.len() < end {
            self.act(len);
            assert!(self.driver.step(self.disk.now_ns()));
            self.act(len);
            let next = [self.disk.next_due_ns(), self.driver.due_ns()];
            let clients = self
                .clients
                .iter()
                .filter_map(|client| client.at.as_ref().ok());
            let next = next.into_iter().flatten().chain(clients.copied()).min();
            self.disk.advance_to(next.unwrap());
        }
    }
}

fn measure(commit: CommitMode, fua: bool, clients: usize, len: usize) -> Found {
    let mut bench = Bench::new(commit, fua, clients);
    bench.run(len, WARM_UP);
    let (begin_ns, begun) = (bench.disk.now_ns(), bench.took_ns.len());
    let flushes = bench.store.stats().flushes;
    bench.run(len, PUTS);
    let took_ns = bench.disk.now_ns() - begin_ns;
    let mut times = bench.took_ns.split_off(begun);
    times.sort_unstable();
    Found {
        puts_a_second: times.len() as u64 * 1_000_000_000 / took_ns,
        median_ns: times[times.len() / 2],
        flushes: bench.store.stats().flushes - flushes,
    }
}

/// Ordered, the arm goes to the data and to the record; in a run it stays.
#[test]
fn a_run_spares_the_arm_its_ways_to_the_journal() {
    for (clients, len) in [
        (1, 1 << 20),
        (2, 1 << 20),
        (8, 1 << 20),
        (1, 4096),
        (8, 4096),
    ] {
        let ordered = measure(CommitMode::Ordered, false, clients, len);
        let runs = measure(CommitMode::Runs, false, clients, len);
        println!("{clients} clients, {len} bytes: ordered {ordered:?}");
        println!("    runs {runs:?}");
        assert!(runs.flushes <= ordered.flushes, "{clients}, {len}");
        assert!(runs.puts_a_second > ordered.puts_a_second);
        if clients == 1 {
            assert!(10 * runs.flushes <= 6 * ordered.flushes, "{len} bytes");
        }
        match (clients, len) {
            (1, 4096) => assert!(100 * runs.median_ns <= 101 * ordered.median_ns),
            // One way of the arm, and half a turn.
            (1, _) => assert!(runs.median_ns <= 11_000_000, "{runs:?}"),
            (_, 4096) => assert!(3 * ordered.puts_a_second <= runs.puts_a_second),
            _ => assert!(4 * runs.median_ns <= 3 * ordered.median_ns, "{runs:?}"),
        }
    }
}

/// Puts in a run that the drive takes past its cache: it knows of all of them at a time, and no flush
/// stops it.
#[test]
fn a_drive_that_takes_forced_writes_is_not_stopped_by_flushes() {
    for (len, clients, least) in [
        (1 << 20, 1, 97),
        (1 << 20, 2, 180),
        (1 << 20, 8, 125),
        (64 << 10, 8, 300),
        // Shorter ones share a flush, as ever.
        (4096, 8, 100),
    ] {
        let flushed = measure(CommitMode::Runs, false, clients, len);
        let forced = measure(CommitMode::Runs, true, clients, len);
        println!("{clients} clients, {len} bytes: runs {flushed:?}, forced {forced:?}");
        assert!(100 * forced.puts_a_second >= least * flushed.puts_a_second);
        if clients == 1 || len == 4096 {
            assert!(100 * forced.median_ns <= 101 * flushed.median_ns);
        }
        assert!(forced.flushes <= flushed.flushes);
    }
}
