//! One history: random requests, several in flight, and cuts around every I/O.

use lumpscope_engine::device::sim::{Random, SimDisk, Survivors};
use lumpscope_engine::{CommitMode, Durability, Placement, PutCondition, PutOptions};

use super::cuts;
use super::model::{Crash, Model, State, content};
use super::scenario::Scenario;
use super::session::Session;
use super::{Coverage, HistoryPlace, Only, PLACE};

/// Events per request after which a history counts as endless.
const EVENTS_PER_REQUEST: u64 = 400;

/// Of a thousand moments without a request this many are followed by a rest.
const RESTS: u64 = 300;
/// Longer than it takes until a batch is settled.
const REST_NS: u64 = 11_000_000;
const RUN_REST_NS: u64 = 1_100_000_000;

/// A history that is being run.
pub struct History {
    pub scenario: Scenario,
    pub session: Session,
    random: Random,
    /// 0: of a seed; 1: after a cut of it, and so on.
    pub depth: u32,
    event: u64,
    /// Requests still to be made.
    left: u64,
    /// The request that is open must not meet another one.
    alone: bool,
}

impl History {
    /// A history on an empty store.
    pub fn start(scenario: &Scenario) -> Result<Self, String> {
        Self::resume(scenario, scenario.disk(), State::new(), 0, scenario.seed)
    }

    /// A history that goes on with a store that holds `state`.
    pub fn resume(
        scenario: &Scenario,
        disk: SimDisk,
        state: State,
        depth: u32,
        seed: u64,
    ) -> Result<Self, String> {
        let mut session =
            Session::open(scenario, disk).map_err(|error| format!("open: {error}"))?;
        session.model = Model::of(state);
        Ok(Self::with(scenario, session, depth, seed))
    }

    /// A history with a store that is already open.
    pub fn with(scenario: &Scenario, mut session: Session, depth: u32, seed: u64) -> Self {
        session.model.overtakes = scenario.commit == CommitMode::Runs;
        Self {
            scenario: scenario.clone(),
            session,
            random: Random::derive(seed, &[4]),
            depth,
            event: 0,
            left: scenario.requests,
            alone: false,
        }
    }

    /// Runs it to its end, closes the store and looks at the disk once more.
    pub fn run(mut self, only: Only, coverage: &mut Coverage) -> Result<(), String> {
        self.drive(only, coverage)?;
        self.close(only, coverage)
    }

    /// Makes `requests` more requests and waits for their answers.
    pub fn go_on(&mut self, requests: u64, coverage: &mut Coverage) -> Result<(), String> {
        self.left = requests;
        self.drive(Only::All, coverage)
    }

    fn drive(&mut self, only: Only, coverage: &mut Coverage) -> Result<(), String> {
        let limit = self.event + 10_000 + EVENTS_PER_REQUEST * self.left;
        while self.left > 0 || self.session.open_requests() > 0 {
            self.submit_some()?;
            self.event(only, coverage)?;
            if self.event > limit {
                return Err(format!("no end: {}", self.session.state()));
            }
            let is_full = self.session.open_requests() >= self.scenario.in_flight;
            if !self.session.advance() && (self.left == 0 || is_full) {
                let open = self.session.open_requests();
                self.session
                    .run_until(coverage, "the history", |session, _| {
                        let now = session.open_requests();
                        now == 0 || now < open || session.disk.in_flight() > 0
                    })?;
            }
        }
        Ok(())
    }

    fn close(mut self, only: Only, coverage: &mut Coverage) -> Result<(), String> {
        let stats = self.session.store.stats();
        coverage.header_writes += stats.header_writes;
        coverage.gc_relocated += stats.gc_relocated;
        coverage.flushes += stats.flushes;
        coverage.flushes_spared += stats.flushes_spared;
        coverage.writes_forced += stats.writes_forced;
        self.session.driver.begin_close();
        while self.event(only, coverage)? {
            if !self.session.advance() {
                self.session
                    .run_until(coverage, "closing", |session, alive| {
                        !alive || session.disk.in_flight() > 0
                    })?;
            }
        }
        // Closed: everything is durable, and nothing was open.
        let state = self.session.model.now().clone();
        let mut random = Random::derive(self.scenario.seed, &[5, self.event]);
        let disk = self.session.disk.power_cut(Survivors::None, &mut random);
        coverage.note_bytes(&disk.bytes(0..disk.size()));
        let mut session = Session::open(&self.scenario, disk)
            .map_err(|error| format!("open after close: {error}"))?;
        let found = session.read_all(self.scenario.ids, coverage)?;
        coverage.histories += 1;
        Model::of(state)
            .check(&found, Crash::ProcessDeath)
            .map_err(|why| format!("closed and opened again: {why}"))
    }

