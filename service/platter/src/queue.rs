//! The drive's own queue: several requests outstanding, and the drive chooses (NCQ).
//!
//! Only what needs the head waits for it here: reads, and writes that go through. A write into the
//! cache is taken when it comes. A flush is taken when nothing waits, and holds back what comes
//! after it. The drive chooses the next request a command's overhead before the head is free, so
//! that the electronics cost nothing while there is work.
//!
//! No request is overtaken more than [`Queueing::most_passed`] times by later ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::disk::{Disk, Request, RequestError, Served};
use crate::trace::Op;

/// Most commands that a drive of the SATA interface takes.
pub const NCQ_DEPTH: usize = 32;

/// In which order the drive serves what waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As they came.
    #[default]
    Fifo,
    /// By address, from the outside to the inside, and again from the outside.
    Elevator,
    /// The one first that the head reaches first, turning included.
    Position,
}

impl Order {
    /// All of them.
    pub const ALL: [Order; 3] = [Order::Fifo, Order::Elevator, Order::Position];
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Order::Fifo => "fifo",
            Order::Elevator => "elevator",
            Order::Position => "position",
        })
    }
}

/// No order has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no order is called {0:?}: there are fifo, elevator and position")]
pub struct UnknownOrder(String);

impl FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(name: &str) -> Result<Order, UnknownOrder> {
        let found = Order::ALL.into_iter().find(|one| one.to_string() == name);
        found.ok_or_else(|| UnknownOrder(name.to_owned()))
    }
}

/// How a queue works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queueing {
    /// Which request is next.
    pub order: Order,
    /// Commands that the drive holds at a time, at least 1; more wait at the host, as they came.
    pub depth: usize,
    /// How often later requests may overtake one.
    pub most_passed: u32,
}

impl Default for Queueing {
    /// The queue of a SATA drive that serves as they come.
    fn default() -> Queueing {
        Queueing {
            order: Order::Fifo,
            depth: NCQ_DEPTH,
            most_passed: 64,
        }
    }
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Id given at submission.
    pub id: u64,
    /// Parts of its time since submission.
    pub served: Served,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    id: u64,
    submitted_ns: u64,
    request: Request,
    passed: u32,
}

#[derive(Debug, Clone, Copy)]
struct Started {
    id: u64,
    served: Served,
}

/// A disk behind a queue.
#[derive(Debug, Clone)]
pub struct Station {
    disk: Disk,
    queueing: Queueing,
    now_ns: u64,
    /// At the host: the drive does not know them yet.
    outside: VecDeque<Waiting>,
    /// At the drive, waiting for the head, as they came.
    queued: VecDeque<Waiting>,
    /// Served, and not done yet: by time, then as they were started.
    started: BinaryHeap<Reverse<(u64, u64)>>,
    /// Results of `started`, by number.
    results: std::collections::BTreeMap<u64, Started>,
    starts: u64,
    /// Where the elevator of each arm has come to.
    sweeps: Vec<u64>,
}

impl Station {
    /// An idle disk with an empty queue.
    #[must_use]
    pub fn new(disk: Disk, queueing: Queueing) -> Station {
        Station {
            disk,
            queueing: Queueing {
                depth: queueing.depth.max(1),
                ..queueing
            },
            now_ns: 0,
            outside: VecDeque::new(),
            queued: VecDeque::new(),
            started: BinaryHeap::new(),
            results: std::collections::BTreeMap::new(),
            starts: 0,
            sweeps: Vec::new(),
        }
    }

