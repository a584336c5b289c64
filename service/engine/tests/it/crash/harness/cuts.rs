//! Cuts: what the disk holds when the power fails, or the process dies, after an event.

use lumpscope_engine::device::sim::{Random, SimDisk, Survivors};
use lumpscope_engine::{CommitMode, TailOutcome};

use super::history::History;
use super::model::{Crash, Model};
use super::session::Session;
use super::{Coverage, HistoryPlace, Only, PLACE};

/// Of a thousand cuts this many are the death of the process alone.
const PROCESS_DEATHS: u64 = 250;
/// Of a thousand cuts this many are followed by a second one while the store recovers.
const INTERRUPTED_RECOVERIES: u64 = 120;
/// Of a thousand cuts this many go on with a history that is itself cut.
const CONTINUED: u64 = 60;
/// Requests of a history after a cut.
const CONTINUED_REQUESTS: u64 = 14;
/// Of a thousand events of a history after a cut this many are cut.
const NESTED_CUTS: u64 = 150;
/// Cuts of cuts of cuts are as deep as it goes.
const DEEPEST: u32 = 2;

/// Makes the cuts after an event of a history.
pub fn after_event(
    history: &History,
    event: u64,
    only: Only,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let uncertain = history.session.disk.uncertain_writes() > 0;
    let most = if uncertain { u64::MAX } else { 1 };
    let choices = history.scenario.cuts.min(most);
    for choice in 0..choices {
        let mut random = Random::derive(history.scenario.seed, &[3, event, choice]);
        if history.depth == 0 {
            let place = HistoryPlace {
                event,
                choice: Some(choice),
            };
            if matches!(only, Only::Cut(wanted) if wanted != place) {
                continue;
            }
            PLACE.set(place);
        } else if !random.chance(NESTED_CUTS) {
            continue;
        }
        coverage.uncertain_cuts += u64::from(uncertain);
        cut(history, &mut random, coverage)?;
    }
    Ok(())
}

fn cut(history: &History, random: &mut Random, coverage: &mut Coverage) -> Result<(), String> {
    let disk = &history.session.disk;
    coverage.cuts += 1;
    coverage.nested_cuts += u64::from(history.depth > 0);
    let (mut disk, mut crash, how) = if random.chance(PROCESS_DEATHS) {
        coverage.process_deaths += 1;
        let how = "process death".to_owned();
        (disk.process_death(random), Crash::ProcessDeath, how)
    } else {
        let survivors = Survivors::ALL[random.index(Survivors::ALL.len())];
        let how = format!("power cut, surviving: {survivors:?}");
        (disk.power_cut(survivors, random), Crash::PowerCut, how)
    };
    if random.chance(INTERRUPTED_RECOVERIES) {
        coverage.interrupted_recoveries += 1;
        disk = interrupt_recovery(history, &disk, random);
        crash = Crash::PowerCut;
    }
    check(history, disk, crash, random, coverage).map_err(|why| format!("{how}: {why}"))
}

/// The store is opened, and in the middle of that the power is cut.
fn interrupt_recovery(history: &History, disk: &SimDisk, random: &mut Random) -> SimDisk {
    disk.die_after(random.below(30));
    // It fails in general; and it may be through before the device dies.
    drop(Session::open(&history.scenario, disk.clone()));
    let survivors = Survivors::ALL[random.index(Survivors::ALL.len())];
    disk.power_cut(survivors, random)
}

/// The fate of an unsettled batch. The death of a process takes one, too, if it comes while data
/// beside it is written.
fn note_tail(session: &Session, coverage: &mut Coverage) -> Result<(), String> {
    let outcome = session
        .store
        .info()
        .unsettled
        .as_ref()
        .map(|tail| tail.outcome);
    if session.store.info().commit == CommitMode::Runs {
        let tail = session.store.info().unsettled.as_ref();
        coverage.run_puts += tail.map_or(0, |tail| tail.puts);
    }
    match outcome {
        None => {}
        Some(TailOutcome::Whole) => coverage.whole_tails += 1,
        Some(TailOutcome::Dropped) => coverage.dropped_tails += 1,
        // A sector that was lost differs in one bit from the new one.
        Some(TailOutcome::Damaged) => coverage.damaged_tails += 1,
    }
    Ok(())
}

fn check(
    history: &History,
    disk: SimDisk,
    crash: Crash,
    random: &mut Random,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let mut session =
        Session::open(&history.scenario, disk).map_err(|error| format!("open: {error}"))?;
    note_tail(&session, coverage)?;
    let found = session.read_all(history.scenario.ids, coverage)?;
    history.session.model.check(&found, crash)?;
    if history.depth >= DEEPEST || !random.chance(CONTINUED) {
        return Ok(());
    }
    session.model = Model::of(found);
    let mut scenario = history.scenario.clone();
    scenario.requests = CONTINUED_REQUESTS;
    scenario.cuts = 1;
    scenario.seed = random.next();
    let seed = scenario.seed;
    History::with(&scenario, session, history.depth + 1, seed)
        .run(Only::All, coverage)
        .map_err(|why| format!("and then, at depth {}: {why}", history.depth + 1))
}
