//! Many threads that want more than the store lets in, with every kind of request context: all of
//! it is answered, what is answered is right, and nothing is left over.

use std::time::Duration;

use crate::support::{Shape, content, disk_dir, options, store_file};
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_engine::device::sim::Random;
use lumpscope_engine::{
    Durability, Error, IoBackendChoice, LumpId, LumpRange, Payer, Placement, RequestCtx, RequestId,
    Store,
};

const THREADS: u64 = 8;
const STEPS: u64 = 150;
const IDS_PER_THREAD: u64 = 5;

const SHAPE: Shape = Shape::new(4096, 64, 2000);

/// Some deadlines long gone, some at hand, some far; all combinations of the rest.
fn any_ctx(random: &mut Random) -> RequestCtx {
    let deadline = match random.below(5) {
        0 => Some(random.below(1000)),
        1 => Some(monotonic_ns()),
        2 => Some(monotonic_ns() + random.below(2_000_000)),
        3 => Some(monotonic_ns() + 3_600_000_000_000),
        _ => None,
    };
    RequestCtx {
        id: RequestId(random.next()),
        deadline,
        drop_when_late: random.chance(300),
        prioritized: random.chance(300),
        max_queue_len: random.chance(200).then(|| random.below(8) as u32),
        payer: Payer {
            login: random.below(3) as u32,
            connection: random.below(3) as u32,
        },
    }
}

/// Sums of the answers of one thread.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    late: u64,
    busy: u64,
}

impl Tally {
    /// Counts an answer; `None`: the request was not carried out.
    fn count<T>(&mut self, ctx: &RequestCtx, answer: Result<T, Error>) -> Option<Result<T, Error>> {
        match answer {
            Err(Error::DeadlineExceeded { late_ns }) => {
                assert!(ctx.drop_when_late && late_ns > 0);
                self.late += 1;
                None
            }
            Err(Error::Busy { retry_after, .. }) => {
                assert!(ctx.max_queue_len.is_some(), "a waiting call waits");
                assert!(retry_after > Duration::ZERO);
                self.busy += 1;
                None
            }
            answer => {
                self.done += 1;
                Some(answer)
            }
        }
    }
}

/// One thread with ids of its own, so that it knows what it must find.
fn client(store: &Store, thread: u64) -> Tally {
    let mut random = Random::new(thread);
    let mut tally = Tally::default();
    let mut model: [Option<Vec<u8>>; IDS_PER_THREAD as usize] = Default::default();
    for step in 0..STEPS {
        let slot = random.index(model.len());
        let number = u128::from(thread) * u128::from(IDS_PER_THREAD) + slot as u128;
        let (id, ctx) = (LumpId(number), any_ctx(&mut random));
        match random.below(8) {
            0..=2 => {
                let bytes = content(number, step, random.index(20_000));
                let mut buf = store.lump_buf_waiting(bytes.len() as u64).unwrap();
                buf.extend(&bytes).unwrap();
                let put = store.put(ctx, id, buf, Placement::Data, Durability::Synced);
                if let Some(put) = tally.count(&ctx, put) {
                    assert_eq!(put.unwrap().created, model[slot].is_none());
                    model[slot] = Some(bytes);
                }
            }
            3..=5 => match (tally.count(&ctx, store.get(ctx, id)), &model[slot]) {
                (Some(Ok(lump)), Some(bytes)) => assert_eq!(&lump[..], bytes),
                (Some(Err(Error::NotFound { .. })), None) | (None, _) => {}
                (Some(got), bytes) => panic!("{:?} {:?}", got.is_ok(), bytes.is_some()),
            },
            6 => {
                if let Some(gone) = tally.count(&ctx, store.delete(ctx, id, Durability::Synced)) {
                    assert_eq!(gone.unwrap().existed, model[slot].take().is_some());
                }
            }
            _ => {
                let ids = (0..IDS_PER_THREAD).map(|slot| {
                    LumpId(u128::from(thread) * u128::from(IDS_PER_THREAD) + u128::from(slot))
                });
                let gone = store.delete_many(ctx, ids.collect(), Durability::Synced);
                if let Some(gone) = tally.count(&ctx, gone) {
                    let there: Vec<bool> = model.iter().map(Option::is_some).collect();
                    assert_eq!(gone.unwrap().existed, there);
                    model = Default::default();
                }
            }
        }
    }
    tally
}

#[test]
fn everything_is_answered_whatever_the_policy_and_the_backend() {
    for backend in [IoBackendChoice::Threads, IoBackendChoice::Auto] {
        use lumpscope_engine::QueuePolicy::{Deadline, Fifo, Position};
        for policy in [Fifo, Deadline, Position] {
            let dir = disk_dir();
            let mut options = options();
            options.io_backend = backend;
            options.queue_policy = policy;
            // Fewer than there are threads of everything.
            options.queue_depth = 2;
            options.queue_limit = 4;
            options.max_overtakes = 2;
            options.overload_threshold = 3;
            options.overload_after = Duration::ZERO;
            options.buffer_budget = 90_000;
            let store = Store::open(&store_file(&dir, SHAPE), options).unwrap();
            let tallies: Vec<Tally> = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        scope.spawn({
                            let store = &store;
                            move || client(store, thread)
                        })
                    })
                    .collect();
                clients.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let sum = |field: fn(&Tally) -> u64| tallies.iter().map(field).sum::<u64>();
            let (done, late) = (sum(|one| one.done), sum(|one| one.late));
            let busy = sum(|one| one.busy);
            assert_eq!(done + late + busy, THREADS * STEPS);
            assert!(done > 0 && late > 0, "{tallies:?}");
            store.sync().unwrap();
            // The numbers are those of the round before; this one needs no I/O.
            let lumps = store.usage(LumpRange::ALL).unwrap().lumps;
            store.usage(LumpRange::ALL).unwrap();
            let stats = store.stats();
            assert_eq!((stats.lumps, stats.queue_length), (lumps, 0));
            assert_eq!((stats.pending, stats.buffer_used_bytes), (0, 0));
            assert_eq!(stats.deadline_dropped, late);
            assert_eq!(stats.queue_refused_own_limit, busy);
            assert_eq!(stats.queue_refused + stats.overload_refused, 0);
            // The sync and the two questions above.
            assert_eq!(stats.queue_started, done + 3);
            store.close().unwrap();
        }
    }
}
