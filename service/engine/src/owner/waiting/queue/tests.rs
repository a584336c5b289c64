//! The order against simple models of it.

use proptest::prelude::*;

use super::*;
use crate::options::QueuePolicy;

const SERVICE_NS: u64 = 10;

fn moment(now_ns: u64) -> Moment {
    Moment {
        now_ns,
        service_ns: [SERVICE_NS; 3],
        kinds: Kinds::ALL,
    }
}

fn get(position: u64, deadline: Option<u64>) -> QueuePlace {
    QueuePlace {
        kind: RequestKind::Get,
        position,
        deadline,
        expires: false,
    }
}

fn put() -> QueuePlace {
    QueuePlace {
        kind: RequestKind::Put,
        ..get(0, None)
    }
}

fn queue(policy: QueuePolicy, max_overtakes: u32) -> Queue<usize> {
    Queue::new(Order::new(policy, max_overtakes))
}

fn pop<T>(queue: &mut Queue<T>, moment: Moment) -> Option<T> {
    let (number, _) = queue.choose(moment)?;
    queue.take(number)
}

/// All of `places` at once; what leaves, in order.
fn drained(policy: QueuePolicy, now: u64, places: &[QueuePlace]) -> Vec<usize> {
    let mut queue = queue(policy, u32::MAX);
    for (name, place) in places.iter().enumerate() {
        queue.push(*place, name);
    }
    std::iter::from_fn(|| pop(&mut queue, moment(now))).collect()
}

#[test]
fn deadlines_as_cannyls_orders_them() {
    // Infinity, within 50, immediate (now), infinity, within 50.
    let deadlines = [None, Some(150), Some(100), None, Some(150)];
    let mut positions = 1..;
    let places = deadlines.map(|deadline| get(positions.next().expect("endless"), deadline));
    let expected = [2, 1, 4, 0, 3];
    assert_eq!(drained(QueuePolicy::Deadline, 100, &places), expected);
    // Those that are late are still there, in the same order.
    assert_eq!(drained(QueuePolicy::Deadline, 9999, &places), expected);
    assert_eq!(drained(QueuePolicy::Fifo, 100, &places), [0, 1, 2, 3, 4]);
}

#[test]
fn the_sweep_goes_up_and_begins_again() {
    let places = [500, 100, 300, 100, 400].map(|position| get(position, None));
    let mut queue = queue(QueuePolicy::Position, 100);
    queue.put_placed(0, 350);
    for (name, place) in places.iter().enumerate() {
        queue.push(*place, name);
    }
    queue.push(put(), 5);
    assert_eq!(pop(&mut queue, moment(0)), Some(1));
    assert_eq!(pop(&mut queue, moment(0)), Some(3));
    assert_eq!(pop(&mut queue, moment(0)), Some(2));
    // What lies behind waits for the next round.
    queue.push(get(299, None), 6);
    assert_eq!(pop(&mut queue, moment(0)), Some(5));
    queue.put_placed(350, 380);
    assert_eq!(pop(&mut queue, moment(0)), Some(4));
    assert_eq!(pop(&mut queue, moment(0)), Some(0));
    assert_eq!(pop(&mut queue, moment(0)), Some(6));
    assert_eq!(pop(&mut queue, moment(0)), None);
    assert!(queue.is_empty());
    // 1 before 0; 3 and 2 before 0; 5 before 0 and 4; 4 before 0.
    assert_eq!(queue.overtakes(), 5);
}

#[test]
fn a_deadline_at_risk_goes_first() {
    let places = [
        get(10, None),
        get(900, Some(111)),
        get(800, Some(110)),
        get(700, Some(105)),
    ];
    // The third and the fourth would be late if they waited, the second has 11 ns, one too many.
    let order = drained(QueuePolicy::Position, 100, &places);
    assert_eq!(order, [3, 2, 1, 0], "the sweep goes on from 800");
    assert_eq!(drained(QueuePolicy::Position, 0, &places), [0, 3, 2, 1]);
}

#[test]
fn what_cannot_start_is_passed_over() {
    let mut queue = queue(QueuePolicy::Position, 0);
    queue.push(get(1, Some(0)), 0);
    queue.push(put(), 1);
    let without_memory = Moment {
        kinds: Kinds::ALL.without(RequestKind::Get),
        ..moment(100)
    };
    assert_eq!(pop(&mut queue, without_memory), Some(1));
    assert_eq!(pop(&mut queue, without_memory), None);
    assert_eq!(pop(&mut queue, moment(100)), Some(0));
}

#[test]
fn what_expires_is_taken_out_in_time() {
    let mut queue = queue(QueuePolicy::Fifo, 0);
    let deadlines = [(50, true), (10, false), (20, true)];
    for (name, (deadline, expires)) in deadlines.into_iter().enumerate() {
        let place = QueuePlace {
            expires,
            ..get(0, Some(deadline))
        };
        queue.push(place, name);
    }
    assert_eq!(queue.next_expiry(), Some(20));
    assert_eq!(queue.expire(20), None, "in time up to the deadline itself");
    assert_eq!(queue.expire(21), Some((2, 1)));
    assert_eq!(queue.expire(21), None);
    assert_eq!(queue.next_expiry(), Some(50));
    assert_eq!(pop(&mut queue, moment(21)), Some(0));
    assert_eq!((queue.next_expiry(), queue.expire(999)), (None, None));
    assert_eq!(pop(&mut queue, moment(21)), Some(1));
}

