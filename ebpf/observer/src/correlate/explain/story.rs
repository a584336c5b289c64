//! A request's story in one sentence. Unknowns are called unknown.

use lumpscope_units::human::{counted, short_bytes, short_ns};

use crate::api::Purpose;
use crate::correlate::requests::Block;
use crate::correlate::stages;
use crate::event::BlockOp;

use super::Known;
use super::words::{place_text, waited_for};

/// A request and its block requests in the order in which the disk was sent them.
pub(super) struct Story<'a> {
    pub(super) known: &'a Known<'a>,
    pub(super) blocks: &'a [Block],
}

impl Story<'_> {
    fn total(&self) -> u64 {
        self.known.ended.total_ns()
    }

    pub(super) fn sentence(&self) -> String {
        let [recv, sched, index, submit, queue, device, _, _, _, _, reply] = *self.known.stages;
        let mut told = Vec::new();
        self.tell(&mut told, recv, &self.receiving(recv));
        self.tell(&mut told, sched, "waiting for the store's turn");
        self.tell(&mut told, index, "in the index");
        self.tell(&mut told, submit, "submitting");
        if let Some(waited) = self.waited(queue) {
            told.push(waited);
        }
        told.extend(self.data(device));
        told.extend(self.commit());
        self.tell(&mut told, reply, "replying");
        if self.known.open.count == 0 {
            told.push(self.nothing_seen().to_owned());
        }
        let failed = if self.known.ended.ok {
            ""
        } else {
            " and failed"
        };
        let size = if self.known.ended.bytes > 0 {
            format!(" of {}", short_bytes(self.known.ended.bytes))
        } else {
            String::new()
        };
        let total = short_ns(self.total());
        let head = format!("{}{size} took {total}{failed}", self.known.ended.method);
        if told.is_empty() {
            head
        } else {
            format!("{head}: {}", told.join(", "))
        }
    }

    /// A stage is worth telling from one twentieth of the whole.
    fn tell(&self, told: &mut Vec<String>, ns: u64, what: &str) {
        if ns > 0 && ns.saturating_mul(20) >= self.total() {
            told.push(format!("{} {what}", short_ns(ns)));
        }
    }

    /// What was received while the disk was at work for it is in no other stage.
    fn receiving(&self, recv: u64) -> String {
        let begin = self.known.ended.begin_ns;
        let end = begin.saturating_add(recv);
        let clipped = self.of(Purpose::Data).filter_map(|block| {
            let (from, to) = block.event.at_device_ns()?;
            Some((from.clamp(begin, end), to.clamp(begin, end)))
        });
        match stages::union(clipped.collect()) {
            0 => "receiving".to_owned(),
            meanwhile => format!(
                "receiving, {} of it while the disk wrote what had come",
                short_ns(meanwhile)
            ),
        }
    }

    fn nothing_seen(&self) -> &'static str {
        match self.known.disk {
            Some(_) => "no block request of it was seen",
            None => "its block requests were not observed",
        }
    }

    fn waited(&self, queue: u64) -> Option<String> {
        let most = self.of(Purpose::Data).map(|block| block.ahead).max();
        let most = most.unwrap_or(0);
        if queue == 0 || (queue.saturating_mul(20) < self.total() && most == 0) {
            return None;
        }
        let behind = match most {
            0 => "for the disk".to_owned(),
            n => format!("behind {}", counted(n.into(), "other block request")),
        };
        Some(format!("{} queued {behind}", short_ns(queue)))
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
        let more =
            if self.blocks.len() < usize::try_from(self.known.open.count).unwrap_or(usize::MAX) {
                " or more"
            } else {
                ""
            };
        let plural = if count == 1 { "" } else { "s" };
        let which = if count == 1 { "" } else { "the farthest " };
        let size = short_bytes(u64::from(farthest.event.sectors) * 512);
        let shared = if farthest.share.shared {
            ", shared with other requests"
        } else {
            ""
        };
        let place = place_text(self.known, farthest);
        let sector = farthest.event.sector;
        let device = short_ns(device);
        Some(format!(
            "{count}{more} {kind}{plural} ({which}{size} at sector {sector}{shared}, {place}), \
             device {device}"
        ))
    }

    fn commit(&self) -> Option<String> {
        let [_, _, _, _, _, _, journal, wait, write, flush, _] = *self.known.stages;
        let commit = [journal, wait, write, flush]
            .into_iter()
            .fold(0, u64::saturating_add);
        if commit == 0 {
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
            "commit {}{with}{}{}",
            short_ns(commit),
            parts.join(" and "),
            self.waited_for(wait)
        ))
    }

    /// The wait for the batch before, if it is worth telling.
    fn waited_for(&self, wait: u64) -> String {
        if wait == 0 || wait.saturating_mul(20) < self.total() {
            return String::new();
        }
        let behind = waited_for(self.known);
        format!(", {} of it waiting for {behind}", short_ns(wait))
    }

    fn of(&self, purpose: Purpose) -> impl Iterator<Item = &Block> {
        self.blocks
            .iter()
            .filter(move |block| block.share.purpose == purpose)
    }
}
