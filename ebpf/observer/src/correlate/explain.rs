//! What happened to a slow request, in one sentence. What is not known is said to be unknown.

use crate::api::Purpose;
use crate::event::BlockOp;
use crate::report::{BlockIo, Explained};

use super::disk::Disk;
use super::requests::{Block, Open};
use super::totals::stage_times;
use super::{Ended, Owner};

/// Explains a request. `disk`: where its block requests went, when that is observed.
pub(super) fn explain(
    ended: &Ended,
    open: &Open,
    stages: &[u64; 8],
    disk: Option<&Disk>,
    file_system: &str,
) -> Explained {
    let mut blocks = open.blocks.clone();
    blocks.sort_by_key(|block| block.event.issue_ns.unwrap_or(block.event.done_ns));
    let story = Story {
        ended,
        open,
        blocks: &blocks,
        stages,
        disk,
        file_system,
    };
    Explained {
        request_id: ended.request,
        method: ended.method.clone(),
        total_ns: story.total(),
        stages: stage_times(stages),
        block_requests: open.count,
        sentence: story.sentence(),
        blocks: blocks.iter().map(|block| block_io(block, disk)).collect(),
        ..Explained::default()
    }
}

fn block_io(block: &Block, disk: Option<&Disk>) -> BlockIo {
    let event = &block.event;
    let placed = event.op != BlockOp::Flush;
    let previous = disk.and_then(|disk| disk.previous(event));
    BlockIo {
        operation: event.op.name().to_owned(),
        purpose: purpose_name(block.purpose).to_owned(),
        sector: if placed { event.sector } else { 0 },
        sectors: if placed { event.sectors } else { 0 },
        own_bytes: block.own_bytes,
        shared: block.shared,
        seek_bytes: event.seek.map(|seek| seek.saturating_mul(512)),
        previous_owner: previous.map(|p| short_name(&p.owner)).unwrap_or_default(),
        queue_ns: event.queue_time_ns(),
        device_ns: event.device_time_ns(),
        ..BlockIo::default()
    }
}

fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Data => "data",
        Purpose::Journal => "journal",
        Purpose::Header => "header",
        Purpose::Flush => "flush",
        Purpose::Recovery => "recovery",
        Purpose::Scrub => "scrub",
        Purpose::Checkpoint => "checkpoint",
    }
}

fn short_name(owner: &Owner) -> String {
    match owner {
        Owner::Request(id) => format!("request {id}"),
        Owner::Other(comm) if !comm.is_empty() => format!("other ({comm})"),
        other => other.class().to_owned(),
    }
}

struct Story<'a> {
    ended: &'a Ended,
    open: &'a Open,
    blocks: &'a [Block],
    stages: &'a [u64; 8],
    disk: Option<&'a Disk>,
    file_system: &'a str,
}

