//! The store is cut off at every single write and flush of a workload, and opened again.
//!
//! Two kinds of cut: the process dies (every write up to the cut is on the disk), and the power
//! fails (of the writes since the last flush an arbitrary part of their sectors is on the disk).
//! In both every acknowledged change must be there, every lump must be byte-equal to a version
//! that was put, and the store must go on working.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "contents are any bytes; a test may panic"
)]

mod common;

use std::collections::BTreeMap;
use std::ops::Range;

use common::sim::{Event, Random, SECTOR, SimDisk};
use common::{Shape, content, ctx, get, try_put};
use crossbeam_channel::{Receiver, unbounded};
use lumpscope_engine::{Durability, Error, LumpId, LumpRange, Placement, Store};

const IDS: u128 = 12;

/// One change of the workload.
#[derive(Clone, Debug)]
struct Op {
    ids: Range<u128>,
    value: Option<Vec<u8>>,
    /// True: it was acknowledged as synced; false: as journaled, or refused.
    synced: bool,
    refused: bool,
}

#[derive(Debug)]
struct Workload {
    ops: Vec<Op>,
    events: Vec<Event>,
}

const fn submitted(op: usize) -> usize {
    2 * op
}

const fn acknowledged(op: usize) -> usize {
    2 * op + 1
}

type Done = (usize, Option<Durability>);

fn submit(
    disk: &SimDisk,
    store: &Store,
    op: usize,
    change: &Op,
    embedded: bool,
    durability: Durability,
    done: &crossbeam_channel::Sender<Done>,
) {
    let (disk_in_callback, done) = (disk.clone(), done.clone());
    let finish = move |result: Result<Durability, Error>| {
        if result.is_ok() {
            disk_in_callback.mark(acknowledged(op));
        }
        let full = matches!(
            result,
            Err(Error::StoreFull { .. } | Error::JournalFull { .. })
        );
        assert!(result.is_ok() || full, "{result:?}");
        done.send((op, result.ok())).unwrap();
    };
    disk.mark(submitted(op));
    let id = LumpId(change.ids.start);
    match &change.value {
        Some(value) => {
            let placement = if embedded {
                Placement::Embedded
            } else {
                Placement::Data
            };
            let mut buf = store.lump_buf(value.len() as u64).unwrap();
            buf.extend(value).unwrap();
            let on_done = Box::new(move |result: Result<lumpscope_engine::PutOutcome, _>, _| {
                finish(result.map(|outcome| outcome.durability));
            });
            store
                .submit_put(ctx(), id, buf, placement, durability, on_done)
                .unwrap();
        }
        None if change.ids.end - change.ids.start == 1 => {
            let on_done = Box::new(
                move |result: Result<lumpscope_engine::DeleteOutcome, _>, _| {
                    finish(result.map(|outcome| outcome.durability));
                },
            );
            store.submit_delete(ctx(), id, durability, on_done).unwrap();
        }
        None => {
            let on_done = Box::new(
                move |result: Result<lumpscope_engine::DeleteRangeOutcome, _>, _| {
                    finish(result.map(|outcome| outcome.durability));
                },
            );
            let end = LumpId(change.ids.end);
            store
                .submit_delete_range(ctx(), id, end, durability, on_done)
                .unwrap();
        }
    }
}

/// Runs bursts of concurrent changes of different lumps and records what the disk saw.
fn run(disk: &SimDisk, seed: u64, bursts: usize) -> Workload {
    let mut random = Random(seed);
    let store = disk.open().unwrap();
    let (sender, done): (_, Receiver<Done>) = unbounded();
    let mut ops: Vec<Op> = Vec::new();
    for _ in 0..bursts {
        let first = ops.len();
        let mut ids: Vec<u128> = (0..IDS).collect();
        let whole_range = random.below(12) == 0;
        for _ in 0..if whole_range { 1 } else { 1 + random.below(5) } {
            let id = ids.swap_remove(random.below(ids.len()));
            let number = ops.len();
            let mut op = Op {
                ids: id..id + 1,
                value: None,
                synced: false,
                refused: false,
            };
            let embedded = random.below(3) == 0;
            if whole_range {
                op.ids.end = IDS.min(id + 1 + random.below(5) as u128);
            } else if random.below(4) > 0 {
                let len = random.below(if embedded { 120 } else { 1800 });
                op.value = Some(content(id, number as u64, len));
            }
            let journaled = random.below(4) == 0;
            let durability = if journaled {
                Durability::Journaled
            } else {
                Durability::Synced
            };
            submit(disk, &store, number, &op, embedded, durability, &sender);
            ops.push(op);
        }
        for _ in first..ops.len() {
            let (number, durability) = done.recv().unwrap();
            ops[number].synced = durability == Some(Durability::Synced);
            ops[number].refused = durability.is_none();
        }
    }
    assert!(
        store.stats().header_writes > 3,
        "the ring must have gone round: {:?}",
        store.stats()
    );
    store.close().unwrap();
    let events = std::mem::take(&mut disk.state.lock().unwrap().events);
    Workload { ops, events }
}

/// What is known of the changes at a cut.
#[derive(Clone, Default)]
struct Progress {
    submitted: Vec<usize>,
    acknowledged: Vec<usize>,
    /// Acknowledged before a flush began, or as synced.
    durable: Vec<usize>,
}