    /// One step of the store, and the cuts after it. False: the store is closed.
    fn event(&mut self, only: Only, coverage: &mut Coverage) -> Result<bool, String> {
        if self.depth == 0 {
            PLACE.set(HistoryPlace {
                event: self.event,
                choice: None,
            });
        }
        let alive = self.session.step(coverage)?;
        cuts::after_event(self, self.event, only, coverage)?;
        self.event += 1;
        Ok(alive)
    }

    fn submit_some(&mut self) -> Result<(), String> {
        // Sometimes one at a time, sometimes as many as fit.
        let room =
            self.scenario.in_flight - self.scenario.in_flight.min(self.session.open_requests());
        let burst = match self.random.below(3) {
            0 => 1,
            1 => 0,
            _ => room,
        };
        let burst = if self.session.open_requests() == 0 {
            burst.max(1)
        } else {
            burst
        };
        self.rest();
        self.alone &= self.session.open_requests() > 0;
        for _ in 0..burst.min(room) {
            if self.left == 0 || self.alone {
                break;
            }
            self.left -= 1;
            self.submit()?;
        }
        Ok(())
    }

    /// A store is left alone now and then, long enough to settle.
    fn rest(&mut self) {
        let settles = self.scenario.commit != CommitMode::Ordered;
        if settles && self.session.open_requests() == 0 && self.random.chance(RESTS) {
            let disk = &self.session.disk;
            let rest_ns = match self.scenario.commit {
                CommitMode::Runs => RUN_REST_NS,
                _ => REST_NS,
            };
            disk.advance_to(disk.now_ns() + rest_ns);
        }
    }

    fn submit(&mut self) -> Result<(), String> {
        let random = &mut self.random;
        let id = random.below(self.scenario.ids);
        let durability = if random.chance(self.scenario.journaled) {
            Durability::Journaled
        } else {
            Durability::Synced
        };
        match random.below(100) {
            0..20 => self.session.get(id),
            20..24 => self.session.sync(),
            24..27 => {
                let end = id + 1 + random.below(5);
                self.session.delete_range(id..end, durability)
            }
            // Too many for the room there is, they are carried out piece by piece: only alone does
            // the order of the answers say in which order that was.
            27..30 if self.session.open_requests() == 0 => {
                self.alone = true;
                let ids: Vec<u64> = (0..=random.below(4))
                    .map(|_| random.below(self.scenario.ids))
                    .collect();
                self.session.delete_many(&ids, durability)
            }
            _ if random.chance(self.scenario.deletes) => self.session.delete(id, durability),
            _ => {
                let version = random.next();
                let (placement, most) = if random.chance(self.scenario.embedded) {
                    (Placement::Embedded, 160)
                } else {
                    (Placement::Data, self.scenario.largest)
                };
                let len = random.below(most + 1);
                let value = content(id, version, len);
                let condition = match random.below(5) {
                    0 => PutCondition::IfAbsent,
                    _ => PutCondition::Always,
                };
                let chosen =
                    placement == Placement::Data && Random::derive(version, &[9]).chance(300);
                let options = PutOptions {
                    placement: (!chosen).then_some(placement),
                    durability,
                    condition,
                };
                let is_group = Random::derive(version, &[10]).chance(150);
                if placement == Placement::Data && condition == PutCondition::Always && is_group {
                    let [second, third] = [1, 2].map(|more| (id + more) % self.scenario.ids);
                    let small = content(second, version, version % 160);
                    let puts = [(id, &value), (second, &small)];
                    return self.session.put_group(puts, third, durability);
                }
                let how = &mut Random::derive(version, &[8]);
                if placement == Placement::Data && how.chance(self.scenario.pieces) {
                    let lost = how.chance(125).then(|| how.index(value.len() + 1));
                    return self.session.put_in_pieces(id, &value, options, lost);
                }
                self.session.put(id, &value, options)
            }
        }
    }
}
