//! Histories on disks that fail or lie.
//!
//! A disk that says what it does (errors, short transfers, sectors that cannot be read) may cost an
//! answer, never a lump that was acknowledged. Of a disk that lies (rot, lost and misdirected
//! writes) the store promises less: a lump is right, or an older version of itself, or gone, or
//! there is an error that says what is damaged; never other bytes, a panic, or a request without
//! an answer. Rot of the data region alone is always found.

use std::sync::Arc;

use lumpscope_engine::device::sim::{Fault, FaultKind, Random, SimDisk, Survivors};
use lumpscope_engine::{CommitMode, Durability, Error, IoOp, Placement, PutOptions, StoreState};

use super::history::History;
use super::model::{Crash, Model, content};
use super::scenario::Scenario;
use super::session::{Session, Strictness};
use super::{Coverage, Only};

/// Requests before and after something is broken.
const REQUESTS: u64 = 40;
/// Longer than it takes until the checked copies name the end of the journal.
const COPIES_NS: u64 = 6_000_000_000;

/// Runs the history of a seed on a failing disk.
pub fn run(seed: u64, commit: CommitMode, coverage: &mut Coverage) -> Result<(), String> {
    let mut random = Random::derive(seed, &[6]);
    let mut scenario = Scenario::new(seed);
    scenario.cuts = 0;
    scenario.commit = commit;
    let (what, done) = match random.below(8) {
        0..3 => ("errors", errors(&scenario, &mut random, coverage)),
        3 => {
            let done = short_transfers(scenario, &mut random, coverage);
            ("short transfers", done)
        }
        4 => {
            let done = rotten_lumps(&scenario, &mut random, coverage);
            ("rot in the data region", done)
        }
        5 => {
            let done = unreadable_lumps(&scenario, &mut random, coverage);
            ("sectors that cannot be read", done)
        }
        6 => {
            let done = rotten_journal(&scenario, &mut random, coverage);
            ("rot in the journal", done)
        }
        _ => {
            let done = stray_writes(&scenario, &mut random, coverage);
            ("lost or misdirected writes", done)
        }
    };
    done.map_err(|why| format!("{what}: {why}"))
}

/// I/Os fail: with an error for who asked, and for good when the journal is concerned.
fn errors(scenario: &Scenario, random: &mut Random, coverage: &mut Coverage) -> Result<(), String> {
    coverage.faults.errors += 1;
    let data = scenario.data_start();
    let (op, within) = [
        (IoOp::Flush, 0..u64::MAX),
        (IoOp::Write, 0..data),
        (IoOp::Write, data..u64::MAX),
        (IoOp::Write, 0..u64::MAX),
        (IoOp::Read, 0..u64::MAX),
    ][random.index(5)]
    .clone();
    let errno = [libc::EIO, libc::ENOSPC][random.index(2)];
    // What the disk refuses of the journal is written again until it takes it, also while the power
    // goes.
    let may_pass = op == IoOp::Write;
    let may_cut = may_pass;
    let mut history = History::start(&Scenario {
        cuts: u64::from(may_cut),
        ..scenario.clone()
    })?;
    let concerns_journal = op == IoOp::Flush || within.end == data;
    let spares_journal = within.start == data;
    history.session.strictness = Strictness::Failing;
    history.session.disk.inject(Fault {
        op,
        within: within.clone(),
        skip: random.below(25),
        times: [1, 3, u64::MAX][random.index(3)],
        kind: FaultKind::Errno(errno),
    });
    history.go_on(2 * REQUESTS, coverage)?;
    // A request may be answered before the flush behind it, or a header write, has failed.
    let idle = |session: &Session, _| session.disk.in_flight() == 0;
    let session = &mut history.session;
    session.run_until(coverage, "what is under way", idle)?;
    let hits = history.session.disk.faults_hit();
    coverage.faults.hits += hits;
    history.session.disk.heal();
    let session = &mut history.session;
    session.run_until(coverage, "a disk that is well again", |session, _| {
        let state = session.store.health().state;
        let ends = state != StoreState::ReadOnly || session.store.failed().is_some();
        ends && !state.is_out()
    })?;
    // Changes that were answered with an error may come about until then.
    session.synced(coverage)?;
    let failed = history.session.store.failed();
    match failed {
        Some(_) if spares_journal => {
            return Err("a failed data write made the store refuse changes".to_owned());
        }
        Some(reason) => {
            coverage.faults.failed_stores += 1;
            refuses_for_good(&mut history.session, &reason, coverage)?;
        }
        None if concerns_journal && hits > 0 && !may_pass => {
            return Err("a failed flush or journal write was forgotten".to_owned());
        }
        None => {}
    }
    goes_on(scenario, history, random, coverage)
}

