//! Puts that must not replace, and deletes of many: alone, at the same time, and cut by a crash.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::support::timed::{IF_ABSENT, Timed};
use crate::support::{
    Shape, buf, but, content, ctx, delete, disk_dir, get, options, put, store_file, until_true,
};
use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions, Survivors, blank_image};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{
    CommitMode, DeleteManyOutcome, Durability, Error, IoBackendChoice, LIVE_SHARE, LumpId,
    LumpRange, Placement, PutCondition, PutOptions, Store, StoreOptions, StoreStats,
};

const EMBEDDED_IF_ABSENT: PutOptions = PutOptions {
    placement: Some(Placement::Embedded),
    ..IF_ABSENT
};

/// The numbers after all that was answered before.
fn stats(store: &Store) -> StoreStats {
    store.sync().unwrap();
    store.stats()
}

/// Whether the put won. Does not panic: other threads may wait for this one.
fn put_if_absent(store: &Store, id: u128, bytes: &[u8], how: PutOptions) -> Result<bool, String> {
    let said = |error: Error| error.to_string();
    let mut buf = store.lump_buf_waiting(bytes.len() as u64).map_err(said)?;
    buf.extend(bytes).map_err(said)?;
    match store.put_with(ctx(), LumpId(id), buf, how) {
        Ok(outcome) if outcome.created => Ok(true),
        Ok(_) => Err(format!("lump {id} was replaced")),
        Err(Error::AlreadyExists { id: which }) if which == LumpId(id) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn for_both_backends(shape: Shape, test: impl Fn(Store, &dyn Fn() -> Store)) {
    for backend in [IoBackendChoice::Threads, IoBackendChoice::Auto] {
        let dir = disk_dir();
        let path = store_file(&dir, shape);
        let options = but(options(), |it| it.io_backend = backend);
        let open = || Store::open(&path, options.clone()).unwrap();
        test(open(), &open);
    }
}

const SHAPE: Shape = Shape::new(4096, 64, 2000);

#[test]
fn of_concurrent_puts_if_absent_exactly_one_wins() {
    const THREADS: u64 = 8;
    const ROUNDS: u128 = 40;
    for_both_backends(SHAPE, |store, reopen| {
        let barrier = Barrier::new(THREADS as usize);
        let winners: Vec<Result<Vec<bool>, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (store, barrier) = (&store, &barrier);
                    scope.spawn(move || {
                        let round = |id| {
                            barrier.wait();
                            let how = if (u64::try_from(id).unwrap() + thread) % 3 == 0 {
                                EMBEDDED_IF_ABSENT
                            } else {
                                IF_ABSENT
                            };
                            put_if_absent(store, id, &content(id, thread, 900), how)
                        };
                        // All rounds, whatever happens in one: the others wait.
                        let all: Vec<_> = (0..ROUNDS).map(round).collect();
                        all.into_iter().collect()
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let winners: Vec<Vec<bool>> = winners.into_iter().map(Result::unwrap).collect();
        let won = |id: u128| {
            let winner = |won: &Vec<bool>| won[id as usize];
            assert_eq!(winners.iter().filter(|won| winner(won)).count(), 1);
            winners.iter().position(winner).unwrap() as u64
        };
        let check = |store: &Store| {
            for id in 0..ROUNDS {
                assert_eq!(get(store, id), Some(content(id, won(id), 900)));
            }
            let stored = store.usage(LumpRange::ALL).unwrap().stored_bytes;
            // A lump in the data region takes one block, an embedded one its 900 bytes.
            let is_embedded = |id: &u128| (*id as u64 + won(*id)).is_multiple_of(3);
            let embedded = (0..ROUNDS).filter(is_embedded).count() as u64;
            let in_region = (ROUNDS as u64 - embedded) * 4096;
            assert_eq!(stored, in_region + embedded * 900);
            // Those of losers are free with the next records.
            until_true(store, || stats(store).data_used_bytes == in_region);
        };
        check(&store);
        store.close().unwrap();
        check(&reopen());
    });
}

/// Every put that wins needs the lump to be absent, every delete that finds one makes it so: the
/// difference is what is there at the end, or the log had another order than the answers say.
#[test]
fn puts_if_absent_and_deletes_agree_on_who_came_first() {
    const IDS: u128 = 3;
    for_both_backends(SHAPE, |store, reopen| {
        let there: [AtomicI64; IDS as usize] = Default::default();
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (store, there) = (&store, &there);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for step in 0..150 {
                        let id = u128::from(random.below(u64::try_from(IDS).unwrap()));
                        let count = &there[id as usize];
                        if random.chance(500) {
                            let how = PutOptions {
                                placement: match random.below(3) {
                                    0 => None,
                                    1 => Some(Placement::Data),
                                    _ => Some(Placement::Embedded),
                                },
                                durability: match random.chance(300) {
                                    true => Durability::Journaled,
                                    false => Durability::Synced,
                                },
                                condition: PutCondition::IfAbsent,
                            };
                            let bytes = content(id, step, 700);
                            if put_if_absent(store, id, &bytes, how).unwrap() {
                                count.fetch_add(1, Ordering::SeqCst);
                            }
                        } else if random.chance(700) {
                            if delete(store, id) {
                                count.fetch_sub(1, Ordering::SeqCst);
                            }
                        } else {
                            let ids = (0..IDS).map(LumpId).collect();
                            let gone = store.delete_many(ctx(), ids, Durability::Synced).unwrap();
                            for (count, existed) in there.iter().zip(gone.existed) {
                                count.fetch_sub(i64::from(existed), Ordering::SeqCst);
                            }
                        }
                    }
                });
            }
        });
        let check = |store: &Store| {
            for id in 0..IDS {
                let there = there[id as usize].load(Ordering::SeqCst);
                assert_eq!(there, i64::from(get(store, id).is_some()));
            }
        };
        check(&store);
        store.close().unwrap();
        check(&reopen());
    });
}

