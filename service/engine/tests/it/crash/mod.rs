//! Crash simulation in the size of a test; `./dev soak` goes on with it for hours.

mod harness;

use harness::scenario::Scenario;
use harness::{Coverage, Only, run, run_faulty, run_lost_write};
use lumpscope_engine::CommitMode;
use lumpscope_engine::device::WriteCache;
use lumpscope_engine::device::sim::Lie;
use lumpscope_engine::mutant::{self, Mutant};

/// Seeds of a test; a tenth of them is run again by the test that they repeat.
const SEEDS: u64 = 120;
const FAULTY_SEEDS: u64 = 400;
/// A history in which a cut leaves more puts in a run than a count of lumps finds room for in the ring.
const MANY_UNRECORDED: u64 = 1212;
/// A history in which a run is given up and a put of it refused.
const GIVEN_UP: u64 = 5102;
/// One in which the place of a put is refused when the store has failed and is full.
const NO_OTHER_PLACE: u64 = 20_264_453;
/// One in which a delete of many fails when the first of its lumps is gone.
const DELETED_IN_PART: u64 = 20_284_175;

fn explore(seeds: std::ops::Range<u64>) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let scenario = Scenario::new(seed);
        if let Err(failure) = run(&scenario, Only::All, &mut coverage) {
            panic!("{failure:?}, {}", scenario.describe());
        }
    }
    coverage
}

#[test]
fn nothing_acknowledged_is_lost_at_any_cut() {
    let coverage = explore(0..SEEDS);
    // What was never reached was not checked.
    let reached = [
        ("cuts", coverage.cuts, 20_000),
        (
            "cuts with something to lose",
            coverage.uncertain_cuts,
            10_000,
        ),
        ("process deaths", coverage.process_deaths, 3000),
        ("cuts of cut stores", coverage.nested_cuts, 3000),
        ("cuts of recoveries", coverage.interrupted_recoveries, 1000),
        ("gets", coverage.gets, 3000),
        ("deletes", coverage.deletes, 1000),
        ("range deletes", coverage.range_deletes, 300),
        ("deletes of many", coverage.many_deletes, 300),
        ("puts that came second", coverage.already_there, 300),
        ("puts in pieces", coverage.in_pieces, 300),
        ("clients that went away", coverage.lost_clients, 30),
        ("syncs", coverage.syncs, 300),
        ("journaled changes", coverage.journaled, 1000),
        ("full stores", coverage.store_full, 100),
        ("full journals", coverage.journal_full, 100),
        ("rounds of the ring", coverage.header_writes, 300),
        ("relocated records", coverage.gc_relocated, 1000),
    ];
    for (what, count, least) in reached {
        assert!(count >= least, "only {count} {what}: {coverage:#?}");
    }
}

/// A disk that offers more than flushes gets fewer of them, and loses no more.
#[test]
fn every_rung_of_a_device_keeps_the_promise() {
    let (mut plain, mut through, mut fua) = <(Coverage, Coverage, Coverage)>::default();
    for seed in 0..SEEDS / 2 {
        let scenario = Scenario::new(seed);
        let rungs = [
            (WriteCache::Back, false, &mut plain),
            (WriteCache::Through, false, &mut through),
            (WriteCache::Back, true, &mut fua),
        ];
        for (cache, fua, coverage) in rungs {
            let scenario = Scenario {
                cache,
                fua,
                commit: if fua {
                    CommitMode::Runs
                } else {
                    scenario.commit
                },
                ..scenario.clone()
            };
            if let Err(failure) = run(&scenario, Only::All, coverage) {
                panic!("{failure:?}, {cache:?}, FUA {fua}, {}", scenario.describe());
            }
        }
    }
    assert_eq!((through.flushes, plain.writes_forced), (0, 0));
    assert!(plain.flushes_spared > 0, "{plain:#?}");
    assert!(through.uncertain_cuts > 1000, "{through:#?}");
    assert!(fua.writes_forced > 200, "{fua:#?}");
    assert!(fua.flushes < plain.flushes, "{fua:#?}");
}

/// Puts are answered before their records are written.
#[test]
fn runs_lose_nothing_at_any_cut() {
    let mut totals = Coverage::default();
    for (cache, fua) in [
        (WriteCache::Back, false),
        (WriteCache::Back, true),
        (WriteCache::Through, false),
    ] {
        let before = totals;
        for seed in (0..SEEDS / 2).chain([MANY_UNRECORDED]) {
            let scenario = Scenario {
                cache,
                fua,
                commit: CommitMode::Runs,
                ..Scenario::new(seed)
            };
            if let Err(failure) = run(&scenario, Only::All, &mut totals) {
                panic!("{failure:?}, {cache:?}, FUA {fua}, {}", scenario.describe());
            }
        }
        let found = totals.run_puts - before.run_puts;
        assert!(found > 200, "{found}, {cache:?}, FUA {fua}");
    }
}

