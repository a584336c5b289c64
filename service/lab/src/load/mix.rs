//! Random puts, gets, overwrites and deletes of lumps, each of which only one client uses: so
//! every get is compared with what was put.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lumpscope_client::Code;
use lumpscope_engine::Placement;
use lumpscope_units::escape::escaped;
use lumpscope_units::{human, tell};
use tokio::time::interval_at;

use super::pace::{Pace, Worker, drive};
use super::target::{Failure, Refusal, StoreClient};
use super::{Latency, Measured, Meter};

/// Bytes beyond one lump, so that lumps differ: each is a window into one buffer.
const SPREAD: usize = 1 << 20;
/// One in so many changes is a delete.
const DELETES: u32 = 20;
/// Wait after a request that failed, so that a service that is away is not hammered.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Name of a percentile, and where it is.
type Percentile = (&'static str, fn(&Latency) -> u64);
const PERCENTILES: [Percentile; 5] = [
    ("p50", |latency| latency.p50_ns),
    ("p90", |latency| latency.p90_ns),
    ("p99", |latency| latency.p99_ns),
    ("p99.9", |latency| latency.p999_ns),
    ("max", |latency| latency.max_ns),
];
/// Between two reports of what was done.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// One client, and the lumps that only it uses.
pub struct MixClient {
    /// Name of its store, for messages.
    pub store: String,
    /// Its connection.
    pub client: Box<dyn StoreClient>,
    /// Ids of its lumps; none of them is there yet, or it may be overwritten.
    pub ids: Range<u128>,
}

/// What all clients do.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Bytes of each lump.
    pub size: usize,
    /// Share of gets, 0 to 1; one in twenty of the others deletes.
    pub gets: f64,
    /// When.
    pub pace: Arc<Pace>,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// A put of a new lump, or over an old one.
    Put,
    /// A get, compared byte by byte.
    Get,
    /// A delete of one lump.
    Delete,
}

impl Verb {
    /// All, in the order of reports.
    pub const ALL: [Verb; 3] = [Verb::Put, Verb::Get, Verb::Delete];

    /// In lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verb::Put => "put",
            Verb::Get => "get",
            Verb::Delete => "delete",
        }
    }
}

/// Requests of all clients within a time.
#[derive(Debug, Default)]
pub struct MixCounts {
    calls: BTreeMap<Verb, Meter>,
    /// Gets that found other bytes than were put, or nothing.
    pub wrong: u64,
}

impl MixCounts {
    /// Requests of a kind; [`Measured::seconds`] is not measured.
    #[must_use]
    pub fn of(&self, verb: Verb) -> Measured {
        self.calls.get(&verb).cloned().unwrap_or_default().finish()
    }

    /// All kinds together.
    #[must_use]
    pub fn all(&self) -> Measured {
        let mut all = Meter::new();
        self.calls.values().for_each(|meter| all.merge(meter));
        all.finish()
    }

    /// Latencies of each kind of request that there was, a line each.
    #[must_use]
    pub fn latency(&self) -> String {
        let some = Verb::ALL.map(|verb| (verb, self.of(verb)));
        let some = some.iter().filter(|(_, measured)| measured.requests > 0);
        let lines = some.map(|(verb, measured)| {
            let latency = &measured.latency;
            let of =
                PERCENTILES.map(|(name, at)| format!("{name} {}", human::duration_ns(at(latency))));
            format!("{} {}", verb.name(), of.join(", "))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// `22 requests/s, 22 MiB/s, p50 1.2 ms, p99 3.4 ms`, and what went wrong, if this was a second.
    #[must_use]
    pub fn second(&self) -> String {
        let all = self.all();
        let latency = match all.requests {
            0 => String::new(),
            _ => {
                let of = [all.latency.p50_ns, all.latency.p99_ns];
                let [p50, p99] = of.map(human::duration_ns);
                format!(", p50 {p50}, p99 {p99}")
            }
        };
        let bytes = human::bytes(all.bytes);
        let wrong = self.failures();
        format!("{} requests/s, {bytes}/s{latency}{wrong}", all.requests)
    }

    /// Failures and wrong bytes, each behind a comma.
    fn failures(&self) -> String {
        let kinds = [
            (self.all().errors, "failed"),
            (self.wrong, "returned wrong bytes"),
        ];
        let some = kinds.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!(", {count} {what}"))
            .collect()
    }

    fn add(&mut self, more: &MixCounts) {
        for (verb, meter) in &more.calls {
            self.calls.entry(*verb).or_default().merge(meter);
        }
        self.wrong += more.wrong;
    }
}

/// `12 puts, 10 gets, 1 delete, 22 MiB`, and what went wrong.
impl fmt::Display for MixCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verb in Verb::ALL {
            let requests = human::counted(self.of(verb).requests, verb.name());
            write!(f, "{requests}, ")?;
        }
        write!(f, "{}{}", human::bytes(self.all().bytes), self.failures())
    }
}