impl Story<'_> {
    fn total(&self) -> u64 {
        self.ended.end_ns.saturating_sub(self.ended.begin_ns)
    }

    fn sentence(&self) -> String {
        let [recv, sched, index, submit, queue, device, journal, reply] = *self.stages;
        let mut told = Vec::new();
        self.tell(&mut told, recv, "receiving");
        self.tell(&mut told, sched, "waiting for the store's turn");
        self.tell(&mut told, index, "in the index");
        self.tell(&mut told, submit, "submitting");
        if let Some(waited) = self.waited(queue) {
            told.push(waited);
        }
        told.extend(self.data(device));
        told.extend(self.commit(journal));
        self.tell(&mut told, reply, "replying");
        if self.open.count == 0 {
            told.push(self.nothing_seen().to_owned());
        }
        let failed = if self.ended.ok { "" } else { " and failed" };
        let size = if self.ended.bytes > 0 {
            format!(" of {}", bytes_text(self.ended.bytes))
        } else {
            String::new()
        };
        let total = time_text(self.total());
        let head = format!("{}{size} took {total}{failed}", self.ended.method);
        if told.is_empty() {
            head
        } else {
            format!("{head}: {}", told.join(", "))
        }
    }

    /// A stage is worth telling from one twentieth of the whole.
    fn tell(&self, told: &mut Vec<String>, ns: u64, what: &str) {
        if ns > 0 && ns.saturating_mul(20) >= self.total() {
            told.push(format!("{} {what}", time_text(ns)));
        }
    }

    fn nothing_seen(&self) -> &'static str {
        match self.disk {
            Some(_) => "no block request of it was seen",
            None => "its block requests were not observed",
        }
    }

    fn waited(&self, queue: u64) -> Option<String> {
        let data = || self.of(Purpose::Data);
        let ahead = |block: &Block| {
            self.disk
                .map_or(0, |disk| disk.ahead_of(&block.event, self.ended.request))
        };
        let most = data().map(ahead).max().unwrap_or(0);
        if queue == 0 || (queue.saturating_mul(20) < self.total() && most == 0) {
            return None;
        }
        let behind = match most {
            0 => String::new(),
            1 => " behind 1 other block request".to_owned(),
            n => format!(" behind {n} other block requests"),
        };
        Some(format!("{} waiting for the disk{behind}", time_text(queue)))
    }

    /// The data's block requests, and where the farthest of them had to go.
    fn data(&self, device: u64) -> Option<String> {
        let first = self.of(Purpose::Data).next()?;
        let count = self.of(Purpose::Data).count();
        let farthest = self
            .of(Purpose::Data)
            .max_by_key(|b| {
                (
                    b.event.seek.map(i64::unsigned_abs),
                    std::cmp::Reverse(b.event.issue_ns),
                )
            })
            .unwrap_or(first);
        let kind = first.event.op.name();
        let more = if self.blocks.len() < usize::try_from(self.open.count).unwrap_or(usize::MAX) {
            " or more"
        } else {
            ""
        };
        let plural = if count == 1 { "" } else { "s" };
        let which = if count == 1 { "" } else { "the farthest " };
        let size = bytes_text(u64::from(farthest.event.sectors) * 512);
        let shared = if farthest.shared {
            ", shared with other requests"
        } else {
            ""
        };
        let place = self.place(farthest);
        let sector = farthest.event.sector;
        let device = time_text(device);
        Some(format!(
            "{count}{more} {kind}{plural} ({which}{size} at sector {sector}{shared}, {place}), \
             device {device}"
        ))
    }

    /// How far from the request before, and whose that was.
    fn place(&self, block: &Block) -> String {
        let Some(seek) = block.event.seek else {
            return "seek distance unknown".to_owned();
        };
        let whose = match self.disk.and_then(|disk| disk.previous(&block.event)) {
            Some(previous) => self.whose(&previous.owner),
            None => "whose owner is unknown".to_owned(),
        };
        let far = bytes_text(seek.unsigned_abs().saturating_mul(512));
        match seek {
            0 => format!("right after the previous request, {whose}"),
            1.. => format!("{far} ahead of the previous request, {whose}"),
            _ => format!("{far} back from the previous request, {whose}"),
        }
    }

    fn whose(&self, owner: &Owner) -> String {
        let system = if self.file_system.is_empty() {
            "file system's"
        } else {
            self.file_system
        };
        match owner {
            Owner::Request(id) if *id == self.ended.request => "its own".to_owned(),
            Owner::Request(id) => format!("made for request {id}"),
            Owner::Requests(id) => format!("made for request {id} and others"),
            Owner::Store => "made by the store for itself".to_owned(),
            Owner::FsJournal => format!("made by the {system} journal"),
            Owner::FsMetadata => format!("made for {system} metadata"),
            Owner::Writeback => "made by the kernel's writeback".to_owned(),
            Owner::Other(comm) if comm.is_empty() => "made by an unknown process".to_owned(),
            Owner::Other(comm) => format!("made by process {comm}"),
        }
    }

    fn commit(&self, journal: u64) -> Option<String> {
        if journal == 0 {
            return None;
        }
        let flushes = self
            .blocks
            .iter()
            .filter(|b| b.event.op == BlockOp::Flush)
            .count();
        let writes = self.of(Purpose::Journal).chain(self.of(Purpose::Header));
        let writes = writes.filter(|b| b.event.op == BlockOp::Write).count();
        let some = |n: usize, one: &str, many: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let parts: Vec<String> = [
            some(writes, "journal write", "journal writes"),
            some(flushes, "flush", "flushes"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let with = if parts.is_empty() {
            String::new()
        } else {
            " with ".to_owned()
        };
        Some(format!(
            "commit {}{with}{}",
            time_text(journal),
            parts.join(" and ")
        ))
    }

    fn of(&self, purpose: Purpose) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .filter(move |block| block.purpose == purpose)
    }
}

/// A time with one decimal in the unit that suits it.
fn time_text(ns: u64) -> String {
    scaled(
        ns,
        &[
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ],
    )
}

/// A size with one decimal in the unit that suits it.
fn bytes_text(bytes: u64) -> String {
    scaled(
        bytes,
        &[
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("B", 1),
        ],
    )
}

fn scaled(n: u64, units: &[(&str, u64)]) -> String {
    let &(name, unit) = units
        .iter()
        .find(|(_, unit)| n >= *unit)
        .unwrap_or(&units[units.len() - 1]);
    let tenths = (u128::from(n) * 10 + u128::from(unit) / 2) / u128::from(unit);
    match (unit, tenths % 10) {
        (1, _) | (_, 0) => format!("{} {name}", tenths / 10),
        (_, tenth) => format!("{}.{tenth} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_read_well() {
        assert_eq!(bytes_text(1 << 20), "1 MiB");
        assert_eq!(bytes_text(0), "0 B");
        assert_eq!(bytes_text(1_610_612_736), "1.5 GiB");
        assert_eq!(time_text(9_100_000), "9.1 ms");
        assert_eq!(time_text(950), "950 ns");
    }
}