/// Reads go on after a fault, and so does the store when it is opened again.
fn goes_on(
    scenario: &Scenario,
    mut history: History,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    // They see what was acknowledged.
    let found = history.session.read_all(scenario.ids, coverage)?;
    let model = &history.session.model;
    for id in &history.session.damaged {
        if !model.is_uncertain(*id) {
            return Err(format!("lump {id} cannot be read any more"));
        }
    }
    if history.session.damaged.is_empty() {
        let mut now = model.now().clone();
        now.retain(|id, _| found.contains_key(id) || !model.may_be_gone(*id));
        for id in 0..scenario.ids {
            if model.unsure(id).any(|value| value == found.get(&id)) {
                now.remove(&id);
                now.extend(found.get(&id).map(|value| (id, Arc::clone(value))));
            }
        }
        Model::of(now).check(&found, Crash::ProcessDeath)?;
    }
    // What the device dropped may have been journaled; what was synced is there.
    let disk = crashed(&history.session.disk, random);
    let mut session =
        Session::open(scenario, disk).map_err(|error| format!("open afterwards: {error}"))?;
    let found = session.read_all(scenario.ids, coverage)?;
    model.check(&found, Crash::PowerCut)?;
    session.model = Model::of(found);
    let mut scenario = scenario.clone();
    scenario.requests = REQUESTS;
    History::with(&scenario, session, 1, random.next()).run(Only::All, coverage)
}

fn refuses_for_good(
    session: &mut Session,
    reason: &str,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let before = coverage.faults.typed_errors;
    let value = content(0, 0, 100);
    let embedded = PutOptions {
        placement: Some(Placement::Embedded),
        ..PutOptions::default()
    };
    let journaled = PutOptions {
        durability: Durability::Journaled,
        ..PutOptions::default()
    };
    session.put(0, &value, embedded)?;
    session.put(1, &value, journaled)?;
    session.delete(2, Durability::Synced)?;
    session.sync()?;
    session.run_until(coverage, "a store that has failed", |session, _| {
        session.open_requests() == 0
    })?;
    let refused = coverage.faults.typed_errors - before;
    if refused != 4 {
        return Err(format!("{refused} of 4 changes refused after: {reason}"));
    }
    Ok(())
}

/// Power cut or process death.
fn crashed(disk: &SimDisk, random: &mut Random) -> SimDisk {
    match random.below(3) {
        0 => disk.process_death(random),
        _ => {
            let survivors = Survivors::ALL[random.index(Survivors::ALL.len())];
            disk.power_cut(survivors, random)
        }
    }
}

/// The kernel moves fewer bytes than asked: nobody notices, also when the power is cut between.
fn short_transfers(
    mut scenario: Scenario,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    coverage.faults.shorts += 1;
    scenario.cuts = 1;
    let history = History::start(&scenario)?;
    let unit = u64::from(scenario.unit);
    for op in [IoOp::Read, IoOp::Write] {
        let bytes = unit * (1 + random.below(4));
        let short = Fault::always(op, FaultKind::Short(bytes));
        history.session.disk.inject(short);
    }
    let disk = history.session.disk.clone();
    history.run(Only::All, coverage)?;
    coverage.faults.hits += disk.faults_hit();
    Ok(())
}

/// A store that has run for a while, at rest and flushed.
fn settled(scenario: &Scenario, coverage: &mut Coverage) -> Result<History, String> {
    let mut history = History::start(scenario)?;
    history.go_on(REQUESTS, coverage)?;
    history.session.synced(coverage)?;
    Ok(history)
}

/// Bits flip in the data region: the right bytes, or an error.
fn rotten_lumps(
    scenario: &Scenario,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    coverage.faults.rotten_lumps += 1;
    let history = settled(scenario, coverage)?;
    let start = scenario.data_start();
    let len = history.session.disk.size() - start;
    for _ in 0..=random.below(6) {
        let at = start + random.below(len);
        history.session.disk.rot(at, 1 << random.below(8));
    }
    damaged_lumps(scenario, history, random, coverage)
}

/// Sectors of the data region cannot be read: the right bytes, or an error.
fn unreadable_lumps(
    scenario: &Scenario,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    coverage.faults.unreadable += 1;
    let history = settled(scenario, coverage)?;
    let start = scenario.data_start();
    let unit = u64::from(scenario.unit);
    let units = (history.session.disk.size() - start) / unit;
    for _ in 0..=random.below(4) {
        let at = start + random.below(units) * unit;
        history.session.disk.make_unreadable(at..at + unit);
    }
    damaged_lumps(scenario, history, random, coverage)
}