/// Runs all clients until the pace says that it is over. `report` is called every second with the
/// requests of that second. Returns all requests, also when a client has failed.
///
/// # Errors
/// A store refuses in a way that no repetition changes: the first such refusal. Others are counted
/// and printed.
pub async fn run(
    clients: Vec<MixClient>,
    mix: &Mix,
    mut report: impl FnMut(&MixCounts),
) -> (MixCounts, Result<(), Refusal>) {
    let mut content = vec![0; mix.size + SPREAD];
    fastrand::fill(&mut content);
    let content = Bytes::from(content);
    let recent: Arc<Mutex<MixCounts>> = Arc::default();
    let workers: Vec<MixWorker> = clients
        .into_iter()
        .map(|client| MixWorker {
            states: (client.ids.clone()).map(|id| (id, State::Absent)).collect(),
            client,
            mix: mix.clone(),
            content: content.clone(),
            recent: Arc::clone(&recent),
            well: true,
        })
        .collect();
    let take = || std::mem::take(&mut *recent.lock().unwrap_or_else(PoisonError::into_inner));
    let mut total = MixCounts::default();
    let begin = mix.pace.begin();
    let mut ticks = interval_at((begin + REPORT_EVERY).into(), REPORT_EVERY);
    let mut work = std::pin::pin!(drive(workers, &mix.pace));
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            _ = ticks.tick() => {
                let second = take();
                report(&second);
                total.add(&second);
            }
        }
    };
    total.add(&take());
    (total, ended.map(drop))
}

/// Known state of one lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// The window into the content that begins here.
    Put(usize),
    /// A change failed: the old state, the new, or none.
    Unknown,
}

struct MixWorker {
    client: MixClient,
    mix: Mix,
    states: Vec<(u128, State)>,
    content: Bytes,
    /// Requests since the last report.
    recent: Arc<Mutex<MixCounts>>,
    /// The last request ended well: the next failure is news.
    well: bool,
}

impl Worker for MixWorker {
    type Error = Refusal;

    async fn step(&mut self, pace: &Pace) -> Result<bool, Refusal> {
        let slot = fastrand::usize(..self.states.len());
        let verb = self.verb(self.states[slot].1);
        let Err(refusal) = self.request(verb, slot).await else {
            self.well = true;
            return Ok(true);
        };
        self.count(|counts| counts.calls.entry(verb).or_default().error());
        if refusal.is_final() {
            return Err(refusal);
        }
        if self.well {
            let (store, refusal) = (&self.client.store, refusal.to_string());
            tell(&escaped(&format!("lumpscope: store {store}: {refusal}")));
        }
        self.well = false;
        pace.sleep(AFTER_FAILURE).await;
        Ok(true)
    }
}

impl MixWorker {
    fn verb(&self, state: State) -> Verb {
        match state {
            State::Put(_) if fastrand::f64() < self.mix.gets => Verb::Get,
            State::Put(_) if fastrand::u32(..DELETES) == 0 => Verb::Delete,
            _ => Verb::Put,
        }
    }

    async fn request(&mut self, verb: Verb, slot: usize) -> Result<(), Refusal> {
        let (id, before) = self.states[slot];
        let client = &mut self.client.client;
        let (latency, bytes, after) = match (verb, before) {
            (Verb::Get, State::Put(from)) => {
                let (latency, found) = match client.get(id).await {
                    Ok(answer) => (answer.latency, Some(answer.value)),
                    Err(Failure::Refused(refusal)) if refusal.is(Code::NotFound) => {
                        (Duration::ZERO, None)
                    }
                    Err(failure) => return Err(failure.refusal()),
                };
                self.compare(id, found, from);
                (latency, self.mix.size, before)
            }
            (Verb::Delete, _) => {
                self.states[slot].1 = State::Unknown;
                let answer = client.delete(id).await.map_err(Failure::refusal)?;
                (answer.latency, 0, State::Absent)
            }
            _ => {
                let from = fastrand::usize(..SPREAD);
                let body = self.content.slice(from..from + self.mix.size);
                self.states[slot].1 = State::Unknown;
                let put = client.put(id, body, Placement::Data).await;
                let answer = put.map_err(Failure::refusal)?;
                (answer.latency, self.mix.size, State::Put(from))
            }
        };
        self.states[slot].1 = after;
        self.count(|counts| {
            let meter = counts.calls.entry(verb).or_default();
            meter.request(bytes as u64, latency);
        });
        Ok(())
    }

