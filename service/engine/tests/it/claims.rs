//! The claim of the machine that has a store open.

use std::sync::Arc;

use crate::support::{self, but, disk_dir};
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions, Survivors, blank_image};
use lumpscope_engine::format::claim::{self, Claim};
use lumpscope_engine::grow::{GrowError, GrowOptions, grow};
use lumpscope_engine::guard::FormatError;
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{Error, Machine, Placement, Store, StoreOptions, StoreState, rename};

/// An image without anything in the padding of its header, as CannyLS and older versions make it.
fn disk() -> SimDisk {
    let image = blank_image(BlockSize::MIN, 16, 100, [7; 16]);
    SimDisk::new(&image, SimOptions::default())
}

fn machine(host: &str, id: u64, boot: u64) -> Machine {
    Machine {
        id,
        boot,
        host: host.to_owned(),
        pause: Arc::new(|| ()),
    }
}

/// A claim of `machine("there", 2, 22)`.
fn theirs() -> Claim {
    Claim {
        machine: 2,
        boot: 22,
        nonce: 5,
        since: 1_800_000_000,
        host: "there".to_owned(),
    }
}

fn options(machine: &Machine) -> StoreOptions {
    but(support::options(), |it| it.machine = Some(machine.clone()))
}

fn open(disk: &SimDisk, machine: &Machine) -> Result<Store, Error> {
    Store::open_on(disk.device(), options(machine))
}

fn claim_on(disk: &SimDisk) -> Option<Claim> {
    claim::decode(&disk.bytes(0..512))
}

/// Gives the header block on a disk another claim.
fn write_claim(disk: &SimDisk, claim: Option<&Claim>) {
    let old = disk.bytes(0..512);
    let mut new = old.clone();
    claim::put_into(&mut new, claim);
    for (at, (old, new)) in (0..).zip(old.into_iter().zip(new)) {
        disk.rot(at, old ^ new);
    }
}

/// What the death of the process that has a store open leaves.
fn crashed(machine: &Machine) -> SimDisk {
    let disk = disk();
    let store = open(&disk, machine).unwrap();
    support::put(&store, 1, b"a lump");
    let cut = disk.power_cut(Survivors::None, &mut Random::new(1));
    store.close().unwrap();
    cut
}

