//! Maps that are pinned for bpftool.

use std::path::{Path, PathBuf};

use aya::maps::{Array, Map, MapData, MapInfo};
use lumpscope_ebpf_common::Last;
use lumpscope_observer::Tuning;

use crate::support::{LoopDevice, Watched, ready, sh};

const NAMES: [&str; 4] = ["HISTOGRAM", "STATS", "LAST", "IN_FLIGHT"];

/// A bpffs of the test's own; unmounted when dropped.
struct Bpffs(tempfile::TempDir);

impl Bpffs {
    fn new() -> Bpffs {
        let dir = tempfile::Builder::new()
            .prefix("lumpscope-bpffs-")
            .tempdir()
            .expect("a mount point");
        sh(
            "mount",
            &["-t", "bpf", "bpf", dir.path().to_str().expect("UTF-8")],
        );
        Bpffs(dir)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.0.path())
            .status();
    }
}

fn pinning(dir: &Path) -> Tuning {
    Tuning {
        pin_maps: Some(dir.to_owned()),
        ..Tuning::default()
    }
}

fn id_of(path: &Path) -> u32 {
    MapInfo::from_pin(path).expect("a pinned map").id()
}

fn entries(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).expect("a folder");
    let mut names: Vec<String> = names
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn pinned_maps_can_be_read_and_go_at_the_end() {
    let Some(_one) = ready() else { return };
    let (disk, fs) = (LoopDevice::new(64 << 20), Bpffs::new());
    let dir = fs.folder("a");
    let watched = Watched::new(&disk.path, pinning(&dir));
    let mut wanted = NAMES;
    wanted.sort_unstable();
    assert_eq!(entries(&dir), wanted);
    watched.write(1, 8 << 20, 1 << 20);
    watched.report();
    let last = MapData::from_pin(dir.join("LAST")).expect("it is pinned");
    let last: Array<MapData, [u64; Last::WORDS]> = Map::Array(last).try_into().expect("an array");
    let slots = (0..last.len()).filter_map(|slot| last.get(&slot, 0).ok());
    let end = (9 << 20) / 512;
    assert!(
        slots.flatten().any(|value| value == end),
        "no slot ends at {end}"
    );

    // Another service does not take a folder that is in use, and observes nevertheless.
    let ids = NAMES.map(|name| id_of(&dir.join(name)));
    let other = LoopDevice::new(64 << 20);
    drop(Watched::new(&other.path, pinning(&dir)));
    assert_eq!(NAMES.map(|name| id_of(&dir.join(name))), ids);

    watched.observer.shutdown();
    assert_eq!(entries(&dir), [""; 0], "unpinned at the end");
}

#[test]
fn pins_of_a_killed_service_are_replaced_and_those_of_others_are_not() {
    let Some(_one) = ready() else { return };
    let (disk, fs) = (LoopDevice::new(64 << 20), Bpffs::new());
    let (source, stale, foreign) = (
        fs.folder("source"),
        fs.folder("stale"),
        fs.folder("foreign"),
    );
    let first = Watched::new(&disk.path, pinning(&source));
    for (dir, name) in [(&stale, "STATS"), (&foreign, "LAST")] {
        std::fs::create_dir(dir).expect("a folder of a bpffs");
        // As a service that was killed leaves it; and as somebody else's map of another name.
        let map = MapData::from_pin(source.join("STATS")).expect("it is pinned");
        map.pin(dir.join(name)).expect("a second pin");
    }
    let old = id_of(&stale.join("STATS"));
    first.observer.shutdown();
    drop(first);

    let second = Watched::new(&disk.path, pinning(&stale));
    assert_eq!(entries(&stale).len(), NAMES.len());
    assert_ne!(id_of(&stale.join("STATS")), old, "replaced");
    second.observer.shutdown();
    drop(second);

    let before = id_of(&foreign.join("LAST"));
    drop(Watched::new(&disk.path, pinning(&foreign)));
    assert_eq!(entries(&foreign), ["LAST"], "nothing was pinned");
    assert_eq!(id_of(&foreign.join("LAST")), before, "left alone");

    // No bpffs at all: observed without pins.
    let plain = tempfile::tempdir().expect("a folder");
    drop(Watched::new(&disk.path, pinning(plain.path())));
    assert_eq!(entries(plain.path()), [""; 0]);
}