#[test]
fn a_put_if_absent_is_possible_again_after_a_delete() {
    let mut store = Timed::new(StoreOptions::new("sim"));
    for how in [IF_ABSENT, EMBEDDED_IF_ABSENT] {
        let old = content(1, 1, 700);
        let first = store.begin_put(1, &old, how);
        store.settle();
        assert!(first.try_recv().unwrap().unwrap().created);
        let writes = store.disk.submitted();
        let second = store.begin_put(1, &content(1, 2, 700), how);
        store.settle();
        let second = second.try_recv().unwrap();
        assert!(matches!(
            second,
            Err(Error::AlreadyExists { id: LumpId(1) })
        ));
        assert_eq!(store.disk.submitted(), writes, "refused without any I/O");
        assert_eq!(store.get(1), Some(old));
        // Sent together, in this order: the log has them in this order.
        let delete = store.begin_delete(1);
        let third = store.begin_put(1, &content(1, 3, 700), EMBEDDED_IF_ABSENT);
        store.settle();
        assert!(delete.try_recv().unwrap().unwrap().existed);
        assert!(third.try_recv().unwrap().unwrap().created);
        assert_eq!(store.get(1), Some(content(1, 3, 700)));
        let delete = store
            .send(|store, done| {
                store.submit_delete_range(ctx(), LumpId(0), LumpId(9), Durability::Synced, done)
            })
            .unwrap();
        store.settle();
        assert_eq!(delete.try_recv().unwrap().unwrap().deleted, 1);
    }
}