fn refused_by(opened: Result<Store, Error>) -> String {
    match opened.map(drop).unwrap_err() {
        error @ Error::Claimed { .. } => {
            let text = error.to_string();
            assert!(text.contains("--take-over"), "{text}");
            let Error::Claimed { host, .. } = error else {
                unreachable!()
            };
            let words = format!("claimed by {host} since 20");
            assert!(text.contains(&words), "{text}");
            host
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_claim_keeps_other_machines_away_and_is_cleared_at_close() {
    let (here, there) = (machine("here", 1, 11), machine("there", 2, 22));
    let disk = disk();
    let store = open(&disk, &here).unwrap();
    let claim = claim_on(&disk).unwrap();
    assert_eq!(claim.host.as_str(), "here");
    assert_eq!(claim.machine, 1);
    assert_eq!(claim.boot, 11);
    assert_eq!(refused_by(open(&disk, &there)), "here");
    assert_eq!(claim_on(&disk), Some(claim), "a refusal writes nothing");
    support::put(&store, 1, b"a lump");
    store.close().unwrap();
    assert_eq!(claim_on(&disk), None);
    let store = open(&disk, &there).unwrap();
    assert_eq!(support::get(&store, 1).unwrap(), b"a lump");
    store.close().unwrap();
    assert_eq!(disk.violations(), Vec::<String>::new());
}

#[test]
fn a_machine_opens_its_own_store_after_a_crash_and_another_one_takes_it_over() {
    let here = machine("here", 1, 11);
    // The machine after a reboot, and a container on it, which has no id but the kernel's boot.
    for again in [machine("here", 1, 12), machine("pod-7", 0, 11)] {
        let store = open(&crashed(&here), &again).unwrap();
        assert_eq!(support::get(&store, 1).unwrap(), b"a lump");
        store.close().unwrap();
    }
    let disk = crashed(&here);
    // Two without an id are not one machine.
    for other in [machine("there", 2, 22), machine("pod-8", 0, 0)] {
        assert_eq!(refused_by(open(&disk, &other)), "here");
    }
    let there = machine("there", 2, 22);
    let taking = but(options(&there), |it| it.take_over = true);
    let store = Store::open_on(disk.device(), taking).unwrap();
    assert_eq!(refused_by(open(&disk, &here)), "there");
    store.close().unwrap();
    open(&disk, &here).unwrap().close().unwrap();
}

#[test]
fn a_reader_writes_no_claim_and_with_a_machine_obeys_that_of_another() {
    let disk = crashed(&machine("here", 1, 11));
    let reading = |options: StoreOptions| but(options, |it| it.read_only = true);
    // What it would serve may be older than what the other machine has acknowledged.
    let there = reading(options(&machine("there", 2, 22)));
    let refused = Store::open_on(disk.device(), there.clone());
    assert_eq!(refused_by(refused), "here");
    let taking = but(there, |it| it.take_over = true);
    for reader in [taking, reading(support::options())] {
        let store = Store::open_on(disk.device(), reader).unwrap();
        assert_eq!(support::get(&store, 1).unwrap(), b"a lump");
        store.close().unwrap();
        assert_eq!(claim_on(&disk).unwrap().host, "here");
    }
    // Who makes no claim keeps the one that stands, also when it writes the headers.
    let store = Store::open_on(disk.device(), support::options()).unwrap();
    support::put(&store, 2, b"another");
    store.close().unwrap();
    assert_eq!(claim_on(&disk).unwrap().host, "here");
}

#[test]
fn of_two_machines_that_claim_a_store_at_once_the_first_gives_way() {
    for closes in [false, true] {
        let disk = disk();
        let theirs = theirs();
        let (other, found) = (disk.clone(), theirs.clone());
        let here = Machine {
            pause: Arc::new(move || write_claim(&other, (!closes).then_some(&found))),
            ..machine("here", 1, 11)
        };
        let host = refused_by(open(&disk, &here));
        assert_eq!(host, if closes { "another machine" } else { "there" });
        assert_eq!(claim_on(&disk), (!closes).then_some(theirs));
    }
}

#[test]
fn a_torn_claim_counts_as_none_and_a_failed_opening_leaves_none() {
    let (here, there) = (machine("here", 1, 11), machine("there", 2, 22));
    let disk = crashed(&here);
    disk.rot(claim::CLAIM_OFFSET as u64 + 40, 1);
    open(&disk, &there).unwrap().close().unwrap();
    assert_eq!(claim_on(&disk), None);
    // The first record of the journal: what it was cannot be told.
    for at in 1024..1040 {
        disk.rot(at, 0x5a);
    }
    let failed = open(&disk, &there).map(drop).unwrap_err();
    assert!(!matches!(failed, Error::Claimed { .. }), "{failed}");
    assert_eq!(claim_on(&disk), None);
}

#[test]
fn a_machine_that_was_taken_over_leaves_the_new_claim_at_close() {
    let disk = disk();
    let store = open(&disk, &machine("here", 1, 11)).unwrap();
    write_claim(&disk, Some(&theirs()));
    store.close().unwrap();
    assert_eq!(claim_on(&disk), Some(theirs()));
}

#[test]
fn an_image_that_somebody_else_has_opened_or_overwritten_takes_no_more_changes() {
    let here = machine("here", 1, 11);
    let theirs = theirs();
    for (found, by) in [(Some(&theirs), "opened by there"), (None, "overwritten")] {
        let disk = disk();
        // The headers have their copies from then on.
        let store = open(&disk, &here).unwrap();
        support::put(&store, 1, b"a lump");
        store.close().unwrap();
        let store = open(&disk, &here).unwrap();
        support::put(&store, 1, b"newer");
        write_claim(&disk, found);
        let headers = disk.bytes(0..1024);
        let refused = store.close().unwrap_err().to_string();
        assert!(refused.contains(by), "{refused}");
        assert_eq!(
            disk.bytes(0..1024),
            headers,
            "nothing of theirs was changed"
        );
    }
}

#[test]
fn an_image_that_an_older_copy_of_it_has_overwritten_takes_no_more_changes() {
    let (disk, here) = (disk(), machine("here", 1, 11));
    let store = open(&disk, &here).unwrap();
    support::put(&store, 1, b"a lump");
    store.close().unwrap();
    let store = open(&disk, &here).unwrap();
    let newer = || support::try_put(&store, 1, b"newer", Placement::Data);
    let headers = || disk.bytes(0..512);
    let copy = headers();
    while headers() == copy {
        newer().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    store.sync().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    for (at, (now, before)) in (0..).zip(headers().into_iter().zip(copy)) {
        disk.rot(at, now ^ before);
    }
    // The headers are written again within seconds.
    let refused = loop {
        match newer() {
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Error::Failed { .. }), "{refused}");
    assert_eq!(store.health().state, StoreState::ReadOnly);
    let reason = store.health().reason;
    assert!(reason.contains("overwritten"), "{reason}");
    store.close().unwrap_err();
}

#[test]
fn what_writes_to_a_closed_store_asks_for_its_claim() {
    let folder = disk_dir();
    let path = folder.path().join("store.lusf");
    let make = |machine, force| {
        let options = CreateOptions {
            capacity: Some(4 << 20),
            machine,
            force,
            ..CreateOptions::default()
        };
        format(&path, &options)
    };
    make(None, false).unwrap();
    let (here, there) = (machine("here", 1, 11), machine("there", 2, 22));
    let mut image = std::fs::read(&path).unwrap();
    let store = Store::open(&path, options(&here)).unwrap();
    image[..512].copy_from_slice(&std::fs::read(&path).unwrap()[..512]);
    store.close().unwrap();
    std::fs::write(&path, &image).unwrap();
    let larger = |machine| GrowOptions {
        capacity: Some(8 << 20),
        machine,
        ..GrowOptions::default()
    };
    let refused = grow(&path, &larger(Some(&there))).unwrap_err();
    let is_claimed = matches!(refused, GrowError::Store(Error::Claimed { .. }));
    assert!(is_claimed, "{refused}");
    let refused = rename(&path, "cold", Some(&there)).unwrap_err();
    assert!(matches!(refused, Error::Claimed { .. }), "{refused}");
    for force in [false, true] {
        let refused = make(Some(&there), force).unwrap_err();
        assert!(matches!(refused, FormatError::Claimed { .. }), "{refused}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), image);
    rename(&path, "cold", Some(&here)).unwrap();
    let unclaimed = |path| claim::decode(&std::fs::read(path).unwrap()).is_none();
    assert!(unclaimed(&path));
    std::fs::write(&path, &image).unwrap();
    grow(&path, &larger(Some(&here))).unwrap();
    assert!(unclaimed(&path));
    std::fs::write(&path, &image).unwrap();
    make(Some(&here), true).unwrap();
}

#[test]
fn a_power_cut_anywhere_leaves_a_store_that_its_machine_opens() {
    let (here, there) = (machine("here", 1, 11), machine("there", 2, 22));
    let (mut claimed, mut free) = (0, 0);
    for seed in 0..120 {
        let disk = disk();
        disk.die_after(seed % 40);
        if let Ok(store) = open(&disk, &here) {
            let _ = support::try_put(&store, 1, b"a lump", Placement::Data);
            let _ = store.close();
        }
        let survivors = [Survivors::None, Survivors::Sectors(500), Survivors::All];
        let survivors = survivors[usize::try_from(seed % 3).unwrap()];
        let disk = disk.power_cut(survivors, &mut Random::new(seed));
        match open(&disk, &there) {
            Ok(store) => {
                store.close().unwrap();
                free += 1;
            }
            refused => {
                assert_eq!(refused_by(refused), "here", "seed {seed}");
                claimed += 1;
            }
        }
        open(&disk, &here).unwrap().close().unwrap();
        assert_eq!(claim_on(&disk), None, "seed {seed}");
    }
    assert!(claimed > 20 && free > 20, "{claimed} {free}");
}