    /// The disk behind the queue, with its counts.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Virtual time that has been reached.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Requests that were submitted and are not done.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outside.len() + self.queued.len() + self.started.len()
    }

    /// Takes a request at `now_ns`, which must have been reached by [`Station::advance`]: an earlier
    /// time counts as the one that has been reached. `id` comes back with its end.
    ///
    /// # Errors
    /// The request goes beyond the end of the drive, or comes too late; it is not taken then.
    pub fn submit(&mut self, now_ns: u64, id: u64, request: &Request) -> Result<(), RequestError> {
        request.check(self.disk.drive().sectors)?;
        self.now_ns = self.now_ns.max(now_ns);
        self.outside.push_back(Waiting {
            id,
            submitted_ns: self.now_ns,
            request: *request,
            passed: 0,
        });
        self.admit()
    }

    /// When something happens next, unless a request comes before; `None`: nothing is outstanding.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let done_ns = self.started.peek().map(|Reverse((done_ns, _))| *done_ns);
        match (done_ns, self.choice_ns()) {
            (Some(done_ns), Some(choice_ns)) => Some(done_ns.min(choice_ns)),
            (done_ns, choice_ns) => done_ns.or(choice_ns),
        }
    }

    /// Lets time pass until `to_ns`; `done` gets what ends, as it ends.
    ///
    /// # Errors
    /// Virtual time has come to its end.
    pub fn advance(&mut self, to_ns: u64, mut done: impl FnMut(Done)) -> Result<(), RequestError> {
        while let Some(next_ns) = self.next_ns().filter(|next_ns| *next_ns <= to_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            if self.choice_ns().is_some_and(|choice| choice <= next_ns) {
                self.choose()?;
                continue;
            }
            if let Some(Reverse((_, number))) = self.started.pop()
                && let Some(Started { id, served }) = self.results.remove(&number)
            {
                done(Done { id, served });
            }
            self.admit()?;
        }
        self.now_ns = self.now_ns.max(to_ns);
        Ok(())
    }

    /// When the drive chooses the next request.
    fn choice_ns(&self) -> Option<u64> {
        let free_ns = self.queued.iter().map(|one| self.ready_ns(one)).min()?;
        Some(free_ns.max(self.now_ns))
    }

    /// When the drive chooses it, if it is next at its arm.
    fn ready_ns(&self, waiting: &Waiting) -> u64 {
        let free_ns = self.disk.head_free_ns(&waiting.request);
        free_ns.saturating_sub(self.disk.drive().overhead_ns)
    }

    /// Hands the drive what it can take.
    fn admit(&mut self) -> Result<(), RequestError> {
        while let Some(first) = self.outside.front().copied() {
            if self.queued.len() + self.started.len() >= self.queueing.depth {
                return Ok(());
            }
            let is_flush = first.request.op == Op::Flush;
            let orders = self.queueing.order != Order::Fifo;
            if orders && is_flush && !self.queued.is_empty() {
                return Ok(());
            }
            self.outside.pop_front();
            let needs_head = first.request.op == Op::Read || self.disk.goes_through(&first.request);
            if orders && needs_head {
                self.queued.push_back(first);
            } else {
                self.start(first)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, waiting: Waiting) -> Result<(), RequestError> {
        let mut served = self.disk.serve(self.now_ns, &waiting.request)?;
        served.wait_ns += served.arrived_ns.saturating_sub(waiting.submitted_ns);
        served.arrived_ns = served.arrived_ns.min(waiting.submitted_ns);
        let id = waiting.id;
        self.starts += 1;
        self.started.push(Reverse((served.done_ns, self.starts)));
        self.results.insert(self.starts, Started { id, served });
        Ok(())
    }

    fn choose(&mut self) -> Result<(), RequestError> {
        let Some(oldest) = self.queued.front() else {
            return Ok(());
        };
        let chosen = if oldest.passed >= self.queueing.most_passed {
            0
        } else {
            self.best()
        };
        let Some(waiting) = self.queued.remove(chosen) else {
            return Ok(());
        };
        for overtaken in self.queued.iter_mut().take(chosen) {
            overtaken.passed = overtaken.passed.saturating_add(1);
        }
        let arm = self.disk.arm_of(waiting.request.sector);
        self.sweeps.resize(self.sweeps.len().max(arm + 1), 0);
        self.sweeps[arm] = waiting.request.sector;
        self.start(waiting)
    }

    /// Place of the next request in the queue, of those whose head is free.
    fn best(&self) -> usize {
        let from_ns = self.now_ns.saturating_add(self.disk.drive().overhead_ns);
        let cost = |waiting: &Waiting| match self.queueing.order {
            Order::Fifo => 0,
            Order::Elevator => {
                let sweep = self.sweeps.get(self.disk.arm_of(waiting.request.sector));
                waiting
                    .request
                    .sector
                    .wrapping_sub(sweep.copied().unwrap_or(0))
            }
            Order::Position => self.disk.positioning_ns(from_ns, &waiting.request),
        };
        let free = |(_, waiting): &(usize, &Waiting)| self.ready_ns(waiting) <= self.now_ns;
        let queued = self.queued.iter().enumerate().filter(free);
        let costs = queued.map(|(place, waiting)| (place, cost(waiting)));
        let cheapest = costs.min_by_key(|(place, cost)| (*cost, *place));
        cheapest.map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Policy;
    use crate::drive::by_name;

    fn station(order: Order, policy: Policy) -> Station {
        let disk = Disk::new(&by_name("st1000dm003").unwrap(), policy).unwrap();
        let queueing = Queueing {
            order,
            ..Queueing::default()
        };
        Station::new(disk, queueing)
    }

    /// Keeps `flight` random reads outstanding; gives back their ends.
    fn random_reads(order: Order, flight: usize, reads: u64, most_passed: u32) -> Vec<Done> {
        let disk = Disk::new(&by_name("st1000dm003").unwrap(), Policy::default()).unwrap();
        let queueing = Queueing {
            order,
            depth: flight,
            most_passed,
        };
        let mut station = Station::new(disk, queueing);
        let mut random = fastrand::Rng::with_seed(7);
        let (mut sent, mut ends) = (0, Vec::new());
        while ends.len() < usize::try_from(reads).unwrap() {
            while sent < reads && station.outstanding() < flight {
                let sector = random.u64(0..200_000_000) * 8;
                station
                    .submit(station.now_ns(), sent, &Request::read(sector, 8))
                    .unwrap();
                sent += 1;
            }
            let next_ns = station.next_ns().unwrap();
            station.advance(next_ns, |done| ends.push(done)).unwrap();
        }
        ends
    }

    fn elapsed(ends: &[Done]) -> u64 {
        ends.iter().map(|done| done.served.done_ns).max().unwrap()
    }

    #[test]
    fn the_drives_order_is_worth_its_while_with_32_in_flight() {
        let fifo = elapsed(&random_reads(Order::Fifo, 32, 2000, 64));
        let elevator = elapsed(&random_reads(Order::Elevator, 32, 2000, 64));
        let position = elapsed(&random_reads(Order::Position, 32, 2000, 64));
        assert!(elevator * 14 < fifo * 10, "{elevator} {fifo}");
        assert!(position * 18 < fifo * 10, "{position} {fifo}");
        // With one in flight there is nothing to order.
        let [first, second, third] = Order::ALL.map(|order| random_reads(order, 1, 200, 64));
        assert_eq!(first, second);
        assert_eq!(first, third);
    }

    #[test]
    fn nobody_is_overtaken_more_often_than_allowed() {
        for order in Order::ALL {
            for most in [0, 5, 40] {
                let ends = random_reads(order, 32, 1500, most);
                let mut worst = 0;
                for (place, done) in ends.iter().enumerate() {
                    let later = ends[..place].iter().filter(|one| one.id > done.id).count();
                    worst = worst.max(later);
                }
                let allowed = usize::try_from(most).unwrap() + 32;
                assert!(worst <= allowed, "{order} {most}: {worst}");
                if most == 0 {
                    assert_eq!(worst, 0, "{order}");
                }
            }
        }
    }

    #[test]
    fn every_request_ends_once_and_its_parts_add_up() {
        for order in Order::ALL {
            for policy in [Policy::default(), Policy::default().write_through()] {
                let mut station = station(order, policy);
                let mut random = fastrand::Rng::with_seed(3);
                let mut ends = Vec::new();
                for id in 0..500 {
                    let sector = random.u64(0..1_000_000) * 8;
                    let request = match random.u8(0..10) {
                        0 => Request::flush(),
                        1..=4 => Request::read(sector, 64),
                        _ => Request::write(sector, 64),
                    };
                    let now_ns = station.now_ns() + random.u64(0..2_000_000);
                    station.advance(now_ns, |done| ends.push(done)).unwrap();
                    station.submit(now_ns, id, &request).unwrap();
                }
                while let Some(next_ns) = station.next_ns() {
                    station.advance(next_ns, |done| ends.push(done)).unwrap();
                }
                assert_eq!(station.outstanding(), 0);
                assert!(ends.is_sorted_by_key(|done| done.served.done_ns));
                for done in &ends {
                    assert_eq!(done.served.parts_ns(), done.served.done_ns);
                }
                let mut ids: Vec<u64> = ends.iter().map(|done| done.id).collect();
                ids.sort_unstable();
                assert_eq!(ids, (0..500).collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn a_flush_is_behind_what_came_before_and_before_what_comes_after() {
        let mut station = station(Order::Position, Policy::default());
        for (id, request) in (0..).zip([
            Request::read(1 << 30, 8),
            Request::read(1 << 20, 8),
            Request::write(1 << 25, 8),
            Request::flush(),
            Request::read(1 << 20, 8),
        ]) {
            station.submit(0, id, &request).unwrap();
        }
        let mut ids = Vec::new();
        while let Some(next_ns) = station.next_ns() {
            station.advance(next_ns, |done| ids.push(done.id)).unwrap();
        }
        let place = |id| ids.iter().position(|one| *one == id).unwrap();
        assert_eq!(place(2), 0, "a write into the cache is done at once");
        assert!(place(3) > place(0) && place(3) > place(1) && place(3) < place(4));
    }

    #[test]
    fn names_of_orders() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        let expected = "no order is called \"best\": there are fifo, elevator and position";
        assert_eq!("best".parse::<Order>().unwrap_err().to_string(), expected);
    }
}
