//! Attribution holds for whatever the block layer makes of the declared I/Os.

use lumpscope_observer::{
    BlockOp, Class, Correlator, Declared, EndedRequest, Event, Extent, Input, Op, Placement,
    Purpose, Submission,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{declared, drained, ended, event, filled, finished, raw_store, wrote};

/// Sectors that I/Os are laid out in.
const SECTORS: u64 = 4096;

/// An I/O that lies between two cuts.
#[derive(Debug, Clone)]
struct Laid {
    from: u64,
    to: u64,
    /// How many requests it is done for; 0: the store itself.
    heads: u64,
}

/// I/Os beside each other, some places left free; where to cut them into block requests; the
/// order in which these complete.
fn layout() -> impl Strategy<Value = (Vec<Laid>, Vec<u64>, u64)> {
    let cuts = || vec(1..SECTORS, 0..16);
    let kinds = vec((0..4_u64, any::<bool>()), 17);
    let all = (cuts(), kinds, cuts(), any::<u64>());
    all.prop_map(|(ios, kinds, events, seed)| {
        let laid = ranges(ios).zip(kinds).filter(|(_, (_, free))| !free);
        let laid = laid.map(|((from, to), (heads, _))| Laid { from, to, heads });
        (laid.collect(), events, seed)
    })
}

/// The ranges between sorted cuts, from 0 to the end.
fn ranges(mut cuts: Vec<u64>) -> impl Iterator<Item = (u64, u64)> {
    cuts.extend([0, SECTORS]);
    cuts.sort_unstable();
    cuts.dedup();
    let ends: Vec<u64> = cuts[1..].to_vec();
    cuts.into_iter().zip(ends)
}

/// Request ids of an I/O: no two I/Os share one.
fn ids(io: usize, laid: &Laid) -> Vec<u64> {
    let ids = (0..laid.heads).map(|head| io as u64 * 10 + head + 1);
    ids.collect()
}

/// Everything, completed in an order that depends on the seed.
fn run(laid: &[Laid], cuts: Vec<u64>, seed: u64) -> (Correlator, u64) {
    let mut it = raw_store();
    for (io, one) in laid.iter().enumerate() {
        let (offset, len) = (one.from * 512, (one.to - one.from) * 512);
        let (token, ids) = (io as u64, ids(io, one));
        it.apply(declared(token, &ids, Op::Write, offset, len, 10));
    }
    let mut events: Vec<(u64, u64)> = ranges(cuts).collect();
    events.sort_by_key(|(from, _)| (from + 1).wrapping_mul(seed | 1).rotate_left(17));
    let mut asked = 0;
    for (number, (from, to)) in events.into_iter().enumerate() {
        let sectors = u32::try_from(to - from).expect("small");
        let number = number as u64;
        asked += u64::from(sectors) * 512;
        it.apply(wrote(from, sectors, 20, 30 + number, 60 + number));
    }
    for (io, one) in laid.iter().enumerate() {
        it.apply(finished(io as u64, 100));
        for request in ids(io, one) {
            it.apply(ended(request, 5, 105 + request));
        }
    }
    it.apply(drained(1000));
    (it, asked)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_byte_goes_to_exactly_those_who_declared_it((laid, cuts, seed) in layout()) {
        let (it, asked) = run(&laid, cuts, seed);
        let mut declared = 0;
        for (io, one) in laid.iter().enumerate() {
            let bytes = (one.to - one.from) * 512;
            declared += bytes;
            let mut given = 0;
            for request in ids(io, one) {
                let told = it.explain(request).expect("they are few enough to be kept");
                for block in &told.blocks {
                    let end = block.sector + u64::from(block.sectors);
                    prop_assert!(block.sector < one.to && end > one.from, "{block:?} {one:?}");
                    let overlap = end.min(one.to) - block.sector.max(one.from);
                    prop_assert!(block.own_bytes <= overlap * 512);
                    given += block.own_bytes;
                }
                let stages: u64 = told.stages.iter().map(|s| s.total_ns).sum();
                prop_assert_eq!(stages, told.total_ns);
                prop_assert_eq!(told.incomplete, "");
            }
            prop_assert_eq!(given, if one.heads == 0 { 0 } else { bytes });
        }
        let block = filled(&it).block;
        prop_assert_eq!(block.own_bytes, asked);
        prop_assert_eq!(block.unattributed_bytes, asked - declared);
        prop_assert_eq!(block.attributed_bytes + block.shared_bytes, declared);
        prop_assert_eq!(it.limits().ambiguous, 0);
    }

    #[test]
    fn nothing_that_comes_panics_or_is_counted_twice(inputs in vec(any_input(), 0..120)) {
        let mut it = Correlator::new(2);
        let watch = it.watch_blocks(lumpscope_observer::TraceRequest::default(), 1000);
        let mut asked: u64 = 0;
        for input in inputs {
            if let Input::Event(event) = &input && !event.flush_parent {
                asked += u64::from(event.sectors) * 512;
            }
            it.apply(input);
        }
        it.finish();
        for store in [0, 1] {
            let mut report = lumpscope_observer::StoreReport::default();
            it.fill(store, &mut report);
            let block = report.block;
            let parts = block.attributed_bytes + block.shared_bytes + block.unattributed_bytes;
            prop_assert_eq!(block.own_bytes, parts);
            prop_assert!(block.own_bytes <= asked);
            for operation in report.operations {
                let counted: u64 = operation.latency.iter().map(|b| b.count).sum();
                prop_assert_eq!(counted, operation.count);
            }
        }
        for told in it.slowest(None, false, 0, 1000) {
            prop_assert_eq!(it.explain(told.request_id).map(|e| e.request_id), Some(told.request_id));
        }
        prop_assert!(watch.take().len() <= 1000);
    }
}

/// Small numbers meet each other often; now and then comes an extreme one.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..64_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn any_event() -> impl Strategy<Value = Event> {
    use BlockOp::{Discard, Flush, Read, Write};
    let op = prop_oneof![Just(Read), Just(Write), Just(Flush), Just(Discard)];
    let class = prop_oneof![Just(Class::Own), Just(Class::FsJournal), Just(Class::Other)];
    let time = || proptest::option::of(number());
    let times = (time(), time(), number());
    let place = (number(), prop_oneof![9 => 0..16_u32, 1 => any::<u32>()]);
    let flags = (any::<bool>(), any::<bool>(), 0..10_u32);
    let rest = (
        proptest::option::of(prop_oneof![9 => -16..16_i64, 1 => any::<i64>()]),
        proptest::option::of((0..2_usize, 0..8_u64)),
    );
    (0..2_u32, op, class, times, place, flags, rest).prop_map(
        |(dev, op, class, (queue, issue, done), (sector, sectors), flags, (seek, named))| Event {
            dev,
            class,
            seek,
            flush_parent: flags.2 == 0,
            done_unknown: flags.2 == 1,
            failed: flags.0,
            own: flags.1,
            queue_ns: queue,
            issue_ns: issue,
            submission: named.map(|(store, token)| Submission { store, token }),
            ..event(op, sector, sectors & 0xffff, 0, 0, done)
        },
    )
}

