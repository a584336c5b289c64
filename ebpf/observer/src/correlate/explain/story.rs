//! A request's story in one sentence. Unknowns are called unknown.
//!
//! Each clause is a sum over all that was done for the request. What it did in a stage is told by its
//! own times: when its I/Os were asked for and had returned, and when their block requests were
//! queued and at the disk.

use lumpscope_units::human::{short_bytes, short_ns};

use crate::correlate::requests::IoWork;

use super::RequestFacts;
use super::words::{behind, culprit_text, place_text, waited_for};

/// A request that has ended.
pub(super) struct Story<'a> {
    pub(super) known: &'a RequestFacts<'a>,
}

impl Story<'_> {
    fn total(&self) -> u64 {
        self.known.ended.total_ns()
    }

    pub(super) fn sentence(&self) -> String {
        let ended = self.known.ended;
        let [recv, sched, index, ..] = *self.known.stages;
        let mut told = Vec::new();
        self.tell(&mut told, recv, &self.receiving());
        self.tell(&mut told, sched, "waiting for the store's turn");
        self.tell(&mut told, index, "in the index");
        self.data(&mut told);
        told.extend(self.commit());
        self.tell(&mut told, self.known.stages[10], "replying");
        if self.known.open.count == 0 {
            told.push(self.nothing_seen().to_owned());
        }
        let failed = if ended.ok { "" } else { " and failed" };
        let size = match ended.bytes {
            0 => String::new(),
            bytes => format!(" of {}", short_bytes(bytes)),
        };
        let total = short_ns(self.total());
        let head = format!(
            "{}{size} took {total}{failed}{}",
            ended.method,
            self.culprit()
        );
        if told.is_empty() {
            head
        } else {
            format!("{head}: {}", told.join(", "))
        }
    }

    /// Whom the disk served meanwhile, if that is worth telling.
    fn culprit(&self) -> String {
        let (ended, lost) = (self.known.ended, &self.known.open.lost);
        let least = if lost.at_least { "at least " } else { "" };
        match lost.worst(ended.begin_ns, ended.end_ns) {
            Some((culprit, ns)) if self.is_worth(ns) => format!(
                ", and the disk served {} for {least}{} of it",
                culprit_text(self.known, &culprit),
                short_ns(ns)
            ),
            _ => String::new(),
        }
    }

    /// A time is worth telling from one twentieth of the whole.
    fn is_worth(&self, ns: u64) -> bool {
        ns > 0 && ns.saturating_mul(20) >= self.total()
    }

    fn tell(&self, told: &mut Vec<String>, ns: u64, what: &str) {
        if self.is_worth(ns) {
            told.push(format!("{} {what}", short_ns(ns)));
        }
    }

    /// `at least ` if I/Os may have been under way before a stage, for their time counts in it too.
    fn least(&self, work: &IoWork, mixed: bool, stage_at: u64) -> &'static str {
        let stage_ns = self.known.ended.begin_ns.saturating_add(stage_at);
        match mixed || work.asked.iter().any(|(from, _)| *from < stage_ns) {
            true => "at least ",
            false => "",
        }
    }

    /// Until when its I/Os count.
    fn end_ns(&self) -> u64 {
        self.known.ended.end_ns
    }

    /// At the disk for its data for longer than the data took is what it did while the body came, as far
    /// as that was so: of a request that nobody waited for the data may count in no stage.
    fn receiving(&self) -> String {
        let ended = self.known.ended;
        let device = |until_ns| self.known.open.data.times(until_ns).device;
        let received_ns = ended.begin_ns.saturating_add(ended.stages_ns[0]);
        let beyond = device(self.end_ns()).saturating_sub(ended.stages_ns[3]);
        match beyond.min(device(received_ns)) {
            0 => "receiving".to_owned(),
            meanwhile => format!(
                "receiving, at least {} of it while the disk wrote what had come",
                short_ns(meanwhile)
            ),
        }
    }

    /// When its I/Os were asked for, and when their block requests were at the disk.
    fn knows_its_ios(&self) -> bool {
        self.known.disk.is_some() && !self.known.open.gaps.too_many_intervals
    }

    fn nothing_seen(&self) -> &'static str {
        match self.known.disk {
            Some(_) => "no block request of it was seen",
            None => "its block requests were not observed",
        }
    }

    /// The data's block requests: in the service and in system calls, in the queue, where the
    /// farthest of them had to go, and how long the disk worked.
    fn data(&self, told: &mut Vec<String>) {
        let (open, data_ns) = (self.known.open, self.known.ended.stages_ns[3]);
        if !self.knows_its_ios() {
            return self.tell(told, data_ns, "of data I/O");
        }
        let times = open.data.times(self.end_ns());
        let recv_ns = self.known.ended.stages_ns[0];
        let mixed = recv_ns > 0 && open.data.asked.len() > 1;
        let least = self.least(&open.data, mixed, recv_ns);
        let rest = data_ns.saturating_sub(times.in_all());
        if self.is_worth(rest) {
            told.push(format!("{least}{} in the service", short_ns(rest)));
        }
        self.tell(told, times.asked, asked(&open.data));
        self.tell(told, times.back, "on the way back from the disk");
        let ahead = open.most_ahead;
        if times.queue > 0 && (self.is_worth(times.queue) || ahead.count > 0) {
            let each = if requests(&open.data) == 1 {
                ""
            } else {
                "up to "
            };
            let behind = behind(ahead, each).unwrap_or_else(|| "for the disk".to_owned());
            told.push(format!("{} queued {behind}", short_ns(times.queue)));
        }
        let Some(farthest) = &open.farthest else {
            return;
        };
        let which = match requests(&open.data) {
            1 => "",
            _ => "the farthest ",
        };
        let shared = if farthest.share.sharers.is_some() {
            ", shared with other requests"
        } else {
            ""
        };
        told.push(format!(
            "{} ({which}{} at sector {}{shared}, {}), device {}",
            listed(&open.data, "read", "write"),
            short_bytes(u64::from(farthest.event.sectors) * 512),
            farthest.event.sector,
            place_text(self.known, farthest),
            short_ns(times.device)
        ));
    }

    /// The commit, and where most of it went.
    fn commit(&self) -> Option<String> {
        let [_, _, _, _, _, _, journal, wait, write, flush, _] = *self.known.stages;
        let stages = [journal, wait, write, flush].into_iter();
        let commit = stages.fold(0, u64::saturating_add);
        let work = &self.known.open.commit;
        if commit == 0 || requests(work) == 0 && !self.is_worth(commit) {
            return None;
        }
        let with = match requests(work) {
            0 => String::new(),
            _ => format!(" with {}", listed(work, "journal read", "journal write")),
        };
        let times = work.times(self.end_ns());
        let rest = commit.saturating_sub(wait).saturating_sub(times.in_all());
        let waiting = format!("waiting for {}", waited_for(self.known));
        let end = self.total().saturating_sub(self.known.stages[10]);
        let least = self.least(work, false, end.saturating_sub(commit));
        let mut parts = vec![
            (rest, "in the service"),
            (times.device, "at the disk"),
            (times.queue, "queued"),
            (times.asked, asked(work)),
            (times.back, "on the way back from the disk"),
            (wait, &waiting),
        ];
        if !self.knows_its_ios() {
            parts.retain(|(_, what)| *what == waiting);
        }
        parts.retain(|(ns, _)| self.is_worth(*ns));
        parts.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        let parts: Vec<String> = parts
            .iter()
            .map(|(ns, what)| match *what {
                "in the service" => format!("{least}{} {what}", short_ns(*ns)),
                _ => format!("{} {what}", short_ns(*ns)),
            })
            .collect();
        let parts = match parts.is_empty() {
            true => String::new(),
            false => format!(" ({})", parts.join(", ")),
        };
        Some(format!("commit {}{with}{parts}", short_ns(commit)))
    }
}

fn requests(work: &IoWork) -> u32 {
    work.reads + work.writes + work.flushes
}

/// The name of the time before the first block request.
fn asked(work: &IoWork) -> &'static str {
    match requests(work) {
        0 => "in system calls without a block request",
        _ => "on the way to the disk",
    }
}

/// As `1 journal write and 2 flushes`.
fn listed(work: &IoWork, read: &str, write: &str) -> String {
    let all = [
        (work.reads, read, "s"),
        (work.writes, write, "s"),
        (work.flushes, "flush", "es"),
    ];
    let some = all.iter().filter(|(n, ..)| *n > 0);
    let some: Vec<String> = some
        .map(|(n, one, s)| format!("{n} {one}{}", if *n == 1 { "" } else { s }))
        .collect();
    some.join(" and ")
}
