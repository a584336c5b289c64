//! The time of a commit: waiting for a batch before, writes, flushes, exactly.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::timed::{FLUSH_NS, READ_NS, Timed};
use crate::support::{buf, but, ctx_of, options};
use lumpscope_engine::clock::virtual_time;
use lumpscope_engine::{
    BatchWait, CommitMode, Durability, EngineTimes, LumpId, Placement, PutCondition, PutOptions,
    RequestId, StoreOptions,
};

const MS: Duration = Duration::from_millis(1);

/// Puts a lump for the request of this id; the answer says whether that went well, and its times.
fn put(
    store: &Timed,
    id: u64,
    (lump, options): (u128, PutOptions),
) -> Receiver<(bool, EngineTimes)> {
    let (told, times) = channel();
    let buf = buf(&store.store, b"lump");
    let ctx = ctx_of(id);
    let done = Box::new(move |result: Result<_, _>, times| {
        told.send((result.is_ok(), times)).unwrap();
    });
    let _time = virtual_time(store.disk.now_ns());
    let sent = store
        .store
        .submit_put_with(ctx, LumpId(lump), buf, options, done);
    sent.unwrap();
    times
}

fn waited(ns: u64, behind: u64) -> BatchWait {
    let behind = RequestId(behind);
    BatchWait { ns, behind }
}

const DATA: PutOptions = PutOptions {
    placement: Some(Placement::Data),
    durability: Durability::Synced,
    condition: PutCondition::Always,
};
const EMBEDDED: PutOptions = PutOptions {
    placement: Some(Placement::Embedded),
    ..DATA
};

#[test]
fn a_commit_is_waits_writes_and_flushes() {
    let mut store = Timed::new(but(options(), |it| it.commit = CommitMode::Ordered));
    let first = put(&store, 1, (1, DATA));
    store.pass(500 * MS);
    // Behind the flush of the first one's data.
    let second = put(&store, 2, (2, DATA));
    store.pass(1000 * MS);
    // Behind the batch with its record.
    let third = put(&store, 3, (3, EMBEDDED));
    store.settle();
    let data = EngineTimes {
        data_ns: READ_NS,
        write_ns: READ_NS,
        flush_ns: 2 * FLUSH_NS,
        ..EngineTimes::default()
    };
    assert_eq!(first.try_recv(), Ok((true, data)));
    // Its data was written while that flush was in flight; the next one begins behind the write of
    // the first one's record.
    let wait = waited(FLUSH_NS / 2 + READ_NS, 1);
    let times = EngineTimes {
        wait_ns: wait.ns,
        longest_wait: Some(wait),
        ..data
    };
    assert_eq!(second.try_recv(), Ok((true, times)));
    let wait = waited(FLUSH_NS / 2 + 2 * READ_NS, 1);
    let times = EngineTimes {
        write_ns: READ_NS,
        flush_ns: FLUSH_NS,
        wait_ns: wait.ns,
        longest_wait: Some(wait),
        ..EngineTimes::default()
    };
    assert_eq!(third.try_recv(), Ok((true, times)));
}

/// One flush serves the puts of a run that are written together: who is written first waits, also
/// for one that comes when it is.
#[test]
fn a_put_in_a_run_has_waited_for_the_one_beside_it() {
    for after_ns in [READ_NS / 2, READ_NS] {
        let mut store = Timed::new(but(options(), |it| it.commit = CommitMode::Runs));
        // The batch with its record opens the run.
        let opening = put(&store, 1, (1, DATA));
        store.settle();
        assert!(opening.try_recv().unwrap().0);
        let first = put(&store, 2, (2, DATA));
        store.step();
        store.disk.advance_to(store.disk.now_ns() + after_ns);
        let second = put(&store, 3, (3, DATA));
        store.pass(500 * MS);
        // Comes while both are flushed, and does not count for them.
        let third = put(&store, 4, (4, DATA));
        store.settle();
        assert!(third.try_recv().unwrap().0);
        let times = EngineTimes {
            data_ns: READ_NS,
            flush_ns: FLUSH_NS,
            ..EngineTimes::default()
        };
        assert_eq!(second.try_recv(), Ok((true, times)));
        let wait = waited(after_ns, 3);
        let times = EngineTimes {
            wait_ns: wait.ns,
            longest_wait: Some(wait),
            ..times
        };
        assert_eq!(first.try_recv(), Ok((true, times)));
    }
}

/// What is beaten by a put of its batch has waited for it.
#[test]
fn a_put_that_is_beaten_has_waited_for_the_other() {
    let mut store = Timed::new(StoreOptions::new("sim"));
    let first = put(&store, 1, (1, EMBEDDED));
    let if_absent = PutOptions {
        condition: PutCondition::IfAbsent,
        ..EMBEDDED
    };
    let second = put(&store, 2, (1, if_absent));
    store.settle();
    let (went_well, won) = first.try_recv().unwrap();
    assert!(went_well);
    assert_eq!(won.total_ns(), READ_NS + FLUSH_NS);
    let wait = waited(READ_NS + FLUSH_NS, 1);
    let (went_well, beaten) = second.try_recv().unwrap();
    assert!(!went_well);
    assert_eq!(beaten.longest_wait, Some(wait));
    assert_eq!(beaten.total_ns(), wait.ns);
}