fn any_place() -> impl Strategy<Value = Input> {
    let extent = (number(), number(), number()).prop_map(|(offset, sector, len)| Extent {
        offset: offset.saturating_mul(512),
        sector,
        len: len.saturating_mul(512),
    });
    (0..3_usize, 0..2_u32, vec(extent, 0..4)).prop_map(|(store, dev, extents)| Input::Placed {
        store,
        placement: Placement {
            dev,
            file_system: "ext4".to_owned(),
            ranges: Vec::new(),
            extents,
        },
        disk: String::new(),
    })
}

fn any_input() -> impl Strategy<Value = Input> {
    let store = || 0..3_usize;
    let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Flush)];
    let purpose = prop_oneof![Just(Purpose::Data), Just(Purpose::Journal)];
    let requests = vec(0..8_u64, 0..3);
    let (offset, len, begin) = (number(), number(), number());
    let io = (store(), 0..8_u64, requests, purpose, op, offset, len, begin);
    let declared = io.prop_map(
        |(store, token, requests, purpose, op, offset, len, begin_ns)| {
            Input::Declared(Declared {
                store,
                token,
                requests,
                purpose,
                op,
                offset: offset.saturating_mul(512),
                len: len.saturating_mul(512),
                begin_ns,
            })
        },
    );
    let finished =
        (store(), 0..8_u64, number()).prop_map(|(store, token, end_ns)| Input::Finished {
            store,
            token,
            end_ns,
        });
    let ended = (store(), 0..8_u64, number(), number(), vec(number(), 6)).prop_map(
        |(store, request, begin_ns, end_ns, stages)| {
            Input::Ended(EndedRequest {
                request,
                store,
                method: "put".into(),
                bytes: end_ns,
                begin_ns,
                end_ns,
                ok: true,
                stages_ns: stages.try_into().expect("six"),
                ..EndedRequest::default()
            })
        },
    );
    prop_oneof![
        1 => (0..3_usize).prop_map(|store| Input::Added { store, name: String::new() }),
        1 => (0..3_usize).prop_map(|store| Input::Removed { store }),
        3 => any_place(),
        8 => declared,
        5 => finished,
        4 => ended,
        15 => any_event().prop_map(Input::Event),
        3 => number().prop_map(|until_ns| Input::Drained { until_ns }),
    ]
}