#[test]
fn many_are_deleted_by_one_commit_and_each_is_answered() {
    let dir = disk_dir();
    let store = Store::open(&store_file(&dir, SHAPE), options()).unwrap();
    for id in 0..50 {
        put(&store, id, &content(id, 1, 100));
    }
    let commits = stats(&store).commits;
    let ids = |ids: &[u128]| ids.iter().copied().map(LumpId).collect::<Vec<_>>();
    let remove = |ids: Vec<LumpId>, how| store.delete_many(ctx(), ids, how);
    let gone = remove(ids(&[7, 99, 3, 7, 49]), Durability::Synced).unwrap();
    assert_eq!(gone.existed, [true, false, true, false, true]);
    assert_eq!(gone.durability, Durability::Synced);
    let after = stats(&store);
    assert_eq!((after.commits, after.lumps), (commits + 1, 47));
    let gone = remove(ids(&[3, 7]), Durability::Journaled).unwrap();
    assert_eq!(gone.existed, [false, false]);
    let none = remove(Vec::new(), Durability::Synced);
    assert_eq!(none.unwrap(), DeleteManyOutcome::default());
    let too_many = vec![LumpId(0); Store::MAX_DELETE_IDS + 1];
    let Err(Error::TooManyIds { got, max }) = remove(too_many, Durability::Synced) else {
        panic!("too many ids were taken")
    };
    assert_eq!((got, max), (16_385, 16_384));
    // More than the ring can hold at once: several commits.
    let all: Vec<LumpId> = (0..Store::MAX_DELETE_IDS as u128).map(LumpId).collect();
    put(&store, 5000, b"x");
    let gone = remove(all, Durability::Synced).unwrap();
    assert_eq!(gone.existed.iter().filter(|existed| **existed).count(), 48);
    assert_eq!(stats(&store).lumps, 0);
}

/// Runs `begin` on a store with `lumps` lumps and cuts the power after every I/O of what follows;
/// `check` gets every store that may be found then.
fn cut_everywhere(lumps: u128, begin: impl Fn(&Timed), check: impl Fn(&mut Timed)) {
    let image = blank_image(BlockSize::MIN, 64, 400, [7; 16]);
    let mut random = Random::new(lumps as u64);
    for seed in 0..6 {
        let sim = but(SimOptions::default(), |it| it.seed = seed);
        let mut store = Timed::on(SimDisk::new(&image, sim), StoreOptions::new("sim"));
        for id in 0..lumps {
            store.put(id, &content(id, 1, 700));
        }
        begin(&store);
        loop {
            store.step();
            for survivors in Survivors::ALL {
                let disk = store.disk.power_cut(survivors, &mut random);
                check(&mut Timed::on(disk, StoreOptions::new("sim")));
            }
            if !store.disk.advance() {
                break;
            }
        }
    }
}

#[test]
fn a_cut_delete_of_many_has_happened_or_not() {
    let ids: Vec<LumpId> = (0..40).map(LumpId).collect();
    cut_everywhere(
        40,
        |store| {
            let ids = ids.clone();
            store
                .send(|store, done| store.submit_delete_many(ctx(), ids, Durability::Synced, done))
                .unwrap();
        },
        |store| {
            let lumps = store.stats().lumps;
            assert!(lumps == 0 || lumps == 40, "{lumps} of 40 are left");
        },
    );
}

#[test]
fn nothing_of_a_put_that_lost_survives_a_cut() {
    cut_everywhere(
        3,
        |store| {
            let how = |number: u64| match number % 2 {
                0 => IF_ABSENT,
                _ => EMBEDDED_IF_ABSENT,
            };
            for number in 0..6 {
                // One that is there, and one that is not.
                store.begin_put(1, &content(1, 10 + number, 700), how(number));
                store.begin_put(9, &content(9, 10 + number, 700), how(number));
            }
        },
        |store| {
            assert_eq!(store.get(1), Some(content(1, 1, 700)));
            let found = store.get(9);
            let puts = (0..6).map(|number| content(9, 10 + number, 700));
            assert!(found.is_none() || puts.into_iter().any(|put| Some(put) == found));
            let stats = store.stats();
            assert!(stats.lumps == 3 + u64::from(found.is_some()));
            // 700 bytes and their trailer take two blocks of 512.
            assert!(stats.data_used_bytes <= stats.lumps * 1024);
        },
    );
}

#[test]
fn small_lumps_go_into_the_journal_while_there_is_room() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        small_lumps(commit);
    }
}

