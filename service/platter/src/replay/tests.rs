use super::*;
use crate::drive::by_name;
use crate::queue::Order;

/// Serves requests one after the other on a disk, with pauses, as a recorder would see them.
fn live(requests: &[Request], pause_ns: u64, policy: Policy) -> Trace {
    let mut disk = Disk::new(&by_name("st1000dm003").unwrap(), policy).unwrap();
    // A recorder's clock does not begin at 0.
    let mut now_ns = 0;
    let mut traced = Vec::new();
    for request in requests {
        let served = disk.serve(now_ns, request).unwrap();
        traced.push(Traced {
            op: request.op,
            fua: request.fua,
            sector: request.sector,
            sectors: request.sectors,
            queue_ns: served.arrived_ns,
            issue_ns: served.arrived_ns,
            done_ns: served.done_ns,
            own: request.sector.is_multiple_of(16),
        });
        now_ns = served.done_ns + pause_ns;
    }
    Trace::new(traced, 0)
}

/// A trace from a device that answers at once.
fn on_a_fast_device(trace: &Trace) -> Trace {
    let mut now_ns = 1_000_000_000;
    let mut before_ns = None;
    let mut fast = Vec::new();
    for request in &trace.requests {
        now_ns += request.issue_ns - before_ns.unwrap_or(request.issue_ns);
        fast.push(Traced {
            queue_ns: now_ns,
            issue_ns: now_ns,
            done_ns: now_ns + 30_000,
            ..*request
        });
        now_ns += 30_000;
        before_ns = Some(request.done_ns);
    }
    Trace::new(fast, 0)
}

fn mixed(count: u64) -> Vec<Request> {
    let mut random = fastrand::Rng::with_seed(11);
    let one = |number| {
        let sector = random.u64(0..100_000_000) * 8;
        match number % 10 {
            0 => Request::flush(),
            1..=4 => Request::read(sector, 256),
            _ => Request::write(number * 2048, 2048),
        }
    };
    (0..count).map(one).collect()
}

fn what_if(policy: Policy) -> WhatIf {
    WhatIf::new("as it is", by_name("st1000dm003").unwrap(), policy)
}

#[test]
fn what_was_served_live_is_predicted_exactly() {
    for policy in [
        Policy::default(),
        Policy::default().write_through(),
        Policy::default().with_overlap(),
    ] {
        for pause_ns in [0, 70_000, 5_000_000, 200_000_000] {
            let recorded = live(&mixed(400), pause_ns, policy);
            for trace in [recorded.clone(), on_a_fast_device(&recorded)] {
                let predicted = replay(&trace, &what_if(policy)).unwrap();
                for (replayed, live) in predicted.requests.iter().zip(&recorded.requests) {
                    assert_eq!(replayed.issue_ns, live.issue_ns);
                    assert_eq!(replayed.served.done_ns, live.done_ns);
                }
            }
        }
    }
}

#[test]
fn the_same_trace_gives_the_same_prediction_in_any_order_of_recording() {
    let trace = on_a_fast_device(&live(&mixed(300), 0, Policy::default()));
    let predicted = replay(&trace, &what_if(Policy::default())).unwrap();
    let mut requests = trace.requests.clone();
    fastrand::Rng::with_seed(5).shuffle(&mut requests);
    let again = replay(&Trace::new(requests, 0), &what_if(Policy::default())).unwrap();
    assert_eq!(again, predicted);
}

#[test]
fn requests_that_were_in_flight_together_stay_so() {
    let read = |number: u64| Traced {
        op: Op::Read,
        fua: false,
        sector: number * 37 % 64 * 10_000_000,
        sectors: 8,
        queue_ns: number,
        issue_ns: number,
        done_ns: 1_000_000 + number,
        own: true,
    };
    let trace = Trace::new((0..64).map(read).collect(), 0);
    let elapsed = |order| {
        let mut what_if = what_if(Policy::default());
        what_if.queueing.order = order;
        let predicted = replay(&trace, &what_if).unwrap();
        let issues = predicted.requests.iter().map(|one| one.issue_ns);
        assert_eq!(issues.max(), Some(63), "none waits for another");
        predicted.elapsed_ns
    };
    let [fifo, elevator, position] = Order::ALL.map(elapsed);
    assert!(position < elevator && elevator < fifo);
}

#[test]
fn sums_are_of_all_requests_and_say_whose_they_are() {
    let mut trace = live(&mixed(400), 0, Policy::default());
    trace.missing = 3;
    let predicted = replay(&trace, &what_if(Policy::default())).unwrap();
    let requests: u64 = predicted.sums.iter().map(|sum| sum.requests).sum();
    assert_eq!(requests, 400);
    assert_eq!(predicted.missing, 3);
    assert!(predicted.sums.iter().any(|sum| !sum.own));
    for sum in &predicted.sums {
        let parts = sum.overhead_ns + sum.seek_ns + sum.rotation_ns + sum.transfer_ns + sum.wait_ns;
        assert_eq!(parts, sum.latency_ns);
        assert_eq!(
            sum.recorded_ns, sum.latency_ns,
            "it was served by the model"
        );
    }
    assert_eq!(predicted.elapsed_ns, predicted.recorded_ns);
    assert!(predicted.counts.seeks > 0);
}