/// The store runs on with damaged lumps, crashes, and runs on.
fn damaged_lumps(
    scenario: &Scenario,
    mut history: History,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    history.session.strictness = Strictness::Failing;
    history.go_on(REQUESTS, coverage)?;
    let disk = crashed(&history.session.disk, random);
    let mut session =
        Session::open(scenario, disk).map_err(|error| format!("open afterwards: {error}"))?;
    session.strictness = Strictness::Failing;
    let found = session.read_all(scenario.ids, coverage)?;
    let model = &history.session.model;
    model.check_readable(&found, &session.damaged, Crash::PowerCut)
}

/// Bits flip in the header, the journal's header or its ring.
fn rotten_journal(
    scenario: &Scenario,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    coverage.faults.rotten_journals += 1;
    let mut history = settled(scenario, coverage)?;
    history.session.strictness = Strictness::Lying;
    for _ in 0..=random.below(3) {
        let at = random.below(scenario.data_start());
        history.session.disk.rot(at, 1 << random.below(8));
    }
    history.go_on(random.below(REQUESTS), coverage)?;
    lied_to(scenario, history, random, coverage)
}

/// Writes are lost, or land elsewhere.
fn stray_writes(
    scenario: &Scenario,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let mut history = settled(scenario, coverage)?;
    history.session.strictness = Strictness::Lying;
    let kind = if random.chance(500) {
        coverage.faults.lost += 1;
        FaultKind::Lost
    } else {
        coverage.faults.misdirected += 1;
        FaultKind::Misdirected(random.below(history.session.disk.size()))
    };
    history.session.disk.inject(Fault {
        op: IoOp::Write,
        within: 0..u64::MAX,
        skip: random.below(20),
        times: 1 + random.below(3),
        kind,
    });
    history.go_on(REQUESTS, coverage)?;
    coverage.faults.hits += history.session.disk.faults_hit();
    lied_to(scenario, history, random, coverage)
}

/// Runs the history of a seed on a disk that loses one write of header or ring, or those of one sector. When
/// the checked copies have named an end behind it, nothing that was acknowledged is older or gone
/// without an error.
pub fn run_lost_write(
    seed: u64,
    commit: CommitMode,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let random = &mut Random::derive(seed, &[10]);
    let scenario = &Scenario {
        cuts: 0,
        commit,
        ..Scenario::new(seed)
    };
    let mut history = settled(scenario, coverage)?;
    history.session.strictness = Strictness::Failing;
    // The last write of a sector matters: all are lost, for a while that is shorter than most rounds
    // of the ring.
    let unit = u64::from(scenario.unit);
    let lost = random.below(scenario.data_start() / unit) * unit;
    let (times, kind) = match random.below(4) {
        0 => (1, FaultKind::Lost),
        _ => (1 + random.below(12), FaultKind::LostUnit(lost)),
    };
    history.session.disk.inject(Fault {
        op: IoOp::Write,
        within: 0..scenario.data_start(),
        skip: random.below(20),
        times,
        kind,
    });
    history.go_on(REQUESTS, coverage)?;
    let hits = history.session.disk.faults_hit();
    coverage.faults.lost_of_journal += u64::from(hits > 0);
    history.session.disk.heal();
    let disk = &history.session.disk;
    disk.advance_to(disk.now_ns() + COPIES_NS);
    let session = &mut history.session;
    session.run_until(coverage, "the checked copies", |session, _| {
        session.disk.in_flight() == 0 && session.driver.due_ns().is_none()
    })?;
    session.synced(coverage)?;
    history.go_on(random.below(REQUESTS), coverage)?;
    let model = &history.session.model;
    let disk = crashed(&history.session.disk, random);
    coverage.cuts += 1;
    let mut session = match Session::open(scenario, disk) {
        Ok(session) => session,
        Err(Error::Closed) => return Err("open says that the store is closed".to_owned()),
        Err(_) if hits > 0 => {
            coverage.faults.unopenable += 1;
            return Ok(());
        }
        Err(error) => return Err(format!("open of a sound disk: {error}")),
    };
    session.strictness = Strictness::Failing;
    let found = session.read_all(scenario.ids, coverage)?;
    model.check_readable(&found, &session.damaged, Crash::PowerCut)
}

/// After a disk has lied: the store is opened and used again, as far as that goes.
fn lied_to(
    scenario: &Scenario,
    mut history: History,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    history.session.read_all(scenario.ids, coverage)?;
    let versions = history.session.take_versions();
    let disk = crashed(&history.session.disk, random);
    drop(history);
    let mut session = match Session::open(scenario, disk) {
        Ok(session) => session,
        Err(Error::Closed) => return Err("open says that the store is closed".to_owned()),
        Err(_) => {
            coverage.faults.unopenable += 1;
            return Ok(());
        }
    };
    session.strictness = Strictness::Lying;
    session.set_versions(versions);
    session.read_all(scenario.ids, coverage)?;
    let mut history = History::with(scenario, session, 1, random.next());
    history.go_on(REQUESTS, coverage)?;
    history.session.read_all(scenario.ids, coverage)?;
    Ok(())
}