impl Progress {
    /// Values an id may have: of the last change that must be there, or of a later one.
    fn allowed(&self, ops: &[Op], id: u128, certain: &[usize]) -> Vec<Option<Vec<u8>>> {
        let about = |op: &usize| ops[*op].ids.contains(&id) && !ops[*op].refused;
        let last = certain.iter().copied().filter(about).max();
        let mut allowed = vec![last.and_then(|op| ops[op].value.clone())];
        let later = self
            .submitted
            .iter()
            .copied()
            .filter(|op| last.is_none_or(|last| *op > last));
        allowed.extend(later.filter(about).map(|op| ops[op].value.clone()));
        allowed
    }
}

fn check(
    image: Vec<u8>,
    unit: u32,
    ops: &[Op],
    progress: &Progress,
    certain: &[usize],
    note: &str,
) {
    let mut disk = SimDisk::new(image);
    disk.unit = unit;
    let store = disk
        .open()
        .unwrap_or_else(|error| panic!("{note}: {error}"));
    let mut found = BTreeMap::new();
    for id in 0..IDS {
        let value = get(&store, id);
        let allowed = progress.allowed(ops, id, certain);
        assert!(
            allowed.contains(&value),
            "{note}: lump {id} has {:?} bytes, allowed are {:?}",
            value.map(|value| value.len()),
            allowed
                .iter()
                .map(|value| value.as_ref().map(Vec::len))
                .collect::<Vec<_>>()
        );
        if let Some(value) = value {
            found.insert(id, value);
        }
    }
    let listed = store.list(LumpRange::ALL, 1000).unwrap().ids;
    assert_eq!(listed.len(), found.len(), "{note}");
    if note.len().is_multiple_of(4) {
        // It goes on working: change something, and look again after one more opening.
        for version in 0..6 {
            let value = content(3, 1000 + version, 400);
            if try_put(&store, 3, &value, Placement::Data).is_ok() {
                found.insert(3, value);
            }
            store
                .delete(ctx(), LumpId(version.into()), Durability::Synced)
                .unwrap();
            found.remove(&version.into());
        }
        store.close().unwrap();
        let store = disk
            .open()
            .unwrap_or_else(|error| panic!("{note}, again: {error}"));
        for id in 0..IDS {
            assert_eq!(
                get(&store, id),
                found.get(&id).cloned(),
                "{note}, again: lump {id}"
            );
        }
    }
}

/// Cuts the workload after every write and flush.
fn cut_everywhere(start: &[u8], workload: &Workload, seed: u64, sector_len: usize) -> usize {
    let unit = u32::try_from(sector_len).unwrap();
    let mut random = Random(seed);
    let mut progress = Progress::default();
    let (mut all, mut durable) = (start.to_vec(), start.to_vec());
    let mut unflushed: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut cuts = 0;
    for (at, event) in workload.events.iter().enumerate() {
        match event {
            Event::Mark(mark) if mark % 2 == 0 => progress.submitted.push(mark / 2),
            Event::Mark(mark) => {
                progress.acknowledged.push(mark / 2);
                if workload.ops[mark / 2].synced {
                    progress.durable.push(mark / 2);
                }
            }
            Event::Write { offset, bytes } => {
                all[*offset..offset + bytes.len()].copy_from_slice(bytes);
                unflushed.push((*offset, bytes.clone()));
            }
            Event::Flush => {
                durable.copy_from_slice(&all);
                unflushed.clear();
                progress.durable.clone_from(&progress.acknowledged);
            }
        }
        if matches!(event, Event::Mark(_)) {
            continue;
        }
        let note = format!("seed {seed}, process dies after event {at}");
        check(
            all.clone(),
            unit,
            &workload.ops,
            &progress,
            &progress.acknowledged,
            &note,
        );
        cuts += 1;
        for share in [2, 4] {
            let mut image = durable.clone();
            for (offset, bytes) in &unflushed {
                for (number, sector) in bytes.chunks(sector_len).enumerate() {
                    if random.below(share) == 0 {
                        let from = offset + number * sector_len;
                        image[from..from + sector.len()].copy_from_slice(sector);
                    }
                }
            }
            let note = format!("seed {seed}, power fails after event {at}, 1/{share} written");
            check(
                image,
                unit,
                &workload.ops,
                &progress,
                &progress.durable,
                &note,
            );
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn nothing_acknowledged_is_lost_at_any_cut() {
    let mut cuts = 0;
    for (seed, block_size, ring_blocks, sector_len) in [
        (1, 512, 6, SECTOR),
        (2, 512, 9, SECTOR),
        (3, 1536, 3, SECTOR),
        (4, 512, 8, SECTOR),
        (5, 4096, 1, SECTOR),
        (6, 512, 7, SECTOR),
        // A disk whose sectors are larger, and never torn themselves.
        (7, 4096, 4, 4096),
    ] {
        let data_blocks = 22 * 1024 / u64::from(block_size) + 4;
        let image = Shape {
            block_size,
            ring_blocks,
            data_blocks,
        }
        .image();
        let mut disk = SimDisk::recording(image.clone());
        disk.shuffle = (seed % 2 == 0).then_some(seed);
        disk.unit = u32::try_from(sector_len).unwrap();
        let workload = run(&disk, seed, if sector_len == SECTOR { 90 } else { 160 });
        cuts += cut_everywhere(&image, &workload, seed, sector_len);
    }
    assert!(cuts > 3000, "{cuts} cuts");
}
