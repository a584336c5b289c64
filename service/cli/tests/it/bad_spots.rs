//! Disks with places that answer EIO, below the kernel: what the program makes of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::common::*;
use crate::failing_disks::text;
use crate::moving::{ends, fill, holds, ids, json};
use crate::process::Process;
use lumpscope_engine::LumpId;
use lumpscope_engine::inspect::Inspector;
use lumpscope_needs::{Need, alone};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;
const NEEDS: [Need; 2] = [Need::LoopDevices, Need::Fuse];
/// Length of a bad spot in bytes.
const SPOT: u64 = 64 << 10;
const LUMP: usize = 200_000;
/// The service ends within this.
const EVENTUALLY: Duration = Duration::from_secs(120);

/// An emulated disk, five times as fast as the drive; given up on drop.
struct AttachedDisk(PathBuf);

impl AttachedDisk {
    fn attach(size: &str) -> Self {
        let drive = ["--drive", "st1000dm003", "--scale", "5", "--memory", "256M"];
        let told = ends(
            0,
            &[&["platter", "attach", "--size", size], &drive[..]].concat(),
        );
        // A warning of a busy machine stands before it.
        Self(told.lines().last().unwrap().into())
    }

    /// The places, as OFFSET+LENGTH, fail from now on.
    fn spoil(&self, places: &[String]) {
        ends(
            0,
            &[
                "platter",
                "status",
                text(&self.0),
                "--bad-spots",
                &places.join(","),
            ],
        );
    }

    /// Reads and writes that have touched a bad spot.
    fn failures(&self) -> u64 {
        let listed = json(0, &["platter", "status"]);
        let mut disks = listed.as_array().unwrap().iter();
        let disk = disks.find(|disk| disk["device"] == text(&self.0)).unwrap();
        disk["status"]["counts"]["failed"].as_u64().unwrap()
    }
}

impl Drop for AttachedDisk {
    fn drop(&mut self) {
        let given_up = std::process::Command::new(crate::process::PROGRAM)
            .args(["platter", "detach", "--force"])
            .arg(&self.0)
            .status();
        assert!(std::thread::panicking() || given_up.unwrap().success());
    }
}

async fn metric(service: &Process, name: &str) -> u64 {
    let (_, metrics) = http_get(service.metrics, "/metrics").await;
    let series = format!("lumpscope_store_{name}{{store=\"bad\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
    let value = value.unwrap_or_else(|| panic!("{series}: {metrics}"));
    value.strip_suffix(".0").unwrap_or(value).parse().unwrap()
}

async fn all_are_put(client: &mut Client, lumps: std::ops::RangeInclusive<u128>) {
    for id in lumps.clone() {
        put(client, "bad", id, &body(id, LUMP)).await.unwrap();
    }
    for id in lumps {
        assert!(get(client, "bad", id).await.unwrap() == body(id, LUMP));
    }
}

fn stop(mut service: Process) {
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
}

/// The place is shown wherever somebody would look for it.
async fn the_spot_is_shown(service: &Process, begins: u64) {
    assert!(metric(service, "bad_bytes").await >= SPOT);
    assert!(metric(service, "bad_places").await >= 1);
    assert!(metric(service, "io_errors_total").await >= 1);
    let scrub = json(0, &["admin", "scrub", "bad", "--server", &service.grpc]);
    let listed = scrub["listed"].as_array().unwrap();
    let told: Vec<&str> = listed
        .iter()
        .filter_map(|f| f["message"].as_str())
        .collect();
    let place = |message: &&&str| {
        let mut numbers = message.split(|c: char| !c.is_ascii_digit());
        numbers.any(|number| {
            let at = number.parse().unwrap_or(0);
            (begins - MIB..begins + SPOT).contains(&at)
        })
    };
    assert!(told.iter().any(|message| place(&message)), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_go_around_a_bad_spot_and_a_restart_knows_it() {
    let Some(_alone) = alone(&NEEDS) else { return };
    for commit in ["ordered", "runs"] {
        let dir = folder();
        let disk = AttachedDisk::attach("128M");
        ends(0, &["format", text(&disk.0)]);
        let region = json(0, &["check", "--quick", text(&disk.0)]);
        let begins = region["image"]["data_offset"].as_u64().unwrap() + 2 * MIB;
        disk.spoil(&[format!("{begins}+{SPOT}")]);
        let stores = [("bad", disk.0.as_path())];
        let more = ["--commit", commit];
        let service = Process::start(dir.path(), &stores, &more);
        let mut client = connect(&service.grpc).await;
        all_are_put(&mut client, 1..=45).await;
        the_spot_is_shown(&service, begins).await;
        let (bytes, places) = (
            metric(&service, "bad_bytes").await,
            metric(&service, "bad_places").await,
        );
        let failures = disk.failures();
        println!("{commit}: {bytes} bytes in {places} places, {failures} requests failed");
        assert!(failures > 0);
        stop(service);
        let service = Process::start(dir.path(), &stores, &more);
        let mut client = connect(&service.grpc).await;
        all_are_put(&mut client, 46..=54).await;
        for id in 1..=45 {
            assert!(get(&mut client, "bad", id).await.unwrap() == body(id, LUMP));
        }
        assert_eq!(metric(&service, "bad_bytes").await, bytes);
        assert_eq!(metric(&service, "bad_places").await, places);
        assert_eq!(disk.failures(), failures, "the place is left alone");
        stop(service);
        ends(0, &["check", text(&disk.0)]);
    }
}

/// Makes 20 spots of a sector each in a store that nobody uses; the lumps that lie there.
fn spoil_lumps(disk: &AttachedDisk) -> BTreeSet<String> {
    let inspector = Inspector::open(&disk.0).unwrap();
    let lumps: Vec<_> = inspector.lumps(LumpId(0)).collect();
    let hit: Vec<_> = (0..20)
        .map(|spot| &lumps[spot * lumps.len() / 20 + 3])
        .collect();
    let places: Vec<String> = hit
        .iter()
        .map(|lump| format!("{}+512", lump.offset))
        .collect();
    disk.spoil(&places);
    hit.iter().map(|lump| lump.id.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lumps_are_moved_from_a_disk_with_bad_spots() {
    let Some(_alone) = alone(&NEEDS) else { return };
    let dir = folder();
    let disk = AttachedDisk::attach("128M");
    ends(0, &["format", text(&disk.0), "--journal-ratio", "0.1"]);
    fill(&disk.0, 0..10_000);
    let lost = spoil_lumps(&disk);
    let new = store_file(dir.path(), "new", 64 * MIB, 512, 0.1);
    let stores = [("old", disk.0.as_path()), ("new", new.as_path())];
    let service = Process::start(dir.path(), &stores, &[]);
    let command = ["evacuate", "old", "new", "--server", &service.grpc];
    let moved = json(4, &command);
    assert_eq!(moved["lumps"], 10_000 - 20);
    assert_eq!(ids(&moved["missing"]), lost);
    stop(service);
    holds(&new, 0..10_000, &lost);
    assert!(disk.failures() >= 20);
}

#[test]
fn places_that_are_none_are_refused() {
    let attach = ["platter", "attach", "--drive", "st1000dm003"];
    for (spots, words) in [
        ("64K", "OFFSET+LENGTH"),
        ("1Q+4K", "OFFSET+LENGTH"),
        ("100+512", "whole sectors"),
        ("0+0", "whole sectors"),
        ("2T+4K", "within the"),
    ] {
        let code = if words.starts_with("OFF") { 2 } else { 1 };
        let said = ends(code, &[&attach[..], &["--bad-spots", spots]].concat());
        assert!(said.contains(words), "{said}");
    }
}