#[test]
fn every_trap_of_runs_is_found() {
    for (trap, fua) in [
        (Mutant::TrustsData, false),
        (Mutant::ForgetsLog, false),
        (Mutant::LeavesHoles, false),
        (Mutant::LeavesHoles, true),
        (Mutant::LeavesRecords, false),
        (Mutant::ReusesEarly, false),
        (Mutant::ForgetsConditions, false),
    ] {
        let found = (0..240).chain([MANY_UNRECORDED]).find_map(|seed| {
            let scenario = Scenario {
                fua,
                commit: CommitMode::Runs,
                ..Scenario::new(seed)
            };
            let coverage = &mut Coverage::default();
            mutant::with(trap, || run(&scenario, Only::All, coverage)).err()
        });
        let noticed = found.is_some();
        assert!(noticed, "240 histories did not notice {trap:?}, FUA {fua}");
    }
}

#[test]
fn a_run_that_is_left_open_when_it_is_given_up_is_found() {
    let run = || run_faulty(GIVEN_UP, CommitMode::Runs, &mut Coverage::default());
    run().unwrap();
    assert!(mutant::with(Mutant::LeavesRun, run).is_err());
}

#[test]
fn a_put_before_its_pieces_are_written_is_found() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        let found = (0..40).find_map(|seed| {
            let scenario = Scenario {
                commit,
                pieces: 700,
                ..Scenario::new(seed)
            };
            let coverage = &mut Coverage::default();
            mutant::with(Mutant::PutsEarly, || run(&scenario, Only::All, coverage)).err()
        });
        assert!(
            found.is_some(),
            "40 histories did not notice it, {commit:?}"
        );
    }
}

#[test]
fn failing_disks_cost_answers_and_never_bytes() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        failing_disks(commit);
    }
}

fn failing_disks(commit: CommitMode) {
    let mut coverage = Coverage::default();
    for seed in (0..FAULTY_SEEDS).chain([NO_OTHER_PLACE, DELETED_IN_PART]) {
        if let Err(failure) = run_faulty(seed, commit, &mut coverage) {
            let described = Scenario::new(seed).describe();
            panic!("{failure:?}, {commit:?}, {described}");
        }
    }
    let faults = coverage.faults;
    let reached = [
        ("disks with errors", faults.errors),
        ("short transfers", faults.shorts),
        ("rotten lumps", faults.rotten_lumps),
        ("rotten journals", faults.rotten_journals),
        ("unreadable sectors", faults.unreadable),
        ("lost writes", faults.lost),
        ("misdirected writes", faults.misdirected),
        ("failed stores", faults.failed_stores),
    ];
    for (what, count) in reached {
        assert!(count >= 10, "only {count} {what}: {faults:#?}");
    }
    // Few: most damage of a journal is made good.
    assert!(faults.unopenable >= 1, "{faults:#?}");
    assert!(faults.hits > 500, "{faults:#?}");
    assert!(faults.typed_errors > 500, "{faults:#?}");
}

#[test]
fn no_lost_write_of_the_journal_is_believed() {
    let mut coverage = Coverage::default();
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        for seed in 0..2 * FAULTY_SEEDS {
            if let Err(failure) = run_lost_write(seed, commit, &mut coverage) {
                let described = Scenario::new(seed).describe();
                panic!("{failure:?}, {commit:?}, {described}");
            }
        }
    }
    let faults = coverage.faults;
    assert!(faults.lost_of_journal > 500, "{faults:#?}");
    assert!(faults.typed_errors + faults.unopenable > 40, "{faults:#?}");
}

#[test]
fn a_history_is_a_function_of_its_seed() {
    let seeds = 0..SEEDS / 10;
    assert_eq!(explore(seeds.clone()), explore(seeds));
}

/// The harness must find every disk that breaks a promise, and repeat what it found.
#[test]
fn every_lie_of_a_disk_is_found() {
    for lie in [
        Lie::IgnoresFlushes,
        Lie::FlushForgetsOne,
        Lie::TearsUnits,
        Lie::ReadsElsewhere,
        Lie::Forgets,
        Lie::HidesCache,
        Lie::ForcesNothing,
    ] {
        let found = (0..20).find_map(|seed| {
            let mut scenario = Scenario::new(seed);
            scenario.lie = lie;
            if lie == Lie::ForcesNothing {
                (scenario.fua, scenario.commit) = (true, CommitMode::Runs);
            }
            let result = run(&scenario, Only::All, &mut Coverage::default());
            result.err().map(|failure| (scenario, failure))
        });
        let Some((scenario, failure)) = found else {
            panic!("20 histories did not notice {lie:?}");
        };
        let mut coverage = Coverage::default();
        let again = run(&scenario, Only::Cut(failure.place), &mut coverage);
        assert_eq!(again, Err(failure), "{lie:?} found once and not again");
    }
}