fn small_lumps(commit: CommitMode) {
    let dir = disk_dir();
    let options = but(options(), |it| it.commit = commit);
    let store = Store::open(&store_file(&dir, SHAPE), options).unwrap();
    let ring = store.stats().journal_capacity_bytes;
    let put = |id, len: u64| {
        let before = stats(&store);
        let bytes = content(id, 1, len.try_into().unwrap());
        let (lump, how) = (buf(&store, &bytes), PutOptions::default());
        let done = store.put_with(ctx(), LumpId(id), lump, how).unwrap();
        let found = store.head(ctx(), LumpId(id)).unwrap();
        assert_eq!((found.placement, found.length), (done.placement, len));
        let got = store.get(ctx(), LumpId(id)).unwrap();
        assert_eq!(got[..], bytes[..]);
        (done.placement, stats(&store).writes - before.writes)
    };
    let most = commit.max_small();
    assert_eq!(put(0, most + 1).0, Placement::Data);
    assert_eq!(put(1, most).0, Placement::Embedded);
    let (placement, writes) = put(2, 100);
    assert_eq!(placement, Placement::Embedded);
    // In runs, the store writes by itself now and then.
    assert!(writes == 1 || commit == CommitMode::Runs, "{writes}");
    let mut embedded = 0;
    for id in 3..3 + u128::from(ring / most) {
        embedded += u64::from(put(id, most).0 == Placement::Embedded);
    }
    let limit = ring / LIVE_SHARE + most;
    let live = embedded * most;
    assert!((1..=limit).contains(&live), "{live} of {ring}");
    assert_eq!(put(3, most).0, Placement::Data, "no room");
    // Deletes make room.
    for id in 1..=16 {
        delete(&store, id);
    }
    assert_eq!(put(5, most / 2).0, Placement::Embedded);
}

/// Number of changes of the store, and the lumps in it.
fn changes(store: &mut Timed) -> (u64, u64) {
    let answer = store
        .send(|store, done| store.submit_usage(ctx(), LumpRange::ALL, done))
        .unwrap();
    store.settle();
    let usage = answer.try_recv().unwrap().unwrap();
    (usage.changes, usage.lumps)
}

#[test]
fn a_frozen_store_ends_what_is_under_way_and_changes_nothing_more() {
    let mut store = Timed::new(StoreOptions::new("sim"));
    store.put(1, b"one");
    let (before, _) = changes(&mut store);
    let under_way = store.begin_put(2, &content(2, 1, 700), PutOptions::default());
    store.step();
    let frozen = store.send(|store, done| store.submit_freeze(done)).unwrap();
    let late = store.begin_put(3, &content(3, 1, 700), PutOptions::default());
    let deleted = store.begin_delete(1);
    store.step();
    assert!(frozen.try_recv().is_err(), "a put is under way");
    store.settle();
    frozen.try_recv().unwrap().unwrap();
    assert!(under_way.try_recv().unwrap().unwrap().created);
    let late = late.try_recv().unwrap().unwrap_err();
    assert!(matches!(late, Error::ReadOnly { .. }), "{late}");
    let deleted = deleted.try_recv().unwrap().unwrap_err();
    assert!(matches!(deleted, Error::ReadOnly { .. }), "{deleted}");
    assert_eq!(changes(&mut store), (before.wrapping_add(1), 2));
    assert_eq!(store.get(1).as_deref(), Some(&b"one"[..]));
    let sync = store.send(|store, done| store.submit_sync(done)).unwrap();
    store.settle();
    sync.try_recv().unwrap().unwrap();
    store.store.thaw();
    store.put(1, b"two");
    let deleted = store.begin_delete(2);
    store.settle();
    assert!(deleted.try_recv().unwrap().unwrap().existed);
    assert_eq!(changes(&mut store), (before.wrapping_add(3), 1));
}

#[test]
fn a_head_with_the_checksum_reads_it_though_the_length_is_known() {
    let mut store = Timed::new(StoreOptions::new("sim"));
    let bytes = content(2, 1, 70_000);
    store.put(2, &bytes);
    store.put(3, b"small");
    for id in [2, 3, 2] {
        let answer = store
            .send(|store, done| store.submit_head_with(ctx(), LumpId(id), true, done))
            .unwrap();
        store.settle();
        let head = answer.try_recv().unwrap().unwrap();
        let sum = (id == 2).then(|| lumpscope_engine::crc32c::of(&bytes));
        assert_eq!(head.crc32c, sum);
    }
}