#[test]
fn a_trace_of_a_larger_drive_is_refused_and_an_empty_one_takes_no_time() {
    let trace = live(&[Request::read(1_000_000_000, 8)], 0, Policy::default());
    let mut small = what_if(Policy::default());
    small.drive = small.drive.resized(1_000_000);
    assert_eq!(
        replay(&trace, &small).unwrap_err().to_string(),
        "request 0 of the trace: 8 sectors from sector 1000000000 on are not on a drive of 1000000 \
         sectors: take a larger drive"
    );
    small.drive.rpm = 0;
    assert!(matches!(
        replay(&trace, &small),
        Err(ReplayError::Drive(DriveError::Range { .. }))
    ));
    let nothing = replay(&Trace::default(), &what_if(Policy::default())).unwrap();
    assert_eq!((nothing.elapsed_ns, nothing.sums.len()), (0, 0));
}

#[test]
fn traces_whose_times_make_no_sense_are_replayed_all_the_same() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let time = |random: &mut fastrand::Rng| match random.u8(0..8) {
            0 => random.u64(..),
            1 => 0,
            _ => random.u64(0..50),
        };
        let requests = (0..30)
            .map(|number| Traced {
                op: [Op::Read, Op::Write, Op::Flush, Op::Discard][random.usize(0..4)],
                fua: random.bool(),
                sector: number * 1000,
                sectors: random.u32(0..20),
                queue_ns: time(&mut random),
                issue_ns: time(&mut random),
                done_ns: time(&mut random),
                own: random.bool(),
            })
            .collect();
        let trace = Trace::new(requests, 0);
        match replay(&trace, &what_if(Policy::default())) {
            Ok(predicted) => assert_eq!(predicted.requests.len(), 30),
            Err(ReplayError::Request { source, .. }) => {
                assert!(matches!(source, RequestError::TooLate { .. }));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Programs that each wait for their own reads, as recorded on a disk with a queue in this order, or
/// on a fast device.
fn together(programs: usize, order: Option<Order>) -> Trace {
    let mut random = fastrand::Rng::with_seed(9);
    let mut left: Vec<Vec<u64>> = (0..programs)
        .map(|_| (0..150).map(|_| random.u64(0..200_000_000) * 8).collect())
        .collect();
    let disk = Disk::new(&by_name("st1000dm003").unwrap(), Policy::default()).unwrap();
    let queueing = Queueing {
        order: order.unwrap_or_default(),
        ..Queueing::default()
    };
    let mut station = Station::new(disk, queueing);
    let mut fast: std::collections::BTreeSet<(u64, u64)> = std::collections::BTreeSet::new();
    let mut ready: Vec<(u64, usize)> = (0..programs).map(|one| (one as u64, one)).collect();
    let (mut traced, mut owners): (Vec<Traced>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut ends: Vec<(u64, u64)> = Vec::new();
    loop {
        for (id, done_ns) in ends.drain(..) {
            let id = usize::try_from(id).unwrap();
            traced[id].done_ns = done_ns;
            ready.push((done_ns + 5000, owners[id]));
        }
        ready.sort_unstable();
        let end_ns = match order {
            Some(_) => station.next_ns(),
            None => fast.first().map(|(due_ns, _)| *due_ns),
        };
        let first = ready.first().copied();
        if let Some((at_ns, program)) = first.filter(|(at, _)| end_ns.is_none_or(|end| *at < end)) {
            ready.remove(0);
            let Some(sector) = left[program].pop() else {
                continue;
            };
            let id = traced.len() as u64;
            traced.push(Traced {
                op: Op::Read,
                fua: false,
                sector,
                sectors: 8,
                queue_ns: at_ns,
                issue_ns: at_ns,
                done_ns: 0,
                own: true,
            });
            owners.push(program);
            if order.is_some() {
                station
                    .submit(at_ns, id, &Request::read(sector, 8))
                    .unwrap();
            } else {
                fast.insert((at_ns + 30_000 + random.u64(0..30_000), id));
            }
        } else if order.is_some() {
            let Some(end_ns) = end_ns else { break };
            let end = |done: crate::queue::Done| ends.push((done.id, done.served.done_ns));
            station.advance(end_ns, end).unwrap();
        } else {
            let Some((due_ns, id)) = fast.pop_first() else {
                break;
            };
            ends.push((id, due_ns));
        }
    }
    Trace::new(traced, 0)
}

#[test]
fn programs_that_run_together_are_predicted() {
    for programs in [1, 8, 32] {
        let fast = together(programs, None);
        for order in Order::ALL {
            let live = together(programs, Some(order));
            assert_eq!(live.requests.len(), programs * 150);
            let mut what_if = what_if(Policy::default());
            what_if.queueing.order = order;
            let again = replay(&live, &what_if).unwrap();
            assert_eq!(again.elapsed_ns, again.recorded_ns, "{programs} {order}");
            let predicted = replay(&fast, &what_if).unwrap().elapsed_ns;
            // In order, each waits for the same as before. When the drive reorders, programs that do
            // not know each other seem to wait for each other, as they were recorded in step.
            let most = match order {
                Order::Fifo => 1030,
                Order::Elevator | Order::Position => 1300,
            };
            let share = predicted * 1000 / again.elapsed_ns;
            assert!((970..=most).contains(&share), "{programs} {order}: {share}");
        }
    }
}