    fn compare(&self, id: u128, found: Option<Vec<Bytes>>, from: usize) {
        let wanted = &self.content[from..from + self.mix.size];
        let what = match found {
            None => "gone",
            Some(pieces) if super::grpc::same(&pieces, wanted) => return,
            Some(_) => "not what was put",
        };
        self.count(|counts| counts.wrong += 1);
        let store = &self.client.store;
        tell(&escaped(&format!(
            "lumpscope: store {store}: lump {id:032x} is {what}"
        )));
    }

    fn count(&self, count: impl FnOnce(&mut MixCounts)) {
        count(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Refusal {
    fn is(&self, code: Code) -> bool {
        matches!(self, Refusal::Service(error) if error.code() == Some(code))
    }

    /// No repetition helps: who asks, or what is asked for, is wrong.
    fn is_final(&self) -> bool {
        let Refusal::Service(error) = self else {
            return true;
        };
        matches!(
            error.code(),
            Some(
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::PermissionDenied
                    | Code::Unauthenticated
                    | Code::Unimplemented
                    | Code::OutOfRange
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::super::target::Answer;
    use super::*;

    /// A store in memory, which may forget what it was given.
    #[derive(Default)]
    struct Memory {
        lumps: BTreeMap<u128, Bytes>,
        flips: bool,
    }

    fn answer<T>(value: T) -> Result<Answer<T>, Failure> {
        let latency = Duration::from_micros(5);
        Ok(Answer { value, latency })
    }

    #[async_trait]
    impl StoreClient for Memory {
        async fn put(
            &mut self,
            id: u128,
            body: Bytes,
            _placement: Placement,
        ) -> Result<Answer<Option<bool>>, Failure> {
            tokio::task::yield_now().await;
            answer(Some(self.lumps.insert(id, body).is_none()))
        }

        async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
            let mut lump = self.lumps[&id].to_vec();
            lump[3] ^= u8::from(self.flips);
            answer(vec![lump.into()])
        }

        async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
            answer(Some(self.lumps.remove(&id).is_some()))
        }

        async fn list(&mut self) -> Result<Vec<u128>, Failure> {
            Ok(self.lumps.keys().copied().collect())
        }
    }

    async fn counts(flips: bool) -> MixCounts {
        let mix = Mix {
            size: 100,
            gets: 0.5,
            pace: Pace::lasting(Some(Duration::from_millis(50))),
        };
        let lumps = BTreeMap::new();
        let client = MixClient {
            store: "memory".to_owned(),
            client: Box::new(Memory { lumps, flips }),
            ids: 7..12,
        };
        let (counts, ended) = run(vec![client], &mix, |_| {}).await;
        assert!(ended.is_ok());
        counts
    }

    #[tokio::test]
    async fn every_get_is_compared_and_every_call_counted() {
        let good = counts(false).await;
        assert_eq!((good.wrong, good.all().errors), (0, 0));
        let (puts, gets) = (good.of(Verb::Put), good.of(Verb::Get));
        assert!(puts.requests > 0 && gets.requests > 0, "{good:?}");
        assert_eq!(puts.bytes, puts.requests * 100);
        assert!(good.all().latency.max_ns.abs_diff(5000) < 50);
        assert!(
            good.second().ends_with("/s, p50 5.00 µs, p99 5.00 µs"),
            "{}",
            good.second()
        );
        let latencies = "get p50 5.00 µs, p90 5.00 µs, p99 5.00 µs, p99.9 5.00 µs, max 5.00 µs";
        assert!(
            good.latency().lines().any(|line| line == latencies),
            "{}",
            good.latency()
        );
        assert_eq!(MixCounts::default().second(), "0 requests/s, 0 B/s");

        let bad = counts(true).await;
        assert_eq!(bad.wrong, bad.of(Verb::Get).requests);
        let wrong = format!(", {} returned wrong bytes", bad.wrong);
        assert!(bad.wrong > 0 && bad.second().ends_with(&wrong));
    }

    #[tokio::test]
    async fn a_range_is_deleted_one_by_one_where_there_are_no_ranges() {
        let mut memory = Memory::default();
        for id in [3, 4, 9] {
            memory.lumps.insert(id, Bytes::new());
        }
        let deleted = memory.delete_range(3, 9).await;
        assert!(deleted.is_ok_and(|answer| answer.value == 2));
        assert!(memory.lumps.keys().eq(&[9]));
    }
}