/// Step of the queue in a property test.
#[derive(Clone, Debug)]
enum QueueStep {
    Push(QueuePlace),
    Pop { passed_ns: u64, kinds: Kinds },
}

fn place() -> impl Strategy<Value = QueuePlace> {
    let kind = prop::sample::select(RequestKind::ALL.to_vec());
    let deadline = prop::option::weighted(0.3, 0_u64..2000);
    (kind, 0_u64..50, deadline).prop_map(|(kind, position, deadline)| QueuePlace {
        kind,
        ..get(position, deadline)
    })
}

fn steps() -> impl Strategy<Value = Vec<QueueStep>> {
    let kinds = prop_oneof![
        8 => Just(Kinds::ALL),
        1 => Just(Kinds::ALL.without(RequestKind::Get)),
        1 => Just(Kinds::ALL.without(RequestKind::Put)),
    ];
    let step = prop_oneof![
        3 => place().prop_map(QueueStep::Push),
        3 =>
        (0_u64..20, kinds).prop_map(|(passed_ns, kinds)| QueueStep::Pop { passed_ns, kinds }),
    ];
    prop::collection::vec(step, 1..400)
}

#[derive(Clone, Copy, Debug)]
struct WaitingEntry {
    name: usize,
    place: QueuePlace,
    overtaken: u64,
}

/// The waiting request that each policy must choose, found by looking at all.
fn expected(policy: QueuePolicy, waiting: &[WaitingEntry]) -> Option<usize> {
    match policy {
        QueuePolicy::Fifo => waiting.first().map(|one| one.name),
        QueuePolicy::Deadline => {
            let until = |one: &WaitingEntry| one.place.deadline.unwrap_or(u64::MAX);
            let all = waiting.iter().map(|one| (until(one), one.name));
            all.min().map(|(_, name)| name)
        }
        QueuePolicy::Position => None,
    }
}

fn check(
    policy: QueuePolicy,
    max_overtakes: u32,
    steps: Vec<QueueStep>,
) -> Result<(), TestCaseError> {
    let mut queue = queue(policy, max_overtakes);
    let mut waiting: Vec<WaitingEntry> = Vec::new();
    let (mut now, mut pushed) = (0, 0);
    for step in steps {
        let (passed_ns, kinds) = match step {
            QueueStep::Push(place) => {
                queue.push(place, pushed);
                waiting.push(WaitingEntry {
                    name: pushed,
                    place,
                    overtaken: 0,
                });
                pushed += 1;
                continue;
            }
            QueueStep::Pop { passed_ns, kinds } => (passed_ns, kinds),
        };
        now += passed_ns;
        let able = waiting.iter().filter(|one| kinds.has(one.place.kind));
        let able: Vec<WaitingEntry> = able.copied().collect();
        let moment = Moment {
            kinds,
            ..moment(now)
        };
        let Some(name) = pop(&mut queue, moment) else {
            prop_assert!(able.is_empty(), "something could start");
            continue;
        };
        if let Some(expected) = expected(policy, &able) {
            prop_assert_eq!(name, expected);
        }
        let at = waiting.iter().position(|one| one.name == name);
        let at = at.expect("it was waiting, and leaves once");
        let left = waiting.remove(at);
        prop_assert!(kinds.has(left.place.kind));
        for passed in &mut waiting[..at] {
            // One that could not have started was not overtaken.
            passed.overtaken += u64::from(kinds.has(passed.place.kind));
            if policy == QueuePolicy::Position {
                prop_assert!(passed.overtaken <= u64::from(max_overtakes), "{passed:?}");
            }
        }
    }
    // Nobody is lost.
    let left: BTreeSet<usize> = std::iter::from_fn(|| pop(&mut queue, moment(now))).collect();
    prop_assert_eq!(left, waiting.iter().map(|one| one.name).collect());
    Ok(())
}

proptest! {
    #[test]
    fn first_come_first_served(steps in steps()) {
        check(QueuePolicy::Fifo, 0, steps)?;
    }

    #[test]
    fn earliest_deadline_first(steps in steps()) {
        check(QueuePolicy::Deadline, 0, steps)?;
    }

    #[test]
    fn nobody_is_overtaken_more_often_than_allowed(steps in steps(), max_overtakes in 0_u32..9) {
        check(QueuePolicy::Position, max_overtakes, steps)?;
    }

    /// One sweep over requests that are all there moves the head over the disk at most once up
    /// and once back.
    #[test]
    fn a_sweep_passes_each_place_once(positions in prop::collection::vec(0_u64..1000, 1..100)) {
        let places: Vec<QueuePlace> = positions.iter().map(|&at| get(at, None)).collect();
        let order = drained(QueuePolicy::Position, 0, &places);
        let visited: Vec<u64> = order.iter().map(|&name| positions[name]).collect();
        prop_assert!(visited.is_sorted());
        prop_assert_eq!(visited.len(), positions.len());
    }
}
